"""Errors of what is given in a call, all `RunError`. The executable stays usable after each."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

_SEE = "Compare with `Executable.inputs`, and give what the message says is expected."

ENTRIES = (
    Entry(
        id="input.missing",
        title="an input that was not given",
        explanation="Every input of the model needs a value in each call.",
        remedy=_SEE,
    ),
    Entry(
        id="input.unknown",
        title="an input that the model does not have",
        explanation="A value was given under a name that no input has.",
        remedy=_SEE,
    ),
    Entry(
        id="input.not-array",
        title="an input that is no array",
        explanation="The value is neither an array nor something that an array can be made of.",
        remedy="Give a NumPy array, or an object that offers DLPack.",
    ),
    Entry(
        id="input.structure",
        title="an input that is not the list, option or tuple that is needed",
        explanation=(
            "A `List` is given as a Python list, an `Option` as None or its content, a tuple as a "
            "tuple. The message names the way to the value: 'x[2].1' is field 1 of element 2."
        ),
        remedy=_SEE,
    ),
    Entry(
        id="input.dtype",
        title="an input of another element type",
        explanation=(
            "Values are not converted behind your back: a conversion costs time and may lose digits."
        ),
        remedy="Convert the array with `.astype`.",
    ),
    Entry(
        id="input.rank",
        title="an input with another number of dims",
        explanation="The number of dims of each input is part of the model.",
        remedy="Reshape the array; a single sample usually needs a leading dim of 1.",
    ),
    Entry(
        id="input.dim",
        title="an input with a dim that does not fit",
        explanation=(
            "A dim is fixed by the model, or must agree with a dim of another input; the message "
            "says which one decided it."
        ),
        remedy=_SEE,
    ),
    Entry(
        id="input.requirement",
        title="inputs whose sizes break a condition",
        explanation="The model limits its sizes, for instance by a largest sequence length.",
        remedy=_SEE,
    ),
    Entry(
        id="input.entry",
        title="a call of an entry that the executable does not have",
        explanation="The message lists the entries there are; the first is called where none is named.",
        remedy="Compare with `Executable.entries`.",
    ),
    Entry(
        id="input.output",
        title="a call that asks for an output that the entry does not have",
        explanation="The message lists the outputs there are; all are given where none is named.",
        remedy="Compare with `Executable.outputs`.",
    ),
    Entry(
        id="input.session",
        title="a session that hands on what the entry does not have",
        explanation="A session says which output becomes which input of the next run, by their names.",
        remedy="Compare with `Executable.inputs` and `Executable.outputs`.",
    ),
    Entry(
        id="input.time-limit",
        title="a time limit that is none",
        explanation="A time limit is a number of seconds from now on, and zero at least.",
        remedy="Give a number of seconds, or None for no limit.",
    ),
    Entry(
        id="input.mismatch",
        title="an input that does not fit the signature",
        explanation="The C runtime found that an input differs from the signature of the entry.",
        remedy=_SEE,
    ),
)
