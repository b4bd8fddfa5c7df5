"""One query has a branch of its own: what is in it, and that it changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.interp.tensor import evaluate
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.transforms.fuse_ops import FuseOptions
from tests.unit.transforms.programs import OPS, noise, operators, run, same

CACHED = """
fn main<n, past>(
  q: Tensor[n, 3, 64, f32], k: Tensor[past, 3, 64, f32], v: Tensor[past, 3, 64, f32], mask: Tensor[n, past, f32]
) -> Tensor[3, n, 64, f32] {
  let s = matmul(transpose{perm=[1, 0, 2]}(q), transpose{perm=[1, 2, 0]}(k));
  let p = softmax{axis=2}(add(mul(s, f32(0.125)), mask));
  matmul(p, transpose{perm=[1, 0, 2]}(v))
}
"""
SIZES = ((1, 1), (1, 70), (1, 300), (0, 5), (2, 70), (9, 12))
"""Queries and keys."""


def split(text: str, options: FuseOptions | None = None) -> tuple[Module, Module]:
    before = run("infer-types,to-anf", parse_module(text, OPS))
    return before, run("split-queries", before, options or FuseOptions())


def arguments(queries: int, keys: int) -> list[np.ndarray]:
    shapes = ((queries, 3, 64), (keys, 3, 64), (keys, 3, 64), (queries, keys))
    return [noise(*shape, seed=n) for n, shape in enumerate(shapes)]


def test_what_leads_from_keys_to_values_is_there_twice():
    before, after = split(CACHED)
    # The transposes of keys and values are in the branches; that of queries, which both read, is not.
    assert operators(before)["transpose"] == 3
    assert operators(after)["transpose"] == 5
    assert operators(after)["matmul"] == 4
    for sizes in SIZES:
        same(before, after, *arguments(*sizes))


def test_devices_without_schedules_for_both_keep_one():
    before, after = split(CACHED, FuseOptions(joins_attention=lambda _: False))
    assert after is before


@pytest.mark.parametrize(
    "instead",
    [
        # Scores that are added to others come from two products with keys.
        "add(matmul(q, t), matmul(q, transpose{perm=[1, 0]}(l)))",
        # Another number of rows.
        "slice{axes=[0]}(matmul(q, t), shape(0), shape(1), shape(1))",
        # Keys that are as many as queries.
        "matmul(q, transpose{perm=[1, 0]}(q))",
    ],
)
def test_what_is_left_as_it_is(instead: str):
    text = f"""
fn main<n, m>(q: Tensor[n, 64, f32], k: Tensor[m, 64, f32], l: Tensor[m, 64, f32], v: Tensor[m, 64, f32], w: Tensor[n, 64, f32]) {{
  let t = transpose{{perm=[1, 0]}}(k);
  matmul(softmax{{axis=1}}({instead}), {"w" if "(q))" in instead else "v"})
}}"""
    before, after = split(text)
    assert after is before


@pytest.mark.llvm
@pytest.mark.sample(1)
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_programs_take_both_branches(threads: int):
    module = parse_module(CACHED, OPS)
    executable = inlay.compile(module, threads=threads, cache="none", verify=True)
    for sizes in SIZES:
        args = arguments(*sizes)
        np.testing.assert_allclose(
            np.asarray(executable(*args)), np.asarray(evaluate(module, args)), rtol=2e-5, atol=2e-6
        )
