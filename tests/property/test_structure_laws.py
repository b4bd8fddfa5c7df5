"""Programs over lists and options mean the same to the evaluator and to every machine.

Programs are made as text, statement by statement, from values of a few types; positions are often
outside a list, so that programs also stop alike.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import RunError
from inlay.interp.tensor import evaluate_entry
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.boards import PARTED

ROW = "some k. Tensor[k, 2, f32]"
LIST, OPTION, TENSOR, NEST = f"List[{ROW}]", f"Option[{ROW}]", ROW, f"List[({ROW}, Option[{ROW}])]"


class Maker:
    """Writes one program; `values` are names by type."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lines: list[str] = []
        self.values = {LIST: ["xs", "ys"], OPTION: ["o"], TENSOR: ["x"], NEST: ["zs"]}
        self.count = 0

    def pick(self, kind: str) -> str:
        return self.random.choice(self.values[kind])

    def bind(self, kind: str, value: str) -> str:
        self.count += 1
        name = f"v{self.count}"
        # The size of a tensor stays what it is: only lists and options forget it.
        annotation = "" if kind == TENSOR else f": {kind}"
        self.lines.append(f"let {name}{annotation} = {value};")
        return name

    def index(self) -> str:
        """Return a position: a number, mostly near an end, or one from the length of a list."""
        if self.random.random() < 0.7:
            return f"int({self.random.choice([0, 0, 0, 0, 1, -1, -1, 2, -2, 5])})"
        self.count += 1
        name = f"n{self.count}"
        length = f"@list.length({self.pick(LIST)})"
        self.lines.append(f"let {name}: some int {name}. int[{name}] = {length};")
        return f"int({name} - {self.random.choice([1, 1, 1, 2])})"

    def tensor(self) -> str:
        match self.random.randrange(5):
            case 0:
                return f"neg({self.pick(TENSOR)})"
            case 1:
                return f"concat{{axis=0}}({self.pick(TENSOR)}, {self.pick(TENSOR)})"
            case 2:
                return f"@list.at({self.pick(LIST)}, {self.index()})"
            case 3:
                return f"@option.get({self.pick(OPTION)}, {self.pick(TENSOR)})"
            case _:
                join = f"fn(a: {ROW}, b: {ROW}) -> {ROW} {{ concat{{axis=0}}(a, b) }}"
                return f"@list.combine({self.pick(LIST)}, {join})"

    def list(self) -> str:
        xs = self.pick(LIST)
        match self.random.randrange(8):
            case 0:
                return f"@list.insert({xs}, {self.index()}, {self.pick(TENSOR)})"
            case 1:
                return f"@list.erase({xs}, {self.index()})"
            case 2:
                return f"@list.append({xs}, {self.pick(LIST)})"
            case 3:
                return f"@list.reverse({xs})"
            case 4:
                double = f"fn(a: {ROW}) -> {ROW} {{ add(a, a) }}"
                return f"@list.map({double}, {xs})"
            case 5:
                return f"Cons[{ROW}]({self.pick(TENSOR)}, {xs})"
            case 6:
                return f"if (int_less(@list.length({xs}), int(2))) {{ {self.pick(LIST)} }} else {{ {xs} }}"
            case _:
                return f"@list.map(fn(p: ({ROW}, {OPTION})) -> {ROW} {{ p.0 }}, {self.pick(NEST)})"

    def option(self) -> str:
        match self.random.randrange(4):
            case 0:
                return f"Some[{ROW}]({self.pick(TENSOR)})"
            case 1:
                return f"None[{ROW}]()"
            case 2:
                return f"@option.map(fn(a: {ROW}) -> {ROW} {{ neg(a) }}, {self.pick(OPTION)})"
            case _:
                return f"@list.nth({self.pick(LIST)}, int({self.random.randrange(3)}))"

    def nest(self) -> str:
        pair = f"({ROW}, {OPTION})"
        zs = self.pick(NEST)
        if self.random.random() < 0.5:
            return f"Cons[{pair}](({self.pick(TENSOR)}, {self.pick(OPTION)}), {zs})"
        return f"match {zs} {{ Nil() => {self.pick(NEST)}, Cons(_, rest) => rest }}"

    def loop(self) -> None:
        """Hand a list through a recursive function that takes from one and gives to another."""
        self.count += 1
        name = f"go{self.count}"
        self.lines.append(
            f"let {name} = fn(from: {LIST}, to: {LIST}) -> {LIST} {{ match from {{ Nil() => to, "
            f"Cons(h, t) => {name}(t, Cons[{ROW}](add(h, h), to)) }} }};"
        )
        made = self.bind(LIST, f"{name}({self.pick(LIST)}, {self.pick(LIST)})")
        self.values[LIST].append(made)

    def text(self) -> str:
        makers = {TENSOR: self.tensor, LIST: self.list, OPTION: self.option, NEST: self.nest}
        for _ in range(self.random.randrange(3, 10)):
            if self.random.random() < 0.1:
                self.loop()
                continue
            kind = self.random.choice([TENSOR, LIST, LIST, OPTION, NEST])
            self.values[kind].append(self.bind(kind, makers[kind]()))
        last = {kind: names[-1] for kind, names in self.values.items()}
        body = "\n  ".join(self.lines)
        kinds = [LIST, TENSOR, OPTION, NEST, LIST]
        results = ", ".join([*(last[kind] for kind in kinds[:-1]), last[LIST]])
        return (
            f"fn main(x: {ROW}, xs: {LIST}, ys: List[Tensor[3, 2, f32]], o: {OPTION}, zs: {NEST})\n"
            f"    -> ({', '.join(kinds)}) {{\n  {body}\n  ({results})\n}}\n"
            'entry main("x", "xs", "ys", "o", "zs") -> ("a", "b", "c", "d", "e");\n'
        )

    def inputs(self) -> dict[str, Any]:
        def row(n: int | None = None) -> np.ndarray:
            size = self.random.randrange(4) if n is None else n
            return np.array(
                [[self.random.randrange(-4, 5) for _ in range(2)] for _ in range(size)], np.float32
            ).reshape(size, 2)

        def option() -> np.ndarray | None:
            return row() if self.random.random() < 0.7 else None

        return {
            "x": row(),
            "xs": [row() for _ in range(self.random.randrange(5))],
            "ys": [row(3) for _ in range(self.random.randrange(3))],
            "o": option(),
            "zs": [(row(), option()) for _ in range(self.random.randrange(3))],
        }


