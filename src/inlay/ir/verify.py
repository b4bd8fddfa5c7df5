"""Is a module well formed? All findings, not the first.

Checked for every function: each variable is bound once and used where it is visible, each dim is
bound where it is mentioned; every node has a type, and no type is refuted by those of its operands;
matches cover every value; constants are what their types say; globals, data types and constructors
exist and agree with their uses; places fit the values they are on.

A relation of dims that is merely not proved is no finding: passes know facts that the verifier does
not. What it reports is wrong for every input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from inlay.arith.expr import Int, Sym, symbols
from inlay.base.diagnostics import Collector, CompileError, Diagnostic
from inlay.base.span import Span
from inlay.ir.conform import conform, instantiate
from inlay.ir.context import Context
from inlay.ir.dims import free_symbols, same_type, substitute_type
from inlay.ir.entry_state import check_states
from inlay.ir.exhaustive import missing_pattern
from inlay.ir.existentials import is_open, open_exists, opened_dims, pack
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
from inlay.ir.module import Adt, Module
from inlay.ir.positions import Position, Positions
from inlay.ir.type_printer import type_text
from inlay.ir.types import (
    UNIT,
    AdtType,
    BoolType,
    ExistsType,
    FuncType,
    IntType,
    RefType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    UnknownType,
)
from inlay.ir.walk import LEAVES, bound_here


def verify(module: Module) -> tuple[Diagnostic, ...]:
    """Return what is wrong with a module, nothing if it is well formed.

    Cost: linear; about ten microseconds a node.
    """
    findings = Collector()
    _verify_data_types(module, findings)
    _verify_entries(module, findings)
    bound: set[Var] = set()
    for name, function in module.functions.items():
        _FunctionVerifier(module, name, function, findings, bound).run()
    return findings.diagnostics


def check(module: Module) -> None:
    """Raise what `verify` finds.

    Raises:
        CompileError: `ir.*` and `type.*`.
    """
    found = verify(module)
    if found:
        raise CompileError(found)


def _verify_data_types(module: Module, findings: Collector) -> None:
    for name, adt in module.adts.items():
        if adt.name != name:
            findings.error("ir.data-type", f"data type {adt.name} is in the module as {name}")
        for tag, c in enumerate(adt.constructors):
            if c.tag != tag:
                findings.error("ir.data-type", f"constructor {c.name} of {name} has tag {c.tag}")
            for t in c.fields:
                _verify_type_names(module, t, Span.named(f"data {name}"), findings)


def _verify_type_names(module: Module, t: Type, span: Span, findings: Collector) -> None:
    match t:
        case AdtType(name=name, args=args):
            adt = module.adts.get(name)
            if adt is None:
                findings.error("ir.data-type", f"found no data type {name}", span=span)
            elif len(adt.params) != len(args):
                findings.error(
                    "ir.data-type",
                    f"{name}: found {len(args)} type arguments, needed {len(adt.params)}",
                    span=span,
                )
            inner: Iterable[Type] = args
        case TupleType(fields=fields):
            inner = fields
        case FuncType(params=params, result=result):
            inner = (*params, result)
        case RefType(content=content):
            inner = (content,)
        case ExistsType(body=body):
            inner = (body,)
        case _:
            return
    for x in inner:
        _verify_type_names(module, x, span, findings)


def _verify_entries(module: Module, findings: Collector) -> None:
    if module.functions and module.entry not in module.functions:
        findings.error("ir.entry", f"the entry {module.entry} is no function of the module")
    for name, entry in module.entries.items():
        function = module.functions.get(name)
        if function is None:
            findings.error("ir.entry", f"the entry {name} is no function of the module")
            continue
        result = function.type.result
        result = result.body if isinstance(result, ExistsType) else result
        outputs = len(result.fields) if isinstance(result, TupleType) else 1
        single = len(entry.outputs) == 1
        if len(entry.inputs) != len(function.params) or (len(entry.outputs) != outputs and not single):
            findings.error(
                "ir.entry",
                f"entry {name} names {len(entry.inputs)} inputs and {len(entry.outputs)} outputs "
                f"of {len(function.params)} and {outputs}",
                span=function.span,
            )
            continue
    check_states(module, findings)


class _FunctionVerifier:
    def __init__(
        self, module: Module, name: str, function: Function, findings: Collector, bound: set[Var]
    ) -> None:
        self.module = module
        self.name = name
        self.function = function
        self.findings = findings
        self.bound = bound
        self.positions = Positions(function)
        self.syms: dict[Sym, list[Position]] = {}
        self._type_syms: dict[Type, tuple[Sym, ...]] = {}

    def error(self, id: str, message: str, e: Expr | None = None) -> None:
        span = e.span if e is not None and e.span else self.function.span
        self.findings.error(id, message, span=span or Span.named(f"function {self.name}"), hint="")

    def run(self) -> None:
        for e in self.positions.order:
            self._bind(e)
        for e in self.positions.order:
            self._scope(e)
            try:
                self._node(e)
            except CompileError as failure:
                self.findings.absorb(failure)

    # ------------------------------------------------------------------ scopes

    def _bind(self, e: Expr) -> None:
        for v in bound_here(e):
            if v in self.bound:
                self.error("ir.bound-twice", f"variable {v.name} is bound more than once", e)
            self.bound.add(v)
        binders = self.positions.binders
        match e:
            case Let(var=v, value=value):
                self._bind_syms(opened_dims(value.type, v.type), binders[v])
            case Function(params=params, type=t):
                self._bind_syms(t.dims, self.positions.bodies[id(e)])
                if len(params) != len(t.params):
                    self.error("ir.type", f"found {len(params)} parameters of {type_text(t)}", e)
                    return
                for p, declared in zip(params, t.params, strict=True):
                    self._bind_syms(opened_dims(declared, p.type), binders[p])
            case Match(scrutinee=scrutinee, arms=arms):
                outer = set(free_symbols(scrutinee.type))
                for arm in arms:
                    for v in pattern_vars(arm.pattern):
                        for s in free_symbols(v.type):
                            if s not in outer:
                                self.syms.setdefault(s, []).append(binders[v])
            case _:
                pass

    def _bind_syms(self, dims: Iterable[object], at: Position) -> None:
        for d in dims:
            self.syms.setdefault(d.sym, []).append(at)  # type: ignore[attr-defined]

    def _scope(self, e: Expr) -> None:
        """Operands and dims must be visible where the node is."""
        here = self.positions.of[id(e)]
        if type(e) in LEAVES:
            if not isinstance(e, (OpRef, GlobalVar, ConstructorRef)):
                self._leaf_scope(e, here)
            return
        self._type_scope(e.type, here, e)
        for v in bound_here(e):
            at = self.positions.binders.get(v, here)
            self._type_scope(v.type, at, e)

    def _leaf_scope(self, e: Expr, here: Position) -> None:
        match e:
            case Var():
                since = self.positions.binders.get(e)
                if since is None:
                    self.error("ir.unbound-variable", f"variable {e.name} is not bound", e)
                elif not self.positions.is_visible(since, here):
                    self.error("ir.unbound-variable", f"variable {e.name} is used where it is not visible", e)
            case Const(held=Int() as value):
                self._syms_visible(symbols(value), here, e)
            case Const(held=tuple() as values):
                for x in values:
                    self._syms_visible(symbols(x), here, e)
            case _:
                pass

    def _type_scope(self, t: Type, here: Position, e: Expr) -> None:
        syms = self._type_syms.get(t)
        if syms is None:
            syms = self._type_syms[t] = free_symbols(t)
            _verify_type_names(self.module, t, e.span, self.findings)
        if syms:
            self._syms_visible(syms, here, e)

    def _syms_visible(self, syms: Sequence[Sym], here: Position, e: Expr) -> None:
        for s in syms:
            places = self.syms.get(s, ())
            if not any(self.positions.is_visible(p, here) for p in places):
                word = "is not visible here" if places else "is not bound"
                self.error("ir.unbound-dim", f"dim {s} {word} (in {_describe(e)})", e)

    # ------------------------------------------------------------------ types

    def _node(self, e: Expr) -> None:
        if isinstance(e, OpRef):
            if not isinstance(e.attrs, e.op.attrs_type):
                self.error("ir.type", f"{e.op.name} has attributes {e.attrs!r}", e)
            return
        if isinstance(e.type, UnknownType) or (
            isinstance(e, Function) and isinstance(e.type.result, UnknownType)
        ):
            self.error("ir.unknown-type", f"found no type of {_describe(e)}", e)
            return
        self._place(e)
        ctx = Context(_describe(e), e.span)
        match e:
            case Const():
                self._constant(e)
            case GlobalVar():
                self._global(e)
            case ConstructorRef():
                self._constructor(e)
            case Call():
                self._call(e, ctx)
            case Function():
                self._function(e, ctx)
            case Let(var=v, value=value, body=body):
                self._fits(pack(v.type, opened_dims(value.type, v.type)), value.type, ctx, v.name)
                self._fits(e.type, pack(body.type, opened_dims(value.type, v.type)), ctx, "body")
            case If(condition=condition, then=then, otherwise=otherwise):
                self._kind(condition, BoolType, "condition")
                self._fits(e.type, then.type, ctx, "branch")
                self._fits(e.type, otherwise.type, ctx, "branch")
            case Match():
                self._match(e, ctx)
            case Tuple(fields=fields):
                self._fits(e.type, TupleType(tuple(f.type for f in fields)), ctx, "tuple")
            case Project(value=value, index=index):
                t, _ = open_exists(value.type)
                if not isinstance(t, TupleType) or not 0 <= index < len(t.fields):
                    self.error("ir.type", f"found field {index} of {type_text(value.type)}", e)
            case RefCreate(value=value):
                self._fits(e.type, RefType(value.type), ctx, "cell")
            case RefRead(ref=ref) | RefTake(ref=ref):
                if self._kind(ref, RefType, "operand"):
                    self._fits(e.type, ref.type.content, ctx, "content")  # type: ignore[union-attr]
            case RefWrite(ref=ref, value=value) | RefPut(ref=ref, value=value):
                if self._kind(ref, RefType, "operand"):
                    self._fits(ref.type.content, value.type, ctx, "content")  # type: ignore[union-attr]
                self._fits(e.type, UNIT, ctx, "write")
            case _:
                pass

    def _fits(self, declared: Type, actual: Type, ctx: Context, why: str) -> None:
        """Report where a value of type `actual` can never stand for `declared`."""
        if declared is not actual and not isinstance(actual, UnknownType):
            conform(declared, actual, ctx, why)

    def _kind(self, e: Expr, kind: type[Type], what: str) -> bool:
        if isinstance(e.type, (kind, UnknownType)):
            return isinstance(e.type, kind)
        self.error("ir.type", f"found {type_text(e.type)} as the {what}", e)
        return False

    def _call(self, e: Call, ctx: Context) -> None:
        types = tuple(a.type for a in e.args)
        if any(isinstance(t, UnknownType) for t in types):
            return
        if not all(map(is_open, types)):
            types = tuple(open_exists(t)[0] for t in types)
        callee = e.callee
        if isinstance(callee, OpRef):
            least, most = callee.op.arity
            if len(types) < least or (most is not None and len(types) > most):
                self.error("ir.type", f"{callee.op.name} has {len(types)} arguments", e)
                return
            result = callee.op.type_rule(ctx, callee.attrs, types)
        elif isinstance(callee.type, FuncType):
            result, _ = instantiate(callee.type, types, ctx)
        else:
            if not isinstance(callee.type, UnknownType):
                self.error("ir.type", f"called a value of type {type_text(callee.type)}", e)
            return
        self._fits(e.type, result, ctx, "result")

    def _function(self, e: Function, ctx: Context) -> None:
        self._fits(e.type.result, e.body.type, ctx, "result")
        for p, declared in zip(e.params, e.type.params, strict=True):
            if p.type != declared:
                self._fits(pack(p.type, opened_dims(declared, p.type)), declared, ctx, p.name)

    def _match(self, e: Match, ctx: Context) -> None:
        outer = set(free_symbols(e.scrutinee.type))
        for arm in e.arms:
            self._pattern(arm.pattern, e.scrutinee.type, e)
            if not isinstance(arm.body.type, UnknownType) and outer.issuperset(free_symbols(arm.body.type)):
                self._fits(e.type, arm.body.type, ctx, "arm")
        missing = missing_pattern([a.pattern for a in e.arms], e.scrutinee.type, self.module.adts)
        if missing is not None:
            self.error("ir.match-not-exhaustive", f"no arm of the match fits {missing}", e)

    def _pattern(self, p: Pattern, t: Type, e: Match) -> None:
        match p:
            case PatternVar(var=v):
                opened = pack(v.type, opened_dims(t, v.type))
                self._fits(opened, t, Context(v.name, e.span), "pattern")
            case PatternConstructor(adt=adt, name=name, tag=tag, fields=fields):
                types = self._fields(adt, name, tag, t, e)
                if types is not None and len(types) == len(fields):
                    for f, x in zip(fields, types, strict=True):
                        self._pattern(f, x, e)
                elif types is not None:
                    self.error("ir.type", f"pattern {name} has {len(fields)} fields", e)
            case PatternTuple(fields=fields):
                if not isinstance(t, TupleType) or len(t.fields) != len(fields):
                    self.error("ir.type", f"found a tuple pattern for {type_text(t)}", e)
                    return
                for f, x in zip(fields, t.fields, strict=True):
                    self._pattern(f, x, e)
            case _:
                pass

    def _fields(self, adt: str, name: str, tag: int, t: Type, e: Match) -> tuple[Type, ...] | None:
        found = self.module.adts.get(adt)
        if found is None or not isinstance(t, AdtType) or t.name != adt:
            self.error("ir.type", f"found pattern {name} of {adt} for {type_text(t)}", e)
            return None
        return self._constructor_fields(found, name, tag, t.args, e)

    def _constructor_fields(
        self, adt: Adt, name: str, tag: int, args: tuple[Type, ...], e: Expr
    ) -> tuple[Type, ...] | None:
        if tag >= len(adt.constructors) or adt.constructors[tag].name != name:
            self.error("ir.data-type", f"{adt.name} has no constructor {name} with tag {tag}", e)
            return None
        types = {p.name: a for p, a in zip(adt.params, args, strict=False)}
        return tuple(substitute_type(f, {}, types) for f in adt.constructors[tag].fields)

    # ------------------------------------------------------------------ leaves

    def _constant(self, e: Const) -> None:
        match e.value, e.type:
            case np.ndarray() as array, TensorType(shape=shape, dtype=dtype):
                dims = tuple(d.value for d in shape)
                if array.shape != dims or (dtype.bits and array.dtype != dtype.numpy):
                    self.error(
                        "ir.constant",
                        f"found an array of shape {array.shape} and dtype {array.dtype} in a "
                        f"constant of type {type_text(e.type)}",
                        e,
                    )
                elif array.flags.writeable:
                    self.error("ir.constant", "found a constant that may be written", e)
            case bool(), BoolType():
                pass
            case Int() as value, IntType(value=known) if known in (None, value):
                pass
            case tuple() as values, ShapeType(values=known) if len(values) == len(known):
                pass
            case value, t:
                self.error("ir.constant", f"found {value!r} in a constant of {type_text(t)}", e)

    def _global(self, e: GlobalVar) -> None:
        found = self.module.functions.get(e.name) or self.module.kernels.get(e.name)
        if found is None:
            self.error("ir.unknown-global", f"the module has no function or kernel {e.name}", e)
        elif not same_type(found.type, e.type):
            self.error(
                "ir.type", f"@{e.name} is used as {type_text(e.type)} and is {type_text(found.type)}", e
            )

    def _constructor(self, e: ConstructorRef) -> None:
        adt = self.module.adts.get(e.adt)
        if adt is None:
            self.error("ir.data-type", f"found no data type {e.adt}", e)
            return
        t = e.type
        if not isinstance(t, FuncType) or not isinstance(t.result, AdtType):
            self.error("ir.type", f"constructor {e.name} has type {type_text(t)}", e)
            return
        fields = self._constructor_fields(adt, e.name, e.tag, t.result.args, e)
        if fields is not None and not same_type(TupleType(fields), TupleType(t.params)):
            self.error("ir.type", f"constructor {e.name} has type {type_text(t)}", e)

    def _place(self, e: Expr) -> None:
        place = e.place
        if place is None or not place.fields:
            return
        if isinstance(e, Function):  # what is written there is the place of its result
            t, _ = open_exists(e.type.result)
        else:
            t, _ = open_exists(e.type)
        if not _fits(len(place.fields), t):
            self.error("ir.place", f"found {len(place.fields)} places on {type_text(t)}", e)


def _fits(count: int, t: Type) -> bool:
    """Whether a value of a type has so many parts with places."""
    match t:
        case TupleType(fields=fields):
            return count == len(fields)
        case FuncType(params=params):
            return count == len(params) + 1
        case RefType():
            return count == 1
        case AdtType(args=args):
            return count >= len(args)
        case TypeVar():
            return True
        case _:
            return False


def _describe(e: Expr) -> str:
    match e:
        case Call(callee=OpRef(op=op)):
            return op.name
        case Call(callee=GlobalVar(name=name) | Var(name=name) | ConstructorRef(name=name)):
            return f"call of {name}"
        case Var(name=name) | GlobalVar(name=name) | ConstructorRef(name=name):
            return name
        case Let(var=v):
            return f"let {v.name}"
        case _:
            return type(e).__name__.lower()
