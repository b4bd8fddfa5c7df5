"""Errors about the machine that code is made for."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="target.unknown-host",
        title="a processor that no code generator knows",
        explanation=(
            "Code is generated for x86_64 and aarch64. The processor of this machine, or the level "
            "that was asked for, is another one."
        ),
        remedy="Compile for one of the architectures that `inlay targets` lists.",
    ),
    Entry(
        id="target.missing-feature",
        title="a processor without instructions that generated code needs",
        explanation=(
            "Rounding and conversions are compiled to single instructions (SSE 4.1 on x86_64), "
            "because generated code may not call a mathematical library."
        ),
        remedy="Use a processor from 2008 or later.",
    ),
    Entry(
        id="target.no-generator",
        title="a device that no code is made for",
        explanation=(
            "The program uses a device of the board, or its host, and no back end makes code for its "
            "architecture: none has the name that is given as `loader` and the code generator that is "
            "given as `generator`, or the back end that there is says why it cannot."
        ),
        remedy=(
            "Put what is there on another device with `--pin`, or choose another board with `--board`; "
            "`inlay targets check` says why no code is made."
        ),
    ),
    Entry(
        id="target.bad-backend",
        title="a module that is no back end",
        explanation=(
            "An installed package names the module by an entry point of the group `inlay.backends`. "
            "Such a module has a `BACKEND` that answers all questions of the protocol `Backend`."
        ),
        remedy="Correct or remove the package; `codegen/interface.py` says what a back end is.",
    ),
    Entry(
        id="target.other-device",
        title="a device elsewhere that is none the board is for",
        explanation=(
            "The board says that native code runs on a device behind a server. The server was asked, "
            "and offers a device that runs no native code, or a processor of another architecture "
            "than this machine's."
        ),
        remedy="Serve the processor of a machine like this one, or choose another board.",
    ),
)
