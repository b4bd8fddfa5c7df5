"""Lowered loop functions as LLVM text.

A lowered function becomes one module with one exported function per *phase*,

    i64 phase<i>(ptr buffers, ptr ints, i64 part, i64 parts)

where `buffers` holds the parameters in order and then, if the function has workspaces, one block
for all of them (`workspace_layout`). The result is 0, or the number of the assertion that failed,
from 1 in the order of `assertions_of`; a caller may ignore it. The exported function only unpacks
its arguments; the work is in an internal function whose pointers are `noalias`.

Vector loops are written statement by statement as SIMD operations (`llvm_scalar`, `llvm_memory`),
unrolled loops are written out, and `REGISTER` buffers are SSA values, so the text of a kernel whose
vector code is explicit needs no optimization pass. `needs_optimizer` tells which functions are
scalar loops that LLVM should vectorize by itself.

This module makes text only; `llvm_compile` turns text into objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from inlay.arith.expr import Int, Sym, symbols
from inlay.base.diagnostics import InternalError
from inlay.codegen.llvm_builder import Builder, Carried
from inlay.codegen.llvm_helpers import helper_text
from inlay.codegen.llvm_index import LANE, IndexEmitter, Linear, add, constant_of, name, number
from inlay.codegen.llvm_matrix import MatrixEmitter, configuration_text
from inlay.codegen.llvm_memory import Memory, Window, carried_values, set_cells
from inlay.codegen.llvm_ops import Operations
from inlay.codegen.llvm_prefetch import aheads
from inlay.codegen.llvm_scalar import ScalarEmitter
from inlay.codegen.llvm_types import Value, literal
from inlay.codegen.phases import (
    PhaseSource,
    WorkspaceLayout,
    assertions_of,
    flatten,
    phases_of,
    workspace_layout,
)
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.scalar import BinaryOp, Load
from inlay.loop.stmt import Alloc, Assert, Block, For, If, Let, LoopKind, Seq, Stmt, Store, While
from inlay.loop.walk import (
    child_stmts,
    is_transposed,
    loads_anew,
    own_scalars,
    scalars_below,
    stmts_below,
    stores_of,
    written_out,
)
from inlay.machine.target import Target

_UNROLLED = -1
_VARYING = 0


@dataclass(frozen=True, slots=True)
class ModuleText:
    """LLVM text of one function.

    Attributes:
        text: the module.
        phases: symbol of each phase and whether parts share it.
    """

    text: str
    phases: tuple[tuple[str, bool], ...]


def emit_module(function: LoopFunction, target: Target, in_place: frozenset[int] = frozenset()) -> ModuleText:
    """Return the LLVM text of a lowered function.

    Args:
        function: a lowered function.
        target: the machine the text is for.
        in_place: positions of parameters that may share bytes with another parameter, element by
            element at equal positions.

    Raises:
        InternalError: the function is not lowered, or breaks a rule of the loop IR.
    """
    if function.stage is not Stage.LOWERED:
        raise InternalError(f"{function.name} is not lowered", where="codegen.llvm")
    texts: list[str] = []
    symbols: list[tuple[str, bool]] = []
    helpers: set[str] = set()
    declared: set[str] = set()
    configurations: dict[str, None] = {}
    needs_zero = False
    for i, phase in enumerate(phases_of(function)):
        symbol = f"phase{i}"
        emitter = FunctionEmitter(function, target, in_place)
        texts.append(emitter.emit(symbol, phase))
        symbols.append((symbol, phase.parallel))
        helpers |= emitter.ops.helpers
        declared |= emitter.ops.declared
        configurations |= dict.fromkeys(map(configuration_text, emitter.matrices.configurations))
        needs_zero |= emitter.memory.needs_zero
    head = "@inlay.zero = private unnamed_addr constant i64 0, align 8\n" if needs_zero else ""
    head += "".join(configurations)
    head += "".join(f"{line}\n" for line in sorted(declared))
    return ModuleText(head + "\n".join(texts) + helper_text(helpers), tuple(symbols))


class FunctionEmitter:
    """Writes one phase of a function."""

    def __init__(self, function: LoopFunction, target: Target, in_place: frozenset[int]) -> None:
        self.function = function
        self.in_place = in_place
        self.builder = Builder()
        dims: dict[Sym, Linear] = {d: name(f"%n{i}") for i, d in enumerate(function.dims)}
        self.index = IndexEmitter(self.builder, dims)
        self.ops = Operations(self.builder, target)
        self.memory = Memory(self.builder, self.index, self.ops)
        self.matrices = MatrixEmitter(self.builder, self.index, self.ops, self.memory, target)
        self.scalars = ScalarEmitter(self.builder, self.index, self.ops, self.memory, target)
        self._stored: dict[Stmt, tuple[Buffer, ...]] = {}
        found = assertions_of(function)
        self._assertions = {s: i for i, s in enumerate(found, start=1)}

    # ------------------------------------------------------------------ function

    def emit(self, symbol: str, phase: PhaseSource) -> str:
        """Return the text of the exported function and of the one that works."""
        layout = workspace_layout(self.function)
        n_params = len(self.function.params)
        for i, buffer in enumerate(self.function.params):
            self.memory.add_pointer(buffer, f"%b{i}")
        for buffer, offset in zip(self.function.workspaces, layout.offsets, strict=True):
            self._add_workspace(buffer, offset, layout)
        if phase.parallel:
            self._emit_share(phase.body[0])
        else:
            for statement in phase.body:
                self.statement(statement)
        self.builder.line("ret i64 0")
        count = n_params + bool(self.function.workspaces)
        release = "tilerelease" if self.matrices.configurations else ""
        if release:
            self.ops.declared.add(f"declare void @llvm.x86.{release}()")
        dims = len(self.function.dims)
        return _function_text(symbol, count, dims, self.in_place, self.builder.text(), release)

    def _add_workspace(self, buffer: Buffer, offset: Int, layout: WorkspaceLayout) -> None:
        block = f"%b{len(self.function.params)}"
        place = self.index.linear(offset)
        if buffer.per_part:
            each = self.index.linear(layout.per_part_bytes)
            shared = self.index.linear(layout.shared_bytes)
            part = self.index.scalar({("%part",): 1})
            size = self.index.value(each)
            skipped = self.builder.pure(f"mul nsw i64 {part}, {size}", (part, size), cheap=True)
            place = add(add(place, shared), name(skipped))
        start = self.index.value(place)
        text = f"getelementptr i8, ptr {block}, i64 {start}"
        self.memory.add_pointer(buffer, self.builder.pure(text, (start,), cheap=True))

    def _emit_share(self, loop: Stmt) -> None:
        """Write the iterations of the outermost loop that belong to this part."""
        assert isinstance(loop, For), "a parallel phase is one loop"
        lo = self.index.value(self.index.linear(loop.lo))
        extent = self.index.value(self.index.linear(loop.extent))
        emit = self.builder
        bounds: list[str] = []
        following = emit.pure("add nsw i64 %part, 1", ())
        for part in ("%part", following):
            share = emit.pure(f"mul nsw i64 {extent}, {part}", (extent, part))
            bound = emit.pure(f"sdiv i64 {share}, %parts", (share,))
            bounds.append(emit.pure(f"add nsw i64 {lo}, {bound}", (lo, bound)))
        self._serial(loop, bounds[0], bounds[1], may_skip=True)

    # ------------------------------------------------------------------ statements

    def statement(self, s: Stmt) -> None:
        """Write a statement."""
        match s:
            case Seq():
                for inner in flatten(s):
                    self.statement(inner)
            case Store(buffer=buffer, indices=indices, value=value):
                computed = self.scalars.value(value)
                self.memory.store(buffer, indices, computed, self.scalars.mask)
            case For():
                self._for(s)
            case Let():
                self._lets(s)
            case If():
                self._if(s)
            case Alloc():
                self._alloc(s)
            case While():
                self._while(s)
            case Assert():
                self._assert(s)
            case Block(name=block):
                raise InternalError(f"block {block} in a lowered function", where="codegen.llvm")
            case _:
                assert_never(s)

    def _lets(self, s: Let) -> None:
        statement: Stmt = s
        while isinstance(statement, Let):
            self.scalars.bind(statement.sym, self.scalars.value(statement.value))
            statement = statement.body
        self.statement(statement)

    def _alloc(self, s: Alloc) -> None:
        buffer = s.buffer
        match buffer.scope:
            case Scope.STACK:
                self.memory.add_stack(buffer)
            case Scope.REGISTER:
                width = self._cell_width(buffer, s.body)
                if width is None:
                    self.memory.add_stack(buffer)
                else:
                    self.memory.add_registers(buffer, width)
            case Scope.MATRIX:
                shapes = self.matrices.shapes_of(s)
                if shapes is None:
                    self.memory.add_stack(buffer)
                else:
                    self.matrices.prepare(s)
                    self.matrices.add(buffer, shapes)
            case _:
                raise InternalError(
                    f"buffer {buffer.name} of scope {buffer.scope} is allocated in the body",
                    where=f"codegen.llvm: {self.function.name}",
                )
        self.statement(s.body)

    def _assert(self, s: Assert) -> None:
        """Return the number of the assertion, from 1, if it does not hold for some lane."""
        holds = self.scalars.value(s.condition)
        fails = self.scalars.negated(holds)
        mask = self.scalars.mask
        if mask is not None:
            fails = self.ops.binary(BinaryOp.AND, mask, fails)
        fails = self.ops.any_lane(fails)
        self.builder.leave_if(fails.text, f"ret i64 {self._assertions[s]}")

    # ------------------------------------------------------------------ loops

    def _for(self, s: For) -> None:
        if s.kind is LoopKind.VECTOR:
            self._vector(s)
            return
        around = self.index.around
        self.index.around = {**around, s.var.name: s}
        self._loop(s)
        self.index.around = around

    def _loop(self, s: For) -> None:
        if s.kind is LoopKind.MATRIX and self.matrices.nest(s):
            return
        lo, extent = self.index.linear(s.lo), self.index.linear(s.extent)
        count = constant_of(extent)
        if count is not None and count <= 0:
            return
        if count == 1 or s.kind is LoopKind.UNROLL:
            if count is None:
                raise InternalError(
                    f"loop {s.var} is to be unrolled but runs {s.extent} times",
                    where=f"codegen.llvm: {self.function.name}",
                )
            window = self.memory.window
            for i in range(count):
                if i and loads_anew(s):
                    self.builder.forget_loads()
                if is_transposed(s):
                    self.memory.window = Window(s.var, i, count)
                self.index.env[s.var] = add(lo, number(i))
                self.statement(s.body)
            self.memory.window = window
            return
        first = self.index.value(lo)
        self._serial(s, first, self.index.value(add(lo, extent)), may_skip=count is None)

    def _serial(self, s: For, lo: str, hi: str, *, may_skip: bool) -> None:
        self.matrices.prepare(s)
        stored = self._stores(s.body)
        cells = self.memory.carried(stored)
        self.memory.changed(stored)
        outer, asked = self.memory.prefetch, aheads(s, self.index)
        others = {buffer: x for buffer, x in outer.items() if buffer not in asked}

        steps, are_mixed = written_out(s)
        for first, end, step, skips in self._turns(lo, hi, steps, may_skip=may_skip):

            def body(counter: str, values: list[str], step: int = step) -> list[str]:
                set_cells(cells, values)
                starts: list[int] = []
                for i in range(step):
                    starts.append(self.builder.position)
                    now = {buffer: x for buffer, x in asked.items() if i % x.every == 0}
                    self.memory.prefetch = others | now
                    self.index.env[s.var] = add(name(counter), number(i))
                    self.statement(s.body)
                if are_mixed:
                    self.builder.mix(starts)
                return [c.value for c in carried_values(cells)]

            carried = carried_values(cells)
            out = self.builder.for_loop(first, end, may_skip=skips, carried=carried, body=body, step=step)
            set_cells(cells, out)
            self.memory.changed(stored)
        self.memory.prefetch = outer
        self.matrices.leave(s)

    def _turns(self, lo: str, hi: str, steps: int, *, may_skip: bool) -> list[tuple[str, str, int, bool]]:
        """Return loops that are one with several steps in a turn, and one for the steps that are left.

        Each has its first value, its end, its step, and whether it may not run at all.
        """
        if steps == 1:
            return [(lo, hi, 1, may_skip)]
        if lo.startswith("%") or hi.startswith("%"):
            emit = self.builder
            count = emit.pure(f"sub nsw i64 {hi}, {lo}", (hi, lo))
            left = emit.pure(f"srem i64 {count}, {steps}", (count,))
            middle = emit.pure(f"sub nsw i64 {hi}, {left}", (hi, left))
            return [(lo, middle, steps, True), (middle, hi, 1, True)]
        middle = int(hi) - (int(hi) - int(lo)) % steps
        turns = [(lo, str(middle), steps, False), (str(middle), hi, 1, False)]
        return [turn for turn in turns if turn[0] != turn[1]]

    def _while(self, s: While) -> None:
        stored = self._stores(s.body)
        cells = self.memory.carried(stored)
        self.memory.changed(stored)

        def condition(values: list[str]) -> str:
            set_cells(cells, values)
            return self.scalars.value(s.condition).text

        def body(values: list[str]) -> list[str]:
            set_cells(cells, values)
            self.statement(s.body)
            return [c.value for c in carried_values(cells)]

        set_cells(cells, self.builder.while_loop(carried_values(cells), condition, body))
        self.memory.changed(stored)

    def _vector(self, s: For) -> None:
        extent = constant_of(self.index.linear(s.extent))
        if extent is None or self.index.width:
            problem = "is nested in another" if self.index.width else f"runs {s.extent} times"
            raise InternalError(f"vector loop {s.var} {problem}", where=f"codegen.llvm: {self.function.name}")
        lo = self.index.linear(s.lo)
        if extent == 1:
            self.index.env[s.var] = lo
            self.statement(s.body)
            return
        lanes = chunk_of(extent)
        for start in range(0, extent, lanes):
            self.index.width = lanes
            self.index.env[s.var] = add(add(lo, number(start)), name(LANE))
            self.statement(s.body)
        self.index.width = 0

    # ------------------------------------------------------------------ branches

    def _if(self, s: If) -> None:
        condition = self.scalars.value(s.condition)
        if not condition.text.startswith("%"):
            taken = s.then if condition.text.endswith(("true", "true)")) else s.otherwise
            if taken is not None:
                self.statement(taken)
            return
        if condition.lanes:
            self._masked(condition, s.then)
            if s.otherwise is not None:
                self._masked(self.scalars.negated(condition), s.otherwise)
            return
        window, self.memory.window = self.memory.window, None  # not all of it may be loaded
        self.matrices.prepare(s)
        cells = self.memory.carried(self._stores(s))
        before = carried_values(cells)

        def arm(taken: Stmt | None) -> list[Carried]:
            set_cells(cells, [c.value for c in before])
            if taken is not None:
                self.statement(taken)
            return carried_values(cells)

        merged = self.builder.branch(condition.text, lambda: arm(s.then), lambda: arm(s.otherwise))
        set_cells(cells, merged)
        self.matrices.leave(s)
        self.memory.window = window

    def _masked(self, condition: Value, body: Stmt) -> None:
        def run() -> Value:
            self.statement(body)
            return literal(0, condition.dtype)

        self.scalars.under(condition, run)

    # ------------------------------------------------------------------ facts

    def _stores(self, s: Stmt) -> tuple[Buffer, ...]:
        """Return the buffers that a statement may write, each once."""
        found = self._stored.get(s)
        if found is None:
            found = tuple(dict.fromkeys(x.buffer for x in stores_of(s)))
            self._stored[s] = found
        return found

    def _cell_width(self, buffer: Buffer, body: Stmt) -> int | None:
        """Return how many elements a register cell of a buffer has, None if it needs memory."""
        widths: set[tuple[int, bool]] = set()
        if not self._scan(body, buffer, {}, widths):
            return None
        widest = max((lanes for lanes, _ in widths), default=0)
        # Fewer lanes can be taken out of a cell, where none are across its end.
        parts = ((lanes, is_part) for lanes, is_part in widths if lanes not in (0, widest))
        return widest if all(is_part and widest % lanes == 0 for lanes, is_part in parts) else None

    def _scan(self, s: Stmt, buffer: Buffer, inner: Mapping[Sym, int], widths: set[tuple[int, bool]]) -> bool:
        """Collect the lane counts of accesses; False if an index is not a number when emitted.

        With each goes whether it is a load that starts at a multiple of its lanes.

        `inner` has the symbols bound inside: `_UNROLLED` or `_VARYING`, or, for the variable of a
        vector loop, its extent.
        """
        for part in flatten(s):
            scope = inner
            if isinstance(part, For):
                scope = {**inner, part.var: self._kind_of(part, inner)}
            elif isinstance(part, Let):
                scope = {**inner, part.sym: _VARYING}
            for indices, is_load in _accesses(part, buffer):
                found = self._scan_access(buffer, indices, scope)
                if found is None:
                    return False
                lanes, is_aligned = found
                widths.add((lanes, is_load and is_aligned))
            if not all(self._scan(c, buffer, scope, widths) for c in child_stmts(part)):
                return False
        return True

    def _kind_of(self, loop: For, inner: Mapping[Sym, int]) -> int:
        if _varies(loop.extent, inner):
            extent = None
        else:
            extent = constant_of(self.index.linear(loop.extent))
        if loop.kind is LoopKind.VECTOR and extent is not None and extent > 1:
            return chunk_of(extent)
        is_number = not any(inner.get(x, _UNROLLED) != _UNROLLED for x in symbols(loop.lo))
        if is_number and (loop.kind is LoopKind.UNROLL or extent == 1):
            return _UNROLLED
        return _VARYING

    def _scan_access(
        self, buffer: Buffer, indices: tuple[Int, ...], scope: Mapping[Sym, int]
    ) -> tuple[int, bool] | None:
        """Return lanes and whether they start at a multiple of them; None for no number when emitted."""
        width = 0
        steps: list[int] = []
        for monomial, c in self.memory.flat(buffer, indices).terms:
            steps.append(c)
            for sym in symbols(Int(((monomial, c),))):
                kind = scope.get(sym)
                if kind is None:
                    known = self.index.env.get(sym)
                    if known is None or constant_of(known) is None:
                        return None
                elif kind == _VARYING or (kind > 0 and (monomial != (sym,) or c != 1)):
                    return None
                elif kind > 0:
                    width = kind
        return width, width == 0 or sum(1 for c in steps if c % width) <= 1


# ---------------------------------------------------------------------- facts about statements


def chunk_of(extent: int) -> int:
    """Return how many iterations of a vector loop run at once.

    All of them, but LLVM cuts vectors well only in halves: 48 lanes run as three times 16.
    """
    power = extent & -extent
    return power if 4 <= power < extent else extent


def needs_optimizer(function: LoopFunction) -> bool:
    """Whether the function is scalar loops, which LLVM's own vectorizer should see."""
    found = False
    for s in stmts_below(function.body):
        if isinstance(s, For):
            if s.kind in (LoopKind.VECTOR, LoopKind.UNROLL, LoopKind.MATRIX):
                return False
            found = found or s.extent.value is None or s.extent.value > 1
    return found


