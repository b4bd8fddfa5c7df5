"""Reuse edges: kernels that wait only because they work in bytes that another one had.

The plan gives two values the same bytes where one is dead when the other is written. Whoever writes
there has to wait for those that use the bytes, and where data does not make it wait anyway the plan has
added an *edge*. The virtual machine finds these edges by comparing bytes when a kernel is issued; here
they are found in the program that it runs:

    1  a1 = f(x)     a1 at 0        data:   1 before 3, 2 before 4
    2  b1 = f(y)     b1 at 64       reuse:  3 waits for nothing of its own, 4 for 3 (which reads a1 at 0)
    3  a2 = f(a1)    a2 at 128
    4  b2 = f(b1)    b2 at 0

Kernel i is *before* kernel j by data when j needs, directly or not, what i writes, or when the program
goes on only after it has seen what i writes (a branch, a size). Each turn of a loop is looked at alone:
how turns follow each other is not listed.

Cost: kernels times kernels bits, and pairs of values whose bytes overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inlay.analysis.blocks import nested, spine
from inlay.analysis.local_functions import find_loops
from inlay.arith.expr import Int, Sym, product, substitute, symbols
from inlay.ir.expr import (
    Call,
    Const,
    Expr,
    Function,
    GlobalVar,
    If,
    Match,
    OpRef,
    Project,
    Tuple,
    Var,
    pattern_vars,
)
from inlay.ir.kernel import Kernel
from inlay.ir.module import Module
from inlay.ir.types import BoolType, IntType, ShapeType, TensorType
from inlay.ops.memory import INVOKE, TENSOR_AT, InvokeAttrs, TensorAtAttrs

_NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Reuse:
    """The kernels of a function and what orders them.

    Attributes:
        kernels: their names, in program order.
        edges: pairs of numbers of kernels, from 1: the second waits for the first, and only because it
            works in bytes of it.
        serial_ns: predicted time of all kernels, one after the other.
        path_ns: predicted time of those on the longest path over data and reuse edges: no number of
            threads is faster, but for kernels that are divided.
    """

    kernels: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    serial_ns: int
    path_ns: int

    @property
    def overlap(self) -> float:
        """How many kernels could run at once, on average, if there were threads for all."""
        return self.serial_ns / self.path_ns if self.path_ns else 1.0


@dataclass(slots=True)
class _Region:
    """Bytes of a tensor in a block, and the kernels that use them: whether they write."""

    block: Var
    begin: int
    end: int
    uses: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])
    written: int = 0  # bits of the kernels that wrote it


def find_reuse(module: Module, name: str, sizes: Callable[[Int], int | None]) -> Reuse | None:
    """Return the reuse edges of a function; None where its sizes have no numbers.

    Args:
        module: planned.
        name: of a function of it.
        sizes: numbers for sizes over its dims.
    """
    function = module.functions[name]
    walker = _Walker(module.kernels, find_loops(function), sizes)
    walker.block(function.body)
    if walker.is_unsized:
        return None
    edges = _edges(walker.regions, walker.before)
    return Reuse(tuple(walker.names), edges, sum(walker.costs), _longest(walker, edges))


def _edges(regions: Sequence[_Region], before: Sequence[int]) -> tuple[tuple[int, int], ...]:
    by_block: dict[Var, list[_Region]] = {}
    for region in regions:
        by_block.setdefault(region.block, []).append(region)
    found: set[tuple[int, int]] = set()
    for mine in by_block.values():
        mine.sort(key=lambda r: (r.begin, r.end))
        open_: list[_Region] = []
        for region in mine:
            open_ = [r for r in open_ if r.end > region.begin]
            for other in open_:
                found.update(_pairs(region, other, before))
            open_.append(region)
    return tuple(sorted(found))


def _pairs(a: _Region, b: _Region, before: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Yield kernels that use overlapping bytes of two tensors, and that nothing else orders."""
    for i, i_writes in a.uses:
        for j, j_writes in b.uses:
            first, second = min(i, j), max(i, j)
            if first != second and (i_writes or j_writes) and not before[second] >> first & 1:
                yield first + 1, second + 1


def _longest(walker: _Walker, edges: Iterable[tuple[int, int]]) -> int:
    waits: dict[int, list[int]] = {}
    for first, second in edges:
        waits.setdefault(second - 1, []).append(first - 1)
    ends: list[int] = []
    for k, cost in enumerate(walker.costs):
        needs = [ends[i] for i in walker.needs[k]] + [ends[i] for i in waits.get(k, ())]
        ends.append(cost + max(needs, default=0))
    return max(ends, default=0)


