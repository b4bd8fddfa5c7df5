"""Drawn models with If, Loop and Scan compute what onnxruntime computes.

`make fuzz TARGETS=control` searches longer.
"""

from __future__ import annotations

import pytest

from tests.fuzz.against_onnxruntime import compared
from tests.fuzz.draw_control import drawn
from tests.fuzz.run import fuzz
from tests.fuzz.targets import targets

pytest.importorskip("onnxruntime")

SEEDS = (16, 64, 1302, 1639)
"""Each found a fault when it was new."""


def test_seeds_name_models():
    assert drawn(5) == drawn(5)
    assert drawn(5) != drawn(6)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_models(seed):
    assert compared(drawn(seed).SerializeToString()) == "ok"


@pytest.mark.slow
def test_search():
    seen = fuzz("control", targets(None)["control"], seed=10_000, seconds=60, driver=None)
    assert seen["ok"] > seen.total() * 0.8
