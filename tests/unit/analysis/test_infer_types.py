"""Inference: what it finds for programs without annotations, and its laws on programs with them."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.analysis.infer_types import infer_types
from inlay.base.diagnostics import CompileError, RunError
from inlay.importers.onnx.graph import load_model
from inlay.interp import tensor
from inlay.ir import make
from inlay.ir.equal import modules_equal
from inlay.ir.expr import Expr, Function, Let, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.prelude import prelude
from inlay.ir.printer import print_module
from inlay.ir.type_printer import type_text
from inlay.ir.types import UNKNOWN, ExistsType, FuncType, IntType, Type
from inlay.ir.verify import verify
from inlay.ir.walk import postorder
from inlay.ops.table import table
from tests.data import REPOSITORY
from tests.examples import examples
from tests.property.gen_ir import Program, assert_same, programs
from tests.unit.analysis.erase import erase

LIST = "data List<'a> { Nil, Cons('a, List['a]) }\n"
TREE = "data Tree<'a> { Leaf('a), Node(Tree['a], Tree['a]) }\n"


def infer(text: str) -> Module:
    return infer_types(parse_module(text, table()))


def evaluate(module: Module, inputs: list[np.ndarray]) -> Any:
    return tensor.evaluate(module, inputs)


def signature(text: str, name: str = "f") -> str:
    return type_text(infer(text).functions[name].type)


def local(module: Module, name: str, function: str = "main") -> str:
    """Return the type of a let-bound variable."""
    for e in postorder(module.functions[function]):
        if isinstance(e, Let) and e.var.name == name:
            return type_text(e.var.type)
    raise KeyError(name)


# ---------------------------------------------------------------------------------- dims


def test_an_operator_solves_the_dims_of_an_unannotated_parameter() -> None:
    text = """
        fn f(x, w: Tensor[64, 10, f32]) { relu(matmul(x, w)) }
        fn main<n>(x: Tensor[n, 64, f32], w: Tensor[64, 10, f32]) { @f(x, w) }"""
    found = signature(text)
    assert found == ("fn<x0>(Tensor[x0, 64, f32], Tensor[64, 10, f32]) -> Tensor[x0, 10, f32]")
    assert signature(text, "main").endswith("-> Tensor[n, 10, f32]")


def test_functions_are_polymorphic_in_dims_at_globals_and_lets() -> None:
    m = infer("""
        fn f(x) { relu(x) }
        fn main<n>(x: Tensor[n, f32], y: Tensor[3, f32]) {
          let g = fn(a) { neg(a) };
          (@f(x), @f(y), g(x), g(y))
        }""")
    assert type_text(m.functions["f"].type) == "fn<x0>(Tensor[x0, f32]) -> Tensor[x0, f32]"
    assert local(m, "g") == "fn<a0>(Tensor[a0, f32]) -> Tensor[a0, f32]"
    assert type_text(m.functions["main"].type.result) == (
        "(Tensor[n, f32], Tensor[3, f32], Tensor[n, f32], Tensor[3, f32])"
    )


def test_functions_are_polymorphic_in_types_that_no_operator_asks_about() -> None:
    m = infer("""
        fn compose(f, g) { fn(x) { f(g(x)) } }
        fn main<n>(x: Tensor[n, f32], y: Tensor[n, 3, i64]) {
          let pick = fn(a, b) { b };
          (@compose(relu, neg)(x), pick(x, y), pick(y, x))
        }""")
    assert type_text(m.functions["compose"].type) == (
        "fn<'a, 'b, 'c>(fn('a) -> 'b, fn('c) -> 'a) -> fn('c) -> 'b"
    )
    assert type_text(m.functions["main"].type.result) == (
        "(Tensor[n, f32], Tensor[n, 3, i64], Tensor[n, f32])"
    )


def test_equal_dims_of_two_parameters_become_one() -> None:
    text = """
        fn f(x, y) { add(x, y) }
        fn main<n>(x: Tensor[n, 4, f32]) { @f(x, x) }"""
    assert signature(text) == ("fn<x0, x1>(Tensor[x0, x1, f32], Tensor[x0, x1, f32]) -> Tensor[x0, x1, f32]")


def test_a_relation_of_declared_dims_is_checked_when_the_program_runs() -> None:
    m = infer("""
        fn f(x, y) { add(x, y) }
        fn main<n, m>(x: Tensor[n, f32], y: Tensor[m, f32]) { @f(x, y) }""")
    assert "check_shape" in print_module(m)
    four, five = np.ones(4, np.float32), np.ones(5, np.float32)
    assert evaluate(m, [four, four]).tolist() == [2.0] * 4
    with pytest.raises(RunError, match=r"run\."):
        evaluate(m, [four, five])


def test_control_values_are_dims() -> None:
    text = """
        fn f(i) { zeros{dtype=f32}(i) }
        fn main<n>(x: Tensor[n, f32]) { @f(shape(n, 2)) }"""
    assert signature(text).startswith("fn<int i0, int i1>(shape[i0, i1]) -> Tensor[i0, i1, f32]")
    assert signature(text, "main").endswith("-> Tensor[n, 2, f32]")


# ---------------------------------------------------------------------------------- recursion


def test_mutual_recursion_shares_dims_and_is_generalized_together() -> None:
    m = infer("""
        fn even(i, x) { if (int_equal(i, int(0))) { x } else { @odd(i, neg(x)) } }
        fn odd(i, x) { if (int_equal(i, int(1))) { neg(x) } else { @even(i, x) } }
        fn main<n>(x: Tensor[n, f32], y: Tensor[3, f32]) { (@even(int(1), x), @even(int(5), y)) }
        """)
    for name in ("even", "odd"):
        assert type_text(m.functions[name].type) == ("fn<x0>(int, Tensor[x0, f32]) -> Tensor[x0, f32]")
    dims = [d.sym for f in m.functions.values() for d in f.type.dims]
    assert len(set(dims)) == len(dims)


def test_a_loop_with_a_named_counter_needs_no_other_annotation() -> None:
    m = infer("""
        fn main<n>(x: Tensor[n, f32]) {
          let loop = fn<i>(i: int[i], acc) {
            if (int_less(int(i), int(10))) { loop(int(i + 1), add(acc, x)) } else { acc }
          };
          loop(int(0), x)
        }""")
    assert type_text(m.functions["main"].type.result) == "Tensor[n, f32]"
    assert evaluate(m, [np.ones(2, np.float32)]).tolist() == [11.0, 11.0]


def test_a_dim_that_varies_from_step_to_step_is_packed_in_the_result() -> None:
    m = infer("""
        fn main<n>(x: Tensor[n, f32]) {
          let loop = fn<i>(i: int[i], rows: Tensor[i, n, f32]) {
            if (int_less(int(i), int(3))) { loop(int(i + 1), push_row(rows, x)) } else { rows }
          };
          loop(int(0), zeros{dtype=f32}(shape(0, n)))
        }""")
    assert type_text(m.functions["main"].type.result) == "some i. Tensor[i, n, f32]"
    assert evaluate(m, [np.ones(2, np.float32)]).shape == (3, 2)


def test_a_count_that_is_given_back() -> None:
    m = infer("""
        fn main<n>(x: Tensor[n, f32]) {
          let loop = fn<i>(i: int[i], h) {
            if (int_less(int(i), int(3))) { loop(int(i + 1), neg(h)) } else { i }
          };
          loop(int(0), x)
        }""")
    assert verify(m) == ()
    assert evaluate(m, [np.ones(2, np.float32)]) == 3


def test_an_annotation_allows_polymorphic_recursion() -> None:
    m = infer("""
        fn grow<n>(x: Tensor[n, f32], i: int) -> some k. Tensor[k, f32] {
          if (int_less(i, int(3))) { @grow(concat{axis=0}(x, x), int(3)) } else { x }
        }
        fn main(x: Tensor[2, f32]) { @grow(x, int(0)) }""")
    assert evaluate(m, [np.ones(2, np.float32)]).shape == (4,)


# ---------------------------------------------------------------------------------- some


def test_branches_that_differ_in_a_dim_give_a_some_type() -> None:
    text = """
        fn f(c, a, b) { if (c) { a } else { neg(b) } }
        fn main<n>(x: Tensor[n, f32], y: Tensor[4, f32]) { @f(true, x, y) }"""
    assert signature(text, "main").endswith("-> some a0. Tensor[a0, f32]")


def test_what_the_data_decide_is_named_where_it_is_bound() -> None:
    m = infer("""
        fn f(t) {
          let k: some int k. int[k] = to_control(t);
          let z = zeros{dtype=f32}(shape(k));
          add(z, z)
        }
        fn main(t: Tensor[i64]) { @f(t) }""")
    assert type_text(m.functions["f"].type) == "fn(Tensor[i64]) -> some int k. Tensor[k, f32]"
    assert local(m, "z", "f") == "Tensor[k, f32]"
    assert evaluate(m, [np.asarray(3)]).shape == (3,)


# ---------------------------------------------------------------------------------- data


def test_map_over_a_list_is_polymorphic() -> None:
    m = infer(
        LIST
        + """
        fn map(f, xs) {
          match xs { Nil => Nil(), Cons(h, t) => Cons(f(h), @map(f, t)) }
        }
        fn main<n>(x: Tensor[n, f32]) { @map(relu, Cons(x, Cons(neg(x), Nil()))) }"""
    )
    assert type_text(m.functions["map"].type) == "fn<'b, 'c>(fn('b) -> 'c, List['b]) -> List['c]"
    assert type_text(m.functions["main"].type.result) == "List[Tensor[n, f32]]"


def test_fold_over_a_tree_keeps_the_dims() -> None:
    m = infer(
        TREE
        + """
        fn fold(t) { match t { Leaf(x) => x, Node(l, r) => add(@fold(l), @fold(r)) } }
        fn main<n>(x: Tensor[n, f32]) { @fold(Node(Leaf(x), Node(Leaf(x), Leaf(x)))) }"""
    )
    assert type_text(m.functions["fold"].type) == "fn<t0>(Tree[Tensor[t0, f32]]) -> Tensor[t0, f32]"
    assert evaluate(m, [np.ones(2, np.float32)]).tolist() == [3.0, 3.0]


def test_a_list_of_elements_of_differing_sizes() -> None:
    m = infer(
        LIST
        + """
        fn main(x: Tensor[4, f32], y: Tensor[5, f32]) { let xs = Cons(x, Cons(y, Nil())); xs }"""
    )
    assert local(m, "xs") == "List[some k in 4..5. Tensor[k, f32]]"


def test_an_element_that_nobody_builds_may_have_any_size() -> None:
    m = infer("""
        data Option<'a> { None, Some('a) }
        fn get(o, d) { match o { None => d, Some(x) => neg(x) } }
        fn main<n>(x: Tensor[n, f32], y: Tensor[4, f32]) { (@get(None(), x), @get(Some(y), x)) }
        """)
    assert "None[Tensor[0, f32]]" in print_module(m)
    found = evaluate(m, [np.ones(2, np.float32), np.zeros(4, np.float32)])
    assert [v.shape for v in found] == [(2,), (4,)]


def test_cells() -> None:
    m = infer("""
        fn bump(c, by) { write(c, add(read(c), by)) }
        fn main<n>(x: Tensor[n, f32]) { let c = ref(x); @bump(c, x); @bump(c, x); read(c) }""")
    assert type_text(m.functions["bump"].type) == ("fn<c0>(Ref[Tensor[c0, f32]], Tensor[c0, f32]) -> ()")
    assert evaluate(m, [np.ones(2, np.float32)]).tolist() == [3.0, 3.0]


# ---------------------------------------------------------------------------------- errors


def failure(text: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        infer(text)
    return caught.value


def test_an_error_shows_both_ends_of_the_chain() -> None:
    text = """fn f(x, y) { add(x, y) }
