"""Where the patterns of an architecture are in a program, and for what is not taken the reason.

A pattern is laid over a call of an operator, from its result towards its operands. Values inside of it have
no other reader, so what is found is convex. What is found becomes a command: dims and immediates of its
instruction are read off the types and attributes, and all that speaks against it is kept: conditions of the
pattern, and limits of the instruction.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from inlay.accel.accelerator import Architecture
from inlay.accel.choices import choose
from inlay.accel.declare import Dim, Instruction
from inlay.accel.pattern import Applied, Input, Mapped, Node, Pattern, Tiled, build
from inlay.accel.tiled import TiledCommand, Tiler
from inlay.analysis.blocks import count_uses, nested
from inlay.arith.bounds import bounds
from inlay.arith.expr import Int, Sym, lit
from inlay.ir.expr import Call, Const, Expr, OpRef, Var
from inlay.ir.types import TensorType
from inlay.ir.walk import spine
from inlay.ops.padding import PadAttrs, PadMode

_COMPILER = Path(__file__).parent.parent
_COMMUTATIVE = ("add", "mul")


class Mismatch(Exception):
    """A pattern is not here.

    Attributes:
        depth: how many operators had been found.
        reason: what was found in the place of what.
    """

    def __init__(self, depth: int, reason: str) -> None:
        super().__init__(reason)
        self.depth, self.reason = depth, reason


@dataclass(frozen=True, slots=True)
class Block:
    """A block in A-normal form: what its variables are, and how often each is read."""

    calls: Mapping[Var, Call]
    uses: Mapping[Var, int]


def blocks(body: Expr) -> Iterator[Block]:
    """Yield the blocks of a function."""
    uses, pending = count_uses(body), [body]
    while pending:
        lets, tail = spine(pending.pop())
        pending += nested(tail)
        calls: dict[Var, Call] = {}
        for let in lets:
            pending += nested(let.value)
            if isinstance(let.value, Call) and isinstance(let.value.callee, OpRef):
                calls[let.var] = let.value
        yield Block(calls, uses)


class Bound:
    """A value of a match, as conditions see it: `shape`, `dtype`, and the attributes of its operator."""

    def __init__(self, type: TensorType, attrs: Mapping[str, Any]) -> None:
        self.shape, self.dtype = type.shape, type.dtype
        self._attrs = attrs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._attrs:
            raise AttributeError(f"it has no '{name}', but {', '.join(self._attrs) or 'nothing'}")
        return self._attrs[name]


class Named:
    """The named values of a match: `m.x`."""

    def __init__(self, values: Mapping[str, Bound]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Bound:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"nothing is called '{name}', but {', '.join(self._values)}")
        return self._values[name]


@dataclass(slots=True)
class Overlay:
    """A pattern being laid over a program.

    Attributes:
        block: where.
        outlined: whether constants of the pattern may have become parameters.
        values: what each node is.
        calls: operations inside, from the result on.
        attrs: attributes of operators, by node.
    """

    block: Block
    outlined: bool
    values: dict[Node, Expr] = field(default_factory=dict[Node, Expr])
    calls: list[Call] = field(default_factory=list[Call])
    attrs: dict[Node, dict[str, Any]] = field(default_factory=dict[Node, dict[str, Any]])

    def copy(self) -> Overlay:
        """Return one that can be tried and dropped."""
        return replace(self, values=dict(self.values), calls=list(self.calls), attrs=dict(self.attrs))

    def lay(self, node: Node, e: Expr, *, inner: bool) -> None:
        """Lay a node over an expression.

        Raises:
            Mismatch: it is something else.
        """
        if node in self.values:
            if self.values[node] is not e:
                raise self._mismatch("another value where the pattern has one twice")
            return
        if not isinstance(e.type, TensorType):
            raise self._mismatch("no tensor")
        if node.dtypes and e.type.dtype not in node.dtypes:
            raise self._mismatch(f"{node.name} of {e.type.dtype}: {' or '.join(d.name for d in node.dtypes)}")
        match node:
            case Input():
                if node.constant and not self.outlined and not isinstance(e, Const):
                    raise self._mismatch(f"{node.name} is no constant")
                self.values[node] = e
            case Applied():
                self._applied(node, e, inner=inner)
            case _:
                raise AssertionError("nodes are inputs or results of operators")

    def _applied(self, node: Applied, e: Expr, *, inner: bool) -> None:
        call = self.block.calls.get(e) if isinstance(e, Var) else None
        wanted = " or ".join(node.operators)
        if call is None or not isinstance(call.callee, OpRef):
            raise self._mismatch(f"an operand of it is no {wanted}")
        name = call.callee.op.name
        if name not in node.operators:
            raise self._mismatch(f"{name} where {wanted} is taken")
        if inner and isinstance(e, Var) and self.block.uses.get(e, 0) != 1:
            raise self._mismatch(f"the result of {name} is read elsewhere, too")
        self.values[node] = e
        self.calls.append(call)
        self.attrs[node] = _attributes(call.callee.attrs)
        args = list(call.args)
        if node.padded:
            args[0] = self._without_pad(node, args[0])
        if node.factors:
            args = self._without_factors(node, args)
        if len(args) != len(node.operands):
            raise self._mismatch(f"{name} of {len(args)} operands")
        if name in _COMMUTATIVE:
            self._either(node, args)
        else:
            for part, arg in zip(node.operands, args, strict=True):
                self.lay(part, arg, inner=True)

    def _either(self, node: Applied, args: list[Expr]) -> None:
        """Lay the operands of a commutative operator in one order, or else in the other."""
        tried = self.copy()
        try:
            for part, arg in zip(node.operands, args, strict=True):
                tried.lay(part, arg, inner=True)
        except Mismatch as first:
            try:
                for part, arg in zip(node.operands, reversed(args), strict=True):
                    self.lay(part, arg, inner=True)
            except Mismatch as second:
                raise max(first, second, key=lambda m: m.depth) from None
        else:
            self.values, self.calls, self.attrs = tried.values, tried.calls, tried.attrs

    def _without_pad(self, node: Applied, x: Expr) -> Expr:
        """Take a pad by numbers into the convolution behind it."""
        attrs = self.attrs[node]
        attrs["pads"] = tuple(attrs["pads"]) or (0, 0, 0, 0)
        attrs.setdefault("outside", 0)
        call = self.block.calls.get(x) if isinstance(x, Var) else None
        if call is None or not isinstance(x, Var) or not isinstance(call.callee, OpRef) or any(attrs["pads"]):
            return x
        pads = _constant_pad(call)
        if pads is None or self.block.uses.get(x, 0) != 1:
            return x
        (attrs["pads"], attrs["outside"]) = pads
        self.calls.append(call)
        return call.args[0]

    def _without_factors(self, node: Applied, args: list[Expr]) -> list[Expr]:
        """Take constant operands behind the first into a requantize."""
        factors = tuple(args[1:])
        if not self.outlined and not all(isinstance(x, Const) for x in factors):
            raise self._mismatch("a factor is no constant")
        self.attrs[node]["factors"] = factors
        return args[:1]

    def _mismatch(self, reason: str) -> Mismatch:
        return Mismatch(len(self.calls), reason)


def _attributes(attrs: object) -> dict[str, Any]:
    names = getattr(type(attrs), "__dataclass_fields__", {})
    return {name: getattr(attrs, name) for name in names}


def _constant_pad(call: Call) -> tuple[tuple[int, ...], int] | None:
    """Return the pads of the last two axes, and the number, of a pad of four axes by numbers."""
    assert isinstance(call.callee, OpRef), "operators are called"
    attrs, pads = call.callee.attrs, call.args[1] if len(call.args) > 1 else None
    if not isinstance(attrs, PadAttrs) or attrs.mode is not PadMode.CONSTANT or not isinstance(pads, Const):
        return None
    numbers = [e.value for e in pads.value] if isinstance(pads.value, tuple) else []
    if len(numbers) != 8 or None in numbers or any(numbers[i] for i in (0, 1, 4, 5)):
        return None
    value = 0
    if len(call.args) > 2:
        fill = call.args[2]
        if not isinstance(fill, Const) or not isinstance(fill.value, np.ndarray):
            return None
        value = int(fill.value.item())
    found = tuple(numbers[i] or 0 for i in (2, 3, 6, 7))
    return None if min(found) < 0 else (found, value)


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """What a device is told to do.

    Attributes:
        pattern: that was found.
        calls: the operations that it does, the result last.
        instruction: that does it.
        operands: the value of each operand; of the one that is written, the result.
        sizes: of dims and immediates of the instruction.
        added: operands that are broadcast against the result.
        reasons: all that speaks against it; none where the device can do it.
        before: commands that are given before, in order; their results are in scratch memory.
    """

    pattern: str
    calls: tuple[Call, ...]
    instruction: Instruction
    operands: Mapping[str, Expr]
    sizes: Mapping[Sym, Int]
    added: tuple[str, ...]
    reasons: tuple[str, ...]
    before: tuple[Command, ...] = ()

    @property
    def steps(self) -> tuple[Command, ...]:
        """All commands in order, itself the last."""
        return (*self.before, self)

    def constant(self, name: str, arch: Architecture) -> np.ndarray | None:
        """Return the array of an operand that is a constant, as its instruction reads it."""
        value = self.operands[name]
        if not isinstance(value, Const) or not isinstance(value.value, np.ndarray):
            return None
        shape = _spread(self.instruction, name, value) if name in self.added else None
        if shape is None:
            return np.ascontiguousarray(value.value)
        wanted = [arch.number(e, self.sizes).value for e in self.instruction.operands[name].shape]
        assert None not in wanted, "sizes of constants are numbers"
        whole = value.value.reshape([e.value or 0 for e in shape])
        return np.ascontiguousarray(np.broadcast_to(whole, [n or 0 for n in wanted]))

    def cycles(self, arch: Architecture) -> Int:
        """Return how long it takes, over the dims of the program."""
        own = arch.number(self.instruction.cycles, self.sizes) + arch.number(type(arch.device).launch_cycles)
        return sum((c.cycles(arch) for c in self.before), own)


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns of an architecture, built."""

    arch: Architecture
    patterns: tuple[Pattern, ...]
    tiler: Tiler

    @staticmethod
    def of(arch: Architecture) -> Patterns:
        """Build the patterns of an architecture.

        Raises:
            CompileError: `accel.declaration`.
        """
        declared = arch.description.patterns.values()
        return Patterns(arch, tuple(build(p, arch.device) for p in declared), Tiler(arch))

    def at(self, var: Var, block: Block, *, outlined: bool = False) -> Iterator[Found | Mismatch]:
        """Yield for each pattern the command that computes a value, or why it is not that pattern."""
        for p in self.patterns:
            overlay = Overlay(block, outlined)
            try:
                overlay.lay(p.mapped.result, var, inner=False)
                yield self._found(p, p.mapped, overlay)
            except Mismatch as failure:
                yield failure

    def _found(self, p: Pattern, mapped: Mapped | Tiled, overlay: Overlay) -> Found:
        if isinstance(mapped, Mapped):
            return _command(self.arch, p, mapped, overlay)
        reasons = list(_unmet(p, _named(overlay)))
        calls = tuple(reversed(overlay.calls))
        return self.tiler.command(p.name, calls, mapped.result, overlay.values, overlay.attrs, reasons)


