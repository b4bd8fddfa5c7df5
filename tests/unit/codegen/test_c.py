"""Emitted C does what the evaluator says, and compilers do not warn of it."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.base.diagnostics import InternalError
from inlay.codegen.c import emit_source
from inlay.interp.loop import run
from inlay.loop.func import LoopFunction
from inlay.lower.lower import lower
from inlay.lower.ops_to_loops import ops_to_loops
from inlay.machine.target import Target, host
from inlay.ops.table import table
from inlay.schedule.choose import decide
from tests.system import needs
from tests.unit.codegen import test_llvm as programs
from tests.unit.codegen.c_support import Library
from tests.unit.codegen.samples import SAMPLES
from tests.unit.codegen.support import parsed
from tests.unit.codegen.test_math import FUNCTIONS, ulps
from tests.unit.codegen.test_operators import chosen
from tests.unit.lower.op_functions import function_of
from tests.unit.lower.test_ops_to_loops import agree

pytestmark = [pytest.mark.cc, needs("gcc")]
RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def same(a: np.ndarray, b: np.ndarray, rtol: float = 0.0) -> None:
    if a.dtype.name == "bfloat16":
        a, b = a.astype(np.float32), b.astype(np.float32)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol, equal_nan=True)


@pytest.mark.parametrize(
    "every", [pytest.param(10, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
def test_every_operation_on_every_format(every, tmp_path) -> None:
    samples = SAMPLES[::every]
    functions = [parsed(s.text) for s in samples]
    library = Library(functions, tmp_path)
    for i, (f, s) in enumerate(zip(functions, samples, strict=True)):
        env = {f.dims[0]: s.count}
        for a, b in zip(library.run(i, s.inputs, env), run(f, s.inputs, env), strict=True):
            try:
                same(a, b)
            except AssertionError as failure:
                raise AssertionError(f"{s.name}\n{s.text}") from failure


PROGRAMS = {
    "GEMM": (programs.GEMM, [floats(13, 24), floats(3, 24, 32), floats(96)], {"m": 13}),
    "PHASES": (programs.PHASES, [floats(37)], {"n": 37}),
    "MASKED": (programs.MASKED, [floats(40), floats(40).round()], {"n": 40}),
    "PADDED": (programs.PADDED, [floats(30), floats(3)], {"n": 30}),
    "STRIDES": (programs.STRIDES, [floats(200), RNG.integers(0, 199, 16)], {}),
    "SPLIT": (programs.SPLIT_INDEX, [floats(5, 64)], {"n": 5}),
    "REDUCTION": (programs.REDUCTION, [floats(5, 48)], {"n": 5}),
    "CONTROL": (programs.CONTROL, [RNG.integers(1, 1000, 20)], {"n": 20}),
    "LANES": (programs.ODD_LANES, [floats(2, 48), floats(24)], {}),
}


def test_programs_in_parts(tmp_path) -> None:
    functions = [parsed(text) for text, _, _ in PROGRAMS.values()]
    library = Library(functions, tmp_path)
    for i, (f, (_, inputs, dims)) in enumerate(zip(functions, PROGRAMS.values(), strict=True)):
        env = {d: dims[d.name] for d in f.dims}
        for parts in (1, 2, 7):
            for a, b in zip(library.run(i, inputs, env, parts), run(f, inputs, env), strict=True):
                same(a, b, 1e-6)


@pytest.mark.parametrize(
    "every", [pytest.param(12, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
def test_operators(every, tmp_path) -> None:
    found = [(d, s) for d in table() if d.compute or d.loops for s in chosen(d)]
    cases = []
    for d, s in found[::every]:
        made = function_of(d, s, symbolic=bool(s.symbolic))
        if made is not None:
            loops = ops_to_loops(made[0], table().definition)
            cases.append((d, s, made, lower(decide(loops, host()).function, host())))
    library = Library([c[-1] for c in cases], tmp_path)
    for i, (d, s, (_, inputs, values), _) in enumerate(cases):
        expected = d.evaluate(s.attrs, *s.args)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for got, want in zip(library.run(i, inputs, values, 3), expected, strict=True):
            agree(got.reshape(want.shape), want, d, s)


def test_elementary_functions(tmp_path) -> None:
    """Within a few units in the last place; the library of the platform is what it is."""
    functions, cases = [], []
    for name, kind in [(n, k) for n in FUNCTIONS for k in ("f32", "f64")]:
        text = f"lowered func f(x: {kind}[n]) -> (y: {kind}[n]) over (n) {{ for i in 0..n {{ y[i] = {name}(x[i]) }} }}"
        functions.append(parsed(text))
        lo, hi = FUNCTIONS[name][1 if kind == "f32" else 2]
        x = np.linspace(max(lo, -50), min(hi, 50), 500).astype(functions[-1].params[0].dtype.numpy)
        cases.append(np.concatenate([x, np.array([0.0, -0.0, np.inf, -np.inf, np.nan], x.dtype)]))
    library = Library(functions, tmp_path)
    for i, (f, x) in enumerate(zip(functions, cases, strict=True)):
        env = {f.dims[0]: len(x)}
        [got], [want] = library.run(i, [x], env), run(f, [x], env)
        finite = np.isfinite(want)
        np.testing.assert_array_equal(got[~finite], want[~finite])
        assert ulps(got[finite], want[finite]).max() <= 4, list(FUNCTIONS)[i // 2]


def test_sixteen_bit_values_convert_both_ways(tmp_path) -> None:
    text = """\
