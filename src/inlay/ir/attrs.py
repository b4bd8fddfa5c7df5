"""Attribute records as text: `{axis=-1, mode="edge"}`, and back.

A record is a frozen dataclass. A field's type says how it is written: `int`, `float`, `bool`, `str`,
`None`, enumerations (by value, as a string), dtypes (by name), `Int`s without symbols, arrays, and
tuples of these; optional and union types take whichever fits. Fields that have their default are
left out.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, cast

from inlay.arith.dtype import BY_NAME, DType
from inlay.arith.expr import Int, lit
from inlay.base.diagnostics import error
from inlay.base.lexer import TokenKind, TokenStream, quote

AttrValue = Any


def attr_fields(attrs: object) -> list[tuple[str, AttrValue]]:
    """Return the fields that differ from their defaults, in order."""
    found: list[tuple[str, AttrValue]] = []
    for f in dataclasses.fields(attrs):  # type: ignore[arg-type]
        value = getattr(attrs, f.name)
        default = f.default if f.default is not dataclasses.MISSING else _made_default(f)
        if type(value) is not type(default) or value != default:
            found.append((f.name, value))
    return found


def _made_default(f: dataclasses.Field[Any]) -> AttrValue:
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else _NOTHING


_NOTHING = object()


def attrs_text(attrs: object) -> str:
    """Return the record in braces, empty where all fields have their defaults."""
    found = attr_fields(attrs)
    if not found:
        return ""
    return "{" + ", ".join(f"{name}={value_text(value)}" for name, value in found) + "}"


def value_text(value: AttrValue) -> str:
    """Return one attribute value as text."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case enum.Enum():
            return quote(str(value.value))
        case str():
            return quote(value)
        case int() | Int():
            return str(value)
        case float():
            return repr(value)
        case DType():
            return value.name
        case tuple() | list():
            return "[" + ", ".join(map(value_text, cast("Sequence[object]", value))) + "]"
        case _ if dataclasses.is_dataclass(value):
            return attrs_text(value) or "{}"
        case _:
            raise TypeError(f"attribute value {value!r} has no text form")


def parse_attrs(tokens: TokenStream, attrs_type: type, what: str) -> object:
    """Read a record, with its braces, of this dataclass.

    Raises:
        CompileError: `parse.expected`, `parse.bad-attribute`.
    """
    start = tokens.mark()
    tokens.expect("{")
    hints = _hints(attrs_type)
    given: dict[str, AttrValue] = {}
    while not tokens.accept("}"):
        span = tokens.span
        name = tokens.name("an attribute")
        if name not in hints:
            known = ", ".join(hints) or "none"
            raise error(
                "parse.bad-attribute",
                f"found attribute {name}, needed one of those of {what}: {known}",
                span=span,
            )
        tokens.expect("=")
        span = tokens.span
        value = _parse_value(tokens, hints[name])
        fitted = _fit(value, hints[name])
        if fitted is _NOTHING:
            raise error(
                "parse.bad-attribute",
                f"found {value!r} for {name} of {what}, needed {_hint_text(hints[name])}",
                span=span,
            )
        given[name] = fitted
        if not tokens.accept(","):
            tokens.expect_either(",", "}")
            break
    try:
        return attrs_type(**given)
    except TypeError:
        missing = ", ".join(n for n in hints if n not in given)
        raise error(
            "parse.bad-attribute", f"{what} needs values for {missing}", span=tokens.since(start)
        ) from None


@functools.cache
def _hints(attrs_type: type) -> dict[str, Any]:
    hints = typing.get_type_hints(attrs_type)
    return {f.name: hints[f.name] for f in dataclasses.fields(attrs_type)}


def _is_record(hint: type) -> bool:
    return dataclasses.is_dataclass(hint)


def _hint_text(hint: Any) -> str:
    if isinstance(hint, enum.EnumMeta):
        members = cast("Iterable[enum.Enum]", hint)
        return "one of " + ", ".join(quote(str(m.value)) for m in members)
    return getattr(hint, "__name__", str(cast("object", hint)))


def _parse_value(tokens: TokenStream, hint: Any) -> AttrValue:
    if tokens.kind is TokenKind.STRING:
        return tokens.string()
    if tokens.at("["):
        tokens.advance()
        return tuple(tokens.sequence(lambda: _parse_value(tokens, _element(hint)), "]"))
    if tokens.at("{"):
        records = [a for a in _alternatives(hint) if isinstance(a, type) and _is_record(a)]
        inner = records[0] if records else None
        if inner is None:
            raise tokens.failure("a value")
        return parse_attrs(tokens, inner, inner.__name__)
    if tokens.kind is TokenKind.NAME and tokens.text not in ("inf", "nan"):
        word = tokens.advance()
        words: dict[str, AttrValue] = {"true": True, "false": False, "none": None, **BY_NAME}
        return words.get(word, word)
    return tokens.number("a value")


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _element(hint: Any) -> Any:
    for alternative in _alternatives(hint):
        if typing.get_origin(alternative) in (tuple, list):
            args = [a for a in typing.get_args(alternative) if a is not Ellipsis]
            if args:
                return functools.reduce(lambda a, b: a | b, args)
    return object


def _fit(value: AttrValue, hint: Any) -> AttrValue:
    """Return the value as the type, `_NOTHING` where it is none of it."""
    for alternative in _alternatives(hint):
        fitted = _fit_one(value, alternative)
        if fitted is not _NOTHING:
            return fitted
    return _NOTHING


def _fit_one(value: AttrValue, hint: Any) -> AttrValue:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None):
        return None if value is None else _NOTHING
    if origin is tuple:
        return _fit_tuple(value, args)
    if origin is typing.Literal:
        return value if value in args else _NOTHING
    if hint is Int and type(value) is int:
        return lit(value)
    if hint is float and type(value) is int:
        return float(value)
    if isinstance(hint, type):
        if issubclass(hint, enum.Enum):
            return next((m for m in hint if str(m.value) == value), _NOTHING)
        if hint is int and isinstance(value, bool):
            return _NOTHING
        return value if isinstance(value, hint) else _NOTHING
    return _NOTHING


def _fit_tuple(value: AttrValue, args: tuple[Any, ...]) -> AttrValue:
    if not isinstance(value, tuple):
        return _NOTHING
    values = cast("tuple[AttrValue, ...]", value)
    if len(args) == 2 and args[1] is Ellipsis:
        args = (args[0],) * len(values)
    if len(args) != len(values):
        return _NOTHING
    fitted = tuple(_fit(v, a) for v, a in zip(values, args, strict=True))
    return _NOTHING if _NOTHING in fitted else fitted
