"""Dot products: as instructions, and as the plain sums that they mean, on every machine."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from inlay.arith.dtype import BF16, BY_NAME, F32, I8, I16, I32, U8
from inlay.codegen.c import emit_source
from inlay.codegen.llvm import emit_module
from inlay.codegen.llvm_compile import assembly
from inlay.interp.loop import run
from inlay.loop.parser import parse_function
from inlay.loop.verify import verify
from inlay.machine.dot_products import INSTRUCTIONS, KINDS
from inlay.machine.target import Target, baseline, host
from tests.system import needs
from tests.unit.codegen.c_support import Library
from tests.unit.codegen.support import parsed, run_native, with_features

RNG = np.random.default_rng(13)


def program(a: str, b: str, g: int, lanes: int, *, masked: bool = False, saturates: bool = False) -> str:
    """A register tile of 3 rows; lanes behind `n` columns are not stored."""
    dot = "dot_saturating" if saturates else "dot"
    store = "y[r, l] = acc[r, l]"
    if masked:
        store = f"if [l] < [n] {{ {store} }}"
    return f"""\
lowered func f(x: {a}[3, m, {g}], w: {b}[m, {lanes}, {g}]) -> (y: i32[3, {lanes}]) over (m, n) {{
  alloc acc: i32[3, {lanes}] @register
  for r in 0..3 unroll {{ for l in 0..{lanes} vector {{ acc[r, l] = [r]:i32 }} }}
  for k in 0..m {{
    for r in 0..3 unroll {{
      for l in 0..{lanes} vector {{ acc[r, l] = {dot}(j < {g}, acc[r, l], x[r, k, j], w[k, l, j]) }}
    }}
  }}
  for r in 0..3 unroll {{ for l in 0..{lanes} vector {{ {store} }} }}
}}
"""


BF16_PROGRAM = """\
lowered func f(x: bf16[3, m, 2], w: bf16[m, {lanes}, 2]) -> (y: f32[3, {lanes}]) over (m) {{
  alloc acc: f32[3, {lanes}] @register
  for r in 0..3 unroll {{ for l in 0..{lanes} vector {{ acc[r, l] = 0.0:f32 }} }}
  for k in 0..m {{
    for r in 0..3 unroll {{
      for l in 0..{lanes} vector {{ acc[r, l] = dot(j < 2, acc[r, l], x[r, k, j], w[k, l, j]) }}
    }}
  }}
  for r in 0..3 unroll {{ for l in 0..{lanes} vector {{ y[r, l] = acc[r, l] }} }}
}}
"""


def numbers(dtype: str, *shape: int) -> np.ndarray:
    """Return numbers of a format, its ends often."""
    limits = np.iinfo(BY_NAME[dtype].numpy)
    found = RNG.integers(limits.min, limits.max + 1, shape)
    ends = RNG.choice([limits.min, limits.max], shape)
    return np.where(RNG.random(shape) < 0.5, found, ends).astype(BY_NAME[dtype].numpy)


def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    sums = np.einsum("rkj,klj->rl", x.astype(np.int64), w.astype(np.int64)) + np.arange(3)[:, None]
    return sums.astype(np.int32)


FORMATS = list(itertools.product(("i8", "u8", "i16"), repeat=2))


@pytest.mark.sample(12)
@pytest.mark.parametrize(("a", "b"), FORMATS)
@pytest.mark.parametrize("g", [1, 2, 4])
@pytest.mark.parametrize("lanes", [1, 4, 12, 16])
def test_compiled_is_the_plain_sum(a: str, b: str, g: int, lanes: int) -> None:
    f = parsed(program(a, b, g, lanes))
    x, w = numbers(a, 3, 5, g), numbers(b, 5, lanes, g)
    want = expected(x, w)
    env = {f.dims[0]: 5, f.dims[1]: lanes}
    np.testing.assert_array_equal(run(f, [x, w], env)[0], want)
    for target in (host(), baseline("x86_64", "v2")):
        if set(target.features) <= set(host().features):
            np.testing.assert_array_equal(run_native(f, [x, w], {"m": 5, "n": lanes}, target=target)[0], want)


@pytest.mark.sample(14)
@pytest.mark.parametrize(("a", "b"), FORMATS)
@pytest.mark.parametrize("lanes", [2, 8, 16, 48])
def test_one_product_is_half_a_pair(a: str, b: str, lanes: int) -> None:
    text = f"""\
