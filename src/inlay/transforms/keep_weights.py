"""Keeps weights in few bits under products of floats that wait for memory.

    let w = dequantize_blocks(q, scale, zero);        becomes    matmul_blocks(x, q, scale, zero)
    matmul(x, w)

A product of a few rows takes as long as its weights take to come from memory: a fourth of that in 8 bits,
an eighth in 4. What is not kept so here is computed as a constant in floats. Weights have a scale for
a block of terms and each column (`dequantize_blocks`), or for each column, or one (`dequantize`); they may be
transposed behind that. A product of many rows shares each weight among them, and is left to floats.

Where the other side is rounded to 8 bits, with a scale for each block of terms as the weights have
(`dequantize_blocks(q, s)` of computed integers), both stay integers, however many rows there are:
`matmul_quantized_blocks(q, s, weights, scale, zero)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F32, I8
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.ops.layout import PermAttrs
from inlay.ops.quantized import DequantizeAttrs
from inlay.ops.quantized_blocks import WIDEST_GROUP
from inlay.ops.table import OperatorTable
from inlay.ops.weight_blocks import BlocksAttrs, DequantizeBlocksAttrs
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module
from inlay.transforms._integers.scene import Known, Scene

MANY_ROWS = 32
"""With so many rows a product is left to floats; an unknown number may be one."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """A matrix `[k, n]` in integers.

    Attributes:
        q: the integers.
        scale: `[ceil(k / block), n]`.
        zero: of the same shape; None where it is 0.
        block: rows that share a scale.
    """

    q: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None
    block: int

    def arrays(self) -> list[np.ndarray]:
        """Return the operands of a product behind its first."""
        return [self.q, self.scale, *([] if self.zero is None else [self.zero])]


def run(module: Module, context: PassContext) -> Module:
    """Keep them. Cost: linear in the program and in the constants that are kept."""
    operators, evaluate = context.ops, context.evaluate
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    if evaluate is None:
        return module
    known = Known(operators, evaluate)
    made: dict[Expr, list[Const]] = {}

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        scene = Scene(known, block)
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return None
        if value.callee.op.name != "matmul":
            return None
        x, w = value.args
        rounded, is_for_floats = _rounded(scene, x), _has_many_rows(value)
        if rounded is None and is_for_floats:
            return None
        weights = _weights(scene, w)
        if weights is None:
            return None
        stays_rounded = rounded is not None and _is_whole(weights, rounded[1])
        if is_for_floats and not stays_rounded:
            return None
        if w not in made:
            made[w] = [make.const(np.ascontiguousarray(a), span=value.span) for a in weights.arrays()]
        left = rounded[0] if rounded is not None and stays_rounded else (x,)
        name = "matmul_quantized_blocks" if stays_rounded else "matmul_blocks"
        return block.make(scene.op(name), (*left, *made[w]), BlocksAttrs(weights.block))

    return rewrite_module(module, step)


def _has_many_rows(call: Call) -> bool:
    assert isinstance(call.type, TensorType), "products have one result"
    if call.type.dtype is not F32:
        return True
    rows = 1
    for d in call.type.shape[:-1]:
        if d.value is None:
            return False
        rows *= d.value
    return rows >= MANY_ROWS


def _rounded(scene: Scene, x: Expr) -> tuple[tuple[Expr, ...], int] | None:
    """Return the integers that an operand is, their scales, and how many share one; None for others."""
    found = scene.call(x)
    if found is None or found[0] != "dequantize_blocks" or len(found[1].args) != 2:
        return None
    call = found[1]
    assert isinstance(call.callee, OpRef)
    attrs, q = call.callee.attrs, call.args[0].type
    assert isinstance(attrs, DequantizeBlocksAttrs), "numbers in blocks have those"
    assert isinstance(q, TensorType), "blocks are of a tensor"
    is_last = attrs.axis in (-1, len(q.shape) - 1)
    return (call.args, attrs.block) if is_last and q.dtype is I8 else None


def _is_whole(weights: _Weights, block: int) -> bool:
    """Whether both sides have the same blocks, all of them full and of whole groups of terms."""
    return weights.block == block and weights.q.shape[0] % block == 0 and block % WIDEST_GROUP == 0


def _weights(scene: Scene, w: Expr) -> _Weights | None:
    """Return the integers behind an operand; None where it is none, or in another form."""
    found = scene.call(w)
    is_turned = False
    if found is not None and found[0] == "transpose":
        assert isinstance(found[1].callee, OpRef)
        attrs = found[1].callee.attrs
        assert isinstance(attrs, PermAttrs), "a transpose has a permutation"
        if attrs.perm != (1, 0):
            return None
        is_turned, found = True, scene.call(found[1].args[0])
    if found is None or found[0] not in ("dequantize", "dequantize_blocks"):
        return None
    assert isinstance(found[1].type, TensorType), "weights are a tensor"
    if len(found[1].type.shape) != 2 or found[1].type.dtype is not F32 or not _is_bytes(found[1].args[0]):
        return None
    arrays = [scene.array(a) for a in found[1].args]
    if any(a is None for a in arrays):
        return None
    assert isinstance(found[1].callee, OpRef)
    return _in_blocks([a for a in arrays if a is not None], found[1].callee.attrs, is_turned=is_turned)


def _is_bytes(q: Expr) -> bool:
    return isinstance(q.type, TensorType) and q.type.dtype.name in ("i8", "u8")


def _in_blocks(arrays: list[np.ndarray], attrs: object, *, is_turned: bool) -> _Weights | None:
    """Return weights with a scale for each block of rows and column."""
    q, *others = [a.T if is_turned and a.ndim == 2 else a for a in arrays]
    if q.size == 0:
        return None
    match attrs:
        case DequantizeBlocksAttrs(block=block, axis=axis):
            if axis % 2 != int(is_turned):
                return None
        case DequantizeAttrs(axis=axis):
            of_columns = axis % 2 != int(is_turned)
            if any(a.ndim and a.size > 1 for a in others) and not of_columns:
                return None
            block = q.shape[0]
            others = [np.broadcast_to(a.reshape(1, -1), (1, q.shape[1])) for a in others]
        case _:
            return None
    zero = others[1] if len(others) > 1 and others[1].any() else None
    return _Weights(q, others[0], zero, block)


PASS = Pass(__name__, run, "keep weights in few bits under products of few rows", requires=(Property.ANF,))
