"""Which lanes of a vector a condition on indices takes, and what is loaded under it."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from inlay.codegen.llvm import emit_module
from inlay.machine.target import baseline, host
from tests.unit.codegen.support import check, parsed, run_native

LEVELS = ["v2", "v3", "v4"]


def target_of(level: str):
    target = baseline("x86_64", level)
    if not set(target.features) <= set(host().features):
        pytest.skip(f"this machine lacks features of {level}")
    return target


BELOW = """\
lowered func below() -> (y: i32[{w}], z: i32[{w}]) over (m, n) {{
  for l in 0..{w} vector {{
    y[l] = select([{s}*l + m] < [n], 1:i32, 0:i32)
    z[l] = select([m] <= [{s}*l + n], 1:i32, 0:i32)
  }}
}}
"""


@pytest.mark.sample(3)
@pytest.mark.parametrize("stride", [1, -1, 3, -5, 100, 40_000, 1 << 40])
@pytest.mark.parametrize("width", [4, 16, 64])
@pytest.mark.parametrize("level", LEVELS)
def test_lanes_below_a_bound(level: str, width: int, stride: int) -> None:
    """Bounds before, among and behind the lanes, and so far away that few bits do not hold them."""
    text, target, end = BELOW.format(w=width, s=stride), target_of(level), abs(stride) * width
    for apart in {0, 1, stride, end - 1, end, end + 1, 127, 128, 1 << 31, 1 << 33, 1 << 50}:
        for m, n in ((0, abs(apart)), (abs(apart), 0), (1 << 50, (1 << 50) + apart)):
            check(text, [], {"m": m, "n": n}, target=target)


def test_bounds_are_compared_in_lanes_that_fill_a_vector() -> None:
    text = emit_module(parsed(BELOW.format(w=64, s=1)), baseline("x86_64", "v4")).text
    assert "icmp slt <64 x i8>" in text
    assert (
        "icmp slt <16 x i32>" in emit_module(parsed(BELOW.format(w=16, s=1)), baseline("x86_64", "v4")).text
    )


APART = """\
lowered func apart(x: f32[2*n]) -> (y: f32[n], z: f32[n]) over (n) {
  for i in 0..(n + 15) / 16 {
    for l in 0..16 vector {
      if [i*16 + l] < [n] {
        y[i*16 + l] = x[2*(i*16 + l) + 1]
        z[i*16 + l] = x[2*n - 2 - 2*(i*16 + l)]
      }
    }
  }
}
"""


@pytest.mark.sample(12)
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 15, 16, 17, 31, 40])
@pytest.mark.parametrize("level", LEVELS)
def test_elements_apart_under_a_mask(level: str, n: int) -> None:
    x = np.random.default_rng(n).standard_normal(2 * n).astype(np.float32)
    check(APART, [x], {"n": n}, target=target_of(level))


def test_a_mask_takes_shuffled_loads() -> None:
    text = emit_module(parsed(APART), baseline("x86_64", "v4")).text
    assert "masked.load" in text
    assert "masked.gather" not in text


@pytest.mark.parametrize("n", [1, 5, 8, 15])
@pytest.mark.parametrize("at_end", [True, False])
def test_elements_apart_do_not_touch_what_is_off(n: int, at_end: bool) -> None:
    """The pages around are not mapped: a load of a lane that is off would fault."""
    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 3 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None)
    whole = np.frombuffer(area, np.float32, count=page // 4, offset=page)
    whole[:] = np.arange(len(whole), dtype=np.float32)
    x = whole[-2 * n :] if at_end else whole[: 2 * n]
    for outside in (0, 2 * page):
        assert libc.mprotect(ctypes.c_void_p(start + outside), page, 0) == 0
    y, z = run_native(parsed(APART), [x], {"n": n})
    np.testing.assert_array_equal(y, x[1::2])
    np.testing.assert_array_equal(z, x[::2][::-1])
    for outside in (0, 2 * page):
        libc.mprotect(ctypes.c_void_p(start + outside), page, mmap.PROT_READ | mmap.PROT_WRITE)


NARROW = """\
lowered func narrow() -> (y: i32[{w}], z: f32[{w}]) over (m) {{
  for l in 0..{w} vector {{
    y[l] = i32([{s}*l + m])
    z[l] = f32(i32([m - {s}*l]))
  }}
}}
"""


@pytest.mark.sample(8)
@pytest.mark.parametrize("stride", [1, -3, 40_000, 1 << 33])
@pytest.mark.parametrize("width", [4, 16])
@pytest.mark.parametrize("level", LEVELS)
def test_indices_in_32_bits(level: str, width: int, stride: int) -> None:
    """They wrap as those of 64 bits that are cut to 32."""
    for m in (0, 7, (1 << 31) - 2, 1 << 31, (1 << 40) + 3):
        check(NARROW.format(w=width, s=stride), [], {"m": m}, target=target_of(level))
