"""The evaluator of the tensor IR."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import F32, I64
from inlay.arith.expr import fresh, from_atom
from inlay.base.diagnostics import InternalError, RunError
from inlay.interp.tensor import evaluate, evaluate_entry, evaluate_expr
from inlay.interp.values import Data
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.core_ops import INT_LESS, TO_CONTROL
from inlay.ir.loop_trace import Step
from inlay.ir.module import Module
from inlay.ir.parser import parse_expr, parse_module
from tests.unit.ir.ops import ADD, CONCAT, NEG, TABLE, meaning


def run(text: str, *args: object) -> object:
    return evaluate(parse_module(text, TABLE), args, meaning)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_values():
    assert evaluate_expr(parse_expr("(int(2), shape(3, 4), true, ())", TABLE), meaning) == (
        2,
        (3, 4),
        True,
        (),
    )
    assert np.array_equal(evaluate_expr(parse_expr("add(f32(1.5), f32(2.0))", TABLE), meaning), 3.5)


def test_dims_have_the_values_of_the_arguments():
    text = "fn main<n, m>(x: Tensor[2*n, m, f32]) { shape(n, m, n*m + 1) }"
    assert run(text, np.zeros((6, 5), np.float32)) == (3, 5, 16)
    with pytest.raises(InternalError):
        run(text, np.zeros((7, 5), np.float32))


def test_dims_opened_by_a_let():
    text = """
    fn main<n>(x: Tensor[n, f32]) {
      let r: some k. Tensor[k, i64] = nonzero(x);
      (r, shape(n, k))
    }
    """
    rows, shape = run(text, f32(0, 3, 0, 4))
    assert rows.tolist() == [1, 3]
    assert shape == (4, 2)


def test_a_failed_check_names_its_reason():
    text = "fn main<n, m>(x: Tensor[n, f32], y: Tensor[m, f32]) { add(x, y) }"
    assert run(text, f32(1, 2), f32(3, 4)).tolist() == [4, 6]
    with pytest.raises(RunError, match="operands") as caught:
        run(text, f32(1, 2), f32(3, 4, 5))
    assert caught.value.ids == ("run.check-failed",)


def test_one_arm_is_evaluated():
    text = """
    fn main<n>(c: bool, x: Tensor[n, f32]) {
      let r = ref(x);
      let u = if (c) { write(r, neg(x)) } else { () };
      read(r)
    }
    """
    assert run(text, True, f32(1)).tolist() == [-1]
    assert run(text, False, f32(1)).tolist() == [1]


def test_cells_are_ordered_and_have_identity():
    text = """
    fn main(x: Tensor[1, f32]) {
      let r = ref(x);
      let s = ref(x);
      let a = (read(r), write(r, neg(x)), read(r), read(s));
      a
    }
    """
    a, _, b, c = run(text, f32(1))
    assert (a.item(), b.item(), c.item()) == (1, -1, 1)


def test_a_shared_node_is_computed_once():
    x = make.var("x", make.tensor_type((1,), F32))
    cell = make.ref_create(x)
    bump = make.ref_write(cell, make.call(ADD, (make.ref_read(cell), x)))
    e = make.tuple_((bump, bump, make.ref_read(cell)))
    assert evaluate_expr(e, meaning, variables={x: f32(1)})[2].item() == 2


def test_a_shared_node_is_computed_anew_in_each_activation():
    text = """
    fn main() {
      let f = fn(x: Tensor[1, f32]) -> Tensor[1, f32] { %1 = neg(x); add(%1, %1) };
      (f(f32[1](1.0)), f(f32[1](2.0)))
    }
    """
    a, b = run(text)
    assert (a.item(), b.item()) == (-2, -4)


def test_closures_capture_values_and_dims():
    text = """
    fn adder<n>(x: Tensor[n, f32]) -> fn(Tensor[n, f32]) -> (Tensor[n, f32], int) {
      fn(y: Tensor[n, f32]) -> (Tensor[n, f32], int) { (add(x, y), int(n)) }
    }
    fn main(x: Tensor[3, f32], y: Tensor[3, f32]) {
      let f = @adder(x);
      let g = @adder(y);
      (f(y), g(y))
    }
    """
    (a, n), (b, _) = run(text, f32(1, 2, 3), f32(10, 20, 30))
    assert a.tolist() == [11, 22, 33]
    assert b.tolist() == [20, 40, 60]
    assert n == 3


LIST = """
data List<'a> { Nil, Cons('a, List['a]) }
fn map<'a, 'b>(f: fn('a) -> 'b, xs: List['a]) -> List['b] {
  match xs { Nil() => Nil['b](), Cons(x, rest) => Cons(f(x), @map(f, rest)) }
}
fn build(i: int) -> List[int] {
  let n: some int n. int[n] = i;
  if (int_less(int(0), int(n))) { Cons(int(n), @build(int(n - 1))) } else { Nil[int]() }
}
fn total(xs: List[int], so_far: int) -> int {
  match xs {
    Nil() => so_far,
    Cons(x: some int x. int[x], rest) => {
      let s: some int s. int[s] = so_far;
      @total(rest, int(x + s))
    },
  }
}
"""


def test_data_types_and_recursion():
    text = LIST + "fn main() { @total(@build(int(10)), int(0)) }"
    assert run(text) == 55
    mapped = run(
        LIST
        + """
    fn main(x: Tensor[2, f32]) {
      @map(fn(t: Tensor[2, f32]) { neg(t) }, Cons(x, Cons(neg(x), Nil[Tensor[2, f32]]())))
    }
    """,
        f32(1, 2),
    )
    assert isinstance(mapped, Data)
    assert mapped.fields[0].tolist() == [-1, -2]
    assert mapped.fields[1].fields[0].tolist() == [1, 2]
    assert mapped.fields[1].fields[1].name == "Nil"


def test_recursion_as_deep_as_memory():
    text = LIST + "fn main() { @total(@build(int(20000)), int(0)) }"
    assert run(text) == 200010000


def test_patterns():
    text = """
    data Shape { Point, Circle(Tensor[f32]), Both(Shape, Shape) }
    fn f(p: (Shape, int)) -> Tensor[f32] {
      match p {
        (Both(Circle(x), _), _) => x,
        (Circle(x), _) => neg(x),
        _ => f32(0.0),
      }
    }
    fn main(c: Tensor[f32]) {
      (@f((Circle(c), int(1))), @f((Both(Circle(c), Point()), int(1))), @f((Point(), int(1))))
    }
    """
    assert [v.item() for v in run(text, np.float32(2) * np.ones((), np.float32))] == [-2, 2, 0]


def test_a_long_loop_runs_in_constant_stack():
    b = Builder()
    x = b.param("x", make.tensor_type((2,), F32))
    done = b.loop([x], lambda s, i, c: Step([s.emit(ADD, (c[0], x))]), count=5000)
    m = Module({"main": b.function(done.carried)})
    (total,) = evaluate(m, [f32(1, 2)], meaning)
    assert total.tolist() == [5001, 10002]


def test_a_loop_stops_at_its_condition_and_stacks_rows():
    n = fresh("n")
    b = Builder()
    x = b.param("x", make.tensor_type((n, 2), F32))
    limit = b.param("limit", make.tensor_type((), I64))

    def going(s, i, c):
        return s.emit(INT_LESS, (make.int_const(i), s.emit(TO_CONTROL, (limit,))))

    done = b.loop(
        [x], lambda s, i, c: Step([s.emit(CONCAT, (c[0], x))], [s.emit(NEG, (x,))]), condition=going
    )
    m = Module({"main": b.function((*done.carried, *done.stacked, make.int_const(done.count)))})
    value = np.ones((3, 2), np.float32)
    for steps in (0, 1, 4):
        grown, rows, count = evaluate(m, [value, np.array(steps)], meaning)
        assert grown.shape == (3 * (steps + 1), 2)
        assert rows.shape == (steps, 3, 2)
        assert count == steps


def test_a_scan_in_both_directions():
    n = fresh("n")
    b = Builder()
    xs = b.param("xs", make.tensor_type((n, 2), F32))
    h = b.param("h", make.tensor_type((2,), F32))

    def step(s, c, rows):
        new = s.emit(ADD, (c[0], rows[0]))
        return Step([new], [new, new])

    done = b.scan([h], [xs], step, reverse_sequences=[True], reverse_rows=[True])
    m = Module({"main": b.function((*done.carried, *done.stacked))})
    value = np.arange(8, dtype=np.float32).reshape(4, 2)
    last, backward, forward = evaluate(m, [value, f32(0, 0)], meaning)
    sums = np.cumsum(value[::-1], axis=0)
    assert np.array_equal(last, sums[-1])
    assert np.array_equal(forward, sums)
    assert np.array_equal(backward, sums[::-1])


def test_entries_have_names():
    text = """
    fn main(x: Tensor[1, f32], y: Tensor[1, f32]) { (add(x, y), x) }
    entry main("a", "b") -> ("sum", "first");
    """
    m = parse_module(text, TABLE)
    got = evaluate_entry(m, {"b": f32(2), "a": f32(1)}, meaning)
    assert {k: v.item() for k, v in got.items()} == {"sum": 3, "first": 1}
    with pytest.raises(RunError, match="unknown: c"):
        evaluate_entry(m, {"a": f32(1), "c": f32(2)}, meaning)


def test_a_program_whose_types_are_wrong_stops():
    n = fresh("n")
    x = make.var("x", make.tensor_type((n,), F32))
    v = make.var("v", make.tensor_type((from_atom(n) + 1,), F32))
    wrong = make.function((x,), make.let(v, x, v))
    with pytest.raises(InternalError, match="shape"):
        evaluate(Module({"main": wrong}), [f32(1, 2)], meaning)


@pytest.mark.parametrize(
    ("size", "id"),
    [
        ("n % (n - 3)", "run.divide-by-zero"),
        ("n / (n - 3)", "run.divide-by-zero"),
        ("min(n, n / (n - 3))", "run.divide-by-zero"),
        ("9223372036854775807 * n", "run.int-overflow"),
    ],
)
def test_sizes_without_a_value_are_said_as_the_machine_does(size, id):
    with pytest.raises(RunError) as caught:
        run(f"fn main<n>(x: Tensor[n, f32]) {{ int({size}) }}", f32(1, 2, 3))
    assert caught.value.ids == (id,)