lowered func f(x: {a}[{lanes}], w: {b}[{lanes}], s: {b}[1], z: i32[{lanes}]) -> (y: i32[2, {lanes}]) {{
  for l in 0..{lanes} vector {{ y[0, l] = z[l] + (i32(x[l]) * i32(w[l])) }}
  for l in 0..{lanes} vector {{ y[1, l] = z[l] + (i32(x[l]) * i32(s[0])) }}
}}
"""
    f = parsed(text)
    inputs = [
        numbers(a, lanes),
        numbers(b, lanes),
        numbers(b, 1),
        RNG.integers(-(2**31), 2**31, lanes, np.int32),
    ]
    want = run(f, inputs, {})[0]
    for target in (host(), baseline("x86_64", "v2"), baseline("x86_64", "v3"), baseline("x86_64", "v4")):
        if set(target.features) <= set(host().features):
            np.testing.assert_array_equal(run_native(f, inputs, target=target)[0], want)
    if lanes == 16:
        code = assembly(
            emit_module(f, baseline("x86_64", "v3")).text, baseline("x86_64", "v3"), optimize=False
        )
        assert "vpmaddwd" in code
        assert "vpmulld" not in code


def test_the_sum_that_overflows_wraps() -> None:
    f = parsed(program("i16", "i16", 2, 8))
    x, w = np.full((3, 1, 2), -32768, np.int16), np.full((1, 8, 2), -32768, np.int16)
    [y] = run_native(f, [x, w], {"m": 1, "n": 8})
    np.testing.assert_array_equal(y, np.array([[-(2**31)], [-(2**31) + 1], [-(2**31) + 2]]).repeat(8, 1))


def saturated(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return sums of pairs as the nearest i16, added up."""
    products = x.astype(np.int64)[:, :, None, :] * w.astype(np.int64)
    pairs = products.reshape(*products.shape[:-1], -1, 2).sum(-1)
    return (np.clip(pairs, -(2**15), 2**15 - 1).sum((1, 3)) + np.arange(3)[:, None]).astype(np.int32)


@pytest.mark.parametrize("level", ["v2", "v3", "v4", ""])
@pytest.mark.parametrize("lanes", [4, 8, 12, 16])
def test_pairs_saturate(level: str, lanes: int) -> None:
    f = parsed(program("u8", "i8", 4, lanes, saturates=True))
    x, w = numbers("u8", 3, 5, 4), numbers("i8", 5, lanes, 4)
    want = saturated(x, w)
    assert not np.array_equal(want, expected(x, w))
    np.testing.assert_array_equal(run(f, [x, w], {f.dims[0]: 5, f.dims[1]: lanes})[0], want)
    target = baseline("x86_64", level) if level else host()
    if set(target.features) <= set(host().features):
        np.testing.assert_array_equal(run_native(f, [x, w], {"m": 5, "n": lanes}, target=target)[0], want)


@pytest.mark.cc
@needs("gcc")
def test_pairs_saturate_in_emitted_c(tmp_path) -> None:
    f = parsed(program("u8", "i8", 4, 8, saturates=True))
    x, w = numbers("u8", 3, 5, 4), numbers("i8", 5, 8, 4)
    [y] = Library([f], tmp_path).run(0, [x, w], {f.dims[0]: 5, f.dims[1]: 8})
    np.testing.assert_array_equal(y, saturated(x, w))


HALVES = """\
lowered func f(x: i8[3, m, {terms}], w: u8[m, {groups}, {lanes}, 4]) -> (y: i32[3, {lanes}]) over (m) {{
  alloc acc: i32[3, {lanes}] @register
  for r in 0..3 unroll {{ for l in 0..{lanes} vector {{ acc[r, l] = [r]:i32 }} }}
  for k in 0..m {{
    for r in 0..3 unroll {{ for l in 0..{lanes} vector {{ acc[r, l] = {sums} }} }}
  }}
  for r in 0..3 unroll {{ for l in 0..{lanes} vector {{ y[r, l] = acc[r, l] }} }}
}}
"""


def halves(groups: int, lanes: int) -> str:
    """A tile whose weights are two in a byte, so many groups of bytes in each step."""
    sums = "acc[r, l]"
    for g in range(groups):
        low, high = f"(w[k, {g}, l, j] & 15:u8)", f"shr(w[k, {g}, l, j], 4:u8)"
        sums = f"dot(j < 4, {sums}, {low}, x[r, k, {8 * g} + j])"
        sums = f"dot(j < 4, {sums}, {high}, x[r, k, {8 * g + 4} + j])"
    return HALVES.format(terms=8 * groups, groups=groups, lanes=lanes, sums=sums)