lowered func f(x: {0}[n]) -> (y: f32[n], z: {0}[n]) over (n) {{
  for i in 0..n {{ y[i] = f32(x[i]) }}
  for i in 0..n {{ z[i] = {0}(y[i]) }}
}}
"""
    functions = [parsed(text.format(kind)) for kind in ("f16", "bf16")]
    library = Library(functions, tmp_path)
    bits = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    for i, f in enumerate(functions):
        x = bits.view(f.params[0].dtype.numpy)
        y, z = library.run(i, [x], {f.dims[0]: len(x)})
        with np.errstate(invalid="ignore"):  # signaling NaNs, which some processors tell of
            wide = x.astype(np.float32)
        np.testing.assert_array_equal(y, wide)
        ordinary = ~np.isnan(wide)
        np.testing.assert_array_equal(z.view(np.uint16)[ordinary], bits[ordinary])
        assert np.isnan(z.astype(np.float32)[~ordinary]).all()


def test_assertions_return_their_number(tmp_path) -> None:
    library = Library([parsed(programs.ASSERTING)], tmp_path)
    [phase] = library.source.phases["f0"]
    assert phase.asserts
    for indices, status in [([0, 5], 2), ([-1, 5], 1), ([1, 1], 0)]:
        buffers = [floats(5), np.array(indices), np.zeros(2, np.float32)]
        assert library.call(phase, buffers, [5, 2]) == status


def text_of(f: LoopFunction) -> str:
    return emit_source((f,), Target()).text


def test_shared_expressions_have_names(tmp_path) -> None:
    """x -> x + x sixty times: as a tree it would have 2**60 nodes."""
    from inlay.arith import dtype as dt
    from inlay.arith.expr import lit
    from inlay.loop.buffer import Buffer
    from inlay.loop.func import Stage
    from inlay.loop.scalar import Binary, BinaryOp, Load, Scalar, Select
    from inlay.loop.stmt import Store

    x, y = Buffer("x", (lit(1),), dt.F64), Buffer("y", (lit(1),), dt.F64)
    first: Scalar = Load(x, (lit(0),))
    doubled, chosen_ = first, first
    for _ in range(60):
        doubled = Binary(BinaryOp.ADD, doubled, doubled, dt.F64)
        small = Binary(BinaryOp.LT, chosen_, first, dt.BOOL)
        more = Binary(BinaryOp.ADD, chosen_, first, dt.F64)
        chosen_ = Select(small, Binary(BinaryOp.SUB, chosen_, first, dt.F64), more, dt.F64)
    made = [
        LoopFunction("f", (x, y), 1, (), Store(y, (lit(0),), v), Stage.LOWERED) for v in (doubled, chosen_)
    ]
    assert all(len(text_of(f)) < 20_000 for f in made)
    library = Library(made, tmp_path)
    for i, expected in enumerate((2.0**60, 61.0)):
        [out] = library.run(i, [np.ones(1)], {})
        assert out[0] == expected


def test_text_reads_like_the_loops() -> None:
    assert text_of(parsed(programs.PHASES)).endswith("""\
int64_t two_phase2(void *const *buffers, const int64_t *ints, int64_t part, int64_t parts)
{
    float *restrict y = buffers[1];
    uint8_t *workspace = buffers[2];
    const int64_t n = ints[0];
    float *t = (float *)(void *)workspace;
    float *s = (float *)(void *)(workspace + 64 * ((4 * n + 63) / 64));
    const int64_t k_end = n * (part + 1) / parts;
    for (int64_t k = n * part / parts; k < k_end; k++) {
        y[k] = t[k] + s[0];
    }
    return 0;
}
""")


def test_names_of_functions_are_not_taken(tmp_path) -> None:
    """A result named like the function that computes it."""
    text = """\
lowered func exp(floor: f64[n], int: f32[n]) -> (fmod: f64[n], expf: f32[n]) over (n) {
  for sqrt in 0..n { fmod[sqrt] = fma(floor(floor[sqrt]), exp(floor[sqrt]), 1.0:f64) }
  for parts in 0..n { expf[parts] = exp(int[parts]) }
}
"""
    f = parsed(text)
    x = np.linspace(-2, 2, 9)
    library = Library([f], tmp_path)
    a, b = library.run(0, [x, x.astype(np.float32)], {f.dims[0]: 9})
    np.testing.assert_allclose(a, np.floor(x) * np.exp(x) + 1, rtol=1e-15)
    np.testing.assert_allclose(b, np.exp(x.astype(np.float32)), rtol=1e-6)


def test_text_is_reproducible() -> None:
    assert text_of(parsed(programs.GEMM)) == text_of(parsed(programs.GEMM))


def test_schedulable_functions_are_refused() -> None:
    text = "schedulable func f(x: f32[4]) -> (y: f32[4]) { for i in 0..4 { y[i] = x[i] } }"
    with pytest.raises(InternalError, match="not lowered"):
        text_of(parsed(text))
