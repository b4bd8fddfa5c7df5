"""Compiled loop functions do what the evaluator says."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from inlay.base.diagnostics import InternalError
from inlay.codegen.llvm import emit_module
from inlay.codegen.llvm_compile import assembly
from inlay.codegen.phases import phases_of, workspace_layout
from inlay.machine.target import baseline, host
from tests.unit.codegen.support import check, parsed, run_native

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


GEMM = """\
lowered func gemm(A: f32[m, 24], B: f32[3, 24, 32], bias: f32[96]) -> (C: f32[m, 96]) over (m) {
  for j in 0..3 parallel {
    for i in 0..m / 6 {
      alloc acc: f32[6, 32] @register
      for r in 0..6 unroll { for l in 0..32 vector { acc[r, l] = bias[j*32 + l] } }
      for k in 0..24 {
        for r in 0..6 unroll {
          for l in 0..32 vector { acc[r, l] = fma(A[i*6 + r, k], B[j, k, l], acc[r, l]) }
        }
      }
      for r in 0..6 unroll {
        for l in 0..32 vector { C[i*6 + r, j*32 + l] = max(acc[r, l], 0.0:f32) }
      }
    }
    for i2 in 6*(m / 6)..m {
      alloc acc1: f32[32] @register
      for l in 0..32 vector { acc1[l] = bias[j*32 + l] }
      for k in 0..24 {
        for l in 0..32 vector { acc1[l] = fma(A[i2, k], B[j, k, l], acc1[l]) }
      }
      for l in 0..32 vector { C[i2, j*32 + l] = max(acc1[l], 0.0:f32) }
    }
  }
}
"""


@pytest.mark.sample(4)
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("m", [0, 1, 6, 13])
def test_gemm(m: int, parts: int) -> None:
    check(GEMM, [floats(m, 24), floats(3, 24, 32), floats(96)], {"m": m}, parts=parts, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_gemm_for_narrower_machines(level: str) -> None:
    target = baseline("x86_64", level)
    if not set(target.features) <= set(host().features):
        pytest.skip(f"this machine lacks features of {level}")
    inputs = [floats(7, 24), floats(3, 24, 32), floats(96)]
    check(GEMM, inputs, {"m": 7}, rtol=1e-6, atol=1e-6, target=target)


def test_accumulators_stay_in_registers() -> None:
    text = emit_module(parsed(GEMM), host()).text
    assert "alloca" not in text
    if host().vector_bytes == 64:
        lines = assembly(text, host(), optimize=False).splitlines()
        assert sum("vfmadd" in line for line in lines) >= 14
        assert not [line for line in lines if "zmm" in line and "(%rsp" in line]


SEVERAL_STEPS = """\
lowered func sums(x: f32[n]) -> (y: f32[3], z: f32[n]) over (n) {
  alloc a: f32[3] @register
  for r in 0..3 unroll { a[r] = 0.0:f32 }
  for k in 0..7 (steps="4") { a[0] = a[0] + 2.0:f32 }
  for k in 2..8 (steps="3") { a[1] = a[1] + 3.0:f32 }
  for k in 0..n (steps="4") {
    a[2] = a[2] + x[k]
    z[k] = a[2]
  }
  for r in 0..3 unroll { y[r] = a[r] }
}
"""


@pytest.mark.parametrize("n", [0, 1, 4, 7])
def test_several_steps_in_a_turn(n: int) -> None:
    check(SEVERAL_STEPS, [floats(n)], {"n": n}, rtol=1e-6)


TAPS = """\
lowered func f(x: f32[n + 2]) -> (y: f32[n]) over (n) {
  for i in 0..n {
    alloc a: f32[1] @register
    a[0] = 0.0:f32
    for k in 0..3 unroll (loads="anew") {
      for c in 0..1 unroll { a[0] = a[0] + (x[i + k] * x[i + 1]) }
    }
    y[i] = a[0]
  }
}
"""


def test_taps_share_no_loads_where_a_note_says_so() -> None:
    check(TAPS, [floats(12)], {"n": 10})
    together = TAPS.replace(' (loads="anew")', "")
    check(together, [floats(12)], {"n": 10})
    target = baseline("x86_64", "v3")
    texts = [
        assembly(emit_module(parsed(text), target).text, target, optimize=False) for text in (TAPS, together)
    ]
    anew, shared = (len(re.findall(r"ss\t[^\n]*\(%r", text)) for text in texts)
    assert anew > shared


LONG = """\
lowered func f(x: f32[7, 14, 3], w: f32[7, 7, 3, 32]) -> (y: f32[8, 32]) {
  alloc a: f32[8, 32] @register
  for r in 0..8 unroll { for l in 0..32 vector { a[r, l] = 0.0:f32 } }
  for i in 0..7 {
    for k in 0..7 unroll (loads="anew") {
      for c in 0..3 unroll {
        for q in 0..8 unroll { for m in 0..32 vector { a[q, m] = fma(x[i, q + k, c], w[i, k, c, m], a[q, m]) } }
      }
    }
  }
  for s in 0..8 unroll { for n in 0..32 vector { y[s, n] = a[s, n] } }
}
"""


def test_sums_of_long_blocks_stay_in_registers() -> None:
    """The scheduler of LLVM would load ahead so much that it stores a part on the stack."""
    target = replace(baseline("x86_64", "v4"), cpu="znver5")
    code = assembly(emit_module(parsed(LONG), target).text, target, optimize=False)
    assert len(re.findall("vfmadd", code)) == 7 * 3 * 8 * 2
    assert "(%rsp)" not in code


PHASES = """\
lowered func two(x: f32[n]) -> (y: f32[n]) over (n)
 uses (t: f32[n] @workspace, s: f32[1] @workspace, p: f32[8] @workspace per_part) {
  for i in 0..n parallel {
    for l in 0..8 vector { p[l] = x[i] }
    t[i] = p[3] * 2.0:f32
  }
  s[0] = 0.0:f32
  for j in 0..n {
    s[0] = s[0] + t[j]
  }
  for k in 0..n parallel {
    y[k] = t[k] + s[0]
  }
}
"""


def test_phases_and_workspaces() -> None:
    f = parsed(PHASES)
    assert [p.parallel for p in phases_of(f)] == [True, False, True]
    layout = workspace_layout(f)
    assert layout.per_part_bytes == 64
    check(PHASES, [floats(37)], {"n": 37}, parts=3, rtol=1e-6)


MASKED = """\
lowered func tail(x: f32[n], y: f32[n]) -> (z: f32[n], b: bool[n]) over (n) {
  for i in 0..(n + 15) / 16 {
    for l in 0..16 vector {
      if [i*16 + l] < [n] {
        z[i*16 + l] = select(y[i*16 + l] == 0.0:f32, -1.0:f32, x[i*16 + l] / y[i*16 + l])
        b[i*16 + l] = x[i*16 + l] < y[i*16 + l]
      }
    }
  }
}
"""


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 40])
def test_masked_tail(n: int) -> None:
    y = floats(n)
    y[::3] = 0
    check(MASKED, [floats(n), y], {"n": n})


def test_masked_loads_do_not_touch_what_is_off() -> None:
    """The last page before unmapped memory: a load of a whole vector there would fault."""
    import ctypes
    import mmap

    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    whole = np.frombuffer(area, np.float32, count=page // 4)
    x, y = whole[-5:], whole[-10:-5]
    whole[:] = 1
    z, _ = run_native(parsed(MASKED), [x, y], {"n": 5})
    np.testing.assert_array_equal(z, np.ones(5, np.float32))
    libc.mprotect(ctypes.c_void_p(start + page), page, mmap.PROT_READ | mmap.PROT_WRITE)


PADDED = """\
lowered func pad(x: f32[n], w: f32[3]) -> (y: f32[n + 4], z: f32[n + 4]) over (n) {
  for i in 0..n + 4 {
    y[i] = select((([i] < [2]) | ([n + 2] <= [i])), 7.0:f32, x[i - 2])
  }
  for i2 in 0..(n + 19) / 16 {
    for l in 0..16 vector {
      if [i2*16 + l] < [n + 4] {
        z[i2*16 + l] = select((([i2*16 + l] < [2]) | ([n + 2] <= [i2*16 + l])), w[2],
          x[i2*16 + l - 2])
      }
    }
  }
}
"""


@pytest.mark.parametrize("n", [1, 5, 30])
def test_guarded_loads(n: int) -> None:
    check(PADDED, [floats(n), floats(3)], {"n": n})


STRIDES = """\
lowered func strides(x: f32[200], t: i64[16]) ->
 (a: f32[16], b: f32[16], c: f32[16], d: f32[16], e: f32[16], g: f32[16], s: f32[64]) {
  for l in 0..16 vector { a[l] = x[2*l + 3] }
  for l in 0..16 vector { b[l] = x[40 - l] }
  for l in 0..16 vector { c[l] = x[3*l] }
  for l in 0..16 vector { d[l] = x[11*l] }
  for l in 0..16 vector { e[15 - l] = x[l] }
  for l in 0..16 vector {
    let k = t[l]
    g[l] = x[k + 1]
  }
  for u in 0..64 { s[u] = 0.0:f32 }
  for l in 0..16 vector { s[4*l + 1] = x[l / 4] + x[l % 4] }
}
"""


def test_strided_accesses() -> None:
    check(STRIDES, [floats(200), RNG.integers(0, 199, 16)])


SPLIT_INDEX = """\
lowered func reshaped(x: f32[n, 64]) -> (y: f32[64*n]) over (n) {
  for i in 0..4*n {
    for l in 0..16 vector { y[i*16 + l] = x[(i*16 + l) / 64, (i*16 + l) % 64] }
  }
}
"""


def test_division_of_vector_indices_stays_contiguous() -> None:
    assert "gather" not in emit_module(parsed(SPLIT_INDEX), host()).text
    check(SPLIT_INDEX, [floats(5, 64)], {"n": 5})


GROUPS = """\
lowered func groups(x: f32[2, 24]) -> (y: f32[2, 32], z: f32[2, 32], w: f32[2, 32]) {
  for i in 0..2 {
    for c in 0..2 {
      for l in 0..16 vector { y[i, 16*c + l] = x[i, 3*((16*c + l) / 4)] }
      for l in 0..16 vector { z[i, 16*c + l] = x[i, (16*c + l) / 16 + 5*c] }
      for l in 0..16 vector { w[i, 16*c + l] = x[i, 23 - 3*((2*l + 1) % 8)] }
    }
  }
}
"""


def test_lanes_of_groups_are_shuffled_from_contiguous_loads() -> None:
    assert "gather" not in emit_module(parsed(GROUPS), host()).text
    check(GROUPS, [floats(2, 24)])


REDUCTION = """\
lowered func softmax(x: f32[n, 48]) -> (y: f32[n, 48]) over (n) {
  for i in 0..n parallel {
    alloc m: f32[16] @register
    alloc t: f32[1] @register
    for l in 0..16 vector { m[l] = -inf:f32 }
    for j in 0..3 {
      for l in 0..16 vector { m[l] = max(m[l], x[i, j*16 + l]) }
    }
    t[0] = m[0]
    for u in 1..16 unroll { t[0] = max(t[0], m[u]) }
    alloc s: f32[16] @register
    for l in 0..16 vector { s[l] = 0.0:f32 }
    for j in 0..3 {
      for l in 0..16 vector {
        let e = x[i, j*16 + l] - t[0]
        y[i, j*16 + l] = e
        s[l] = s[l] + e
      }
    }
    for u in 1..16 unroll { s[0] = s[0] + s[u] }
    for j in 0..3 {
      for l in 0..16 vector { y[i, j*16 + l] = y[i, j*16 + l] / s[0] }
    }
  }
}
"""


def test_row_reductions_in_registers() -> None:
    assert "alloca" not in emit_module(parsed(REDUCTION), host()).text
    check(REDUCTION, [floats(5, 48)], {"n": 5}, parts=2)


CONTROL = """\
lowered func control(x: i64[n]) -> (y: i64[n], z: i64[n]) over (n) {
  for i in 0..n {
    alloc steps: i64[1] @register
    alloc v: i64[1] @register
    steps[0] = 0:i64
    v[0] = x[i]
    while 1:i64 < v[0] {
      if rem(v[0], 2:i64) == 0:i64 {
        v[0] = v[0] / 2:i64
      } else {
        v[0] = (v[0] * 3:i64) + 1:i64
      }
      steps[0] = steps[0] + 1:i64
    }
    y[i] = steps[0]
    alloc table: i64[8] @stack
    for j in 0..8 { table[j] = [j*j - i] }
    let k = x[i]
    z[i] = table[k % 8]
  }
}
"""


def test_while_if_stack_and_lets() -> None:
    check(CONTROL, [RNG.integers(1, 1000, 20)], {"n": 20})


ASSERTING = """\
lowered func gather(x: f32[n], t: i64[m]) -> (y: f32[m]) over (n, m) {
  for i in 0..m {
    let k = t[i]
    assert 0:i64 <= k, "negative index"
    assert k < [n], "index beyond the end"
    y[i] = x[k]
  }
}
"""


def test_assertions_return_their_number() -> None:
    f = parsed(ASSERTING)
    [y] = run_native(f, [floats(5), np.array([4, 0])], {"n": 5, "m": 2})
    assert y.shape == (2,)
    from inlay.codegen.image import link
    from inlay.codegen.llvm_generator import compile_function
    from tests.mapped_image import MappedImage

    unit = compile_function(f, host())
    mapped = MappedImage(link([("f", unit.data)]))
    assert unit.assertions == ("negative index", "index beyond the end")
    y = np.zeros(2, np.float32)
    for indices, status in [([0, 5], 2), ([-1, 5], 1), ([1, 1], 0)]:
        found = mapped.call("f.phase0", [floats(5), np.array(indices), y], [5, 2])
        assert found == status


def test_schedulable_functions_are_refused() -> None:
    with pytest.raises(InternalError, match="not lowered"):
        emit_module(
            parsed("schedulable func f(x: f32[4]) -> (y: f32[4]) { for i in 0..4 { y[i] = x[i] } }"), host()
        )


def test_text_is_reproducible() -> None:
    assert emit_module(parsed(GEMM), host()).text == emit_module(parsed(GEMM), host()).text


SHARED_POWER = 60


def test_shared_expressions_are_walked_once() -> None:
    """x -> x + x sixty times: as a tree it would have 2**60 nodes."""
    from inlay.arith import dtype as dt
    from inlay.arith.expr import lit
    from inlay.loop.buffer import Buffer
    from inlay.loop.func import LoopFunction, Stage
    from inlay.loop.scalar import Binary, BinaryOp, Load, Scalar
    from inlay.loop.stmt import Store

    x, y = Buffer("x", (lit(1),), dt.F64), Buffer("y", (lit(1),), dt.F64)
    value: Scalar = Load(x, (lit(0),))
    for _ in range(SHARED_POWER):
        value = Binary(BinaryOp.ADD, value, value, dt.F64)
    f = LoopFunction("f", (x, y), 1, (), Store(y, (lit(0),), value), Stage.LOWERED)
    [out] = run_native(f, [np.ones(1)])
    assert out[0] == 2.0**SHARED_POWER


ODD_LANES = """\
lowered func odd(x: f32[2, 48], y: f32[24]) -> (z: f32[2, 48], w: f32[24]) {
  alloc acc: f32[2, 48] @register
  for r in 0..2 unroll { for l in 0..48 vector { acc[r, l] = x[r, l] } }
  for k in 0..5 {
    for r in 0..2 unroll { for l in 0..48 vector { acc[r, l] = acc[r, l] * x[r, 47 - l] } }
  }
  for r in 0..2 unroll { for l in 0..48 vector { z[r, l] = acc[r, l] + y[l / 2] } }
  for l in 0..24 vector { w[l] = y[l] + f32([l % 5]) }
}
"""


def test_lanes_that_are_no_power_of_two() -> None:
    assert "alloca" not in emit_module(parsed(ODD_LANES), host()).text
    check(ODD_LANES, [floats(2, 48), floats(24)], rtol=1e-6)
