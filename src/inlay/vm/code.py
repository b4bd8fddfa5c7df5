"""Structured code over registers: between the tensor IR and the stack machine.

The stack machine names values by position, and a position is known only once all code before it is.
So functions are first lowered to *registers*, each defined once, in *blocks* that nest as control
does; then `last_use` finds where each register dies on each path; then `emit` lays registers into
slots. Tuples and shapes are gone at this level: they were flattened into registers.

    block  ::= node* end
    node   ::= Instruction                    an instruction of the machine
             | Shapes {Instruction, ...}       a straight line of integer instructions
             | Branch selector {block, ...}   one arm runs; an arm yields values to the join
             | Loop params init {block}       the body runs until it yields to the join
    end    ::= Yield join values              leave the Branch or Loop that owns the join
             | Continue loop values           run the body of the loop again
             | Return values | TailCall ... | TailCallClosure ... | nothing (a node never ends)

A `Branch` or `Loop` in tail position has no join: all its arms end otherwise, and it is the last node
of a block without end. An operand is a register or a plain integer, which costs no slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inlay.bytecode.builder import FunctionBuilder, OperandValue
from inlay.bytecode.isa import Kind


@dataclass(frozen=True, slots=True, eq=False)
class Register:
    """A value that one instruction, join or parameter defines. Identity is the object."""

    kind: Kind


Operand = Register | int


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """Where the ways out of a branch or loop meet; each brings a value for each register."""

    results: tuple[Register, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """An instruction of the machine: `results = name operands (args)`."""

    name: str
    operands: tuple[OperandValue, ...]
    args: tuple[Operand, ...]
    results: tuple[Register, ...]
    span: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """One of several blocks.

    Attributes:
        selector: for the two arms of a condition, not 0 takes the first. For a switch, an index
            into `targets`; anything else takes the last of them.
        arms: the blocks.
        join: where they meet; None in tail position.
        targets: for a switch, the arm of each value of the selector.
    """

    selector: Operand
    arms: tuple[CodeBlock, ...]
    join: Join | None
    targets: tuple[int, ...] | None = None
    span: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The parameters of a loop: what `Continue` goes back to."""

    params: tuple[Register, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A block that runs again for each `Continue`, with new values of the parameters."""

    head: Head
    init: tuple[Operand, ...]
    body: CodeBlock
    join: Join | None
    span: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """Integer instructions that are executed one after the other, or by one native function.

    What they take from outside stays where it is until all have run.
    """

    nodes: tuple[Instruction, ...]

    @property
    def span(self) -> str:
        """Where the first of them comes from."""
        return self.nodes[0].span

    @property
    def results(self) -> tuple[Register, ...]:
        """All that they define."""
        return tuple(register for node in self.nodes for register in node.results)

    @property
    def inputs(self) -> tuple[Register, ...]:
        """What they take from outside, each once, in order."""
        own = set(self.results)
        used = [a for node in self.nodes for a in node.args if isinstance(a, Register)]
        return tuple(dict.fromkeys(a for a in used if a not in own))


Node = Instruction | Shapes | Branch | Loop


@dataclass(frozen=True, slots=True, eq=False)
class Yield:
    """Leave for a join."""

    join: Join
    values: tuple[Operand, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Continue:
    """Run the loop with this head again."""

    head: Head
    values: tuple[Operand, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Return:
    """Give values to the caller."""

    values: tuple[Operand, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TailCall:
    """Return what a function returns, in the frame of the caller."""

    function: FunctionBuilder
    values: tuple[Operand, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TailCallClosure:
    """Return what a closure returns: `values` are the closure, then its arguments."""

    values: tuple[Operand, ...]


End = Yield | Continue | Return | TailCall | TailCallClosure


@dataclass(slots=True, eq=False)
class CodeBlock:
    """Nodes in order, then an end. Filled while lowering, not changed afterwards.

    Attributes:
        nodes: what runs.
        end: where control goes; None when the last node never ends.
    """

    nodes: list[Node] = field(default_factory=list["Node"])
    end: End | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """A function over registers."""

    builder: FunctionBuilder
    params: tuple[Register, ...]
    body: CodeBlock
