"""Gathers the integer work of a block: shape arithmetic, and the checks on it.

What a block computes with sizes is spread over it: a check here, the bytes of a storage there. Most
of it needs nothing but a few dims that are known when the block begins. So integer instructions move
up, to the first place where what they need is there, and become one `Shapes` node: a straight line
that can be compiled to one native function. A relation between input dims is thereby tested before
any work is done.

**What is overtaken.** Instructions of integers keep their order among themselves, so of two that fail
the same one is reported. They overtake instructions that make and take apart values, allocate, and
run kernels that cannot fail: of those only a lack of memory or an impossible size could have been
reported instead, and where a check fails too, it says more. Nothing moves over a call, a kernel that
may fail or that the outside sees, the reading of a tensor's contents, a branch or a loop. So what did
not run does not run, and a check does not come before a failure that a user would have seen.

Small groups stay where they are, unless they hold a check that moved. Beyond `MOST_NATIVE` instructions
of a program, groups are treated as they are without native code.

Cost: linear in the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from inlay.bytecode.isa import MAX_SHAPE_INPUTS, Kind
from inlay.bytecode.program import ImageBody, Kernel
from inlay.vm.code import Branch, Code, CodeBlock, Instruction, Loop, Node, Register, Shapes

LEAST = 3
"""Instructions that are worth a call of native code; two gain little (docs/design/0014)."""

_MOST = 256
"""Instructions of one function: code for it is made in time that may grow faster than its length."""

MOST_NATIVE = 10_000
"""Instructions of a program that become native code, at most: it takes up to 0.2 ms for one."""

_INTEGER = frozenset("ADD SUB MUL FLOORDIV MOD MIN MAX NEG EQ NE LT LE AND OR NOT SELECT CHECK".split())
_OVERTAKEN = frozenset(
    (
        "CONST STORAGE TENSOR ALLOCATE RESHAPE DIM DIMS ELEMENTS TUPLE CONSTRUCT CLOSURE PROJECT FIELD "
        "UNPACK TAG CELL_NEW CELL_READ CELL_WRITE"
    ).split()
)


@dataclass(slots=True, eq=False)
class _Group:
    """Instructions that can run at one place.

    Attributes:
        nodes: in order.
        inputs: what they take from outside; at most so many as native code may take.
        late: registers that are defined behind the place.
        overtakes: whether something is between the place and the end.
        moved: whether a check was moved over something.
        gone: whether the instructions are at the place, not where they came from.
    """

    nodes: list[Instruction] = field(default_factory=list[Instruction])
    inputs: set[tuple[Register, object]] = field(default_factory=set[tuple[Register, object]])
    defined: set[Register] = field(default_factory=set[Register])
    late: set[Register] = field(default_factory=set[Register])
    overtakes: bool = False
    moved: bool = False
    gone: bool = False

    def add(self, node: Instruction) -> bool:
        """Add an instruction, if all it needs is known at the place and there is room."""
        if len(self.nodes) >= _MOST or any(a in self.late for a in node.args):
            return False
        axis = node.operands[0] if node.name == "DIM" else None
        taken = {(a, axis) for a in node.args if isinstance(a, Register) and a not in self.defined}
        if len(self.inputs | taken) > MAX_SHAPE_INPUTS:
            return False
        self.inputs |= taken
        self.defined.update(node.results)
        self.nodes.append(node)
        self.moved |= node.name == "CHECK" and self.overtakes
        return True


def gather_shapes(code: Code, kernels: Sequence[Kernel], *, native: int) -> int:
    """Gather the integer work of each block of a function of a program with these kernels.

    Args:
        native: how many instructions may become native code. Without any only checks move.

    Returns:
        How many more may.
    """
    pending = [code.body]
    while pending:
        block = pending.pop()
        for node in block.nodes:
            match node:
                case Branch(arms=arms):
                    pending.extend(arms)
                case Loop(body=body):
                    pending.append(body)
                case _:
                    pass
        native -= _gather(block, kernels, native)
    return native


def _gather(block: CodeBlock, kernels: Sequence[Kernel], native: int) -> int:
    """Gather in one block; return how many instructions become native code."""
    placed: list[Node | _Group | tuple[_Group, Instruction]] = []
    group: _Group | None = None
    for node in block.nodes:
        if isinstance(node, Instruction) and _is_integer(node):
            if group is None or not group.add(node):
                group = _Group()
                placed.append(group)
                group.add(node)
            placed.append((group, node))
            continue
        placed.append(node)
        if not (isinstance(node, Instruction) and _is_overtaken(node, kernels)):
            group = None
        elif group is not None:
            group.overtakes = True
            group.late.update(node.results)
    nodes: list[Node] = []
    used = 0
    for item in placed:
        match item:
            case _Group(nodes=inner):
                if LEAST <= len(inner) <= native - used:
                    nodes.append(Shapes(tuple(inner)))
                    used += len(inner)
                    item.gone = True
                elif item.moved:
                    nodes.extend(inner)
                    item.gone = True
            case (whole, node):
                if not whole.gone:
                    nodes.append(node)
            case _:
                nodes.append(item)
    block.nodes[:] = nodes
    return used


def _is_integer(node: Instruction) -> bool:
    kind = Kind.INT
    if node.name == "DIM":
        kind = Kind.TENSOR
    elif node.name not in _INTEGER:
        return False
    return all(isinstance(a, int) or a.kind is kind for a in node.args)


def _is_overtaken(node: Instruction, kernels: Sequence[Kernel]) -> bool:
    if node.name != "INVOKE":
        return node.name in _OVERTAKEN
    kernel = kernels[cast("int", node.operands[0])]
    return isinstance(kernel.body, ImageBody) and not kernel.assertions and not kernel.ordered