@pytest.mark.sample(4)
@pytest.mark.parametrize("level", ["v2", "v3", "v4", ""])
@pytest.mark.parametrize("lanes", [4, 8, 12, 16])
@pytest.mark.parametrize("groups", [1, 4, 6])
def test_two_numbers_in_a_byte(level: str, lanes: int, groups: int) -> None:
    f = parsed(halves(groups, lanes))
    x, w = numbers("i8", 3, 5, 8 * groups), numbers("u8", 5, groups, lanes, 4)
    each = np.stack([w & 15, w >> 4], 2).swapaxes(3, 4).reshape(5, -1, lanes)  # [k, terms, lanes]
    want = np.einsum("rkt,ktl->rl", x.astype(np.int64), each.astype(np.int64)) + np.arange(3)[:, None]
    np.testing.assert_array_equal(run(f, [x, w], {f.dims[0]: 5})[0], want)
    target = baseline("x86_64", level) if level else host()
    if set(target.features) <= set(host().features):
        np.testing.assert_array_equal(run_native(f, [x, w], {"m": 5}, target=target)[0], want)


def test_pairs_of_products_that_stay_small_are_added_before_they_are_widened() -> None:
    target = baseline("x86_64", "v3")
    code = assembly(emit_module(parsed(halves(4, 8)), target).text, target, optimize=False)
    assert code.count("vpmaddubsw") == 3 * 8
    assert code.count("vpmaddwd") == 3
    whole = parsed(program("u8", "i8", 4, 8))  # of which two products leave 16 bits
    assert "vpmaddubsw" not in assembly(emit_module(whole, target).text, target, optimize=False)


@pytest.mark.parametrize(("feature", "word"), [("dotprod", "sdot"), ("i8mm", "usdot")])
def test_numbers_of_4_bits_are_bytes_with_a_sign_too(feature: str, word: str) -> None:
    target = with_features(baseline("aarch64"), feature)
    code = assembly(emit_module(parsed(halves(4, 4)), target).text, target, optimize=False)
    assert len(re.findall(rf"\b{word}\b", code)) == 3 * 8


def test_lanes_that_are_off_are_not_read_as_others() -> None:
    f = parsed(program("i16", "i8", 2, 16, masked=True))
    x, w = numbers("i16", 3, 5, 2), numbers("i8", 5, 16, 2)
    [y] = run_native(f, [x, w], {"m": 5, "n": 11})
    np.testing.assert_array_equal(y[:, :11], expected(x, w)[:, :11])


def test_panels_are_read_whole_where_lanes_are_off() -> None:
    """Masks of bytes are no instructions, but in the newest vectors."""
    text = """\
lowered func f(x: i16[5, 2], w: i8[2, 5, 16, 2]) -> (y: i32[n]) over (n) {
  for o in 0..2 {
    alloc acc: i32[16] @register
    for l in 0..16 vector { if [16*o + l] < [n] { acc[l] = 0:i32 } }
    for k in 0..5 { for l in 0..16 vector {
      if [16*o + l] < [n] { acc[l] = dot(j < 2, acc[l], x[k, j], w[(16*o + l) / 16, k, (16*o + l) % 16, j]) }
    } }
    for l in 0..16 vector { if [16*o + l] < [n] { y[16*o + l] = acc[l] } }
  }
}
"""
    f = parsed(text)
    assert "masked.load" not in emit_module(f, baseline("x86_64", "v3")).text
    x, w = numbers("i16", 5, 2), numbers("i8", 2, 5, 16, 2)
    want = np.einsum("kj,oklj->ol", x.astype(np.int64), w.astype(np.int64)).reshape(32).astype(np.int32)
    for n in (1, 11, 16, 21, 32):
        [y] = run_native(f, [x, w], {"n": n})
        np.testing.assert_array_equal(y, want[:n])


@pytest.mark.cc
@needs("gcc")
def test_emitted_c_is_the_plain_sum(tmp_path) -> None:
    functions = [parsed(program(a, b, 2, 8)) for a, b in FORMATS]
    library = Library(functions, tmp_path)
    for i, (f, (a, b)) in enumerate(zip(functions, FORMATS, strict=True)):
        x, w = numbers(a, 3, 5, 2), numbers(b, 5, 8, 2)
        env = {f.dims[0]: 5, f.dims[1]: 8}
        np.testing.assert_array_equal(library.run(i, [x, w], env)[0], expected(x, w))


def test_emitted_opencl_has_the_plain_sum() -> None:
    text = emit_source((parsed(program("i8", "i8", 2, 8)),), Target(dialect="OpenCL C")).text
    assert text.count("* ") >= 2, text


