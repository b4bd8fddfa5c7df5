"""Calls of functions.

A function whose type is whole is instantiated: its dims and type variables become what the arguments
say. One whose body is being inferred, and unknowns, are unified.

A function that *waits*, because an operator in its body asks for the rank of a parameter, is like an
operator: the call and the function tell each other ranks and element types, dims are left open, the
body is inferred, and the function is generalized then. No unknown of the function gets into its
callers, as it may be generalized any time.
"""

from __future__ import annotations

from inlay.analysis.inference.functions import Functions
from inlay.analysis.inference.rules import Rules
from inlay.analysis.inference.scope import InferenceState
from inlay.analysis.inference.solver import Infer, Reason, is_meta
from inlay.analysis.inference.table import Named, holds_cells, parts
from inlay.analysis.inference.words import called, of
from inlay.arith.expr import from_atom
from inlay.base.diagnostics import CompileError, error
from inlay.ir.conform import instantiate
from inlay.ir.existentials import open_exists
from inlay.ir.expr import Call, GlobalVar, Var
from inlay.ir.types import UNKNOWN, FuncType, Type, TypeVar, UnknownType

_DEEPEST, _DEEP, _WIDEST = 12, 5, 64
"""How deep a type may be that a call and a function tell each other; how wide where it is deep."""


class Calls:
    """Types of calls of functions."""

    def __init__(self, scope: InferenceState, rules: Rules, functions: Functions) -> None:
        self._scope, self._rules, self._functions = scope, rules, functions
        self._findings, self._solver, self._agenda = scope.findings, scope.solver, scope.agenda

    def apply(self, e: Call, function: Type, types: tuple[Type, ...]) -> Type:
        """Return the type of a call of a function value."""
        solver = self._solver
        function = solver.find(function)
        if isinstance(function, UnknownType):
            return UNKNOWN
        why = Reason(e.span, f"this call{of(e.callee)}")
        if isinstance(function, TypeVar) and is_meta(function):
            result = solver.new_type(Reason(e.span, f"the result{of(e.callee)}"))
            solver.bind(function, FuncType(types, result), why)
            self._agenda.drain()
            return result
        named = self._scope.named(e.callee)
        if named is not None and named.waits:
            return self._apply_later(e, named, types)
        inner = named is not None and not named.done
        if not inner and any(self._agenda.is_pending(t) for t in types):
            return self._agenda.eagerly(
                lambda: self._when_settled(e, function, types),
                lambda: types,
                Reason(e.span, f"the result{of(e.callee)}"),
            )
        if not isinstance(function, FuncType) or len(function.params) != len(types):
            dummy = Var(called(e.callee), function, e.callee.span)
            return self._rules.made(dummy, e, tuple([solver.zonk(t) for t in types]))
        try:
            return self._instantiated(e, function, types, why, named)
        except CompileError as failure:
            if named is not None and named.failed:
                return UNKNOWN
            raise self._rules.explained(failure, e, types) from None

    def _when_settled(self, e: Call, function: Type, types: tuple[Type, ...]) -> Type | None:
        waits = any(self._agenda.is_pending(t) for t in types)
        return None if waits else self.apply(e, function, types)

    def _instantiated(
        self, e: Call, function: FuncType, types: tuple[Type, ...], why: Reason, named: Named | None
    ) -> Type:
        solver = self._solver
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
            return self._rules.made(Var(called(e.callee), function, e.callee.span), e, types)
        instance, ints = solver.instance(function, why)
        for i, (p, t) in enumerate(zip(instance.params, types, strict=True)):
            solver.unify(p, t, Reason(e.args[i].span or e.span, f"argument {i + 1}{of(e.callee)}"))
        self._agenda.drain()
        if named is not None:
            for s, meta in ints.items():
                if solver.normal(meta) != from_atom(s):
                    named.varying[s] = None
        return solver.zonk(instance.result)

    def _apply_later(self, e: Call, named: Named, types: tuple[Type, ...]) -> Type:
        """Call a function that waits for the ranks of its parameters."""
        return self._agenda.eagerly(
            lambda: self._try_to_apply(e, named, types),
            lambda: (*types, named.type),
            Reason(e.span, f"the result{of(e.callee)}"),
        )

    def _try_to_apply(self, e: Call, named: Named, types: tuple[Type, ...]) -> Type | None:
        before = len(self._findings.diagnostics)
        if len(types) == len(named.type.params):
            self._exchange(named, types, Reason(e.span, f"this call{of(e.callee)}"))
        named.failed = named.failed or len(self._findings.diagnostics) > before
        if named.done:
            return self.apply(e, named.type, types)
        return UNKNOWN if named.failed or UNKNOWN in types else None

    def _exchange(self, named: Named, types: tuple[Type, ...], why: Reason) -> None:
        """Let a call and a function tell each other ranks and element types, but no dims."""
        learned = True
        while learned and not named.done:
            self._no_deeper((*named.type.params, *types), why)
            pairs = zip(named.function.params, named.type.params, types, strict=True)
            told = [self._tell(v, p, t, named, why) for v, p, t in pairs]
            learned = any(told)
            self._agenda.drain()
            self._functions.ask_again(named)
            self._functions.generalize(named)

    def _tell(self, v: Var, param: Type, t: Type, named: Named, why: Reason) -> bool:
        """Give the unknown one of two types the skeleton of the other; whether there was one."""
        solver = self._solver
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
            if self._agenda.is_pending(t):  # what it is will come, with the right dims
                return False
            solver.bind(t, solver.skeleton(param, v.name, why.span, varying=True), why)
            return True
        told = [self._tell(v, p, x, named, why) for p, x in parts(param, t)]
        return any(told)

    def _no_deeper(self, types: tuple[Type, ...], why: Reason) -> None:
        """Refuse types that grow with each telling: that of a function that gets itself."""
        level, depth = list(types), 0
        while level:
            found = [self._solver.find(t) for t in level]
            level = list(dict.fromkeys(x for t in found for x, _ in parts(t, t)))
            depth += 1
            if depth > _DEEPEST or (depth > _DEEP and len(level) > _WIDEST):
                raise error(
                    "type.cyclic",
                    f"found a type that contains itself, from {why.text}",
                    span=why.span,
                    hint="wrap the value in a data type",
                )

    def mention(self, e: Var | GlobalVar, named: Named) -> Type:
        """Return the type of a function that is passed on while its body waits for ranks."""
        why = Reason(e.span, f"this use of {named.name}")
        args = tuple([Var(f"a{i}", UNKNOWN, e.span) for i in range(len(named.type.params))])
        types = tuple([self._solver.new_type(why) for _ in args])
        result = self._apply_later(Call(e, args, UNKNOWN, e.span), named, types)
        return FuncType(types, result)
