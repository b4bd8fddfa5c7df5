"""What loops allow of bytes: phases of buffers, and results that may begin where an operand does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.arith.expr import lit, to_int
from inlay.codegen.accesses import accesses_of
from inlay.codegen.image import link
from inlay.codegen.llvm_generator import compile_function
from inlay.codegen.unit import from_bytes
from inlay.loop.parser import parse_function
from inlay.machine.target import host
from tests.examples import examples
from tests.mapped_image import MappedImage

PADDED = """\
lowered func f(x: f32[16], w: f32[3]) -> (y: f32[16]) uses (t: f32[18] @workspace) {
  for i in 0..18 parallel {
    t[i] = select((1:i64 <= [i]) & ([i] < [17]), x[i - 1], 0.0:f32)
  }
  for i in 0..16 parallel {
    y[i] = (t[i] * w[0]) + (t[i + 1] * w[1])
  }
}
"""


def lowered(body: str, x: str = "f32[64]", y: str = "f32[64]") -> str:
    return f"lowered func f(x: {x}) -> (y: {y}) {{\n{body}\n}}\n"


def overlays(text: str) -> bool:
    """Whether the result may begin where the operand does."""
    return accesses_of(parse_function(text)).overlays == ((1, 0),)


def test_what_a_phase_reads_is_dead_in_the_next_one():
    found = accesses_of(parse_function(PADDED))
    assert found.phases == 2
    assert found.used == ((0, 0), (1, 1), (1, 1), (0, 1))  # x, w, y, scratch
    assert found.overlays == ((2, 0),)


@pytest.mark.parametrize("kind", ["", " parallel"])
def test_elements_in_place(kind):
    assert overlays(lowered(f"for i in 0..64{kind} {{ y[i] = x[i] * x[i] }}"))


def test_rows_that_are_read_before_they_are_written():
    row = "alloc t: f32[8] @stack\nfor j in 0..8 { t[j] = x[i, j] }\nfor j in 0..8 { y[i, j] = t[7 - j] }"
    assert overlays(lowered(f"for i in 0..4 parallel {{ {row} }}", "f32[4, 8]", "f32[4, 8]"))


READ_BACK = (
    "for i in 0..4 { for j in 0..16 { y[16*i + j] = x[16*i + j] * x[16*i + j] }\n"
    "for j in 0..16 { y[16*i + j] = y[16*i + j] * y[16*i + (15 - j)] } }"
)
"""What a row wrote into the result is read back there."""


def test_a_result_that_is_read_back():
    assert overlays(lowered(READ_BACK))


def test_a_result_that_stays_behind_its_operand():
    """Rows of 4 over rows of 8: what is written was read before, but other threads might not have."""
    body = "for j in 0..4 { y[i, j] = x[i, j] + x[i, j + 4] }"
    serial = lowered(f"for i in 0..4 {{ {body} }}", "f32[4, 8]", "f32[4, 4]")
    assert not overlays(serial)  # the ranges do not move by the same number: not proved
    assert not overlays(serial.replace("0..4 {", "0..4 parallel {", 1))


@pytest.mark.parametrize(
    "body",
    [
        "for i in 0..63 { y[i + 1] = x[i] }",  # the next element is lost
        "for i in 0..64 { y[i] = x[63 - i] }",  # the first half is read from the result
        "for i in 0..63 parallel { y[i] = x[i + 1] }",  # right in order, not at once
        "for i in 0..32 { y[i] = x[i] }\nfor i in 0..32 { y[i + 32] = x[i] }",  # read again
        "for i in 0..64 { y[0] = x[i] }",
        "for i in 0..64 { y[i] = x[i] }\nfor i in 0..64 { y[i] = y[i] + x[i] }",  # read again, and read back
    ],
)
def test_what_is_read_after_it_was_written(body):
    assert not overlays(lowered(body))


def test_an_order_that_is_kept_is_enough():
    assert overlays(lowered("for i in 0..63 { y[i] = x[i + 1] }"))


def test_indices_that_nobody_knows():
    text = """\
lowered func f(x: f32[64], n: i64[64]) -> (y: f32[64]) {
  for i in 0..64 {
    let k = n[i]
    y[i] = x[k]
  }
}
"""
    assert (2, 0) not in accesses_of(parse_function(text)).overlays


def test_copies_have_nothing_to_do_where_operands_lie_so():
    text = """\
