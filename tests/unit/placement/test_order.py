"""The order of independent lines: exchanging two of them does not change the plan."""

from __future__ import annotations

import io
import itertools

import pytest
from hypothesis import given, settings

import inlay
from inlay.api import load
from inlay.ir.module import Module
from inlay.ir.printer import print_module
from inlay.ir.verify import check
from inlay.placement.choose.order import in_order
from tests.property.gen_ir import assert_same, programs
from tests.unit.placement.cases import normal, read

LINES = ("let long = exp(matmul(y, y));", "let short = neg(x);", "let far = tanh(matmul(short, x));")


def program(lines) -> Module:
    body = "\n".join(lines)
    text = f"""
        fn main(x: S, y: S) -> (S, S) {{ {body} (far, long) }}
        entry main("x", "y") -> ("far", "long");"""
    return load(io.StringIO(text.replace("S", "Tensor[512, 512, f32]")))


def cost(call) -> float:
    return 100.0 if call.callee.op.name in ("matmul", "exp") else 1.0


def orders():
    return [o for o in itertools.permutations(LINES) if o.index(LINES[1]) < o.index(LINES[2])]


PINS = ("exp=cpu0", "neg=cpu0", "tanh=cpu1")


def test_exchanging_lines_changes_no_plan():
    """What the other device waits for does not stand behind a long line of this one."""
    found = {}
    for lines in orders():
        e = inlay.explain(program(lines), "host_two", threads=1, pins=PINS)
        found[lines] = round(e.total_ns), sorted((o.operator, o.device) for o in e.operations)
    assert len(set(map(str, found.values()))) == 1
    [(total, _)] = {str(v): v for v in found.values()}.values()
    assert total < 0.7 * inlay.explain(program(LINES), "host", threads=1).total_ns


def test_lines_that_differ_in_order_alone_become_one_program():
    texts = {print_module(in_order(normal(program(lines)), cost)) for lines in orders()}
    assert len(texts) == 1
    [text] = texts
    assert text.index("short") < text.index("long")


EFFECTS = """
fn main(x: T, y: T) {
  let a = neg(x);
  let c = ref(a);
  let b = neg(y);
  let _ = write(c, b);
  let d = exp(y);
  let e = read(c);
  let f = exp(exp(exp(x)));
  (d, e, f) }"""


def test_effects_keep_their_order():
    module = read(EFFECTS)
    after = in_order(module, cost)
    check(after)
    words = [w for w in print_module(after).replace("(", " ( ").split() if w in ("ref", "write", "read")]
    assert words == ["ref", "write", "read"]
    assert in_order(after, cost) is after


@settings(deadline=None)
@given(programs())
def test_another_order_means_the_same(p):
    module = normal(p.module)
    after = in_order(module, cost)
    check(after)
    assert_same(p, after)
    assert in_order(after, cost) is after


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(programs())
def test_another_order_means_the_same_long(p):
    test_another_order_means_the_same.hypothesis.inner_test(p)