WORDS = {
    "pmadd.wd": "pmaddwd",
    "pmaddw.d.512": "pmaddwd",
    "pmadd.ub.sw": "pmaddubsw",
    "pmadd.ub.sw.128": "pmaddubsw",
    "pmaddubs.w.512": "pmaddubsw",
}
"""Instructions that are called otherwise than LLVM's intrinsics for them."""


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=lambda r: f"{r.intrinsic}-{'-'.join(sorted(r.features))}")
def test_each_instruction_is_emitted(row) -> None:
    target = target_with(row)
    kind = row.kind
    text = program(kind.first.name, kind.second.name, kind.width, row.lanes, saturates=kind.saturates)
    f = parsed(BF16_PROGRAM.format(lanes=row.lanes) if kind.sums is F32 else text)
    module = emit_module(f, target).text
    assert f"@llvm.{row.intrinsic}(" in module
    short = re.sub(r"^(x86|aarch64)\.(sse2|ssse3|avx2|avx512bf16|avx512|neon)\.", "", row.intrinsic)
    word = WORDS.get(short, short.partition(".")[0])
    assert re.search(rf"\bv?{word}\b", assembly(module, target, optimize=False))


def target_with(row) -> Target:
    level = "v4" if "avx512" in " ".join(row.features) else "v3" if row.features else "v2"
    return with_features(baseline(row.arch, level), *row.features)


def test_no_instruction_without_its_feature() -> None:
    f = parsed(program("u8", "i8", 4, 16))
    for level in ("v2", "v3", "v4"):
        text = emit_module(f, baseline("x86_64", level)).text
        assert not any(word in text for word in ("vpdp", "pmadd.ub", "pmaddubs"))
    assert "llvm.aarch64" not in emit_module(f, baseline("aarch64")).text


def test_a_target_says_what_it_multiplies() -> None:
    plain, v3 = Target(), baseline("x86_64", "v3")
    vnni = replace(baseline("x86_64", "v4"), features=(*baseline("x86_64", "v4").features, "avx512vnni"))
    arm = replace(baseline("aarch64"), features=("dotprod", "neon"))
    assert plain.dot_product(I8, I8) is None
    assert v3.dot_product(I8, I8) is v3.dot_product(U8, I8) is v3.dot_product(I16, I16) is KINDS["i16"]
    assert v3.dot_product(I32, I8) is None
    assert vnni.dot_product(U8, I8) is KINDS["u8i8"]
    assert vnni.dot_product(I8, I8) is KINDS["i16"]
    assert arm.dot_product(I8, I8) is KINDS["i8"]
    assert arm.dot_product(U8, I8) is None
    assert Target(dot=("i8",)).dot_product(I8, I8) is KINDS["i8"]
    assert replace(v3, saturating=True).dot_product(U8, I8) is KINDS["u8i8_pairs"]
    assert replace(v3, saturating=True).dot_product(I8, I8) is KINDS["i16"]
    assert replace(vnni, saturating=True).dot_product(U8, I8) is KINDS["u8i8"]


@pytest.mark.parametrize("lanes", [1, 4, 12, 16, 32])
def test_products_of_bf16_are_added_in_the_order_of_the_instruction(lanes: int) -> None:
    f = parsed(BF16_PROGRAM.format(lanes=lanes))
    x = (RNG.standard_normal((3, 40, 2)) * 2.0 ** RNG.integers(-9, 9, (3, 40, 2))).astype(BF16.numpy)
    w = RNG.standard_normal((40, lanes, 2)).astype(BF16.numpy)
    want = run(f, [x, w], {f.dims[0]: 40})[0]
    for target in (host(), baseline("x86_64", "v2"), baseline("x86_64", "v4")):
        if set(target.features) <= set(host().features):
            np.testing.assert_array_equal(run_native(f, [x, w], {"m": 40}, target=target)[0], want)


def test_bf16_takes_its_instruction_where_there_is_one() -> None:
    f = parsed(BF16_PROGRAM.format(lanes=32))
    plain = baseline("x86_64", "v4")
    target = replace(plain, cpu="znver4", features=tuple(sorted((*plain.features, "avx512bf16"))))
    for t, count in ((target, 6), (plain, 0)):
        code = assembly(emit_module(f, t).text, t, optimize=False)
        assert len(re.findall("vdpbf16ps", code)) == count
    assert target.dot_product(BF16, BF16) == KINDS["bf16"]
    assert target.dot_product(F32, F32) is None
    assert target.dot_product(I8, I8) == plain.dot_product(I8, I8)


@pytest.mark.parametrize(("a", "acc"), [("f16", "f32"), ("bf16", "i32"), ("i8", "f32")])
def test_other_sums_are_no_dots(a: str, acc: str) -> None:
    text = f"""\
lowered func f(x: {a}[2], w: {a}[2]) -> (y: {acc}[1]) {{ y[0] = dot(j < 2, 0:{acc}, x[j], w[j]) }}
"""
    [finding] = verify(parse_function(text.replace("0:f32", "0.0:f32")))
    assert f"found a dot of {a} and {a} added to {acc}" in finding.message
