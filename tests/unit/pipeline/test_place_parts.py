"""Parts of concatenations made where they are joined, and slices read where they are: what is done, and that
programs compute the same in all modes under the race detector."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.analysis.blocks import spine
from inlay.analysis.infer_types import infer_types
from inlay.api import compilation, explain
from inlay.interp.tensor import evaluate
from inlay.ir.expr import Call, GlobalVar
from inlay.ir.kernel import Access
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.session import executable_of
from tests.examples import examples
from tests.unit.memory.test_shared_bytes import RUNS

pytestmark = pytest.mark.llvm

WIDE = 8
ROWS = 4


def program(
    lines: str, result: str, dims: str = "", rows: str = str(ROWS), dtype: str = "f32", outputs: int = 1
) -> str:
    """Return a program over rows of 8 numbers; `w` is a square matrix, `v` doubles the numbers of a row."""
    sizes = {"x": f"{rows}, 8", "w": "8, 8", "v": "8, 16", "u": "16, 8", "t": "24, 8"}
    params = ", ".join(f"{n}: Tensor[{s}, {dtype}]" for n, s in sizes.items())
    names = ", ".join(f'"{n}"' for n in sizes)
    results = ", ".join(f'"y{i}"' for i in range(outputs))
    return f"fn main{dims}({params}) {{\n{lines}\n  {result}\n}}\nentry main({names}) -> ({results});\n"


def compiled(text: str, **options):
    return compilation(infer_types(parse_module(text, table())), cache="none", threads=1, **options)


def said(text: str) -> list[str]:
    """Return what is said of parts."""
    return [r.message for r in compiled(text).report.remarks if r.pass_name == "place-parts"]


def check(text: str, rows: int = ROWS, plans: tuple[str, ...] = ("serial",), seed: int = 0) -> None:
    """Compare a program with the evaluator; what is read before it is written is NaN or the largest number."""
    module = infer_types(parse_module(text, table()))
    random, arrays, spoiled = np.random.default_rng(seed), [], []
    for p in module.functions["main"].params:
        shape = tuple(rows if d.value is None else d.value for d in p.type.shape)
        arrays.append(random.integers(-2, 3, shape).astype(p.type.dtype.numpy))
        spoiled.append(np.full(shape, 101 if p.type.dtype.name.startswith("i") else np.nan, arrays[-1].dtype))
    expected = evaluate(module, arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for plan in plans:
        made = compilation(module, plan=plan, cache="none", threads=2).program
        for run in RUNS:
            exe = executable_of(made, settings=run)
            exe(*spoiled)
            for _ in range(2):
                found = exe(*arrays)
                found = found if isinstance(found, tuple) else (found,)
                for a, b in zip(found, expected, strict=True):
                    np.testing.assert_array_equal(a, b, err_msg=f"{plan}, {run.mode}\n{text}")


def test_a_concatenation_of_concatenations_along_another_axis():
    check("""fn main(x: Tensor[2, 3, 4, f32]) -> Tensor[2, 6, 8, f32] {
      let p = concat{axis=1}(neg(x), abs(x));
      let q = concat{axis=1}(relu(x), mul(x, x));
      concat{axis=2}(p, q)
    }
    entry main("x") -> ("y");""")


JOINED = """\
  let a = matmul(x, w);
  let b = matmul(a, w);
  let y = concat{axis=1}(a, b);
  let z = matmul(y, u);"""


def test_parts_are_made_in_the_whole_and_read_there():
    text = program(JOINED, "z")
    module = compiled(text).module
    kernels = {n: [(p.access, p.may_alias) for p in k.ports] for n, k in module.kernels.items()}
    read, write = (Access.READ, None), (Access.WRITE, None)
    assert kernels == {
        "matmul_part": [read, read, (Access.FILL, None)],
        "matmul_part_1": [read, read, read, (Access.FILL, 2)],
        "matmul_1": [read, read, write],
    }
    lets, _ = spine(module.functions["main"].body)
    calls = [
        [getattr(a, "name", "") for a in x.value.args[:-1]]
        for x in lets
        if isinstance(x.value, Call) and isinstance(x.value.args[0], GlobalVar)
    ]
    assert calls == [
        ["matmul_part", "x", "w", "y"],
        ["matmul_part_1", "y", "w", "y", "y"],
        ["matmul_1", "y", "u", "z"],
    ]
    assert said(text) == ["main: a, b in y, so they are not copied"]
    (account,) = explain(parse_module(text, table()), view="memory", threads=1).accounts
    assert account.block == ROWS * 16 * 4  # y alone; z is the result
    check(text)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            JOINED.replace("(a, b)", "(x, b)"),
            "main: b in y, so they are not copied; x is",
        ),  # the caller has x
        (JOINED.replace("(a, b)", "(a, a)"), "main: a in y, so they are not copied; a is"),  # a part twice
        (
            JOINED.replace("axis=1}(a, b)", "axis=1}(a, b, x)").replace("u)", "t)"),
            "main: a, b in y, so they are not copied; x is",
        ),
        (
            JOINED.replace(
                "y = concat{axis=1}(a, b)",
                "y0 = concat{axis=1}(a, b); let y = concat{axis=1}(y0, matmul(x, w))",
            ).replace("matmul(y, u)", "add(matmul(y, t), matmul(y0, u))"),
            None,  # one in another, both read
        ),
    ],
)
def test_what_is_not_made_there_is_copied(lines: str, message: str | None):
    text = program(lines, "z")
    found = said(text)
    assert len(found) == 1
    assert message in (None, found[0])
    check(text)


@pytest.mark.parametrize(
    ("lines", "result", "outputs"),
    [
        (JOINED, "(a, b, z)", 3),  # both are results
        (JOINED.replace("axis=1", "axis=0").replace("matmul(y, u)", "matmul(y, w)"), "z", 1),  # in one piece
        (JOINED.replace("(a, b)", "(x, x)"), "z", 1),  # nothing is made
    ],
)
def test_what_has_to_stay_as_it_is(lines: str, result: str, outputs: int):
    text = program(lines, result, outputs=outputs)
    assert said(text) == []
    check(text)


def test_slices_are_read_where_they_are():
    text = program(
        """\
  let a = matmul(x, v);
  let b = slice{axes=[1]}(a, shape(8), shape(16), shape(1));
  let c = slice{axes=[1]}(a, shape(0), shape(8), shape(1));
  let z = add(matmul(b, w), matmul(c, w));""",
        "z",
    )
    assert sorted(said(text)) == [
        "main: b is read in a, so it is not copied",
        "main: c is read in a, so it is not copied",
    ]
    check(text)


def test_a_whole_that_would_cost_bytes_is_made_of_copies():
    """The first part is made long before the second one, and more is alive between the two than at the end."""
    text = program(
        """\
  let a = matmul(x, w);
  let p = matmul(a, v);
  let q = concat{axis=0}(p, p, p, p);
  let r = matmul(q, u);
  let s = reshape(r, shape(16, 8));
  let b = slice{axes=[0]}(neg(s), shape(0), shape(4), shape(1));
  let y = concat{axis=1}(a, neg(b));
  let z = matmul(y, u);""",
        "z",
    )
    without = explain(
        parse_module(text.replace("axis=1}(a, neg(b))", "axis=1}(x, neg(b))"), table()), view="memory"
    )
    assert without.accounts
    assert all(": a" not in m for m in said(text))
    check(text)


def test_a_whole_that_a_loop_carries():
    """Products are large, or the kernels of a turn would be one."""
    text = program(
        """\
  let loop = fn<i>(i: int[i], h: Tensor[256, 256, f32]) {
    let a = clip{low=-4.0, high=4.0}(matmul(h, p));
    let b = clip{low=-4.0, high=4.0}(matmul(h, q));
    let y = concat{axis=1}(b, a);
    if (int_less(int(i), int(2))) { loop(int(i + 1), y) } else { y }
  };
  let z = loop(int(0), matmul(x, v));""",
        "z",
    )
    for old, new in (("x: Tensor[4, 8", "x: Tensor[256, 8"), ("v: Tensor[8, 16", "v: Tensor[8, 256")):
        text = text.replace(old, new)
    text = text.replace("u: Tensor[16, 8,", "p: Tensor[256, 128,").replace(
        "t: Tensor[24, 8,", "q: Tensor[256, 128,"
    )
    text = text.replace('"u", "t"', '"p", "q"')
    assert said(text) == ["main: a, b in y, so they are not copied"]
    check(text, plans=("parallel",))


@st.composite
def programs(draw) -> str:
    """Return a program of products, sums, concatenations and slices of rows of 8, 16 or 24 numbers."""
    symbolic, dtype = draw(st.booleans()), draw(st.sampled_from(("f32", "f32", "i32")))
    values, lines = [("x", WIDE)], list[str]()
    for k in range(draw(st.integers(3, 8))):
        name, size = draw(st.sampled_from(values[-4:]))
        other, more = draw(st.sampled_from(values[-4:]))
        kind = draw(st.sampled_from(("product", "wide", "neg", "join", "join", "dense", "cut", "add")))
        if kind == "product" or (kind == "wide" and size != 8):
            text, size = f"matmul({name}, {({8: 'w', 16: 'u', 24: 't'})[size]})", 8
        elif kind == "wide":
            text, size = f"matmul({name}, v)", 16
        elif kind == "join" and size + more <= 24:
            text, size = f"concat{{axis=1}}({name}, {other})", size + more
        elif kind == "dense" and size <= 16:
            lines.append(f"  let d{k} = matmul({name}, {({8: 'w', 16: 'u'})[size]});")
            text, size = f"concat{{axis=1}}({name}, d{k})", size + 8
        elif kind == "cut" and size > 8:
            first = draw(st.sampled_from(range(0, size - 7, 8)))
            text, size = f"slice{{axes=[1]}}({name}, shape({first}), shape({first + 8}), shape(1))", 8
        elif kind == "add" and size == more:
            text = f"add({name}, {other})"
        else:
            text = f"neg({name})"
        small = dtype == "f32" and kind in ("product", "wide", "add")
        lines.append(f"  let v{k} = {f'clip{{low=-4.0, high=4.0}}({text})' if small else text};")
        values.append((f"v{k}", size))
    also = draw(st.sampled_from(values))[0]
    dims, rows = ("<n>", "n") if symbolic else ("", str(ROWS))
    return program("\n".join(lines), f"({values[-1][0]}, neg({also}))", dims, rows, dtype, outputs=2)


@settings(max_examples=examples(3))
@given(programs(), st.integers(0, 99))
def test_parts_change_nothing(text: str, seed: int):
    check(text, draw_rows(seed), ("serial", "parallel"), seed)


def draw_rows(seed: int) -> int:
    """Return a number of rows: the fixed one where the program has it."""
    return (1, 3, ROWS)[seed % 3]
