"""Constants of regions in the layout that a device wants: the same meaning, packed once."""

from __future__ import annotations

import numpy as np

from inlay.interp.tensor import evaluate
from inlay.ir.parser import parse_module
from inlay.ir.verify import check
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.pipeline.planning import meanings_of
from inlay.transforms import pack_regions
from inlay.transforms.pack_regions import RegionOptions

OPS = table()
TEXT = """
fn main(x @npu: Tensor[2, 2, f32], w @npu: Tensor[2, 3, f32]) -> (Tensor[2, 3, f32], Tensor[2, 3, f32]) {
  let a @npu: Tensor[2, 3, f32] = @dense(x, f32[2, 3](1.0, 2.0, 3.0, 4.0, 5.0, 6.0)) @npu;
  let b @npu: Tensor[2, 3, f32] = @dense(x, w) @npu;
  let r: (Tensor[2, 3, f32], Tensor[2, 3, f32]) = (a, b);
  r
}
fn dense "matmul" (x @npu: Tensor[2, 2, f32], w @npu: Tensor[2, 3, f32]) -> Tensor[2, 3, f32] @npu {
  let y @npu: Tensor[2, 3, f32] = matmul(x, w) @npu;
  y
}
entry main("x", "w") -> ("a", "b");
"""


def test_constants_are_packed_and_what_is_computed_is_not():
    module = parse_module(TEXT, OPS)
    context = PassContext(OPS, options={RegionOptions: RegionOptions({"npu": lambda f: {1: (1, 0)}})})
    packed = pack_regions.PASS.run(module, context)
    check(packed)
    assert sorted(packed.functions) == ["dense", "dense_1", "main"]
    assert [str(d) for d in packed.functions["dense_1"].type.params[1].shape] == ["3", "2"]
    args = [np.ones((2, 2), np.float32), np.full((2, 3), 2, np.float32)]
    for got, want in zip(
        evaluate(packed, args, meanings_of(OPS)), evaluate(module, args, meanings_of(OPS)), strict=True
    ):
        np.testing.assert_array_equal(got, want)


def test_other_devices_and_plain_layouts_change_nothing():
    module = parse_module(TEXT, OPS)
    for wanted in ({"dsp": lambda f: {1: (1, 0)}}, {"npu": lambda f: {1: (0, 1)}}, {"npu": lambda f: {}}):
        context = PassContext(OPS, options={RegionOptions: RegionOptions(wanted)})
        assert pack_regions.PASS.run(module, context).functions == module.functions