class _Walker:
    """Walks a planned function in program order and notes what each kernel needs and uses.

    Attributes:
        names, costs: of kernels.
        needs: the kernels that each one waits for by data, directly.
        before: bits of all that are before it by data.
        regions: tensors in blocks.
        is_unsized: whether some have no size.
    """

    def __init__(
        self, kernels: Mapping[str, Kernel], loops: frozenset[Var], sizes: Callable[[Int], int | None]
    ) -> None:
        self.names: list[str] = []
        self.costs: list[int] = []
        self.needs: list[tuple[int, ...]] = []
        self.before: list[int] = []
        self.regions: list[_Region] = []
        self.is_unsized = False
        self._kernels, self._loops, self._sizes = kernels, loops, sizes
        self._bodies: dict[Var, Function] = {}
        self._shows: dict[Var, frozenset[int]] = {}  # regions
        self._waits: dict[Var, int] = {}  # bits of kernels
        self._seen = 0  # bits of kernels whose results the program has waited for

    def block(self, block: Expr) -> tuple[frozenset[int], int]:
        """Walk a block; return what its result shows, and the kernels that it needs."""
        lets, tail = spine(block)
        for let in lets:
            if isinstance(let.value, Function):
                if let.var in self._loops:
                    self._bodies[let.var] = let.value
                continue
            self._shows[let.var], self._waits[let.var] = self._value(let.value)
        return self._value(tail)

    def _value(self, value: Expr) -> tuple[frozenset[int], int]:
        match value:
            case Var():
                return self._of((value,))
            case If(condition=condition):
                self._seen |= self._of((condition,))[1]
                return self._joined(self.block(x) for x in nested(value))
            case Match(scrutinee=scrutinee, arms=arms):
                found = self._of((scrutinee,))
                self._seen |= found[1]
                for arm in arms:
                    for var in pattern_vars(arm.pattern):
                        self._shows[var], self._waits[var] = found
                return self._joined(self.block(arm.body) for arm in arms)
            case Tuple(fields=fields):
                return self._of(fields)
            case Project(value=whole):
                return self._of((whole,))
            case Call():
                return self._call(value)
            case _:
                return _NOTHING, 0

    def _call(self, call: Call) -> tuple[frozenset[int], int]:
        match call.callee:
            case OpRef(op=op, attrs=attrs):
                if op is TENSOR_AT:
                    assert isinstance(attrs, TensorAtAttrs), "tensor_at has its attributes"
                    return self._tensor(call, attrs), 0
                if op is INVOKE:
                    assert isinstance(attrs, InvokeAttrs), "invoke has its attributes"
                    self._invoke(call, attrs)
                    return _NOTHING, 0
                shows, waits = self._of(call.args)
                if isinstance(call.type, IntType | BoolType | ShapeType):
                    self._seen |= waits
                return shows, waits
            case Var() as callee if callee in self._bodies:
                body = self._bodies.pop(callee)
                found = self._of(call.args)
                for param in body.params:
                    self._shows[param], self._waits[param] = found
                return self._joined((self.block(body.body), found))
            case _:
                return self._of(call.args)

    def _tensor(self, call: Call, attrs: TensorAtAttrs) -> frozenset[int]:
        storage, offset = call.args[:2]
        assert isinstance(storage, Var), "storage is named"
        assert isinstance(offset, Const), "a tensor is at a number"
        assert isinstance(offset.value, Int), "a tensor is at a number"
        t = call.type
        assert isinstance(t, TensorType), "tensor_at makes a tensor"
        begin = self._sizes(offset.value)
        size = self._sizes(product((*t.shape, attrs.dtype.itemsize)))
        if begin is None or size is None:
            self.is_unsized = True
            begin = size = 0
        self.regions.append(_Region(storage, begin, begin + size))
        return frozenset((len(self.regions) - 1,))

    def _invoke(self, call: Call, attrs: InvokeAttrs) -> None:
        tensors, number = call.args[1:-1], len(self.names)
        reads = len(tensors) - attrs.writes
        shown = [self._of((t,)) for t in tensors]
        waits = self._seen
        for found in shown[:reads]:
            waits |= found[1]
        direct, before = _bits(waits), waits
        for i in direct:
            before |= self.before[i]
        ref = call.args[0]
        kernel = self._kernels.get(ref.name) if isinstance(ref, GlobalVar) else None
        self.names.append(kernel.name if kernel is not None else "")
        self.costs.append(0 if kernel is None else self._cost(kernel, call.args[-1]))
        self.needs.append(tuple(direct))
        self.before.append(before)
        for index, (shows, _) in enumerate(shown):
            for r in shows:
                self.regions[r].uses.append((number, index >= reads))
                if index >= reads:
                    self.regions[r].written |= 1 << number
        for t in tensors[reads:]:
            if isinstance(t, Var):
                self._waits[t] = self._waits.get(t, 0) | 1 << number

    def _cost(self, kernel: Kernel, ints: Expr) -> int:
        if kernel.cost_ns is None:
            return 0
        given = ints.value if isinstance(ints, Const) and isinstance(ints.value, tuple) else ()
        known = {
            own.atom: value
            for own, value in zip(kernel.ints, given, strict=False)
            if isinstance(own.atom, Sym)
        }
        if any(s not in known for s in symbols(kernel.cost_ns)):
            return 0
        return self._sizes(substitute(kernel.cost_ns, known)) or 0

    def _of(self, exprs: Iterable[Expr]) -> tuple[frozenset[int], int]:
        shows, waits = _NOTHING, 0
        for e in exprs:
            if isinstance(e, Var):
                mine = self._shows.get(e, _NOTHING)
                shows |= mine
                waits |= self._waits.get(e, 0)
                for r in mine:
                    waits |= self.regions[r].written
        return shows, waits

    def _joined(self, found: Iterable[tuple[frozenset[int], int]]) -> tuple[frozenset[int], int]:
        shows, waits = _NOTHING, 0
        for mine, bits in found:
            shows, waits = shows | mine, waits | bits
        return shows, waits


def _bits(number: int) -> list[int]:
    """Return the positions of the bits of a number that are set."""
    found: list[int] = []
    while number:
        low = number & -number
        found.append(low.bit_length() - 1)
        number ^= low
    return found