fn g(a, b) { @f(a, b) }
fn main(x: Tensor[4, f32], y: Tensor[5, f32]) { @g(x, y) }"""
    (found,) = failure(text).diagnostics
    assert found.id == "type.dim-mismatch"
    assert found.span.text == "@g(x, y)"
    said = [(label.span.line, label.message) for label in found.labels]
    assert (3, "x is Tensor[4, f32]") in said
    assert (3, "y is Tensor[5, f32]") in said
    assert any(line < 3 and "because of" in message for line, message in said)


def test_all_independent_errors_are_reported_and_no_consequence_of_them() -> None:
    text = """
        fn f(x) { add(x, x, x) }
        fn g(x) { let y = matmul(x); y.3 }
        fn main<n>(x: Tensor[n, f32]) { let a = @f(x); let b = @g(a); neg(b); x(x) }"""
    found = failure(text)
    assert sorted(found.ids) == ["type.arity", "type.arity", "type.not-a-function"]


def test_a_function_that_gets_itself_is_refused_in_the_end() -> None:
    text = """
        fn f(c, a, b) { if (c) { a } else { neg(b) } }
        fn main<n>(x: Tensor[n, f32]) { @f(true, x, @f) }"""
    assert failure(text).ids == ("type.cyclic",)


def test_no_unknown_of_a_function_gets_into_its_callers() -> None:
    m = infer("""
        fn h(y) { @g(@g(y)) }
        fn g(x) { relu(x) }
        fn dense(x, w, b) { relu(add(matmul(x, w), b)) }
        fn main<n>(x: Tensor[n, 8, f32], w: Tensor[8, 8, f32], b: Tensor[8, f32]) {
          let f = fn(q) { @h(add(q, q)) };
          let loop = fn<i>(i: int[i], h) {
            if (int_less(int(i), int(3))) { loop(int(i + 1), @dense(h, w, b)) } else { h }
          };
          (f(x), @h(w), loop(int(0), x))
        }""")
    assert verify(m) == ()
    assert type_text(m.functions["main"].type.result) == (
        "(Tensor[n, 8, f32], Tensor[8, 8, f32], Tensor[n, 8, f32])"
    )


def test_functions_are_passed_on_before_their_ranks_are_known() -> None:
    m = infer(
        LIST
        + """
        fn act(x) { relu(x) }
        fn map(f, xs) { match xs { Nil => Nil(), Cons(h, t) => Cons(f(h), @map(f, t)) } }
        fn after(f, x) { neg(f(x)) }
        fn main<n>(x: Tensor[n, f32], y: Tensor[4, f32]) {
          (@map(@act, Cons(x, Nil())), @act(y), @after(fn(a) { exp(a) }, x), @after(@act, y))
        }"""
    )
    assert verify(m) == ()
    assert type_text(m.functions["main"].type.result) == (
        "(List[Tensor[n, f32]], Tensor[4, f32], Tensor[n, f32], Tensor[4, f32])"
    )


def test_the_order_of_functions_does_not_matter() -> None:
    parts = ["fn f(x) { @g(relu(x)) }\n", "fn g(x) { neg(x) }\n", "fn main<n>(x: Tensor[n, f32]) { @f(x) }\n"]
    signatures = {
        tuple(sorted((n, type_text(f.type)) for n, f in infer("".join(p)).functions.items()))
        for p in itertools.permutations(parts)
    }
    assert len(signatures) == 1


# ---------------------------------------------------------------------------------- laws


@given(programs())
def test_a_typed_program_stays_what_it_is(p: Program) -> None:
    again = infer_types(p.module)
    assert all(again.functions[n] is f for n, f in p.module.functions.items())


@given(programs())
def test_erased_types_of_lets_and_results_are_found_again(p: Program) -> None:
    found = infer_types(erase(p.module))
    assert modules_equal(p.module, found), print_module(found)
    assert verify(found) == ()


@given(programs())
@settings(max_examples=examples(25))
def test_erased_types_of_parameters_keep_the_meaning(p: Program) -> None:
    found = infer_types(erase(p.module, params=True))
    assert verify(found) == ()
    assert_same(p, found)


BARE_PRELUDE = """
data Option<'a> { None, Some('a) }
data List<'a> { Nil, Cons('a, List['a]) }
data Tree<'a> { Rose('a, List[Tree['a]]) }
fn option.map(f, x) { match x { None() => None(), Some(value) => Some(f(value)) } }
fn option.get(x, otherwise) { match x { None() => otherwise, Some(value) => value } }
fn list.rest(xs) { match xs { Nil() => xs, Cons(_, rest) => rest } }
fn list.combine_pairs(xs, f, done) {
  match xs {
    Nil() => @list.reverse(done),
    Cons(x, rest) => match rest {
      Nil() => @list.reverse(Cons(x, done)),
      Cons(y, more) => @list.combine_pairs(more, f, Cons(f(x, y), done)),
    },
  }
}
fn list.map(f, xs) {
  match xs { Nil() => Nil(), Cons(x, rest) => { let y = f(x); Cons(y, @list.map(f, rest)) } }
}
fn list.fold_left(f, start, xs) {
  match xs { Nil() => start, Cons(x, rest) => @list.fold_left(f, f(start, x), rest) }
}
fn list.fold_right(f, xs, last) {
  match xs { Nil() => last, Cons(x, rest) => f(x, @list.fold_right(f, rest, last)) }
}
fn list.filter(keep, xs) {
  match xs {
    Nil() => Nil(),
    Cons(x, rest) => if (keep(x)) { Cons(x, @list.filter(keep, rest)) } else {
      @list.filter(keep, rest)
    },
  }
}
fn list.reverse(xs) { @list.reverse_onto(xs, Nil()) }
fn list.reverse_onto(xs, done) {
  match xs { Nil() => done, Cons(x, rest) => @list.reverse_onto(rest, Cons(x, done)) }
}
fn list.append(xs, ys) { @list.reverse_onto(@list.reverse(xs), ys) }
fn list.zip(xs, ys) {
  match (xs, ys) {
    (Cons(x, more_xs), Cons(y, more_ys)) => Cons((x, y), @list.zip(more_xs, more_ys)),
    (_, _) => Nil(),
  }
}
fn list.length(xs) { @list.count(xs, int(0)) }
fn list.count(xs, so_far: some int n. int[n]) {
  match xs { Nil() => so_far, Cons(_, rest) => @list.count(rest, int(n + 1)) }
}
fn list.nth(xs, index: some int i. int[i]) {
  match xs {
    Nil() => None(),
    Cons(x, rest) => if (int_equal(int(i), int(0))) { Some(x) } else {
      @list.nth(rest, int(i - 1))
    },
  }
}
fn tree.map(f, tree) {
  match tree {
    Rose(value, children) => {
      let root = f(value);
      let below = fn(child) { @tree.map(f, child) };
      Rose(root, @list.map(below, children))
    },
  }
}
fn tree.fold(f, tree) {
  match tree {
    Rose(value, children) => {
      let below = fn(child) { @tree.fold(f, child) };
      f(value, @list.map(below, children))
    },
  }
}
"""


def test_the_types_of_a_whole_model_are_found_again() -> None:
    model = load_model(REPOSITORY / "examples" / "first_light" / "ultraface_rfb320.onnx", table())
    found = infer_types(erase(model))
    assert found is not model
    assert modules_equal(model, found)


def without_binder(t: FuncType) -> str:
    """Return a type as text, its variables numbered as they appear."""
    names: dict[str, str] = {}
    text = type_text(replace(t, type_vars=()))
    return re.sub(r"'\w+", lambda m: names.setdefault(m[0], f"'{len(names)}"), text)


def says_its_types(f: Function) -> bool:
    """Whether a function needs annotations: it names a dim, or ends a path with a check."""

    def has_dim(t: Type) -> bool:
        return isinstance(t, IntType) or (isinstance(t, ExistsType) and has_dim(t.body))

    checks = any(isinstance(x, OpRef) and x.op.name.startswith("check") for x in postorder(f.body))
    return checks or any(has_dim(p.type) for p in f.params)


def test_the_functions_of_the_prelude_need_no_annotations() -> None:
    found = infer(BARE_PRELUDE)
    functions = prelude().functions
    for name in functions.keys() - found.functions.keys():
        assert says_its_types(functions[name]), name
    for name, f in functions.items():
        if name not in found.functions:
            continue
        assert without_binder(found.functions[name].type) == without_binder(f.type), name


MUTATED = re.findall(r'infer\([A-Z +]*"""(.*?)"""', Path(__file__).read_text("utf-8"), re.DOTALL)
WORDS = ("neg", "add", "x", "y", "f", "@f", "@map", "2", "f32", "i", "int(3)", "Nil()")


@given(st.sampled_from(MUTATED), st.randoms(use_true_random=False))
@settings(max_examples=examples(120))
def test_a_program_that_is_spoiled_is_refused_and_no_crash(text: str, random: Random) -> None:
    tokens = re.findall(r"\s+|[\w.@]+|.", LIST + TREE + text)
    words = [i for i, token in enumerate(tokens) if re.match(r"[\w@]", token)]
    for _ in range(random.randint(1, 2)):
        tokens[random.choice(words)] = random.choice((*WORDS, tokens[random.choice(words)]))
    try:
        found = infer("".join(tokens))
    except CompileError:
        return
    assert {d.id for d in verify(found)} <= {"ir.entry", "ir.incomplete-match"}


def test_a_long_spine_and_a_deep_nest_are_no_recursion() -> None:
    n = 5000
    lets = "".join(f"let v{i + 1} = add(v{i}, w);\n" for i in range(n))
    module = infer(f"""
        fn f(x, w) {{ let v0 = x; {lets} v{n} }}
        fn main<n>(x: Tensor[n, f32]) {{ @f(x, x) }}""")
    assert type_text(module.functions["f"].type) == (
        "fn<x0>(Tensor[x0, f32], Tensor[x0, f32]) -> Tensor[x0, f32]"
    )
    op = table().find("neg")
    assert op is not None
    z = Var("z", UNKNOWN)
    deep: Expr = z
    for _ in range(n):
        deep = make.call(op, (deep,))
    f = Function((z,), deep, FuncType((UNKNOWN,), UNKNOWN))
    main = parse_module("fn main(x: Tensor[3, f32]) { x }", table()).functions["main"]
    x = main.params[0]
    body = make.call(make.global_var("f", f.type), (x,))
    whole = Module({"f": f, "main": make.function((x,), body)})
    assert type_text(infer_types(whole).functions["main"].type.result) == "Tensor[3, f32]"
