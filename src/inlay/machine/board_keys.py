"""The tables of a board's file: which keys each has, how they are read, what they must be.

The keys of a table are the fields of its record in `device.py` and `memory.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from inlay.base.byte_sizes import bytes_in
from inlay.machine.device import Arch, Coherence, Device, Engine, Link, Order, OrderKind, Queue
from inlay.machine.dot_products import KINDS
from inlay.machine.matrix_units import MATRIX_PRODUCTS
from inlay.machine.memory import Keeps, Pool, PoolKind

_MOST_ALIGNMENT, _MOST_NUMBER = 1 << 20, 1e15
_WORD = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str) or _WORD.fullmatch(value) is None:
        raise ValueError("a name of letters, digits, '_', '-' and '.', a letter first")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(x, str) for x in cast(list[Any], value)):
        raise ValueError("a list of names")
    return tuple(cast(list[str], value))


def _some_texts(value: Any) -> tuple[str, ...]:
    if not value:
        raise ValueError("a list of at least one name")
    return _texts(value)


def _positive(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("a positive integer")
    return value


def _power(value: Any) -> int:
    is_power = type(value) is int and 0 < value <= _MOST_ALIGNMENT and not value & (value - 1)
    if not is_power:
        raise ValueError(f"a power of two up to {_MOST_ALIGNMENT}")
    return value


def _size(value: Any) -> int:
    return 0 if type(value) is int and value == 0 else bytes_in(value)


def _vector(value: Any) -> int:
    if value not in (1, 2, 4, 8, 16, 32, 64, 128, 256) or isinstance(value, bool | float):
        raise ValueError("bytes of a vector register: a power of two up to 256")
    return value


def _index_bits(value: Any) -> int:
    if value not in (32, 64) or isinstance(value, float):
        raise ValueError("32 or 64")
    return value


def _dot_products(value: Any) -> tuple[str, ...]:
    found = _texts(value)
    if not set(found) <= set(KINDS):
        raise ValueError(f"a list of {', '.join(KINDS)}")
    return found


def _matrix_products(value: Any) -> tuple[str, ...]:
    found = _texts(value)
    if not set(found) <= set(MATRIX_PRODUCTS):
        raise ValueError(f"a list of {', '.join(MATRIX_PRODUCTS)}")
    return found


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004
    return value


def _number(value: Any) -> float | None:
    """Return a finite number, None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > _MOST_NUMBER:
        return None
    return None if math.isnan(value) else float(value)


def _rate(value: Any) -> float:
    found = _number(value)
    if found is None or found <= 0:
        raise ValueError("a positive number")
    return found


def _time(value: Any) -> float:
    found = _number(value)
    if found is None or found < 0:
        raise ValueError("a number of nanoseconds")
    return found


def _nanoseconds(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_NUMBER:
        raise ValueError("a number of nanoseconds, without a fraction")
    return value


def _one_of(kind: type[StrEnum]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in set(kind):
            raise ValueError(f"one of {', '.join(kind)}")
        return kind(value)

    return read


def _settings(value: Any) -> tuple[tuple[str, str], ...]:
    if type(value) is not dict:
        raise ValueError("a table of names and values")
    found = tuple((k, str(v)) for k, v in cast(dict[str, Any], value).items())
    if any(isinstance(v, dict | list) for v in cast(dict[str, Any], value).values()) or any(
        not w or any(c.isspace() for c in w) for pair in found for w in pair
    ):
        raise ValueError("names and values without spaces: they are handed on as words")
    return found


@dataclass(frozen=True, slots=True)
class Field:
    """A key of a table: how it is read, which field it fills, whether it must be there."""

    read: Callable[[Any], Any]
    needed: bool = False
    field: str = ""


_NAME = Field(_word, needed=True)
TABLES: dict[str, tuple[type, dict[str, Field]]] = {
    "arch": (
        Arch,
        {
            "name": _NAME,
            "summary": Field(_text),
            "generator": Field(_text),
            "loader": Field(_text),
            "operators": Field(_texts),
            "dtypes": Field(_texts),
            "parameters": Field(_settings),
            "detect": Field(_flag),
            "macs_per_ns": Field(_rate),
            "elements_per_ns": Field(_rate),
            "transcendentals_per_ns": Field(_rate),
            "launch_ns": Field(_time),
            "vector_bytes": Field(_vector),
            "vector_registers": Field(_positive),
            "l1_bytes": Field(_size),
            "l2_bytes": Field(_size),
            "l3_bytes": Field(_size),
            "stack_bytes": Field(_size),
            "index_bits": Field(_index_bits),
            "dot": Field(_dot_products),
            "matrix": Field(_matrix_products),
            "fma": Field(_flag),
            "hand_off_ns": Field(_nanoseconds),
        },
    ),
    "memory": (
        Pool,
        {
            "name": _NAME,
            "kind": Field(_one_of(PoolKind)),
            "alignment": Field(_power),
            "bytes": Field(bytes_in),
            "banks": Field(_positive),
            "keeps": Field(_one_of(Keeps)),
            "owner": Field(_text),
            "bytes_per_ns": Field(_rate),
            "latency_ns": Field(_time),
        },
    ),
    "device": (
        Device,
        {"name": _NAME, "arch": _NAME, "memories": Field(_some_texts, needed=True), "shares": Field(_text)},
    ),
    "engine": (
        Engine,
        {
            "name": _NAME,
            "memories": Field(_some_texts, needed=True),
            "device": Field(_text),
            "dims": Field(_positive),
            "queues": Field(_positive),
        },
    ),
    "queue": (Queue, {"name": _NAME, "device": _NAME, "depth": Field(_positive)}),
    "order": (
        Order,
        {
            "device": _NAME,
            "after": _NAME,
            "waits": _NAME,
            "kind": Field(_one_of(OrderKind), needed=True),
            "most": Field(_positive),
        },
    ),
    "link": (
        Link,
        {
            "from": Field(_text, needed=True, field="source"),
            "to": Field(_text, needed=True, field="target"),
            "engine": _NAME,
            "bytes_per_ns": Field(_rate),
            "latency_ns": Field(_time),
        },
    ),
    "coherent": (Coherence, {"memory": _NAME, "parties": Field(_some_texts, needed=True)}),
}
TOP = {"summary": Field(_text), "default": Field(_text)}
SPEED = ("macs_per_ns", "elements_per_ns", "transcendentals_per_ns", "launch_ns")
FACTS = tuple(
    (
        "vector_bytes vector_registers l1_bytes l2_bytes l3_bytes stack_bytes index_bits dot matrix fma "
        "hand_off_ns"
    ).split()
)
"""Keys of an architecture that are fields of `Target`."""
