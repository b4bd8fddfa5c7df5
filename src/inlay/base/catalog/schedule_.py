"""Refusals of schedule primitives."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="schedule.name",
        title="a loop, block, buffer or primitive that does not exist",
        explanation="Primitives address the parts of a function by name.",
        remedy="Use one of the names in the message; splitting a loop replaces it by new ones.",
    ),
    Entry(
        id="schedule.not-nested",
        title="loops that are not directly inside one another",
        explanation="The primitive needs loops with nothing else between them.",
        remedy="Move or split what stands between the loops first.",
    ),
    Entry(
        id="schedule.not-constant",
        title="a loop whose extent must be a number",
        explanation="Unrolled and vector loops are written out, so their extent is a number.",
        remedy="Split the loop by a number and use the inner loop.",
    ),
    Entry(
        id="schedule.extent",
        title="extents that depend on a loop or do not agree",
        explanation="The primitive would need the extent of one loop to be known outside another.",
        remedy="Use loops whose extents are equal and depend on dims only.",
    ),
    Entry(
        id="schedule.dependence",
        title="a change of order that a data dependence forbids",
        explanation=(
            "A value would be read before it is written, or after it is overwritten, or by another "
            "iteration than the one that writes it."
        ),
        remedy="Change the schedule of the producer so that the order can be proved.",
    ),
    Entry(
        id="schedule.kind",
        title="a loop or block that the primitive does not apply to",
        explanation="For example a parallel loop inside another loop, or a block without reduction.",
        remedy="The message names what was found and what was needed.",
    ),
    Entry(
        id="schedule.trace",
        title="a trace that cannot be read",
        explanation="A trace is one call in each line, with names and numbers as arguments.",
        remedy="Write the trace with `print_trace`.",
    ),
)
