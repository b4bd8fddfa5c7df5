"""The second walk of type inference: make every node again, now that all types are known.

Nodes that were typed with all that is in them stay the very nodes they were; everything else goes
through `ir.make`, operands first, so its type and its run-time checks are what the smart constructors
give. A variable keeps its identity where it had its type; others are replaced by typed ones.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from types import MappingProxyType

from inlay.analysis.inference.find_types import find_types
from inlay.analysis.inference.table import Named, Types, has_unknown, survey
from inlay.analysis.inference.words import explained
from inlay.arith.bounds import Range
from inlay.arith.expr import Sym, lit
from inlay.arith.solve import Facts
from inlay.base.diagnostics import Collector, CompileError
from inlay.ir import make
from inlay.ir.conform import Matching, dim_range
from inlay.ir.context import Context, Known
from inlay.ir.dims import free_symbols, substitute_type
from inlay.ir.existentials import is_open, open_exists, opened_dims, pack
from inlay.ir.expr import (
    Arm,
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
)
from inlay.ir.module import Module
from inlay.ir.types import UNKNOWN, DimParam, FuncType, TupleType, Type, UnknownType
from inlay.ir.walk import copy, map_pattern

_Steps = Generator[Expr, Expr, Expr]


def infer_types(module: Module) -> Module:
    """Return the module with every node typed; a module that is typed is returned as it is.

    Raises:
        CompileError: with all independent findings, of the ids `type.*` and `name.unknown`.
    """
    look = survey(module)
    if all(id(f) in look.typed for f in module.functions.values()):
        return module
    types = find_types(module, look)
    maker = _Maker(module, types)
    made: dict[str, Function] = {}
    for group in look.groups:
        maker.declare_recursive(group)
        for name in group:
            made.update(maker.global_functions(name))
    maker.findings.raise_if_fatal()
    _rename_shared(made)
    return module.with_functions({name: made[name] for name in module.functions})


def _rename_shared(made: dict[str, Function]) -> None:
    """Give every function dims of its own: those that call each other were inferred with the same."""
    taken: set[Sym] = set()
    for name, f in made.items():
        if not taken.isdisjoint(d.sym for d in f.type.dims):
            renamed = copy(f)
            assert isinstance(renamed, Function)
            made[name] = f = renamed
        taken.update(d.sym for d in f.type.dims)


class _Maker:
    """The second walk."""

    def __init__(self, module: Module, types: Types) -> None:
        self.module = module
        self.types = types
        self.findings = Collector()
        self._ranges: dict[Sym, Range] = {}
        self._definitions: dict[object, object] = {}
        self.known = Known(Facts(MappingProxyType(self._ranges)), self._definitions.get)
        self._globals: dict[str, Type] = {}
        self._vars: dict[Var, Var] = {}
        self._memo: dict[int, Expr] = {}
        self._owner: dict[Sym, int] = {}  # which function binds a dim
        self._open: dict[int, None] = {0: None}  # functions around the present node
        self._bound: set[Sym] = set()  # dims open to the end that a function has bound

    # ------------------------------------------------------------------ driving

    def declare_recursive(self, names: list[str]) -> None:
        """Say the types of functions that are mentioned before they are made."""
        for name in names:
            f = self.module.functions[name]
            named = self.types.named.get(id(f))
            if named is not None and named.recursive:
                self._globals[name] = self._function_type(f, named)

    def global_functions(self, name: str) -> dict[str, Function]:
        """Make a global function; its type is what mentions of it get."""
        f = self.module.functions[name]
        if id(f) in self.types.survey.typed:
            self._globals[name] = f.type
            return {name: f}
        made = self._run(f)
        assert isinstance(made, Function)
        self._globals[name] = made.type
        return {name: made}

    def _run(self, root: Expr) -> Expr:
        done = self._leaf(root)
        if done is not None:
            return done
        stack: list[tuple[_Steps, Expr]] = [(self._steps(root), root)]
        value: Expr | None = None
        while stack:
            steps, e = stack[-1]
            try:
                child = steps.send(value)  # type: ignore[arg-type]
            except StopIteration as stop:
                value = self._memo[id(e)] = stop.value
                stack.pop()
            except CompileError as failure:
                self.findings.absorb(failure)
                value = self._memo[id(e)] = Var("error", UNKNOWN, e.span)
                stack.pop()
            else:
                value = self._leaf(child)
                if value is None:
                    stack.append((self._steps(child), child))
        assert value is not None
        return value

    def _leaf(self, e: Expr) -> Expr | None:
        match e:
            case Var():
                return self._vars.get(e, e)
            case Const():
                return e
            case GlobalVar(name=name):
                t = self._globals.get(name)
                return e if t is None or t == e.type else GlobalVar(name, t, e.span, e.place)
            case _ if id(e) in self.types.survey.typed:
                return e
            case _:
                return self._memo.get(id(e))

    def _steps(self, e: Expr) -> _Steps:
        match e:
            case Call():
                return self._call(e)
            case Let():
                return self._lets(e)
            case Function():
                return self._function(e)
            case If():
                return self._if(e)
            case Match():
                return self._match(e)
            case _:
                return self._simple(e)

    # ------------------------------------------------------------------ operations

    def _call(self, e: Call) -> _Steps:
        args = yield from _each(e.args)
        callee = e.callee
        if not isinstance(callee, (OpRef, ConstructorRef)):
            callee = yield callee
        try:
            return make.call(callee, args, span=e.span, place=e.place, known=self.known)
        except CompileError as failure:
            given = self.types.type_args.get(id(e))
            if isinstance(callee, ConstructorRef) and given is not None:
                ref = self._instance(callee, given)
                return make.call(ref, args, span=e.span, place=e.place, known=self.known)
            raise explained(failure, args) from None

    def _instance(self, e: ConstructorRef, given: tuple[Type, ...]) -> ConstructorRef:
        args = tuple([self._in_scope(self.types.solver.zonk(t)) for t in given])
        return make.constructor_ref(self.module.adts[e.adt], e.name, args, span=e.span)

    def _in_scope(self, t: Type) -> Type:
        """Give 0 to dims of other functions, which a call before they were generalized let in.

        Such a dim is that of an element nobody built, as in `f(Nil())`: every number is right.
        """
        foreign = [s for s in free_symbols(t) if self._owner.get(s, 0) not in self._open]
        return substitute_type(t, {s: lit(0) for s in foreign})

    def _simple(self, e: Expr) -> _Steps:
        match e:
            case OpRef():
                return (yield self.types.expanded[id(e)])
            case ConstructorRef():
                given = self.types.type_args.get(id(e))
                return e if given is None else self._instance(e, given)
            case Tuple(fields=fields):
                made = yield from _each(fields)
                return make.tuple_(made, span=e.span, place=e.place)
            case Project(value=value, index=index):
                return make.project((yield value), index, span=e.span, place=e.place)
            case RefCreate(value=value):
                return make.ref_create((yield value), span=e.span, place=e.place)
            case RefRead(ref=ref):
                return make.ref_read((yield ref), span=e.span, place=e.place)
            case RefWrite(ref=ref, value=value):
                cell = yield ref
                content = yield value
                return make.ref_write(cell, content, span=e.span, place=e.place, known=self.known)
            case RefTake(ref=ref):
                return make.ref_take((yield ref), span=e.span, place=e.place)
            case RefPut(ref=ref, value=value):
                cell = yield ref
                content = yield value
                return make.ref_put(cell, content, span=e.span, place=e.place, known=self.known)
            case _:
                raise AssertionError(f"no steps for {type(e).__name__}")

    def _if(self, e: If) -> _Steps:
        condition = yield e.condition
        then = yield e.then
        otherwise = yield e.otherwise
        return make.if_(condition, then, otherwise, span=e.span, place=e.place, known=self.known)

    def _match(self, e: Match) -> _Steps:
        scrutinee = yield e.scrutinee
        arms: list[Arm] = []
        for arm in e.arms:
            pattern = map_pattern(arm.pattern, self._pattern_var)
            arms.append(Arm(pattern, (yield arm.body)))
        return make.match(scrutinee, arms, span=e.span, place=e.place, known=self.known)

    def _pattern_var(self, v: Var) -> Var:
        self._declare(self.types.opened.get(v, ()))
        if has_unknown(v.type):
            self._vars[v] = Var(v.name, self._opened(v, self._final(v)), v.span, v.place)
        return self._vars.get(v, v)

    def _final(self, v: Var) -> Type:
        return self.types.solver.zonk(self.types.vars[v])

    def _opened(self, v: Var, t: Type) -> Type:
        if is_open(t):
            return t
        t, dims = open_exists(t, v.name)
        self._declare(dims)
        return t

    def _declare(self, dims: tuple[DimParam, ...]) -> None:
        for d in dims:
            self._ranges[d.sym] = dim_range(d, self.known.facts)

    # ------------------------------------------------------------------ binding

    def _lets(self, e: Let) -> _Steps:
        spine: list[tuple[Let, Var, Expr]] = []
        body: Expr = e
        while isinstance(body, Let) and id(body) not in self._memo:
            if id(body) in self.types.survey.typed:
                break
            v, value = body.var, body.value
            named = self.types.named.get(id(value))
            if named is not None and isinstance(value, Function):
                if named.recursive and has_unknown(v.type):
                    t = self._function_type(value, named)
                    self._vars[v] = Var(v.name, t, v.span, v.place)
                made = yield value
                if has_unknown(v.type) and not named.recursive:
                    self._vars[v] = Var(v.name, made.type, v.span, v.place)
            else:
                made = self._bind(v, (yield value))
            own = self._vars.get(v, v)
            self._definitions[own] = made
            spine.append((body, own, made))
            body = body.body
        result = yield body
        for let, v, value in reversed(spine):
            result = make.let(v, value, result, span=let.span, place=let.place)
        return result

    def _bind(self, v: Var, value: Expr) -> Expr:
        """Give a variable its type; return its value, checked against an annotation."""
        t = value.type
        if isinstance(t, UnknownType):
            return value
        if not has_unknown(v.type):
            dims = self.types.opened.get(v, ())
            self._declare(dims)
            with self.findings.catching():
                if not dims:
                    value = make.coerce(value, v.type, "annotation", known=self.known)
                elif not opened_dims(t, v.type):
                    matching = Matching(Context("annotation", v.span, self.known.facts))
                    matching.bind(dims)
                    matching.match(v.type, t, "annotation")
                    matching.finish()
            return value
        if not is_open(t):
            found = self._final(v)
            if is_open(found) and opened_dims(t, found):
                t = found
                self._declare(opened_dims(value.type, t))
            else:
                t = self._opened(v, t)
        self._vars[v] = Var(v.name, t, v.span, v.place)
        return value

    # ------------------------------------------------------------------ functions

    def _function_type(self, f: Function, named: Named | None) -> FuncType:
        """Return the final type, with unknowns that nobody binds as dims of this function."""
        solver = self.types.solver
        t = solver.zonk(named.type if named is not None else self.types.functions[id(f)])
        assert isinstance(t, FuncType)
        inputs = TupleType(t.params)
        left = solver.own_ints(inputs, self.types.since[id(f)])
        left = [s for s in left if s not in self._bound]
        if not left:
            return t
        self._bound.update(left)
        dims = tuple([solver.as_dim(s) for s in left])
        t = FuncType(t.params, t.result, (*t.dims, *dims), t.type_vars)
        if named is not None:
            named.type = t
        self.types.functions[id(f)] = t
        return t

    def _function(self, f: Function) -> _Steps:
        named = self.types.named.get(id(f))
        t = self._function_type(f, named)
        self._declare(t.dims)
        self._owner.update((d.sym, id(f)) for d in t.dims)
        self._open[id(f)] = None
        params: list[Var] = []
        opened: list[DimParam] = []
        for v, declared in zip(f.params, t.params, strict=True):
            if has_unknown(v.type):
                found = self._final(v)
                if not is_open(found) or (not is_open(declared) and found == declared):
                    found = self._opened(v, declared)
                self._vars[v] = Var(v.name, found, v.span, v.place)
            own = self._vars.get(v, v)
            dims = opened_dims(declared, own.type)
            self._declare(dims)
            opened += dims
            params.append(own)
        body = yield f.body
        del self._open[id(f)]
        annotated = not has_unknown(f.type.result)
        exact = annotated or (named is not None and named.recursive)
        result = t.result if exact else pack(body.type, opened)
        return make.function(
            params,
            body,
            result,
            t.dims,
            param_types=t.params,
            type_vars=t.type_vars,
            span=f.span,
            place=f.place,
            primitive=f.primitive,
            known=self.known,
        )


def _each(parts: Sequence[Expr]) -> Generator[Expr, Expr, list[Expr]]:
    found: list[Expr] = []
    for e in parts:
        found.append((yield e))  # noqa: PERF401  # a comprehension cannot yield
    return found
