"""Lists, options and tuples at the border of the machine: Python values, flat form, slots.

The flat form is tensors and counts in the order that `bytecode/spec.py` defines. `to_flat` makes it of
arrays in the structure of their specs, `from_flat` is its inverse, and
`to_slots`, `from_slots` are the border of the reference interpreter; `runtime/src/structure.c` is that
of the C runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias, assert_never, cast

import numpy as np

from inlay.bytecode.spec import ListSpec, OptionSpec, Spec, TensorSpec, TupleSpec
from inlay.runtime.value import Adt, Tensor, Tuple, Value, input_of

Structure: TypeAlias = Any
"""An array, a list (`List`), None or a value (`Option`), or a tuple of them."""


@dataclass(slots=True)
class Flat:
    """A value in flat form."""

    tensors: list[np.ndarray] = field(default_factory=list[np.ndarray])
    counts: list[int] = field(default_factory=list[int])


def map_tensors(
    specs: Sequence[Spec],
    values: Sequence[Structure],
    function: Callable[[TensorSpec, np.ndarray], np.ndarray],
) -> list[Structure]:
    """Return values that fit their specs with another array for each."""
    return [_mapped(spec, value, function) for spec, value in zip(specs, values, strict=True)]


def _mapped(
    spec: Spec, value: Structure, function: Callable[[TensorSpec, np.ndarray], np.ndarray]
) -> Structure:
    match spec:
        case TensorSpec():
            return function(spec, value)
        case TupleSpec(fields=fields):
            return tuple(map_tensors(fields, value, function))
        case OptionSpec(element=element):
            return None if value is None else _mapped(element.spec, value, function)
        case ListSpec(element=element):
            return [_mapped(element.spec, v, function) for v in value]
        case _:
            assert_never(spec)


class Unfit(ValueError):
    """A value has not the structure of its spec, or an array is missing; the binder says which."""


def to_flat(specs: Sequence[Spec], values: Sequence[Structure]) -> Flat:
    """Return values in flat form; element types and shapes of arrays are not looked at.

    Raises:
        Unfit: a value is not what its spec is in Python.
    """
    flat = Flat()
    if len(specs) != len(values):
        raise Unfit
    _flatten(specs, values, flat)
    return flat


def _flatten(specs: Sequence[Spec], values: Sequence[Structure], flat: Flat) -> None:
    parts: list[tuple[ListSpec | OptionSpec, Structure]] = []
    for spec, value in zip(specs, values, strict=True):
        _flatten_leaves(spec, value, flat, parts)
    for part, value in parts:
        elements = value if isinstance(part, ListSpec) else [] if value is None else [value]
        if not isinstance(elements, (list, tuple)):
            raise Unfit
        items = cast("Sequence[Structure]", elements)
        flat.counts.append(len(items))
        inner = part.element.spec
        if isinstance(inner, TensorSpec):  # most often
            plain = are_plain(items)
            flat.tensors.extend(cast("Sequence[np.ndarray]", items) if plain else map(_array, items))
        else:
            for item in items:
                _flatten([inner], [item], flat)


def are_plain(items: Sequence[object]) -> bool:
    """Whether all are arrays and of no subclass: a set is made without a line of Python for each of many."""
    return set(map(type, items)) <= {np.ndarray}


def _array(value: Structure) -> np.ndarray:
    given = cast("object", value)
    if isinstance(given, np.ndarray):  # or `Handles`, which says that its integers are strings
        return value
    if isinstance(given, np.generic):
        return np.asarray(value)
    raise Unfit


def _flatten_leaves(
    spec: Spec, value: Structure, flat: Flat, parts: list[tuple[ListSpec | OptionSpec, Structure]]
) -> None:
    match spec:
        case TensorSpec():
            flat.tensors.append(_array(value))
        case TupleSpec(fields=fields):
            if not isinstance(value, tuple) or len(cast("tuple[Structure, ...]", value)) != len(fields):
                raise Unfit
            for f, v in zip(fields, cast("tuple[Structure, ...]", value), strict=True):
                _flatten_leaves(f, v, flat, parts)
        case ListSpec() | OptionSpec():
            parts.append((spec, value))
        case _:
            assert_never(spec)


def from_flat(specs: Sequence[Spec], flat: Flat) -> list[Structure]:
    """Return the values that a flat form stands for."""
    return _unflatten(specs, iter(flat.tensors), iter(flat.counts))


def _unflatten(
    specs: Sequence[Spec], tensors: Iterator[np.ndarray], counts: Iterator[int]
) -> list[Structure]:
    made = [_with_leaves(spec, tensors) for spec in specs]
    return [_with_parts(spec, m, tensors, counts) for spec, m in zip(specs, made, strict=True)]


def _with_leaves(spec: Spec, tensors: Iterator[np.ndarray]) -> Structure:
    match spec:
        case TensorSpec():
            return next(tensors)
        case TupleSpec(fields=fields):
            return tuple(_with_leaves(f, tensors) for f in fields)
        case ListSpec() | OptionSpec():
            return None
        case _:
            assert_never(spec)


def _with_parts(
    spec: Spec, made: Structure, tensors: Iterator[np.ndarray], counts: Iterator[int]
) -> Structure:
    match spec:
        case TensorSpec():
            return made
        case TupleSpec(fields=fields):
            pairs = zip(fields, made, strict=True)
            return tuple(_with_parts(f, m, tensors, counts) for f, m in pairs)
        case ListSpec(element=element) if isinstance(element.spec, TensorSpec):  # most often
            return list(islice(tensors, next(counts)))
        case ListSpec(element=element) | OptionSpec(element=element):
            inner = [_unflatten([element.spec], tensors, counts)[0] for _ in range(next(counts))]
            return inner if isinstance(spec, ListSpec) else inner[0] if inner else None
        case _:
            assert_never(spec)


def to_slots(specs: Sequence[Spec], values: Sequence[Structure]) -> list[Value]:
    """Return values that fit their specs as the reference interpreter has them."""
    return [_to_slot(spec, value) for spec, value in zip(specs, values, strict=True)]


def _to_slot(spec: Spec, value: Structure) -> Value:
    match spec:
        case TensorSpec():
            return input_of(value)
        case TupleSpec(fields=fields):
            return Tuple(tuple(to_slots(fields, value)))
        case OptionSpec(element=element):
            return Adt(0, ()) if value is None else Adt(1, (_to_slot(element.spec, value),))
        case ListSpec(element=element):
            made = Adt(0, ())
            for v in reversed(value):
                made = Adt(1, (_to_slot(element.spec, v), made))
            return made
        case _:
            assert_never(spec)


def from_slots(specs: Sequence[Spec], slots: Sequence[Value]) -> list[Structure]:
    """Return what the reference interpreter has in slots; arrays share nothing."""
    return [_from_slot(spec, slot) for spec, slot in zip(specs, slots, strict=True)]


def _from_slot(spec: Spec, slot: Value) -> Structure:
    match spec:
        case TensorSpec():
            return cast("Tensor", slot).array().copy()
        case TupleSpec(fields=fields):
            return tuple(from_slots(fields, cast("Tuple", slot).items))
        case OptionSpec(element=element):
            items = cast("Adt", slot).items
            return _from_slot(element.spec, items[0]) if items else None
        case ListSpec(element=element):
            made: list[Structure] = []
            while items := cast("Adt", slot).items:
                made.append(_from_slot(element.spec, items[0]))
                slot = items[1]
            return made
        case _:
            assert_never(spec)
