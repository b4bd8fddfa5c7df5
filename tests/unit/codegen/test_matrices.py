"""Matrix products: as instructions, and as the plain sums that they mean, on every machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlay.arith.dtype import BY_NAME
from inlay.codegen.llvm import emit_module
from inlay.codegen.llvm_compile import assembly
from inlay.interp.loop import run
from inlay.machine.matrix_units import MATRIX_INSTRUCTIONS, MATRIX_PRODUCTS
from inlay.machine.target import Target, baseline, host
from tests.system import needs
from tests.unit.codegen.c_support import Library
from tests.unit.codegen.support import parsed, run_native

RNG = np.random.default_rng(29)
UNIT = replace(
    baseline("x86_64", "v4"), features=(*baseline("x86_64", "v4").features, "amx-int8", "amx-tile")
)
"""A described machine with matrices."""


def program(kind: str, rows: int, steps: int, *, down: int = 2, across: int = 2, columns: int = 16) -> str:
    """Blocks of matrices of sums, twice, over `s` runs of steps."""
    unit = MATRIX_PRODUCTS[kind]
    m, n = down * rows, across * columns
    at, sums = f"{rows}*a + r, {columns}*b + l", f"[{rows}*a + r, {columns}*b + l]"
    tiles = f"for a in 0..{down} unroll {{ for b in 0..{across} unroll {{"
    nest = f"for r in 0..{rows} matrix {{ for l in 0..{columns} matrix {{"
    return f"""\
lowered func f(x: {unit.first}[2, {m}, s, {4 * steps}], w: {unit.second}[s, {steps}, {n}, 4])
    -> (y: i32[2, {m}, {n}]) over (s) {{
  for t in 0..2 {{
    alloc c: i32[{m}, {n}] @matrix
    {tiles} {nest} c{sums} = 0:i32 }} }} }} }}
    for q in 0..s {{ {tiles} {nest} for k in 0..{steps} matrix {{
      c{sums} = dot(j < 4, c{sums}, x[t, {rows}*a + r, q, 4*k + j], w[q, k, {columns}*b + l, j])
    }} }} }} }} }} }}
    {tiles} {nest} y[t, {at}] = c{sums} }} }} }} }}
  }}
}}
"""


def operands(kind: str, rows: int, steps: int, columns: int, s: int) -> list[np.ndarray]:
    """Return factors of the whole range of their formats."""
    unit = MATRIX_PRODUCTS[kind]
    shapes = ((2, rows, s, 4 * steps), (s, steps, columns, 4))
    made: list[np.ndarray] = []
    for dtype, shape in zip((unit.first, unit.second), shapes, strict=True):
        info = np.iinfo(BY_NAME[dtype.name].numpy)
        made.append(RNG.integers(info.min, info.max + 1, shape).astype(info.dtype))
    return made


def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    s, steps, n, _ = w.shape
    columns = w.transpose(0, 1, 3, 2).reshape(s, 4 * steps, n)
    return np.einsum("trsk,skl->trl", x.astype(np.int64), columns.astype(np.int64)).astype(np.int32)


SIZES = [
    (16, 16, 1, 2, 16),
    (13, 7, 2, 2, 16),
    (1, 1, 1, 1, 16),
    (7, 16, 4, 1, 16),
    (14, 6, 1, 4, 16),
    (5, 3, 3, 2, 8),
]


@pytest.mark.sample(8)
@pytest.mark.parametrize("kind", sorted(MATRIX_PRODUCTS))
@pytest.mark.parametrize(("rows", "steps", "down", "across", "columns"), SIZES)
def test_compiled_is_the_plain_sum(
    kind: str, rows: int, steps: int, down: int, across: int, columns: int
) -> None:
    f = parsed(program(kind, rows, steps, down=down, across=across, columns=columns))
    x, w = operands(kind, down * rows, steps, across * columns, 3)
    want = expected(x, w)
    if rows * steps < 64:
        np.testing.assert_array_equal(run(f, [x, w], {f.dims[0]: 3})[0], want)
    for target in (host(), baseline("x86_64", "v2")):
        if set(target.features) <= set(host().features):
            np.testing.assert_array_equal(run_native(f, [x, w], {"s": 3}, target=target)[0], want)


@pytest.mark.cc
@needs("gcc")
def test_emitted_c_is_the_plain_sum(tmp_path) -> None:
    f = parsed(program("i8u8", 3, 2))
    x, w = operands("i8u8", 6, 2, 32, 2)
    np.testing.assert_array_equal(Library([f], tmp_path).run(0, [x, w], {f.dims[0]: 2})[0], expected(x, w))


@pytest.mark.parametrize("row", MATRIX_INSTRUCTIONS, ids=lambda r: r.intrinsic)
def test_each_instruction_is_emitted(row) -> None:
    module = emit_module(parsed(program(row.kind.name, 13, 7)), UNIT).text
    short = row.intrinsic.partition(".")[2]
    assert module.count(f"call void @llvm.x86.{short}(") == 4
    assert module.count("@llvm.x86.tileloadd64(i8") - 1 == 4, "each factor is loaded once"
    text = assembly(module, UNIT, optimize=False)
    assert f"{short}\t" in text
    assert all(word in text for word in ("ldtilecfg", "tilezero", "tilestored", "tilerelease"))


def test_registers_are_configured_once_for_neighbors_of_the_same_shapes() -> None:
    module = emit_module(parsed(program("u8i8", 13, 7)), UNIT).text
    assert module.count("call void @llvm.x86.ldtilecfg") == 1
    assert module.index("ldtilecfg(ptr @") < module.index("phi i64")


@pytest.mark.parametrize("target", [baseline("x86_64", "v4"), baseline("aarch64")], ids=lambda t: t.arch)
def test_without_a_unit_there_are_loops(target: Target) -> None:
    module = emit_module(parsed(program("u8i8", 3, 2)), target).text
    assert "tile" not in module
    assert "alloca [192 x i32]" in module


def test_sums_that_something_else_touches_are_in_memory() -> None:
    text = program("u8i8", 3, 2).replace("    for q in", "    c[0, 0] = 7:i32\n    for q in")
    assert "tilezero" not in emit_module(parsed(text), UNIT).text
    f = parsed(text)
    x, w = operands("u8i8", 6, 2, 32, 2)
    want = expected(x, w)
    want[:, 0, 0] += 7
    np.testing.assert_array_equal(run_native(f, [x, w], {"s": 2})[0], want)


def test_more_sums_than_registers_are_in_memory() -> None:
    module = emit_module(parsed(program("u8i8", 3, 2, down=4, across=2)), UNIT).text
    assert "tilezero" not in module
