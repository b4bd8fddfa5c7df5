"""Builds programs in A-normal form from Python: what importers use.

A `Builder` is a scope that accumulates lets. `emit` makes a call, binds it and returns the variable;
what is not determined by the inputs gets a symbol there, so `b.emit(TO_CONTROL, (t,))` is an
`int[c]` whose `c` can be a dim from then on. Branches and bodies are callbacks that get a scope of
their own and return one value or several:

    b = Builder()
    x = b.param("x", tensor_type((n, 64), F32))
    y = b.if_(flag, lambda s: s.emit(RELU, (x,)), lambda s: x)
    main = b.function(b.emit(ADD, (x, y)))

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from inlay.arith import expr as arith
from inlay.arith.bounds import Range
from inlay.arith.expr import Int, Sym, from_atom, lit, substitute
from inlay.arith.solve import Facts
from inlay.base.diagnostics import error
from inlay.base.span import NO_SPAN, Span
from inlay.ir import make
from inlay.ir.conform import conforms, dim_range, join
from inlay.ir.context import Context, Known
from inlay.ir.core_ops import (
    BOOL_AND,
    GET_ROW,
    INT_LESS,
    PUSH_ROW,
    SET_ROW,
    ZEROS,
    DTypeAttrs,
)
from inlay.ir.dims import LEAST_INT, substitute_type
from inlay.ir.expr import (
    Call,
    Const,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    OpRef,
    Pattern,
    Var,
)
from inlay.ir.module import Adt
from inlay.ir.op import Op
from inlay.ir.opening import open_exists, pack
from inlay.ir.place import Place
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

Values = Expr | Sequence[Expr]
ATOMS: tuple[type, ...] = (Var, Const, GlobalVar, OpRef, ConstructorRef)


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


class Builder:
    """A scope of lets under construction.

    Args:
        parent: the scope around it; use `scope()`.
    """

    def __init__(self, parent: Builder | None = None) -> None:
        self._bindings: list[tuple[Var, Expr]] = []
        self._params: list[Var] = []
        if parent is None:
            self._ranges: dict[Sym, Range] = {}
            self._definitions: dict[object, object] = {}
        else:  # symbols and variables are unique, so all scopes share one table
            self._ranges = parent._ranges
            self._definitions = parent._definitions
        self.known = Known(Facts(MappingProxyType(self._ranges)), self._definitions.get)
        self.span: Span = NO_SPAN if parent is None else parent.span
        """The span of what is built next, where no other is given."""

    def scope(self) -> Builder:
        """Return a new scope inside this one: a branch or a body."""
        return Builder(self)

    # ------------------------------------------------------------------ names

    def declare(self, dims: Sequence[DimParam]) -> None:
        """Take note of what is known of symbols."""
        for d in dims:
            self._ranges[d.sym] = dim_range(d, self.known.facts)

    def param(self, name: str, type: Type, span: Span | None = None) -> Var:
        """Return a new parameter of the function this scope is the body of."""
        v = Var(name, type, span or self.span)
        self._params.append(v)
        return v

    def bind(
        self,
        value: Expr,
        name: str = "t",
        *,
        span: Span | None = None,
        declared: Type | None = None,
    ) -> Expr:
        """Return a variable for the value, with names for what is unknown in its type.

        Variables and constants stand for themselves.

        Args:
            value: what is bound.
            name: of the variable.
            span: where the variable stands.
            declared: a type that says less than that of the value: `let v: some k. Tensor[k] = ...`.
        """
        if isinstance(value, ATOMS):
            return value
        type, dims = open_exists(value.type if declared is None else declared, name)
        self.declare(dims)
        v = Var(name, type, span or value.span or self.span, value.place)
        self._bindings.append((v, value))
        self._definitions[v] = value
        return v

    def bind_recursive(self, name: Var, function: Function) -> None:
        """Bind a function to the variable that its own body calls."""
        self._bindings.append((name, function))

    # ------------------------------------------------------------------ values

    def emit(
        self,
        callee: Op | Expr,
        args: Sequence[Expr],
        attrs: object = None,
        *,
        name: str = "",
        span: Span | None = None,
        place: Place | None = None,
    ) -> Expr:
        """Make a call, bind it, and return its variable. Operands that are no atoms are bound."""
        span = span or self.span
        atoms = [a if isinstance(a, ATOMS) else self.bind(a) for a in args]
        made = make.call(callee, atoms, attrs, span=span, place=place, known=self.known)
        assert isinstance(made, Call), "operands of open type need no let"
        checked = tuple([self._bind_checks(a) for a in made.args])
        if any(a is not b for a, b in zip(checked, made.args, strict=True)):
            made = Call(made.callee, checked, made.type, made.span, made.place)
        return self.bind(made, name or _hint(callee), span=span)

    def _bind_checks(self, e: Expr) -> Expr:
        """Bind the checks that `make.call` wrapped around an operand."""
        chain: list[Call] = []
        while isinstance(e, Call):
            chain.append(e)
            e = e.args[0]
        for c in reversed(chain):
            inner = Call(c.callee, (e, *c.args[1:]), c.type, c.span, c.place)
            e = self.bind(inner, e.name if isinstance(e, Var) else "checked")
        return e

    def tuple(self, fields: Sequence[Expr], *, name: str = "t") -> Expr:
        """Bind a tuple."""
        return self.bind(make.tuple_([self.bind(f) for f in fields], span=self.span), name)

    def project(self, value: Expr, index: int, *, name: str = "t") -> Expr:
        """Bind a field of a tuple."""
        return self.bind(make.project(self.bind(value), index, span=self.span), name)

    def unpack(self, value: Expr, names: Sequence[str] = ()) -> tuple[Expr, ...]:
        """Bind all fields of a tuple."""
        value = self.bind(value)
        assert isinstance(value.type, TupleType), "unpack takes a tuple"
        return tuple(
            self.project(value, i, name=names[i] if i < len(names) else "t")
            for i in range(len(value.type.fields))
        )

    # ------------------------------------------------------------------ ends

    def finish(self, result: Values) -> Expr:
        """Return the lets of this scope around a result; several values make a tuple."""
        body = result if not isinstance(result, Sequence) else self.tuple(result, name="result")
        if not isinstance(body, ATOMS) and self._bindings:
            body = self.bind(body, "result")
        if self._bindings and body is self._bindings[-1][0]:
            body = self._bindings.pop()[1]  # the last value needs no name
        return make.lets(self._bindings, body)

    def function(
        self,
        result: Values,
        *,
        result_type: Type | None = None,
        dims: Sequence[DimParam | Sym] | None = None,
        outer: Sequence[Sym] = (),
        span: Span | None = None,
    ) -> Function:
        """Return the function whose parameters and body are in this scope; see `make.function`."""
        body = self.finish(result)
        return make.function(
            self._params,
            body,
            result_type,
            dims,
            outer=outer,
            span=span or self.span,
            known=self.known,
        )

    # ------------------------------------------------------------------ branches

    def if_(
        self,
        condition: Expr,
        then: Callable[[Builder], Values],
        otherwise: Callable[[Builder], Values],
        *,
        name: str = "branch",
    ) -> Expr:
        """Bind a branch; several values make a tuple (see `unpack`)."""
        arms: list[tuple[Builder, Values]] = []
        for fill in (then, otherwise):
            inner = self.scope()
            arms.append((inner, fill(inner)))
        return self.join(condition, arms[0], arms[1], name=name)

    def join(
        self,
        condition: Expr,
        then: tuple[Builder, Values],
        otherwise: tuple[Builder, Values],
        *,
        name: str = "branch",
    ) -> Expr:
        """Bind a branch whose arms are scopes that were filled already, with their values."""
        condition = self.bind(condition, "condition")
        arms = [inner.finish(values) for inner, values in (then, otherwise)]
        made = make.if_(condition, arms[0], arms[1], span=self.span, known=self.known)
        return self.bind(made, name)

    def match(
        self,
        scrutinee: Expr,
        adt: Adt,
        arms: Mapping[str, Callable[..., Values]],
        *,
        name: str = "matched",
    ) -> Expr:
        """Bind a match with one arm for each constructor.

        Args:
            scrutinee: a value of the data type.
            adt: its definition.
            arms: by constructor, a function of the scope and one variable for each field.
            name: of the result.
        """
        scrutinee = self.bind(scrutinee)
        t = scrutinee.type
        assert isinstance(t, AdtType), "match takes a value of a data type"
        types = {p.name: a for p, a in zip(adt.params, t.args, strict=True)}
        made: list[tuple[Pattern, Expr]] = []
        for c in adt.constructors:
            inner = self.scope()
            fields: list[Var] = []
            for i, declared in enumerate(c.fields):
                opened, dims = open_exists(substitute_type(declared, {}, types))
                self.declare(dims)
                fields.append(Var(f"{c.name.lower()}_{i}", opened, self.span))
            body = inner.finish(arms[c.name](inner, *fields))
            made.append((make.pattern(adt, c.name, fields), body))
        return self.bind(make.match(scrutinee, made, span=self.span, known=self.known), name)

    def recursive(
        self, name: str, type: FuncType, body: Callable[[Builder, Var, tuple[Var, ...]], Values]
    ) -> Var:
        """Bind a local function that may call itself.

        Args:
            name: of the function.
            type: its whole type; symbols it does not bind belong to the scope around it.
            body: gets the scope, the function and the parameters.
        """
        own = Var(name, type, self.span)
        inner = self.scope()
        self.declare(type.dims)
        params: list[Var] = []
        for i, t in enumerate(type.params):
            opened, dims = open_exists(t)
            self.declare(dims)
            params.append(Var(f"p{i}", opened, self.span))
        made = make.function(
            params,
            inner.finish(body(inner, own, tuple(params))),
            type.result,
            type.dims,
            param_types=type.params,
            type_vars=type.type_vars,
            span=self.span,
            known=self.known,
        )
        self.bind_recursive(own, made)
        return own

    # ------------------------------------------------------------------ loops

    def loop(
        self,
        carried: Sequence[Expr],
        body: Callable[[Builder, Int, tuple[Var, ...]], Step],
        *,
        condition: Callable[[Builder, Int, tuple[Var, ...]], Expr] | None = None,
        count: Int | int | None = None,
        names: Sequence[str] = (),
        name: str = "loop",
    ) -> LoopResult:
        """Run a body while a condition holds and a count is not reached.

        Args:
            carried: the first values of what the steps hand on.
            body: makes one step from the scope, the counter (0, 1, ...) and the carried values.
            condition: a control bool, asked before each step; without it only the count decides.
            count: the greatest number of steps.
            names: of the carried values.
            name: of the loop function.

        Raises:
            CompileError: `type.loop-carried` where a step changes the kind of a carried value,
                `type.stacked-rows` where the size of rows differs from step to step.
        """
        assert condition is not None or count is not None, "a loop needs a condition or a count"
        return _LoopTrace(
            self, [self.bind(c) for c in carried], body, condition, count, names, name
        ).run()

    def scan(
        self,
        carried: Sequence[Expr],
        sequences: Sequence[Expr],
        body: Callable[[Builder, tuple[Var, ...], tuple[Expr, ...]], Step],
        *,
        reverse_sequences: Sequence[bool] = (),
        reverse_rows: Sequence[bool] = (),
        names: Sequence[str] = (),
        name: str = "scan",
    ) -> LoopResult:
        """Run a body for each row of the sequences, all of one length.

        Args:
            carried: the first values of what the steps hand on.
            sequences: at least one tensor; each step gets row `i` of each.
            body: makes one step from the scope, the carried values and the rows.
            reverse_sequences: which sequences are read from the last row to the first.
            reverse_rows: which stacked results are written from the last row to the first.
            names: of the carried values.
            name: of the loop function.
        """
        bound = self._of_one_length([self.bind(s) for s in sequences])
        first = bound[0].type
        assert isinstance(first, TensorType)
        length = first.shape[0]

        def step(s: Builder, i: Int, values: tuple[Var, ...]) -> Step:
            rows: list[Expr] = []
            for j, x in enumerate(bound):
                at = length - 1 - i if _flag(reverse_sequences, j) else i
                rows.append(s.emit(GET_ROW, (x, make.int_const(at)), name="row"))
            return body(s, values, tuple(rows))

        return _LoopTrace(
            self, [self.bind(c) for c in carried], step, None, length, names, name, reverse_rows
        ).run()

    def _of_one_length(self, sequences: list[Expr]) -> list[Expr]:
        assert sequences, "a scan needs a sequence"
        found: list[Expr] = []
        first: Int | None = None
        for x in sequences:
            if not isinstance(x.type, TensorType) or not x.type.shape:
                raise error(
                    "type.mismatch",
                    f"found {type_text(x.type)}, needed a tensor with rows to scan over",
                    span=x.span or self.span,
                )
            first = x.type.shape[0] if first is None else first
            if not self.known.facts.equal(first, x.type.shape[0]):
                checked = make.assume_shape(x, (first, *x.type.shape[1:]), "length of the scan")
                x = self.bind(checked, x.name if isinstance(x, Var) else "sequence")
            found.append(x)
        return found


def _hint(callee: Op | Expr) -> str:
    match callee:
        case Op(name=name):
            return name.rsplit(".", 1)[-1]
        case OpRef(op=op):
            return op.name.rsplit(".", 1)[-1]
        case GlobalVar(name=name) | ConstructorRef(name=name):
            return name.lower()
        case _:
            return "t"


def _flag(flags: Sequence[bool], i: int) -> bool:
    return i < len(flags) and flags[i]


class _LoopTrace:
    """Finds the types of a loop by tracing its body, and builds it.

    The parameters are `i`, the carried values, and one buffer for each stacked result. `types` holds
    what is believed of the carried values; `dims` are the symbols the loop function binds. A trace
    that refutes a belief widens it: that only ever turns dims into symbols of their own, so it ends.
    """

    def __init__(
        self,
        builder: Builder,
        carried: list[Expr],
        body: Callable[[Builder, Int, tuple[Var, ...]], Step],
        condition: Callable[[Builder, Int, tuple[Var, ...]], Expr] | None,
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
        return from_atom(self.counter)

    def run(self) -> LoopResult:
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
                return ShapeType(
                    tuple(self.symbol("c", LEAST_INT) if v is None else v for v in values)
                )
            case _:
                return t

    def symbol(self, name: str, low: int) -> Int:
        """Return a new dim of the loop function."""
        sym = arith.fresh(name)
        self.dims[sym] = DimParam(sym, low)
        return from_atom(sym)

    # ------------------------------------------------------------------ tracing

    def _trace(self) -> _Trace:
        b = self.b
        first_inner = arith.fresh("trace")
        b.declare(tuple(self.dims.values()))
        index = Var("i", IntType(self.i), b.span)
        params = tuple(Var(n, t, b.span) for n, t in zip(self.names, self.types, strict=True))
        buffers = tuple(
            Var(f"stack{j}", self._buffer_type(t, inside=True), b.span)
            for j, t in enumerate(self.rows)
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

    def _condition(self, head: Builder, params: tuple[Var, ...]) -> Expr:
        counted = None
        if self.count is not None:
            counted = head.emit(INT_LESS, (make.int_const(self.i), make.int_const(self.count)))
        if self.condition is None:
            assert counted is not None
            return counted
        asked = head.bind(self.condition(head, self.i, params))
        return asked if counted is None else head.emit(BOOL_AND, (counted, asked))

    # ------------------------------------------------------------------ widening

    def _holds(self, trace: _Trace) -> bool:
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

    def _row_type(self, row: Expr, trace: _Trace) -> TensorType:
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

    def _build(self, trace: _Trace) -> LoopResult:
        b = self.b
        params = (trace.index, *trace.params, *trace.buffers)
        types = tuple(p.type for p in params)
        used = tuple(self.dims.values())
        result = pack(TupleType(types), used)
        own = Var(self.name, FuncType(types, result, used), b.span)
        grown = [self._store(trace, j) for j in range(len(trace.rows))]
        again = trace.body.emit(
            own, (make.int_const(self.i + 1), *trace.values, *grown), name="again"
        )
        stop = make.tuple_(params, span=b.span)
        head = make.if_(trace.condition, trace.body.finish(again), stop, span=b.span, known=b.known)
        made = make.function(
            params, trace.head.finish(head), result, used, span=b.span, known=b.known
        )
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

    def _store(self, trace: _Trace, j: int) -> Expr:
        buffer, row = trace.buffers[j], trace.rows[j]
        if self.condition is not None:
            return trace.body.emit(PUSH_ROW, (buffer, row), name=buffer.name)
        assert self.count is not None
        at = self.count - 1 - self.i if _flag(self.reverse_rows, j) else self.i
        return trace.body.emit(SET_ROW, (buffer, make.int_const(at), row), name=buffer.name)


@dataclass(frozen=True, slots=True)
class _Trace:
    """One run of the callbacks. Symbols with a uid above that of `first_inner` belong to it."""

    first_inner: Sym
    index: Var
    params: tuple[Var, ...]
    buffers: tuple[Var, ...]
    head: Builder
    condition: Expr
    body: Builder
    values: list[Expr]
    rows: list[Expr]


class _Widening:
    """Compares believed types with those after a step.

    `solved` is what the step makes of each symbol of the loop: one symbol may stand in several
    places only while all of them change alike; where they do not, the later place gets its own.
    """

    def __init__(self, loop: _LoopTrace, trace: _Trace) -> None:
        self.loop = loop
        self.facts = loop.b.known.facts
        self.span = loop.b.span
        self.solved: dict[Sym, Int] = {loop.counter: loop.i + 1}
        self.fresh: dict[tuple[Int, Int], Int] = {}
        self.bound = set(loop.dims)
        self.first_inner = trace.first_inner.uid

    def compare(self, believed: Type, found: Type, name: str) -> Type:
        match believed, found:
            case TensorType(), TensorType() if believed.dtype == found.dtype and len(
                believed.shape
            ) == len(found.shape):
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
                    f"{name} starts as {type_text(believed)} and a step makes it "
                    f"{type_text(found)}",
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