lowered func f(a: f32[n, 4], b: f32[3, 4]) -> (y: f32[n + 3, 4]) over (n) {
  for i in 0..n + 3 {
    for j in 0..4 vector { y[i, j] = select([i] < [n], a[i, j], b[i - n, j]) }
  }
}
"""
    function = parse_function(text)
    (n,) = function.dims
    assert accesses_of(function).lies == (lit(0), to_int(n) * 16)
    stored = from_bytes(compile_function(function, host()).to_bytes())
    assert stored.accesses.lies == (lit(0), to_int(stored.dims[0]) * 16)


@pytest.mark.parametrize(
    "body",
    [
        "for i in 0..64 { y[i] = x[63 - i] }",
        "for i in 0..64 { y[i] = x[i] + 0.0:f32 }",
        "for i in 0..32 { y[i] = x[i + 32] }\nfor i in 0..32 { y[i + 32] = x[i] }",
    ],
)
def test_what_is_no_copy_has_something_to_do(body):
    assert accesses_of(parse_function(lowered(body))).lies == ()


@st.composite
def kernels(draw):
    """Return two statements in loops: their texts, and what they do as lists of (writes, reads)."""
    parallel = draw(st.booleans())
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    statements = []
    for _ in range(draw(st.integers(1, 2))):
        wa, wb, ra, rb = (draw(st.integers(0, 4)) for _ in range(4))
        wc, rc, sc = (draw(st.integers(0, 6)) for _ in range(3))
        statements.append((wa, wb, wc, ra, rb, rc, sc))
    return parallel, rows, columns, tuple(statements)


def text_of(made) -> str:
    parallel, rows, columns, statements = made
    lines = [
        f"    for j in 0..{columns} {{ y[{wa}*i + {wb}*j + {wc}] = x[{ra}*i + {rb}*j + {rc}] + x[{ra}*i + {rb}*j + {sc}] }}"
        for wa, wb, wc, ra, rb, rc, sc in statements
    ]
    kind = " parallel" if parallel else ""
    return lowered(f"  for i in 0..{rows}{kind} {{\n" + "\n".join(lines) + "\n  }")


def simulated(made, order, x, y) -> None:
    _, _, columns, statements = made
    for i in order:
        for wa, wb, wc, ra, rb, rc, sc in statements:
            for j in range(columns):
                at = ra * i + rb * j
                y[wa * i + wb * j + wc] = x[at + rc] + x[at + sc]


@settings(max_examples=examples(200))
@given(kernels())
def test_what_is_proved_holds(made):
    """Where a result may begin with its operand, each order that a loop may take gives the same."""
    if not overlays(text_of(made)):
        return
    parallel, rows, _, _ = made
    for order in (range(rows), reversed(range(rows))) if parallel else (range(rows),):
        apart, together = np.arange(1.0, 65), np.arange(1.0, 65)
        expected = apart.copy()
        order = list(order)
        simulated(made, order, apart, expected)
        simulated(made, order, together, together)
        written = expected != np.arange(1.0, 65)
        assert np.array_equal(expected[written], together[written]), text_of(made)


@pytest.mark.llvm
@pytest.mark.parametrize(
    "body",
    [
        "for i in 0..63 { y[i] = x[i + 1] }",
        "for i in 0..64 { y[i] = x[i] * x[i] }",
        READ_BACK,
        "for i in 0..4 parallel { for j in 0..16 vector { y[16*i + j] = x[16*i + j] * 2.0:f32 } }",
    ],
)
def test_code_keeps_what_is_proved(body):
    """The code of a kernel gives the same over its operand as beside it."""
    function = parse_function(lowered(body))
    assert overlays(lowered(body))
    mapped = MappedImage(link([("f", compile_function(function, host()).data)]))
    x = np.arange(1, 65, dtype=np.float32)
    beside, over = x.copy(), x.copy()
    assert mapped.call("f.phase0", [x, beside], [], 0, 1) == 0
    assert mapped.call("f.phase0", [over, over], [], 0, 1) == 0
    assert np.array_equal(beside, over)
