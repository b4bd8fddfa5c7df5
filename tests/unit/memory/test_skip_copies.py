"""Copies that are skipped: parts that are made in a whole, and read where they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation, explain
from inlay.interp.tensor import evaluate
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.session import executable_of
from tests.examples import examples
from tests.unit.memory.test_shared_bytes import RUNS

pytestmark = pytest.mark.llvm

WIDE = 16


def program(lines: str, result: str, dims: str = "", rows: str = "3", outputs: int = 1) -> str:
    names = ", ".join(f'"y{i}"' for i in range(outputs))
    params = f"x: Tensor[{rows}, {WIDE}, f32], w: Tensor[{WIDE}, {WIDE}, f32]"
    return f'fn main{dims}({params}) {{\n{lines}\n  {result}\n}}\nentry main("x", "w") -> ({names});\n'


def compiled(text: str, **options):
    return compilation(infer_types(parse_module(text, table())), cache="none", threads=1, **options)


def skipped(text: str) -> list[str]:
    """Return what is said of copies that are skipped."""
    return [r.message for r in compiled(text).report.remarks if r.pass_name == "skip-copies"]


JOINED = """\
  let a = matmul(x, w);
  let b = matmul(a, w);
  let y = concat{axis=0}(a, b);
  let z = matmul(y, w);"""


def test_parts_are_made_in_the_whole():
    text = program(JOINED, "z")
    assert skipped(text) == ["main: a, b in y.s, so nothing is copied"]
    (account,) = explain(parse_module(text, table()), view="memory", threads=1).accounts
    assert account.block == 6 * WIDE * 4  # y alone; z is the result


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        (JOINED.replace("concat{axis=0}(a, b)", "concat{axis=0}(a, a)"), "z"),  # one tensor twice
        (JOINED.replace("concat{axis=0}(a, b)", "concat{axis=1}(a, b)").replace("z = matmul(y, w)", "z = tanh(y)"), "z"),
        (JOINED.replace("concat{axis=0}(a, b)", "concat{axis=0}(x, b)"), "z"),  # the caller has x
        (JOINED, "(a, z)"),  # the result would be in the middle of something else
    ],
)  # fmt: skip
def test_what_is_copied(lines: str, result: str):
    assert skipped(program(lines, result, outputs=1 + result.count(","))) == []


def test_what_an_update_takes_over_is_copied():
    lines = JOINED.replace("let z", "let t = set_row(y, int(0), r);\n  let z").replace("matmul(y", "matmul(t")
    assert skipped(program(f"  let r = reshape(slice{{axes=[0]}}(x, shape(0), shape(1), shape(1)), shape({WIDE}));\n{lines}", "z")) == []  # fmt: skip


def test_a_part_is_read_where_it_is():
    lines = """\
  let a = matmul(x, w);
  let b = slice{axes=[0]}(a, shape(1), shape(3), shape(1));
  let z = matmul(b, w);"""
    assert skipped(program(lines, "z")) == ["main: b in a.s, so nothing is copied"]


def test_no_copy_is_skipped_for_more_memory():
    """The first part would hold all bytes of the whole through a kernel that needs many."""
    lines = """\
  let a = matmul(x, w);
  let m = matmul(broadcast_to(reshape(a, shape(1, 3, 16)), shape(40, 3, 16)), w);
  let b = reduce_sum{axes=[0]}(matmul(m, w));
  let c = matmul(b, w);
  let y = concat{axis=0}(a, b, c);
  let z = matmul(y, w);"""
    assert skipped(program(lines, "z")) == []


@st.composite
def programs(draw) -> str:
    """Return a program that joins and cuts matrices by rows, of known or unknown numbers."""
    is_open = draw(st.booleans())
    values: list[tuple[str, int]] = [("x", 3)]  # rows; where they are unknown, multiples of n
    lines = list[str]()
    for k in range(draw(st.integers(4, 9))):
        name, rows = draw(st.sampled_from(values[-3:]))
        kind = draw(st.sampled_from(("product", "product", "join", "join", "cut", "add", "view")))
        if kind == "join":
            others = [draw(st.sampled_from(values)) for _ in range(draw(st.integers(1, 2)))]
            text = f"concat{{axis=0}}({', '.join((name, *(n for n, _ in others)))})"
            rows += sum(r for _, r in others)
        elif kind == "cut" and not is_open:
            begin = draw(st.integers(0, rows - 1))
            end = draw(st.integers(begin + 1, rows))
            text = f"slice{{axes=[0]}}({name}, shape({begin}), shape({end}), shape(1))"
            rows = end - begin
        elif kind == "add":
            alike = [n for n, r in values if r == rows]
            text = f"add({name}, {draw(st.sampled_from(alike))})"
        elif kind == "view" and not is_open:
            text = f"reshape(reshape({name}, shape({rows * 2}, 8)), shape({rows}, {WIDE}))"
        else:
            text = f"clip{{low=-4.0, high=4.0}}(matmul({name}, w))"
        lines.append(f"  let v{k} = {text};")
        values.append((f"v{k}", rows))
    outputs = draw(st.integers(1, 2))
    results = [n for n, _ in values[-outputs:]]
    result = results[0] if outputs == 1 else f"({', '.join(results)})"
    dims, n = ("<n>", "n") if is_open else ("", "3")
    return program("\n".join(lines), result, dims, n, outputs)


@settings(max_examples=examples(3))
@given(programs(), st.integers(0, 99))
def test_skipping_copies_changes_nothing(text: str, seed: int):
    random = np.random.default_rng(seed)
    arrays = [random.integers(-2, 3, s).astype(np.float32) for s in ((3, WIDE), (WIDE, WIDE))]
    module = infer_types(parse_module(text, table()))
    found = evaluate(module, arrays)
    expected = [np.asarray(v) for v in (found if isinstance(found, tuple) else (found,))]
    for plan in ("serial", "parallel"):
        made = compilation(module, plan=plan, cache="none", threads=2).program
        for run in RUNS:
            exe = executable_of(made, settings=run)
            exe(*(np.full(a.shape, np.nan, np.float32) for a in arrays))
            for _ in range(2):
                values = exe(*arrays)
                values = values if isinstance(values, tuple) else (values,)
                for value, wanted in zip(values, expected, strict=True):
                    np.testing.assert_array_equal(value, wanted, err_msg=f"{plan}, {run.mode}\n{text}")
