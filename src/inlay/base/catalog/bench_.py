"""Errors of measuring next to a peer."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="bench.different",
        title="a peer that gives another result",
        explanation=(
            "Before anything is timed, both sides run the same inputs and their outputs are "
            "compared. They differ by more than the tolerance, so one of them is wrong, or the "
            "model is sensitive to rounding."
        ),
        remedy=(
            "Give inputs of the right kind with `--inputs`; if the difference is rounding, allow it "
            "with `--atol` and `--rtol`. Otherwise report the model."
        ),
    ),
    Entry(
        id="bench.no-peer",
        title="a peer that is not installed",
        explanation="The peer is measured in this process, so its package must be importable.",
        remedy="Install it: `pip install 'inlay-compiler[bench]'`.",
    ),
    Entry(
        id="bench.peer-format",
        title="a model that the peer cannot read",
        explanation=(
            "The peer reads ONNX files only, and of these not all versions and operators. What it "
            "says itself is in the message."
        ),
        remedy=(
            "Measure the ONNX file that the program was made from; export it for the version that the "
            "peer knows, or install a newer peer."
        ),
    ),
    Entry(
        id="bench.nothing-to-measure",
        title="a board without a device that this machine has",
        explanation=(
            "Operators are measured by running them, so only devices of the architecture `native` "
            "can be measured here."
        ),
        remedy="Measure on the machine itself.",
    ),
)
