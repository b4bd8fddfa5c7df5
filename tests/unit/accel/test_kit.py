"""Descriptions that are wrong are found out, with the section and a program that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from inlay.accel.apart import checked
from inlay.accel.backend import backend_in_file
from inlay.accel.kit import Checked, checks
from inlay.accelerators import vanilla

SOURCE = Path(vanilla.__file__).read_text(encoding="utf-8")


def changed(folder: Path, old: str, new: str) -> Path:
    assert old in SOURCE
    path = folder / "wrong.py"
    path.write_text(SOURCE.replace(old, new, 1), encoding="utf-8")
    return path


def failures(path: Path, trials: int = 6) -> list[Checked]:
    found = checks(backend_in_file(str(path)), trials, 0)
    return [c for c in found if isinstance(c, Checked) and c.failure]


@pytest.mark.llvm
def test_a_description_that_is_right(tmp_path) -> None:
    assert failures(changed(tmp_path, "macs", "macs")) == []


WRONG = [
    ("+ r - top", "+ r - left", "pattern conv", "the instruction convolve means something else at"),
    ("m.a.strides[0]", "m.a.strides[1]", "pattern conv", "the instruction convolve means something else at"),
    (
        "outside=lambda m: m.a.outside",
        "outside=lambda m: 0 * m.a.outside",
        "pattern conv",
        "the instruction convolve",
    ),
    ("i32(x[n, c]) * i32(w[c, k])", "i32(x[n, c] * w[c, k])", "pattern dense", "means something else"),
    (
        "c.x, c.w, c.b, c.N, c.C",
        "c.x, c.w, c.b, c.C, c.C",
        "meaning or encoding of multiply, or the driver",
        "the driver ",
    ),
    (
        "c.N, c.C, c.K)",
        "c.N + 1, c.C, c.K)",
        "meaning or encoding of multiply, or the driver",
        "writes beside its result",
    ),
    (
        'return call("vanilla_multiply"',
        'raise ValueError(1)\n        return call("vanilla_multiply"',
        "encoding of multiply",
        "ValueError at wrong.py",
    ),
    ('"vanilla_multiply"', '"vanilla_nothing"', "drivers", "has no function 'vanilla_nothing'"),
    ("inlay.accelerators._vanilla_model", "no_such.so", "drivers", "cannot be loaded"),
    ("p.need(lambda m: set", "p.need(lambda m: not set", "pattern conv", "means something else"),
    ("P, Q, R, S = Dim(1,", "P, Q, R, S = Dim(500,", "pattern conv", "none of "),
    (
        "encodes(multiply)",
        "encodes(convolve)",
        "declarations",
        "found no encoding of the instruction 'multiply'",
    ),
]


@pytest.mark.llvm
@pytest.mark.sample(3)
@pytest.mark.parametrize(("old", "new", "section", "message"), WRONG)
def test_what_is_wrong_is_found(tmp_path, old, new, section, message) -> None:
    found = failures(changed(tmp_path, old, new))
    assert found
    assert section in {c.section for c in found}
    (first, *_) = (c for c in found if c.section == section)
    assert message in first.failure
    assert first.at.startswith("wrong.py:"), first
    assert section == "declarations" or "none of" in message or first.program.startswith("fn main(")


CRASHES = "from inlay.accel.api import *\nimport ctypes, time\nclass Crashing(Accelerator):\n    pass\n{0}"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("line", "seconds", "message"),
    [
        ("ctypes.string_at(0)", 60, "it was ended by SIGSEGV"),
        ("time.sleep(100)", 2, "it had not ended after 2 s"),
        ("1 / 0", 60, "running"),
    ],
)
def test_a_file_that_crashes_or_hangs(tmp_path, line, seconds, message) -> None:
    path = tmp_path / "crashing.py"
    path.write_text(CRASHES.format(line), encoding="utf-8")
    (*_, last) = checked(str(path), 1, 0, seconds)
    assert message in last.failure
    assert last.at == ("" if "1 / 0" in line else "crashing.py:5")


@pytest.mark.slow
@pytest.mark.parametrize("line", ["print('here', flush=True)", "ctypes.CDLL(None).puts(b'here')"])
def test_what_a_description_prints_is_no_answer(tmp_path, capfd, line) -> None:
    path = tmp_path / "printing.py"
    path.write_text(CRASHES.format(line), encoding="utf-8")
    assert not [found.failure for found in checked(str(path), 1, 0, 60) if found.failure]
    assert "here" in capfd.readouterr().err
