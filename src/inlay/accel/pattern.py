"""Patterns: sub-programs that a device takes, and which command runs them.

    @pattern
    def conv(self, p):
        x, w = p.tensor("x", i8), p.const("w", i8)
        a = p.conv2d(x, w, name="a")
        p.need(lambda m: m.a.groups == 1, "groups {m.a.groups}: one")
        return p.call(a, self.convolve, x=x, w=w, stride=lambda m: m.a.strides[0])

The function is run once and builds a tree of nodes over the operators of the tensor IR as
`fold-quantization` leaves them: products of integers, sums, `requantize`. What it returns says which node is
the result, and which node or number each operand of an instruction is. Types, shapes and limits of the
instruction are conditions without being said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inlay.accel.declare import Access, Format, Instruction, PatternDecl
from inlay.arith.dtype import DType
from inlay.base.diagnostics import error

Number = Callable[[Any], int] | int
"""An immediate: a number, or what gives one for a match."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A value of a pattern; `+` of two is an `add`.

    Attributes:
        name: under which a match has it; empty for none.
        dtypes: that it may have; any where empty.
    """

    name: str
    dtypes: tuple[DType, ...]

    def __add__(self, other: Node) -> Applied:
        return Applied("", (), ("add",), (self, other))


@dataclass(frozen=True, slots=True, eq=False)
class Input(Node):
    """Any value: an operand of the sub-program. `constant` takes constants alone."""

    constant: bool


@dataclass(frozen=True, slots=True, eq=False)
class Applied(Node):
    """The result of an operator.

    Attributes:
        operators: that are taken.
        operands: in order; those of an `add` in either one.
        padded: whether a `pad` of the first operand by numbers, along its last two axes, is a part of it.
        factors: whether further operands, constants, are a part of it (`requantize`).
    """

    operators: tuple[str, ...]
    operands: tuple[Node, ...]
    padded: bool = False
    factors: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """A condition: a function of a match, and what to say where it does not hold."""

    test: Callable[[Any], bool]
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Mapped:
    """Which command runs a sub-program.

    Attributes:
        result: what is computed.
        instruction: that computes it.
        operands: nodes, by operand.
        numbers: of its immediates.
        before: commands that are given before, in order; what they compute, later ones read.
    """

    result: Node
    instruction: Instruction
    operands: dict[str, Node]
    numbers: dict[str, Number]
    before: tuple[Mapped, ...] = ()

    @property
    def steps(self) -> tuple[Mapped, ...]:
        """All commands in order, itself the last."""
        return (*self.before, self)


@dataclass(frozen=True, slots=True, eq=False)
class Tiled:
    """A sub-program for instructions in the memories of the device; they are found by their meaning.

    Attributes:
        result: what is computed.
    """

    result: Node


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A pattern that was built.

    Attributes:
        name: of the function.
        mapped: what it returned.
        needs: its conditions, in order.
    """

    name: str
    mapped: Mapped | Tiled
    needs: tuple[Need, ...]

    @property
    def operators(self) -> frozenset[str]:
        """The operators in it."""
        return frozenset(x for node in below(self.mapped.result) for x in node.operators)

    @property
    def added(self) -> tuple[str, ...]:
        """Operands of the last instruction that the pattern adds to something: they may be broadcast."""
        return () if isinstance(self.mapped, Tiled) else self.added_in(self.mapped)

    def added_in(self, mapped: Mapped) -> tuple[str, ...]:
        """Return operands of one command that the pattern adds to something: they may be broadcast."""
        inside = {x for node in below(self.mapped.result) if "add" in node.operators for x in node.operands}
        return tuple(n for n, x in mapped.operands.items() if isinstance(x, Input) and x in inside)


def below(node: Node) -> Iterator[Applied]:
    """Yield the operators of a tree."""
    if isinstance(node, Applied):
        yield node
        for x in node.operands:
            yield from below(x)


