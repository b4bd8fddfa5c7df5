"""Makes expressions, each with its type.

Every function here checks its operands and computes the type of the node, so a program that was
made is a program that is typed. Where a type rule asks for a relation of dims that cannot be proved
the operand in question is wrapped in a check (`core_ops`): the relation is then part of the data
flow, and making the node again needs no second check.

    x = make.var("x", tensor_type((n, 64), F32))
    y = make.call(RELU, (x,))
    f = make.function((x,), y)                  # fn<n>(x: Tensor[n, 64, f32]) -> Tensor[n, 64, f32]

A node over an operand of unknown type has unknown type; `analysis.infer_types` finds it.

An operand whose type is `some k. T` is opened on the way, and the type of the node is packed again:
`relu(nonzero(x))` has a `some` type without any let. Names for dims come from lets: see
`opening.open_exists`, and `builder`, which does it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.arith import expr as arith
from inlay.arith.deferred import DeferredArray
from inlay.arith.dtype import DType
from inlay.arith.expr import Int, Sym, to_int
from inlay.arith.solve import Facts, simplify
from inlay.base.diagnostics import error
from inlay.base.span import NO_SPAN, Span
from inlay.ir.checks import Rule, settle
from inlay.ir.conform import Matching, assume_dims, conform, instantiate, join
from inlay.ir.context import NOTHING_KNOWN, Context, Known
from inlay.ir.core_ops import CHECK_SHAPE, CheckAttrs
from inlay.ir.dims import dim_params, free_symbols
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
    Pattern,
    PatternConstructor,
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
from inlay.ir.module import Adt, Constructor
from inlay.ir.op import Op
from inlay.ir.place import Place
from inlay.ir.type_printer import type_text
from inlay.ir.types import (
    BOOL_CONTROL,
    UNIT,
    UNKNOWN,
    AdtType,
    BoolType,
    DimParam,
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

# ---------------------------------------------------------------------------------- leaves


def tensor_type(shape: Iterable[Int | int | Sym], dtype: DType) -> TensorType:
    """Return a tensor type, with dims given as numbers, symbols or integers."""
    return TensorType(tuple(map(to_int, shape)), dtype)


def var(name: str, type: Type, span: Span = NO_SPAN, place: Place | None = None) -> Var:
    """Return a new variable."""
    return Var(name, type, span, place)


def const(
    value: object, dtype: DType | None = None, span: Span = NO_SPAN, place: Place | None = None
) -> Const:
    """Return a tensor constant.

    Args:
        value: an array, a deferred one, or what NumPy makes one of. Python floats are f32, ints i64. The
            array is not copied if it is C-contiguous and of the right dtype, and must not be changed later.
        dtype: converts the value.
        span: where it comes from.
        place: where it lives.
    """
    if isinstance(value, DeferredArray):
        known = dtypes.from_numpy(value.dtype)
        assert dtype in (None, known), "a deferred array is not converted"
        return Const(value, TensorType(tuple(map(arith.lit, value.shape)), known), span, place)
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray", value)
    else:
        array = np.asarray(value)
        if dtype is None and array.dtype == np.float64 and not isinstance(value, np.floating):
            dtype = dtypes.F32
    if dtype is not None and array.dtype != dtype.numpy:
        array = array.astype(dtype.numpy)
    array = np.asarray(array, order="C").view()
    array.flags.writeable = False
    found = dtype or dtypes.from_numpy(array.dtype)
    return Const(array, TensorType(tuple(map(arith.lit, array.shape)), found), span, place)


def int_const(value: Int | int | Sym, span: Span = NO_SPAN) -> Const:
    """Return a control integer, which may mention dims in scope."""
    value = to_int(value)
    return Const(value, IntType(value), span)


def bool_const(value: bool, span: Span = NO_SPAN) -> Const:  # noqa: FBT001
    """Return a control boolean."""
    return Const(bool(value), BOOL_CONTROL, span)


def shape_const(values: Iterable[Int | int | Sym], span: Span = NO_SPAN) -> Const:
    """Return a shape, whose integers may mention dims in scope."""
    ints = tuple(map(to_int, values))
    return Const(ints, ShapeType(ints), span)


def global_var(name: str, type: Type, span: Span = NO_SPAN) -> GlobalVar:
    """Return a reference to a function or kernel of the module."""
    return GlobalVar(name, type, span)


def op_ref(op: Op, attrs: object = None, span: Span = NO_SPAN) -> OpRef:
    """Return an operator with attributes, the defaults if none are given."""
    return OpRef(op, op.attrs_type() if attrs is None else attrs, UNKNOWN, span)


# ---------------------------------------------------------------------------------- calls


def call(
    callee: Op | Expr,
    args: Sequence[Expr],
    attrs: object = None,
    *,
    span: Span = NO_SPAN,
    place: Place | None = None,
    known: Known = NOTHING_KNOWN,
) -> Expr:
    """Return the application of an operator, constructor, global or function value.

    Args:
        callee: an operator (with `attrs`), or an expression.
        args: operands.
        attrs: the attribute record of an operator, None for its defaults.
        span: where it comes from.
        place: where the result lives.
        known: what is known of the symbols in scope.

    Returns:
        A `Call`; its operands are wrapped in checks where a relation could not be proved. A `Let`
        around it where a check has to name a dim of an operand of `some` type.

    Raises:
        CompileError: `type.arity`, `type.dim-mismatch`, `type.mismatch`, and what the rule raises.
    """
    if isinstance(callee, Op):
        callee = op_ref(callee, attrs, span)
    args = tuple(args)
    types = tuple([a.type for a in args])
    unknown = False
    closed = False
    for t in types:
        if not isinstance(t, TensorType):
            unknown = unknown or isinstance(t, UnknownType)
            closed = closed or not is_open(t)
    rule = _op_rule(callee, args, span) if isinstance(callee, OpRef) else _function_rule(callee, span)
    if unknown or rule is None:
        return Call(callee, args, UNKNOWN, span, place)
    ctx = Context(_name(callee), span, known.facts)
    opened: tuple[DimParam, ...] = ()
    if closed:
        types, opened = _open_all(types)
        ctx.facts = assume_dims(ctx.facts, opened)
    result = rule(ctx, types)
    if not ctx.checks:
        result = _simplified(result, types, ctx.facts)
        return Call(callee, args, pack(result, opened) if opened else result, span, place)
    return _checked_call(callee, args, types, rule, ctx, place, known, opened)


def _op_rule(callee: OpRef, args: tuple[Expr, ...], span: Span) -> Rule:
    op, attrs = callee.op, callee.attrs
    least, most = op.arity
    if len(args) < least or (most is not None and len(args) > most):
        needed = str(least) if least == most else f"{least} to {'any' if most is None else most}"
        raise error("type.arity", f"{op.name}: found {len(args)} arguments, needed {needed}", span=span)
    type_rule = op.type_rule
    return lambda ctx, types: type_rule(ctx, attrs, types)


def _function_rule(callee: Expr, span: Span) -> Rule | None:
    function = callee.type
    if isinstance(function, UnknownType):
        return None
    if not isinstance(function, FuncType):
        raise error(
            "type.not-a-function",
            f"found {type_text(function)}, needed a function to call",
            span=span or callee.span,
        )
    return lambda ctx, types: instantiate(function, types, ctx)[0]


def _name(callee: Expr) -> str:
    match callee:
        case OpRef(op=op):
            return op.name
        case GlobalVar(name=name) | Var(name=name) | ConstructorRef(name=name):
            return name
        case _:
            return "function"


def _open_all(types: tuple[Type, ...]) -> tuple[tuple[Type, ...], tuple[DimParam, ...]]:
    pairs = [open_exists(t) for t in types]
    return tuple(t for t, _ in pairs), tuple(d for _, dims in pairs for d in dims)


def _simplified(result: Type, types: Sequence[Type], facts: Facts) -> Type:
    """Simplify dims that are new here and have divisions, remainders or extremes in them."""
    if not isinstance(result, TensorType) or all(map(_is_polynomial, result.shape)):
        return result
    given = {d for t in types if isinstance(t, TensorType) for d in t.shape}
    shape = tuple(d if d in given or _is_polynomial(d) else simplify(d, facts) for d in result.shape)
    return result if shape == result.shape else TensorType(shape, result.dtype)


def _is_polynomial(e: Int) -> bool:
    for monomial, _ in e.terms:
        for atom in monomial:
            if type(atom) is not Sym:
                return False
    return True


def _checked_call(
    callee: Expr,
    args: tuple[Expr, ...],
    types: tuple[Type, ...],
    rule: Rule,
    ctx: Context,
    place: Place | None,
    known: Known,
    opened: tuple[DimParam, ...],
) -> Expr:
    """Finish a call whose rule asked for relations that could not be proved."""
    span = ctx.span
    lets: list[tuple[Var, Expr]] = []
    if opened:  # checks may name the opened dims: bind all operands, to keep their order
        names = [Var(f"a{i}", t, a.span, a.place) for i, (t, a) in enumerate(zip(types, args))]
        lets = list(zip(names, args, strict=True))
        args = tuple(names)
    args, result = settle(args, rule, ctx, known)
    result = _simplified(result, [a.type for a in args], ctx.facts)
    made: Expr = Call(callee, args, result, span, place)
    for v, value in reversed(lets):
        made = let(v, value, made, span=span)
    return made


def coerce(
    value: Expr, declared: Type, why: str, *, span: Span = NO_SPAN, known: Known = NOTHING_KNOWN
) -> Expr:
    """Return the value, checked where it is not provably of a declared type.

    The type of what is returned is at least as exact as `declared`. The span is where the
    declaration stands, for errors.
    """
    if value.type is declared or value.type == declared or isinstance(value.type, UnknownType):
        return value
    ctx = Context(why, span or value.span, known.facts)

    def rule(ctx: Context, types: tuple[Type, ...]) -> Type:
        conform(declared, types[0], ctx, why)
        return types[0]

    rule(ctx, (value.type,))
    if not ctx.checks:
        return value
    if isinstance(declared, TensorType) and isinstance(value.type, TensorType):
        return assume_shape(value, declared.shape, why)
    if is_open(value.type):
        return settle((value,), rule, ctx, known)[0][0]
    opened, _ = open_exists(value.type)
    bound = Var("a", opened, value.span, value.place)
    (checked,), _ = settle((bound,), rule, ctx, known)
    return let(bound, value, checked, span=value.span)


def assume_shape(value: Expr, shape: Iterable[Int | int | Sym], why: str = "") -> Expr:
    """Return a tensor as one of this shape, checked when the program runs unless it is known."""
    ctx = Context("check_shape", value.span)
    dims = shape_const(shape, value.span)
    result = CHECK_SHAPE.type_rule(ctx, CheckAttrs(why), (value.type, dims.type))
    if result == value.type:
        return value
    return Call(op_ref(CHECK_SHAPE, CheckAttrs(why), value.span), (value, dims), result, value.span)


# ---------------------------------------------------------------------------------- binding


def let(var: Var, value: Expr, body: Expr, *, span: Span = NO_SPAN, place: Place | None = None) -> Let:
    """Return `let var = value; body`.

    The symbols that `var` opens (`var.type` is from `open_exists(value.type)`) are packed in the
    type of the result.
    """
    type = body.type
    if value.type is not var.type:
        opened = opened_dims(value.type, var.type)
        if opened:
            type = pack(type, opened)
        if isinstance(value.type, UnknownType):  # what the variable opens is not known yet
            type = UNKNOWN
    return Let(var, value, body, type, span or value.span, place)


def lets(bindings: Iterable[tuple[Var, Expr]], body: Expr) -> Expr:
    """Return nested lets, the first binding outermost."""
    for v, value in reversed(tuple(bindings)):
        body = let(v, value, body)
    return body


def function(
    params: Sequence[Var],
    body: Expr,
    result: Type | None = None,
    dims: Iterable[DimParam | Sym] | None = None,
    *,
    outer: Iterable[Sym] = (),
    param_types: Sequence[Type] | None = None,
    type_vars: tuple[TypeVar, ...] = (),
    span: Span = NO_SPAN,
    place: Place | None = None,
    primitive: str | None = None,
    known: Known = NOTHING_KNOWN,
) -> Function:
    """Return a function literal.

    Args:
        params: parameters.
        body: the body.
        result: the declared result type, at most as exact as the body's, which is the default.
        dims: the dims it is polymorphic in. By default all symbols of the parameters' types that
            are not in `outer`: right for global functions; a local function names them, or says
            which symbols belong to the scope around it.
        outer: see `dims`.
        param_types: the types callers see, where they differ from those of the parameters: a
            parameter of `some` type has a variable of the opened type.
        type_vars: the type variables it is polymorphic in.
        span: where it comes from.
        place: where the function value lives.
        primitive: see `Function`.
        known: what is known of the symbols in scope of the body.
    """
    declared = tuple([p.type for p in params]) if param_types is None else tuple(param_types)
    if dims is None:
        bound = dim_params(declared, set(outer).__contains__)
    else:
        bound = tuple(d if isinstance(d, DimParam) else DimParam(d) for d in dims)
    if result is not None:
        body = coerce(body, result, "result of the function", span=body.span or span, known=known)
    type = FuncType(declared, body.type if result is None else result, bound, type_vars)
    return Function(tuple(params), body, type, span, place, primitive)


# ---------------------------------------------------------------------------------- branches


def if_(
    condition: Expr,
    then: Expr,
    otherwise: Expr,
    *,
    span: Span = NO_SPAN,
    place: Place | None = None,
    known: Known = NOTHING_KNOWN,
) -> If:
    """Return a branch; its type is the join of both."""
    if not isinstance(condition.type, (BoolType, UnknownType)):
        raise error(
            "type.mismatch",
            f"found {type_text(condition.type)}, needed bool as the condition",
            span=condition.span or span,
            hint="use to_control" if isinstance(condition.type, TensorType) else "",
        )
    type = join(then.type, otherwise.type, Context("if", span, known.facts), "branches")
    return If(condition, then, otherwise, type, span, place)


def match(
    scrutinee: Expr,
    arms: Sequence[Arm | tuple[Pattern, Expr]],
    *,
    span: Span = NO_SPAN,
    place: Place | None = None,
    known: Known = NOTHING_KNOWN,
) -> Match:
    """Return a match; its type is the join of all arms, out of the scope of pattern variables."""
    made = tuple(a if isinstance(a, Arm) else Arm(*a) for a in arms)
    if not made:
        raise error("type.no-arms", "found a match without arms, needed at least one", span=span)
    ctx = Context("match", span, known.facts)
    outer = set(free_symbols(scrutinee.type))
    type: Type | None = None
    for arm in made:
        own = arm.body.type
        if not isinstance(own, UnknownType):
            variables = [v.type for v in pattern_vars(arm.pattern)]
            own = pack(own, dim_params(variables, outer.__contains__))
        type = own if type is None else join(type, own, ctx, "arms of match")
    assert type is not None
    return Match(scrutinee, made, type, span, place)


def pattern(adt: Adt, name: str, fields: Sequence[Pattern | Var] = ()) -> PatternConstructor:
    """Return the pattern of a constructor; variables stand for patterns that bind them."""
    c = find_constructor(adt, name)
    subpatterns = tuple(PatternVar(f) if isinstance(f, Var) else f for f in fields)
    if len(subpatterns) != len(c.fields):
        raise error("type.arity", f"pattern {name}: found {len(subpatterns)} fields, needed {len(c.fields)}")
    return PatternConstructor(adt.name, name, c.tag, subpatterns)


# ---------------------------------------------------------------------------------- data


def tuple_(fields: Sequence[Expr], *, span: Span = NO_SPAN, place: Place | None = None) -> Tuple:
    """Return a tuple."""
    types = tuple([f.type for f in fields])
    unknown = any(isinstance(t, UnknownType) for t in types)
    return Tuple(tuple(fields), UNKNOWN if unknown else TupleType(types), span, place)


def project(value: Expr, index: int, *, span: Span = NO_SPAN, place: Place | None = None) -> Project:
    """Return a field of a tuple."""
    t = value.type
    if isinstance(t, UnknownType):
        return Project(value, index, UNKNOWN, span, place)
    dims: tuple[DimParam, ...] = ()
    if isinstance(t, ExistsType):
        t, dims = open_exists(t)
    if not isinstance(t, TupleType):
        raise error("type.mismatch", f"found {type_text(t)}, needed a tuple", span=span)
    if not 0 <= index < len(t.fields):
        raise error(
            "type.tuple-index",
            f"found field {index}, needed 0 to {len(t.fields) - 1} of {type_text(t)}",
            span=span,
        )
    return Project(value, index, pack(t.fields[index], dims), span, place)


def find_constructor(adt: Adt, name: str) -> Constructor:
    """Return a constructor of a data type by name."""
    for c in adt.constructors:
        if c.name == name:
            return c
    names = ", ".join(c.name for c in adt.constructors)
    raise error("name.unknown", f"found constructor {name}, needed one of {adt.name}: {names}")


def constructor_ref(
    adt: Adt, name: str, type_args: Sequence[Type] | None = None, *, span: Span = NO_SPAN
) -> ConstructorRef:
    """Return a constructor as a function; without type arguments it is polymorphic in them."""
    c = find_constructor(adt, name)
    generic = FuncType(c.fields, AdtType(adt.name, adt.params), (), adt.params)
    if type_args is None:
        return ConstructorRef(adt.name, name, c.tag, generic, span)
    if len(type_args) != len(adt.params):
        raise error(
            "type.arity",
            f"{adt.name}: found {len(type_args)} type arguments, needed {len(adt.params)}",
            span=span,
        )
    matching = Matching(Context(name, span))
    matching.types.update((p.name, t) for p, t in zip(adt.params, type_args, strict=True))
    fields = tuple(matching.solve(f) for f in c.fields)
    type = FuncType(fields, AdtType(adt.name, tuple(type_args)))
    return ConstructorRef(adt.name, name, c.tag, type, span)


def construct(
    adt: Adt,
    name: str,
    args: Sequence[Expr],
    type_args: Sequence[Type] | None = None,
    *,
    span: Span = NO_SPAN,
    place: Place | None = None,
    known: Known = NOTHING_KNOWN,
) -> Expr:
    """Return a value of a data type.

    Args:
        adt: the data type.
        name: of the constructor.
        args: its fields.
        type_args: arguments of the data type, where the fields do not determine them (`Nil`) or
            determine a type that is too exact (a list of `some` elements).
        span: where it comes from.
        place: where it lives.
        known: what is known of the symbols in scope.
    """
    ref = constructor_ref(adt, name, type_args, span=span)
    return call(ref, args, span=span, place=place, known=known)


def ref_create(value: Expr, *, span: Span = NO_SPAN, place: Place | None = None) -> RefCreate:
    """Return a new cell."""
    t = value.type
    return RefCreate(value, UNKNOWN if isinstance(t, UnknownType) else RefType(t), span, place)


def ref_read(ref: Expr, *, span: Span = NO_SPAN, place: Place | None = None) -> RefRead:
    """Return the content of a cell."""
    return RefRead(ref, _content(ref), span, place)


def ref_write(
    ref: Expr, value: Expr, *, span: Span = NO_SPAN, place: Place | None = None, known: Known = NOTHING_KNOWN
) -> RefWrite:
    """Return the replacement of the content of a cell; its value is unit."""
    content = _content(ref)
    if not isinstance(content, UnknownType):
        value = coerce(value, content, "content of the cell", span=span, known=known)
    return RefWrite(ref, value, UNIT, span, place)


def ref_take(ref: Expr, *, span: Span = NO_SPAN, place: Place | None = None) -> RefTake:
    """Return the content of a cell, moved out of it."""
    return RefTake(ref, _content(ref), span, place)


def ref_put(
    ref: Expr, value: Expr, *, span: Span = NO_SPAN, place: Place | None = None, known: Known = NOTHING_KNOWN
) -> RefPut:
    """Return the filling of an empty cell; its value is unit."""
    written = ref_write(ref, value, span=span, known=known)
    return RefPut(written.ref, written.value, UNIT, span, place)


def _content(ref: Expr) -> Type:
    match ref.type:
        case RefType(content=content):
            return content
        case UnknownType():
            return UNKNOWN
        case other:
            raise error("type.mismatch", f"found {type_text(other)}, needed a cell", span=ref.span)