Found = Command | TiledCommand
"""What a pattern became: a command, or a stream of them."""


def _unmet(p: Pattern, m: Named) -> Iterator[str]:
    """Yield the reasons of conditions that do not hold; a fault in one is a reason."""
    try:
        yield from [n.reason.format(m=m) for n in p.needs if not n.test(m)]
    except Exception as failure:  # noqa: BLE001 (code of others: the operation runs elsewhere, with the reason)
        yield fault_of(failure)


def _command(arch: Architecture, p: Pattern, mapped: Mapped, found: Overlay) -> Command:
    """Return the command for a pattern that was found; reasons against it are in it."""
    m, i = _named(found), mapped.instruction
    operands = {name: found.values[node] for name, node in mapped.operands.items()}
    operands[i.written] = found.values[mapped.result]
    sizes: dict[Sym, Int] = {}
    reasons: list[str] = []
    try:
        reasons += [n.reason.format(m=m) for n in p.needs if not n.test(m)]
        for name, number in mapped.numbers.items():
            value = number if isinstance(number, int) else number(m)
            imm = i.immediates[name]
            sizes[imm.sym] = lit(value)
            if not imm.low <= value <= imm.high:
                reasons.append(f"{name} = {value}: {imm.low} to {imm.high}")
    except Exception as failure:  # noqa: BLE001 (code of others: the operation runs elsewhere, with the reason)
        reasons.append(fault_of(failure))
    else:
        reasons += _shapes(arch, i, p.added_in(mapped), operands, sizes)
        reasons += _beyond(arch, sizes)
        if not reasons:
            chosen, why = choose(arch, i, sizes)
            reasons += why
            sizes |= chosen
    calls, added = tuple(reversed(found.calls)), p.added_in(mapped)
    before = tuple(_command(arch, p, x, found) for x in mapped.before)
    reasons += [r for c in before for r in c.reasons if r not in reasons]
    return Command(p.name, calls, i, operands, sizes, added, tuple(reasons), before)


