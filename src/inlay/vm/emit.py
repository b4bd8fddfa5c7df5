"""Registers to slots: writes a function of register code as instructions of the stack machine.

Every value is pushed once and stays in its slot until it dies; operands are copied, or moved when
they die, to the top of the stack. Operands that already are the top slots, in order, and die, are
consumed where they stand: then a chain of calls costs no copies.

A block may pop only slots above its base, the depth at which it was entered: what is below belongs
to blocks around it, and all ways into a join must find it as it was. Dead integers are left where
they are, since they hold nothing; dead references are emptied.

`Shapes` are written as `EVAL`, behind it the instructions one by one. The native function gives what
the instructions leave in slots, dead integers too, so that both ways arrive with the same stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never, cast

from inlay.bytecode.builder import FunctionBuilder, Label
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import ShapeInput
from inlay.codegen.shapes import Number, ShapeFunction, Step
from inlay.codegen.shapes import Operand as Value
from inlay.vm.code import (
    Branch,
    Code,
    CodeBlock,
    Continue,
    Head,
    Instruction,
    Join,
    Loop,
    Node,
    Operand,
    Register,
    Return,
    Shapes,
    TailCall,
    TailCallClosure,
    Yield,
)
from inlay.vm.last_use import Deaths, find_deaths

_NONE: frozenset[Register] = frozenset()


@dataclass(frozen=True, slots=True)
class ShapeSite:
    """A use of native shape code: the function to be compiled, and what it takes in this frame."""

    function: ShapeFunction
    inputs: tuple[ShapeInput, ...]


def emit(code: Code, sites: list[ShapeSite]) -> None:
    """Write the instructions of a function into its builder.

    Args:
        code: the function.
        sites: uses of native shape code so far; those of the function are added. The position of
            one is that of its row in the table of the program.
    """
    _Emitter(code.builder, find_deaths(code), sites).run(code)


class _Emitter:
    """The state of one function: the slot of each register, the labels of joins and loops."""

    def __init__(self, builder: FunctionBuilder, deaths: Deaths, sites: list[ShapeSite]) -> None:
        self.builder = builder
        self.sites = sites
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

    def _block(self, block: CodeBlock, base: int, falls: Join | None = None) -> None:
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

    def _at(self, span: str) -> None:
        if span != self.span:
            self.builder.at(span)
            self.span = span

    def _node(self, node: Node) -> None:
        self._at(node.span)
        match node:
            case Instruction():
                self._instruction(node)
            case Shapes():
                self._shapes(node)
            case Branch():
                self._branch(node)
            case Loop():
                self._loop(node)
            case _:
                assert_never(node)
        if self.builder.reachable:
            self._drop(self.deaths.after.get(node, ()))

    def _instruction(self, node: Instruction) -> None:
        self._push(node.args, self.deaths.at.get(node, _NONE))
        depth = self.builder.emit(node.name, *node.operands)
        for index, register in enumerate(node.results):
            self.slots[register] = depth - len(node.results) + index

    def _shapes(self, node: Shapes) -> None:
        floor = self.builder.depth
        behind = self.builder.label()
        self.builder.emit("EVAL", behind, len(self.sites))
        for inner in node.nodes:
            self._at(inner.span)
            self._instruction(inner)
        self.builder.place(behind)
        left: dict[int, Register] = {}
        for register in node.results:  # a later one is in the slot of one that was consumed
            left[self.slots[register]] = register
        slots = range(floor, self.builder.depth)
        self.sites.append(_site(node, self.slots, [left[slot] for slot in slots]))

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

    def _end(self, block: CodeBlock, falls: Join | None) -> None:
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
            elif operand in dying and operand.kind is not Kind.INT and operand not in operands[index + 1 :]:
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


def _site(node: Shapes, slots: Mapping[Register, int], results: Sequence[Register]) -> ShapeSite:
    """Return a group of integer instructions as a function of integers."""
    inputs: dict[ShapeInput, int] = {}
    numbers: dict[Register, Number] = {}
    own = set(node.results)
    for inner in node.nodes:
        axis = cast("int", inner.operands[0]) if inner.name == "DIM" else None
        for a in inner.args:
            if isinstance(a, Register) and a not in own:
                place = inputs.setdefault(ShapeInput(slots[a], axis), len(inputs))
                numbers[inner.results[0] if inner.name == "DIM" else a] = Number(place)
    steps: list[Step] = []
    for inner in node.nodes:
        if inner.name == "DIM":
            continue
        args = inner.args[-1:] if inner.name == "CHECK" else inner.args
        values: list[Value] = [a if isinstance(a, int) else numbers[a] for a in args]
        for register in inner.results:
            numbers[register] = Number(len(inputs) + len(steps))
        steps.append(Step(inner.name, tuple(values)))
    function = ShapeFunction(len(inputs), tuple(steps), tuple(numbers[r] for r in results))
    return ShapeSite(function, tuple(inputs))
