"""Errors of options, wherever they are given."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="option.unknown",
        title="an option that does not exist",
        explanation="An option was named that the command or pass does not have.",
        remedy="Use one of the names in the message.",
    ),
    Entry(
        id="option.bad-value",
        title="an option with a value it cannot take",
        explanation="The value could not be read as the type of the option.",
        remedy="Give a value of the type in the message.",
    ),
    Entry(
        id="option.no-effect",
        title="an option that would do nothing",
        explanation=(
            "An option was given where it means nothing: beside another one that takes its place, "
            "for a file that it is not for, or without the option that it belongs to. Whoever "
            "writes it expects something of it, so it is not passed over."
        ),
        remedy="Leave it out, or give what the message says it needs.",
    ),
    Entry(
        id="option.pass-order",
        title="a list of passes in an order that does not fit",
        explanation="A pass counts on what another one establishes, and nothing before it does.",
        remedy="Put the pass that the message names before it.",
    ),
    Entry(
        id="option.usage",
        title="a command line whose words do not fit",
        explanation="A command, an argument or an option is missing, unknown or without its value.",
        remedy="`inlay --help` lists commands, `inlay COMMAND --help` what one takes.",
    ),
)
