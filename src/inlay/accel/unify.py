"""Which instruction computes a stage, and which loops of the stage its own loops run over.

Both are nests with one store. Their elements are compared as trees; loads bind operands to tensors, and
numbers in commands to constants. Then each loop of the instruction is given a loop of the stage that occurs
in the same operands, or none where it may run once:

    a[i, j, o] += i32(x[i, j, k]) * i32(w[k, o])      i = p, j = q, o = k, k = c; the rest is commands
    sums[n, k, p, q] += i32(x[n, c, p + r, q + s]) * i32(w[k, c, r, s])

Loops of the last axes of an operand, which are one unit of its memory, must be axes of the tensor by
themselves.
What is left of several ways is for costs to choose (`tile`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inlay.accel.accelerator import Architecture
from inlay.accel.declare import Dim, Instruction, Memory
from inlay.accel.nest import meaning_of
from inlay.accel.stages import Loop, Stage, Value
from inlay.arith.expr import Int, Sym, coefficient, symbols
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import Binary, BinaryOp, Cast, Index, Lit, Load, Scalar, Select, Unary
from inlay.loop.stmt import For, Store

_COMMUTATIVE = (BinaryOp.ADD, BinaryOp.MUL)


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """An instruction as one nest.

    Attributes:
        instruction: which.
        loops: index and extent, outermost first.
        at: indices of what it stores to.
        target: the buffer of that.
        value: of an element.
        operands: name and field of each buffer.
    """

    instruction: Instruction
    loops: tuple[tuple[Sym, Int], ...]
    target: Buffer
    at: tuple[Int, ...]
    value: Scalar
    operands: Mapping[Buffer, tuple[str, str]]


def meanings(arch: Architecture) -> Iterator[Meaning]:
    """Yield the instructions that work in memories of the device and are one nest."""
    for i in arch.description.instructions.values():
        if not all(isinstance(x.memory, Memory) for x in i.operands.values()):
            continue
        f = meaning_of(i, arch.device, arch.values)
        loops: list[tuple[Sym, Int]] = []
        body = f.body
        while isinstance(body, For):
            loops.append((body.var, body.extent))
            body = body.body
        if isinstance(body, Store):
            named = {b: (b.name.partition(".")[0], b.name.partition(".")[2]) for b in f.params}
            yield Meaning(i, tuple(loops), body.buffer, body.indices, body.value, named)


@dataclass(frozen=True, slots=True)
class Bound:
    """What an operand, or a field of a record, is.

    Attributes:
        value: of the stage.
        at: indices of the instruction.
        stage_at: indices of the stage.
    """

    value: Value
    at: tuple[Int, ...]
    stage_at: tuple[Int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Unified:
    """An instruction that computes a stage.

    Attributes:
        meaning: of the instruction.
        stage: what it computes.
        bound: what operands are, by name and field; several lanes of a field may be different values.
        immediates: by name.
        axes: for the symbol of each loop of the instruction the loop of the stage; None runs once.
    """

    meaning: Meaning
    stage: Stage
    bound: Mapping[tuple[str, str], tuple[Bound, ...]]
    immediates: Mapping[str, int]
    axes: Mapping[Sym, Loop | None] = field(default_factory=dict[Sym, Loop | None])

    def unit_of(self, operand: str) -> tuple[Sym, ...]:
        """Return the loops of the instruction that are the axes of one unit of an operand."""
        return unit_loops(self.meaning, operand)


def unit_loops(m: Meaning, operand: str) -> tuple[Sym, ...]:
    """Return the loops of an instruction that are the last axes of an operand: those of fixed extent."""
    x = m.instruction.operands[operand]
    at = next(at for b, at in _accesses(m) if m.operands[b][0] == operand and len(at) == len(x.shape))
    fixed = len(x.shape)
    while fixed > 0 and not isinstance(x.shape[fixed - 1], Dim):
        fixed -= 1
    return tuple(s for e in at[fixed:] for s in symbols(e))


def _accesses(m: Meaning) -> Iterator[tuple[Buffer, tuple[Int, ...]]]:
    yield m.target, m.at
    pending = [m.value]
    while pending:
        x = pending.pop()
        if isinstance(x, Load):
            yield x.buffer, x.indices
        else:
            pending += _inside(x)


def _inside(x: Scalar) -> tuple[Scalar, ...]:
    match x:
        case Binary(lhs=a, rhs=b):
            return (a, b)
        case Unary(operand=a) | Cast(operand=a):
            return (a,)
        case Select(condition=c, then=a, otherwise=b):
            return (c, a, b)
        case _:
            return ()


def unify(m: Meaning, stage: Stage, values: Mapping[Buffer, Value]) -> Iterator[Unified]:
    """Yield the ways in which an instruction computes a stage."""
    laid = _Laid(m, values)
    if not laid.load(m.target, m.at, stage.result.buffer, stage.at) or not laid.same(m.value, stage.value):
        return
    bound = {key: tuple(found) for key, found in laid.bound.items()}
    numbers = {x.sym: name for name, x in m.instruction.immediates.items()}
    made = Unified(m, stage, bound, {numbers[s]: v for s, v in laid.numbers.items()})
    if len(made.immediates) != len(numbers):
        return
    if any(not x.low <= made.immediates[n] <= x.high for n, x in m.instruction.immediates.items()):
        return
    choices = [list(_choices(made, sym, extent)) for sym, extent in m.loops]
    for chosen in itertools.product(*choices):
        taken = [x.sym for x in chosen if x is not None]
        if len(set(taken)) == len(taken):
            yield replace(made, axes={sym: x for (sym, _), x in zip(m.loops, chosen, strict=True)})


def _choices(u: Unified, sym: Sym, extent: Int) -> Iterator[Loop | None]:
    """Yield the loops of the stage that a loop of the instruction may run over."""
    fixed = extent.value is not None
    for loop in u.stage.loops:
        if loop.extent.value is not None and all(_fits(u, sym, loop, x) for x in _all(u)):
            yield loop
    if not fixed:
        yield None


def _all(u: Unified) -> Iterator[tuple[str, Bound]]:
    for (operand, _), found in u.bound.items():
        yield from ((operand, x) for x in found)


def _fits(u: Unified, sym: Sym, loop: Loop, of: tuple[str, Bound]) -> bool:
    operand, b = of
    inside = any(sym in symbols(e) for e in b.at)
    axes = [e for e in b.stage_at if loop.sym in symbols(e)]
    if inside != bool(axes):
        return inside and b.value.is_constant and not b.stage_at  # one number for all lanes
    if not inside:
        return True
    alone = len(axes) == 1 and axes[0].atom == loop.sym
    return alone if sym in u.unit_of(operand) else _is_affine(axes, loop)


def _is_affine(axes: Sequence[Int], loop: Loop) -> bool:
    factor = coefficient(axes[0], loop.sym)
    return len(axes) == 1 and factor is not None and factor.value is not None


@dataclass(slots=True)
class _Laid:
    """An instruction being laid over a stage."""

    meaning: Meaning
    values: Mapping[Buffer, Value]
    bound: dict[tuple[str, str], list[Bound]] = field(default_factory=dict[tuple[str, str], "list[Bound]"])
    numbers: dict[Sym, int] = field(default_factory=dict[Sym, int])

    def load(self, b: Buffer, at: tuple[Int, ...], of: Buffer, stage_at: tuple[Int, ...]) -> bool:
        """Bind an operand to a tensor."""
        key, value = self.meaning.operands[b], self.values[of]
        if b.dtype is not of.dtype:
            return False
        for x in self.bound.setdefault(key, []):
            if x.at == at:
                return x.value is value and x.stage_at == stage_at
        lanes = all(e.value is not None for e in at)
        if self.bound[key] and not (lanes and self._record(key)):
            return False
        self.bound[key].append(Bound(value, at, stage_at))
        return True

    def _record(self, key: tuple[str, str]) -> bool:
        return bool(self.meaning.instruction.operands[key[0]].record)

    def same(self, a: Scalar, b: Scalar) -> bool:
        """Whether elements are equal, with operands and numbers bound."""
        match a, b:
            case Load(), Load():
                return self.load(a.buffer, a.indices, b.buffer, b.indices)
            case Index(), Lit():
                return self._number(a, b)
            case Lit(), Load() if not b.indices:
                return a.dtype is b.dtype and self.values[b.buffer].number() == a.value
            case Lit(), Lit():
                return a.dtype is b.dtype and a.value == b.value
            case Binary(), Binary():
                return self._binary(a, b)
            case (Unary(), Unary()) | (Cast(), Cast()) | (Select(), Select()):
                alike = a.dtype is b.dtype and getattr(a, "op", None) == getattr(b, "op", None)
                return alike and all(map(self.same, _inside(a), _inside(b)))
            case _:
                return False

    def _number(self, a: Index, b: Lit) -> bool:
        sym = a.value.atom
        if a.dtype is not b.dtype or not isinstance(sym, Sym) or not isinstance(b.value, int):
            return False
        return self.numbers.setdefault(sym, b.value) == b.value

    def _binary(self, a: Binary, b: Binary) -> bool:
        if a.op is not b.op or a.dtype is not b.dtype:
            return False
        bound, numbers = {k: list(x) for k, x in self.bound.items()}, dict(self.numbers)
        if self.same(a.lhs, b.lhs) and self.same(a.rhs, b.rhs):
            return True
        self.bound, self.numbers = bound, numbers
        swapped = a.op in _COMMUTATIVE
        return swapped and self.same(a.lhs, b.rhs) and self.same(a.rhs, b.lhs)
