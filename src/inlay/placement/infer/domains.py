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

from inlay.base.graph import strong_components
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


@dataclass(slots=True, eq=False)
class _Data:
    """A data type while its domain is made.

    Attributes:
        domain: of it; its further parts come last.
        extra: what it has besides its arguments, and the data types in it that contain it.
    """

    domain: Parts
    extra: list[Domain | _Data] = field(default_factory=list["Domain | _Data"])


class Shapes:
    """Makes domains.

    Attributes:
        adts: the data types of the module.
        atom: makes a new atom.
        open: the atoms made for type variables.
    """

    def __init__(self, adts: Mapping[str, Adt], atom: Callable[[], int]) -> None:
        self.adts = adts
        self.atom = atom
        self.open: set[int] = set()
        self._groups = _groups(adts)

    def of(self, t: Type, types: Types) -> Domain:
        """Return a new domain for a type, with what its type variables stand for."""
        match t:
            case TensorType() | StorageType() | UnknownType():
                return Leaf(self.atom())
            case TypeVar(name=name):
                found = types.get(name)
                made = Leaf(self.atom()) if found is None else self.of(found, {})
                self.open.update(leaves(made))
                return made
            case ExistsType(body=body):
                return self.of(body, types)
            case TupleType(fields=fields):
                return Parts(Kind.TUPLE, tuple(self.of(f, types) for f in fields))
            case FuncType(params=params, result=result):
                return Parts(Kind.FUNCTION, tuple(self.of(p, types) for p in (*params, result)))
            case RefType(content=content):
                return Parts(Kind.CELL, (self.of(content, types),))
            case AdtType(name=name, args=args):
                return self._data(name, tuple(self.of(a, types) for a in args))
            case _:
                return None

    def has_cells(self, t: Type) -> bool:
        """Whether a value is a cell, has one in it, or is a function that takes or gives one."""
        pending, seen = [t], set[str]()
        while pending:
            match pending.pop():
                case RefType():
                    return True
                case TupleType(fields=fields):
                    pending.extend(fields)
                case FuncType(params=params, result=result):
                    pending.extend((*params, result))
                case ExistsType(body=body):
                    pending.append(body)
                case AdtType(name=name, args=args):
                    pending.extend(args)
                    if name in self.adts and name not in seen:
                        seen.add(name)
                        pending.extend(f for c in self.adts[name].constructors for f in c.fields)
                case _:
                    pass
        return False

    def _data(self, name: str, slots: tuple[Domain, ...]) -> Domain:
        """Return the domain of a data type with arguments.

        Data types that contain each other are made together, each once: the tensors of all of them
        are parts of each, in an order of its own.
        """
        made: dict[str, _Data] = {}
        domain = self._constructors(name, slots, made)
        for data in made.values():
            data.domain.parts = (*data.domain.parts, *_extra(data))
        return domain

    def _constructors(self, name: str, slots: tuple[Domain, ...], made: dict[str, _Data]) -> Domain:
        if name in made or name not in self.adts:
            return made[name].domain if name in made else None
        adt, data = self.adts[name], Parts(Kind.DATA, slots)
        own = made[name] = _Data(data)
        by_param = {p.name: slot for p, slot in zip(adt.params, slots, strict=True)}

        def of_field(t: Type) -> Domain:
            match t:
                case TypeVar(name=param) if param in by_param:
                    return by_param[param]
                case ExistsType(body=body):
                    return of_field(body)
                case TupleType(fields=fields):
                    return Parts(Kind.TUPLE, tuple(map(of_field, fields)))
                case FuncType(params=params, result=result):
                    return Parts(Kind.FUNCTION, tuple(map(of_field, (*params, result))))
                case RefType(content=content):
                    return Parts(Kind.CELL, (of_field(content),))
                case AdtType(name=other, args=args):
                    inner = tuple(map(of_field, args))
                    if self._groups.get(other) == self._groups[name]:
                        found = self._constructors(other, inner, made)
                        own.extra.append(made[other])
                        return found
                    found = self._data(other, inner)
                    own.extra.extend(found.parts[len(args) :] if isinstance(found, Parts) else ())
                    return found
                case _:
                    leaf = self.of(t, {})
                    own.extra.append(leaf)
                    return leaf

        for constructor in adt.constructors:
            data.fields[constructor.name] = tuple(map(of_field, constructor.fields))
        return data


def _extra(data: _Data) -> Iterator[Domain]:
    """Yield what a data type has besides its arguments, and what those have that contain it."""
    seen = {id(data)}
    pending = [iter(data.extra)]
    while pending:
        item = next(pending[-1], _END)
        if item is _END:
            pending.pop()
        elif not isinstance(item, _Data):
            if item is not None:
                yield item
        elif id(item) not in seen:
            seen.add(id(item))
            pending.append(iter(item.extra))


_END = _Data(Parts(Kind.DATA, ()))


def _groups(adts: Mapping[str, Adt]) -> dict[str, int]:
    """Return the same number for data types that contain each other."""

    def inside(name: str) -> Iterator[str]:
        pending = [f for c in adts[name].constructors for f in reversed(c.fields)]
        while pending:
            t = pending.pop()
            match t:
                case AdtType(name=other, args=args):
                    if other in adts:
                        yield other
                    pending.extend(args)
                case TupleType(fields=fields):
                    pending.extend(fields)
                case FuncType(params=params, result=result):
                    pending.extend((*params, result))
                case ExistsType(body=body):
                    pending.append(body)
                case RefType(content=content):
                    pending.append(content)
                case _:
                    pass

    components = strong_components(list(adts), inside)
    return {name: number for number, names in enumerate(components) for name in names}


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
