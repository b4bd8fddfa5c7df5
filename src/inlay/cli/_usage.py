"""The command line as words: the parser of a command, and what is said of words that do not fit.

`argparse` reads the words. It would end the process with a list of everything that a command takes;
here a mistake is an error like others, with the nearest name and one line of usage.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from inlay.base.diagnostics import CompileError, error
from inlay.base.registry import ModuleTable, did_you_mean
from inlay.cli._command import Command

DESCRIPTION = "a tensor compiler for machines made of different parts"
_UNKNOWN = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)

_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)", re.DOTALL)
_NO_VALUE = re.compile(r"--[\w-]+=--|-\w--")
"""Words of which `argparse` makes an empty list."""


class UsageError(CompileError):
    """The words of a command line do not fit together."""


class Parser(argparse.ArgumentParser):
    """A parser that raises what it does not understand, and has one line of usage."""

    def error(self, message: str) -> NoReturn:
        """Raise a mistake in the words.

        Raises:
            UsageError: always.
        """
        found = _UNKNOWN.fullmatch(message)
        options = [name for name in self._option_string_actions if name.startswith("--")]
        words = found[1].split() if found else []
        unknown = [(w.partition("=")[0], options) for w in words if w.startswith("-")]
        choice = _CHOICE.search(message)
        if choice is not None:
            unknown.append((choice[1], re.findall(r"'(.*?)'", choice[2])))
        raise usage_error(message, self.format_usage(), unknown)

    def given(self, words: Sequence[str]) -> dict[str, str]:
        """Return the options that are written in words that fit, as they are spelled, by name."""
        options = [a for a in self._actions if a.option_strings]
        long = {a.dest: [o for o in a.option_strings if o.startswith("--")] for a in options}
        self._defaults.clear()
        for action in options:
            action.default = argparse.SUPPRESS
        found = vars(self.parse_known_args(words)[0])
        return {name: long[name][0] for name in found if long.get(name)}

    def in_one_line(self) -> None:
        """Make the usage one line: what must be given, in order."""
        needed = [a for a in self._actions if a.required and a.option_strings]
        words = [f"{a.option_strings[0]} {a.metavar or a.dest.upper()}" for a in needed]
        for action in self._get_positional_actions():
            name = "|".join(action.choices) if action.choices else str(action.metavar or action.dest)
            words.append(f"[{name}]" if action.nargs == "?" else name)
        self.usage = " ".join([self.prog, "[options]", *words]).replace("%", "%%")


def usage_error(message: str, usage: str, unknown: Iterable[tuple[str, Iterable[str]]] = ()) -> UsageError:
    """Return the error of words that do not fit; `unknown` are words and the names that there are."""
    close: list[str] = []
    for word, known in unknown:
        bare = {name.lstrip("-"): name for name in known}  # dashes make all options look alike
        near = difflib.get_close_matches(word.lstrip("-"), bare, n=1)
        close += [bare[name] for name in near]
    hint = did_you_mean([" and ".join(close)] if close else [])
    notes = [" ".join(usage.split())]
    return UsageError(error("option.usage", message, notes=notes, hint=hint).diagnostics)


def parse(words: Sequence[str], table: ModuleTable[Command]) -> argparse.Namespace:
    """Return what the words say, with the command that they name as `command`.

    The options that are written, and are no defaults, are in `given`: how each is spelled, by name.

    Raises:
        UsageError: `option.usage`.
    """
    names = [name for name in table if name != "main"]
    if words and not words[0].startswith("-") and words[0] not in names:
        message = f"found no command '{words[0]}'; there are {', '.join(names)}"
        raise usage_error(message, "usage: inlay COMMAND ...", [(words[0], names)])
    if words and words[0] in names:
        parser = _parser_of(words[0], table)
        for word in words:
            if _NO_VALUE.fullmatch(word):
                parser.error(f"argument {word[:-2].rstrip('=')}: expected one argument, found --")
        parsed, rest = parser.parse_known_args(words[1:])
        if rest:
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        parsed.given = parser.given(words[1:])
        return parsed
    return top_parser(table).parse_args(words)


def _parser_of(name: str, table: ModuleTable[Command]) -> Parser:
    """Return the parser of one command, the only one that is imported."""
    parser = Parser(prog=f"inlay {name}", description=_summary(name, table))
    command = table[name]
    command.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--traceback", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(command=command)
    parser.in_one_line()
    return parser


def top_parser(table: ModuleTable[Command]) -> Parser:
    """Return the parser of a line without a command; it lists what the files of commands say."""
    rows = [f"  {name:10} {_summary(name, table)}" for name in table if name != "main"]
    parser = Parser(
        prog="inlay",
        usage="inlay [--help] [--version] COMMAND ...",
        description=DESCRIPTION,
        epilog="\n".join(["commands:", *rows, "", "`inlay COMMAND --help` lists what one takes"]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=None, traceback=False)
    return parser


def _summary(name: str, table: ModuleTable[Command]) -> str:
    return table.summary(name).partition("`: ")[2].rstrip(".")
