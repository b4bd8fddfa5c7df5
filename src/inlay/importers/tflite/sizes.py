"""What is known, while a model is read, of integers that shapes are made of.

A size that only the running program knows is a symbol, and models compute with it: they take a shape apart,
multiply some of it, and join the parts to another shape. What moves such integers is asked where it moves
them: its rule is run on their places instead. So a result of which everything is known is a constant, and
the others are symbols, instead of numbers of which nothing is known until the program runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from inlay.arith.expr import Int, lit, maximum, minimum, product
from inlay.base.diagnostics import InlayError
from inlay.importers.folding import MAX_KNOWN
from inlay.importers.tflite.node import Node, Rule
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Const, Expr

_MOVES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys("CAST EXPAND_DIMS GATHER RESHAPE SLICE SPLIT_V SQUEEZE STRIDED_SLICE TILE".split(), (0,)),
    **dict.fromkeys("TRANSPOSE UNPACK REVERSE_V2".split(), (0,)),
    "SPLIT": (1,),
    "PACK": (),
    "CONCATENATION": (),
}
"""Which operands are moved; () for all."""
_EACH: Mapping[str, Callable[[Any, Any], Any]] = {
    "ADD": operator.add,
    "SUB": operator.sub,
    "MUL": operator.mul,
    "MAXIMUM": maximum,
    "MINIMUM": minimum,
}


def kept(node: Node, rule: Rule, outputs: Sequence[Expr]) -> Sequence[Expr]:
    """Keep what is known of the outputs of an operator, where it works on integers that stand for themselves.

    Returns:
        the outputs, constants in place of those of which everything is known.
    """
    found = _found(node, rule)
    if found is None or len(found) != len(outputs):
        return outputs
    made: list[Expr] = []
    for e, known in zip(outputs, found, strict=True):
        numbers = [v.value for v in known.reshape(-1)]
        if None in numbers:
            node.walk.known[e] = known
            made.append(e)
        else:
            made.append(make.const(np.array(numbers, node.dtype(e).numpy).reshape(known.shape)))
    return made


def _found(node: Node, rule: Rule) -> list[np.ndarray] | None:
    name = node.record.name
    if not node.record.outputs or not node.output().dtype.is_integer:
        return None
    if name == "SHAPE":
        return [_array(node.shape(node.tensor(0)))]
    given = [None if v is None else _known(node, v) for v in node.values]
    if all(v is None or isinstance(v, Const) for v in node.values):
        return None
    if name in _MOVES:
        return _moved(node, rule, given)
    known = [k for k in given if k is not None]
    if len(known) < len(given):
        return None
    if name in _EACH and len(known) == 2 and not _is_clamped(node):
        made = np.frompyfunc(_EACH[name], 2, 1)(known[0], known[1])
        return [np.asarray(made, object)]
    if name == "UNSORTED_SEGMENT_PROD" and known[0].ndim == 1:
        return _products(node, known[0])
    if name == "REDUCE_PROD" and known[0].ndim == 1 and not node.output().shape:
        return [_array([product(known[0].tolist())]).reshape(())]
    return None


def _products(node: Node, data: np.ndarray) -> list[np.ndarray] | None:
    """Return products of groups, whose numbers are constant."""
    groups, count = (node.known(i) for i in (1, 2))
    numbers = [g.value for g in groups or ()]
    rows = count[0].value if count and len(count) == 1 else None
    if rows is None or len(numbers) != len(data) or not 0 <= rows <= MAX_KNOWN:
        return None
    return [_array([product(d for d, g in zip(data, numbers, strict=True) if g == k) for k in range(rows)])]


def _known(node: Node, e: Expr) -> np.ndarray | None:
    """Return what is known of a tensor: an array of integers that may be symbols."""
    if isinstance(e, Const) and isinstance(e.value, np.ndarray):
        if e.value.dtype.kind != "i" or e.value.size > MAX_KNOWN:
            return None
        return _array([lit(int(v)) for v in e.value.reshape(-1)]).reshape(e.value.shape)
    return node.walk.known.get(e)


def _array(values: Sequence[Int]) -> np.ndarray:
    made = np.empty(len(values), object)
    made[:] = values
    return made


def _is_clamped(node: Node) -> bool:
    options = f"{node.record.name.capitalize()}Options"
    return node.record.name in ("ADD", "SUB", "MUL") and node.options(options, "FusedActivationFunction") != (
        0,
    )


def _moved(node: Node, rule: Rule, given: Sequence[np.ndarray | None]) -> list[np.ndarray] | None:
    """Run a rule on the places of what is known, and look up what is there."""
    data = _MOVES[node.record.name] or tuple(range(len(given)))
    values, pool = list(node.values), list[Int]()
    for i, known in enumerate(given):
        if i in data:
            if known is None:
                return None
            places = len(pool) + np.arange(known.size).reshape(known.shape)
            values[i] = make.const(places.astype(node.input(i).dtype.numpy))
            pool += known.reshape(-1).tolist()
        elif values[i] is not None and not isinstance(values[i], Const):
            return None
    if len(pool) > MAX_KNOWN:
        return None
    try:
        made = rule(replace(node, values=tuple(values), builder=Builder()))
    except InlayError:
        return None
    places_of = [e.value for e in (made if isinstance(made, tuple) else (made,)) if isinstance(e, Const)]
    if len(places_of) != len(node.record.outputs):
        return None
    everything = _array(pool)
    return [np.asarray(everything[np.asarray(p, np.int64)], object) for p in places_of]
