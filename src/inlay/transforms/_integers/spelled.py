"""A quantize that is spelled out in floats: rounded, and clamped to integers of few bits.

    minimum(maximum(round(x / s + z), -128), 127)

Clamped first and rounded then is the same, as the ends are integers. Exporters of trained quantization write
it so, and go on with `(q - z) * s`, or with integers in floats.
"""

from __future__ import annotations

import numpy as np

from inlay.arith.dtype import F32, I8, I16, U8
from inlay.ir.expr import Call, Expr
from inlay.ops.activations import ClipAttrs
from inlay.ops.quantized import DequantizeAttrs, QuantizeAttrs
from inlay.transforms._integers.numbers import StaysFloat, one, smallest, type_of
from inlay.transforms._integers.rounded import Target, rounded, within
from inlay.transforms._integers.scene import Scene
from inlay.transforms._integers.signs import is_turned
from inlay.transforms._integers.wholes import operator
from inlay.transforms._rules.rule_match import attrs_of


def spelled_quantize(scene: Scene, call: Call) -> Expr | None:
    """Return what such a call gives as the reals of integers; None where it is none."""
    t = type_of(call)
    if t.dtype is not F32 or not t.shape:
        return None
    found = _clamped_first(scene, call) if operator(call).name == "round" else _source(scene, call)
    if found is None:
        return None
    x, low, high = found
    dtype = smallest(np.asarray([low, high]), (I8, U8, I16))
    if dtype is None:
        return None
    target = Target(dtype, one(1.0), 0, low, high)
    target = target.turned() if is_turned(scene, dtype) else target
    try:
        q = rounded(scene, x, target)
    except StaysFloat:
        scene.known.begin()
        ends = (x, scene.number(1.0, F32), scene.number(target.zero, target.dtype))
        q = within(scene, scene.bind("quantize", ends, QuantizeAttrs(target.dtype, 0)), target)
    zero = (scene.number(target.zero, target.dtype),) if target.zero else ()
    return scene.block.make(scene.op("dequantize"), (q, scene.number(1.0, F32), *zero), DequantizeAttrs(0))


def _source(scene: Scene, call: Call) -> tuple[Expr, int, int] | None:
    """Return what is rounded there, and the ends."""
    low, high = -np.inf, np.inf
    for _ in range(3):
        name = operator(call).name
        if name == "round":
            return _between(call.args[0], low, high)
        ends = _ends(scene, call)
        if ends is None:
            return None
        x, least, most = ends
        low, high = max(low, least), min(high, most)
        before = scene.call(x)
        if before is None or type_of(x).shape != type_of(call).shape:
            return None
        call = before[1]
    return None


def _between(x: Expr, low: float, high: float) -> tuple[Expr, int, int] | None:
    is_whole = np.isfinite(low) and np.isfinite(high) and low == int(low) and high == int(high)
    return (x, int(low), int(high)) if is_whole and low <= high else None


def _clamped_first(scene: Scene, call: Call) -> tuple[Expr, int, int] | None:
    """Return what is clamped before it is rounded, and the ends: the same, as the ends are integers."""
    low, high, x = -np.inf, np.inf, call.args[0]
    for _ in range(2):
        before = scene.call(x)
        ends = None if before is None else _ends(scene, before[1])
        if ends is None or type_of(ends[0]).shape != type_of(call).shape:
            break
        x, low, high = ends[0], max(low, ends[1]), min(high, ends[2])
    return _between(x, low, high)


def _ends(scene: Scene, call: Call) -> tuple[Expr, float, float] | None:
    name = operator(call).name
    if name == "clip":
        attrs = attrs_of(call, ClipAttrs)
        return call.args[0], attrs.low, attrs.high
    if name not in ("minimum", "maximum"):
        return None
    for x, c in (call.args, call.args[::-1]):
        values = scene.reals(c)
        if values is not None and values.size == 1:
            end = float(values.reshape(()))
            return (x, -np.inf, end) if name == "minimum" else (x, end, np.inf)
    return None
