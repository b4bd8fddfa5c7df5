"""Element-wise functions of one 8-bit tensor, as tables of 256 results.

The table is what the operators of the program give for all 256 integers, so it changes no result.
"""

from __future__ import annotations

import numpy as np

from inlay.arith.dtype import DType
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr
from inlay.ops._define import FusionPattern
from inlay.ops.indexing import GatherAttrs
from inlay.ops.quantized import QuantizeAttrs
from inlay.transforms._constants import computed
from inlay.transforms._integers.numbers import BYTES, Factor, type_of
from inlay.transforms._integers.scene import Scene

_ALL = np.concatenate([np.arange(0, 128), np.arange(-128, 0)])
"""8-bit integers in the order of their bits: gathers count what is negative from the end."""
_MOST_OPERATORS = 32


def tabulated(scene: Scene, atom: Expr, dtype: DType, scale: Factor, zero: int) -> Expr | None:
    """Return a function of one 8-bit tensor, quantized, as a look-up; None where it is no such function."""
    if not scale.is_one:
        return None
    order = _operators(scene, atom)
    if order is None:
        return None
    calls, leaf = order
    q = leaf.args[0]
    t = type_of(q)
    numbers = np.arange(256) if t.dtype is BYTES[1] else _ALL
    values: dict[Expr, Expr] = {}
    for variable, call in calls:
        args = [values.get(a) or _scalar(scene, a) for a in call.args]
        if call is leaf:
            args[0] = make.const(numbers.astype(t.dtype.numpy))
        made = computed(make.call(call.callee, args), scene.known.evaluate)
        if not isinstance(made, Const):
            return None
        values[variable] = made
    ends = (values[atom], scene.number(scale.values, type_of(atom).dtype), scene.number(zero, dtype))
    quantized = make.call(scene.op("quantize"), ends, QuantizeAttrs(dtype, 0))
    table = computed(quantized, scene.known.evaluate)
    if not isinstance(table, Const):
        return None
    return scene.bind("gather", (table, q), GatherAttrs(0, clamp=True))


def _scalar(scene: Scene, atom: Expr) -> Expr:
    """Return a constant of one element without axes of its own."""
    found = scene.array(atom)
    return atom if found is None else make.const(found.reshape(()) if found.size == 1 else found)


def _operators(scene: Scene, atom: Expr) -> tuple[list[tuple[Expr, Call]], Call] | None:
    """Return the operators from a dequantize of bytes to a tensor, in order; None where there are others."""
    found: dict[Expr, Call] = {}
    pending = [atom]
    leaf: Call | None = None
    shape = type_of(atom).shape
    while pending:
        at = pending.pop()
        if at in found:
            continue
        made = scene.call(at)
        if made is None or len(found) >= _MOST_OPERATORS:
            return None
        name, call = made
        found[at] = call
        if name == "dequantize":
            if leaf is not None and leaf is not call:
                return None
            leaf = call
            if not _is_one_scale(scene, call) or type_of(call.args[0]).shape != shape:
                return None
            continue
        if not _is_elementwise(scene, name):
            return None
        for arg in call.args:
            constant = scene.array(arg)
            if constant is None:
                pending.append(arg)
            elif constant.size != 1:
                return None
    if leaf is None:
        return None
    return _in_order(found), leaf


def _in_order(found: dict[Expr, Call]) -> list[tuple[Expr, Call]]:
    """Return calls so that operands come first."""
    done: dict[Expr, Call] = {}
    while len(done) < len(found):
        for at, call in found.items():
            if at not in done and all(a in done or a not in found for a in call.args):
                done[at] = call
    return list(done.items())


def _is_one_scale(scene: Scene, call: Call) -> bool:
    parameters = [scene.array(p) for p in call.args[1:]]
    return type_of(call.args[0]).dtype in BYTES and all(p is not None and p.size == 1 for p in parameters)


def _is_elementwise(scene: Scene, name: str) -> bool:
    definition = scene.known.operators.definition(name)
    if name in ("quantize", "batch_norm", "requantize", "trilu", "broadcast_to"):
        return False
    return definition.pattern in (FusionPattern.ELEMENTWISE, FusionPattern.BROADCAST)
