"""Integers mean one thing: the evaluator, machine code and emitted C agree to the bit.

Programs are drawn (`integer_programs.py`), each runs on many inputs. What fails is shown as a program in
text, with the first elements that differ, and `python -m tests.differential.test_integers SEED` runs it.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from inlay.machine.target import Target
from tests.differential.integer_programs import KINDS, Program, program
from tests.differential.integer_routes import TARGETS, Routes, routes
from tests.system import needs

TOGETHER = 25
"""Programs whose C is one file."""
CODED = 3
"""Runs of a program in machine code for other processors."""
SLOW = 6
"""How many times longer programs of large convolutions take."""


def target_of(seed: int) -> Target:
    """Return what C of the program of a seed is made for."""
    return TARGETS[seed % len(TARGETS)]


def check(p: Program, r: Routes, seed: int, runs: int) -> None:
    """Run a program on drawn inputs."""
    rng = np.random.default_rng(seed)
    for i in range(runs):
        inputs = p.inputs(rng)
        expected, *others = (found := r.run(inputs, coded=i < CODED)).items()
        for name, got in others:
            assert got.dtype == expected[1].dtype, f"{name} gives {got.dtype}\n{p.text()}"
            if not np.array_equal(got, expected[1], equal_nan=got.dtype.kind == "f"):
                raise AssertionError(_shown(p, seed, inputs, found, name))


def _shown(
    p: Program, seed: int, inputs: Sequence[np.ndarray], found: dict[str, np.ndarray], name: str
) -> str:
    want, got = found["evaluator"], found[name]
    at = tuple(np.argwhere(~((want == got) | ((want != want) & (got != got))))[0].tolist())
    values = "\n".join(f"# {n} = {x.ravel()[:24].tolist()}" for n, x in zip(p.params, inputs, strict=True))
    if name in ("C", "machine code"):
        name += f" for {target_of(seed)}"
    return f"seed {seed}: {name} gives {got[at]} at {at}, the evaluator {want[at]}\n{p.text()}{values}"


def sweep(seeds: Sequence[int], runs: int, folder: Path) -> Counter[str]:
    """Check the programs of seeds; return how many cases there were of each kind."""
    seen: Counter[str] = Counter()
    for first in range(0, len(seeds), TOGETHER):
        some = seeds[first : first + TOGETHER]
        programs = [program(s) for s in some]
        place = folder / str(first)
        place.mkdir()
        made = routes([p.text() for p in programs], [target_of(s) for s in some], place)
        for seed, p, r in zip(some, programs, made, strict=True):
            some_runs = runs // SLOW if p.kind == "wide" else runs
            check(p, r, seed, some_runs)
            seen[p.kind] += some_runs
    return seen


@pytest.mark.cc
@pytest.mark.llvm
@needs("gcc")
def test_some_programs_of_integers(tmp_path: Path) -> None:
    sweep(range(1, 13), 12, tmp_path)


@pytest.mark.slow
@pytest.mark.cc
@pytest.mark.llvm
@needs("gcc")
def test_a_hundred_thousand_cases(tmp_path: Path) -> None:
    seen = sweep(range(1000, 1275), 400, tmp_path)
    assert seen.total() >= 100_000
    assert set(seen) == set(KINDS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(sweep([int(s) for s in sys.argv[1:]], 50, Path(made)))
