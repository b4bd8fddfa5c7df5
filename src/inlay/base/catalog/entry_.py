"""Errors of entries: what an executable takes from outside, and what it gives."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="entry.type",
        title="an input or output that has no form outside",
        explanation=(
            "An executable takes and gives tensors, and lists, options and tuples of them. Control "
            "values become small tensors, but not inside lists and options; functions, cells and "
            "other data types have no such form."
        ),
        remedy="Build or take apart such values inside the program.",
        example="def @main(t: Tree[Tensor[4, f32]]) -> Tensor[4, f32] { ... }",
    ),
    Entry(
        id="entry.dim",
        title="a dim of an input that no input determines",
        explanation=(
            "When an executable is called, every symbol in the dims of its inputs is read from some "
            "dim: from `n` itself, or from a dim such as `2*n` with one unknown. A symbol that "
            "occurs only together with another unknown has no value."
        ),
        remedy="Let some input have the symbol as a dim of its own.",
        example="def @main(x: Tensor[n + m, f32]) -> Tensor[n + m, f32] { x }",
    ),
    Entry(
        id="entry.structure",
        title="a list, option or tuple that the command line cannot give or show",
        explanation="`inlay run` makes random tensors, and reads and writes files of tensors.",
        remedy="Call the program from Python, where a list is a list and an option may be None.",
    ),
    Entry(
        id="entry.called",
        title="a choice of outputs for a function that the program calls itself",
        explanation=(
            "`inlay.compile(outputs=[...])` changes what the entry gives; a program that calls its own "
            "entry needs all of it."
        ),
        remedy="Choose outputs when it runs: `run(inputs, outputs=[...])`.",
    ),
)
