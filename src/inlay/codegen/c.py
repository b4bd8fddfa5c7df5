"""Lowered loop functions as C: C99, or OpenCL C, by a small dialect (`c_dialect`).

A lowered function becomes one C function per *phase* (`phases`). In C99 it is the phase of the
runtime's calling convention,

    int64_t matmul_phase0(void *const *buffers, const int64_t *ints, int64_t part, int64_t parts)

and it reads like the loop IR it came from: loops are loops, vector and unrolled loops too (what they
mean is what the serial loop means, and a C compiler turns them into vectors by itself), `REGISTER`
and `STACK` buffers are local arrays, expressions are expressions. Compilers do not warn of it
(`-Wall -Wextra -pedantic`).

Arithmetic is that of the loop IR, not that of C: signed integers wrap, narrow floats are computed in
f32 and rounded after each operation, NaN passes through minima (`c_helpers`). Elementary functions
are those of `<math.h>`: within the tolerance table, but not bit for bit those of `llvm_math`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from inlay.arith.dtype import I64
from inlay.arith.expr import Int, Sym, lit, symbols
from inlay.base.diagnostics import InternalError
from inlay.codegen.c_dialect import INDENT, Arguments, Dialect, Pointer
from inlay.codegen.c_dialects import DIALECTS
from inlay.codegen.c_helpers import Helpers, register_type
from inlay.codegen.c_names import Names
from inlay.codegen.c_scalar import ScalarText
from inlay.codegen.c_text import PLUS, PRODUCT, SUM, TIMES, UNARY, IndexText, Text, folded, infix
from inlay.codegen.c_vector import VectorText, chunks, vector_store
from inlay.codegen.phases import PhaseSource, WorkspaceLayout, assertions_of, phases_of, workspace_layout
from inlay.loop.buffer import Buffer, Scope, flat_index
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.scalar import Index, Load, Name, Scalar
from inlay.loop.stmt import Alloc, Assert, Block, For, If, Let, LoopKind, Seq, Stmt, Store, While
from inlay.loop.walk import Rewrite, own_ints, own_scalars, scalars_below, stmts_below, stores_of
from inlay.machine.target import Target


@dataclass(frozen=True, slots=True)
class PhaseText:
    """A phase in a source file.

    Attributes:
        symbol: the C function.
        parallel: whether parts share it.
        iterations: what there is to share, over the dims; 1 where it is not parallel.
        asserts: whether it can fail.
    """

    symbol: str
    parallel: bool
    iterations: Int
    asserts: bool


@dataclass(frozen=True, slots=True)
class SourceText:
    """Functions as one source file.

    Attributes:
        text: the file.
        phases: of each function, by its name.
    """

    text: str
    phases: dict[str, tuple[PhaseText, ...]]


def emit_source(
    functions: tuple[LoopFunction, ...], target: Target, in_place: dict[str, frozenset[int]] | None = None
) -> SourceText:
    """Return lowered functions as one file.

    Args:
        functions: lowered; their names are C identifiers, each used once.
        target: what they were lowered for; it names the language.
        in_place: of each function, positions of parameters that may share bytes with another one,
            element by element at equal positions.

    Raises:
        InternalError: a function is not lowered, or breaks a rule of the loop IR.
    """
    dialect = DIALECTS[target.dialect]
    helpers = Helpers(dialect)
    texts: list[str] = []
    phases: dict[str, tuple[PhaseText, ...]] = {}
    for f in functions:
        if f.stage is not Stage.LOWERED:
            raise InternalError(f"{f.name} is not lowered", where="codegen.c")
        shared = (in_place or {}).get(f.name, frozenset())
        found: list[PhaseText] = []
        for i, phase in enumerate(phases_of(f)):
            symbol = f"{f.name}_phase{i}"
            texts.append(_PhaseWriter(f, dialect, helpers, shared).write(symbol, phase))
            loop = phase.body[0] if phase.parallel else None
            asserts = any(isinstance(x, Assert) for s in phase.body for x in stmts_below(s))
            iterations = loop.extent if isinstance(loop, For) else lit(1)
            found.append(PhaseText(symbol, phase.parallel, iterations, asserts))
        phases[f.name] = tuple(found)
    parts = [dialect.head, helpers.text(), *texts]
    return SourceText("\n".join(p for p in parts if p), phases)


class _PhaseWriter:
    """Writes one phase. Lines are collected per block; the block outside indents them."""

    def __init__(self, f: LoopFunction, dialect: Dialect, helpers: Helpers, in_place: frozenset[int]) -> None:
        self._f = f
        self._dialect = dialect
        self._in_place = in_place
        self._names = Names(dialect.reserved)
        self._used: set[str] = set()
        self._buffers: dict[Buffer, str] = {}
        self._locals: set[Buffer] = set()
        self._index = IndexText(helpers, self._use_sym)
        self._scalars = ScalarText(
            dialect, helpers, self._names, self._index, self._element, self._locals.__contains__
        )
        self._vector = VectorText(
            helpers, self._element, lambda b: "" if b in self._locals else dialect.space
        )
        self._assertions = {s: i for i, s in enumerate(assertions_of(f), start=1)}

    # ------------------------------------------------------------------ function

    def write(self, symbol: str, phase: PhaseSource) -> str:
        """Return the text of the function."""
        f = self._f
        written = {x.buffer for s in phase.body for x in stores_of(s)}
        pointers: list[Pointer] = []
        for i, b in enumerate(f.params):
            name = self._buffers[b] = self._names.fresh(b.name)
            pointers.append(Pointer(name, i, b.dtype.c, b not in written, i not in self._in_place))
        block = self._names.fresh("workspace")
        if f.workspaces:
            pointers.append(Pointer(block, len(f.params), "uint8_t", False, False))  # noqa: FBT003
        dims: list[str] = []
        for d in f.dims:
            dims.append(self._names.fresh(d.name))
            self._index.env[d] = Text(dims[-1])
        for b in f.workspaces:
            self._buffers[b] = self._names.fresh(b.name)
        body = self._phase(phase)
        bound = self._workspaces(block)
        asserts = any(isinstance(x, Assert) for s in phase.body for x in stmts_below(s))
        arguments = Arguments(tuple(pointers), tuple(dims), frozenset(self._used), asserts)
        lines = self._dialect.begin(symbol, arguments)
        lines += [INDENT + line for line in (*bound, *body)]
        lines += self._dialect.end()
        return "\n".join(part for line in lines for part in folded(line)) + "\n"

    def _phase(self, phase: PhaseSource) -> list[str]:
        if not phase.parallel:
            return self._block(*phase.body)
        loop = phase.body[0]
        assert isinstance(loop, For), "a parallel phase is one loop"
        self._used |= {"part", "parts"}
        lo, extent = self._index.text(loop.lo), self._index.text(loop.extent)
        self._names.open()
        var = self._enter(loop, self._names.fresh(loop.var.name))
        share = self._dialect.share(var, lo.at(SUM), extent.at(PRODUCT))
        lines = [*share, *_inside(self._block(loop.body)), "}"]
        self._names.close()
        return lines

    def _workspaces(self, block: str) -> list[str]:
        """Return the lines that find the workspaces that the phase uses in their block."""
        layout = workspace_layout(self._f)
        lines: list[str] = []
        for b, offset in zip(self._f.workspaces, layout.offsets, strict=True):
            name = self._buffers[b]
            if name not in self._used:
                continue
            place = self._place(b, offset, layout)
            start = block if place.text == "0" else f"({block} + {place.at(SUM)})"
            pointer = f"{self._dialect.space}{b.dtype.c} *"
            lines.append(f"{pointer}{name} = ({pointer})(void *){start};")
            if self._dialect.space:
                lines[-1] = f"{pointer}{name} = ({pointer}){start};"
            self._used.add(block)
        return lines

    def _place(self, b: Buffer, offset: Int, layout: WorkspaceLayout) -> Text:
        if not b.per_part:
            return self._index.text(offset)
        self._used.add("part")
        each = self._index.text(layout.per_part_bytes)
        mine = infix(Text("part"), TIMES, each)
        start = layout.shared_bytes + offset
        return mine if start == 0 else infix(self._index.text(start), PLUS, mine)

    # ------------------------------------------------------------------ places

    def _use_sym(self, sym: Sym) -> None:
        if sym not in self._index.env:
            raise InternalError(f"scalar {sym} is not in scope", where="codegen.c")
        self._used.add(self._index.env[sym].text)

    def _element(self, b: Buffer, indices: tuple[Int, ...]) -> str:
        name = self._buffers.get(b)
        if name is None:
            raise InternalError(f"buffer {b.name} is not in scope", where="codegen.c")
        self._used.add(name)
        if b in self._locals and b.strides is None:
            return name + ("".join(f"[{self._index.text(e).text}]" for e in indices) or "[0]")
        return f"{name}[{self._index.text(flat_index(b, indices)).text}]"

    # ------------------------------------------------------------------ statements

    def _block(self, *stmts: Stmt) -> list[str]:
        """Return the lines of a block of its own."""
        outside = self._scalars.lines
        lines = self._scalars.lines = []
        self._names.open()
        for s in stmts:
            self._stmt(s)
        self._names.close()
        self._scalars.lines = outside
        return lines

    def _line(self, *lines: str) -> None:
        self._scalars.lines += lines

    def _stmt(self, s: Stmt) -> None:
        """Write a statement into the present block."""
        match s:
            case Seq(stmts=stmts):
                for inner in stmts:
                    self._stmt(inner)
            case Store(buffer=b, indices=indices, value=value):
                text = self._scalars.stored(value, local=b in self._locals)
                self._line(f"{self._element(b, indices)} = {text};")
            case For():
                self._for(s)
            case Let():
                self._let(s)
            case If():
                self._if(s)
            case Alloc(buffer=b, body=body):
                self._alloc(b)
                self._stmt(body)
            case While():
                self._while(s)
            case Assert(condition=condition):
                holds = self._scalars.value(condition)
                self._line(f"if (!({holds.text})) {self._dialect.fail(self._assertions[s])}")
            case Block(name=name):
                raise InternalError(f"block {name} in a lowered function", where="codegen.c")
            case _:
                assert_never(s)

    def _enter(self, loop: For, name: str) -> str:
        self._index.env[loop.var] = Text(name)
        self._index.bounds = self._index.bounds.inside(loop.var, loop.lo, loop.extent)
        return name

    def _for(self, s: For) -> None:
        count = s.extent.value
        if count is not None and count <= 0:
            return
        if self._dialect.has_vectors and vector_store(s) is not None:
            self._vectors(s)
            return
        outside = self._index.bounds
        if count == 1:
            self._index.env[s.var] = _operand(self._index.text(s.lo))
            self._index.bounds = outside.inside(s.var, s.lo, s.extent)
            self._stmt(s.body)
        else:
            first, end = self._index.text(s.lo), self._index.text(s.lo + s.extent)
            self._names.open()
            var = self._enter(s, self._names.fresh(s.var.name))
            if s.kind in (LoopKind.UNROLL, LoopKind.VECTOR):
                self._line(*self._dialect.before_unrolled())
            head = f"for (int64_t {var} = {first.text}; {var} < {end.at(SUM)}; {var}++) {{"
            self._line(head, *_inside(self._block(s.body)), "}")
            self._names.close()
        self._index.bounds = outside

    def _vectors(self, s: For) -> None:
        store, count = vector_store(s), s.extent.value
        assert store is not None, "asked before"
        assert count is not None, "vectors have a constant length"
        for at, width in chunks(count):
            first = s.lo + at
            if width > 1:
                self._line(self._vector.store(store, s.var, first, width))
            else:
                self._stmt(Rewrite({s.var: first}).stmt(store))

    def _let(self, s: Let) -> None:
        if not _mentions(s.body, s.sym):
            self._stmt(s.body)
            return
        dtype = s.value.dtype
        value = self._scalars.value(s.value)
        name = self._names.fresh(s.sym.name)
        self._line(f"const {register_type(dtype)} {name} = {value.text};")
        if dtype == I64:
            self._index.env[s.sym] = Text(name)
            self._index.unknown.add(s.sym)
        else:
            self._scalars.lets[s.sym] = Text(name)
        self._stmt(s.body)

    def _if(self, s: If) -> None:
        condition = self._scalars.value(s.condition)
        if condition.text in ("true", "false"):
            taken = s.then if condition.text == "true" else s.otherwise
            if taken is not None:
                self._stmt(taken)
            return
        lines = [f"if ({condition.text}) {{", *_inside(self._block(s.then))]
        if s.otherwise is not None:
            lines += ["} else {", *_inside(self._block(s.otherwise))]
        self._line(*lines, "}")

    def _while(self, s: While) -> None:
        outside = self._scalars.lines
        before = self._scalars.lines = []
        self._names.open()
        condition = self._scalars.value(s.condition)
        self._scalars.lines = outside
        body = self._block(s.body)
        self._names.close()
        if before:
            # What the condition names is computed anew each time.
            stop = f"if (!({condition.text})) break;"
            self._line("for (;;) {", *_inside([*before, stop, *body]), "}")
        else:
            self._line(f"while ({condition.text}) {{", *_inside(body), "}")

    def _alloc(self, b: Buffer) -> None:
        if b.scope not in (Scope.STACK, Scope.REGISTER, Scope.MATRIX):
            raise InternalError(
                f"buffer {b.name} of scope {b.scope} is allocated in the body",
                where=f"codegen.c: {self._f.name}",
            )
        name = self._buffers[b] = self._names.fresh(b.name)
        self._locals.add(b)
        extents = [e.value for e in b.shape] if b.strides is None else [_span(b)]
        if any(n is None for n in extents):
            raise InternalError(f"buffer {b.name} has no constant shape", where="codegen.c")
        dims = "".join(f"[{max(n or 0, 1)}]" for n in extents) or "[1]"
        self._line(f"{register_type(b.dtype)} {name}{dims};")


# ---------------------------------------------------------------------- facts


def _inside(lines: list[str]) -> list[str]:
    return [INDENT + line if line else line for line in lines]


def _operand(value: Text) -> Text:
    return Text(value.at(UNARY))


def _span(b: Buffer) -> int | None:
    """Return how many elements a buffer with strides reaches over."""
    last = flat_index(b, tuple(e - 1 for e in b.shape)).value
    return None if last is None else last + 1


def _mentions(s: Stmt, sym: Sym) -> bool:
    """Whether a statement needs the value of a symbol."""
    for inner in stmts_below(s):
        if any(sym in symbols(e) for e in own_ints(inner)):
            return True
        for value in own_scalars(inner):
            for x in scalars_below(value):
                if isinstance(x, Name) and x.sym == sym:
                    return True
                if any(sym in symbols(e) for e in _ints_of(x)):
                    return True
    return False


def _ints_of(x: Scalar) -> tuple[Int, ...]:
    match x:
        case Load(indices=indices):
            return indices
        case Index(value=value):
            return (value,)
        case _:
            return ()
