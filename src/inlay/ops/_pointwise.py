"""What operators that map elements have in common: one makes each from its scalar and NumPy meaning.

A type rule, a compute rule and samples follow from the two. Domains say which element types an
operator takes; samples cover each of them, with the values at which formats differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from inlay.arith.dtype import BOOL, F32, DType
from inlay.ir.op import NoAttrs, TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.scalar import BinaryOp, IntrinsicOp
from inlay.loop.te import ScalarValue
from inlay.ops import _rules as rules
from inlay.ops._build import Array, pointwise, widen
from inlay.ops._define import Cost, FusionPattern, OpDef, Sample, define
from inlay.ops._rules import FLOATS, NUMBERS, Types
from inlay.ops._samples import edges, noise, pairs

Domain = tuple[DType, ...]
A = TypeVar("A")


def unary(
    name: str,
    doc: str,
    scalar: Callable[[ScalarValue], ScalarValue],
    numpy: Callable[[Array], Array],
    *,
    domain: Domain = FLOATS,
    to_bool: bool = False,
    cost: Cost = Cost.CHEAP,
) -> OpDef:
    """Make an operator of one tensor without attributes; see `mapped`."""
    return mapped(
        name,
        doc,
        NoAttrs,
        lambda _, x: scalar(x),
        lambda _, x: numpy(x),
        (NoAttrs(),),
        domain=domain,
        to_bool=to_bool,
        cost=cost,
    )


def mapped(
    name: str,
    doc: str,
    attrs: type[A],
    scalar: Callable[[A, ScalarValue], ScalarValue],
    numpy: Callable[[A, Array], Array],
    settings: Sequence[A],
    *,
    domain: Domain = FLOATS,
    to_bool: bool = False,
    cost: Cost = Cost.CHEAP,
) -> OpDef:
    """Make an operator of one tensor.

    Args:
        name: of the operator.
        doc: its meaning in a line.
        attrs: record of attributes.
        scalar: the element of the result, from the attributes and an element.
        numpy: the same on arrays.
        settings: attribute records to sample with.
        domain: element types it takes.
        to_bool: whether the result is bool.
        cost: of an element.
    """

    def rule(ctx: TypeContext, a: A, args: Types) -> TensorType:
        x = rules.tensor(ctx, args, 0, domain)
        return TensorType(x.shape, BOOL) if to_bool else x

    def reference(a: A, x: Array) -> Array:
        return np.asarray(numpy(a, widen(x))).astype(np.bool_ if to_bool else x.dtype)

    def compute(a: A, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
        def body(x: ScalarValue) -> ScalarValue:
            return scalar(a, x).cast(result.dtype)

        return pointwise(result.shape, operands, body, name)

    return define(
        name,
        attrs,
        rule,
        1,
        FusionPattern.ELEMENTWISE,
        doc,
        reference=reference,
        compute=compute,
        samples=lambda: _mapped_samples(name, settings, domain),
        in_place=() if to_bool else (0,),
        cost=cost,
    )


def _mapped_samples(name: str, settings: Sequence[object], domain: Domain) -> list[Sample]:
    made: list[Sample] = []
    x = noise((2, 3, 5), F32 if F32 in domain else domain[0], low=-3, high=3, seed=name)
    for setting in settings:
        made += [Sample(f"edges {d}", setting, (edges(d),), (("n",),)) for d in domain]
        made.append(Sample("rank 3", setting, (x,), (("a", 3, "b"),)))
    made.append(Sample("rank 0", settings[0], (x[0, 0, 0:1].reshape(()),)))
    made.append(Sample("empty", settings[0], (x[:0],), (("a", 3, 5),)))
    return made


def binary(
    name: str,
    doc: str,
    scalar: Callable[[ScalarValue, ScalarValue], ScalarValue],
    numpy: Callable[[Array, Array], Array],
    *,
    domain: Domain = NUMBERS,
    commutative: bool = False,
    to_bool: bool = False,
    cost: Cost = Cost.CHEAP,
) -> OpDef:
    """Make an operator of two tensors; the arguments are as for `unary`."""

    def rule(ctx: TypeContext, a: object, args: Types) -> TensorType:
        x, y = rules.tensors(ctx, args, domain)
        return TensorType(rules.broadcast(ctx, (x.shape, y.shape)), BOOL if to_bool else x.dtype)

    def reference(a: object, x: Array, y: Array) -> Array:
        return np.asarray(numpy(widen(x), widen(y))).astype(np.bool_ if to_bool else x.dtype)

    def compute(a: object, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
        def body(x: ScalarValue, y: ScalarValue) -> ScalarValue:
            return scalar(x, y).cast(result.dtype)

        return pointwise(result.shape, operands, body, name)

    def samples() -> list[Sample]:
        none = NoAttrs()
        made = [Sample(f"edges {d}", none, pairs(d), (("m", 1), (1, "n"))) for d in domain]
        d = F32 if F32 in domain else domain[0]
        x, y = noise((2, 3, 4), d, seed=name), noise((3, 1), d, seed=name + "y")
        whole = noise((2, 3, 4), d, seed=name + "z")
        return [
            *made,
            Sample("same shape", none, (x, whole), (("a", "b", 4), ("a", "b", 4))),
            Sample("broadcast", none, (x, y), (("a", "b", "c"), ("b", 1))),
            Sample("scalar", none, (np.asarray(y[0, 0]), x), ((), ("a", 3, "c"))),
            Sample("rank 0", none, (np.asarray(x[0, 0, 0]), np.asarray(y[0, 0]))),
            Sample("empty", none, (x[:0], y), (("a", 3, 4), (3, 1))),
        ]

    return define(
        name,
        NoAttrs,
        rule,
        2,
        FusionPattern.BROADCAST,
        doc,
        reference=reference,
        compute=compute,
        samples=samples,
        commutative=commutative,
        in_place=() if to_bool else (0, 1),
        cost=cost,
    )


def scalar_binary(op: BinaryOp) -> Callable[[ScalarValue, ScalarValue], ScalarValue]:
    """Return the meaning on elements that an operation of the loop IR has."""
    return lambda x, y: te.binary(op, x, y)


def predicate(op: IntrinsicOp) -> Callable[[ScalarValue], ScalarValue]:
    """Return the test that an intrinsic of one element is."""
    return lambda x: te.intrinsic(op, x, dtype=BOOL)


def np_erf(x: Array) -> Array:
    """Return the error function of each element; NumPy has none."""
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)
