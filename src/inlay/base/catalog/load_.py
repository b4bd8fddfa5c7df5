"""Errors of finding and recognizing files of programs."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="load.missing",
        title="a file that is not there",
        explanation="The path names no file that can be read.",
        remedy="Check the path; it is taken relative to the working directory.",
    ),
    Entry(
        id="load.unknown-format",
        title="a file whose format is not known by its name",
        explanation="The reader of a program is chosen by the end of the file's name.",
        remedy="Use `.onnx` for ONNX models and `.inl` for programs in text form.",
    ),
    Entry(
        id="load.executable",
        title="an executable where a program is needed",
        explanation=(
            "An `.inlay` file holds bytecode and native code. It can be run, and no program can be "
            "got back from it."
        ),
        remedy="Use `inlay.load_executable`, or compile the model it was made from.",
    ),
    Entry(
        id="load.not-text",
        title="a program whose file is not text",
        explanation="Programs in text form are UTF-8; the file has bytes that are not.",
        remedy="Save the file as UTF-8, or check that it is what it is named.",
    ),
    Entry(
        id="load.bad-inputs",
        title="a file of inputs that does not serve",
        explanation=(
            "Inputs for a run are read from an .npz archive with one array for each input, by name."
        ),
        remedy="Write the archive with `numpy.savez(path, name=array, ...)`.",
    ),
)
