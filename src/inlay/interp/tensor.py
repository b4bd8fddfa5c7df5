"""The meaning of the tensor IR: a slow, obvious evaluator in NumPy.

Values:

    Tensor      np.ndarray            Ref        Cell (mutable, with identity)
    int, bool   int, bool             function   Closure, or the operator or constructor itself
    shape       tuple of int          data       Data(name, tag, fields)
    (T, ...)    Fields (a tuple)      Storage    Cell of bytes (explicit-storage stage)

**Machine.** Evaluating an expression is a Python generator that yields the operands it needs and is
sent their values; `_run` keeps the waiting generators in a list. So the depth of programs is limited
by memory and not by Python's stack, and the code of each form reads like its meaning. A generator
that ends with `Tail` is replaced by the evaluation of another expression: tail calls and branches do
not grow the list.

**Frames.** Each activation of a function has one frame from variables and dims to values. Variables
are unique, so branches share the frame of their function. An expression that is reached twice in an
activation is evaluated once. A closure keeps what its function mentions.

**Dims.** A symbol gets its value where it is bound, by matching the binder's type against the value:
parameters of a call, a let or a pattern variable of opened type. A value that contradicts its
declared type stops the program with `run.dim-mismatch`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import numpy as np

from inlay.arith.expr import Int, Sym, lit, substitute, symbols
from inlay.arith.expr import evaluate as evaluate_int
from inlay.arith.solve import solve_for
from inlay.base.diagnostics import CompileError, InternalError, error
from inlay.base.span import Span
from inlay.ir.dims import free_symbols, type_text
from inlay.ir.expr import (
    Call,
    Const,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    OpRef,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Project,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    Var,
)
from inlay.ir.kernel import Kernel
from inlay.ir.module import Module
from inlay.ir.types import IntType, ShapeType, TensorType, TupleType, Type
from inlay.ir.walk import free_vars, postorder
from inlay.ops.table import OperatorTable

Value = Any
"""See the module docstring."""


class Fields(tuple[Value, ...]):
    """The value of a tuple; a plain Python tuple is a shape."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """A value of a data type: which constructor, and its fields."""

    name: str
    tag: int
    fields: tuple[Value, ...]


@dataclass(slots=True, eq=False)
class Cell:
    """A mutable cell."""

    content: Value


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function with the values of what it mentions from outside; `frame` may contain itself."""

    function: Function
    frame: dict[object, Value]


