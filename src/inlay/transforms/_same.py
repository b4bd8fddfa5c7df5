"""What is equal for operands, and for callees, that are the same.

Large arrays are compared by identity, so a key holds for as long as somebody has them.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from inlay.arith.deferred import DeferredArray
from inlay.ir.expr import Const, ConstructorRef, Expr, GlobalVar, OpRef

SMALL_BYTES = 64
"""Of an array that is compared by its elements."""


def callee_key(callee: Expr) -> Hashable:
    """Return what is equal for callees that do the same."""
    match callee:
        case OpRef(op=op, attrs=attrs):
            return (op, attrs)
        case ConstructorRef(adt=adt, tag=tag, type=type):
            return (adt, tag, type)
        case GlobalVar(name=name):
            return name
        case _:
            return callee


def operand_key(operand: Expr) -> Hashable:
    """Return what is equal for operands that are one variable, or equal constants."""
    match operand:
        case Const(held=DeferredArray() as array):
            return ("deferred", id(array))
        case Const(held=np.ndarray() as array):
            if array.nbytes <= SMALL_BYTES and array.dtype != object:
                return (array.dtype, array.shape, array.tobytes())
            address = array.__array_interface__["data"][0]
            return (array.dtype, array.shape, array.strides, address)
        case Const(held=value, type=type):
            return (type, value)
        case OpRef() | ConstructorRef() | GlobalVar():
            return callee_key(operand)
        case _:
            return operand
