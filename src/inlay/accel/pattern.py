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
from inlay.accel.engines import Stream
from inlay.arith.dtype import I32, DType
from inlay.base.diagnostics import error

Number = Callable[[Any], int] | int
"""An immediate: a number, or what gives one for a match."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A value of a pattern; `+` of two is an `add`.

    A constant that is added to a product is its bias: products without one have a bias of 0.

    Attributes:
        name: under which a match has it; empty for none.
        dtypes: that it may have; any where empty.
    """

    name: str
    dtypes: tuple[DType, ...]

    def __add__(self, other: Node) -> Applied:
        for x, c in ((self, other), (other, self)):
            if isinstance(x, Applied) and isinstance(c, Input) and x.is_product and c.is_bias:
                return Applied("", (), ("add",), (x, c), otherwise=0)
        return Applied("", (), ("add",), (self, other))


@dataclass(frozen=True, slots=True, eq=False)
class Input(Node):
    """Any value: an operand of the sub-program. `constant` takes constants alone."""

    constant: bool

    @property
    def is_bias(self) -> bool:
        """Whether it is a constant that sums of products may have added."""
        return self.constant and self.dtypes == (I32,)


@dataclass(frozen=True, slots=True, eq=False)
class Applied(Node):
    """The result of an operator.

    Attributes:
        operators: that are taken.
        operands: in order; those of an `add` in either one.
        padded: whether a `pad` of the first operand by numbers, along its last two axes, is a part of it.
        factors: whether further operands, constants, are a part of it (`requantize`).
        parts: where it is one of so many equal parts of the last axis, how many; 0 for anything else.
        otherwise: what its second operand is where the operator is not there, which then changes nothing;
            None where it has to be there.
        said: attributes that it must have, by name.
    """

    operators: tuple[str, ...]
    operands: tuple[Node, ...]
    padded: bool = False
    factors: bool = False
    parts: int = 0
    otherwise: float | None = None
    said: tuple[tuple[str, object], ...] = ()

    @property
    def is_product(self) -> bool:
        """Whether it is a sum of products."""
        return self.operators in (("conv_integer",), ("matmul_integer",))

    @property
    def scales(self) -> tuple[Node, ...]:
        """The factors of a `requantize`, where they are operands of the pattern."""
        return self.operands[1:] if self.operators == ("requantize",) else ()


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """A step that is done for each row of a sequence (`accel/repeat.py`).

    Attributes:
        row: what a step reads of the sequence.
        states: what it reads of the step before.
        steps: what it gives the next one, for each state.
        over: the sequence.
        start: states of the first step.
        times: the fewest and the most steps.
    """

    row: Input
    states: tuple[Input, ...]
    steps: tuple[Node, ...]
    over: Node
    start: tuple[Node, ...]
    times: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Repeated(Node):
    """What a repeated step leaves.

    Attributes:
        repeat: which.
        state: the number of the state after the last step; None for the first states of all steps, as rows.
    """

    repeat: Repeat
    state: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """A condition: a function of a match, and what to say where it does not hold."""

    test: Callable[[Any], bool]
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Mapped:
    """Which command runs a sub-program.

    Attributes:
        results: what is computed, for each operand that is written.
        instruction: that computes it.
        operands: nodes, by operand.
        numbers: of its immediates.
        before: commands that are given before, in order; what they compute, later ones read.
    """

    results: tuple[Node, ...]
    instruction: Instruction
    operands: dict[str, Node]
    numbers: dict[str, Number]
    before: tuple[Mapped, ...] = ()

    @property
    def result(self) -> Node:
        """The first of its results."""
        return self.results[0]

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
        if isinstance(self.mapped.result, Repeated):
            return ()  # what is added in a step has no axis of the result
        inside = {x for node in below(self.mapped.result) if "add" in node.operators for x in node.operands}
        return tuple(n for n, x in mapped.operands.items() if isinstance(x, Input) and x in inside)

    def factors_in(self, mapped: Mapped) -> tuple[str, ...]:
        """Return operands of one command that are factors of a `requantize`."""
        if isinstance(self.mapped, Tiled) or isinstance(self.mapped.result, Repeated):
            return ()
        inside = {x for r in self.mapped.results for node in below(r) for x in node.scales}
        return tuple(n for n, x in mapped.operands.items() if x in inside)


def below(node: Node) -> Iterator[Applied]:
    """Yield the operators of a tree; of a repeated step those of one."""
    if isinstance(node, Applied):
        yield node
        for x in node.operands:
            yield from below(x)
    elif isinstance(node, Repeated):
        for x in (*node.repeat.steps, node.repeat.over, *node.repeat.start):
            yield from below(x)


