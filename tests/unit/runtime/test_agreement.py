"""The C runtime and the reference interpreter agree on random programs, failures included.

So do all modes of the runtime: whatever goes on at the same time or in whatever order, results,
messages and places of failures are those of one instruction after the other."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.bytecode import container, writer
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.unit.runtime.generate import CALLBACKS, Generator

ARGUMENTS = (np.array([1, 2, 3]), np.arange(6, dtype=np.float32).reshape(2, 3))
MODES = [
    Settings(),
    Settings(threads=2, mode="parallel"),
    *(Settings(mode="replay", seed=seed) for seed in range(2)),
]


def outcome(exe):
    """What a call gives: results as bytes, or the failure with its text and place."""
    try:
        results = exe(*ARGUMENTS)
    except RunError as caught:
        (found,) = caught.diagnostics
        return (found.id, found.message, found.notes)
    return tuple((r.dtype.name, r.shape, r.tobytes()) for r in results)


def compare(seed: int) -> str:
    program = Generator(seed).program_of()
    reference = outcome(executable_of(program, engine="python", callbacks=CALLBACKS))
    for settings in MODES:
        native = executable_of(program, callbacks=CALLBACKS, settings=settings)
        for _ in range(2):
            assert outcome(native) == reference, (seed, settings)
            assert native.live_objects() == 0, (seed, settings)
    return reference[0] if isinstance(reference[0], str) else "ok"


@pytest.mark.sample(2)
@pytest.mark.parametrize("block", range(8))
def test_engines_agree(block):
    seen = [compare(1000 * block + index) for index in range(40)]
    assert seen.count("ok") > 15
    assert len(set(seen)) > 2, "failures are compared too"


def test_generated_programs_survive_the_container():
    for seed in range(20):
        program = Generator(seed).program_of()
        data = writer.to_bytes(program)
        assert writer.to_bytes(container.read(data)) == data
