"""Operators on a 64-bit Arm processor, scheduled and compiled for it: emulated where the machine is another one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from inlay.interp.tensor import evaluate
from inlay.machine.target import baseline
from inlay.ops._define import FusionPattern, OpDef
from inlay.ops.table import table
from tests.differential.executors import prepare, program, sum_length
from tests.differential.on_arm import ARM, I8MM, in_machine_code, kernels_for, runs_here
from tests.emulated_image import EMULATOR
from tests.system import absent
from tests.tolerance import assert_close
from tests.unit.codegen.samples import SAMPLES, Sample
from tests.unit.codegen.support import check

pytestmark = [pytest.mark.llvm, pytest.mark.skipif(not runs_here(ARM), reason=absent(EMULATOR) or "no Arm")]

KERNELS = [
    d for d in table() if d.pattern is not FusionPattern.CONTROL and (d.compute or d.loops or d.decompose)
]


@pytest.mark.sample(14)
@pytest.mark.parametrize("d", [d for d in KERNELS if d.name != "device_copy"], ids=lambda d: d.name)
def test_operators(d: OpDef) -> None:
    """One sample of each, of symbolic sizes where there is one; with dot products of bytes and without."""
    random = Random(d.name)
    symbolic = [s for s in d.samples() if s.symbolic]
    s, target = random.choice(symbolic or d.samples()), random.choice((baseline("aarch64"), ARM, I8MM))
    setup = prepare(d, s, symbolic=bool(symbolic))
    expected = d.evaluate(s.attrs, *s.args)
    module, arrays = program(setup)
    found = evaluate(in_machine_code(kernels_for(module, target), target), arrays)
    pairs = [(found, expected)] if not isinstance(expected, tuple) else zip(found, expected, strict=True)
    for actual, needed in pairs:
        assert_close(np.asarray(actual), needed, length=sum_length(setup), exact=s.exact)


@pytest.mark.sample(24)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_operations(sample: Sample) -> None:
    check(sample.text, sample.inputs, {"n": sample.count}, target=baseline("aarch64"))
