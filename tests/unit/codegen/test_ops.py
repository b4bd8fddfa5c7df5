"""Every operation on every format, in scalar and in vector loops, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith import dtype as dt
from inlay.machine.target import baseline, host
from tests.unit.codegen.samples import SAMPLES, Sample, program
from tests.unit.codegen.support import check, parsed, run_native


@pytest.mark.sample(50)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_operation(sample: Sample) -> None:
    check(sample.text, sample.inputs, {"n": sample.count})


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("level", ["v2", ""])
def test_every_sixteen_bit_value_converts_both_ways(kind: str, level: str) -> None:
    target = baseline("x86_64", level) if level else host()
    if level and host().arch != "x86_64":
        pytest.skip("x86_64 only")
    bits = np.arange(65538, dtype=np.uint32).astype(np.uint16)
    half = bits.view(dt.BY_NAME[kind].numpy)
    text = program("f32(x[$])", kind, "f32")
    a, b = run_native(parsed(text), [half], {"n": len(half)}, target=target)
    with np.errstate(invalid="ignore"):  # signaling NaNs, which some processors tell of
        expected = half.astype(np.float32)
    np.testing.assert_array_equal(a, expected)
    np.testing.assert_array_equal(b, expected)
    text = program(f"{kind}(x[$])", "f32", kind)
    a, b = run_native(parsed(text), [expected], {"n": len(half)}, target=target)
    ordinary = ~np.isnan(expected)
    for found in (a, b):
        np.testing.assert_array_equal(found.view(np.uint16)[ordinary], bits[ordinary])
        assert np.isnan(found.astype(np.float32)[~ordinary]).all()
