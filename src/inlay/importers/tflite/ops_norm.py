"""Softmax and other normalizations along the last axis."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlay.arith.dtype import F32, F64, I8, I16, I32, I64, U8
from inlay.importers.tflite import tables
from inlay.importers.tflite.fixed_point import (
    emitted_exponent,
    emitted_inverse_root,
    emitted_reciprocal,
    high_product,
    softmax_tables,
    wide_product,
)
from inlay.importers.tflite.integers import activated, multiplier_of, scaled
from inlay.importers.tflite.node import Node, Rule
from inlay.ir import make
from inlay.ir.expr import Expr


def _softmax(node: Node) -> Expr:
    (beta,) = node.options("SoftmaxOptions", "Beta")
    x, out = node.tensor(0), node.output()
    if node.input(0).dtype is F32:
        scaled_x = x if beta == 1 else node.op("mul", x, np.asarray(beta, np.float32))
        return node.op("softmax", scaled_x, axis=-1)
    if node.input(0).dtype is I16:
        return _softmax_of_16_bits(node, x, float(beta))
    if node.input(0).dtype.bits != 8:
        raise node.unsupported(f"takes {node.input(0).dtype}")
    bits = 16 if out.dtype is I16 else 8
    if not np.isclose(node.scale(out), (1 / 65536, 1 / 32768) if bits == 16 else 1 / 256, rtol=1e-3).any():
        raise node.unsupported(f"gives steps of {node.scale(out)}")
    table, summed = softmax_tables(float(node.scale(node.input(0))), float(beta))
    wide = node.cast(x, I64)
    distance = node.op("sub", node.op("reduce_max", wide, axes=(-1,), keepdims=True), wide)
    total = node.op(
        "reduce_sum", node.op("gather", summed, distance, axis=0, clamp=True), axes=(-1,), keepdims=True
    )
    reciprocal, over = emitted_reciprocal(node, node.cast(total, I64))
    powers = node.cast(node.op("gather", table, distance, axis=0, clamp=True), I64)
    product = wide_product(node, powers, reciprocal)
    down = node.op("add", over, np.asarray(31 - bits, np.int64))
    shares = _rounded_down(node, product, down)
    info = np.iinfo(out.dtype.numpy)
    moved = node.op("add", shares, np.asarray(info.min, np.int64))
    return node.cast(node.op("minimum", moved, np.asarray(info.max, np.int64)), out.dtype)


def _rounded_down(node: Node, e: Expr, bits: Expr) -> Expr:
    """Return what is never negative by powers of two, ties up; all are i64."""
    one = np.asarray(1, np.int64)
    half = node.op("shift_right", node.op("shift_left", one, bits), one)
    return node.op("shift_right", node.op("add", e, half), bits)


def _softmax_of_16_bits(node: Node, x: Expr, beta: float) -> Expr:
    """Emit softmax by two tables: of exponentials from -10 to 0, and of `1 / (1 + x)`."""
    unit = 2 / 65535
    exponentials = tables.in_512_steps(np.exp, (10 / 65535, 32767), (unit, 0), I16)
    inverses = tables.in_512_steps(lambda v: 1 / (1 + v), (1 / 65535, -32768), (unit, 0), I16)
    every = tables.all_of(I16)
    wide = node.cast(x, I32)
    below = node.op("sub", wide, node.op("reduce_max", wide, axes=(-1,), keepdims=True))
    distance = scaled(node, below, float(node.scale(node.input(0))) * beta / (10 / 65535))
    place = node.clamped(node.op("add", distance, np.asarray(32767, np.int32)), -32768, 32767)
    powers = node.looked_up(tables.interpolated(exponentials, every), node.cast(place, I16))
    total = node.op("reduce_sum", powers, axes=(-1,), keepdims=True)
    exponent = emitted_exponent(node, total)
    room = node.op("sub", np.asarray(30, np.int64), exponent)
    shifted = node.op("shift_left", total, room)
    share = node.op(
        "shift_right", node.op("add", shifted, np.asarray(1 << 13, np.int64)), np.asarray(14, np.int64)
    )
    at = node.clamped(node.op("sub", share, np.asarray((1 << 15) + (1 << 16), np.int64)), -32768, 32767)
    inverse = node.looked_up(tables.interpolated(inverses, every), node.cast(at, I16))
    found = _rounded_down(node, node.op("mul", powers, inverse), exponent)
    return node.cast(node.clamped(found, 0, 32767), I16)


def _log_softmax(node: Node) -> Expr:
    if node.input(0).dtype is F32:
        return node.op("log_softmax", node.tensor(0), axis=-1)
    if node.input(0).dtype is U8:
        return _log_softmax_by_table(node)
    return _log_softmax_of_bytes(node)


def _log_softmax_by_table(node: Node) -> Expr:
    """Emit the same of bytes without a sign, in floats, whose exponentials are a table of 256."""
    out, scale = node.output(), node.scale(node.input(0))
    if out.dtype is not U8 or (node.scale(out), node.zero(out)) != (np.float32(1 / 16), 255):
        raise node.unsupported(f"gives {out.dtype} in steps of {node.scale(out)} from {node.zero(out)}")
    table = np.exp(-scale * np.arange(256, dtype=np.float32))
    wide = node.cast(node.tensor(0), I64)
    greatest = node.op("reduce_max", wide, axes=(-1,), keepdims=True)
    powers = node.op("gather", table, node.op("sub", greatest, wide), axis=0, clamp=True)
    log = node.op("log", node.op("reduce_sum", powers, axes=(-1,), keepdims=True))
    unit = np.asarray(16, np.float32)
    most = node.op("add", node.op("mul", node.cast(greatest, F32), np.asarray(scale)), log)
    steps = node.op("mul", node.cast(wide, F32), np.asarray(scale * np.float32(16)))
    whole = node.op("round", node.op("sub", steps, node.op("mul", most, unit)))
    moved = node.op("add", whole, np.asarray(255, np.float32))
    return node.cast(node.clamped(moved, 0, 255), U8)


def _log_softmax_of_bytes(node: Node) -> Expr:
    """Emit distances from the greatest input less the logarithm of the sum of exponentials, in steps of 1/16.

    Exponentials and their sum are the integers of the kernels. The logarithm is computed in f64: the kernels'
    own is off by no more than some units of `2**-26`, which is seen only that near to a tie of steps.
    """
    out = node.output()
    if node.input(0).dtype is not I8 or out.dtype is not I8:
        raise node.unsupported(f"takes {node.input(0).dtype} and gives {out.dtype}")
    if (node.scale(out), node.zero(out)) != (np.float32(1 / 16), 127):
        raise node.unsupported(f"gives steps of {node.scale(out)} from {node.zero(out)}")
    scale = float(node.scale(node.input(0)))
    _, summed = softmax_tables(scale, 1.0)
    m, s = multiplier_of(min(scale * (1 << 26), 2**31 - 1.0))
    every = np.arange(256, dtype=np.int64)
    far = np.clip(tables.divided((every << max(s, 0)) * m, 31 + max(-s, 0)), 0, 2**31 - 1)
    wide = node.cast(node.tensor(0), I64)
    distance = node.op("sub", node.op("reduce_max", wide, axes=(-1,), keepdims=True), wide)
    total = node.op(
        "reduce_sum", node.op("gather", summed, distance, axis=0, clamp=True), axes=(-1,), keepdims=True
    )
    unit = np.asarray(2.0**-19, np.float64)
    log = node.op("log", node.op("mul", node.cast(total, F64), unit))
    fine = node.op("round", node.op("mul", log, np.asarray(2.0**26, np.float64)))
    below = node.op("add", node.op("gather", far, distance, axis=0, clamp=True), node.cast(fine, I64))
    steps = _rounded_down(node, below, make.const(np.asarray(22, np.int64)))
    return node.cast(
        node.op("maximum", node.op("sub", np.asarray(127, np.int64), steps), np.asarray(-128)), I8
    )


def _l2_normalization(node: Node) -> Expr:
    """Emit `x / |x|` along the last axis; a length below 1e-6 counts as that."""
    (activation,) = node.options("L2NormOptions", "FusedActivationFunction")
    if node.is_integer():
        return _l2_of_bytes(node, activation)
    x = node.tensor(0)
    length = node.op("sqrt", node.op("reduce_sum_square", x, axes=(-1,), keepdims=True))
    made = node.op("div", x, node.op("maximum", length, np.asarray(1e-6, np.float32)))
    return activated(node, made, activation)


def _l2_of_bytes(node: Node, activation: int) -> Expr:
    """Emit the same of bytes, in steps of 1/128."""
    out, size = node.output(), node.shape(node.tensor(0))[-1].value
    middle = 128 if out.dtype is U8 else 0
    if out.dtype.bits != 8 or (node.scale(out), node.zero(out)) != (np.float32(1 / 128), middle):
        raise node.unsupported(f"gives {out.dtype} in steps of {node.scale(out)}")
    if activation or size is None or size > 1 << 12:
        raise node.unsupported(f"has the activation {activation}, or {size} elements in a row")
    x = node.cast(node.centered(0), I64)
    total = node.op("reduce_sum", node.op("mul", x, x), axes=(-1,), keepdims=True)
    inverse, shift = emitted_inverse_root(node, total)
    if out.dtype is U8:
        x = node.op("mul", x, np.asarray(128, np.int64))
    else:  # these kernels have the factor in the shift
        seven, none = np.asarray(7, np.int64), np.asarray(0, np.int64)
        x = node.op("shift_left", x, node.op("maximum", node.op("sub", seven, shift), none))
        shift = node.op("maximum", node.op("sub", shift, seven), none)
    product = node.cast(high_product(node, x, inverse), I64)
    size_of = _rounded_down(node, node.op("abs", product), shift)
    moved = node.op("add", node.op("mul", size_of, node.op("sign", product)), np.asarray(middle, np.int64))
    info = np.iinfo(out.dtype.numpy)
    return node.cast(node.clamped(moved, int(info.min), int(info.max)), out.dtype)


def _local_response(node: Node) -> Expr:
    """Emit `x * (bias + alpha * sum of squares of near channels)**-beta`.

    Near are the channels from `radius` before to one less than `radius` behind, as the kernels have it.
    """
    node.only_floats()
    radius, bias, alpha, beta = node.options(
        "LocalResponseNormalizationOptions", "Radius", "Bias", "Alpha", "Beta"
    )
    x = node.tensor(0)
    depth = node.shape(x)[-1].value
    if depth is None:
        raise node.unsupported("has a number of channels that is not known")
    node.bounded(depth, depth)
    behind = np.arange(depth)[:, None] - np.arange(depth)
    near = ((behind >= -radius) & (behind < radius)).astype(np.float32)
    total = node.op("matmul", node.op("mul", x, x), near)
    base = node.op("add", node.op("mul", total, np.asarray(alpha, np.float32)), np.asarray(bias, np.float32))
    return node.op("mul", x, node.op("pow", base, np.asarray(-beta, np.float32)))


RULES: Mapping[str, Rule] = {
    "SOFTMAX": _softmax,
    "LOG_SOFTMAX": _log_softmax,
    "L2_NORMALIZATION": _l2_normalization,
    "LOCAL_RESPONSE_NORMALIZATION": _local_response,
}
