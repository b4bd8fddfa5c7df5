"""Sequences and optionals whose form is known while importing.

A sequence built by the nodes of one graph has a length that is known there, and its elements are
values with types of their own, so `SequenceAt` is a choice made now and nothing is left of the
sequence in the program. A position that only the program knows chooses among elements of one type.
An optional is its content, or nothing. Sequences that come from outside or grow in loops are
refused with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from inlay.arith import dtype as dt
from inlay.arith.expr import Int, lit
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, concat, term
from inlay.importers.onnx.values import NOTHING, Value, known_scalar
from inlay.ir import make

MAX_LENGTH = 1024
"""Longer sequences are data that belongs into a tensor."""


def _items(node: Node, i: int) -> tuple[Value, ...]:
    found = node.value(i).items
    if found is None:
        raise node.unsupported(f"is given something else than a sequence as input {i}")
    return found


def _sequence(node: Node, items: Sequence[Value]) -> Value:
    if len(items) > MAX_LENGTH:
        raise node.unsupported(f"makes a sequence of {len(items)} elements")
    return Value(items=tuple(items))


def _position(node: Node, i: int, length: int, *, last: int) -> int | None:
    """Return a position, counted from the front; None where only the program knows it."""
    content = node.array(i)
    if content is None:
        return None
    at = int(content.reshape(-1)[0])
    if not -length <= at <= last:
        raise node.invalid(f"has position {at} in a sequence of {length}")
    return at + length if at < 0 else at


def _insert(node: Node) -> Value:
    items = _items(node, 0)
    at = _position(node, 2, len(items), last=len(items)) if node.has(2) else len(items)
    if at is None:
        raise node.unsupported("inserts at a position that is computed at run time")
    return _sequence(node, (*items[:at], node.value(1), *items[at:]))


def _erase(node: Node) -> Value:
    items = _items(node, 0)
    last = len(items) - 1
    at = _position(node, 1, len(items), last=last) if node.has(1) else last
    if at is None:
        raise node.unsupported("erases at a position that is computed at run time")
    return _sequence(node, (*items[:at], *items[at + 1 :]))


def _at(node: Node) -> Value:
    items = _items(node, 0)
    at = _position(node, 1, len(items), last=len(items) - 1)
    if at is not None:
        return items[at]
    parts = [Term(node, node.as_tensor(v)) for v in items]
    if not parts or any(p.shape != parts[0].shape for p in parts):
        raise node.unsupported(
            "chooses at run time among elements of different shapes",
            hint="export the model with a constant position",
        )
    stacked = concat([p.reshape(1, *p.shape) for p in parts], 0)
    return stacked.gather(term(node, 1).cast(dt.I64).reshape()).value


def _concat(node: Node) -> Value:
    parts = [Term(node, node.as_tensor(v)) for v in _items(node, 0)]
    if not parts:
        raise node.invalid("joins no tensors")
    new = node.flag("new_axis")
    axis = node.axis(node.int("axis", 0), parts[0].rank + new)
    if new:
        parts = [p.reshape(*p.shape[:axis], 1, *p.shape[axis:]) for p in parts]
    return concat(parts, axis).value


def _split(node: Node) -> Value:
    x = term(node, 0)
    axis = node.axis(node.int("axis", 0), x.rank)
    sizes = _sizes(node, x.shape[axis])
    if len(sizes) > MAX_LENGTH:
        raise node.unsupported(f"makes a sequence of {len(sizes)} elements")
    pair = node.emit("split", x.expr, make.shape_const(sizes), axis=axis)
    parts = [Term(node, e) for e in node.b.unpack(pair)]
    if not node.has(1) and not node.flag("keepdims", default=True):
        parts = [p.reshape(*p.shape[:axis], *p.shape[axis + 1 :]) for p in parts]
    return _sequence(node, [p.value for p in parts])


def _sizes(node: Node, size: Int) -> tuple[Int, ...]:
    if node.has(1) and node.rank(1) == 1:
        return node.shape(1)
    step = int(node.constant(1, "size of parts")) if node.has(1) else 1
    if size.value is None or step < 1:
        raise node.unsupported(f"splits {size} elements into parts of {step}")
    whole, rest = divmod(size.value, step)
    return (lit(step),) * whole + ((lit(rest),) if rest else ())


def _map(node: Node) -> tuple[Value, ...]:
    """Import the body once for each element; inputs that are no sequences go to all of them."""
    body = node.graph("body")
    length = len(_items(node, 0))
    given = [node.value(i) for i in range(len(node.inputs))]
    if any(v.items is not None and len(v.items) != length for v in given):
        raise node.invalid("is given sequences of different lengths")
    rows = [
        node.subgraphs.run(
            body, [v if v.items is None else v.items[k] for v in given], node.b, node.span
        )
        for k in range(length)
    ]
    return tuple(_sequence(node, [row[j] for row in rows]) for j in range(len(body.output)))


def _optional(node: Node) -> Value:
    return node.value(0) if node.has(0) else NOTHING


def _has_element(node: Node) -> Value:
    there = node.has(0) and node.value(0) is not NOTHING
    return Value(make.const(np.array(there)))


def _get_element(node: Node) -> Value:
    if node.value(0) is NOTHING:
        raise node.invalid("takes the element of an optional that has none")
    return node.value(0)


RULES: Mapping[str, Rule] = {
    "SequenceConstruct": lambda node: _sequence(
        node, [node.value(i) for i in range(len(node.inputs))]
    ),
    "SequenceEmpty": lambda node: _sequence(node, ()),
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceAt": _at,
    "SequenceLength": lambda node: known_scalar(lit(len(_items(node, 0)))),
    "ConcatFromSequence": _concat,
    "SplitToSequence": _split,
    "SequenceMap": _map,
    "Optional": _optional,
    "OptionalHasElement": _has_element,
    "OptionalGetElement": _get_element,
}
