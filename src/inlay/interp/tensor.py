"""The meaning of the tensor IR: a slow, obvious evaluator.

Values are NumPy arrays (tensors of any rank), Python ints and bools and tuples of ints (control
values), tuples, `Data` (values of data types), `Closure`s and `Cell`s.

The machine has an explicit stack, so recursion may be as deep as memory allows, and a call in tail
position pushes nothing. A *frame* holds what one activation of a function knows: variables, dims,
and values of nodes that are used more than once. A closure is a function and the frame it was made
in, which is also how a let-bound function finds itself.

Dims are bound by matching the types of binders against values, and every binder and every operator
result is checked against its type on the way: a program whose types do not hold stops with an
internal error, not with a wrong number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from inlay.arith.expr import Int, Sym
from inlay.base.diagnostics import InlayError, InternalError, error, error_of
from inlay.base.span import Span
from inlay.interp.dims import Binding, check_result
from inlay.interp.values import (
    Cell,
    Closure,
    Data,
    Frame,
    Value,
    as_arrays,
    from_outside,
    is_array,
    to_outside,
)
from inlay.ir import walk
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
    RefPut,
    RefRead,
    RefTake,
    RefWrite,
    Tuple,
    Var,
)
from inlay.ir.kernel import Kernel
from inlay.ir.module import Module
from inlay.ir.op import Op
from inlay.ir.types import Type
from inlay.ops.table import table

Meanings = Callable[[Op, Any, tuple[Value, ...]], Value]
"""`(op, attrs, args) -> result`: what operators compute."""


def reference(op: Op, attrs: object, args: tuple[Value, ...]) -> Value:
    """Return what an operator of the table computes, by its reference."""
    return table().definition(op).evaluate(attrs, *args)


def evaluate(
    module: Module, args: Sequence[Value], meanings: Meanings = reference, function: str | None = None
) -> Value:
    """Call a function of the module (its entry by default) and return the result.

    Args:
        module: the program.
        args: one value for each parameter.
        meanings: what operators compute; by default their references.
        function: which function to call.

    Raises:
        RunError: `run.check-failed` where a check of the program does not hold.
        InternalError: where a value does not have the type that the program says.
    """
    name = module.entry if function is None else function
    machine = _Machine(module, meanings)
    return machine.run_call(Closure(module.functions[name], None), tuple(map(as_arrays, args)))


def evaluate_entry(
    module: Module, inputs: Mapping[str, Value], meanings: Meanings = reference
) -> dict[str, Value]:
    """Call the entry with inputs by name and return its outputs by name.

    Inputs and outputs are as those of an executable: arrays, lists (`List`), None or a value
    (`Option`) and tuples of them.
    """
    names = module.entries[module.entry]
    missing = [n for n in names.inputs if n not in inputs]
    if missing or len(inputs) > len(names.inputs):
        unknown = [n for n in inputs if n not in names.inputs]
        raise error(
            "run.bad-argument",
            f"found inputs {', '.join(inputs) or 'none'}, needed {', '.join(names.inputs)}"
            + (f"; unknown: {', '.join(unknown)}" if unknown else ""),
        )
    params = module.functions[module.entry].type.params
    args = [from_outside(inputs[n], t) for n, t in zip(names.inputs, params, strict=True)]
    result = to_outside(evaluate(module, args, meanings))
    values = result if len(names.outputs) != 1 else (result,)
    return dict(zip(names.outputs, values, strict=True))


def evaluate_expr(
    e: Expr,
    meanings: Meanings = reference,
    *,
    module: Module | None = None,
    variables: Mapping[Var, Value] | None = None,
    dims: Mapping[Sym, int] | None = None,
) -> Value:
    """Return the value of an expression; free variables and dims have the given values."""
    machine = _Machine(module or Module(), meanings)
    frame = Frame(None, _shared_nodes(e))
    frame.vars.update(variables or {})
    frame.dims.update(dims or {})
    return machine.run(e, frame)


def _shared_nodes(body: Expr) -> frozenset[int]:
    """Return the nodes that are used several times, those inside of inner functions included."""
    counts = walk.use_counts(body)
    leaves = walk.LEAVES
    return frozenset(id(e) for e in walk.postorder(body) if counts[id(e)] > 1 and type(e) not in leaves)


# Continuations: what is done with the value of the subexpression being evaluated.
@dataclass(slots=True)
class _Operands:
    """Collect the operands of a node, then apply it."""

    node: Expr
    frame: Frame
    kids: tuple[Expr, ...]
    values: list[Value]


@dataclass(slots=True)
class _Then:
    """Bind a let, or choose an arm."""

    node: Let | If | Match
    frame: Frame


@dataclass(slots=True)
class _Remember:
    """Keep the value of a shared node."""

    node: Expr
    frame: Frame


_Continuation = _Operands | _Then | _Remember


class _Machine:
    def __init__(self, module: Module, meanings: Meanings) -> None:
        self.module = module
        self.meanings = meanings
        self._shared: dict[Function, frozenset[int]] = {}
        self._stack: list[_Continuation] = []

    def run_call(self, closure: Closure, args: tuple[Value, ...]) -> Value:
        return self.run(*self._enter(closure, args))

    def run(self, e: Expr, frame: Frame) -> Value:
        """Evaluate, alternating between going down into `e` and handing a value up."""
        depth = len(self._stack)
        todo: tuple[Expr, Frame] | None = (e, frame)
        value: Value = None
        while True:
            if todo is not None:
                todo, value = self._down(*todo)
            elif len(self._stack) == depth:
                return value
            else:
                todo, value = self._up(self._stack.pop(), value)

    # ------------------------------------------------------------------ down

    def _down(self, e: Expr, frame: Frame) -> tuple[tuple[Expr, Frame] | None, Value]:
        """Evaluate a leaf, or push what is to be done with a subexpression and go there."""
        if id(e) in frame.shared:
            if id(e) in frame.values:
                return None, frame.values[id(e)]
            self._stack.append(_Remember(e, frame))
        match e:
            case Var():
                return None, frame.value(e)
            case Const():
                return None, self._constant(e, frame)
            case GlobalVar(name=name):
                return None, self._global(name)
            case OpRef() | ConstructorRef():
                return None, e
            case Function():
                return None, Closure(e, frame)
            case Let(value=first) | If(condition=first) | Match(scrutinee=first):
                self._stack.append(_Then(e, frame))
                return (first, frame), None
            case Call() | Tuple() | Project() | RefCreate() | RefRead() | RefWrite() | RefTake() | RefPut():
                kids = walk.children(e)
                if not kids:
                    return None, ()
                self._stack.append(_Operands(e, frame, kids, []))
                return (kids[0], frame), None

    def _constant(self, e: Const, frame: Frame) -> Value:
        match e.value:
            case Int() as value:
                return frame.int(value)
            case tuple() as values:
                return tuple(frame.int(v) for v in values)
            case value:
                return value

    def _global(self, name: str) -> Value:
        function = self.module.functions.get(name)
        if function is not None:
            return Closure(function, None)
        kernel = self.module.kernels.get(name)
        if kernel is None:
            raise InternalError(f"the module has no function or kernel {name}")
        return kernel

    # ------------------------------------------------------------------ up

    def _up(self, k: _Continuation, value: Value) -> tuple[tuple[Expr, Frame] | None, Value]:
        match k:
            case _Operands(node=node, frame=frame, kids=kids, values=values):
                values.append(value)
                if len(values) < len(kids):
                    self._stack.append(k)
                    return (kids[len(values)], frame), None
                return self._apply(node, values, frame)
            case _Remember(node=node, frame=frame):
                frame.values[id(node)] = value
                return None, value
            case _Then(node=node, frame=frame):
                return (self._chosen(node, value, frame), frame), None
            case _:
                assert_never(k)

    def _chosen(self, node: Let | If | Match, value: Value, frame: Frame) -> Expr:
        """Return what is evaluated next, with the names that the value gives it."""
        match node:
            case Let(var=v, body=body):
                self._bind(v, value, frame)
                return body
            case If(then=then, otherwise=otherwise):
                return then if value else otherwise
            case Match(arms=arms):
                for arm in arms:
                    bound: list[tuple[Var, Value]] = []
                    if _matches(arm.pattern, value, bound):
                        for v, field in bound:
                            self._bind(v, field, frame)
                        return arm.body
                raise InternalError("no arm of a match fits the value", where=str(node.span))
            case _:
                assert_never(node)

    def _apply(
        self, node: Expr, values: list[Value], frame: Frame
    ) -> tuple[tuple[Expr, Frame] | None, Value]:
        match node:
            case Call(type=type_):
                return self._call(node, type_, values[0], tuple(values[1:]), frame)
            case Tuple():
                return None, tuple(values)
            case Project(index=index):
                return None, values[0][index]
            case RefCreate():
                return None, Cell(values[0])
            case RefRead():
                return None, _full(values[0], node).content
            case RefTake():
                return None, _full(values[0], node).empty()
            case RefWrite():
                _full(values[0], node).content = values[1]
                return None, ()
            case RefPut():
                _fill(values[0], values[1], node)
                return None, ()
            case _:
                raise AssertionError("the node has no operands")

    def _call(
        self, node: Call, type_: Type, callee: Value, args: tuple[Value, ...], frame: Frame
    ) -> tuple[tuple[Expr, Frame] | None, Value]:
        match callee:
            case Closure():
                return self._enter(callee, args), None
            case OpRef(op=op, attrs=attrs):
                result = self._operator(op, attrs, args, node.span)
                check_result(type_, result, frame, f"result of {op.name}", node)
                return None, result
            case ConstructorRef(adt=adt, name=name, tag=tag):
                return None, Data(adt, name, tag, args)
            case Kernel():
                result = _run_kernel(callee, args)
                check_result(type_, result, frame, f"result of {callee.name}", node)
                return None, result
            case _:
                raise InternalError(f"called {callee!r}, which is no function", where=str(node.span))

    def _operator(self, op: Op, attrs: object, args: tuple[Value, ...], span: Span) -> Value:
        try:
            return as_arrays(self.meanings(op, attrs, args))
        except InlayError as failure:  # a check that does not hold: say where
            raise error_of(
                replace(d, span=d.span or span) for d in failure.diagnostics
            ) from failure.__cause__

    def _enter(self, closure: Closure, args: tuple[Value, ...]) -> tuple[Expr, Frame]:
        function = closure.function
        shared = self._shared.get(function)
        if shared is None:
            shared = self._shared[function] = _shared_nodes(function.body)
        frame = Frame(closure.frame, shared)
        if len(args) != len(function.params):
            raise InternalError(f"{len(args)} arguments for {len(function.params)} parameters")
        own = {d.sym for d in function.dims}
        solver = Binding(frame, own)
        for p, value in zip(function.params, args, strict=True):
            frame.vars[p] = value
            solver.match(p.type, value, p)
        solver.finish()
        return function.body, frame

    def _bind(self, v: Var, value: Value, frame: Frame) -> None:
        frame.vars[v] = value
        solver = Binding(frame, frozenset())
        solver.match(v.type, value, v)
        solver.finish()


def _matches(p: Pattern, value: Value, bound: list[tuple[Var, Value]]) -> bool:
    match p:
        case PatternWildcard():
            return True
        case PatternVar(var=v):
            bound.append((v, value))
            return True
        case PatternConstructor(tag=tag, fields=fields):
            return value.tag == tag and all(
                _matches(f, x, bound) for f, x in zip(fields, value.fields, strict=True)
            )
        case PatternTuple(fields=fields):
            return all(_matches(f, x, bound) for f, x in zip(fields, value, strict=True))


def _full(cell: Cell, node: Expr) -> Cell:
    """Return a cell that is to have a content."""
    if cell.is_empty:
        raise error("run.empty-cell", "found an empty cell, needed one with a content", span=node.span)
    return cell


def _fill(cell: Cell, content: Value, node: Expr) -> None:
    if not cell.is_empty:
        raise error("run.empty-cell", "found a cell with a content, needed an empty one", span=node.span)
    cell.fill(content)


def _run_kernel(kernel: Kernel, args: tuple[Value, ...]) -> Value:
    frame = Frame(None, frozenset())
    solver = Binding(frame, {d.sym for d in kernel.type.dims})
    binder = GlobalVar(kernel.name, kernel.type)
    for declared, value in zip(kernel.type.params, args, strict=True):
        solver.match(declared, value, binder)
    solver.finish()
    tensors = [a for a in args if is_array(a)]
    results = kernel.body.evaluate(tensors, frame.dims)
    return results[0] if len(results) == 1 else tuple(results)
