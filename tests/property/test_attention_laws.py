"""Attention in one kernel is what it is operator by operator, over drawn shapes, masks and spellings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from inlay.api import compilation
from inlay.arith.dtype import BF16, F16, F32, F64
from inlay.interp.tensor import evaluate
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.examples import examples
from tests.property.draw_attention import Attention, attentions

TOLERANCE = {F64: 1e-12, F32: 2e-5, F16: 4e-3, BF16: 3e-2}
"""Of results of one format, as they are of about one."""


@pytest.mark.llvm
@settings(max_examples=examples(2))
@given(attentions())
def test_native_attention_means_what_the_program_means(a: Attention):
    compiled = compilation(a.module, cache="none", verify=True, threads=2)
    expected = np.asarray(evaluate(a.module, a.args)).astype(np.float64)
    found = [
        np.asarray(executable_of(compiled.program, settings=Settings(threads=n))(*a.args)) for n in (1, 2)
    ]
    assert np.array_equal(found[0], found[1], equal_nan=True), "bits do not depend on threads"
    near = TOLERANCE[a.dtype]
    assert np.allclose(found[0].astype(np.float64), expected, rtol=near, atol=near, equal_nan=True)
