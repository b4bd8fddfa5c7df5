"""Matches are split where a tree of their decisions would outgrow them."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.interp.tensor import evaluate
from inlay.interp.values import Data
from inlay.ir.expr import Match
from inlay.ir.parser import parse_module
from inlay.ir.verify import check
from inlay.ir.walk import postorder
from inlay.ops.table import table
from inlay.runtime.session import executable_of
from inlay.transforms import split_matches
from tests.unit.transforms.programs import run


def program(rows: int, fields: int, *, default: bool, seed: int = 0):
    """A match of rows that test three fields each."""
    random = Random(seed)
    arms = []
    for i in range(rows):
        patterns = ["_"] * fields
        first, *more = random.sample(range(fields), 3)
        patterns[first] = random.choice(("Z()", "O()"))
        for j in more:
            patterns[j] = random.choice(("Z()", "O()", "Z()", "O()", "v"))
        arms.append((patterns, i))
    # What covers the rest is one arm, or two of which none does alone.
    last = [["_"] * fields] if default else [[p, *["_"] * (fields - 1)] for p in ("O()", "Z()")]
    arms += [(p, rows + i) for i, p in enumerate(last)]
    for patterns, _ in arms:
        for j, p in enumerate(patterns):
            patterns[j] = f"v{j}" if p == "v" else p
    bits = ", ".join(f"b{j}: Tensor[i64]" for j in range(fields))
    return infer_types(
        parse_module(
            f"""
        data Bit {{ Z, O }}
        data Word {{ W({", ".join(["Bit"] * fields)}) }}

        fn pick(t: Word, x: Tensor[2, i64]) -> Tensor[2, i64] {{
          match t {{ {", ".join(f"W({', '.join(p)}) => add(x, i64({i}))" for p, i in arms)} }}
        }}

        fn bit(b: Tensor[i64]) -> Bit {{
          let k: some int k. int[k] = to_control(b);
          if (int_less(int(k), int(1))) {{ Z() }} else {{ O() }}
        }}

        fn main({bits}, x: Tensor[2, i64]) -> Tensor[2, i64] {{
          @pick(W({", ".join(f"@bit(b{j})" for j in range(fields))}), x)
        }}

        entry main;
    """,
            table(),
        )
    )


def matches(module):
    return sum(isinstance(e, Match) for f in module.functions.values() for e in postorder(f))


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a part of every row."""
    monkeypatch.setattr(split_matches, "_SMALL", 0)
    monkeypatch.setattr(split_matches, "_GROWTH", 0)


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_first_row_that_matches_is_taken(default, seed):
    module = program(9, 4, default=default, seed=seed)
    before = run("to-anf", module)
    after = split_matches.PASS.run(before, None)
    check(after)
    assert matches(after) > matches(before)
    x = np.array([0, 100])
    for bits in product((0, 1), repeat=4):
        word = Data("Word", "W", 0, tuple(Data("Bit", "ZO"[b], b, ()) for b in bits))
        found = [
            evaluate(m.with_functions({**m.functions, "main": m.functions["pick"]}), [word, x])
            for m in (before, after)
        ]
        np.testing.assert_array_equal(*found)


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("default", [True, False])
def test_compiled(default):
    module = program(6, 3, default=default)
    executable = executable_of(compilation(module, cache="none", verify=True).program, threads=1)
    x = np.array([0, 100])
    for bits in product((0, 1), repeat=3):
        args = [*(np.array(b) for b in bits), x]
        np.testing.assert_array_equal(executable(*args), evaluate(module, args))


def test_code_is_as_long_as_the_rows():
    lengths = []
    for rows in (40, 80):
        found = run("to-anf", program(rows, 16, default=True))
        found = split_matches.PASS.run(found, None)
        lengths.append(sum(1 for f in found.functions.values() for _ in postorder(f)))
        assert matches(found) > rows / 20
    assert lengths[1] < 2.5 * lengths[0]


def test_what_fits_stays_one_match():
    module = run("to-anf", program(5, 4, default=True))
    assert split_matches.PASS.run(module, None) is module
