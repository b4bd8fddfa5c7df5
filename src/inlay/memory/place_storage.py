"""Writes the places of storage into functions: a block at the beginning, and offsets in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from inlay.analysis.blocks import relet, spine, with_blocks
from inlay.arith.expr import Int, lit
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, Function, OpRef, Var
from inlay.memory.size_classes import ALIGNMENT
from inlay.ops.memory import ALLOC_STORAGE, TENSOR_AT, StorageAttrs


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the storages of an activation went.

    Attributes:
        blocks: the variable, size and alignment of the block in each memory.
        offsets: the block of a storage, and where in it.
        counted: the memory of each storage that has an allocation of its own.
    """

    blocks: Mapping[str, tuple[Var, Int, int]]
    offsets: Mapping[Var, tuple[Var, Int]]
    counted: Mapping[Var, str]


class Rewriter:
    """Writes placements into functions: a block at the beginning, offsets in it."""

    def __init__(self, placed: Mapping[Function, Placement]) -> None:
        self.placed = placed
        self._offsets: dict[Var, tuple[Var, Int]] = {}
        self._counted: dict[Var, str] = {}

    def function(self, function: Function) -> Function:
        """Rewrite a function and those in it."""
        placement = self.placed.get(function)
        if placement is None:  # a loop: part of the activation around it
            return replace(function, body=self._block(function.body))
        self._offsets.update(placement.offsets)
        self._counted.update(placement.counted)
        body = self._block(function.body)
        for memory, (block, size, alignment) in reversed(list(placement.blocks.items())):
            if size.value == 0:
                size = lit(ALIGNMENT)
            attrs = StorageAttrs(_names(memory), alignment)
            body = make.let(block, make.call(ALLOC_STORAGE, (make.int_const(size),), attrs), body)
        return replace(function, body=body)

    def _block(self, block: Expr) -> Expr:
        lets, tail = spine(block)
        body = self._value(tail)
        for let in reversed(lets):
            if let.var not in self._offsets:
                memory = self._counted.get(let.var)
                value = self._value(let.value) if memory is None else _in(let.value, memory)
                body = relet(let, value, body)
        return body

    def _value(self, value: Expr) -> Expr:
        match value:
            case Function():
                return self.function(value)
            case Call(callee=OpRef(op=op), args=(Var() as storage, *_)) if (
                op is TENSOR_AT and storage in self._offsets
            ):
                block, offset = self._offsets[storage]
                at, shape = value.args[1:]
                assert isinstance(at, Const), "explicit-alloc puts a tensor at a number"
                assert isinstance(at.value, Int), "explicit-alloc puts a tensor at a number"
                return replace(value, args=(block, make.int_const(offset + at.value), shape))
            case _:
                return with_blocks(value, self._block)


def _names(memory: str) -> tuple[str, ...]:
    return (memory,) if memory else ()


def _in(value: Expr, memory: str) -> Expr:
    """Return an allocation that names one memory."""
    assert isinstance(value, Call), "storage is allocated"
    assert isinstance(value.callee, OpRef), "storage is allocated by an operator"
    attrs = value.callee.attrs
    assert isinstance(attrs, StorageAttrs), "alloc_storage has its attributes"
    if attrs.memories == _names(memory):
        return value
    callee = replace(value.callee, attrs=replace(attrs, memories=_names(memory)))
    return replace(value, callee=callee)
