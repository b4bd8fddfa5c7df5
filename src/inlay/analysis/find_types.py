"""Whole-program type inference, for programs that arrive without annotations.

The parser gives `UnknownType` to what the text does not say: parameters, results, lets. Inference
finds those types and makes every node again with `ir.make`, so that its result is what the smart
constructors would have built, checks included. A program that has all its types comes out equal.

**Two walks.** The first (here) finds types with unification (`solve_types`): those of parameters,
of results of recursive functions, of type arguments, and the names of opened dims. The second
(`elaborate_types`) is a forward pass that makes the nodes. What the first left open the second
checks, so a mistake of the first is an error message and never a wrong type.

**Operators** have type rules, not types, and a rule needs the ranks and element types of its
arguments. A call whose arguments are not known is suspended and woken by the type that it waits for.
A rule may then solve dims of unannotated parameters: `x @ w` with `w: Tensor[64, 10, f32]` makes
`x: Tensor[n, 64, f32]`.

**Generalization.** A function in a `let` or a global is polymorphic in the dims and type variables
of its parameters. Where a suspended operator waits for the rank of a parameter, the first call says
it: rank and element types are taken from the argument, dims are left open, the body is inferred, and
the function is generalized then. So one function may be called with many sizes, but with one rank.

**Recursion.** Functions that call each other (strong components of the call graph, local functions
that mention themselves) share their unknowns, so an unannotated dim is the same in every call inside
of the group; a function that calls itself with other sizes names them (`fn<n>(x: Tensor[n, f32])`),
and control integers among its parameters may have any value. A branch that ends in a call of the
function itself says nothing new about the result and is left out of the join; the dims that vary
from call to call are packed in what is left: `some k. Tensor[k, 4, f32]`.

Everything here is linear in the size of the program, with explicit stacks: steps are generators, and
what must wait is on the agenda.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from inlay.analysis.agenda import Agenda
from inlay.analysis.solve_types import Infer, Reason, Solver, dim_params, is_meta, labeled, text
from inlay.analysis.type_table import (
    Named,
    Survey,
    Types,
    called,
    determined,
    explained,
    has_unknown,
    holds_cells,
    of,
    parts,
    short_name,
    type_var_names,
)
from inlay.arith.expr import from_atom
from inlay.base.diagnostics import Collector, CompileError, error
from inlay.base.span import Span
from inlay.ir import make
from inlay.ir.conform import Matching, conform, instantiate, join
from inlay.ir.context import Known
from inlay.ir.dims import free_symbols, is_open, open_exists, opened_dims, pack, substitute_type
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
from inlay.ir.module import Module
from inlay.ir.types import (
    BOOL_CONTROL,
    UNIT,
    UNKNOWN,
    AdtType,
    BoolType,
    DimParam,
    ExistsType,
    FuncType,
    RefType,
    TupleType,
    Type,
    TypeVar,
    UnknownType,
)

_DEEPEST, _DEEP, _WIDEST = 12, 5, 64
"""How deep a type may be that a call and a function tell each other; how wide where it is deep."""

_Steps = Generator[Expr, Type, Type]


def find_types(module: Module, look: Survey) -> Types:
    """Return the types of a program, all annotations respected.

    Args:
        module: the program.
        look: `survey(module)`.

    Raises:
        CompileError: with all independent findings: the ids of `type.*`, `name.unknown`.
    """
    inference = _Inference(module, look)
    for group in look.groups:
        inference.infer_group(group)
    inference.finish()
    inference.findings.raise_if_fatal()
    return inference.types


class _Inference:
    """The first walk."""

    def __init__(self, module: Module, look: Survey) -> None:
        self.module = module
        self.findings = Collector()
        self.solver = Solver(look.type_vars)
        self.agenda = Agenda(self.solver, self.findings)
        self.types = Types(self.solver, look)
        self.known = Known(self.solver.facts)
        self.globals: dict[str, Named] = {}
        self.locals: dict[Var, Named] = {}
        self._memo: dict[int, Type] = {}
        self._late: dict[Var, None] = {}  # variables whose type was not known where they were bound
        self._results: dict[str, Named] = {}  # metas that are results of functions
        self._params: dict[str, Var] = {}  # metas that are types of parameters
        self._retries: list[tuple[Call, tuple[Type, ...], TypeVar]] = []
        self._refs: dict[int, ConstructorRef] = {}
        self._last_try = False

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
                self.findings.absorb(failure)
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
            case Var():
                return self._var(e)
            case Const():
                return e.type
            case GlobalVar():
                return self._global(e)
            case _ if id(e) in self.types.survey.typed:
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
            case RefCreate() | RefRead() | RefWrite():
                return self._reference(e)
            case OpRef():
                return self._operator_value(e)
            case ConstructorRef():
                return self._constructor_value(e)
            case Var() | GlobalVar() | Const():
                raise AssertionError("leaves have no steps")

    # ------------------------------------------------------------------ the end

    def _retry(self) -> None:
        """Ask rules again that refused dims which were unknown then."""
        waiting, self._retries = self._retries, []
        self._last_try = True
        for call, types, result in waiting:
            try:
                self.agenda.bind_result(result, self._apply_operator(call, types), call.span)
            except CompileError as failure:
                self.findings.absorb(failure)
                self.agenda.bind_result(result, UNKNOWN, call.span)
        self._last_try = False

    def finish(self) -> None:
        """Decide what is left; report what nothing determines."""
        for named in self.types.named.values():
            self._generalize(named)
        while True:
            self.agenda.drain()
            if self._retries:
                self._retry()
            elif not self.agenda.force_join():
                break
        self._report_undetermined()
        claimed = self.types.claimed
        for key, type in self.types.functions.items():
            inputs = TupleType(type.params)
            claimed.update(dict.fromkeys(self.solver.own_ints(inputs, self.types.since[key])))
        for type in self.types.functions.values():
            self.solver.default_ints(TupleType(type.params), claimed)
        for args in self.types.type_args.values():
            self.solver.default_ints(TupleType(args), claimed)

    def _report_undetermined(self) -> None:
        for meta, v in self._params.items():
            t = self.solver.find(TypeVar(meta))
            if isinstance(t, TypeVar) and is_meta(t):
                self.findings.error(
                    "type.undetermined",
                    f"found nothing that determines the type of {v.name}, needed its rank and "
                    "element type",
                    span=v.span,
                    hint=f"annotate it: {v.name}: Tensor[n, f32]",
                )
                self.solver.bind(t, UNKNOWN, Reason(v.span, "an error"))
                self.agenda.drain()
        for meta, named in self._results.items():
            t = self.solver.find(TypeVar(meta))
            if isinstance(t, TypeVar) and is_meta(t) and not self.findings.has_fatal:
                self.findings.error(
                    "type.undetermined",
                    f"found nothing that determines the result of {named.name}, needed a path on "
                    "which it does not call itself",
                    span=named.function.span,
                    hint="annotate the result",
                )
        for key, args in self.types.type_args.items():
            if not self.findings.has_fatal and any(self.solver.type_metas(a) for a in args):
                ref = self._refs[key]
                self.findings.error(
                    "type.undetermined-argument",
                    f"found nothing that determines the type arguments of {ref.name}",
                    span=ref.span,
                    hint=f"give them: {ref.name}[Tensor[4, f32]]",
                )

    # ------------------------------------------------------------------ names

    def _var(self, v: Var) -> Type:
        named = self.locals.get(v)
        if named is not None:
            waits = not named.done and not named.open
            return self._mention(v, named) if waits else self._named_type(named)
        t = self.types.vars.get(v)
        if t is None:
            raise error("name.unknown", f"found {v.name}, which is not in scope", span=v.span)
        if v in self._late:
            t = self.solver.find(t)
            if not (isinstance(t, TypeVar) and is_meta(t)):
                del self._late[v]
                t = self.types.vars[v] = self._open(v, self.solver.zonk(t))
        return t

    def _named_type(self, named: Named) -> FuncType:
        named.recursive = named.recursive or named.open
        return named.type

    def _open(self, v: Var, t: Type) -> Type:
        """Name what is unknown in the type of a variable."""
        if is_open(t):
            return t
        t, dims = open_exists(t, v.name)
        self.solver.introduce(dims)
        self.types.opened[v] = (*self.types.opened.get(v, ()), *dims)
        return t

    def _bind(self, v: Var, t: Type) -> tuple[DimParam, ...]:
        """Give a variable without annotation its type; return the dims opened here."""
        found = self.solver.find(t)
        if isinstance(found, TypeVar) and is_meta(found):
            self.types.vars[v] = found
            self._late[v] = None
            return ()
        self.types.vars[v] = self._open(v, self.solver.zonk(found))
        return self.types.opened.get(v, ())

    def _global(self, e: GlobalVar) -> Type:
        named = self.globals.get(e.name)
        if named is not None:
            waits = not named.done and not named.open
            return self._mention(e, named) if waits else self._named_type(named)
        kernel = self.module.kernels.get(e.name)
        if kernel is not None:
            return kernel.type
        raise error("name.unknown", f"found @{e.name}, which the module lacks", span=e.span)

    # ------------------------------------------------------------------ functions

    def infer_group(self, names: Sequence[str]) -> None:
        """Infer global functions that call each other."""
        group = [self.globals.setdefault(n, Named(n, self.module.functions[n])) for n in names]
        since = self.solver.clock
        for named in group:
            if id(named.function) in self.types.survey.typed:
                named.type, named.done, named.open = named.function.type, True, False
        group = [named for named in group if not named.done]
        for named in group:
            self._declare(named.function, named, implicit=True)
        for named in group:
            before = len(self.findings.diagnostics)
            self._finish_body(named, self._run(named.function.body))
            named.failed = len(self.findings.diagnostics) > before
        for named in group:
            named.open, named.since, named.group = False, since, group
        if group:
            self._generalize(group[0])

    def _declare(self, f: Function, named: Named | None, *, implicit: bool) -> FuncType:
        """Bring the parameters of a function into scope, with unknowns for what is not declared."""
        solver = self.solver
        self.types.since[id(f)] = solver.clock
        if named is not None:
            named.since = solver.clock
        declared = f.type
        params: list[Type] = []
        for v, t in zip(f.params, declared.params, strict=True):
            params.append(v.type if has_unknown(t) and not has_unknown(v.type) else t)
        solver.introduce(declared.dims)
        dims = declared.dims
        if implicit:
            more = dim_params([p for p in params if not has_unknown(p)], solver.is_introduced)
            solver.introduce(more)
            dims = (*dims, *more)
        for i, v in enumerate(f.params):
            params[i] = self._fill(params[i], Reason(v.span, f"the type of {v.name}"), v)
        result = declared.result
        if has_unknown(result):
            result = solver.new_type(Reason(f.span, "the result"))
            if named is not None:
                self._results[result.name] = named
        type = FuncType(tuple(params), result, dims, declared.type_vars)
        self.types.functions[id(f)] = type
        if named is not None:
            named.type = type
            named.params = type.params
            named.done = not has_unknown(declared)
            self.types.named[id(f)] = named
        for v, t in zip(f.params, params, strict=True):
            if has_unknown(v.type):
                self._bind(v, t)
            else:
                opened = tuple(d for d in opened_dims(t, v.type) if not solver.is_introduced(d.sym))
                solver.introduce(opened)
                self.types.opened[v] = opened
                self._bind(v, v.type)
        return type

    def _fill(self, t: Type, what: Reason, param: Var | None) -> Type:
        """Replace what is not annotated by unknowns."""
        match t:
            case UnknownType():
                meta = self.solver.new_type(what)
                if param is not None:
                    self._params[meta.name] = param
                return meta
            case TupleType(fields=fields):
                return TupleType(tuple(self._fill(f, what, param) for f in fields))
            case AdtType(name=name, args=args):
                return AdtType(name, tuple(self._fill(a, what, param) for a in args))
            case RefType(content=content):
                return RefType(self._fill(content, what, param))
            case FuncType(params=params, result=result, dims=dims, type_vars=type_vars):
                filled = tuple(self._fill(p, what, param) for p in params)
                return FuncType(filled, self._fill(result, what, None), dims, type_vars)
            case _:
                return t

    def _function(self, f: Function, named: Named | None) -> _Steps:
        type = self._declare(f, named, implicit=False)
        before = len(self.findings.diagnostics)
        body = yield f.body
        if named is not None:
            self._finish_body(named, body)
            named.failed = len(self.findings.diagnostics) > before
            named.open = False
            self._generalize(named)
            return named.type
        opened = [d for v in f.params for d in self.types.opened.get(v, ())]
        self._result(f, type.result, pack(self.solver.zonk(body), opened))
        return type

    def _finish_body(self, named: Named, body: Type) -> None:
        """Relate the type of a body to the result of its function."""
        self.agenda.drain()
        if named.recursive:
            while self.solver.type_metas(body) and self.agenda.force_join():
                self.agenda.drain()
        f, solver = named.function, self.solver
        opened = [d for v in f.params for d in self.types.opened.get(v, ())]
        if named.dropped:
            opened += [d for d in named.type.dims if d.sym in named.varying]
        self._result(f, named.type.result, pack(solver.zonk(body), opened))
        self.agenda.drain()
        if self._retries and not self._open_params(named):
            self._retry()
            self.agenda.drain()

    def _open_params(self, named: Named) -> bool:
        return any(self.solver.type_metas(p) for p in named.type.params)

    def _result(self, f: Function, declared: Type, body: Type) -> None:
        with self.findings.catching():
            why = "result of the function"
            self._conform(declared, body, Reason(f.body.span or f.span, why))

    def _conform(self, declared: Type, actual: Type, why: Reason) -> None:
        """Require that a value may stand where a type is declared."""
        if isinstance(actual, UnknownType):
            meta = self.solver.find(declared)
            if isinstance(meta, TypeVar) and is_meta(meta):
                self.solver.bind(meta, UNKNOWN, why)
        elif self.solver.type_metas(declared) or self.solver.type_metas(actual):
            self.solver.unify(declared, actual, why)
        else:
            ctx = Infer(self.solver, "", why.span)
            conform(self.solver.zonk(declared), self.solver.zonk(actual), ctx, why.text)

    def _generalize(self, named: Named) -> None:
        """Make a group polymorphic in what is unknown of its parameters, if nothing waits for it."""
        solver = self.solver
        group = [n for n in named.group or [named] if not n.done]
        inputs = TupleType(tuple([p for n in group for p in n.type.params]))
        results = TupleType(tuple([n.type.result for n in group]))
        if self.agenda.is_blocked(TupleType((inputs, results)), named.since):
            return
        dims, type_vars = solver.quantify(inputs, named.since)
        for n in group:
            type = solver.zonk(n.type)
            assert isinstance(type, FuncType)
            own = TupleType(type.params)
            syms, names = set(free_symbols(own)), type_var_names(own)
            n.type = FuncType(
                type.params,
                type.result,
                (*type.dims, *[d for d in dims if d.sym in syms]),
                (*type.type_vars, *[v for v in type_vars if v.name in names]),
            )
            self.types.functions[id(n.function)] = n.type
            n.done = True

    # ------------------------------------------------------------------ calls

    def _call(self, e: Call) -> _Steps:
        types = yield from _each(e.args)
        callee = e.callee
        match callee:
            case OpRef():
                return self._operator(e, tuple(types))
            case ConstructorRef(type=FuncType(type_vars=type_vars) as generic) if type_vars:
                return self._constructor(e, callee, generic, tuple(types))
            case ConstructorRef():
                function: Type = callee.type
            case _:
                named = self._callee(callee)
                function = (yield callee) if named is None else self._named_type(named)
        return self._apply(e, function, tuple(types))

    def _operator(self, e: Call, types: tuple[Type, ...]) -> Type:
        callee = e.callee
        assert isinstance(callee, OpRef)
        return self.agenda.when_known(
            types,
            lambda: self._apply_operator(e, types),
            Reason(e.span, f"the result of {callee.op.name}"),
        )

    def _apply_operator(self, e: Call, types: tuple[Type, ...]) -> Type:
        """Run a type rule on known ranks and element types; it may solve dims."""
        solver, callee = self.solver, e.callee
        assert isinstance(callee, OpRef)
        types = tuple([solver.zonk(t) for t in types])
        if UNKNOWN in types:
            return UNKNOWN
        op = callee.op
        try:
            least, most = op.arity
            if any(map(solver.int_metas, types)) and least <= len(types) <= (most or len(types)):
                opened = tuple([open_exists(t)[0] for t in types])
                op.type_rule(Infer(solver, op.name, e.span), callee.attrs, opened)
                types = tuple([solver.zonk(t) for t in types])
            return self._made(callee, e, types)
        except CompileError as failure:
            if not self._last_try and any(map(solver.int_metas, types)):
                result = solver.new_type(Reason(e.span, f"the result of {op.name}"))
                self._retries.append((e, types, result))
                return result
            raise self._explained(failure, e, types) from None

    def _made(self, callee: Expr, e: Call, types: tuple[Type, ...]) -> Type:
        """Return the type of the node that `make.call` makes."""
        args = [
            a if a.type is t else Var("a", t, a.span) for a, t in zip(e.args, types, strict=True)
        ]
        return make.call(callee, args, span=e.span, known=self.known).type

    def _apply(self, e: Call, function: Type, types: tuple[Type, ...]) -> Type:
        """Return the type of a call of a function value."""
        solver = self.solver
        function = solver.find(function)
        if isinstance(function, UnknownType):
            return UNKNOWN
        why = Reason(e.span, f"this call{of(e.callee)}")
        if isinstance(function, TypeVar) and is_meta(function):
            result = solver.new_type(Reason(e.span, f"the result{of(e.callee)}"))
            solver.bind(function, FuncType(types, result), why)
            self.agenda.drain()
            return result
        named = self._callee(e.callee)
        if named is not None and not named.done and not named.open:
            return self._apply_later(e, named, types)
        inner = named is not None and not named.done
        if not inner and any(self.agenda.is_pending(t) for t in types):
            return self.agenda.eagerly(
                lambda: self._when_settled(e, function, types),
                lambda: types,
                Reason(e.span, f"the result{of(e.callee)}"),
            )
        if not isinstance(function, FuncType) or len(function.params) != len(types):
            dummy = Var(called(e.callee), function, e.callee.span)
            return self._made(dummy, e, tuple([solver.zonk(t) for t in types]))
        try:
            return self._instantiated(e, function, types, why, named)
        except CompileError as failure:
            if named is not None and named.failed:
                return UNKNOWN
            raise self._explained(failure, e, types) from None

    def _when_settled(self, e: Call, function: Type, types: tuple[Type, ...]) -> Type | None:
        waits = any(self.agenda.is_pending(t) for t in types)
        return None if waits else self._apply(e, function, types)

    def _instantiated(
        self,
        e: Call,
        function: FuncType,
        types: tuple[Type, ...],
        why: Reason,
        named: Named | None,
    ) -> Type:
        solver = self.solver
        types = tuple([solver.zonk(t) for t in types])
        if UNKNOWN in types:
            return UNKNOWN
        inner = named is not None and not named.done
        metas = any(map(solver.type_metas, types)) or bool(solver.type_metas(function))
        open_dims = any(map(solver.int_metas, types)) or bool(solver.int_metas(function))
        exact = any(isinstance(t, FuncType) for t in types) and open_dims
        if not (inner or metas or exact or any(map(holds_cells, types))):
            function = solver.zonk(function)  # type: ignore[assignment]
            if open_dims:
                opened = tuple([open_exists(t)[0] for t in types])
                instantiate(function, opened, Infer(solver, called(e.callee), e.span))
                function = solver.zonk(function)  # type: ignore[assignment]
                types = tuple([solver.zonk(t) for t in types])
            return self._made(Var(called(e.callee), function, e.callee.span), e, types)
        instance, ints = solver.instance(function, why)
        for i, (p, t) in enumerate(zip(instance.params, types, strict=True)):
            solver.unify(p, t, Reason(e.args[i].span or e.span, f"argument {i + 1}{of(e.callee)}"))
        self.agenda.drain()
        if named is not None:
            for s, meta in ints.items():
                if solver.normal(meta) != from_atom(s):
                    named.varying[s] = None
        return solver.zonk(instance.result)

    def _callee(self, callee: Expr) -> Named | None:
        match callee:
            case Var():
                return self.locals.get(callee)
            case GlobalVar(name=name):
                return self.globals.get(name)
            case _:
                return None

    def _apply_later(self, e: Call, named: Named, types: tuple[Type, ...]) -> Type:
        """Call a function whose body still waits for the ranks of its parameters.

        Such a function is like an operator: the call says what it knows, and waits for the rest. No
        unknown of the function gets into its callers, as it may be generalized any time.
        """
        return self.agenda.eagerly(
            lambda: self._try_to_apply(e, named, types),
            lambda: (*types, named.type),
            Reason(e.span, f"the result{of(e.callee)}"),
        )

    def _try_to_apply(self, e: Call, named: Named, types: tuple[Type, ...]) -> Type | None:
        before = len(self.findings.diagnostics)
        if len(types) == len(named.type.params):
            self._exchange(named, types, Reason(e.span, f"this call{of(e.callee)}"))
        named.failed = named.failed or len(self.findings.diagnostics) > before
        if named.done:
            return self._apply(e, named.type, types)
        return UNKNOWN if named.failed or UNKNOWN in types else None

    def _exchange(self, named: Named, types: tuple[Type, ...], why: Reason) -> None:
        """Let a call and a function tell each other ranks and element types, but no dims."""
        learned = True
        while learned and not named.done:
            self._no_deeper((*named.type.params, *types), why)
            pairs = zip(named.function.params, named.type.params, types, strict=True)
            told = [self._tell(v, p, t, named, why) for v, p, t in pairs]
            learned = any(told)
            self.agenda.drain()
            if self._retries and not self._open_params(named):
                self._retry()
                self.agenda.drain()
            self._generalize(named)

    def _tell(self, v: Var, param: Type, t: Type, named: Named, why: Reason) -> bool:
        """Give the unknown one of two types the skeleton of the other; whether there was one."""
        solver = self.solver
        param, t = solver.find(param), solver.find(t)
        if isinstance(param, UnknownType) or isinstance(t, UnknownType):
            return False
        unknown = isinstance(t, TypeVar) and is_meta(t)
        if isinstance(param, TypeVar) and is_meta(param):
            if unknown:
                return False
            solver.bind(param, solver.skeleton(t, v.name, v.span, varying=named.recursive), why)
            return True
        if isinstance(t, TypeVar) and unknown:
            if self.agenda.is_pending(t):  # what it is will come, with the right dims
                return False
            solver.bind(t, solver.skeleton(param, v.name, why.span, varying=True), why)
            return True
        told = [self._tell(v, p, x, named, why) for p, x in parts(param, t)]
        return any(told)

    def _no_deeper(self, types: tuple[Type, ...], why: Reason) -> None:
        """Refuse types that grow with each telling: that of a function that gets itself."""
        level, depth = list(types), 0
        while level:
            found = [self.solver.find(t) for t in level]
            level = list(dict.fromkeys(x for t in found for x, _ in parts(t, t)))
            depth += 1
            if depth > _DEEPEST or (depth > _DEEP and len(level) > _WIDEST):
                raise error(
                    "type.cyclic",
                    f"found a type that contains itself, from {why.text}",
                    span=why.span,
                    hint="wrap the value in a data type",
                )

    def _mention(self, e: Var | GlobalVar, named: Named) -> Type:
        """Return the type of a function that is passed on while its body waits for ranks."""
        why = Reason(e.span, f"this use of {named.name}")
        args = tuple([Var(f"a{i}", UNKNOWN, e.span) for i in range(len(named.type.params))])
        types = tuple([self.solver.new_type(why) for _ in args])
        result = self._apply_later(Call(e, args, UNKNOWN, e.span), named, types)
        return FuncType(types, result)

    def _constructor(
        self, e: Call, ref: ConstructorRef, generic: FuncType, types: tuple[Type, ...]
    ) -> Type:
        """Return the type of a built value; type arguments may stay open, as in `Nil()`."""
        solver = self.solver
        types = tuple([solver.zonk(t) for t in types])
        if UNKNOWN in types:
            return UNKNOWN
        known = not any(map(solver.type_metas, types)) and not any(map(solver.int_metas, types))
        if known and len(types) == len(generic.params) and determined(generic):
            try:
                return self._made(ref, e, types)
            except CompileError as failure:
                raise self._explained(failure, e, types) from None
        if len(types) != len(generic.params):
            return self._made(ref, e, types)
        instance = self._fresh_constructor(ref, generic, id(e))
        for i, (p, t) in enumerate(zip(instance.params, types, strict=True)):
            solver.unify(p, t, Reason(e.args[i].span or e.span, f"field {i + 1} of {ref.name}"))
        self.agenda.drain()
        return instance.result

    def _fresh_constructor(self, ref: ConstructorRef, generic: FuncType, key: int) -> FuncType:
        why = Reason(ref.span, f"the type argument of {ref.name}")
        args = {v.name: self.solver.new_type(why) for v in generic.type_vars}
        self.types.type_args[key] = tuple(args.values())
        self._refs[key] = ref
        params = tuple([substitute_type(p, {}, args) for p in generic.params])
        return FuncType(params, substitute_type(generic.result, {}, args))

    def _constructor_value(self, e: ConstructorRef) -> _Steps:
        """A constructor that is passed on is that of one instance of its data type."""
        assert isinstance(e.type, FuncType)
        if not e.type.type_vars:
            return e.type
        return self._fresh_constructor(e, e.type, id(e))
        yield  # a generator, as all steps are

    def _operator_value(self, e: OpRef) -> _Steps:
        """An operator that is passed on is a function around it."""
        least, most = e.op.arity
        if least != most:
            raise error(
                "type.undetermined",
                f"found {e.op.name} as a value, which takes any number of arguments",
                span=e.span,
                hint="write a function around it",
            )
        params = tuple([Var(f"a{i}", UNKNOWN, e.span) for i in range(least)])
        type = FuncType(tuple([UNKNOWN] * least), UNKNOWN)
        f = Function(params, Call(e, params, UNKNOWN, e.span), type, e.span)
        self.types.expanded[id(e)] = f
        return (yield f)

    # ------------------------------------------------------------------ binding

    def _lets(self, e: Let) -> _Steps:
        spine: list[Let] = []
        body: Expr = e
        while isinstance(body, Let) and (not spine or id(body) not in self._memo):
            if id(body) in self.types.survey.typed:
                break
            spine.append(body)
            v, value = body.var, body.value
            if isinstance(value, Function) and has_unknown(v.type):
                named = self.locals[v] = Named(v.name, value)
                if id(value) in self.types.survey.typed:
                    named.type, named.done, named.open = value.type, True, False
                else:
                    yield from self._catching(self._function(value, named))
                self._memo[id(value)] = named.type
            else:
                if isinstance(value, Function):
                    self.types.vars[v] = v.type
                t = yield value
                with self.findings.catching():
                    self._let(v, t, body.span or value.span)
                self.types.vars.setdefault(v, UNKNOWN)
            body = body.body
        t = yield body
        for let in reversed(spine):
            dims = self.types.opened.get(let.var)
            if dims:
                t = pack(self.solver.zonk(t), dims)
            self._memo[id(let)] = t
        return t

    def _catching(self, steps: _Steps) -> _Steps:
        """Run the steps of a named function; an error leaves its type unknown."""
        try:
            return (yield from steps)
        except CompileError as failure:
            self.findings.absorb(failure)
            return UNKNOWN

    def _let(self, v: Var, t: Type, span: Span) -> None:
        """Bind a variable; an annotation may name what is not determined."""
        if has_unknown(v.type):
            self._bind(v, t)
            return
        solver = self.solver
        self.types.vars[v] = v.type
        new = [s for s in free_symbols(v.type) if not solver.is_introduced(s)]
        why = Reason(span, f"the annotation of {v.name}")
        t = solver.zonk(t)
        if not new:
            self._conform(v.type, t, why)
            self._bind(v, v.type)
            return
        known = {d.sym: d for d in opened_dims(t, v.type)}
        defaults = {d.sym: d for d in dim_params((v.type,), solver.is_introduced)}
        dims = tuple(known.get(s, defaults[s]) for s in new)
        if not solver.type_metas(t) and not isinstance(t, UnknownType):
            matching = Matching(Infer(solver, "", span))
            matching.bind(tuple(DimParam(d.sym, defaults[d.sym].low) for d in dims))
            matching.match(v.type, t, why.text)
            matching.finish()
        solver.introduce(dims)
        self.types.opened[v] = dims

    # ------------------------------------------------------------------ branches

    def _if(self, e: If) -> _Steps:
        condition = yield e.condition
        with self.findings.catching():
            self._need(condition, BOOL_CONTROL, e.condition.span or e.span, "the condition")
        then = yield e.then
        otherwise = yield e.otherwise
        return self._join((then, otherwise), e.span, "branches")

    def _need(self, t: Type, needed: Type, span: Span, what: str) -> None:
        found = self.solver.find(t)
        if isinstance(found, UnknownType):
            return
        if isinstance(needed, BoolType) and not isinstance(found, (BoolType, TypeVar)):
            raise error(
                "type.mismatch",
                f"found {text(self.solver.zonk(found))}, needed bool as the condition",
                span=span,
                hint="use to_control",
            )
        self.solver.unify(needed, found, Reason(span, what))
        self.agenda.drain()

    def _join(self, sides: tuple[Type, ...], span: Span, what: str) -> Type:
        """Return the least general type of all sides; calls of the function itself say nothing."""
        kept: list[Type] = []
        for t in sides:
            found = self.solver.find(t)
            if isinstance(found, UnknownType):
                return UNKNOWN
            named = self._results.get(found.name) if isinstance(found, TypeVar) else None
            if named is not None and named.open:
                named.dropped = True
            else:
                kept.append(found)
        if not kept:
            return self.solver.find(sides[0])

        def compute() -> Type:
            types = [self.solver.zonk(t) for t in kept]
            if UNKNOWN in types:
                return UNKNOWN
            result = types[0]
            for t in types[1:]:
                result = join(result, t, Infer(self.solver, "", span), what)
            return result

        if len(kept) == 1:
            return self.solver.zonk(kept[0])
        return self.agenda.when_known(kept, compute, Reason(span, what), tuple(kept))

    def _match(self, e: Match) -> _Steps:
        scrutinee = yield e.scrutinee
        sides: list[Type] = []
        for arm in e.arms:
            with self.findings.catching():
                self._pattern(arm.pattern, scrutinee, e.scrutinee.span or e.span)
            variables = make.pattern_vars(arm.pattern)
            for v in variables:
                self.types.vars.setdefault(v, UNKNOWN)
            t = yield arm.body
            sides.append(self._packed(arm, variables, t))
        if not sides:
            raise error("type.no-arms", "found a match without arms", span=e.span)
        return self._join(tuple(sides), e.span, "arms of match")

    def _packed(self, _arm: Arm, variables: list[Var], t: Type) -> Type:
        dims = [d for v in variables for d in self.types.opened.get(v, ())]
        return pack(self.solver.zonk(t), dims) if dims else t

    def _pattern(self, pattern: Pattern, t: Type, span: Span) -> None:
        """Give the variables of a pattern their types."""
        stack = [(pattern, t)]
        while stack:
            p, t = stack.pop()
            match p:
                case PatternWildcard():
                    pass
                case PatternVar(var=v):
                    self._pattern_var(v, t, span)
                case PatternTuple(fields=fields):
                    types = self._tuple_fields(t, len(fields), span)
                    stack.extend(reversed(list(zip(fields, types, strict=True))))
                case PatternConstructor(fields=fields):
                    types = self._constructor_fields(p, t, span)
                    stack.extend(reversed(list(zip(fields, types, strict=True))))

    def _pattern_var(self, v: Var, t: Type, span: Span) -> None:
        if has_unknown(v.type):
            self._bind(v, t)
        else:
            self._let(v, t, v.span or span)

    def _tuple_fields(self, t: Type, count: int, span: Span) -> tuple[Type, ...]:
        found = self.solver.find(t)
        if isinstance(found, ExistsType):
            found, dims = open_exists(found)
            self.solver.introduce(dims)
        if isinstance(found, UnknownType):
            return (UNKNOWN,) * count
        if isinstance(found, TypeVar) and is_meta(found):
            fields = tuple(self.solver.new_type(Reason(span, "a field")) for _ in range(count))
            self.solver.bind(found, TupleType(fields), Reason(span, "the pattern"))
            return fields
        if not isinstance(found, TupleType) or len(found.fields) != count:
            raise error(
                "type.mismatch",
                f"found {text(self.solver.zonk(found))}, needed a tuple of {count} for the pattern",
                span=span,
            )
        return found.fields

    def _constructor_fields(self, p: PatternConstructor, t: Type, span: Span) -> tuple[Type, ...]:
        adt = self.module.adts[p.adt]
        args = {v.name: self.solver.new_type(Reason(span, p.name)) for v in adt.params}
        found = self.solver.find(t)
        if isinstance(found, UnknownType):
            return (UNKNOWN,) * len(p.fields)
        if isinstance(found, AdtType) and found.name == p.adt:
            types = dict(zip((v.name for v in adt.params), found.args, strict=True))
        else:
            needed = AdtType(p.adt, tuple(args.values()))
            self.solver.unify(needed, found, Reason(span, f"the pattern {p.name}"))
            types = args
        constructor = make.find_constructor(adt, p.name)
        if len(constructor.fields) != len(p.fields):
            raise error(
                "type.arity",
                f"pattern {p.name}: found {len(p.fields)} fields, needed {len(constructor.fields)}",
                span=span,
            )
        return tuple(substitute_type(f, {}, types) for f in constructor.fields)

    # ------------------------------------------------------------------ data

    def _tuple(self, e: Tuple) -> _Steps:
        fields = yield from _each(e.fields)
        return UNKNOWN if UNKNOWN in fields else TupleType(tuple(fields))

    def _project(self, e: Project) -> _Steps:
        t = yield e.value
        return self.agenda.eagerly(
            lambda: self._field(e, t), lambda: (t,), Reason(e.span, "a field")
        )

    def _field(self, e: Project, t: Type) -> Type | None:
        found = self.solver.find(t)
        if isinstance(found, TypeVar) and is_meta(found):
            return None
        if isinstance(found, TupleType) and 0 <= e.index < len(found.fields):
            return found.fields[e.index]
        return make.project(
            Var("t", self.solver.zonk(found), e.value.span), e.index, span=e.span
        ).type

    def _reference(self, e: RefCreate | RefRead | RefWrite) -> _Steps:
        match e:
            case RefCreate(value=value):
                t = yield value
                return UNKNOWN if isinstance(t, UnknownType) else RefType(t)
            case RefRead(ref=ref):
                return self._content((yield ref), ref.span or e.span)
            case RefWrite(ref=ref, value=value):
                content = self._content((yield ref), ref.span or e.span)
                t = yield value
                with self.findings.catching():
                    self._conform(content, t, Reason(e.span, "content of the cell"))
                    self.agenda.drain()
                return UNIT

    def _content(self, t: Type, span: Span) -> Type:
        found = self.solver.find(t)
        if isinstance(found, TypeVar) and is_meta(found):
            content = self.solver.new_type(Reason(span, "the content of a cell"))
            self.solver.bind(found, RefType(content), Reason(span, "its use as a cell"))
            return content
        return make.ref_read(Var("r", found, span)).type

    def _explained(self, failure: CompileError, e: Call, types: tuple[Type, ...]) -> CompileError:
        """Add to an error of a call where its operands come from, and why they are what they are."""
        args = [Var(short_name(a, i), t, a.span) for i, (a, t) in enumerate(zip(e.args, types))]
        sources = [
            self.types.vars.get(a, t) if isinstance(a, Var) else t
            for a, t in zip(e.args, types, strict=False)
        ]
        named = self._callee(e.callee)
        if named is not None:
            sources += named.params
        chain = [label for t in sources for label in self.solver.explain_type(t)]
        zonked = [Var(a.name, self.solver.zonk(a.type), a.span) for a in args]
        return labeled(explained(failure, zonked), tuple(chain))


def _each(parts: Sequence[Expr]) -> Generator[Expr, Type, list[Type]]:
    found: list[Type] = []
    for e in parts:
        found.append((yield e))  # noqa: PERF401  # a comprehension cannot yield
    return found
