"""What names mean while types are being found, and what every room of the first walk shares.

A variable has a type as soon as it is bound, perhaps an unknown one. Where its binder says nothing of
its dims, they are *opened*: `some k. Tensor[k, f32]` becomes `Tensor[k, f32]`, and the binder keeps
the name. If its type was not known then, that is done at the first use that comes after: such a
variable is *late*.
"""

from __future__ import annotations

from inlay.analysis.inference.agenda import Agenda
from inlay.analysis.inference.solver import Infer, Reason, Solver, is_meta
from inlay.analysis.inference.table import Named, Survey, Types, has_unknown
from inlay.base.diagnostics import Collector, error
from inlay.base.span import Span
from inlay.ir.conform import Matching, conform
from inlay.ir.context import Known
from inlay.ir.dims import dim_params, free_symbols
from inlay.ir.existentials import is_open, open_exists, opened_dims
from inlay.ir.expr import Expr, GlobalVar, Var
from inlay.ir.module import Module
from inlay.ir.types import UNKNOWN, DimParam, Type, TypeVar, UnknownType


class InferenceState:
    """The state of the first walk.

    Attributes:
        module: the program.
        findings: errors so far; they come all at once.
        solver: what unknowns are.
        agenda: what waits for unknowns.
        types: the result, being filled.
        known: what is known of dims, for the smart constructors.
        globals: the functions of the module that were met.
        locals: functions that a let binds.
    """

    def __init__(self, module: Module, look: Survey) -> None:
        self.module = module
        self.findings = Collector()
        self.solver = Solver(look.type_vars)
        self.agenda = Agenda(self.solver, self.findings)
        self.types = Types(self.solver, look)
        self.known = Known(self.solver.facts)
        self.globals: dict[str, Named] = {}
        self.locals: dict[Var, Named] = {}
        self._late: dict[Var, None] = {}  # variables whose type was not known where they were bound

    def named(self, callee: Expr) -> Named | None:
        """Return the function that an expression names, if it does and its type is to be found."""
        match callee:
            case Var():
                return self.locals.get(callee)
            case GlobalVar(name=name):
                return self.globals.get(name)
            case _:
                return None

    def type_of(self, e: Var | GlobalVar) -> Type:
        """Return the type of what is not such a function: a variable, or a kernel.

        Raises:
            CompileError: `name.unknown`.
        """
        if isinstance(e, GlobalVar):
            kernel = self.module.kernels.get(e.name)
            if kernel is None:
                raise error("name.unknown", f"found @{e.name}, which the module lacks", span=e.span)
            return kernel.type
        t = self.types.vars.get(e)
        if t is None:
            raise error("name.unknown", f"found {e.name}, which is not in scope", span=e.span)
        if e in self._late:
            t = self.solver.find(t)
            if not (isinstance(t, TypeVar) and is_meta(t)):
                del self._late[e]
                t = self.types.vars[e] = self._open(e, self.solver.zonk(t))
        return t

    def _open(self, v: Var, t: Type) -> Type:
        """Name what is unknown in the type of a variable."""
        if is_open(t):
            return t
        t, dims = open_exists(t, v.name)
        self.solver.introduce(dims)
        self.types.opened[v] = (*self.types.opened.get(v, ()), *dims)
        return t

    def bind(self, v: Var, t: Type) -> None:
        """Give a variable its type, where no annotation says it or it agrees with that."""
        found = self.solver.find(t)
        if isinstance(found, TypeVar) and is_meta(found):
            self.types.vars[v] = found
            self._late[v] = None
        else:
            self.types.vars[v] = self._open(v, self.solver.zonk(found))

    def let(self, v: Var, t: Type, span: Span) -> None:
        """Bind a variable; an annotation may name what is not determined."""
        if has_unknown(v.type):
            self.bind(v, t)
            return
        solver = self.solver
        self.types.vars[v] = v.type
        new = [s for s in free_symbols(v.type) if not solver.is_introduced(s)]
        why = Reason(span, f"the annotation of {v.name}")
        t = solver.zonk(t)
        if not new:
            self.conform(v.type, t, why)
            self.bind(v, v.type)
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

    def conform(self, declared: Type, actual: Type, why: Reason) -> None:
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
