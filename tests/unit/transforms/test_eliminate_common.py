from __future__ import annotations

import numpy as np

from inlay.ir import make
from tests.unit.transforms.programs import OPS, Program, dims, noise, operators, run, same

EXP = OPS.definition("exp").op


def shared(module):
    return run("to-anf,eliminate-common,eliminate-dead", module)


def test_constants_are_equal_by_content_if_small_and_by_place_in_memory_if_large():
    p, n = Program(), dims("n")
    x = p.input("x", n, 64)
    large = noise(64)
    results = [
        p.op("add", x, make.const(np.float32(2.0))),
        p.op("add", x, make.const(np.float32(2.0))),
        p.op("mul", x, make.const(large)),
        p.op("mul", x, make.const(large)),
        p.op("mul", x, make.const(large.copy())),
    ]
    assert operators(shared(p.module(*results))) == {"add": 1, "mul": 2}


def test_views_of_one_buffer_at_other_offsets_are_other_constants():
    p, n = Program(), dims("n")
    x = p.input("x", n, 32)
    whole = noise(2, 32)
    before = p.module(p.op("add", x, make.const(whole[0])), p.op("add", x, make.const(whole[1])))
    after = shared(before)
    assert operators(after) == {"add": 2}
    same(before, after, noise(3, 32), exact=True)
