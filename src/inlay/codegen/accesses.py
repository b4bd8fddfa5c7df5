"""What the loops of a kernel allow of the bytes of its operands, results and scratch memory.

Three things that a plan of memory can use, all proved from lowered loops:

* **When**: all parts of a phase end before the next phase begins. An operand that only earlier phases
  read than those that write a result is dead by then, and the result may have its bytes, in whatever
  way; so for scratch memory. A convolution that first writes its operand out with padding has read it
  when it begins to compute.
* **Over what**: a result may begin where an operand does if no element is read after a byte of it was
  written. The proof goes down the loops. Of two statements, what the first one writes and what the second
  one reads must be apart. Of a loop, what one iteration writes and what another one reads must be apart
  (a later one, in a serial loop; any other, in a parallel one or a vector). A single store reads before
  it writes. Element-wise kernels are so, a residual that is added to a tile, and a convolution of single
  pixels that first takes a line to registers or to scratch memory. What a kernel reads back of the result
  is what it wrote there, since nothing else writes: a row of softmax that keeps its powers in the result.

* **From where**: a kernel that only copies has nothing to do if its operands lie where it copies them to. It
  does if every store is of an element of an operand, or of one of several, at one distance for each
  operand: an operand that is so many bytes behind the result has that element at that byte. So are
  concatenations and slices along the first axis that is not 1.

Ranges are compared axis by axis where both tensors have one shape and elements of one size, else by
distance from the first byte. What cannot be compared is not apart. Code may read earlier than the loops
say, and write later, but not the other way round: hoisting loads and keeping sums in registers is right,
and pointers to what may share bytes in one phase are not `noalias`.

Cost: for each pair of a result and an operand, statements squared in the worst case; loops of kernels
are short.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from inlay.arith.expr import Int, Sym, coefficient, lit, symbols, to_int
from inlay.codegen.phases import flatten, phases_of
from inlay.ir.kernel import Accesses
from inlay.loop.buffer import Buffer, flat_index
from inlay.loop.func import LoopFunction
from inlay.loop.ranges import Bounds
from inlay.loop.scalar import Load, Scalar, Select
from inlay.loop.stmt import Alloc, Assert, Block, For, If, Let, LoopKind, Seq, Stmt, Store, While
from inlay.loop.walk import child_stmts, own_scalars, scalars_below, stmts_below

_MOST_ACCESSES = 200
"""A kernel with more loads and stores of two tensors is not looked at: it is written out already."""

Loops = tuple[tuple[Sym, Int, Int], ...]
"""Variables of loops with first value and extent, outermost first."""


def accesses_of(function: LoopFunction) -> Accesses:
    """Return when a lowered function touches its tensors, and which may lie over each other."""
    touched = [_touched(body.body) for body in phases_of(function)]
    last = len(touched) - 1
    used: list[tuple[int, int]] = []
    for group in (*((p,) for p in function.params), function.workspaces):
        found = [n for n, buffers in enumerate(touched) if not buffers.isdisjoint(group)]
        used.append((found[0], found[-1]) if found else (0, last))
    if not function.workspaces:
        used.pop()  # there is no block of them
    return Accesses(len(touched), tuple(used), tuple(_overlays(function)), _lies(function))


def _lies(function: LoopFunction) -> tuple[Int, ...]:
    """Return how far each operand is behind the result where nothing is left to do; nothing if some is."""
    operands, results = function.params[: function.n_reads], function.params[function.n_reads :]
    if len(results) != 1:
        return ()
    (result,) = results
    far: dict[Buffer, Int] = {}
    for s in stmts_below(function.body):
        if isinstance(s, (Alloc, Assert, While, Block)):
            return ()
        if not isinstance(s, Store):
            continue
        to = flat_index(result, s.indices)
        for load in _copied(s.value):
            if load is None or s.buffer is not result or load.buffer.dtype != result.dtype:
                return ()
            distance = (to - flat_index(load.buffer, load.indices)) * result.dtype.itemsize
            if far.setdefault(load.buffer, distance) != distance:
                return ()
    if any(s not in function.dims for e in far.values() for s in symbols(e)):
        return ()
    return tuple(far[b] for b in operands) if far.keys() == set(operands) else ()


def _copied(value: Scalar) -> Iterator[Load | None]:
    """Yield the loads one of which a value is; None where it is not one."""
    match value:
        case Load():
            yield value
        case Select(then=then, otherwise=otherwise):
            yield from _copied(then)
            yield from _copied(otherwise)
        case _:
            yield None


def _touched(body: tuple[Stmt, ...]) -> set[Buffer]:
    return {access.buffer for s in body for x in stmts_below(s) for access in _own(x)}


def _own(s: Stmt) -> Iterator[Load | Store]:
    """Yield what a statement itself loads and stores."""
    if isinstance(s, Store):
        yield s
    for value in own_scalars(s):
        yield from (x for x in scalars_below(value) if isinstance(x, Load))


def _overlays(function: LoopFunction) -> Iterator[tuple[int, int]]:
    """Yield results and operands that may begin at one byte, by position."""
    every = [a for s in stmts_below(function.body) for a in _own(s)]
    stored = {a.buffer for a in every if isinstance(a, Store)}
    loaded = {a.buffer for a in every if isinstance(a, Load)}
    counts = {b: sum(a.buffer is b for a in every) for b in function.params}
    for w, result in enumerate(function.params):
        if result not in stored:
            continue
        for r, operand in enumerate(function.params):
            if operand not in loaded or operand in stored:
                continue
            if counts[result] + counts[operand] > _MOST_ACCESSES:
                continue
            if _Pair(result, operand).safe(function.body, Bounds(), frozenset()):
                yield w, r


@dataclass(frozen=True, slots=True)
class _Access:
    """A load or store inside a statement: its indices, and the loops between the two."""

    indices: tuple[Int, ...]
    loops: Loops


class _Range(NamedTuple):
    """From the first to the last index, over the loops outside."""

    first: Int
    last: Int


def _layout(b: Buffer) -> tuple[object, ...]:
    return b.shape, b.strides, b.first


class _Pair:
    """A result that might be written over an operand."""

    def __init__(self, result: Buffer, operand: Buffer) -> None:
        self._result = result
        self._operand = operand
        alike = _layout(result) == _layout(operand)
        self._by_axis = alike and result.dtype.itemsize == operand.dtype.itemsize
        self._touch: dict[Stmt, tuple[bool, bool]] = {}

    def safe(self, s: Stmt, bounds: Bounds, opaque: frozenset[Sym]) -> bool:
        """Whether nothing is read in a statement after its bytes were written there.

        Args:
            s: the statement.
            bounds: of the loops around it.
            opaque: names of values that no loop bounds.
        """
        reads, writes = self._touches(s)
        if not (reads and writes):
            return True
        match s:
            case Seq():
                parts = [x for x in flatten(s) if any(self._touches(x))]
                return all(self.safe(x, bounds, opaque) for x in parts) and all(
                    self._in_order(a, b, bounds, opaque)
                    for i, a in enumerate(parts)
                    if self._touches(a)[1]
                    for b in parts[i + 1 :]
                    if self._touches(b)[0]
                )
            case For(var=var, lo=lo, extent=extent, body=body):
                inside = bounds.inside(var, lo, extent)
                return self.safe(body, inside, opaque) and self._turns_apart(s, bounds, opaque)
            case If(then=then, otherwise=otherwise):
                arms = [x for x in (then, otherwise) if x is not None]
                return all(self.safe(x, bounds, opaque) for x in arms)
            case Let(sym=sym, body=body):
                return self.safe(body, bounds, opaque | {sym})
            case Alloc(body=body):
                return self.safe(body, bounds, opaque)
            case Store() | Assert():
                return True
            case While() | Block():
                return False

    def _touches(self, s: Stmt) -> tuple[bool, bool]:
        """Return whether a statement reads the operand, and whether it writes the result."""
        found = self._touch.get(s)
        if found is None:
            reads = writes = False
            for a in _own(s):
                reads |= a.buffer is self._operand
                writes |= a.buffer is self._result
            for x in child_stmts(s):
                below = self._touches(x)
                reads, writes = reads or below[0], writes or below[1]
            found = self._touch[s] = reads, writes
        return found

    def _accesses(self, s: Stmt, buffer: Buffer, opaque: frozenset[Sym]) -> Iterator[_Access | None]:
        """Yield the accesses of a buffer; None for those whose place nobody knows."""
        pending: list[tuple[Stmt, Loops, frozenset[Sym]]] = [(s, (), opaque)]
        while pending:
            x, loops, hidden = pending.pop()
            for a in _own(x):
                if a.buffer is buffer:
                    at = self._place(buffer, a.indices)
                    known = not any(sym in hidden for e in at for sym in symbols(e))
                    yield _Access(at, loops) if known else None
            match x:
                case For(var=var, lo=lo, extent=extent, body=body):
                    pending.append((body, (*loops, (var, lo, extent)), hidden))
                case Let(sym=sym, body=body):
                    pending.append((body, loops, hidden | {sym}))
                case While():
                    yield None
                case _:
                    pending.extend((child, loops, hidden) for child in child_stmts(x))

    def _place(self, buffer: Buffer, indices: tuple[Int, ...]) -> tuple[Int, ...]:
        if self._by_axis:
            return indices
        first = flat_index(buffer, indices) * buffer.dtype.itemsize
        return (first,)

    def _in_order(self, a: Stmt, b: Stmt, bounds: Bounds, opaque: frozenset[Sym]) -> bool:
        """Whether what the first statement writes is apart from what the second one reads."""
        for write in self._accesses(a, self._result, opaque):
            for read in self._accesses(b, self._operand, opaque):
                if write is None or read is None:
                    return False
                ranges = zip(self._ranges(write), self._ranges(read), strict=True)
                if not any(
                    w is not None
                    and r is not None
                    and (bounds.less(w.last, r.first) or bounds.less(r.last, w.first))
                    for w, r in ranges
                ):
                    return False
        return True

    def _turns_apart(self, loop: For, bounds: Bounds, opaque: frozenset[Sym]) -> bool:
        """Whether what an iteration writes is apart from what others read after it."""
        if loop.extent.value is not None and loop.extent.value <= 1:
            return True
        inside = bounds.inside(loop.var, loop.lo, loop.extent)
        both = loop.kind in (LoopKind.PARALLEL, LoopKind.VECTOR)
        reads = list(self._accesses(loop.body, self._operand, opaque))
        for write in self._accesses(loop.body, self._result, opaque):
            for read in reads:
                if write is None or read is None:
                    return False
                ranges = zip(self._ranges(write), self._ranges(read), strict=True)
                if not any(
                    w is not None and r is not None and _steps_over(w, r, loop.var, inside, both=both)
                    for w, r in ranges
                ):
                    return False
        return True

    def _ranges(self, access: _Access) -> list[_Range | None]:
        """Return the range of each index while the loops of an access run; None if not known."""
        found = [_range(e, access.loops) for e in access.indices]
        if self._by_axis:
            return found
        # The last byte of the larger of the two elements.
        more = max(self._result.dtype.itemsize, self._operand.dtype.itemsize) - 1
        return [r and _Range(r.first, r.last + more) for r in found]


def _steps_over(w: _Range, r: _Range, var: Sym, bounds: Bounds, *, both: bool) -> bool:
    """Whether a range that is written in one iteration is apart from one read in later ones.

    Both ranges move by the same number of elements, which is more than they are wide together.

    Args:
        w: what is written, over the variable of the loop.
        r: what is read.
        var: the variable.
        bounds: of the loop and those around it.
        both: in earlier ones, too.
    """
    step = coefficient(w.first, var)
    if step is None or any(coefficient(e, var) != step for e in (w.last, r.first, r.last)):
        return False
    rests = [e - step * to_int(var) for e in (*w, *r)]
    if var in {s for e in (step, *rests) for s in symbols(e)}:
        return False
    written_first, written_last, read_first, read_last = rests
    apart = bounds.at_least(step, 1) and bounds.less(written_last - read_first, step)
    return apart and (not both or bounds.less(read_last - written_first, step))


def _range(e: Int, loops: Loops) -> _Range | None:
    """Return the range of an index over loops; those outside stand still."""
    first = last = e
    for var, lo, extent in reversed(loops):
        ends: list[Int] = []
        for value, least in ((first, True), (last, False)):
            c = coefficient(value, var)
            if c is None or (c.value is None and c != 0):
                return None
            if c.value == 0:
                if var in symbols(value):
                    return None
                ends.append(value)
                continue
            assert c.value is not None, "tested above"
            at_start = (c.value > 0) == least
            end = lo if at_start else lo + extent - lit(1)
            ends.append(value + (end - to_int(var)) * c)
        first, last = ends
    return _Range(first, last)
