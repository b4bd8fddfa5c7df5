"""Operators on sequences and optionals.

Where all is known while importing (see `structure.py`), `SequenceAt` is a choice made now and nothing
is left of the sequence in the program. Otherwise each operator is a call of the prelude.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx

from inlay.arith.expr import Int, ceildiv, fresh, lit, minimum
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.structure import (
    any_size,
    as_list,
    as_type,
    call_prelude,
    closed,
    construct,
    content,
    element_type,
    form_of,
    is_structured,
    joined,
    list_of,
    local_function,
    widened,
)
from inlay.importers.onnx.term import Term, concat, term
from inlay.importers.onnx.values import NOTHING, OnnxValue, known_scalar
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.existentials import open_exists
from inlay.ir.expr import Expr, Var
from inlay.ir.loop_trace import Step
from inlay.ir.prelude import adt
from inlay.ir.types import AdtType, IntType, TensorType, Type

MAX_LENGTH = 1024
"""Longer sequences are lists of the program even where their length is known."""


def _sequence(node: Node, items: Sequence[OnnxValue]) -> OnnxValue:
    value = OnnxValue(items=tuple(items))
    return value if len(items) <= MAX_LENGTH else OnnxValue(as_list(node, value))


def _position(node: Node, i: int, length: int, *, last: int) -> int | None:
    """Return a position, counted from the front; None where only the program knows it."""
    content = node.array(i)
    if content is None:
        return None
    at = int(content.reshape(-1)[0])
    if not -length <= at <= last:
        raise node.invalid(f"has position {at} in a sequence of {length}")
    return at + length if at < 0 else at


def _length(node: Node, xs: Expr) -> Int:
    n = call_prelude(node, "list.length", xs).type
    assert isinstance(n, IntType), "a length is an int"
    assert n.value is not None, "the variable of an int has a name for it"
    return n.value


def _insert(node: Node) -> OnnxValue:
    given, x = node.value(0), node.value(1)
    if given.hole is not None:
        given.hole.append(form_of(node, x))
    items = given.items
    if items is not None:
        at = _position(node, 2, len(items), last=len(items)) if node.has(2) else len(items)
        if at is not None:
            return _sequence(node, (*items[:at], x, *items[at:]))
    xs = as_list(node, given if items != () else OnnxValue(items=(x,)))
    element = joined(node, element_type(xs), form_of(node, x))
    if items == ():  # of no elements, but the position is checked when the program runs
        xs = construct(node, "List", "Nil", (), element)
    xs = widened(node, xs, element)
    at_end = node.control_int(2) if node.has(2) else make.int_const(_length(node, xs))
    return OnnxValue(call_prelude(node, "list.insert", xs, at_end, as_type(node, x, element)))


def _erase(node: Node) -> OnnxValue:
    items = node.value(0).items
    if items is not None:
        last = len(items) - 1
        at = _position(node, 1, len(items), last=last) if node.has(1) else last
        if at is not None:
            return _sequence(node, (*items[:at], *items[at + 1 :]))
    index = node.control_int(1) if node.has(1) else make.int_const(-1)
    return OnnxValue(call_prelude(node, "list.erase", as_list(node, node.value(0)), index))


def _at(node: Node) -> OnnxValue:
    items = node.value(0).items
    if items is not None:
        at = _position(node, 1, len(items), last=len(items) - 1)
        if at is not None:
            return items[at]
    xs = as_list(node, node.value(0))
    return OnnxValue(call_prelude(node, "list.at", xs, node.control_int(1)))


def _count(node: Node) -> OnnxValue:
    items = node.value(0).items
    if items is not None:
        return known_scalar(lit(len(items)))
    return known_scalar(_length(node, as_list(node, node.value(0))))


def _concat(node: Node) -> OnnxValue:
    items = node.value(0).items
    if items is not None:
        parts = [Term(node, node.as_tensor(v)) for v in items]
        if not parts:
            raise node.invalid("joins no tensors")
        return concat([_stretched(node, p) for p in parts], _join_axis(node, parts[0])).value
    return _concat_list(node, as_list(node, node.value(0)))


def _join_axis(node: Node, part: Term) -> int:
    return node.axis(node.int("axis", 0), part.rank + node.flag("new_axis"))


def _stretched(node: Node, part: Term) -> Term:
    """Return an element with the axis to join along."""
    if not node.flag("new_axis"):
        return part
    axis = _join_axis(node, part)
    return part.reshape(*part.shape[:axis], 1, *part.shape[axis:])


def _concat_list(node: Node, xs: Expr) -> OnnxValue:
    """Join neighbours, then what they gave, so that an element is copied log(n) times."""
    if node.flag("new_axis"):

        def stretched(inside: Node, x: Expr) -> Expr:
            return _stretched(inside, Term(inside, x)).expr

        stretch = local_function(node, [element_type(xs)], stretched)
        xs = call_prelude(node, "list.map", stretch, xs)
    x, _ = open_exists(element_type(xs))
    assert isinstance(x, TensorType), "what is joined are tensors"
    axis = node.axis(node.int("axis", 0), len(x.shape))
    part = any_size(element_type(xs), axis)

    def joined(inside: Node, x: Expr, y: Expr) -> Expr:
        return concat([Term(inside, x), Term(inside, y)], axis).expr

    join = local_function(node, [part, part], joined, part)
    return OnnxValue(call_prelude(node, "list.combine", widened(node, xs, part), join))


def _split(node: Node) -> OnnxValue:
    x = term(node, 0)
    axis = node.axis(node.int("axis", 0), x.rank)
    squeeze = not node.has(1) and not node.flag("keepdims", default=True)
    sizes = _sizes(node, x.shape[axis])
    if sizes is None:
        return OnnxValue(_split_list(node, x, axis, squeeze=squeeze))
    pair = node.emit("split", x.expr, make.shape_const(sizes), axis=axis)
    parts = [Term(node, e) for e in node.b.unpack(pair)]
    return _sequence(node, [(_squeezed(p, axis) if squeeze else p).value for p in parts])


def _squeezed(part: Term, axis: int) -> Term:
    return part.reshape(*part.shape[:axis], *part.shape[axis + 1 :])


def _sizes(node: Node, size: Int) -> tuple[Int, ...] | None:
    """Return the sizes of the parts; None where only the program knows how many there are."""
    if node.has(1) and node.rank(1) == 1:
        return node.shape(1)
    step = node.known(1) if node.has(1) else (lit(1),)
    if size.value is None or step is None or step[0].value is None:
        return None
    if step[0].value < 1:
        raise node.invalid(f"splits into parts of {step[0]} elements")
    whole, rest = divmod(size.value, step[0].value)
    if whole > MAX_LENGTH:
        return None
    return (step[0],) * whole + ((lit(rest),) if rest else ())


def _split_list(node: Node, x: Term, axis: int, *, squeeze: bool) -> Expr:
    """Split into parts of one size, of which the last may be smaller, from the last to the first."""
    step = lit(1)
    if node.has(1):
        given = node.control_int(1)
        given = node.emit("check_at_least", given, given, low=1, why="the size of parts")
        assert isinstance(given.type, IntType), "a check returns what it is given"
        assert given.type.value is not None, "the variable of an int has a name for it"
        step = given.type.value
    size = x.shape[axis]
    count = ceildiv(size, step)
    element: Type = any_size(x.expr.type, axis)
    if squeeze:
        row = (*x.shape[:axis], *x.shape[axis + 1 :])
        element = TensorType(row, x.dtype)

    def body(scope: Builder, i: Int, carried: tuple[Var, ...]) -> Step:
        inside = node.within(scope)
        begin = (count - 1 - i) * step
        part = Term(inside, x.expr).part(axis, begin, minimum(begin + step, size))
        if squeeze:
            part = Term(inside, x.expr).at(axis, begin)
        return Step([construct(inside, "List", "Cons", (part.expr, carried[0]), element)])

    nothing = construct(node, "List", "Nil", (), element)
    done = node.b.loop([nothing], body, count=count, names=["parts"], name=node.loop_name)
    return done.carried[0]


def _map(node: Node) -> tuple[OnnxValue, ...]:
    """Run the body for each element; inputs that are no sequences go to all of them."""
    body = node.graph("body")
    given = [node.value(i) for i in range(len(node.inputs))]
    known = [v.items for v in given if v.items is not None]
    if any(v.items is None and is_structured(v) for v in given):
        return _map_lists(node, body, given)
    length = len(_known_items(node, 0))
    if any(len(items) != length for items in known):
        raise node.invalid("is given sequences of different lengths")
    rows = [
        node.subgraphs.run(body, [v if v.items is None else v.items[k] for v in given], node.b, node.span)
        for k in range(length)
    ]
    return tuple(_sequence(node, [row[j] for row in rows]) for j in range(len(body.output)))


def _known_items(node: Node, i: int) -> tuple[OnnxValue, ...]:
    found = node.value(i).items
    if found is None:
        raise node.invalid(f"is given something else than a sequence as input {i}")
    return found


def _map_lists(node: Node, body: onnx.GraphProto, given: Sequence[OnnxValue]) -> tuple[OnnxValue, ...]:
    """Walk all lists at once; results are made in reverse order."""
    lists = [as_list(node, v) if is_structured(v) else None for v in given]
    present = [xs for xs in lists if xs is not None]
    count = _length(node, present[0])
    for i, xs in enumerate(present[1:], 1):
        length = make.int_const(_length(node, xs))
        why = "sequences of equal lengths"
        present[i] = node.emit("check_equal", xs, make.int_const(count), length, why=why)

    def run(inside: Node, rests: Sequence[Expr]) -> tuple[OnnxValue, ...]:
        heads = iter([call_prelude(inside, "list.get", xs, make.int_const(0)) for xs in rests])
        pairs = zip(given, lists, strict=True)
        inputs = [v if xs is None else OnnxValue(next(heads)) for v, xs in pairs]
        return node.subgraphs.run(body, inputs, inside.b, node.span)

    marker = fresh("outside")
    trial = run(node.within(node.b.scope()), present)
    elements = [closed(list_of(form_of(node, v)), marker) for v in trial]

    def step(scope: Builder, _: Int, carried: tuple[Var, ...]) -> Step:
        inside = node.within(scope)
        rests, made = carried[: len(present)], carried[len(present) :]
        grown = [
            construct(inside, "List", "Cons", (as_type(inside, v, content(t)), xs), content(t))
            for v, xs, t in zip(run(inside, rests), made, elements, strict=True)
        ]
        return Step([*(call_prelude(inside, "list.rest", xs) for xs in rests), *grown])

    start = [construct(node, "List", "Nil", (), content(t)) for t in elements]
    names = [*("rest" for _ in present), *("made" for _ in start)]
    done = node.b.loop([*present, *start], step, count=count, names=names, name=node.loop_name)
    made = done.carried[len(present) :]
    return tuple(OnnxValue(call_prelude(node, "list.reverse", xs)) for xs in made)


def _empty(node: Node) -> OnnxValue:
    return _sequence(node, ())


def _optional(node: Node) -> OnnxValue:
    return node.value(0) if node.has(0) else NOTHING


def _option(node: Node) -> Expr | None:
    """Return the operand where only the program knows whether it has a content."""
    e = node.value(0).expr
    is_option = e is not None and isinstance(e.type, AdtType) and e.type.name == "Option"
    return e if is_option else None


def _has_element(node: Node) -> OnnxValue:
    option = _option(node) if node.has(0) else None
    if option is None:
        there = node.has(0) and node.value(0) is not NOTHING
        return OnnxValue(make.const(np.array(there)))
    no, yes = (make.const(np.array(there)) for there in (False, True))

    def arm(answer: Expr) -> Callable[..., Expr]:
        return lambda *_: answer

    arms = {"None": arm(no), "Some": arm(yes)}
    return OnnxValue(node.b.match(option, adt("Option"), arms, name=node.result_name))


def _get_element(node: Node) -> OnnxValue:
    if node.value(0) is NOTHING:
        raise node.invalid("takes the element of an optional that has none")
    option = _option(node)
    return node.value(0) if option is None else OnnxValue(call_prelude(node, "option.value", option))


RULES: Mapping[str, Rule] = {
    "SequenceConstruct": lambda node: _sequence(node, [node.value(i) for i in range(len(node.inputs))]),
    "SequenceEmpty": _empty,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceAt": _at,
    "SequenceLength": _count,
    "ConcatFromSequence": _concat,
    "SplitToSequence": _split,
    "SequenceMap": _map,
    "Optional": _optional,
    "OptionalHasElement": _has_element,
    "OptionalGetElement": _get_element,
}
