"""Bytes with or without a sign, whichever the devices of a board take, where they take one of both.

    requantize{dtype=u8, zero=z}(s)    =    turned(requantize{zero=z-128}(s))
    dequantize(turned(q), s, z)        =    dequantize(q, s, z - 128)

To add 128 to a byte, or to take it off, turns its highest bit, and the zero point moves with it: what the
integers stand for stays the same, and so does every sum. The format that a model has is a choice of its
exporter; hardware has, as a rule, one multiplier. Bytes are turned where they are made and where they are
read, and a turn of a turn is nothing: what is left is at most one for each input and result of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from inlay.arith.dtype import I8, I32, U8, DType
from inlay.ir.expr import Call, Expr, OpRef
from inlay.ir.types import TensorType
from inlay.ops.elementwise import CastAttrs
from inlay.ops.padding import PadAttrs, PadMode
from inlay.ops.quantized import DequantizeAttrs
from inlay.ops.requantization import RequantizeAttrs
from inlay.transforms._integers.numbers import BYTES, Factor, Whole, ends_of, type_of
from inlay.transforms._integers.scene import Scene
from inlay.transforms._rules.rule_match import attrs_of


def other(dtype: DType) -> DType:
    """Return the other format of bytes."""
    return U8 if dtype is I8 else I8


def moved_by(dtype: DType) -> int:
    """Return what is added to bytes that are turned into a format."""
    return 128 if dtype is U8 else -128


def is_turned(scene: Scene, dtype: DType) -> bool:
    """Whether a format is the one that devices do not take."""
    return scene.known.bytes is not None and dtype is other(scene.known.bytes)


def turned(scene: Scene, atom: Expr) -> Expr:
    """Return bytes in the other format."""
    before = source_of(scene, atom)
    if before is not None:
        return before
    to = other(type_of(atom).dtype)
    cast = scene.bind("cast", (atom,), CastAttrs(to))
    made = scene.bind("bitwise_xor", (cast, scene.number(ends_of(to)[0] or 128, to)))
    low, high = scene.ends(atom)
    return scene.keep(made, low + moved_by(to), high + moved_by(to))


def source_of(scene: Scene, atom: Expr) -> Expr | None:
    """Return the bytes that were turned to be these; None where they were not."""
    made = scene.call(atom) if isinstance(atom.type, TensorType) else None
    if made is None or made[0] != "bitwise_xor" or type_of(atom).dtype not in BYTES:
        return None
    cast, bit = scene.call(made[1].args[0]), scene.array(made[1].args[1])
    if cast is None or cast[0] != "cast" or bit is None or bit.size != 1 or abs(int(bit.item())) != 128:
        return None
    x = cast[1].args[0]
    return x if type_of(x).dtype is other(type_of(atom).dtype) else None


def taken(scene: Scene, x: Whole) -> Whole:
    """Return integers in the format that devices take, where they are bytes that the program computes."""
    if not is_turned(scene, x.dtype) or scene.array(x.atom) is not None:
        return x
    by = moved_by(other(x.dtype))
    zero = Factor(x.zero.values + by, x.zero.axis)
    return Whole(turned(scene, x.atom), x.scale, zero, x.low + by, x.high + by)


# --------------------------------------------------------------------------- integers that a model says


def turned_requantize(scene: Scene, call: Call) -> Expr | None:
    """Make bytes in the format that devices take, and turn them."""
    attrs = attrs_of(call, RequantizeAttrs)
    if not is_turned(scene, attrs.dtype):
        return None
    to = other(attrs.dtype)
    by = moved_by(to)
    low, high = (None if end is None else end + by for end in (attrs.low, attrs.high))
    moved = replace(attrs, dtype=to, zero=attrs.zero + by, low=low, high=high)
    return turned(scene, scene.bind("requantize", call.args, moved))


def turned_behind(scene: Scene, call: Call) -> Expr | None:
    """Move elements, or compare them, before they are turned; None where nothing of it was turned."""
    assert isinstance(call.callee, OpRef), "operators are called"
    if not isinstance(call.type, TensorType) or not is_turned(scene, call.type.dtype):
        return None
    sources = [source_of(scene, a) for a in call.args]
    if not any(sources):
        return None
    name = call.callee.op.name
    found = _COMMUTING.get(name, _first)(scene, call, sources)
    return None if found is None else turned(scene, scene.bind(name, found, call.callee.attrs))


def turned_cast(scene: Scene, call: Call) -> Expr | None:
    """Widen bytes that were turned: by a sum, which joins those behind it."""
    x = None if scene.known.bytes is None else source_of(scene, call.args[0])
    if x is None or attrs_of(call, CastAttrs).dtype is not I32:
        return None
    wide = scene.bind("cast", (x,), CastAttrs(I32))
    return scene.bind("add", (wide, scene.number(moved_by(type_of(call.args[0]).dtype), I32)))


def turned_dequantize(scene: Scene, call: Call) -> Expr | None:
    """Take the zero point of bytes that were turned from the bytes before."""
    q, scale, *zero = call.args
    x = source_of(scene, q)
    points = scene.array(zero[0]) if zero else np.zeros((), np.int64)
    if x is None or points is None or not is_turned(scene, type_of(q).dtype):
        return None
    to = type_of(x).dtype
    moved = scene.number(points.astype(np.int64) + moved_by(to), to)
    return scene.block.make(scene.op("dequantize"), (x, scale, moved), attrs_of(call, DequantizeAttrs))


_Sources = list[Expr | None]


def _first(scene: Scene, call: Call, sources: _Sources) -> list[Expr] | None:
    """What moves elements of its first operand."""
    del scene
    return None if sources[0] is None else [sources[0], *call.args[1:]]


def _all(scene: Scene, call: Call, sources: _Sources) -> list[Expr] | None:
    """What joins or compares all operands: constants among them are moved."""
    found: list[Expr] = []
    for source, arg in zip(sources, call.args, strict=True):
        made = _moved_constant(scene, arg) if source is None else source
        if made is None:
            return None
        found.append(made)
    return found


def _pad(scene: Scene, call: Call, sources: _Sources) -> list[Expr] | None:
    if sources[0] is None:
        return None
    if attrs_of(call, PadAttrs).mode is not PadMode.CONSTANT:
        return [sources[0], *call.args[1:]]
    dtype = type_of(call.args[0]).dtype
    fill = call.args[2] if len(call.args) > 2 else scene.number(0, dtype)
    value = _moved_constant(scene, fill)
    return None if value is None else [sources[0], *call.args[1:2], value]


def _moved_constant(scene: Scene, atom: Expr) -> Expr | None:
    values = scene.array(atom)
    if values is None:
        return None
    to = other(type_of(atom).dtype)
    return scene.number(values.astype(np.int64) + moved_by(to), to)


_COMMUTING: Mapping[str, Callable[[Scene, Call, _Sources], list[Expr] | None]] = {
    "concat": _all,
    "maximum": _all,
    "minimum": _all,
    "pad": _pad,
}
