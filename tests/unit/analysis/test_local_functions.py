"""Which local functions are loops."""

from __future__ import annotations

import pytest

from inlay.analysis.infer_types import infer_types
from inlay.analysis.local_functions import find_loops
from inlay.ir.parser import parse_module
from inlay.ops.table import table


def loops(body: str) -> set[str]:
    text = f"fn main(x: Tensor[4, f32], n: int) -> Tensor[4, f32] {{\n{body}\n}}"
    m = infer_types(parse_module(text, table()))
    return {v.name for v in find_loops(m.functions["main"])}


LOOP = """
  let f = fn<i>(i: int[i], y: Tensor[4, f32]) -> Tensor[4, f32] {
    let go: bool = int_less(i, n);
    if (go) { let z: Tensor[4, f32] = add(y, x); f(int(i + 1), z) } else { y }
  };
"""


def test_a_loop_in_canonical_form():
    assert loops(LOOP + "f(int(0), x)") == {"f"}
    assert loops(LOOP + "let r: Tensor[4, f32] = f(int(0), x); add(r, r)") == {"f"}


def test_two_calls_from_outside_are_none():
    assert loops(LOOP + "let a: Tensor[4, f32] = f(int(0), x); f(int(0), a)") == set()


def test_a_call_that_is_no_tail_call_is_none():
    assert (
        loops("""
      let f = fn<i>(i: int[i], y: Tensor[4, f32]) -> Tensor[4, f32] {
        let go: bool = int_less(i, n);
        if (go) { let z: Tensor[4, f32] = f(int(i + 1), y); add(z, x) } else { y }
      };
      f(int(0), x)""")
        == set()
    )


def test_what_escapes_is_none():
    assert (
        loops("""
      let f = fn(y: Tensor[4, f32]) -> Tensor[4, f32] { add(y, x) };
      let g = f;
      g(x)""")
        == set()
    )


@pytest.mark.parametrize("tail", ["g(int(0), y)", "let r: Tensor[4, f32] = g(int(0), y); f(int(i + 1), r)"])
def test_loops_in_loops(tail):
    """An outer loop may go on from the tail of an inner one, or behind it."""
    end = "f(int(i + 1), z)" if tail.startswith("g(") else "z"
    found = loops(f"""
      let f = fn<i>(i: int[i], y: Tensor[4, f32]) -> Tensor[4, f32] {{
        let go: bool = int_less(i, n);
        if (go) {{
          let g = fn<j>(j: int[j], z: Tensor[4, f32]) -> Tensor[4, f32] {{
            let more: bool = int_less(j, n);
            if (more) {{ let w: Tensor[4, f32] = add(z, x); g(int(j + 1), w) }} else {{ {end} }}
          }};
          {tail}
        }} else {{ y }}
      }};
      f(int(0), x)""")
    assert found == {"f", "g"}


def test_a_call_from_a_function_with_code_of_its_own_is_none():
    found = loops(
        LOOP.replace("f(", "loop(").replace("let f", "let loop")
        + """
      let h = fn(y: Tensor[4, f32]) -> Tensor[4, f32] { loop(int(0), y) };
      let a: Tensor[4, f32] = h(x);
      h(a)"""
    )
    assert found == set()