@dataclass(slots=True)
class _Frame:
    """One activation: values of variables and dims, and of shared expressions already evaluated."""

    values: dict[object, Value]
    shared: dict[Expr, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tail:
    """The rest of an evaluation is the evaluation of this."""

    expr: Expr
    frame: _Frame


_Steps = Generator[tuple[Expr, _Frame], Value, Value | Tail]


@dataclass(slots=True)
class _Waiting:
    """An evaluation that waits for an operand, and the expression and activation it is for."""

    steps: _Steps
    expr: Expr | None = None
    frame: _Frame | None = None


def evaluate(
    module: Module,
    inputs: Sequence[Value],
    operators: OperatorTable,
    *,
    entry: str | None = None,
) -> Value:
    """Return what a function of the module gives for these arguments.

    Args:
        module: the program, typed.
        inputs: one value per parameter.
        operators: the meanings of operators.
        entry: the function to call; by default the entry of the module.

    Raises:
        CompileError: `run.*` where a check of the program fails or an input does not fit its type.

    Cost: a few microseconds per operation besides the operations themselves.
    """
    machine = _Machine(module, operators)
    name = entry or module.entry
    function = module.functions[name]
    return machine.run(machine.enter(Closure(function, {}), inputs, Span.named(f"call of {name}")))


@dataclass(slots=True)
class _Machine:
    """The module under evaluation, and free variables of its function literals."""

    module: Module
    operators: OperatorTable
    captured: dict[int, tuple[object, ...]] = field(default_factory=dict)

    def run(self, start: Tail) -> Value:
        """Evaluate until nothing waits."""
        waiting = [_Waiting(self.steps(start.expr, start.frame))]
        sent: Value = None
        while waiting:
            top = waiting[-1]
            try:
                expr, frame = top.steps.send(sent)
            except StopIteration as stop:
                sent = stop.value
                if isinstance(sent, Tail):
                    top.steps = self.steps(sent.expr, sent.frame)
                    sent = None
                    continue
                waiting.pop()
                if top.expr is not None and top.frame is not None:
                    top.frame.shared[top.expr] = sent
                continue
            done, sent = self.ready(expr, frame)
            if not done:
                waiting.append(_Waiting(self.steps(expr, frame), expr, frame))
                sent = None
        return sent

    def ready(self, e: Expr, frame: _Frame) -> tuple[bool, Value]:
        """Return (True, value) of what needs no evaluation."""
        match e:
            case Var():
                return True, frame.values[e]
            case Const():
                return True, constant(e, frame.values)
            case OpRef() | ConstructorRef():
                return True, e
            case GlobalVar(name=name):
                found = self.module.functions.get(name)
                return True, self.module.kernels[name] if found is None else Closure(found, {})
            case Function():
                return True, self.close(e, frame)
            case _:
                return e in frame.shared, frame.shared.get(e)

    def close(self, f: Function, frame: _Frame) -> Closure:
        """Return a function with what it mentions."""
        names = self.captured.get(id(f))
        if names is None:
            names = (*free_vars(f), *_mentioned_dims(f))
            self.captured[id(f)] = names
        values = frame.values
        return Closure(f, {n: values[n] for n in names if n in values})

    def enter(self, closure: Closure, args: Sequence[Value], span: Span) -> Tail:
        """Return the body of a function in a new frame with its parameters bound."""
        f = closure.function
        if len(args) != len(f.params):
            raise error(
                "run.arity", f"found {len(args)} arguments, needed {len(f.params)}", span=span
            )
        values = dict(closure.frame)
        pairs = list(zip(f.params, args, strict=True))
        values.update(pairs)
        bind_dims([(p.type, a, p.name) for p, a in pairs], values, span)
        return Tail(f.body, _Frame(values))

    # ------------------------------------------------------------------ forms

    def steps(self, e: Expr, frame: _Frame) -> _Steps:
        """Evaluate an expression: the meaning of every form."""
        while isinstance(e, Let):
            value = yield e.value, frame
            frame.values[e.var] = value
            if isinstance(value, Closure) and isinstance(e.value, Function):
                value.frame[e.var] = value  # the function may mention itself
            if e.value.type is not e.var.type:
                bind_dims([(e.var.type, value, e.var.name)], frame.values, e.span)
            e = e.body
        match e:
            case Call():
                return (yield from self.call(e, frame))
            case If():
                chosen = yield e.condition, frame
                return Tail(e.then if chosen else e.otherwise, frame)
            case Match():
                return (yield from self.match(e, frame))
            case Tuple(fields=fields):
                out = []
                for x in fields:
                    out.append((yield x, frame))  # noqa: PERF401  a comprehension cannot yield
                return Fields(out)
            case Project(value=value, index=index):
                return (yield value, frame)[index]
            case RefCreate(value=value):
                return Cell((yield value, frame))
            case RefRead(ref=ref):
                return (yield ref, frame).content
            case RefWrite(ref=ref, value=value):
                cell = yield ref, frame
                cell.content = yield value, frame
                return Fields()
            case Var() | GlobalVar() | Const() | OpRef() | ConstructorRef() | Function():
                return self.ready(e, frame)[1]
            case _:
                assert_never(e)

    def call(self, e: Call, frame: _Frame) -> _Steps:
        """Evaluate callee and arguments, left to right, and apply."""
        callee = yield e.callee, frame
        args = []
        for a in e.args:
            args.append((yield a, frame))  # noqa: PERF401  a comprehension cannot yield
        match callee:
            case OpRef():
                return self.apply(callee, args, e.span)
            case ConstructorRef():
                return Data(callee.name, callee.tag, tuple(args))
            case Closure():
                return self.enter(callee, args, e.span)
            case Kernel():
                return run_kernel(callee, args, e.span)
            case _:
                raise InternalError(f"a {type(callee).__name__} is called", where=str(e.span))

    def apply(self, ref: OpRef, args: list[Value], span: Span) -> Value:
        """Return the result of an operator."""
        try:
            result = self.operators.definition(ref.op).evaluate(ref.attrs, *args)
        except CompileError as failure:
            if any(d.span for d in failure.diagnostics):
                raise
            raise _located(failure, span) from None
        if isinstance(result, tuple) and result and isinstance(result[0], np.ndarray):
            return Fields(result)
        return np.asarray(result) if isinstance(result, np.generic) else result

    def match(self, e: Match, frame: _Frame) -> _Steps:
        """Take the first arm that fits."""
        value = yield e.scrutinee, frame
        for arm in e.arms:
            bound: list[tuple[Var, Value]] = []
            if fits(arm.pattern, value, bound):
                frame.values.update(bound)
                bind_dims([(v.type, x, v.name) for v, x in bound], frame.values, e.span)
                return Tail(arm.body, frame)
        raise InternalError("no arm of a match fits its value", where=str(e.span))


def constant(e: Const, values: dict[object, Value]) -> Value:
    """Return the value of a constant, its dims read from the frame."""
    match e.value:
        case Int() as i:
            return evaluate_int(i, values)  # type: ignore[arg-type]  # symbols are keys among others
        case tuple() as dims:
            return tuple(evaluate_int(d, values) for d in dims)  # type: ignore[arg-type]
        case other:
            return other


def fits(pattern: Pattern, value: Value, bound: list[tuple[Var, Value]]) -> bool:
    """Whether a pattern matches; adds what its variables stand for."""
    match pattern:
        case PatternWildcard():
            return True
        case PatternVar(var=var):
            bound.append((var, value))
            return True
        case PatternConstructor(tag=tag, fields=fields):
            return value.tag == tag and all(
                fits(p, x, bound) for p, x in zip(fields, value.fields, strict=True)
            )
        case PatternTuple(fields=fields):
            return all(fits(p, x, bound) for p, x in zip(fields, value, strict=True))
        case _:
            assert_never(pattern)


def run_kernel(kernel: Kernel, args: Sequence[Value], span: Span) -> Value:
    """Return what a kernel computes."""
    values: dict[object, Value] = {}
    bind_dims([(t, a, "") for t, a in zip(kernel.type.params, args, strict=True)], values, span)
    dims = {s: v for s, v in values.items() if isinstance(s, Sym)}
    outputs = kernel.body.evaluate(list(args), dims)
    return outputs[0] if len(outputs) == 1 else Fields(outputs)


# ---------------------------------------------------------------------------------- dims


def bind_dims(
    bindings: Iterable[tuple[Type, Value, str]], values: dict[object, Value], span: Span
) -> None:
    """Give values to the symbols of types that stand for these values, and check the others.

    Raises:
        CompileError: `run.dim-mismatch`.
    """
    open_relations: list[tuple[Int, int, str]] = []
    for type_, value, name in bindings:
        for declared, found, where in _dims_of(type_, value, name):
            atom = declared.atom
            if isinstance(atom, Sym) and atom not in values:
                values[atom] = found
            else:
                open_relations.append((declared, found, where))
    for declared, found, where in open_relations:
        _settle(declared, found, where, values, span)


def _settle(declared: Int, found: int, where: str, values: dict[object, Value], span: Span) -> None:
    """Check a relation, or solve it for its one symbol without a value."""
    unknown = [s for s in symbols(declared) if s not in values]
    if len(unknown) == 1:
        known = {s: lit(values[s]) for s in symbols(declared) if s in values}
        solution = solve_for(substitute(declared, known) - found, unknown[0])
        if solution is not None and solution.value is not None:
            values[unknown[0]] = solution.value
            return
    needed = evaluate_int(declared, values)  # type: ignore[arg-type]
    if needed != found:
        raise error(
            "run.dim-mismatch",
            f"found {found} as {where}, needed {declared}"
            + ("" if declared.value is not None else f", which is {needed}"),
            span=span,
        )


def _dims_of(t: Type, value: Value, name: str) -> Iterable[tuple[Int, int, str]]:
    """Yield (declared, actual, what it is) for the dims and control values of a value."""
    match t:
        case TensorType(shape=shape):
            if not isinstance(value, np.ndarray) or value.ndim != len(shape):
                found = f"rank {value.ndim}" if isinstance(value, np.ndarray) else repr(value)
                raise error("run.type-mismatch", f"found {found} as {name}, needed {type_text(t)}")
            for i, (d, n) in enumerate(zip(shape, value.shape, strict=True)):
                yield d, n, f"axis {i} of {name}"
        case IntType(value=Int() as d):
            yield d, value, name
        case ShapeType(values=dims):
            for i, (d, n) in enumerate(zip(dims, value, strict=True)):
                if d is not None:
                    yield d, n, f"element {i} of {name}"
        case TupleType(fields=fields):
            for i, (f, x) in enumerate(zip(fields, value, strict=True)):
                yield from _dims_of(f, x, f"{name}.{i}")
        case _:
            return


def _mentioned_dims(f: Function) -> tuple[Sym, ...]:
    """Return the symbols that a function literal may need from the frame around it."""
    found: dict[Sym, None] = {}
    for e in postorder(f):
        types = [e.type]
        if isinstance(e, Function):
            types += [p.type for p in e.params]
        if isinstance(e, Let):
            types.append(e.var.type)
        for t in types:
            found.update(dict.fromkeys(free_symbols(t)))
        if isinstance(e, Const):
            match e.value:
                case Int() as i:
                    found.update(dict.fromkeys(symbols(i)))
                case tuple() as dims:
                    for d in dims:
                        found.update(dict.fromkeys(symbols(d)))
                case _:
                    pass
    return tuple(found)


def _located(failure: CompileError, span: Span) -> CompileError:
    """Return the failure with the place of the operation that found it."""
    return type(failure)([replace(d, span=span) for d in failure.diagnostics])
