"""Models whose course depends on data, in every mode of running: the same bits."""

from __future__ import annotations

import pytest

import inlay
from inlay.runtime.native import Settings
from tests.boards import PARTED
from tests.data import cases, model_case

TAGS = {"dyn", "if", "loop", "while", "scan", "tree", "stateful"}
DYNAMIC = [case.id for case in cases("onnx") if TAGS & set(case.tags)]
MODES = [("sequential", 0), ("parallel", 0), *(("replay", seed) for seed in (1, 2, 3))]
SLOW = {"super_resolution", "silero_vad_16k", "magika_v3_3", "gen_dyn_transformer_onnx"}
"""Those that take seconds to compile or to run."""


@pytest.mark.llvm
@pytest.mark.data
@pytest.mark.sample(3)
@pytest.mark.parametrize("id", [pytest.param(x, marks=pytest.mark.slow) if x in SLOW else x for x in DYNAMIC])
@pytest.mark.parametrize("threads", [1, 2])
def test_same_bits(id, threads, tmp_path):
    case = model_case(id)
    file = tmp_path / "model.inlay"
    inlay.compile(case.model, board=PARTED).save(file)
    executables = [
        inlay.load_executable(
            # With a hand-off of 0 every kernel is long: it is divided, and handed to workers.
            file,
            settings=Settings(threads=threads, mode=mode, seed=seed, hand_off_ns=limit),
        )
        for mode, seed in MODES
        for limit in (10_000, 0)
    ]
    for run in case.runs():
        for limit in range(2):
            found = [e.run(run.inputs) for e in executables[limit::2]]
            case.check(found[0], run.outputs)
            for other in found[1:]:
                assert {k: v.tobytes() for k, v in other.items()} == {
                    k: v.tobytes() for k, v in found[0].items()
                }
    assert all(e.live_objects() == 0 for e in executables)
