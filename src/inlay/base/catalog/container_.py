"""Errors of executable files."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="container.not-inlay",
        title="a file that is not an executable of this project",
        explanation="The first bytes are not those of an .inlay file.",
        remedy="Give a file that `inlay compile` or `Executable.save` wrote.",
    ),
    Entry(
        id="container.version",
        title="an executable of another format version",
        explanation="The format of executables changed between the writer and this runtime.",
        remedy="Compile the model again with this version.",
    ),
    Entry(
        id="container.truncated",
        title="an executable that is not all there",
        explanation="The file is shorter or longer than its header says.",
        remedy="Copy the file again, or compile the model again.",
    ),
    Entry(
        id="container.corrupt",
        title="an executable whose tables contradict themselves",
        explanation="A count, offset or index in the file does not fit what it refers to.",
        remedy="Copy the file again, or compile the model again.",
    ),
    Entry(
        id="container.digest",
        title="an executable whose bytes changed",
        explanation="A section does not have the digest that was computed when it was written.",
        remedy="Copy the file again, or compile the model again.",
    ),
    Entry(
        id="container.bytecode",
        title="an executable whose program the verifier refuses",
        explanation=(
            "The instructions could leave their frame, read a slot that holds nothing, or name "
            "something that does not exist, so they are not executed."
        ),
        remedy="Compile the model again; report it if the file is as it was written.",
    ),
    Entry(
        id="container.target",
        title="an executable for another machine",
        explanation=(
            "The native code was compiled for an architecture or for CPU features that this "
            "machine does not have."
        ),
        remedy="Compile the model on this machine, or for its architecture.",
    ),
    Entry(
        id="container.symbol",
        title="an executable that needs a function nobody gave",
        explanation="A kernel is a function of the embedding program, and it was not passed.",
        remedy="Pass the function by that name when loading.",
    ),
)
