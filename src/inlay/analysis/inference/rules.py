"""Calls of what has a rule: operators and constructors of data types.

Operators have type rules, not types, and a rule needs the ranks and element types of its arguments: a
call whose arguments are not known is suspended. With known ranks a rule may *solve* dims of
unannotated parameters: `x @ w` with `w: Tensor[64, 10, f32]` makes `x: Tensor[n, 64, f32]`. A rule
that refuses dims which are still unknown is asked again when they are known.

The type of a call is never computed here: it is that of the node which `ir.make` makes.
"""

from __future__ import annotations

from inlay.analysis.inference.scope import InferenceState
from inlay.analysis.inference.solver import Infer, Reason
from inlay.analysis.inference.table import determined
from inlay.analysis.inference.words import explained, labeled, short_name
from inlay.base.diagnostics import CompileError, InlayError, error
from inlay.ir import make
from inlay.ir.dims import substitute_type
from inlay.ir.existentials import open_exists
from inlay.ir.expr import Call, ConstructorRef, Expr, Function, OpRef, Var
from inlay.ir.types import UNKNOWN, FuncType, Type, TypeVar


class Rules:
    """Types of calls of operators and constructors."""

    def __init__(self, scope: InferenceState) -> None:
        self._scope = scope
        self._findings, self._solver = scope.findings, scope.solver
        self._agenda, self._types = scope.agenda, scope.types
        self._refused: list[tuple[Call, tuple[Type, ...], TypeVar]] = []
        self._constructors: dict[int, ConstructorRef] = {}  # those with open type arguments
        self._last_try = False

    @property
    def has_refused(self) -> bool:
        """Whether a rule is to be asked again."""
        return bool(self._refused)

    def operator(self, e: Call, types: tuple[Type, ...]) -> Type:
        """Return the type of a call of an operator, as soon as its arguments are known."""
        callee = e.callee
        assert isinstance(callee, OpRef)
        return self._agenda.when_known(
            types, lambda: self._apply_operator(e, types), Reason(e.span, f"the result of {callee.op.name}")
        )

    def _apply_operator(self, e: Call, types: tuple[Type, ...]) -> Type:
        """Run a type rule on known ranks and element types; it may solve dims."""
        solver, callee = self._solver, e.callee
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
            return self.made(callee, e, types)
        except CompileError as failure:
            if not self._last_try and any(map(solver.int_metas, types)):
                result = solver.new_type(Reason(e.span, f"the result of {op.name}"))
                self._refused.append((e, types, result))
                return result
            raise self.explained(failure, e, types) from None

    def ask_again(self) -> None:
        """Ask the rules that refused dims which were unknown then; now an error is one."""
        refused, self._refused = self._refused, []
        self._last_try = True
        for call, types, result in refused:
            try:
                self._agenda.bind_result(result, self._apply_operator(call, types), call.span)
            except CompileError as failure:
                self._findings.absorb(failure)
                self._agenda.bind_result(result, UNKNOWN, call.span)
        self._last_try = False

    def made(self, callee: Expr, e: Call, types: tuple[Type, ...]) -> Type:
        """Return the type of the node that `make.call` makes."""
        args = [a if a.type is t else Var("a", t, a.span) for a, t in zip(e.args, types, strict=True)]
        return make.call(callee, args, span=e.span, known=self._scope.known).type

    def wrapped(self, e: OpRef) -> Function:
        """Return the function around an operator that is passed on.

        Raises:
            CompileError: `type.undetermined` where the operator takes any number of arguments.
        """
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
        self._types.expanded[id(e)] = f
        return f

    def constructor(self, e: Call, ref: ConstructorRef, generic: FuncType, types: tuple[Type, ...]) -> Type:
        """Return the type of a built value; type arguments may stay open, as in `Nil()`."""
        solver = self._solver
        types = tuple([solver.zonk(t) for t in types])
        if UNKNOWN in types:
            return UNKNOWN
        known = not any(map(solver.type_metas, types)) and not any(map(solver.int_metas, types))
        if known and len(types) == len(generic.params) and determined(generic):
            try:
                return self.made(ref, e, types)
            except CompileError as failure:
                raise self.explained(failure, e, types) from None
        if len(types) != len(generic.params):
            return self.made(ref, e, types)
        instance = self._fresh_constructor(ref, generic, id(e))
        for i, (p, t) in enumerate(zip(instance.params, types, strict=True)):
            solver.unify(p, t, Reason(e.args[i].span or e.span, f"field {i + 1} of {ref.name}"))
        self._agenda.drain()
        return instance.result

    def _fresh_constructor(self, ref: ConstructorRef, generic: FuncType, key: int) -> FuncType:
        why = Reason(ref.span, f"the type argument of {ref.name}")
        args = {v.name: self._solver.new_type(why) for v in generic.type_vars}
        self._types.type_args[key] = tuple(args.values())
        self._constructors[key] = ref
        params = tuple([substitute_type(p, {}, args) for p in generic.params])
        return FuncType(params, substitute_type(generic.result, {}, args))

    def constructor_value(self, e: ConstructorRef) -> Type:
        """Return the type of a constructor that is passed on: that of one instance."""
        assert isinstance(e.type, FuncType)
        if not e.type.type_vars:
            return e.type
        return self._fresh_constructor(e, e.type, id(e))

    def report_undetermined(self) -> None:
        """Report type arguments that nothing determines."""
        for key, args in self._types.type_args.items():
            if not self._findings.has_fatal and any(self._solver.type_metas(a) for a in args):
                ref = self._constructors[key]
                self._findings.error(
                    "type.undetermined-argument",
                    f"found nothing that determines the type arguments of {ref.name}",
                    span=ref.span,
                    hint=f"give them: {ref.name}[Tensor[4, f32]]",
                )

    def explained(self, failure: InlayError, e: Call, types: tuple[Type, ...]) -> InlayError:
        """Add to an error of a call where its operands come from, and why they are what they are."""
        args = [Var(short_name(a, i), t, a.span) for i, (a, t) in enumerate(zip(e.args, types))]
        sources = [
            self._types.vars.get(a, t) if isinstance(a, Var) else t
            for a, t in zip(e.args, types, strict=False)
        ]
        named = self._scope.named(e.callee)
        if named is not None:
            sources += named.params
        chain = [label for t in sources for label in self._solver.explain_type(t)]
        zonked = [Var(a.name, self._solver.zonk(a.type), a.span) for a in args]
        return labeled(explained(failure, zonked), tuple(chain))