@dataclass(slots=True, eq=False)
class Builder:
    """What pattern functions build with."""

    needs: list[Need] = field(default_factory=list[Need])

    def tensor(self, name: str, *formats: Format) -> Input:
        """Return any value, of one of these formats."""
        return Input(name, tuple(f.dtype for f in formats), constant=False)

    def const(self, name: str, *formats: Format) -> Input:
        """Return any constant, of one of these formats."""
        return Input(name, tuple(f.dtype for f in formats), constant=True)

    def op(self, operator: str | tuple[str, ...], *operands: Node, name: str = "") -> Applied:
        """Return the result of an operator, or of one of several, by their names in the tensor IR."""
        operators = (operator,) if isinstance(operator, str) else operator
        return Applied(name, (), operators, operands)

    def conv2d(self, x: Node, w: Node, *, name: str = "") -> Applied:
        """Return a convolution of integers, [n, c, h, w] with [k, c / groups, r, s], summed in i32.

        A match has `strides`, `pads` (top, left, bottom, right), `dilations`, `groups`, and `outside`: the
        number that padding is made of.
        """
        return Applied(name, (), ("conv_integer",), (x, w), padded=True)

    def dense(self, x: Node, w: Node, *, name: str = "") -> Applied:
        """Return a product of matrices of integers, [m, k] with [k, n], summed in i32."""
        return Applied(name, (), ("matmul_integer",), (x, w))

    def requantize(self, x: Node, *, name: str = "") -> Applied:
        """Return sums as few bits again, with constant factors; a match has its attributes."""
        return Applied(name, (), ("requantize",), (x,), factors=True)

    def need(self, test: Callable[[Any], bool], reason: str) -> None:
        """Take only what a test of a match (`m.name`) holds for.

        Args:
            test: of the match.
            reason: what to say otherwise; braces have expressions over `m`, as in `str.format`.
        """
        self.needs.append(Need(test, reason))

    def map(self, result: Node) -> Tiled:
        """Say that instructions in the memories of the device compute a value, tile by tile.

        Which instructions, tiles, copies and waits is found from the declarations.
        """
        return Tiled(result)

    def call(self, result: Node, instruction: Instruction, **operands: Node | Number) -> Mapped:
        """Say that one command of an instruction computes a value.

        Args:
            result: what is computed: the operand that the instruction writes.
            instruction: which.
            operands: a node of the pattern for each operand that is read, a number or a function from a
                match to one for each immediate.

        Raises:
            CompileError: `accel.declaration`.
        """
        nodes = {n: x for n, x in operands.items() if isinstance(x, Node)}
        numbers = {n: x for n, x in operands.items() if not isinstance(x, Node)}
        read = [n for n, x in instruction.operands.items() if x.access is Access.READ]
        for what, given, needed in (
            ("operands", nodes, read),
            ("immediates", numbers, list(instruction.immediates)),
        ):
            if sorted(given) != sorted(needed):
                raise error(
                    "accel.declaration",
                    f"found the {what} {', '.join(given) or 'none'} of '{instruction.name}', needed "
                    f"{', '.join(needed) or 'none'}",
                )
        return Mapped(result, instruction, nodes, numbers)

    def calls(self, *commands: Mapped) -> Mapped:
        """Say that several commands compute a value, one after the other; the last one computes it.

        What one computes is an operand of later ones: it is in scratch memory meanwhile, and nothing else of
        the program sees it.

        Args:
            commands: each a `p.call`.

        Raises:
            CompileError: `accel.declaration`.
        """
        if not commands:
            raise error("accel.declaration", "found p.calls() without commands, needed one at least")
        return replace(commands[-1], before=commands[:-1])


def build(declared: PatternDecl, device: object) -> Pattern:
    """Return the pattern that a function builds.

    Raises:
        CompileError: `accel.declaration`.
    """
    builder = Builder()
    mapped = declared.build(device, builder)
    if not isinstance(mapped, Mapped | Tiled):
        raise error(
            "accel.declaration",
            f"found the pattern '{declared.name}' to return {type(mapped).__name__}, needed a p.call(...) "
            "or a p.map(...)",
        )
    if isinstance(mapped, Mapped):
        _check_order(mapped.steps)
    return Pattern(declared.name, mapped, tuple(builder.needs))


def _check_order(commands: Sequence[Mapped]) -> None:
    """Refuse operands inside of a pattern that no command computes before.

    Raises:
        CompileError: `accel.declaration`.
    """
    made: list[Node] = []
    for c in commands:
        for name, x in c.operands.items():
            if isinstance(x, Applied) and x not in made:
                raise error(
                    "accel.declaration",
                    f"found the operand '{name}' of '{c.instruction.name}' to be a result of "
                    f"{' or '.join(x.operators)}, which no command computes before",
                )
        made.append(c.result)