def fault_of(failure: Exception) -> str:
    """Return what failed in a description, and where."""
    frames = traceback.extract_tb(failure.__traceback__)
    last = next((f for f in reversed(frames) if not _is_ours(f.filename)), frames[-1])
    return f"{type(failure).__name__} at {Path(last.filename).name}:{last.lineno}: {failure}"


def _is_ours(file: str) -> bool:
    """Whether a file is of the compiler, and no description."""
    path = Path(file)
    return path.is_relative_to(_COMPILER) and not path.is_relative_to(_COMPILER / "accelerators")


def _named(found: Overlay) -> Named:
    values: dict[str, Bound] = {}
    for node, e in found.values.items():
        if node.name:
            assert isinstance(e.type, TensorType), "nodes are tensors"
            values[node.name] = Bound(e.type, found.attrs.get(node, {}))
    return Named(values)


def _shapes(
    arch: Architecture,
    i: Instruction,
    added: tuple[str, ...],
    operands: Mapping[str, Expr],
    sizes: dict[Sym, Int],
) -> list[str]:
    """Find the sizes of dims that give operands the shapes that they have; return what does not fit."""
    reasons: list[str] = []
    for name, value in operands.items():
        assert isinstance(value.type, TensorType), "operands are tensors"
        if value.type.dtype is not i.operands[name].dtype:
            reasons.append(f"{name} of {value.type.dtype}: {i.operands[name].dtype}")
        if name not in added:
            reasons += _unify(arch, i, name, value.type.shape, sizes)
    for name in added:
        shape = _spread(i, name, operands[name])
        if shape is None:
            reasons.append(f"{name} is added along other axes than those of {i.name}")
            continue
        for extent, declared in zip(shape, i.operands[name].shape, strict=True):
            needed = arch.number(declared, sizes)
            if extent != needed and not (extent == 1 and isinstance(operands[name], Const)):
                reasons.append(f"an axis of {name} of {extent}: {needed}")
    return reasons