def _accesses(s: Stmt, buffer: Buffer) -> Iterator[tuple[tuple[Int, ...], bool]]:
    """Yield the indices at which a statement itself loads or stores a buffer, and whether it loads."""
    if isinstance(s, Store) and s.buffer is buffer:
        yield s.indices, False
    for value in own_scalars(s):
        for x in scalars_below(value):
            if isinstance(x, Load) and x.buffer is buffer:
                yield x.indices, True


def _varies(e: Int, scope: Mapping[Sym, int]) -> bool:
    return any(s in scope for s in symbols(e))


def _function_text(
    symbol: str, n_buffers: int, n_dims: int, in_place: frozenset[int], body: str, release: str
) -> str:
    """Return the function that works and the exported one; `release`: what is called at its end."""
    params = [f"ptr{'' if i in in_place else ' noalias'} %b{i}" for i in range(n_buffers)]
    params += [f"i64 %n{i}" for i in range(n_dims)] + ["i64 %part", "i64 %parts"]
    lines: list[str] = []
    args: list[str] = []
    for i in range(n_buffers):
        lines.append(f"%s{i} = getelementptr i8, ptr %buffers, i64 {8 * i}")
        lines.append(f"%p{i} = load ptr, ptr %s{i}, align 8")
        args.append(f"ptr %p{i}")
    for i in range(n_dims):
        lines.append(f"%t{i} = getelementptr i8, ptr %ints, i64 {8 * i}")
        lines.append(f"%d{i} = load i64, ptr %t{i}, align 8")
        args.append(f"i64 %d{i}")
    args += ["i64 %part", "i64 %parts"]
    unpack = "\n".join(lines)
    after = f"call void @llvm.x86.{release}()\n" if release else ""
    return (
        f'define internal fastcc i64 @"{symbol}.body"({", ".join(params)}) '
        f'noinline nounwind "no-builtins" {{\n{body}\n}}\n'
        f'define i64 @"{symbol}"(ptr %buffers, ptr %ints, i64 %part, i64 %parts) '
        f'nounwind "no-builtins" {{\nentry:\n{unpack}\n'
        f'%r = tail call fastcc i64 @"{symbol}.body"({", ".join(args)})\n{after}ret i64 %r\n}}\n'
    )
