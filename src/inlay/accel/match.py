"""Where the patterns of an architecture are in a program, and for what is not taken the reason.

A pattern is laid over a call of an operator, from its result towards its operands. Values inside of it have
no other reader, so what is found is convex. What is found becomes a command: dims and immediates of its
instruction are read off the types and attributes, and all that speaks against it is kept: conditions of the
pattern, and limits of the instruction.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from inlay.accel.accelerator import Architecture
from inlay.accel.choices import choose
from inlay.accel.declare import Dim, Instruction, PatternDecl
from inlay.accel.overlay import Block, Mismatch, Overlay, unread
from inlay.accel.pattern import Applied, Mapped, Pattern, Repeat, Repeated, Tiled, build
from inlay.accel.repeat import lay_repeated
from inlay.accel.tiled import TiledCommand, Tiler
from inlay.accel.views import Shape, View, view_of
from inlay.arith.bounds import bounds
from inlay.arith.expr import Int, Sym, lit
from inlay.base.diagnostics import InlayError, error
from inlay.ir.expr import Call, Const, Expr, Var
from inlay.ir.types import TensorType

_COMPILER = Path(__file__).parent.parent


class Bound:
    """A value of a match, as conditions see it: `shape`, `dtype`, and the attributes of its operator."""

    def __init__(self, type: TensorType, shape: Shape, attrs: Mapping[str, Any]) -> None:
        self.shape, self.dtype = shape, type.dtype
        self._attrs = attrs
        self._read = set[str]()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._attrs:
            raise AttributeError(f"it has no '{name}', but {', '.join(self._attrs) or 'nothing'}")
        self._read.add(name)
        return self._attrs[name]

    def asked(self) -> Set[str]:
        """Return the names of the attributes that were asked for."""
        return self._read


class Named:
    """The named values of a match: `m.x`."""

    def __init__(self, values: Mapping[str, Bound]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Bound:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"nothing is called '{name}', but {', '.join(self._values)}")
        return self._values[name]

    def asked(self, name: str) -> Set[str]:
        """Return the names of the attributes of a value that were asked for."""
        return self._values[name].asked() if name in self._values else set()


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
        filled: operands that are one number, as an operator that would take them is missing.
        scales: operands that are factors of a requantize; one number is given once for each lane.
        shapes: of operands, as the instruction sees them (`accel/views.py`).
    """

    pattern: str
    calls: tuple[Call, ...]
    instruction: Instruction
    operands: Mapping[str, Expr]
    sizes: Mapping[Sym, Int]
    added: tuple[str, ...]
    reasons: tuple[str, ...]
    before: tuple[Command, ...] = ()
    filled: tuple[str, ...] = ()
    scales: tuple[str, ...] = ()
    shapes: Mapping[str, Shape] = field(default_factory=dict[str, Shape])

    @property
    def steps(self) -> tuple[Command, ...]:
        """All commands in order, itself the last."""
        return (*self.before, self)

    def constant(self, name: str, arch: Architecture) -> np.ndarray | None:
        """Return the array of an operand that is a constant, as its instruction reads it."""
        value = self.operands[name]
        if not isinstance(value, Const) or not isinstance(value.value, np.ndarray):
            return None
        shape = _spread(self.instruction, name, self.shapes[name]) if name in self.added else None
        if name in self.filled or _is_one_for_all(self.instruction, name, value, self.scales):
            shape = ()
        if shape is None:
            return np.ascontiguousarray(value.value)
        wanted = [arch.number(e, self.sizes).value for e in self.instruction.operands[name].shape]
        assert None not in wanted, "sizes of constants are numbers"
        whole = value.value.reshape([e.value or 0 for e in shape])
        return np.ascontiguousarray(np.broadcast_to(whole, [n or 0 for n in wanted]))

    def cycles(self, arch: Architecture) -> Int:
        """Return how long it takes, over the dims of the program."""
        begin = arch.number(type(arch.device).launch_cycles)
        launches = 1 if arch.description.region is not None else len(self.steps)
        own = (arch.number(c.instruction.cycles, c.sizes) for c in self.steps)
        return sum(own, begin * launches)


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
        return Patterns(arch, tuple(_built(p, arch) for p in declared), Tiler(arch))

    @property
    def repeats(self) -> Mapping[str, Repeat]:
        """The repeated steps in them, by the names of patterns."""
        results = ((p.name, p.mapped.result) for p in self.patterns)
        return {name: r.repeat for name, r in results if isinstance(r, Repeated)}

    def at(self, var: Var, block: Block, *, outlined: bool = False) -> Iterator[Found | Mismatch]:
        """Yield for each pattern the command that computes a value, or why it is not that pattern."""
        for p in self.patterns:
            overlay = Overlay(block, outlined)
            try:
                found = self._laid(p, overlay, var)
            except Mismatch as failure:
                yield failure
                continue
            yield found
            if found.reasons and overlay.has_pad:  # a device that does not pad may take what is padded
                yield self._laid(p, Overlay(block, outlined, leaves_pads=True), var)

    def _laid(self, p: Pattern, overlay: Overlay, var: Var) -> Found:
        """Return what a pattern is whose result is a value.

        Raises:
            Mismatch: it is not there.
        """
        if isinstance(p.mapped.result, Repeated):
            assert isinstance(p.mapped, Mapped), "whole layers are calls"
            lay_repeated(overlay, [r for r in p.mapped.results if isinstance(r, Repeated)], var)
        else:
            overlay.lay(p.mapped.result, var, inner=False)
        return self._found(p, p.mapped, overlay)

    def _found(self, p: Pattern, mapped: Mapped | Tiled, overlay: Overlay) -> Found:
        if isinstance(mapped, Mapped):
            return _command(self.arch, p, mapped, overlay)
        reasons = list(_unmet(p, _named(overlay)))
        calls = overlay.in_order()
        return self.tiler.command(p.name, calls, mapped.result, overlay.values, overlay.attrs, reasons)


