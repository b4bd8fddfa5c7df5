"""The verifier accepts what is made and finds what is broken."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import fresh
from inlay.ir import make
from inlay.ir.expr import Call, Const, Let, Project, Var
from inlay.ir.module import EntryNames, Module
from inlay.ir.parser import parse_module
from inlay.ir.place import Place
from inlay.ir.types import TensorType
from inlay.ir.verify import verify
from tests.unit.ir.ops import ADD, NEG, NONZERO, TABLE
from tests.unit.ir.test_text import PROGRAM


def ids(m: Module) -> list[str]:
    return [d.id for d in verify(m)]


def tensor(name: str, *dims: object) -> Var:
    return make.var(name, make.tensor_type(dims, F32))


def main(*params: Var, body: object) -> Module:
    return Module({"main": make.function(params, body)})


def test_a_good_program():
    assert verify(parse_module(PROGRAM, TABLE)) == ()


def test_variables_are_bound_once_and_visible():
    x, y, v = tensor("x", 4), tensor("y", 4), tensor("v", 4)
    assert ids(main(x, body=make.call(ADD, (x, y)))) == ["ir.unbound-variable"]
    twice = make.let(v, x, make.let(v, x, v))
    assert ids(main(x, body=twice)) == ["ir.bound-twice"]
    inner = make.let(v, make.call(NEG, (x,)), v)
    assert ids(main(x, body=make.tuple_((inner, v)))) == ["ir.unbound-variable"]
    assert ids(Module({"main": make.function((x,), x), "f": make.function((x,), x)})) == ["ir.bound-twice"]


def test_a_shared_node_must_be_visible_at_each_use():
    x, v = tensor("x", 4), tensor("v", 4)
    shared = make.call(NEG, (v,))
    inside = make.let(v, make.call(NEG, (x,)), shared)
    assert verify(main(x, body=inside)) == ()
    assert ids(main(x, body=make.call(ADD, (inside, shared)))) == ["ir.unbound-variable"]


def test_arms_do_not_see_each_other():
    x, v = tensor("x", 4), tensor("v", 4)
    yes = make.bool_const(True)
    then = make.let(v, make.call(NEG, (x,)), v)
    assert ids(main(x, body=make.if_(yes, then, v))) == ["ir.unbound-variable"]


def test_dims_are_bound():
    n, k = fresh("n"), fresh("k")
    x = tensor("x", n)
    assert set(ids(main(x, body=make.int_const(k)))) == {"ir.unbound-dim"}
    rows = make.call(NONZERO, (x,))
    v = make.var("v", make.tensor_type((k,), rows.type.body.dtype))
    good = make.let(v, rows, make.int_const(k))
    assert verify(main(x, body=good)) == ()
    y, w = tensor("y", n), make.var("w", v.type)
    leak = make.tuple_((make.let(w, make.call(NONZERO, (y,)), w), make.int_const(k)))
    assert set(ids(main(y, body=leak))) == {"ir.unbound-dim"}


def test_types_are_known_and_not_refuted():
    m = parse_module("fn main(x) { neg(x) }", TABLE)
    assert set(ids(m)) == {"ir.unknown-type"}
    x = tensor("x", 4)
    wrong = Call(make.op_ref(NEG), (x,), TensorType(make.tensor_type((5,), F32).shape, F32))
    assert ids(main(x, body=wrong)) == ["type.dim-mismatch"]
    v = tensor("v", 5)
    assert ids(main(x, body=Let(v, x, v, v.type))) == ["type.dim-mismatch"]
    assert "ir.type" in ids(main(x, body=Project(make.tuple_((x,)), 3, x.type)))


def test_matches_are_exhaustive():
    text = """
    data List<'a> {{ Nil, Cons('a, List['a]) }}
    fn main(xs: (List[int], List[int])) {{ match xs {{ {} }} }}
    """

    def missing(arms: str) -> list[str]:
        return [d.message for d in verify(parse_module(text.format(arms), TABLE))]

    assert missing("_ => int(0)") == []
    assert missing("(Nil(), _) => int(0), (Cons(_, _), _) => int(1)") == []
    assert missing("(Nil(), _) => int(0)") == ["no arm of the match fits (Cons(_, _), _)"]
    assert missing("(Nil(), x) => int(0), (y, Nil()) => int(1)") == [
        "no arm of the match fits (Cons(_, _), Cons(_, _))"
    ]
    assert missing("(Cons(_, Nil()), _) => int(0), (_, Cons(_, Cons(_, _))) => int(1)") == [
        "no arm of the match fits (Nil(), Nil())"
    ]


def test_globals_and_data_types_exist():
    x = tensor("x", 4)
    f = make.global_var("f", make.function((x,), x).type)
    assert ids(main(x, body=make.call(f, (x,)))) == ["ir.unknown-global"]
    y = tensor("y", 5)
    m = Module({"main": make.function((x,), make.call(f, (x,))), "f": make.function((y,), y)})
    assert ids(m) == ["ir.type"]


def test_constants_are_what_they_say():
    array = np.zeros(3, np.float32)
    wrong = Const(array, make.tensor_type((4,), F32))
    assert ids(main(body=wrong)) == ["ir.constant"]
    assert ids(main(body=Const(array, make.tensor_type((3,), F32)))) == ["ir.constant"]


def test_entries_and_places():
    x = tensor("x", 4)
    m = Module({"main": make.function((x,), x)}, entries={"main": EntryNames((), ("y",))})
    assert ids(m) == ["ir.entry"]
    y = tensor("y", 4)
    bad = make.call(NEG, (y,), place=Place("cpu", fields=(None, None)))
    assert ids(main(y, body=bad)) == ["ir.place"]


@pytest.mark.parametrize("n", [10_000, pytest.param(30_000, marks=pytest.mark.slow)])
def test_a_long_program(n):
    x = tensor("x", 4)
    vs = [x, *(make.var(f"v{i}", x.type) for i in range(n))]
    body = vs[-1]
    for i in range(n, 0, -1):
        body = make.let(vs[i], make.call(NEG, (vs[i - 1],)), body)
    assert verify(main(x, body=body)) == ()
