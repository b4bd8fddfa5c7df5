"""Whole-program type inference, for programs that arrive without annotations.

The parser gives `UnknownType` to what the text does not say: parameters, results, lets. Inference
finds those types and makes every node again with `ir.make`, so that its result is what the smart
constructors would have built, checks included. A program that has all its types comes out equal.

**Two walks.** The first (here) finds types with unification (`solver`): those of parameters, of
results of recursive functions, of type arguments, and the names of opened dims. The second
(`analysis.infer_types`) is a forward pass that makes the nodes. What the first left open the second
checks, so a mistake of the first is an error message and never a wrong type.

**What is not known yet waits.** A call whose arguments are not known is suspended and woken by the
type that it waits for (`agenda`); `rules` and `calls` say what each kind of call asks and tells. Where
nothing moves any more, joins of branches are forced, and what is left is reported. A branch that ends
in a call of the function itself says nothing new about the result and is left out of the join.

Everything here is linear in the size of the program, with explicit stacks: steps are generators, and
what must wait is on the agenda.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from inlay.analysis.inference.calls import Calls
from inlay.analysis.inference.functions import Functions
from inlay.analysis.inference.parts import bind_pattern, content_of, field_of
from inlay.analysis.inference.rules import Rules
from inlay.analysis.inference.scope import InferenceState
from inlay.analysis.inference.solver import Infer, Reason
from inlay.analysis.inference.table import Named, Survey, Types, has_unknown
from inlay.analysis.inference.words import text
from inlay.base.diagnostics import CompileError, error
from inlay.base.span import Span
from inlay.ir.conform import join
from inlay.ir.existentials import pack
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
    Project,
    RefCreate,
    RefPut,
    RefRead,
    RefTake,
    RefWrite,
    Tuple,
    Var,
    pattern_vars,
)
from inlay.ir.module import Module
from inlay.ir.types import (
    BOOL_CONTROL,
    UNIT,
    UNKNOWN,
    BoolType,
    FuncType,
    RefType,
    TupleType,
    Type,
    TypeVar,
    UnknownType,
)

_Steps = Generator[Expr, Type, Type]


def find_types(module: Module, look: Survey) -> Types:
    """Return the types of a program, all annotations respected.

    Args:
        module: the program.
        look: `survey(module)`.

    Raises:
        CompileError: with all independent findings: the ids of `type.*`, `name.unknown`.
    """
    scope = InferenceState(module, look)
    walk = _Walk(scope)
    for group in look.groups:
        walk.infer_group(group)
    walk.finish()
    scope.findings.raise_if_fatal()
    return scope.types


class _Walk:
    """The first walk: a step for each kind of node."""

    def __init__(self, scope: InferenceState) -> None:
        self._scope = scope
        self._rules = Rules(scope)
        self._functions = Functions(scope, self._rules)
        self._calls = Calls(scope, self._rules, self._functions)
        self._findings, self._solver = scope.findings, scope.solver
        self._agenda, self._types = scope.agenda, scope.types
        self._memo: dict[int, Type] = {}

    def infer_group(self, names: Sequence[str]) -> None:
        """Infer global functions that call each other."""
        globals, functions = self._scope.globals, self._scope.module.functions
        group = [globals.setdefault(n, Named(n, functions[n])) for n in names]
        since = self._solver.clock
        for named in group:
            if id(named.function) in self._types.survey.typed:
                named.type, named.done, named.open = named.function.type, True, False
        group = [named for named in group if not named.done]
        for named in group:
            self._functions.declare(named.function, named, implicit=True)
        for named in group:
            before = len(self._findings.diagnostics)
            self._functions.finish(named, self._run(named.function.body))
            named.failed = len(self._findings.diagnostics) > before
        for named in group:
            named.open, named.since, named.group = False, since, group
        if group:
            self._functions.generalize(group[0])

    def finish(self) -> None:
        """Decide what is left; report what nothing determines."""
        for named in self._types.named.values():
            self._functions.generalize(named)
        while True:
            self._agenda.drain()
            if self._rules.has_refused:
                self._rules.ask_again()
            elif not self._agenda.force_join():
                break
        self._functions.report_undetermined()
        self._rules.report_undetermined()
        claimed = self._types.claimed
        for key, type in self._types.functions.items():
            inputs = TupleType(type.params)
            claimed.update(dict.fromkeys(self._solver.own_ints(inputs, self._types.since[key])))
        for type in self._types.functions.values():
            self._solver.default_ints(TupleType(type.params), claimed)
        for args in self._types.type_args.values():
            self._solver.default_ints(TupleType(args), claimed)

    # ------------------------------------------------------------------ driving

    def _run(self, root: Expr) -> Type:
        """Infer an expression; generators are the stack, so depth does not matter."""
        result = self._leaf(root)
        if result is not None:
            return result
        stack: list[tuple[_Steps, int]] = [(self._steps(root), id(root))]
        value: Type | None = None
        while stack:
            steps, key = stack[-1]
            try:
                child = steps.send(value)  # type: ignore[arg-type]
            except StopIteration as stop:
                value = stop.value
                self._memo[key] = value  # type: ignore[assignment]
                stack.pop()
            except CompileError as failure:
                self._findings.absorb(failure)
                value = self._memo[key] = UNKNOWN
                stack.pop()
            else:
                value = self._leaf(child)
                if value is None:
                    stack.append((self._steps(child), id(child)))
        assert value is not None
        return value

    def _leaf(self, e: Expr) -> Type | None:
        match e:
            case Var() | GlobalVar():
                return self._name(e)
            case Const():
                return e.type
            case _ if id(e) in self._types.survey.typed:
                return e.type
            case _:
                return self._memo.get(id(e))

    def _steps(self, e: Expr) -> _Steps:
        match e:
            case Call():
                return self._call(e)
            case Let():
                return self._lets(e)
            case Function():
                return self._function(e, None)
            case If():
                return self._if(e)
            case Match():
                return self._match(e)
            case Tuple():
                return self._tuple(e)
            case Project():
                return self._project(e)
            case RefCreate() | RefRead() | RefWrite() | RefTake() | RefPut():
                return self._reference(e)
            case OpRef():
                return self._wrapped(e)
            case ConstructorRef():
                return self._constructor(e)
            case Var() | GlobalVar() | Const():
                raise AssertionError("leaves have no steps")

    def _name(self, e: Var | GlobalVar) -> Type:
        named = self._scope.named(e)
        if named is None:
            return self._scope.type_of(e)
        return self._calls.mention(e, named) if named.waits else named.mention()

    # ------------------------------------------------------------------ binding

    def _lets(self, e: Let) -> _Steps:
        spine: list[Let] = []
        body: Expr = e
        while isinstance(body, Let) and (not spine or id(body) not in self._memo):
            if id(body) in self._types.survey.typed:
                break
            spine.append(body)
            v, value = body.var, body.value
            if isinstance(value, Function) and has_unknown(v.type):
                named = self._scope.locals[v] = Named(v.name, value)
                if id(value) in self._types.survey.typed:
                    named.type, named.done, named.open = value.type, True, False
                else:
                    yield from self._catching(self._function(value, named))
                self._memo[id(value)] = named.type
            else:
                if isinstance(value, Function):
                    self._types.vars[v] = v.type
                t = yield value
                with self._findings.catching():
                    self._scope.let(v, t, body.span or value.span)
                self._types.vars.setdefault(v, UNKNOWN)
            body = body.body
        t = yield body
        for let in reversed(spine):
            t = self._memo[id(let)] = self._packed((let.var,), t)
        return t

    def _catching(self, steps: _Steps) -> _Steps:
        """Run the steps of a named function; an error leaves its type unknown."""
        try:
            return (yield from steps)
        except CompileError as failure:
            self._findings.absorb(failure)
            return UNKNOWN

    def _function(self, f: Function, named: Named | None) -> _Steps:
        type = self._functions.declare(f, named, implicit=False)
        before = len(self._findings.diagnostics)
        body = yield f.body
        if named is not None:
            self._functions.finish(named, body)
            named.failed = len(self._findings.diagnostics) > before
            named.open = False
            self._functions.generalize(named)
            return named.type
        self._functions.result(f, type.result, self._packed(f.params, self._solver.zonk(body)))
        return type

    # ------------------------------------------------------------------ calls

    def _call(self, e: Call) -> _Steps:
        types = yield from _each(e.args)
        callee = e.callee
        match callee:
            case OpRef():
                return self._rules.operator(e, tuple(types))
            case ConstructorRef(type=FuncType(type_vars=type_vars) as generic) if type_vars:
                return self._rules.constructor(e, callee, generic, tuple(types))
            case ConstructorRef():
                function: Type = callee.type
            case _:
                named = self._scope.named(callee)
                function = (yield callee) if named is None else named.mention()
        return self._calls.apply(e, function, tuple(types))

    def _wrapped(self, e: OpRef) -> _Steps:
        return (yield self._rules.wrapped(e))

    def _constructor(self, e: ConstructorRef) -> _Steps:
        return self._rules.constructor_value(e)
        yield  # a generator, as all steps are

    # ------------------------------------------------------------------ branches

    def _if(self, e: If) -> _Steps:
        condition = yield e.condition
        with self._findings.catching():
            self._need_bool(condition, e.condition.span or e.span)
        then = yield e.then
        otherwise = yield e.otherwise
        return self._join((then, otherwise), e.span, "branches")

    def _need_bool(self, t: Type, span: Span) -> None:
        found = self._solver.find(t)
        if isinstance(found, UnknownType):
            return
        if not isinstance(found, (BoolType, TypeVar)):
            raise error(
                "type.mismatch",
                f"found {text(self._solver.zonk(found))}, needed bool as the condition",
                span=span,
                hint="use to_control",
            )
        self._solver.unify(BOOL_CONTROL, found, Reason(span, "the condition"))
        self._agenda.drain()

    def _match(self, e: Match) -> _Steps:
        scrutinee = yield e.scrutinee
        sides: list[Type] = []
        for arm in e.arms:
            with self._findings.catching():
                bind_pattern(self._scope, arm.pattern, scrutinee, e.scrutinee.span or e.span)
            variables = pattern_vars(arm.pattern)
            for v in variables:
                self._types.vars.setdefault(v, UNKNOWN)
            t = yield arm.body
            sides.append(self._packed(variables, t))
        if not sides:
            raise error("type.no-arms", "found a match without arms", span=e.span)
        return self._join(tuple(sides), e.span, "arms of match")

    def _packed(self, variables: Sequence[Var], t: Type) -> Type:
        """Return a type outside of where variables are bound, whose opened dims it may mention."""
        dims = [d for v in variables for d in self._types.opened.get(v, ())]
        return pack(self._solver.zonk(t), dims) if dims else t

    def _join(self, sides: tuple[Type, ...], span: Span, what: str) -> Type:
        """Return the least general type of all sides; calls of the function itself say nothing."""
        kept: list[Type] = []
        for t in sides:
            found = self._solver.find(t)
            if isinstance(found, UnknownType):
                return UNKNOWN
            named = self._functions.with_result(found)
            if named is not None and named.open:
                named.dropped = True
            else:
                kept.append(found)
        if not kept:
            return self._solver.find(sides[0])

        def compute() -> Type:
            types = [self._solver.zonk(t) for t in kept]
            if UNKNOWN in types:
                return UNKNOWN
            result = types[0]
            for t in types[1:]:
                result = join(result, t, Infer(self._solver, "", span), what)
            return result

        if len(kept) == 1:
            return self._solver.zonk(kept[0])
        return self._agenda.when_known(kept, compute, Reason(span, what), tuple(kept))

    # ------------------------------------------------------------------ data

    def _tuple(self, e: Tuple) -> _Steps:
        fields = yield from _each(e.fields)
        return UNKNOWN if UNKNOWN in fields else TupleType(tuple(fields))

    def _project(self, e: Project) -> _Steps:
        t = yield e.value
        return self._agenda.eagerly(
            lambda: field_of(self._scope, e, t), lambda: (t,), Reason(e.span, "a field")
        )

    def _reference(self, e: RefCreate | RefRead | RefWrite | RefTake | RefPut) -> _Steps:
        match e:
            case RefCreate(value=value):
                t = yield value
                return UNKNOWN if isinstance(t, UnknownType) else RefType(t)
            case RefRead(ref=ref) | RefTake(ref=ref):
                return content_of(self._scope, (yield ref), ref.span or e.span)
            case RefWrite(ref=ref, value=value) | RefPut(ref=ref, value=value):
                content = content_of(self._scope, (yield ref), ref.span or e.span)
                t = yield value
                with self._findings.catching():
                    self._scope.conform(content, t, Reason(e.span, "content of the cell"))
                    self._agenda.drain()
                return UNIT


def _each(parts: Sequence[Expr]) -> Generator[Expr, Type, list[Type]]:
    found: list[Type] = []
    for e in parts:
        found.append((yield e))  # noqa: PERF401  # a comprehension cannot yield
    return found
