"""Types of functions: declared with unknowns, related to their bodies, made polymorphic.

**Generalization.** A function in a `let` or a global is polymorphic in the dims and type variables
of its parameters. Where a suspended operator waits for the rank of a parameter, the first call says
it (`calls`), and the function is generalized then. So one function may be called with many sizes,
but with one rank.

**Recursion.** Functions that call each other (strong components of the call graph, local functions
that mention themselves) share their unknowns, so an unannotated dim is the same in every call inside
of the group; a function that calls itself with other sizes names them (`fn<n>(x: Tensor[n, f32])`),
and control integers among its parameters may have any value. The dims that vary from call to call
are packed in the result: `some k. Tensor[k, 4, f32]`.
"""

from __future__ import annotations

from inlay.analysis.inference.rules import Rules
from inlay.analysis.inference.scope import InferenceState
from inlay.analysis.inference.solver import Reason, is_meta
from inlay.analysis.inference.table import Named, has_unknown, type_var_names
from inlay.ir.dims import dim_params, free_symbols
from inlay.ir.existentials import opened_dims, pack
from inlay.ir.expr import Function, Var
from inlay.ir.types import UNKNOWN, AdtType, FuncType, RefType, TupleType, Type, TypeVar, UnknownType


class Functions:
    """Types of function literals, and which function or parameter an unknown belongs to."""

    def __init__(self, scope: InferenceState, rules: Rules) -> None:
        self._scope, self._rules = scope, rules
        self._findings, self._solver = scope.findings, scope.solver
        self._agenda, self._types = scope.agenda, scope.types
        self._results: dict[str, Named] = {}  # by the meta that is the result
        self._params: dict[str, Var] = {}  # by the meta that is the type

    def with_result(self, t: Type) -> Named | None:
        """Return the function whose result an unknown type is."""
        return self._results.get(t.name) if isinstance(t, TypeVar) else None

    def declare(self, f: Function, named: Named | None, *, implicit: bool) -> FuncType:
        """Bring the parameters of a function into scope, with unknowns for what is not declared."""
        solver = self._solver
        self._types.since[id(f)] = solver.clock
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
        self._types.functions[id(f)] = type
        if named is not None:
            named.type = type
            named.params = type.params
            named.done = not has_unknown(declared)
            self._types.named[id(f)] = named
        for v, t in zip(f.params, params, strict=True):
            if has_unknown(v.type):
                self._scope.bind(v, t)
            else:
                opened = tuple(d for d in opened_dims(t, v.type) if not solver.is_introduced(d.sym))
                solver.introduce(opened)
                self._types.opened[v] = opened
                self._scope.bind(v, v.type)
        return type

    def _fill(self, t: Type, what: Reason, param: Var | None) -> Type:
        """Replace what is not annotated by unknowns."""
        match t:
            case UnknownType():
                meta = self._solver.new_type(what)
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

    def finish(self, named: Named, body: Type) -> None:
        """Relate the type of a body to the result of its function."""
        self._agenda.drain()
        if named.recursive:
            while self._solver.type_metas(body) and self._agenda.force_join():
                self._agenda.drain()
        f, solver = named.function, self._solver
        opened = [d for v in f.params for d in self._types.opened.get(v, ())]
        if named.dropped:
            opened += [d for d in named.type.dims if d.sym in named.varying]
        self.result(f, named.type.result, pack(solver.zonk(body), opened))
        self._agenda.drain()
        self.ask_again(named)

    def result(self, f: Function, declared: Type, body: Type) -> None:
        """Require that a body has the declared result."""
        with self._findings.catching():
            why = "result of the function"
            self._scope.conform(declared, body, Reason(f.body.span or f.span, why))

    def ask_again(self, named: Named) -> None:
        """Ask the rules that refused, if the ranks of the parameters of a function are known."""
        if self._rules.has_refused:
            if not any(self._solver.type_metas(p) for p in named.type.params):
                self._rules.ask_again()
                self._agenda.drain()

    def generalize(self, named: Named) -> None:
        """Make a group polymorphic in what is unknown of its parameters, if nothing waits for it."""
        solver = self._solver
        group = [n for n in named.group or [named] if not n.done]
        inputs = TupleType(tuple([p for n in group for p in n.type.params]))
        results = TupleType(tuple([n.type.result for n in group]))
        if self._agenda.is_blocked(TupleType((inputs, results)), named.since):
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
            self._types.functions[id(n.function)] = n.type
            n.done = True

    def report_undetermined(self) -> None:
        """Report parameters and results that nothing determines."""
        for meta, v in self._params.items():
            t = self._solver.find(TypeVar(meta))
            if isinstance(t, TypeVar) and is_meta(t):
                self._findings.error(
                    "type.undetermined",
                    f"found nothing that determines the type of {v.name}, needed its rank and element type",
                    span=v.span,
                    hint=f"annotate it: {v.name}: Tensor[n, f32]",
                )
                self._solver.bind(t, UNKNOWN, Reason(v.span, "an error"))
                self._agenda.drain()
        for meta, named in self._results.items():
            t = self._solver.find(TypeVar(meta))
            if isinstance(t, TypeVar) and is_meta(t) and not self._findings.has_fatal:
                self._findings.error(
                    "type.undetermined",
                    f"found nothing that determines the result of {named.name}, needed a path on "
                    "which it does not call itself",
                    span=named.function.span,
                    hint="annotate the result",
                )
