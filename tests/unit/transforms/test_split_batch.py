"""Batches in parts: what is computed in them, how large they are, and what stays around them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.ir.module import EntryNames, Module
from inlay.ir.parser import parse_module
from inlay.transforms.split_batch import SplitBatchOptions
from tests.unit.transforms.programs import OPS, context, noise, operators, run, same

SMALL = SplitBatchOptions(macs_per_byte=0, least_macs=0, least_inside=0)
"""Splits into parts of one sample whatever has a batch."""


def split(text: str, options: SplitBatchOptions = SMALL) -> tuple[Module, Module]:
    before = run("infer-types,to-anf", parse_module(text, OPS))
    return before, run("split-batch", before, options)


LAYERS = """
fn main(x: Tensor[4, 3, f32], v: Tensor[3, 5, f32], w: Tensor[5, 2, f32]) -> Tensor[4, 2, f32] {
  let h = relu(matmul(x, v));
  matmul(h, w)
}
"""


def test_layers_are_computed_for_some_samples_at_a_time():
    before, after = split(LAYERS)
    assert operators(after) == {"slice": 4, "@main_part": 4, "concat": 1}
    assert operators(after, "main_part") == {"matmul": 2, "relu": 1}
    same(before, after, noise(4, 3), noise(3, 5, seed=1), noise(5, 2, seed=2))


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (SplitBatchOptions(macs_per_byte=0, least_macs=26, least_inside=0), 2),
        (SplitBatchOptions(macs_per_byte=0, least_macs=25, least_inside=0), 4),
        (SplitBatchOptions(macs_per_byte=0, least_macs=51, least_inside=0), 0),
        # 25 multiply-adds of a sample, 100 bytes of weights
        (SplitBatchOptions(macs_per_byte=1, least_macs=0, least_inside=0), 0),
        # 112 bytes written, 32 joined
        (SplitBatchOptions(macs_per_byte=0, least_macs=0, least_inside=4), 0),
        (SplitBatchOptions(macs_per_byte=0, least_macs=0, least_inside=3), 4),
        (SplitBatchOptions(macs_per_byte=0, least_macs=0, least_inside=0, most_parts=3), 2),
        (SplitBatchOptions(macs_per_byte=0, least_macs=26, least_inside=0, threads=2), 2),
        (SplitBatchOptions(macs_per_byte=0, least_macs=26, least_inside=0, threads=3), 0),
        (SplitBatchOptions(splits=False), 0),
        (SplitBatchOptions(), 0),
    ],
)
def test_how_large_parts_are(options: SplitBatchOptions, parts: int):
    assert operators(split(LAYERS, options)[1])["@main_part"] == parts


def test_what_mixes_samples_reads_the_joined_results():
    before, after = split("""
    fn main(x: Tensor[4, 3, f32], w: Tensor[3, 5, f32]) -> (Tensor[4, 5, f32], Tensor[4, 5, f32]) {
      let h = matmul(x, w);
      let y = softmax{axis=0}(h);
      (relu(y), tanh(h))
    }
    """)
    assert operators(after) == {"slice": 4, "@main_part": 4, "concat": 2, "softmax": 1, "relu": 1}
    assert operators(after, "main_part") == {"matmul": 1, "tanh": 1}
    same(before, after, noise(4, 3), noise(3, 5, seed=1))


def test_what_needs_no_samples_is_computed_once():
    before, after = split("""
    fn main(x: Tensor[2, 3, f32], w: Tensor[3, 3, f32]) -> Tensor[2, 3, f32] {
      let v = exp(w);
      matmul(matmul(x, v), v)
    }
    """)
    assert operators(after) == {"exp": 1, "slice": 2, "@main_part": 2, "concat": 1}
    same(before, after, noise(2, 3), noise(3, 3, seed=1))


def test_shapes_that_begin_with_the_number_of_samples():
    before, after = split("""
    fn main(x: Tensor[4, 5, f32], w: Tensor[5, 4, f32]) -> Tensor[4, 1, 4, f32] {
      let y = matmul(x, w);
      let z = slice{axes=[1]}(y, shape(0), shape(4), shape(1));
      reshape(z, shape(4, 1, 4))
    }
    """)
    assert operators(after)["@main_part"] == 4
    assert operators(after, "main_part")["reshape"] == 1
    same(before, after, noise(4, 5), noise(5, 4, seed=1))


def test_rows_that_a_product_sums_over_are_no_samples():
    before, after = split("""
    fn main(w: Tensor[4, 4, f32], x: Tensor[4, 4, f32]) -> Tensor[4, 4, f32] {
      matmul(relu(x), w)
    }
    """)
    assert operators(after)["matmul"] == 1
    same(before, after, noise(4, 4), noise(4, 4, seed=1))


def test_inputs_of_two_lengths():
    """The length that most multiply-adds are done for counts."""
    before, after = split("""
    fn main(x: Tensor[2, 3, f32], y: Tensor[6, 3, f32], w: Tensor[3, 3, f32])
        -> (Tensor[2, 3, f32], Tensor[6, 3, f32]) {
      (matmul(x, w), matmul(y, w))
    }
    """)
    assert operators(after)["@main_part"] == 6
    same(before, after, noise(2, 3), noise(6, 3, seed=1), noise(3, 3, seed=2))


@pytest.mark.parametrize(
    "text",
    [
        # a cell
        """fn main(x: Tensor[2, 3, f32], w: Tensor[3, 3, f32]) -> Tensor[2, 3, f32] {
          let c = ref(x);
          write(c, matmul(x, w));
          matmul(read(c), w)
        }""",
        # one sample, and a number that inputs do not say
        "fn main(x: Tensor[1, 3, f32], w: Tensor[3, 3, f32]) -> Tensor[1, 3, f32] { matmul(x, w) }",
        "fn main<n>(x: Tensor[n, 3, f32], w: Tensor[3, 3, f32]) -> Tensor[n, 3, f32] { matmul(x, w) }",
        # all samples at once
        "fn main(x: Tensor[3, 3, f32], w: Tensor[3, 3, f32]) -> Tensor[3, 3, f32] { softmax{axis=0}(x) }",
    ],
)
def test_programs_that_stay_whole(text: str):
    before, after = split(text)
    assert after is before


def test_a_size_that_only_a_run_tells_is_known_where_it_is_used():
    before, after = split("""
    fn main(x: Tensor[2, 3, f32], w: Tensor[3, 3, f32]) -> (Tensor[2, 3, f32], some k. Tensor[k, f32]) {
      let y = matmul(x, w);
      let k: some int k. int[k] = to_control(reduce_max{axes=[0, 1]}(cast{dtype=i64}(y)));
      (y, zeros{dtype=f32}(shape(k)))
    }
    """)
    assert operators(after)["@main_part"] in (0, 2)
    same(before, after, noise(2, 3, low=1.0, high=2.0), noise(3, 3, seed=1, low=1.0, high=2.0))


def test_what_sessions_carry_is_not_cut():
    before = run("infer-types,to-anf", parse_module(LAYERS, OPS))
    names = EntryNames(("x", "v", "w"), ("y",), state=(("x", "y"),))
    stateful = replace(before, entries={"main": names})
    assert run("split-batch", stateful, SMALL) is stateful


def test_the_decision_is_told():
    ctx = context(SMALL)
    run("infer-types,to-anf,split-batch", parse_module(LAYERS, OPS), ctx=ctx)
    assert [r.message for r in ctx.remarks.of("split-batch")] == [
        "the 4 samples of 'main' are computed in parts of 1"
    ]
