"""A pattern being laid over a program, from its result towards its operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from inlay.accel.pattern import Applied, Input, Node
from inlay.analysis.blocks import count_uses, nested
from inlay.arith.dtype import F32
from inlay.ir.expr import Call, Const, Expr, OpRef, Var
from inlay.ir.types import TensorType
from inlay.ir.walk import spine
from inlay.ops.padding import PadAttrs, PadMode
from inlay.ops.requantization import RequantizeAttrs

_COMMUTATIVE = ("add", "mul", "maximum", "minimum")


class Mismatch(Exception):
    """A pattern is not here.

    Attributes:
        depth: how many operators had been found.
        reason: what was found in the place of what.
    """

    def __init__(self, depth: int, reason: str) -> None:
        super().__init__(reason)
        self.depth, self.reason = depth, reason


@dataclass(frozen=True, slots=True)
class Block:
    """A block in A-normal form: what its variables are, and how often each is read."""

    calls: Mapping[Var, Call]
    uses: Mapping[Var, int]


def blocks(body: Expr) -> Iterator[Block]:
    """Yield the blocks of a function."""
    uses, pending = count_uses(body), [body]
    while pending:
        lets, tail = spine(pending.pop())
        pending += nested(tail)
        calls: dict[Var, Call] = {}
        for let in lets:
            pending += nested(let.value)
            if isinstance(let.value, Call) and isinstance(let.value.callee, OpRef):
                calls[let.var] = let.value
        yield Block(calls, uses)


@dataclass(slots=True)
class Overlay:
    """A pattern being laid over a program.

    Attributes:
        block: where.
        outlined: whether constants of the pattern may have become parameters.
        values: what each node is.
        calls: operations inside, from the result on.
        attrs: attributes of operators, by node.
        filled: constants of operators that are missing (`Applied.otherwise`).
        leaves_pads: whether a pad in front of a convolution is left to others.
        shared: whether values inside may have several readers inside; who lays the pattern sees to the rest.
    """

    block: Block
    outlined: bool
    values: dict[Node, Expr] = field(default_factory=dict[Node, Expr])
    calls: list[Call] = field(default_factory=list[Call])
    attrs: dict[Node, dict[str, Any]] = field(default_factory=dict[Node, dict[str, Any]])
    filled: set[Node] = field(default_factory=set[Node])
    shared: bool = False
    leaves_pads: bool = False

    @property
    def has_pad(self) -> bool:
        """Whether a pad in front of a convolution is inside."""
        return any(isinstance(c.callee, OpRef) and isinstance(c.callee.attrs, PadAttrs) for c in self.calls)

    def copy(self) -> Overlay:
        """Return one that can be tried and dropped."""
        return replace(
            self,
            values=dict(self.values),
            calls=list(self.calls),
            attrs=dict(self.attrs),
            filled=set(self.filled),
        )

    def take(self, other: Overlay) -> None:
        """Become a copy that was tried."""
        self.values, self.calls, self.attrs, self.filled = (
            other.values,
            other.calls,
            other.attrs,
            other.filled,
        )

    def in_order(self) -> tuple[Call, ...]:
        """Return the operations inside, in an order of the program."""
        if not self.shared:
            return tuple(reversed(self.calls))
        inside = {id(c) for c in self.calls}
        return tuple(c for c in self.block.calls.values() if id(c) in inside)

    def lay(self, node: Node, e: Expr, *, inner: bool) -> None:
        """Lay a node over an expression.

        Raises:
            Mismatch: it is something else.
        """
        if node in self.values:
            if not _same(self.values[node], e):
                raise self._mismatch("another value where the pattern has one twice")
            return
        if not isinstance(e.type, TensorType):
            raise self._mismatch("no tensor")
        if node.dtypes and e.type.dtype not in node.dtypes:
            raise self._mismatch(f"{node.name} of {e.type.dtype}: {' or '.join(d.name for d in node.dtypes)}")
        match node:
            case Input():
                if node.constant and not self.outlined and not isinstance(e, Const):
                    raise self._mismatch(f"{node.name} is no constant")
                self.values[node] = e
            case Applied() if node.otherwise is not None:
                self._maybe(node, e, inner=inner)
            case Applied():
                self._applied(node, e, inner=inner)
            case _:
                raise AssertionError("nodes are inputs or results of operators")

    def _applied(self, node: Applied, e: Expr, *, inner: bool) -> None:
        call = self.block.calls.get(e) if isinstance(e, Var) else None
        wanted = " or ".join(node.operators)
        if call is None or not isinstance(call.callee, OpRef):
            what = "a constant" if isinstance(e, Const) else "a value that comes from elsewhere"
            raise self._mismatch(f"{what} where {wanted} is taken")
        name = call.callee.op.name
        if name not in node.operators:
            raise self._mismatch(f"{name} where {wanted} is taken")
        if inner and not self.shared and isinstance(e, Var) and self.block.uses.get(e, 0) != 1:
            raise self._mismatch(f"the result of {name} is read elsewhere, too")
        self.values[node] = e
        self.calls.append(call)
        self.attrs[node] = _attributes(call.callee.attrs)
        args = list(call.args)
        for key, value in node.said:
            if (found := self.attrs[node].get(key)) != value:
                raise self._mismatch(f"{name} with {key} = {found}: {value}")
        if node.padded:
            assert isinstance(e.type, TensorType), "convolutions are tensors"
            args[0] = self._without_pad(node, args[0], len(e.type.shape))
        if node.factors:
            args = self._without_factors(node, args)
        if node.parts:
            args = self._without_ends(node, args)
        if node.is_product and len(args) > 2:
            raise self._mismatch(
                f"{name} with zero points that are no part of a bias: neither factor is constant"
            )
        if len(args) != len(node.operands):
            raise self._mismatch(f"{name} of {len(args)} operands")
        if name in _COMMUTATIVE:
            self._either(node, args)
        else:
            for part, arg in zip(node.operands, args, strict=True):
                self.lay(part, arg, inner=True)

    def _either(self, node: Applied, args: list[Expr]) -> None:
        """Lay the operands of a commutative operator in one order, or else in the other."""
        tried = self.copy()
        try:
            for part, arg in zip(node.operands, args, strict=True):
                tried.lay(part, arg, inner=True)
        except Mismatch as first:
            try:
                for part, arg in zip(node.operands, reversed(args), strict=True):
                    self.lay(part, arg, inner=True)
            except Mismatch as second:
                raise max(first, second, key=lambda m: m.depth) from None
        else:
            self.take(tried)

    def _maybe(self, node: Applied, e: Expr, *, inner: bool) -> None:
        """Lay an operator, or what stands in front of it where it is missing."""
        tried = self.copy()
        try:
            tried._applied(node, e, inner=inner)
        except Mismatch as first:
            x, c = node.operands
            nothing = np.asarray(node.otherwise, (c.dtypes[0] if c.dtypes else F32).numpy)
            try:
                self.lay(x, e, inner=inner)
                self.lay(c, Const(nothing, TensorType((), F32 if not c.dtypes else c.dtypes[0])), inner=True)
            except Mismatch as second:
                raise max(first, second, key=lambda m: m.depth) from None
            self.filled.add(c)
            self.values[node] = e
        else:
            self.take(tried)

    def _without_pad(self, node: Applied, x: Expr, rank: int) -> Expr:
        """Take a pad by numbers into the convolution behind it; one of lines is one of images of one row."""
        if rank not in (3, 4):
            raise self._mismatch(f"a convolution over {rank - 2} axes: over one or two")
        attrs, before = self.attrs[node], 4 - rank
        half = [tuple(attrs["pads"])[at:][: rank - 2] or (0,) * (rank - 2) for at in (0, rank - 2)]
        attrs["pads"] = tuple(n for ends in half for n in (*[0] * before, *ends))
        attrs |= {n: (*[1] * before, *(tuple(attrs[n]) or (1, 1)[before:])) for n in ("strides", "dilations")}
        attrs.setdefault("outside", 0)
        call = self.block.calls.get(x) if isinstance(x, Var) and not self.leaves_pads else None
        if call is None or not isinstance(x, Var) or not isinstance(call.callee, OpRef) or any(attrs["pads"]):
            return x
        pads = _constant_pad(call, rank)
        if pads is None or self.block.uses.get(x, 0) != 1:
            return x
        (attrs["pads"], attrs["outside"]) = pads
        self.calls.append(call)
        return call.args[0]

    def _without_factors(self, node: Applied, args: list[Expr]) -> list[Expr]:
        """Take constant operands behind the first into a requantize."""
        factors = tuple(args[1:])
        if not self.outlined and not all(isinstance(x, Const) for x in factors):
            raise self._mismatch("a factor is no constant")
        self.attrs[node]["factors"] = factors
        return args[:1]

    def _without_ends(self, node: Applied, args: list[Expr]) -> list[Expr]:
        """Take the ends of an equal part of the last axis off its slice; the match knows which part it is."""
        x, axes = args[0].type, self.attrs[node].get("axes")
        assert isinstance(x, TensorType), "tensors are cut"
        whole = x.shape[-1].value if x.shape else None
        ends = [
            [e.value for e in a.value]
            for a in args[1:]
            if isinstance(a, Const) and isinstance(a.value, tuple)
        ]
        if whole is None or axes not in ((-1,), (len(x.shape) - 1,)) or len(ends) != 3:
            raise self._mismatch(f"a slice that is no one of {node.parts} parts of the last axis")
        ((first,), (end,), (step,)) = ends
        size = whole // node.parts
        if first is None or step != 1 or size * node.parts != whole or end != first + size or first % size:
            raise self._mismatch(f"a slice from {first} to {end}: one of {node.parts} parts of {whole}")
        self.attrs[node]["index"] = first // size
        return args[:1]

    def _mismatch(self, reason: str) -> Mismatch:
        return Mismatch(len(self.calls), reason)


def _same(a: Expr, b: Expr) -> bool:
    """Whether two values are one: the same node, or equal constants."""
    if a is b:
        return True
    if not isinstance(a, Const) or not isinstance(b, Const) or a.type != b.type:
        return False
    return np.array_equal(np.asarray(a.value), np.asarray(b.value))


def _attributes(attrs: object) -> dict[str, Any]:
    names = getattr(type(attrs), "__dataclass_fields__", {})
    return {name: getattr(attrs, name) for name in names}


_NOT_ASKED = {"dtype", "least", "near", "index", "axes", "factors"}
"""Attributes that a type says, that change no result, or that the node is about."""


def unread(node: Applied, e: Expr, block: Block, found: Mapping[str, Any], read: Set[str]) -> Iterator[str]:
    """Yield attributes that change what an operator computes and that a pattern neither says nor reads.

    Args:
        node: of the pattern.
        e: what it was laid over.
        block: in which that is.
        found: its attributes.
        read: names that conditions and numbers of the pattern asked for.
    """
    call = block.calls.get(e) if isinstance(e, Var) else None
    if call is None or not isinstance(call.callee, OpRef):  # laid over nothing, as it may be missing
        return
    fields = getattr(type(call.callee.attrs), "__dataclass_fields__", {})
    known = {*read, *_NOT_ASKED, *(name for name, _ in node.said)}
    if isinstance(call.callee.attrs, RequantizeAttrs):
        whole = replace(call.callee.attrs, low=None, high=None).ends()
        known |= {n for n, end in zip(("low", "high"), whole, strict=True) if found.get(n) in (None, end)}
    for name, value in found.items():
        if name not in known and not _is_plain(name, value, fields, found, e):
            yield f"{name} = {value}, which the pattern neither says nor reads"


def _is_plain(name: str, value: Any, fields: Mapping[str, Any], found: Mapping[str, Any], e: Expr) -> bool:
    """Whether an attribute is what an operator has of which nothing is said."""
    default = fields[name].default if name in fields else 0
    match name:
        case "rounding":  # the one that is assumed is no better guess than the others
            return False
        case "strides" | "dilations":
            return all(n == 1 for n in value)
        case "pads":
            return not any(value)
        case "outside":
            return not any(found.get("pads", ()))
        case "axis" if isinstance(value, int) and isinstance(default, int):
            rank = len(e.type.shape) if isinstance(e.type, TensorType) else 0
            return bool(rank) and value % rank == default % rank
        case _:
            return bool(value == default)


def _constant_pad(call: Call, rank: int) -> tuple[tuple[int, ...], int] | None:
    """Return the pads of the last two axes, and the number, of a pad by numbers behind the first two axes."""
    assert isinstance(call.callee, OpRef), "operators are called"
    attrs, pads = call.callee.attrs, call.args[1] if len(call.args) > 1 else None
    if not isinstance(attrs, PadAttrs) or attrs.mode is not PadMode.CONSTANT or not isinstance(pads, Const):
        return None
    numbers = [e.value for e in pads.value] if isinstance(pads.value, tuple) else []
    if len(numbers) != 2 * rank or None in numbers or any(numbers[i] for i in (0, 1, rank, rank + 1)):
        return None
    value = 0
    if len(call.args) > 2:
        fill = call.args[2]
        if not isinstance(fill, Const) or not isinstance(fill.value, np.ndarray):
            return None
        value = int(fill.value.item())
    lines = [0] * (4 - rank)
    found = tuple(n or 0 for half in (numbers[2:rank], numbers[rank + 2 :]) for n in (*lines, *half))
    return None if min(found) < 0 else (found, value)
