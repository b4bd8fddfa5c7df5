"""Options as values: frozen dataclasses, filled from layers, each value with its provenance.

Options are declared as dataclass fields with `option`, which adds help and allowed values:

    @dataclass(frozen=True, slots=True)
    class FuseOptions:
        limit: int = option(256, help="largest number of operators in one group")

`resolve` fills one from layers in increasing order of authority (defaults, a file, the
environment, the command line, keywords) and says where each value came from. Values may be given
as text; they are read as the type of the field.

This file is the only one below the command line that reads environment variables, and it does so
only when `environment` is called: a library call depends on its arguments alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import os
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from inlay.base.diagnostics import Collector
from inlay.base.registry import did_you_mean, nearest
from inlay.base.span import Span

T = TypeVar("T")

_BOOLEANS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def option(
    default: Any,
    *,
    help: str,
    choices: Sequence[Any] = (),
    flag: str = "",
    metavar: str = "",
    least: float | None = None,
) -> Any:
    """Declare a field of an options class.

    Args:
        default: what it is where nobody says.
        help: what it does.
        choices: what it may be; anything if empty.
        flag: how a command line calls it; the name of the field if empty.
        metavar: how a command line shows its value.
        least: what a number may not be below.
    """
    metadata = {"help": help, "choices": tuple(choices), "flag": flag, "metavar": metavar, "least": least}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Layer:
    """Values from one origin.

    Attributes:
        origin: How errors and reports call it, as in "inlay.toml" or "command line".
        values: Option names (with underscores) and values, which may be text.
    """

    origin: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resolved(Generic[T]):
    """Options and, for each field, the origin of its value."""

    options: T
    provenance: Mapping[str, str]

    def describe(self) -> str:
        """Return one line for each option: name, value, origin."""
        return "\n".join(
            f"{name} = {getattr(self.options, name)!r}  ({origin})"
            for name, origin in self.provenance.items()
        )


def resolve(kind: type[T], *layers: Layer, beside: Sequence[str] = ()) -> Resolved[T]:
    """Fill an options class from layers, the last one winning.

    `beside` are names that stand beside the options and may be meant by one that does not exist.

    Raises:
        CompileError: All ``option.unknown`` and ``option.bad-value`` at once.
    """
    findings = Collector()
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    provenance = dict.fromkeys(fields, "default")
    for layer in layers:
        for name, given in layer.values.items():
            place = Span.named(layer.origin)
            if name not in fields:
                known = [*fields, *beside]
                close = nearest(name, known)
                findings.error(
                    "option.unknown",
                    f"found option '{name}', which does not exist",
                    span=place,
                    notes=() if close else (f"known: {', '.join(known)}",),
                    hint=did_you_mean(close),
                )
                continue
            try:
                value = _read(given, hints[name])
                _check_choice(value, fields[name].metadata.get("choices", ()))
                least = fields[name].metadata.get("least")
                if None not in (least, value) and not value >= least:  # NaN is refused as well
                    raise ValueError(f"at least {least}")
            except ValueError as failure:
                findings.error("option.bad-value", f"found {name}={given!r}, needed {failure}", span=place)
                continue
            values[name] = value
            provenance[name] = layer.origin
    findings.raise_if_fatal()
    return Resolved(kind(**values), types.MappingProxyType(provenance))


def _check_choice(value: Any, choices: Sequence[Any]) -> None:
    if choices and value not in choices:
        raise ValueError(f"one of {', '.join(map(str, choices))}")


def _read(given: Any, hint: Any) -> Any:
    """Return a value as the type of a field; a ValueError says what was needed."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _read_union(given, arguments)
    if origin is typing.Literal:
        _check_choice(given, arguments)
        return given
    if origin is tuple:
        if isinstance(given, str):
            items: list[Any] = [x for x in given.split(",") if x]
        elif isinstance(given, Mapping) and arguments[0] is str:
            items = [f"{name}={value}" for name, value in cast("Mapping[Any, Any]", given).items()]
        elif isinstance(given, Iterable) and not isinstance(given, Mapping):
            items = list(cast("Iterable[Any]", given))
        else:
            raise ValueError("a list of texts")
        return tuple(_read(item, arguments[0]) for item in items)
    if hint is Any or (isinstance(hint, type) and type(given) is hint):
        return given
    return _read_scalar(given, hint)


def _read_union(given: Any, arguments: tuple[Any, ...]) -> Any:
    if given is None or (isinstance(given, str) and given.lower() == "none"):
        if type(None) in arguments:
            return None
        raise ValueError("a value")
    needed: list[str] = []
    for argument in arguments:
        if argument is not type(None):
            try:
                return _read(given, argument)
            except ValueError as failure:
                needed.append(str(failure))
    raise ValueError(" or ".join(needed))


def _read_scalar(given: Any, hint: type[Any]) -> Any:
    if hint is bool:
        if isinstance(given, str) and given.lower() in _BOOLEANS:
            return _BOOLEANS[given.lower()]
        raise ValueError("true or false")
    if hint is int:
        if isinstance(given, str):
            try:
                return int(given, 0)
            except ValueError:
                pass
        raise ValueError("an integer")
    if hint is float:
        if isinstance(given, (str, int)) and not isinstance(given, bool):
            try:
                return float(given)
            except ValueError:
                pass
        raise ValueError("a number")
    if hint is str and isinstance(given, os.PathLike):
        return os.fsdecode(cast("os.PathLike[str]", given))
    if hint is Path and isinstance(given, (str, Path)):
        return Path(given)
    if issubclass(hint, enum.Enum):
        for member in hint:
            if given in (member.value, member.name.lower()):
                return member
        raise ValueError(f"one of {', '.join(str(member.value) for member in hint)}")
    raise ValueError("text" if hint is str else f"a {hint.__name__}")


def environment(prefix: str = "INLAY_", variables: Mapping[str, str] | None = None) -> Layer:
    """Return the layer of environment variables with a prefix: ``INLAY_BOARD`` is ``board``.

    Args:
        prefix: What the variables begin with.
        variables: The environment to read; that of the process if absent.
    """
    source = os.environ if variables is None else variables
    found = {
        name.removeprefix(prefix).lower(): value
        for name, value in sorted(source.items())
        if name.startswith(prefix)
    }
    return Layer("environment", found)


def add_arguments(parser: argparse.ArgumentParser, kind: type) -> None:
    """Give a command line an argument for each option; absent ones stay out of the result.

    What holds several values may be given several times.
    """
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        settings: dict[str, Any] = {
            "help": field.metadata.get("help", ""),
            "default": argparse.SUPPRESS,
            "dest": field.name,
        }
        if hints[field.name] is bool:
            settings["action"] = argparse.BooleanOptionalAction
        else:
            settings["metavar"] = field.metadata.get("metavar") or field.name.upper()
            if typing.get_origin(hints[field.name]) is tuple:
                settings["action"] = "append"
        flag = field.metadata.get("flag") or field.name.replace("_", "-")
        parser.add_argument(f"--{flag}", **settings)


def arguments_layer(arguments: argparse.Namespace, kind: type) -> Layer:
    """Return the layer of what a command line gave for an options class."""
    names = [f.name for f in dataclasses.fields(kind)]
    given = vars(arguments)
    return Layer("command line", {name: given[name] for name in names if name in given})
