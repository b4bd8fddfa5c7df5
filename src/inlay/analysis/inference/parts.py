"""Values taken apart: fields of tuples, patterns, contents of cells.

Each says something of the type of the whole where that is unknown, and gets the types of the parts
from it where it is known. A field that is asked for by number says too little: it waits.
"""

from __future__ import annotations

from inlay.analysis.inference.scope import InferenceState
from inlay.analysis.inference.solver import Reason, is_meta
from inlay.analysis.inference.words import text
from inlay.base.diagnostics import error
from inlay.base.span import Span
from inlay.ir import make
from inlay.ir.dims import substitute_type
from inlay.ir.existentials import open_exists
from inlay.ir.expr import Pattern, PatternConstructor, PatternTuple, PatternVar, PatternWildcard, Project, Var
from inlay.ir.types import UNKNOWN, AdtType, ExistsType, RefType, TupleType, Type, TypeVar, UnknownType


def bind_pattern(scope: InferenceState, pattern: Pattern, t: Type, span: Span) -> None:
    """Give the variables of a pattern their types.

    Raises:
        CompileError: `type.mismatch`, `type.arity`.
    """
    stack = [(pattern, t)]
    while stack:
        p, t = stack.pop()
        match p:
            case PatternWildcard():
                pass
            case PatternVar(var=v):
                scope.let(v, t, v.span or span)
            case PatternTuple(fields=fields):
                types = _tuple_fields(scope, t, len(fields), span)
                stack.extend(reversed(list(zip(fields, types, strict=True))))
            case PatternConstructor(fields=fields):
                types = _constructor_fields(scope, p, t, span)
                stack.extend(reversed(list(zip(fields, types, strict=True))))


def _tuple_fields(scope: InferenceState, t: Type, count: int, span: Span) -> tuple[Type, ...]:
    found = scope.solver.find(t)
    if isinstance(found, ExistsType):
        found, dims = open_exists(found)
        scope.solver.introduce(dims)
    if isinstance(found, UnknownType):
        return (UNKNOWN,) * count
    if isinstance(found, TypeVar) and is_meta(found):
        fields = tuple(scope.solver.new_type(Reason(span, "a field")) for _ in range(count))
        scope.solver.bind(found, TupleType(fields), Reason(span, "the pattern"))
        return fields
    if not isinstance(found, TupleType) or len(found.fields) != count:
        raise error(
            "type.mismatch",
            f"found {text(scope.solver.zonk(found))}, needed a tuple of {count} for the pattern",
            span=span,
        )
    return found.fields


def _constructor_fields(
    scope: InferenceState, p: PatternConstructor, t: Type, span: Span
) -> tuple[Type, ...]:
    adt = scope.module.adts[p.adt]
    args = {v.name: scope.solver.new_type(Reason(span, p.name)) for v in adt.params}
    found = scope.solver.find(t)
    if isinstance(found, UnknownType):
        return (UNKNOWN,) * len(p.fields)
    if isinstance(found, AdtType) and found.name == p.adt:
        types = dict(zip((v.name for v in adt.params), found.args, strict=True))
    else:
        needed = AdtType(p.adt, tuple(args.values()))
        scope.solver.unify(needed, found, Reason(span, f"the pattern {p.name}"))
        types = args
    constructor = make.find_constructor(adt, p.name)
    if len(constructor.fields) != len(p.fields):
        raise error(
            "type.arity",
            f"pattern {p.name}: found {len(p.fields)} fields, needed {len(constructor.fields)}",
            span=span,
        )
    return tuple(substitute_type(f, {}, types) for f in constructor.fields)


def field_of(scope: InferenceState, e: Project, t: Type) -> Type | None:
    """Return the type of a field, None where the tuple is unknown.

    Raises:
        CompileError: `type.tuple-index`, `type.mismatch`, as `make.project`.
    """
    found = scope.solver.find(t)
    if isinstance(found, TypeVar) and is_meta(found):
        return None
    if isinstance(found, TupleType) and 0 <= e.index < len(found.fields):
        return found.fields[e.index]
    return make.project(Var("t", scope.solver.zonk(found), e.value.span), e.index, span=e.span).type


def content_of(scope: InferenceState, t: Type, span: Span) -> Type:
    """Return the type of what is in a cell.

    Raises:
        CompileError: as `make.ref_read`.
    """
    found = scope.solver.find(t)
    if isinstance(found, TypeVar) and is_meta(found):
        content = scope.solver.new_type(Reason(span, "the content of a cell"))
        scope.solver.bind(found, RefType(content), Reason(span, "its use as a cell"))
        return content
    return make.ref_read(Var("r", found, span)).type