Found = Command | TiledCommand
"""What a pattern became: a command, or a stream of them."""


def _built(declared: PatternDecl, arch: Architecture) -> Pattern:
    """Return the pattern that a function of a description builds.

    Raises:
        CompileError: `accel.declaration`.
    """
    try:
        return build(declared, arch.device)
    except InlayError:
        raise
    except Exception as failure:
        message = f"building the pattern '{declared.name}' failed: {fault_of(failure)}"
        raise error("accel.declaration", message) from failure


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
    results = zip(i.writes, mapped.results, strict=True)
    operands |= {name: found.values[r] for name, r in results if r in found.values}
    filled = tuple(name for name, node in mapped.operands.items() if node in found.filled)
    scales = p.factors_in(mapped)
    alike = tuple(n for n in scales if _is_one_for_all(i, n, operands[n], scales))
    shapes = _shapes_seen(operands, scales, view_of(found))
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
        reasons += _unsaid(found, m)
        reasons += _shapes(arch, i, p.added_in(mapped), (*filled, *alike), operands, shapes, sizes)
        reasons += _beyond(arch, sizes)
        if not reasons:
            chosen, why = choose(arch, i, sizes)
            reasons += why
            sizes |= chosen
    calls, added = found.in_order(), p.added_in(mapped)
    before = tuple(_command(arch, p, x, found) for x in mapped.before)
    reasons += [r for c in before for r in c.reasons if r not in reasons]
    return Command(p.name, calls, i, operands, sizes, added, tuple(reasons), before, filled, scales, shapes)


def _shapes_seen(operands: Mapping[str, Expr], scales: tuple[str, ...], view: View) -> dict[str, Shape]:
    """Return the shapes of operands; factors have their own axis."""
    shapes: dict[str, Shape] = {}
    for name, value in operands.items():
        assert isinstance(value.type, TensorType), "operands are tensors"
        shapes[name] = value.type.shape if name in scales else view(value.type.shape)
    return shapes


def _is_one_for_all(i: Instruction, name: str, value: Expr, scales: tuple[str, ...]) -> bool:
    """Whether a factor is one number, and an instruction wants one for each lane."""
    is_number = isinstance(value, Const) and isinstance(value.type, TensorType) and not value.type.shape
    return name in scales and is_number and bool(i.operands[name].shape)


def _unsaid(found: Overlay, m: Named) -> Iterator[str]:
    """Yield attributes of operators that a pattern neither says nor reads."""
    for node, attrs in found.attrs.items():
        if isinstance(node, Applied):
            yield from unread(node, found.values[node], found.block, attrs, m.asked(node.name))


