"""The examples of every primitive: before, the call, after; and the law on both."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap

import pytest

from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.loop.verify import check
from inlay.schedule import primitives
from inlay.schedule.state import Schedule
from tests.loop_equal import equal
from tests.unit.schedule.programs import find_primitive, hold_law

NAMES = sorted(info.name for info in pkgutil.iter_modules(primitives.__path__))
HEADS = {
    "split_vector": "(x: f32[8*n]) -> (y: f32[8*n]) over (n)",
    "vectorize": "(x: f32[8*n]) -> (y: f32[8*n]) over (n)",
    "unroll": "(x: f32[4]) -> (y: f32[4])",
    "fuse": "(x: f32[4, n]) -> (y: f32[4, n]) over (n)",
    "merge": "(x: f32[n]) -> (y: f32[n]) over (n)",
    "compute_at": "(x: f32[n + 2]) -> (y: f32[n]) over (n)",
    "clip": "(x: f32[n, m]) -> (y: f32[n]) over (n, m)",
    "index_unit_axes": "(x: f32[1, 4]) -> (y: f32[1, 4])",
    "partition": "(x: f32[4, 9]) -> (y: f32[4])",
    "split_cases": "(x: f32[9]) -> (y: f32[9])",
    "peel": "(x: f32[4]) -> (y: f32[4])",
    "skip_zero_terms": "(x: f32[n, m]) -> (y: f32[n]) over (n, m)",
    "tensorize": "(x: i8[n, m, 2], w: i8[m, 2]) -> (y: i32[n]) over (n, m)",
    "use_matrix_unit": "(x: u8[4, 8], w: i8[2, 16, 4]) -> (y: i32[4, 16])",
    "use_fma": "(x: f32[n, m]) -> (y: f32[n]) over (n, m)",
    "reorder": "(x: f32[n, m]) -> (y: f32[n]) over (n, m)",
    "decompose_reduction": "(x: f32[n, m]) -> (y: f32[n]) over (n, m)",
    "rfactor": "(x: f32[n, 4*m]) -> (y: f32[n]) over (n, m)",
    "merge_axes": "(x: f32[n, m]) -> (y: f32[n, m]) over (n, m)",
    "cache_factor": "(x: f32[n, m], w: f32[m, 32], z: f32[32]) -> (y: f32[n, 32]) over (n, m)",
    "cache_inplace": "(x: f32[n, 8*m]) -> (y: f32[n]) over (n, m)",
    "cache_read": "(x: f32[n, m], w: f32[m, 32]) -> (y: f32[n, 32]) over (n, m)",
    "cache_write": "(x: f32[n, m]) -> (y: f32[n]) over (n, m)",
}
EXTRA = {"distribute": "alloc t: f32[n] @workspace", "merge": "alloc t: f32[n] @workspace"}


def example(name: str) -> tuple[str, str, str]:
    doc = inspect.getdoc(importlib.import_module(f"{primitives.__name__}.{name}").__dict__[name])
    assert doc is not None
    found = re.search(r"Before:\n\n(.*?)\n\nAfter `(.*?)`:\n\n(.*?)(\n\n\S|\Z)", doc, re.S)
    assert found, f"{name} has no example"
    before, call, after = found.group(1, 2, 3)
    return textwrap.dedent(before), call, textwrap.dedent(after)


def program(name: str, body: str) -> str:
    if body.lstrip().startswith("schedulable"):
        return body
    head = HEADS.get(name, "(x: f32[n]) -> (y: f32[n]) over (n)")
    return f"schedulable func f{head} {{ {EXTRA.get(name, '')}\n{body} }}"


@pytest.mark.parametrize("name", NAMES)
def test_example(name: str) -> None:
    before, call, after = example(name)
    f, expected = parse_function(program(name, before)), parse_function(program(name, after))
    check(f)
    check(expected)
    s = Schedule(f)
    eval(call, {name: find_primitive(name), "s": s})
    assert equal(s.function, expected), print_function(s.function)
    assert [step.primitive for step in s.trace] == [name]
    hold_law(f, s, *[(3, 5)[: len(f.dims)], (9, 2)[: len(f.dims)]])
