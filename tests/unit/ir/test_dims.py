"""What leaves the scope of its dims is quantified so that whoever opens it finds them again."""

from __future__ import annotations

import itertools

import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, fresh, symbols, to_int
from inlay.ir import make
from inlay.ir.existentials import opened_dims, pack
from inlay.ir.types import DimParam, ExistsType, IntType, TensorType, TupleType, Type

J, K = fresh("j"), fresh("k")
j, k = to_int(J), to_int(K)


def tensor(*dims: Int) -> TensorType:
    return TensorType(dims, F32)


TYPES = {
    "a sum of two": tensor(j + k + 1),
    "an int of two": IntType(j + k),
    "a square and a dim": tensor(k * k + j),
    "a product": tensor(j * k),
    "a sum and a part": TupleType((tensor(j + k), IntType(k))),
    "parts in other fields": TupleType((tensor(j + k), tensor(k * k), tensor(k))),
    "a part inside": TupleType((tensor(j + k), ExistsType((DimParam(fresh("m")),), IntType(None)))),
}


@pytest.mark.parametrize("name", TYPES)
def test_one_after_the_other_and_both_at_once_say_the_same(name: str):
    t = TYPES[name]
    both = pack(t, [DimParam(J), DimParam(K)])
    for first, second in itertools.permutations((J, K)):
        packed = pack(pack(t, [DimParam(first)]), [DimParam(second)])
        assert determined(packed), packed
        assert shape_of(packed) == shape_of(both)


def determined(t: Type) -> bool:
    """Whether each quantified dim stands somewhere with no other unknown one."""
    if not isinstance(t, ExistsType):
        return True
    unknown = {d.sym for d in t.dims}
    ints = list(ints_of(t.body))
    while True:
        solved = {
            next(iter(inside))
            for e in ints
            if len(inside := unknown.intersection(symbols(e))) == 1 and e.terms
        }
        if not solved:
            return not unknown
        unknown -= solved


def ints_of(t: Type):
    match t:
        case TensorType(shape=shape):
            yield from shape
        case IntType(value=Int() as e):
            yield e
        case TupleType(fields=fields):
            for f in fields:
                yield from ints_of(f)
        case ExistsType(body=body):
            yield from ints_of(body)
        case _:
            pass


def shape_of(t: Type) -> tuple[int, int]:
    """Return how many dims are quantified, and in how many places they stand."""
    dims = {d.sym for d in t.dims} if isinstance(t, ExistsType) else set()
    return len(dims), sum(bool(dims.intersection(symbols(e))) for e in ints_of(t))


def test_a_branch_over_two_opened_sizes_is_well_formed():
    """`let j ..; let k ..; [k*k + j]` leaves both scopes: its size is one unknown dim."""
    a, b = make.var("a", tensor(j)), make.var("b", tensor(k))
    body = make.var("c", tensor(k * k + j))
    x = make.var("x", pack(tensor(j), [DimParam(J)]))
    y = make.var("y", pack(tensor(k), [DimParam(K)]))
    made = make.let(a, x, make.let(b, y, body))
    assert isinstance(made.type, ExistsType)
    assert len(made.type.dims) == 1
    assert opened_dims(x.type, a.type)
