"""What a loop carries is changed where it is: seen by the addresses that kernels get.

Kernels are Python functions called by the C runtime here, so they see the memory of their operands.
"""

from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.interp.tensor import evaluate
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from inlay.transforms import to_anf
from tests.python_kernels import callbacks_of, compile_with_python_kernels
from tests.unit.bytecode.disasm import listing

CACHE = """
fn main<n, m>(x: Tensor[1, 4, f32], cache: Tensor[n, 4, f32], turns: Tensor[m, i64]) {{
  let loop = fn<i>(i: int[i], cache: Tensor[n, 4, f32]) {{
    if (int_less(int(i), int(m))) {{
      let at = reshape(get_row(turns, int(i)), shape({at}));
      loop(int(i + 1), {update})
    }} else {{ cache }}
  }};
  loop(int(0), cache)
}}
"""
UPDATES = {
    "scatter_nd": ("1, 1", "scatter_nd(cache, at, x)"),
    "scatter_elements": ("1, 1", "scatter_elements{axis=0}(cache, broadcast_to(at, shape(1, 4)), x)"),
    "update_slice": ("1", "update_slice{axes=[0]}(cache, x, shape(i))"),
    "update_slice_middle": ("1", "update_slice{axes=[0, 1]}(cache, x, shape(i, 0))"),
}


def typed(text: str) -> Module:
    return to_anf.PASS.run(infer_types(parse_module(text, table())), PassContext(table()))


def addresses(module: Module, kernel: str, args: list[np.ndarray]) -> tuple[np.ndarray, list[int]]:
    """Return the first output, and where the last operand of a kernel was in each call."""
    program, lowered = compile_with_python_kernels(module)
    seen: list[int] = []

    def watched(run):
        def call(tensors, ints):
            seen.append(tensors[-1].ctypes.data)
            run(tensors, ints)

        return call

    callbacks = {name: watched(run) if kernel in name else run for name, run in callbacks_of(lowered).items()}
    executable = executable_of(program, callbacks=callbacks, threads=1)
    found = executable(*args)
    assert executable.live_objects() == 0
    return (found if isinstance(found, np.ndarray) else found[0]), seen


@pytest.mark.parametrize("name", UPDATES)
def test_a_cache_is_written_without_a_copy(name: str):
    """The first turn copies the input, which is not ours; all others write where they are."""
    at, update = UPDATES[name]
    x, cache = np.ones((1, 4), np.float32), np.zeros((9, 4), np.float32)
    turns = np.arange(5)
    found, seen = addresses(typed(CACHE.format(at=at, update=update)), name[:12], [x, cache, turns])
    expected = cache.copy()
    expected[:5] = 1
    assert np.array_equal(found, expected)
    assert not cache.any()
    assert len(seen) == 5
    assert len(set(seen)) == 1


def test_what_is_still_needed_is_copied():
    """The old cache is read after it was changed: each turn keeps both."""
    text = """
    fn main<n>(x: Tensor[1, 4, f32], cache: Tensor[n, 4, f32]) {
      let a = add(cache, cache);
      let b = update_slice{axes=[0]}(a, x, shape(0));
      let c = update_slice{axes=[0]}(a, x, shape(1));
      (sub(b, c), a)
    }
    """
    x, cache = np.full((1, 4), 7, np.float32), np.ones((3, 4), np.float32)
    difference, seen = addresses(typed(text), "update_slice", [x, cache])
    assert np.array_equal(difference, np.array([[5] * 4, [-5] * 4, [0] * 4], np.float32))
    assert len(set(seen)) == 2


GROWING = """
fn main<n, int m>(x: Tensor[1, n, 4, f32], m: int[m]) {
  let loop = fn<i, p>(i: int[i], past: Tensor[1, p, 4, f32], y: Tensor[1, n, 4, f32]) {
    if (int_less(int(i), int(m))) {
      loop(int(i + 1), concat{axis=1}(past, y), add(y, x))
    } else { past }
  };
  loop(int(0), zeros(shape(1, 0, 4)), x)
}
"""


