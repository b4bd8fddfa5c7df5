"""Descriptions of devices with memories of their own that are wrong are found out, with the section."""

from __future__ import annotations

from pathlib import Path

import pytest

from inlay.accel.backend import backend_in_file
from inlay.accel.kit import Checked, checks
from inlay.accelerators import strawberry

SOURCE = Path(strawberry.__file__).read_text(encoding="utf-8")


def failures(folder: Path, old: str, new: str, trials: int = 4) -> list[Checked]:
    assert old in SOURCE
    path = folder / "wrong.py"
    path.write_text(SOURCE.replace(old, new, 1), encoding="utf-8")
    found = checks(backend_in_file(str(path)), trials, 0)
    return [c for c in found if isinstance(c, Checked) and c.failure]


@pytest.mark.llvm
def test_a_description_that_is_right(tmp_path) -> None:
    assert failures(tmp_path, "clock", "clock", trials=3) == []


WRONG = [
    # wrong results
    ("s = a[i, j, o] + t.bias[o]", "s = a[i, j, o] - t.bias[o]", "pattern conv", "none of"),
    ("for i, j, o in nest(a.shape):\n            a[i, j, o] = 0", "for i, j, o in nest(a.shape):\n            a[i, j, o] = 1", "pattern conv", "no instruction computes a sum"),
    ('kind=1 if c.name == "gemm" else 2', "kind=1", "declarations", "found word"),
    ("kind=3 if c.name", "kind=4 if c.name", "encoding of", "the driver gives something else"),
    ('rounding="tflite"))\n\n    @instruction(\n        compute, y=Out(out, i8, pixels), a=In(acc, i32, sums), t=In(par, scales', 'rounding="half_up"))\n\n    @instruction(\n        compute, y=Out(out, i8, pixels), a=In(acc, i32, sums), t=In(par, scales', "pattern conv", "none of"),
    # addresses and sizes
    ("inp_kib, wgt_kib, acc_kib, out_kib = Param(32)", "inp_kib, wgt_kib, acc_kib, out_kib = Param(64)", "", ""),
    ("src=c.x.at, si=c.x.stride[0], sj=c.x.stride[1], aux=c.w.at", "src=c.x.at, si=c.x.stride[1], sj=c.x.stride[0], aux=c.w.at", "encoding of", "the mock refuses"),
    ("stride=c.stride, top=c.top, bottom=c.bottom", "stride=c.x, top=c.top, bottom=c.bottom", "declarations", "found no field for stride"),
    ("top=c.top, bottom=c.bottom", "top=c.bottom, bottom=c.top", "encoding of", "the driver gives something else"),
    # order
    ('Token(store, compute, push="push_prev", pop="pop_next")', 'Token(store, compute, push="push_prev", pop="pop_prev")', "declarations", "the flag"),
    # faults of its code
    ("    def multiply(self, c):\n", "    def multiply(self, c):\n        1 / 0\n", "declarations", "ZeroDivisionError"),
    ("strawberry_run", "strawberry_nothing", "drivers", "has no function 'strawberry_nothing'"),
    # cost
    ("latency=40)\n    ld_wgt", "latency=400)\n    ld_wgt", "cost", "cycles"),
]  # fmt: skip


@pytest.mark.llvm
@pytest.mark.sample(4)
@pytest.mark.parametrize(("old", "new", "section", "message"), WRONG)
def test_what_is_wrong_is_found(tmp_path, old, new, section, message) -> None:
    found = failures(tmp_path, old, new)
    if not section:
        assert found == []  # a larger memory than the device's own parameter says is the device's, too
        return
    assert found
    assert any(section in c.section and message in c.failure for c in found), found
