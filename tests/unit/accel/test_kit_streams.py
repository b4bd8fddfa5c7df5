"""Descriptions of devices with memories of their own that are wrong are found out, with the section."""

from __future__ import annotations

from pathlib import Path

import pytest

from inlay.accel.backend import backend_in_file
from inlay.accel.kit import Checked, checks
from inlay.accelerators import strawberry, vector_unit

SOURCE = Path(strawberry.__file__).read_text(encoding="utf-8")


def failures(folder: Path, old: str, new: str, trials: int = 4) -> list[Checked]:
    assert old in SOURCE
    path = folder / "wrong.py"
    path.write_text(SOURCE.replace(old, new, 1), encoding="utf-8")
    found = checks(backend_in_file(str(path)), trials, 0)
    return [c for c in found if isinstance(c, Checked) and c.failure]


@pytest.mark.llvm
def test_a_description_that_is_right(tmp_path) -> None:
    assert failures(tmp_path, "clock", "clock", trials=2) == []


@pytest.mark.llvm
def test_the_model_of_the_vector_unit_is_what_its_description_says() -> None:
    found = checks(backend_in_file(vector_unit.__file__), 2, 0)
    assert [c for c in found if isinstance(c, Checked) and c.failure] == []


WRONG = [
    # meanings that are not what the hardware does, or what patterns take
    ("s = a[i, j, o] + t.bias[o]", "s = a[i, j, o] - t.bias[o]", "instruction finish", "no program"),
    ("a[i, j, o] = 0", "a[i, j, o] = 1", "pattern conv", "no instruction computes a sum"),
    # words
    ('kind=1 if c.name == "gemm" else 2', "kind=1", "declarations", "words of 'gemm' from those of 'mac'"),
    ("kind=3 if c.name", "kind=4 if c.name", "declarations", "words of 'finish' from those of"),
    ("si=c.x.stride[0], sj=c.x.stride[1], aux=c.w.at", "si=c.x.stride[1], sj=c.x.stride[0], aux=c.w.at", "the driver", "the driver gives something else"),
    ("stride=c.stride, top=c.top", "stride=c.x, top=c.top", "declarations", "found no field for stride"),
    ("top=c.top, bottom=c.bottom", "top=c.bottom, bottom=c.top", "the driver", "gives something else"),
    # order
    ('push="push_prev", pop="pop_next"),\n    )', 'push="push_prev", pop="pop_prev"),\n    )', "declarations", "to mean two tokens"),
    ("return self.RUN(**c.flags, i=c.H", "return self.RUN(i=c.H", "declarations", "no field for the flags pop_prev, pop_next, push_prev, push_next in words of 'clear': pass on **c.flags"),
    ("self.RUN(op=op, kind=7, **c.flags) if", "self.RUN(op=op, kind=7) if", "declarations", "in words of 'waiting in compute'"),
    # faults of its code, a function that is not there
    ("    def multiply(self, c):\n", "    def multiply(self, c):\n        1 / 0\n", "declarations", "ZeroDivisionError"),
    ("strawberry_run", "strawberry_nothing", "drivers", "has no function 'strawberry_nothing'"),
    # cycles that are not its own
    ("latency=40)\n    ld_wgt", "latency=400)\n    ld_wgt", "cost", "cycles are predicted"),
    ("        cycles=area + 12,\n", "        cycles=1,\n", "cost of gemm", "50 cycles are predicted of 50 of them"),
    ("terms, (block,)), cycles=2 * area + 8", "terms, (block,)), cycles=area // 4", "cost", "cycles are predicted of add"),
    # memories that are larger than those of the device, or than its words can say
    ("act = Memory(act_kib * KiB", "act = Memory(act_kib * 64 * KiB", "memory act", "its last unit is 262143"),
    ("acc = Memory(acc_kib * KiB", "acc = Memory(acc_kib * KiB + block * 4", "memory acc", "its last unit is 2048, and what uses it fails: 'wrong' ended strawberry_run with the fault 2"),
    ("par = Memory(4 * KiB", "par = Memory(8 * KiB", "memory par", "its last unit is 31, and no word says it"),
]  # fmt: skip


@pytest.mark.llvm
@pytest.mark.sample(1)
@pytest.mark.parametrize(("old", "new", "section", "message"), WRONG)
def test_what_is_wrong_is_found(tmp_path, old, new, section, message) -> None:
    found = failures(tmp_path, old, new)
    assert found
    assert any(section in c.section and message in c.failure for c in found), found


@pytest.mark.llvm
@pytest.mark.slow
def test_a_rounding_that_is_not_that_of_the_device(tmp_path) -> None:
    found = failures(
        tmp_path,
        't.shift[o], zero, low, high, rounding="tflite"',
        't.shift[o], zero, low, high, rounding="half_up"',
        trials=20,
    )
    assert {c.section for c in found} == {"meaning or encoding of mac and finish, or the driver"}
    assert all("the driver gives something else" in c.failure for c in found)
