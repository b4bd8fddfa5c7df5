"""Errors of operators that the user gives."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="extern.name",
        title="a name that no operator of yours can have",
        explanation=(
            "Operators are called by names of letters, digits and underscores, joined by dots, and "
            "an operator that Inlay has cannot be replaced."
        ),
        remedy="Choose another name, such as my_domain.my_op.",
    ),
    Entry(
        id="extern.duplicate",
        title="two externs of one name",
        explanation="A program finds an operator by its name, so a list may have each name once.",
        remedy="Give one of them another name, or give both implementations to one extern.",
    ),
    Entry(
        id="extern.rule",
        title="a type rule that cannot be read, or that says what cannot be done",
        explanation=(
            "The type rule of an operator is a text `(x: Tensor[n, f32]) -> Tensor[n, f32]`, or a "
            "Python function from the types of the operands to the type of the result. Code from "
            "outside takes and gives tensors; only Python code may decide sizes of its result."
        ),
        remedy="See docs/reference/externs.md for what a rule may be.",
    ),
    Entry(
        id="extern.body",
        title="a generated body that does not fit its operator",
        explanation=(
            "A generated body is a block over the names of the parameters, or a text with a function "
            "`main`, of the type that the rule gives."
        ),
        remedy="Compile the body alone as a program of its own to see what is wrong with it.",
    ),
    Entry(
        id="extern.attribute",
        title="an attribute of a kind that operators cannot have",
        explanation="Attributes are numbers, truth values, text, and tuples of numbers of one type.",
        remedy="Give a default of such a kind, or a type; pass anything else as an operand.",
    ),
    Entry(
        id="extern.implementation",
        title="an implementation that was not given",
        explanation="An operator has the implementations that `inlay.extern` was given.",
        remedy="Give it with python=, c= or generated=, or choose another one.",
    ),
    Entry(
        id="extern.library",
        title="a C function that cannot be found",
        explanation=(
            "The library of a C implementation cannot be loaded, or has no such function. An "
            "executable file records the library as it was when the program was compiled."
        ),
        remedy="Build the library, or give the operator anew with `externs`.",
    ),
    Entry(
        id="extern.file",
        title="a file that defines no externs",
        explanation="`--extern FILE.py` takes all values that `inlay.extern` made in that file.",
        remedy="Bind each operator to a name at the top of the file.",
    ),
)