def test_a_growing_cache_takes_one_turn_time_whatever_its_length():
    """No kernel copies it: 40,000 turns that did would copy 25 GB."""
    executable = executable_of(compilation(typed(GROWING), verify=True).program, threads=1)
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 4)
    assert np.array_equal(executable(x, np.array(3)), np.concatenate([x, 2 * x, 3 * x], axis=1))
    found = executable(x, np.array(40_000))
    assert found.shape == (1, 80_000, 4)
    assert np.array_equal(found[0, -2:], 40_000 * x[0])
    text = listing(executable.program)
    assert "EXTEND 1" in text
    assert '.kernel "concat' not in text


HEADS = """
fn main<n, int m>(k: Tensor[2, 3, n, 4, f32], m: int[m]) {
  let step = slice{axes=[2]}(k, shape(0), shape(1), shape(1));
  let loop = fn<i, p>(i: int[i], keys: Tensor[2, 3, p, 4, f32], q: Tensor[2, 3, 1, 4, f32]) {
    if (int_less(int(i), int(m))) {
      if (int_equal(int(i % 3), int(2))) { loop(int(i + 1), keys, add(q, step)) } else {
        let present = concat{axis=2}(keys, q);
        let scores = softmax(matmul(q, transpose{perm=[0, 1, 3, 2]}(present)));
        loop(int(i + 1), present, matmul(scores, present))
      }
    } else { (keys, q) }
  };
  loop(int(0), k, step)
}
"""


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_a_cache_of_several_heads_grows_along_its_sequence(turns: int):
    """Its axis is inside, so the loop carries it in another order; what it means stays."""
    module = typed(HEADS)
    executable = executable_of(compilation(module, verify=True).program, threads=1)
    k = np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype(np.float32)
    found = executable(k, np.array(turns))
    expected = evaluate(module, [k, turns])
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5)
    text = listing(executable.program)
    assert "EXTEND 0" in text
    assert '.kernel "concat' not in text


STACKED = """
fn main<n, d>(xs: Tensor[n, d, f32], h: Tensor[d, f32]) {{
  let loop = fn<i>(i: int[i], h: Tensor[d, f32], rows: Tensor[n, d, f32]) {{
    if (int_less(int(i), int(n))) {{
      let next = tanh(add(get_row(xs, int(i)), h));
      {row}
      loop(int(i + 1), next, set_row(rows, int(i), row))
    }} else {{ (h, rows) }}
  }};
  loop(int(0), h, zeros(shape(n, d)))
}}
"""
ROWS = {
    "of its own": ("let row = mul(next, h);", True),
    "carried, too": ("let row = next;", False),
    "of the row before": (
        "let row = mul(next, get_row(rows, if (int_less(int(0), int(i))) { int(i - 1) } else { int(0) }));",
        False,
    ),
    "of all rows": ("let row = mul(next, reduce_sum{axes=[0], keepdims=false}(rows));", False),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_written_where_they_are_stacked(name: str):
    """By their kernel, if nothing else reads them and no view shows the tensor they go into."""
    row, is_direct = ROWS[name]
    module = typed(STACKED.format(row=row))
    executable = executable_of(compilation(module, verify=True).program, threads=1)
    rng = np.random.default_rng(2)
    xs, h = rng.standard_normal((6, 4)).astype(np.float32), np.ones(4, np.float32)
    for a, b in zip(executable(xs, h), evaluate(module, [xs, h]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert ("ASSIGN" not in listing(executable.program)) == is_direct
    assert executable.live_objects() == 0


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("text", [HEADS, GROWING, STACKED.format(row=ROWS["of its own"][0])])
def test_what_is_pending_keeps_its_bytes(text: str, seed: int):
    """Kernels that are issued and have not run see what was there, whatever is written later."""
    program = compilation(typed(text), verify=True).program
    x = np.random.default_rng(seed).standard_normal((2, 3, 4, 4)).astype(np.float32)
    if text is HEADS:
        args = [x, np.array(7)]
    else:
        args = [x[:1, 0], np.array(7)] if text is GROWING else [x[0, 0], x[0, 1, 0]]
    expected = executable_of(program, settings=Settings(mode="sequential"))(*args)
    replayed = Settings(mode="replay", seed=seed, hand_off_ns=0)
    found = executable_of(program, settings=replayed)(*args)
    pairs = [(found, expected)] if text is GROWING else zip(found, expected, strict=True)
    for a, b in pairs:
        assert np.array_equal(a, b)
