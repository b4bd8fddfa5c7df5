"""Programs over strings, compiled: both machines and the evaluator agree, files keep what they need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError, RunError
from inlay.interp.tensor import evaluate, evaluate_entry
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.pipeline.externs import with_externs
from inlay.runtime.session import load_executable

pytestmark = pytest.mark.llvm

MOVES = """
data Option<'a> { None, Some('a) }
data List<'a> { Nil, Cons('a, List['a]) }

fn main<n>(x: Tensor[n, string], flag: Tensor[bool], count: Tensor[i64])
    -> (Tensor[n, string], Tensor[n, bool], some k. Tensor[k, string], List[Tensor[n, string]],
        Option[Tensor[n, string]], Tensor[n, i64]) {
  let c: some int c. int[c] = to_control(count);
  let seen = equal(x, string[1]("a"));
  let chosen = if (to_control(flag)) { select(seen, string("yes"), x) }
               else { string_concat(x, string("\\u00df!")) };
  let loop = fn<i, k>(i: int[i], rows: Tensor[k, string]) -> some j. Tensor[j, string] {
    if (int_less(int(i), int(c))) {
      loop(int(i + 1), concat{axis=0}(rows, string_upper(x)))
    } else { rows }
  };
  let list = Cons(chosen, Cons(x, Nil[Tensor[n, string]]()));
  (chosen, seen, loop(int(0), string[2]("first", "")), list,
   match list { Nil() => None[Tensor[n, string]](), Cons(first, _) => Some(string_lower(first)) },
   string_order(x))
}

entry main("x", "flag", "count") -> ("y", "seen", "rows", "list", "last", "order");
"""


def module(text: str):
    return parse_module(text, table())


def strings(*items: str) -> np.ndarray:
    made = np.empty(len(items), object)
    made[:] = items
    return made


def plain(value: Any) -> Any:
    match value:
        case np.ndarray():
            return (value.dtype, value.shape, value.tolist())
        case tuple() | list():
            return [plain(v) for v in value]
        case dict():
            return {k: plain(v) for k, v in value.items()}
        case _:
            return value


def test_moved_compared_carried_and_changed(tmp_path: Path) -> None:
    program = module(MOVES)
    executable = inlay.compile(program)
    executable.save(tmp_path / "m.inlay")
    machines = [
        executable,
        load_executable(tmp_path / "m.inlay"),
        load_executable(tmp_path / "m.inlay", engine="python"),
        load_executable(tmp_path / "m.inlay", threads=2, mode="parallel"),
    ]
    for flag, count in ((True, 2), (False, 0)):
        x = strings("b", "a", "", "b\0\u00e4", "a")
        inputs = {"x": x, "flag": np.array(flag), "count": np.array(count)}
        expected = evaluate_entry(program, inputs)
        assert expected["y"].tolist()[1] == ("yes" if flag else "a\u00df!")
        assert expected["rows"].tolist()[:2] == ["first", ""]
        for machine in machines:
            assert plain(machine.run(inputs)) == plain(expected)
            wide = {**inputs, "x": x.astype(np.str_)}
            assert plain(machine.run(wide)) == plain(expected)


def test_thousands_of_calls_leave_nothing_behind() -> None:
    executable = inlay.compile(
        module(
            "fn main<n>(x: Tensor[n, string]) -> Tensor[n, string] { string_concat(x, x) }\n"
            'entry main("x") -> ("y");'
        )
    )
    own = executable._strings
    assert own is not None
    before = len(own)
    for i in range(3_000):
        y = executable(strings(f"call {i}"))
    assert y.tolist() == ["call 2999call 2999"]
    assert len(own) == before
    assert executable.live_objects() == 0


def test_a_program_without_strings_has_no_table() -> None:
    executable = inlay.compile(module("fn main(x: Tensor[4, f32]) -> Tensor[4, f32] { neg(x) }"))
    assert executable._strings is None


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (np.array([1.0]), "found float64"),
        (strings("a", 3), "found an object of type int"),  # type: ignore[arg-type]
        (np.array([b"\xff"]), "found bytes that are not UTF-8"),
    ],
)
def test_what_is_no_array_of_strings(given: np.ndarray, found: str) -> None:
    executable = inlay.compile(
        module("fn main<n>(x: Tensor[n, string]) -> Tensor[n, string] { string_lower(x) }")
    )
    with pytest.raises(RunError, match=found) as failure:
        executable.run({"x": given})
    assert failure.value.ids == ("input.dtype",)
    assert executable(np.array([b"\xc3\x84"])).tolist() == ["\u00e4"]


def test_text_that_is_no_number_stops_the_program() -> None:
    text = "fn main<n>(x: Tensor[n, string]) -> Tensor[n, i64] { string_to_int(x) }"
    executable = inlay.compile(module(text))
    assert executable(strings("-5", "18446744073709551615")).tolist() == [-5, -1]
    for wrong in ("1.5", "", "1_0", "0x1", "9" * 30):
        with pytest.raises(RunError) as failure:
            executable(strings(wrong))
        assert failure.value.ids == ("run.bad-text",)


def test_order_and_arithmetic_are_refused_with_what_there_is() -> None:
    for name in ("less", "add", "maximum"):
        with pytest.raises(CompileError) as failure:
            module(f"fn main(x: Tensor[2, string]) {{ {name}(x, x) }}")
        (found,) = failure.value.diagnostics
        assert found.id == "type.dtype-mismatch"
        assert "string_order" in found.hint


def test_strings_stay_on_the_host() -> None:
    text = "fn main(x: Tensor[2, string]) -> Tensor[2, string] { let y @cl0! = string_lower(x); y }"
    with pytest.raises(CompileError, match="strings are on"):
        inlay.compile(module(text), board="opencl")


def test_python_code_of_the_user_sees_strings() -> None:
    reverse = inlay.extern(
        "reverse",
        "(x: Tensor[n, string]) -> Tensor[n, string]",
        python=lambda x: np.array([t[::-1] for t in x], object),
    )
    text = "fn main<n>(x: Tensor[n, string]) -> Tensor[n, string] { string_upper(reverse(x)) }"
    program = parse_module(text, with_externs(table(), [reverse]))
    x = strings("abc", "")
    assert inlay.compile(program)(x).tolist() == ["CBA", ""]
    assert evaluate(program, [x]).tolist() == ["CBA", ""]


def test_strings_that_only_code_of_the_user_sees() -> None:
    named = inlay.extern(
        "named",
        "(x: Tensor[n, i64]) -> Tensor[n, string]",
        python=lambda x: np.array([f"item {i}" for i in x], object),
    )
    length = inlay.extern(
        "length",
        "(x: Tensor[n, string]) -> Tensor[n, i64]",
        python=lambda x: np.array([len(t) for t in x], np.int64),
    )
    text = "fn main<n>(x: Tensor[n, i64]) -> Tensor[n, i64] { length(named(x)) }"
    program = parse_module(text, with_externs(table(), [named, length]))
    executable = inlay.compile(program)
    own = executable._strings
    assert own is not None
    before = len(own)
    assert executable(np.array([7, 10])).tolist() == [6, 7]
    assert len(own) == before
