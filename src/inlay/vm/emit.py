"""Registers to slots: writes a function of register code as instructions of the stack machine.

Every value is pushed once and stays in its slot until it dies; operands are copied, or moved when
they die, to the top of the stack. Operands that already are the top slots, in order, and die, are
consumed where they stand: then a chain of calls costs no copies.

A block may pop only slots above its base, the depth at which it was entered: what is below belongs
to blocks around it, and all ways into a join must find it as it was. Dead integers are left where
they are, since they hold nothing; dead references are emptied.
"""

from __future__ import annotations

from typing import assert_never

from inlay.bytecode.builder import FunctionBuilder, Label
from inlay.bytecode.isa import Kind
from inlay.vm.code import (
    Block,
    Branch,
    Code,
    Continue,
    Head,
    Instruction,
    Join,
    Loop,
    Node,
    Operand,
    Register,
    Return,
    TailCall,
    TailCallClosure,
    Yield,
)
from inlay.vm.last_use import Deaths, find_deaths

_NONE: frozenset[Register] = frozenset()


def emit(code: Code) -> None:
    """Write the instructions of a function into its builder."""
    _Emitter(code.builder, find_deaths(code)).run(code)


class _Emitter:
    """The state of one function: the slot of each register, the labels of joins and loops."""

    def __init__(self, builder: FunctionBuilder, deaths: Deaths) -> None:
        self.builder = builder
        self.deaths = deaths
        self.slots: dict[Register, int] = {}
        self.base = 0
        self.span = ""
        self.joins: dict[Join, tuple[Label, int]] = {}
        self.loops: dict[Head, tuple[Label, int]] = {}

    def run(self, code: Code) -> None:
        """Write the body."""
        for slot, register in enumerate(code.params):
            self.slots[register] = slot
        self._block(code.body, 0)

    def _block(self, block: Block, base: int, falls: Join | None = None) -> None:
        """Write a block that may pop slots from `base` on; it may fall through to one join."""
        outer, self.base = self.base, base
        self._drop(self.deaths.on_entry[block])
        for node in block.nodes:
            self._node(node)
            if not self.builder.reachable:
                break
        else:
            self._end(block, falls)
        self.base = outer

    def _node(self, node: Node) -> None:
        if node.span != self.span:
            self.builder.at(node.span)
            self.span = node.span
        match node:
            case Instruction():
                self._push(node.args, self.deaths.at.get(node, _NONE))
                depth = self.builder.emit(node.name, *node.operands)
                for index, register in enumerate(node.results):
                    self.slots[register] = depth - len(node.results) + index
            case Branch():
                self._branch(node)
            case Loop():
                self._loop(node)
            case _:
                assert_never(node)
        if self.builder.reachable:
            self._drop(self.deaths.after.get(node, ()))

    def _branch(self, node: Branch) -> None:
        builder = self.builder
        self._push((node.selector,), self.deaths.at[node])
        labels = [builder.label() for _ in node.arms]
        join = self._open(node.join, builder.depth - 1)
        if node.targets is not None:
            builder.emit("SWITCH", [labels[arm] for arm in node.targets])
        else:
            assert len(node.arms) == 2, "a condition has two arms"
            builder.emit("JUMP_IF_FALSE", labels[1])
        for index, (label, arm) in enumerate(zip(labels, node.arms, strict=True)):
            if node.targets is not None or index:
                builder.place(label)
            falls = node.join if index == len(node.arms) - 1 else None
            self._block(arm, builder.depth, falls)
        self._close(node.join, join)

    def _loop(self, node: Loop) -> None:
        builder = self.builder
        self._push(node.init, self.deaths.at[node])
        floor = builder.depth - len(node.head.params)
        for index, register in enumerate(node.head.params):
            self.slots[register] = floor + index
        join = self._open(node.join, floor)
        header = builder.label()
        builder.place(header)
        self.loops[node.head] = (header, floor)
        self._block(node.body, floor)
        self._close(node.join, join)

    def _open(self, join: Join | None, floor: int) -> Label | None:
        """Make the label of a join that leaves the stack at `floor` plus its results."""
        if join is None:
            return None
        label = self.builder.label()
        self.joins[join] = (label, floor)
        return label

    def _close(self, join: Join | None, label: Label | None) -> None:
        if join is None or label is None:
            return
        if label.depth is None and not self.builder.reachable:
            return  # no way leads out: what follows cannot be reached either
        self.builder.place(label)
        floor = self.joins[join][1]
        for index, register in enumerate(join.results):
            self.slots[register] = floor + index

    def _end(self, block: Block, falls: Join | None) -> None:
        end = block.end
        if end is None:
            return
        builder = self.builder
        self._push(end.values, self.deaths.at[block])
        match end:
            case Yield(join=join):
                label, floor = self.joins[join]
                self._slide(len(end.values), floor)
                if join is not falls:
                    builder.emit("JUMP", label)
            case Continue(head=head):
                header, floor = self.loops[head]
                self._slide(len(end.values), floor)
                builder.emit("JUMP", header)
            case Return():
                builder.emit("RETURN")
            case TailCall(function=function):
                builder.emit("TAIL_CALL", function)
            case TailCallClosure():
                builder.emit("TAIL_CALL_CLOSURE", len(end.values) - 1)
            case _:
                assert_never(end)

    def _slide(self, keep: int, floor: int) -> None:
        count = self.builder.depth - keep - floor
        assert count >= 0, "a block popped what is not its own"
        if count and keep:
            self.builder.emit("SLIDE", keep, count)
        elif count:
            self.builder.emit("POP", count)

    def _push(self, operands: tuple[Operand, ...], dying: frozenset[Register]) -> None:
        builder = self.builder
        start = self._in_place(operands, dying)
        for index in range(start, len(operands)):
            operand = operands[index]
            if isinstance(operand, int):
                builder.emit("INT", operand)
            elif (
                operand in dying
                and operand.kind is not Kind.INT
                and operand not in operands[index + 1 :]
            ):
                builder.emit("MOVE", self.slots[operand])
            else:
                builder.emit("COPY", self.slots[operand])

    def _in_place(self, operands: tuple[Operand, ...], dying: frozenset[Register]) -> int:
        """Return how many leading operands are the top slots, die here, and are used once."""
        if not operands or not isinstance(operands[0], Register):
            return 0
        depth = self.builder.depth
        first = self.slots[operands[0]]
        count = depth - first
        if first < self.base or count > len(operands):
            return 0
        for index, operand in enumerate(operands[:count]):
            if (
                not isinstance(operand, Register)
                or operand not in dying
                or self.slots[operand] != first + index
            ):
                return 0
        head = set(operands[:count])
        if len(head) != count or any(operand in head for operand in operands[count:]):
            return 0
        return count

    def _drop(self, registers: tuple[Register, ...]) -> None:
        for register in registers:
            if register.kind is not Kind.INT:
                self.builder.emit("DROP", self.slots[register])
