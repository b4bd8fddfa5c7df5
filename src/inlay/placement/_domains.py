"""Domains: places that are not known yet, in the shape of types.

A tensor has one *atom*; a value with parts has a domain for each part (see `ir.place`): so one field
of a tuple may be elsewhere than the next, and a function has places for its parameters and its
result. Control values and constants have none. The fields of the constructors of a data type are
domains over its slots; the recursive ones are the data type's own, so the domain of a list is a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from inlay.ir.module import Adt
from inlay.ir.types import (
    AdtType,
    ExistsType,
    FuncType,
    RefType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    UnknownType,
)

Types = Mapping[str, Type]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One atom: the place of one tensor or storage."""

    atom: int


class Kind(StrEnum):
    """What has parts."""

    TUPLE = "tuple"
    FUNCTION = "function"
    DATA = "data"
    CELL = "cell"


@dataclass(slots=True, eq=False)
class Parts:
    """A domain for each part.

    Attributes:
        kind: what has the parts.
        parts: fields; parameters and then the result; slots; the content.
        fields: of a data type, domains of the fields of each constructor, over the slots.
    """

    kind: Kind
    parts: tuple[Domain, ...]
    fields: dict[str, tuple[Domain, ...]] = field(default_factory=dict[str, "tuple[Domain, ...]"])

    @property
    def params(self) -> tuple[Domain, ...]:
        """Domains of the parameters of a function."""
        return self.parts[:-1]

    @property
    def result(self) -> Domain:
        """The domain of the result of a function, of the content of a cell."""
        return self.parts[-1]


Domain = Leaf | Parts | None


@dataclass(frozen=True, slots=True)
class Shapes:
    """Makes domains.

    Attributes:
        adts: the data types of the module.
        atom: makes a new atom.
        open: the atoms made for type variables.
    """

    adts: Mapping[str, Adt]
    atom: Callable[[], int]
    open: set[int] = field(default_factory=set[int])

    def of(self, t: Type, types: Types, open_adts: tuple[str, ...] = ()) -> Domain:
        """Return a new domain for a type, with what its type variables stand for."""
        match t:
            case TensorType() | StorageType() | UnknownType():
                return Leaf(self.atom())
            case TypeVar(name=name):
                found = types.get(name)
                made = Leaf(self.atom()) if found is None else self.of(found, {}, open_adts)
                self.open.update(leaves(made))
                return made
            case ExistsType(body=body):
                return self.of(body, types, open_adts)
            case TupleType(fields=fields):
                return Parts(Kind.TUPLE, tuple(self.of(f, types, open_adts) for f in fields))
            case FuncType(params=params, result=result):
                parts = (self.of(p, types, open_adts) for p in (*params, result))
                return Parts(Kind.FUNCTION, tuple(parts))
            case RefType(content=content):
                return Parts(Kind.CELL, (self.of(content, types, open_adts),))
            case AdtType(name=name, args=args):
                return self._data(name, tuple(self.of(a, types, open_adts) for a in args), open_adts)
            case _:
                return None

    def _data(self, name: str, slots: tuple[Domain, ...], open_adts: tuple[str, ...]) -> Domain:
        adt = self.adts.get(name)
        if adt is None or name in open_adts:  # through another data type: no slot of its own
            return None
        data = Parts(Kind.DATA, slots)
        by_param = {p.name: slot for p, slot in zip(adt.params, slots, strict=True)}
        extra: list[Domain] = []

        def of_field(t: Type) -> Domain:
            match t:
                case TypeVar(name=param) if param in by_param:
                    return by_param[param]
                case AdtType(name=other) if other == name:
                    return data
                case ExistsType(body=body):
                    return of_field(body)
                case TupleType(fields=fields):
                    return Parts(Kind.TUPLE, tuple(map(of_field, fields)))
                case FuncType(params=params, result=result):
                    return Parts(Kind.FUNCTION, tuple(map(of_field, (*params, result))))
                case RefType(content=content):
                    return Parts(Kind.CELL, (of_field(content),))
                case AdtType(name=other, args=args):
                    return self._data(other, tuple(map(of_field, args)), (*open_adts, name))
                case _:
                    made = self.of(t, {}, (*open_adts, name))
                    if made is not None:
                        extra.append(made)
                    return made

        for constructor in adt.constructors:
            data.fields[constructor.name] = tuple(map(of_field, constructor.fields))
        data.parts = (*slots, *extra)
        return data


def leaves(domain: Domain) -> Iterator[int]:
    """Yield the atoms of a domain, in order; those of recursive fields are those of the slots."""
    match domain:
        case Leaf(atom=atom):
            yield atom
        case Parts(parts=parts):
            for part in parts:
                yield from leaves(part)
        case None:
            return


def part(domain: Domain, index: int) -> Domain:
    """Return the domain of a part."""
    return domain.parts[index] if isinstance(domain, Parts) else domain


def match_types(declared: Type, actual: Type, found: dict[str, Type]) -> None:
    """Find what the type variables of a declared type stand for in an actual one."""
    match declared, actual:
        case TypeVar(name=name), _:
            found.setdefault(name, actual)
        case _, ExistsType(body=body):
            match_types(declared, body, found)
        case ExistsType(body=body), _:
            match_types(body, actual, found)
        case TupleType(fields=a), TupleType(fields=b):
            _match_all(a, b, found)
        case AdtType(args=a), AdtType(args=b):
            _match_all(a, b, found)
        case FuncType(params=a, result=r), FuncType(params=b, result=s):
            _match_all((*a, r), (*b, s), found)
        case RefType(content=a), RefType(content=b):
            match_types(a, b, found)
        case _:
            pass


def _match_all(a: tuple[Type, ...], b: tuple[Type, ...], found: dict[str, Type]) -> None:
    for x, y in zip(a, b, strict=False):
        match_types(x, y, found)
