"""Loops of the tensor IR, found by tracing a step and built in canonical form.

**Loops** are canonical: a let-bound function that is called once from outside and otherwise only in
tail position of its own body; what it captures is invariant; parameter 0 is the counter. The
dims of carried values are found by tracing the body: a dim that the body does not provably keep
becomes a parameter of the loop function, and the body is traced again, so callbacks may run several
times (never more than once per dim that varies, plus one) and must not have effects that outlive
their scope.

Results of the steps are **stacked** row by row. If only a count bounds the loop, they are written
with `set_row` into one buffer; otherwise they are appended with `push_row`, and the number of rows
is the final value of the counter, in the type: `some i. (int[i], ..., Tensor[i, 4, f32])`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic
from typing import TypeVar as GenericVar

from inlay.arith import expr as arith
from inlay.arith.expr import Int, Sym, from_atom, lit, substitute
from inlay.base.diagnostics import error
from inlay.ir import make
from inlay.ir.conform import conforms, join
from inlay.ir.context import Context
from inlay.ir.core_ops import BOOL_AND, INT_LESS, PUSH_ROW, SET_ROW, ZEROS, DTypeAttrs
from inlay.ir.dims import LEAST_INT
from inlay.ir.existentials import pack
from inlay.ir.expr import Expr, Var
from inlay.ir.scope import LetBuilder
from inlay.ir.type_printer import type_text
from inlay.ir.types import (
    UNKNOWN,
    AdtType,
    DimParam,
    FuncType,
    IntType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
)

S = GenericVar("S", bound=LetBuilder)


@dataclass(frozen=True, slots=True)
class Step:
    """What one pass through a loop body gives.

    Attributes:
        carried: the next carried values.
        rows: one tensor for each stacked result.
    """

    carried: Sequence[Expr]
    rows: Sequence[Expr] = ()


@dataclass(frozen=True, slots=True)
class LoopResult:
    """What a loop leaves behind.

    Attributes:
        count: how many times the body ran.
        carried: the last carried values.
        stacked: the rows of all steps, along a new first dim.
    """

    count: Int
    carried: tuple[Expr, ...]
    stacked: tuple[Expr, ...]


def flag(flags: Sequence[bool], i: int) -> bool:
    """Return a flag; those that are not given are off."""
    return i < len(flags) and flags[i]


class LoopTrace(Generic[S]):
    """Finds the types of a loop by tracing its body, and builds it.

    The parameters are `i`, the carried values, and one buffer for each stacked result. `types` holds
    what is believed of the carried values; `dims` are the symbols the loop function binds. A trace
    that refutes a belief widens it: that only ever turns dims into symbols of their own, so it ends.
    """

    def __init__(
        self,
        builder: S,
        carried: list[Expr],
        body: Callable[[S, Int, tuple[Var, ...]], Step],
        condition: Callable[[S, Int, tuple[Var, ...]], Expr] | None,
        count: Int | int | None,
        names: Sequence[str],
        name: str,
        reverse_rows: Sequence[bool] = (),
    ) -> None:
        self.b = builder
        self.carried = carried
        self.body = body
        self.condition = condition
        self.count = None if count is None else arith.to_int(count)
        self.names = [names[i] if i < len(names) else f"c{i}" for i in range(len(carried))]
        self.name = name
        self.reverse_rows = reverse_rows
        self.counter = arith.fresh("i")
        self.dims: dict[Sym, DimParam] = {self.counter: DimParam(self.counter, 0)}
        self.types = [self._start_type(c.type) for c in carried]
        self.rows: list[TensorType] = []

    @property
    def i(self) -> Int:
        """The counter."""
        return from_atom(self.counter)

    def run(self) -> LoopResult:
        """Trace until what is believed holds, and build the loop.

        Raises:
            CompileError: `type.loop-carried`, `type.stacked-rows`.
        """
        while True:
            trace = self._trace()
            if self._holds(trace):
                return self._build(trace)

    def _start_type(self, t: Type) -> Type:
        """Return the first belief: all dims are kept, control integers change."""
        match t:
            case IntType():
                return IntType(self.symbol("c", LEAST_INT))
            case TupleType(fields=fields):
                return TupleType(tuple(map(self._start_type, fields)))
            case ShapeType(values=values) if None in values:
                return ShapeType(tuple(self.symbol("c", LEAST_INT) if v is None else v for v in values))
            case _:
                return t

    def symbol(self, name: str, low: int) -> Int:
        """Return a new dim of the loop function."""
        sym = arith.fresh(name)
        self.dims[sym] = DimParam(sym, low)
        return from_atom(sym)

    # ------------------------------------------------------------------ tracing

    def _trace(self) -> _Trace[S]:
        b = self.b
        first_inner = arith.fresh("trace")
        b.declare(tuple(self.dims.values()))
        index = Var("i", IntType(self.i), b.span)
        params = tuple(Var(n, t, b.span) for n, t in zip(self.names, self.types, strict=True))
        buffers = tuple(
            Var(f"stack{j}", self._buffer_type(t, inside=True), b.span) for j, t in enumerate(self.rows)
        )
        head = b.scope()
        condition = self._condition(head, params)
        body = head.scope()
        step = self.body(body, self.i, params)
        values = [body.bind(v) for v in step.carried]
        rows = [body.bind(r) for r in step.rows]
        if len(values) != len(params):
            raise error(
                "type.loop-carried",
                f"found {len(values)} values from a step of {self.name}, needed {len(params)}",
                span=b.span,
            )
        return _Trace(first_inner, index, params, buffers, head, condition, body, values, rows)

    def _condition(self, head: S, params: tuple[Var, ...]) -> Expr:
        counted = None
        if self.count is not None:
            counted = head.emit(INT_LESS, (make.int_const(self.i), make.int_const(self.count)))
        if self.condition is None:
            assert counted is not None
            return counted
        asked = head.bind(self.condition(head, self.i, params))
        return asked if counted is None else head.emit(BOOL_AND, (counted, asked))

    # ------------------------------------------------------------------ widening

    def _holds(self, trace: _Trace[S]) -> bool:
        """Compare the beliefs with a trace; widen them and return False where they were wrong."""
        widening = _Widening(self, trace)
        found = [
            widening.compare(t, v.type, n)
            for t, v, n in zip(self.types, trace.values, self.names, strict=True)
        ]
        rows = [self._row_type(r, trace) for r in trace.rows]
        holds = found == self.types and rows == self.rows
        self.types, self.rows = found, rows
        return holds

    def _row_type(self, row: Expr, trace: _Trace[S]) -> TensorType:
        t = row.type
        if not isinstance(t, TensorType):
            raise error(
                "type.stacked-rows",
                f"found {type_text(t)}, needed a tensor as a stacked result of {self.name}",
                span=row.span or self.b.span,
            )
        for d in t.shape:
            for s in arith.symbols(d):
                if s.uid > trace.first_inner.uid or s in self.dims:
                    raise error(
                        "type.stacked-rows",
                        f"found rows {type_text(t)} whose size may differ from step to step of "
                        f"{self.name}, needed rows of one size",
                        span=row.span or self.b.span,
                        hint="relate the size to a dim outside of the loop with check_shape",
                    )
        return t

    def _buffer_type(self, row: TensorType, *, inside: bool) -> TensorType:
        if self.condition is None:
            assert self.count is not None
            length = self.count
        else:
            length = self.i if inside else lit(0)
        return TensorType((length, *row.shape), row.dtype)

    # ------------------------------------------------------------------ building

    def _build(self, trace: _Trace[S]) -> LoopResult:
        b = self.b
        params = (trace.index, *trace.params, *trace.buffers)
        types = tuple(p.type for p in params)
        used = tuple(self.dims.values())
        result = pack(TupleType(types), used)
        own = Var(self.name, FuncType(types, result, used), b.span)
        grown = [self._store(trace, j) for j in range(len(trace.rows))]
        again = trace.body.emit(own, (make.int_const(self.i + 1), *trace.values, *grown), name="again")
        stop = make.tuple_(params, span=b.span)
        head = make.if_(trace.condition, trace.body.finish(again), stop, span=b.span, known=b.known)
        made = make.function(params, trace.head.finish(head), result, used, span=b.span, known=b.known)
        starts = [
            b.emit(
                ZEROS,
                (make.shape_const(self._buffer_type(r, inside=False).shape),),
                DTypeAttrs(r.dtype),
                name=f"stack{j}",
            )
            for j, r in enumerate(self.rows)
        ]
        b.bind_recursive(own, made)
        final = b.emit(own, (make.int_const(0), *self.carried, *starts), name=f"{self.name}_end")
        values = b.unpack(final, ("count", *self.names, *(f"stack{j}" for j in range(len(starts)))))
        n = len(self.carried)
        counter = values[0].type
        assert isinstance(counter, IntType)
        count = counter.value
        assert count is not None, "the variable of an int has a name for it"
        if self.condition is None and self.count is not None:
            if b.known.facts.at_least(self.count, lit(0)):
                count = self.count
        return LoopResult(count, values[1 : n + 1], values[n + 1 :])

    def _store(self, trace: _Trace[S], j: int) -> Expr:
        buffer, row = trace.buffers[j], trace.rows[j]
        if self.condition is not None:
            return trace.body.emit(PUSH_ROW, (buffer, row), name=buffer.name)
        assert self.count is not None
        at = self.count - 1 - self.i if flag(self.reverse_rows, j) else self.i
        return trace.body.emit(SET_ROW, (buffer, make.int_const(at), row), name=buffer.name)


@dataclass(frozen=True, slots=True)
class _Trace(Generic[S]):
    """One run of the callbacks. Symbols with a uid above that of `first_inner` belong to it."""

    first_inner: Sym
    index: Var
    params: tuple[Var, ...]
    buffers: tuple[Var, ...]
    head: S
    condition: Expr
    body: S
    values: list[Expr]
    rows: list[Expr]


class _Widening:
    """Compares believed types with those after a step.

    `solved` is what the step makes of each symbol of the loop: one symbol may stand in several
    places only while all of them change alike; where they do not, the later place gets its own.
    """

    def __init__(self, loop: LoopTrace[S], trace: _Trace[S]) -> None:
        self.loop = loop
        self.facts = loop.b.known.facts
        self.span = loop.b.span
        self.solved: dict[Sym, Int] = {loop.counter: loop.i + 1}
        self.fresh: dict[tuple[Int, Int], Int] = {}
        self.bound = set(loop.dims)
        self.first_inner = trace.first_inner.uid

    def compare(self, believed: Type, found: Type, name: str) -> Type:
        match believed, found:
            case TensorType(), TensorType() if believed.dtype == found.dtype and len(believed.shape) == len(
                found.shape
            ):
                pairs = zip(believed.shape, found.shape, strict=True)
                return TensorType(tuple(self._dim(d, a, 0) for d, a in pairs), believed.dtype)
            case IntType(value=Int() as d), IntType(value=Int() as a):
                return IntType(self._dim(d, a, LEAST_INT))
            case ShapeType(values=ds), ShapeType(values=values) if len(ds) == len(values):
                pairs = zip(ds, values, strict=True)
                return ShapeType(tuple(self._dim(d, a, LEAST_INT) for d, a in pairs))  # type: ignore[arg-type]
            case TupleType(fields=ds), TupleType(fields=types) if len(ds) == len(types):
                pairs = zip(ds, types, strict=True)
                return TupleType(tuple(self.compare(d, t, name) for d, t in pairs))
            case _ if believed is not UNKNOWN and conforms(believed, found):
                return believed
            case AdtType(), AdtType() if believed.name == found.name:
                return join(believed, found, Context(name, self.span), "steps of the loop")
            case _:
                raise error(
                    "type.loop-carried",
                    f"{name} starts as {type_text(believed)} and a step makes it {type_text(found)}",
                    span=self.span,
                    hint="rank, element type and kind of a carried value stay the same",
                )

    def _dim(self, d: Int, a: Int, low: int) -> Int:
        atom = d.atom
        if isinstance(atom, Sym) and atom in self.bound and atom not in self.solved:
            self.solved[atom] = a
            return d
        expected = substitute(d, self.solved)
        if expected == a or self.facts.equal(expected, a):
            return d
        key = (d, a)
        if key not in self.fresh:
            symbols = arith.symbols(d)
            self.fresh[key] = self.loop.symbol(symbols[0].name if symbols else "k", low)
        return self.fresh[key]