def shown(run: Any, inputs: dict[str, Any]) -> tuple[str, Any]:
    """Return what a program gives, or which checks stop it."""
    try:
        return "", list(run(inputs).values())
    except RunError as caught:
        return caught.ids[0], None


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a is b


def check(seed: int, tmp_path: Any) -> bool:
    """Run a program everywhere, twice; return whether it reached its end."""
    maker = Maker(seed)
    text = maker.text()
    path = tmp_path / f"{seed}.inl"
    path.write_text(text)
    module = inlay.load(path)
    program = inlay.compile(module, board=PARTED).program
    engines = [
        executable_of(program, engine="python"),
        executable_of(program, settings=Settings(mode="sequential")),
        executable_of(program, settings=Settings(threads=2, mode="parallel")),
        executable_of(program, settings=Settings(mode="replay", seed=seed)),
    ]
    ended = False
    for _ in range(2):
        inputs = maker.inputs()
        problem, want = shown(lambda i: evaluate_entry(module, i), inputs)
        for engine in engines:
            found, got = shown(engine.run, inputs)
            assert found == problem, f"{found!r} for {problem!r}\n{text}"
            assert same(got, want), f"{got}\nfor\n{want}\n{text}"
            assert engine.live_objects() == 0
        ended = ended or not problem
    return ended


@pytest.mark.llvm
def test_programs_over_lists_and_options(tmp_path):
    ended = [check(seed, tmp_path) for seed in range(12)]
    assert sum(ended) >= 4


@pytest.mark.slow
@pytest.mark.llvm
def test_more_programs_over_lists_and_options(tmp_path):
    ended = [check(seed, tmp_path) for seed in range(12, 200)]
    assert sum(ended) >= 60


@pytest.mark.llvm
def test_ints_that_parameters_and_patterns_open_may_be_negative(tmp_path):
    path = tmp_path / "negative.inl"
    path.write_text("""
data Box { Box(int) }

fn down(i: some int k. int[k], n: some int m. int[m]) -> Tensor[i64] {
  if (int_less(int(k), int(0))) { to_tensor(int(m)) } else { @down(int(k - 1), int(m + 1)) }
}

fn main(x: Tensor[i64]) -> (Tensor[i64], Tensor[i64]) {
  let c = to_control(x);
  let boxed = if (int_less(c, int(5))) { Box(c) } else { Box(int(0)) };
  let sign = match boxed { Box(i) => if (int_less(i, int(0))) { i64(-1) } else { i64(1) } };
  (@down(c, int(10)), sign)
}
""")
    module = inlay.load(path)
    executable = inlay.compile(module)
    assert [int(v) for v in executable(np.array(-3))] == [10, -1]
    assert [int(v) for v in executable(np.array(3))] == [14, 1]