@dataclass(slots=True, eq=False)
class Builder:
    """What pattern functions build with."""

    pattern: str = ""
    needs: list[Need] = field(default_factory=list[Need])

    def tensor(self, name: str, *formats: Format) -> Input:
        """Return any value, of one of these formats."""
        return Input(name, tuple(f.dtype for f in formats), constant=False)

    def const(self, name: str, *formats: Format) -> Input:
        """Return any constant, of one of these formats."""
        return Input(name, tuple(f.dtype for f in formats), constant=True)

    def op(self, operator: str | tuple[str, ...], *operands: Node, name: str = "", **said: object) -> Applied:
        """Return the result of an operator, or of one of several, by their names in the tensor IR.

        Args:
            operator: its name, or several.
            operands: in order.
            name: under which a match has its shape, `dtype` and attributes.
            said: attributes that it must have, by name (docs/reference/ops.md).
        """
        operators = (operator,) if isinstance(operator, str) else operator
        return Applied(name, (), operators, operands, said=tuple(said.items()))

    def conv2d(self, x: Node, w: Node, *, name: str = "") -> Applied:
        """Return a convolution of integers, [n, c, h, w] with [k, c / groups, r, s], summed in i32.

        A match has `strides`, `pads` (top, left, bottom, right), `dilations`, `groups`, and `outside`: the
        number that padding is made of.
        """
        return Applied(name, (), ("conv_integer",), (x, w), padded=True)

    def dense(self, x: Node, w: Node, *, name: str = "") -> Applied:
        """Return a product of matrices of integers, [m, k] with [k, n], summed in i32."""
        return Applied(name, (), ("matmul_integer",), (x, w))

    def requantize(self, x: Node, *factors: Node, rounding: str = "", name: str = "") -> Applied:
        """Return sums as few bits again, with constant factors; a match has its attributes.

        Those are `zero`, `low`, `high` and `rounding`.

        Args:
            x: sums.
            factors: what `p.call` gives an instruction: a float scale, or a multiplier and a shift, each a
                `p.const`; one for each channel, or one for all, which the instruction gets once for each.
                None for `p.map`, which finds them.
            rounding: that it must have (`tflite`, `half_even`, `half_up`, `half_away`).
            name: under which a match has it.

        Raises:
            CompileError: `accel.declaration`.
        """
        if len(factors) > 2:
            raise error(
                "accel.declaration",
                f"found {len(factors)} factors of p.requantize, needed a scale, or a multiplier and a shift",
            )
        said = (("rounding", rounding),) if rounding else ()
        return Applied(name, (), ("requantize",), (x, *factors), factors=not factors, said=said)

    def scaled_sum(self, x: Node, z: Node) -> Applied:
        """Return the sum of two tensors of integers with scales of their own, in i32.

        Each is taken less its zero point, times a power of two, and requantized to a scale that both have, as
        TFLite adds bytes. A `p.requantize` behind it makes few bits of it again.
        """
        return self.requantize(self._weighted(x)) + self.requantize(self._weighted(z))

    def weighted_sum(self, x: Node, z: Node) -> Applied:
        """Return the sum of two tensors of integers with scales of their own, in i32.

        Each is taken less its zero point, times an integer: so QDQ models in ONNX add bytes. A `p.requantize`
        by a power of two is behind it.
        """
        return self._weighted(x) + self._weighted(z)

    def _weighted(self, x: Node) -> Applied:
        zero, factor = (Input(f"{n} of {x.name}", (I32,), constant=True) for n in ("zero", "factor"))
        return self.op("mul", self.maybe("add", self.op("cast", x), zero, otherwise=0), factor)

    def part(self, x: Node, of: int, *, name: str = "") -> Applied:
        """Return one of several equal parts of the last axis; a match has `index`, which one it is."""
        return Applied(name, (), ("slice",), (x,), parts=of)

    def maybe(self, operator: str, x: Node, c: Node, *, otherwise: float) -> Applied:
        """Return the result of an operator that may be missing: then `c` is a number that changes nothing."""
        return Applied("", (), (operator,), (x, c), otherwise=otherwise)

    def repeat(
        self,
        step: Callable[..., Sequence[Node]],
        over: Node,
        start: Sequence[Node],
        *,
        times: tuple[int, int],
        name: str = "",
    ) -> tuple[Repeated, ...]:
        """Return what is left of a step that is done for each row of a sequence, a loop of known trip count.

        The first is the first state after each step, as rows; the others are the states after the last one.
        Those that the program does not read are scratch memory of the command. A match has `backward`, which
        is 1 where the first step reads the last row, and `turns`.

        Args:
            step: from a row of the sequence, and the states before, the states after.
            over: the sequence, rows along its first axis.
            start: states before the first step.
            times: the fewest and the most steps; a loop of as many turns is unrolled where that makes a
                match.
            name: under which a match has it.

        Raises:
            CompileError: `accel.declaration`.
        """
        row = Input(name, (), constant=False)
        states = tuple(Input("", (), constant=False) for _ in start)
        steps: tuple[Node, ...] = tuple(step(row, *states))
        if len(steps) != len(states) or not steps or not all(isinstance(x, Applied) for x in steps):
            raise error(
                "accel.declaration",
                f"found a step of p.repeat that gives {len(steps)} results of operators, needed one for each "
                f"of {len(states)} states",
            )
        if not 1 <= times[0] <= times[1]:
            raise error(
                "accel.declaration", f"found the times {times[0]} to {times[1]}, needed 1 <= fewest <= most"
            )
        made = Repeat(row, states, steps, over, tuple(start), times)
        return (Repeated("", (), made, None), *(Repeated("", (), made, i) for i in range(len(states))))

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

    def call(
        self, result: Node | Sequence[Node], instruction: Instruction, **operands: Node | Number
    ) -> Mapped:
        """Say that one command of an instruction computes a value, or several.

        Args:
            result: what is computed: the operand that the instruction writes, or one for each in their order.
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
                    f"found the {what} {', '.join(given) or 'none'} of '{instruction.name}' in the pattern "
                    f"'{self.pattern}', needed {', '.join(needed) or 'none'}",
                )
        results, written = (result,) if isinstance(result, Node) else tuple(result), instruction.writes
        if len(results) != len(written):
            raise error(
                "accel.declaration",
                f"found {len(results)} results of '{instruction.name}', which writes {', '.join(written)}",
            )
        return Mapped(results, instruction, nodes, numbers)

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
    builder = Builder(declared.name)
    mapped = declared.build(device, builder)
    if not isinstance(mapped, Mapped | Tiled):
        raise error(
            "accel.declaration",
            f"found the pattern '{declared.name}' to return {type(mapped).__name__}, needed a p.call(...) "
            "or a p.map(...)",
        )
    is_stream = isinstance(getattr(device, "emit", None), Stream)
    if is_stream != isinstance(mapped, Tiled):
        given, needed = (
            ("a p.map(...)", "p.call(...)") if isinstance(mapped, Tiled) else ("a p.call(...)", "p.map(...)")
        )
        kind = "are a stream (`emit`)" if is_stream else "are calls (`emit`)"
        raise error(
            "accel.declaration",
            f"found the pattern '{declared.name}' to end with {given}, needed {needed}: its commands {kind}",
        )
    results = mapped.results if isinstance(mapped, Mapped) else (mapped.result,)
    for node in (x for r in results for x in below(r)):
        _check_factors(node, is_call=isinstance(mapped, Mapped))
    if isinstance(mapped, Mapped):
        _check_order(mapped.steps)
        _check_inside(mapped)
    return Pattern(declared.name, mapped, tuple(builder.needs))


def _check_factors(node: Applied, *, is_call: bool) -> None:
    """Refuse a requantize whose factors a call would not be given, or that tiles would not find.

    Raises:
        CompileError: `accel.declaration`.
    """
    if node.operators == ("requantize",) and node.factors is is_call:
        how = (
            "without its factors, which the instruction is given: p.requantize(sums, mul, shift) or "
            "p.requantize(sums, scale), each a p.const"
            if is_call
            else "with factors, which p.map finds from the instructions: p.requantize(sums)"
        )
        raise error("accel.declaration", f"found p.requantize {how}")


def _check_inside(mapped: Mapped) -> None:
    """Refuse operands that are no values of the pattern.

    Raises:
        CompileError: `accel.declaration`.
    """
    inside = {x for r in mapped.results for x in _nodes(r)}
    for c in mapped.steps:
        for name, x in c.operands.items():
            if x not in inside:
                raise error(
                    "accel.declaration",
                    f"found the operand '{name}' of '{c.instruction.name}' to be no value of the pattern",
                    hint="each p.tensor(...) is another value: give those that the result is made of",
                )


def _nodes(node: Node) -> Iterator[Node]:
    """Yield all values of a tree."""
    yield node
    if isinstance(node, Repeated):
        yield from (x for y in (node.repeat.over, *node.repeat.start, *node.repeat.steps) for x in _nodes(y))
    elif isinstance(node, Applied):
        yield from (x for y in node.operands for x in _nodes(y))


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