def fault_of(failure: Exception) -> str:
    """Return what failed in a description, and where."""
    frames = traceback.extract_tb(failure.__traceback__)
    last = next((f for f in reversed(frames) if _is_of_others(f.filename)), frames[-1])
    return f"{type(failure).__name__} at {Path(last.filename).name}:{last.lineno}: {failure}"


def _is_of_others(file: str) -> bool:
    """Whether a file is no part of the compiler: a description, or what one imports."""
    path = Path(file)
    return not path.is_relative_to(_COMPILER) or path.is_relative_to(_COMPILER / "accelerators")


def _named(found: Overlay) -> Named:
    values: dict[str, Bound] = {}
    view = view_of(found)
    for node, e in found.values.items():
        if node.name:
            assert isinstance(e.type, TensorType), "nodes are tensors"
            values[node.name] = Bound(e.type, view(e.type.shape), _ended(e.type, found.attrs.get(node, {})))
    return Named(values)


def _ended(type: TensorType, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return attributes with the ends of the type where a requantize says none."""
    if "low" not in attrs or "high" not in attrs or not type.dtype.is_integer:
        return attrs
    ends = np.iinfo(type.dtype.numpy)
    said = {"low": int(ends.min), "high": int(ends.max)}
    return {**attrs, **{n: end for n, end in said.items() if attrs[n] is None}}


def _shapes(
    arch: Architecture,
    i: Instruction,
    added: tuple[str, ...],
    filled: tuple[str, ...],
    operands: Mapping[str, Expr],
    shapes: Mapping[str, Shape],
    sizes: dict[Sym, Int],
) -> list[str]:
    """Find the sizes of dims that give operands the shapes that they have; return what does not fit."""
    reasons: list[str] = []
    for plain in (True, False):  # formulas over dims when those are known that stand alone
        for name, shape in shapes.items():
            if name not in added and name not in filled:
                reasons += _unify(arch, i, name, shape, sizes, plain=plain)
    for name, value in operands.items():
        assert isinstance(value.type, TensorType), "operands are tensors"
        if value.type.dtype is not i.operands[name].dtype:
            reasons.append(f"{name} of {value.type.dtype}: {i.operands[name].dtype}")
    for name in added:
        shape = _spread(i, name, shapes[name])
        if shape is None:
            reasons.append(f"{name} is added along other axes than those of {i.name}")
            continue
        for extent, declared in zip(shape, i.operands[name].shape, strict=True):
            needed = arch.number(declared, sizes)
            if extent != needed and not (extent == 1 and isinstance(operands[name], Const)):
                reasons.append(f"an axis of {name} of {extent}: {needed}")
    return reasons


def _unify(
    arch: Architecture,
    i: Instruction,
    name: str,
    shape: tuple[Int, ...],
    sizes: dict[Sym, Int],
    *,
    plain: bool,
) -> Iterator[str]:
    """Find the sizes of dims that give an operand the shape that it has; with `plain` no more than that."""
    declared_shape = i.operands[name].shape
    if len(shape) != len(declared_shape):
        if plain:
            yield f"{name} of {len(shape)} axes: {len(declared_shape)}"
        return
    for extent, declared in zip(shape, declared_shape, strict=True):
        if isinstance(declared, Dim) and declared.sym not in sizes:
            sizes[declared.sym] = extent
        elif not plain and (needed := arch.number(declared, sizes)) != extent:
            yield f"an axis of {name} of {extent}: {needed}"


def _spread(i: Instruction, name: str, given: Shape) -> Shape | None:
    """Return the shape of what is added to a sum, in the axes that an instruction wants of it.

    It is broadcast against the result: along axes that the instruction has, it is as long as the result or
    one number for all; along others it is 1. None where it is anything else.
    """
    result, wanted = i.operands[i.written].shape, i.operands[name].shape
    whole = (*[lit(1)] * (len(result) - len(given)), *given)
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
            open_ends = f", {reach.low or 0} to {'any' if reach.high is None else reach.high}"
            yield f"{name} = {size}{'' if size.value is not None else open_ends}: {dim.low} to {most}"