def _unify(
    arch: Architecture, i: Instruction, name: str, shape: tuple[Int, ...], sizes: dict[Sym, Int]
) -> Iterator[str]:
    """Find the sizes of dims that give an operand the shape that it has."""
    declared_shape = i.operands[name].shape
    if len(shape) != len(declared_shape):
        yield f"{name} of {len(shape)} axes: {len(declared_shape)}"
        return
    for extent, declared in zip(shape, declared_shape, strict=True):
        if isinstance(declared, Dim) and declared.sym not in sizes:
            sizes[declared.sym] = extent
        elif (needed := arch.number(declared, sizes)) != extent:
            yield f"an axis of {name} of {extent}: {needed}"


def _spread(i: Instruction, name: str, value: Expr) -> tuple[Int, ...] | None:
    """Return the shape of what is added to a sum, in the axes that an instruction wants of it.

    It is broadcast against the result: along axes that the instruction has, it is as long as the result or
    one number for all; along others it is 1. None where it is anything else.
    """
    assert isinstance(value.type, TensorType), "operands are tensors"
    result, wanted = i.operands[i.written].shape, i.operands[name].shape
    whole = (*[lit(1)] * (len(result) - len(value.type.shape)), *value.type.shape)
    axes = [next((a for a, e in enumerate(result) if e is x), -1) for x in wanted]
    if -1 in axes or any(e != 1 for a, e in enumerate(whole) if a not in axes):
        return None
    return tuple(whole[a] for a in axes)


def _beyond(arch: Architecture, sizes: Mapping[Sym, Int]) -> Iterator[str]:
    """Yield which dims leave their limits."""
    for name, dim in arch.description.dims.items():
        size = sizes.get(dim.sym)
        if size is None:
            continue
        reach = bounds(size, {})
        above = dim.high is not None and (reach.high is None or reach.high > dim.high)
        if above or (reach.low or 0) < dim.low:
            most = "any" if dim.high is None else dim.high
            yield f"{name} = {size}: {dim.low} to {most}"
