"""The prelude: well formed, typed, and what its functions compute."""

from __future__ import annotations

import pytest

from inlay.interp.tensor import evaluate
from inlay.interp.values import Data
from inlay.ir.equal import modules_equal
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.prelude import prelude, with_prelude
from inlay.ir.printer import print_module
from inlay.ir.verify import verify
from tests.unit.ir.ops import TABLE, meaning


def numbers(xs: Data) -> list[int]:
    found = []
    while xs.name == "Cons":
        found.append(xs.fields[0])
        xs = xs.fields[1]
    return found


def run(body: str) -> object:
    m = with_prelude(parse_module("fn main() { " + body + " }", TABLE, known=prelude()))
    assert verify(m) == ()
    return evaluate(m, (), meaning)


def test_it_is_well_formed_and_round_trips():
    source = prelude()
    assert verify(Module(source.functions, source.adts, entry="list.map")) == ()
    again = parse_module(print_module(source), TABLE)
    assert modules_equal(Module(again.functions, again.adts), Module(source.functions, source.adts))


LIST = "let xs = Cons[int](int(3), Cons[int](int(1), Cons[int](int(2), Nil[int]())));"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("@list.map(fn(x: some int x. int[x]) -> int { int(x + 1) }, xs)", [4, 2, 3]),
        ("@list.reverse(xs)", [2, 1, 3]),
        ("@list.append(xs, xs)", [3, 1, 2, 3, 1, 2]),
        ("@list.filter(fn(x: some int x. int[x]) -> bool { int_less(int(1), int(x)) }, xs)", [3, 2]),
    ],
)
def test_lists(body, expected):
    assert numbers(run(LIST + body)) == expected


def test_folds_and_lookups():
    less = "fn(a: some int a. int[a], b: some int b. int[b]) -> int { int(10*a + b) }"
    more = "fn(a: some int a. int[a], b: some int b. int[b]) -> int { int(a + 10*b) }"
    assert run(f"{LIST} @list.fold_left({less}, int(0), xs)") == 312
    assert run(f"{LIST} @list.fold_right({more}, xs, int(0))") == 213
    assert run(f"{LIST} @list.length(xs)") == 3
    assert run(f"{LIST} @option.get(@list.nth(xs, int(1)), int(7))") == 1
    assert run(f"{LIST} @option.get(@list.nth(xs, int(5)), int(7))") == 7
    pairs = run(f"{LIST} @list.zip(xs, @list.reverse(xs))")
    assert numbers(pairs) == [(3, 2), (1, 1), (2, 3)]


def test_trees():
    tree = """
    let leaf = Rose[int](int(2), Nil[Tree[int]]());
    let t = Rose[int](int(1), Cons(leaf, Cons(Rose[int](int(5), Nil[Tree[int]]()), Nil[Tree[int]]())));
    let add = fn(a: some int a. int[a], b: some int b. int[b]) -> int { int(a + b) };
    let sum = fn(x: int, below: List[int]) -> int { @list.fold_left(add, x, below) };
    @tree.fold(sum, @tree.map(fn(x: some int x. int[x]) -> int { int(10*x) }, t))
    """
    assert run(tree) == 80


def test_only_what_is_used_is_added():
    m = with_prelude(parse_module("fn main() { @list.length(Nil[int]()) }", TABLE, known=prelude()))
    assert set(m.functions) == {"main", "list.length", "list.count"}
