"""What is written for a program: its functions at their occurrences, and places as they are spelled."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from inlay.ir.expr import Call, Expr, Let, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.place import Origin, Place
from inlay.ir.types import FuncType
from inlay.ir.walk import postorder
from inlay.ops.device import CopyAttrs, OnDeviceAttrs
from inlay.placement.infer.domains import Domain, Leaf, Parts, leaves
from inlay.placement.infer.instance import Instance, Regions
from inlay.placement.infer.scopes import Places
from inlay.placement.write.copies import OpenBlock, ValuePath
from inlay.placement.write.specialize import representatives

_NOWHERE = ValuePath(-1)


class Bound(NamedTuple):
    """What an atom stands for. (There is one for every variable, so it has to be cheap to make.)

    Attributes:
        expr: what to write.
        home: where it is; None for what is nowhere (constants, control values).
        value: which value, and which part of it.
        block: where it is bound; None for what is visible everywhere.
        fields: of a tuple literal, what its fields stand for.
        param: the function and the index, of a parameter.
    """

    expr: Expr
    home: Domain
    value: ValuePath = _NOWHERE
    block: OpenBlock | None = None
    fields: tuple[Bound, ...] = ()
    param: tuple[Instance, int] | None = None


@dataclass(slots=True, eq=False)
class Written:
    """A function that is written.

    Attributes:
        extra: parameters added for copies of invariant ones: index, device and atom.
        invariant: indices of parameters that every recursive call passes on.
    """

    instance: Instance
    name: str
    extra: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    invariant: frozenset[int] = frozenset()

    @property
    def type(self) -> FuncType:
        """The type with the added parameters."""
        t = self.instance.function.type
        if not self.extra:
            return t
        return replace(t, params=(*t.params, *(t.params[i] for i, _, _ in self.extra)))


class Writer:
    """The functions that are written, and what they share."""

    def __init__(self, module: Module, instances: list[Instance], places: Places, regions: Regions) -> None:
        self.module = module
        self.regions = regions
        self.places = places
        self.machine = places.machine
        self.instances = instances
        self.chosen = representatives(instances, places, regions)
        self.locals: dict[tuple[int, Var], list[Instance]] = {}
        self.globals: dict[str, list[Written]] = {}
        self.written: dict[int, Written] = {}
        self._places: dict[tuple[int, int, Origin], Place] = {}
        self._list_functions()

    def _list_functions(self) -> None:
        taken = set(self.module.functions) | set(self.module.kernels)
        for instance in self.instances:
            if self.chosen[id(instance)] is not instance or instance.function.primitive is not None:
                continue
            if isinstance(instance.name, Var):
                assert instance.parent is not None
                key = (id(self.chosen[id(instance.parent)]), instance.name)
                self.locals.setdefault(key, []).append(instance)
                name = instance.name.name
            else:
                assert isinstance(instance.name, str)
                before = self.globals.setdefault(instance.name, [])
                name, count = instance.name, len(before) + 1
                while before and name in taken:
                    name, count = f"{instance.name}_{count}", count + 1
                taken.add(name)
            made = self.written[id(instance)] = Written(instance, name)
            made.invariant = self._invariant(instance)
            if isinstance(instance.name, str):
                self.globals[instance.name].append(made)

    def _invariant(self, instance: Instance) -> frozenset[int]:
        """Return which parameters every recursive call passes on, where all mentions are calls."""
        same = [i for i in self.instances if self.chosen[id(i)] is instance]
        sites = [s for i in same for s in i.sites] if len(self.instances) < 5000 else instance.sites
        if not sites or not all(isinstance(n, Call) and index == 0 for _, n, index in sites):
            return frozenset()
        if instance.name in (self.module.entry, *self.module.entries):
            return frozenset()
        params = instance.function.params
        aliases: dict[Expr, Expr] = {
            e.var: e.value.args[0]
            for e in postorder(instance.function)
            if isinstance(e, Let) and isinstance(e.value, Call) and is_alias(e.value)
        }

        def behind(atom: Expr) -> Expr:
            while isinstance(atom, Var) and atom in aliases:
                atom = aliases[atom]
            return atom

        kept: set[int] | None = None
        for where, node, _ in sites:
            home: Instance | None = where
            while home is not None and home.function is not instance.function:
                home = home.parent
            if home is not None:
                assert isinstance(node, Call)
                here = {i for i, p in enumerate(params) if behind(node.args[i]) is p}
                kept = here if kept is None else kept & here
        return frozenset(kept or ())

    # ------------------------------------------------------------------------ places as text

    def place(self, domain: Domain, old: Place | None = None) -> Place | None:
        """Return what is written for a domain."""
        origin = Origin.PLANNED if old is None else old.origin
        match domain:
            case Leaf(atom=atom):
                device = self.places.device(atom)
                mask = self.places.mask(atom)
                key = (device, mask, origin)
                found = self._places.get(key)
                if found is None:
                    memories = None
                    if mask != self.machine.reach[device]:
                        memories = tuple(sorted(self.machine.names(mask)))
                    found = Place(self.machine.devices[device], memories, origin)
                    self._places[key] = found
                return found
            case Parts(parts=parts):
                inner = tuple(
                    self.place(p, old.fields[i] if old and i < len(old.fields) else None)
                    for i, p in enumerate(parts)
                )
                if all(p is None for p in inner):
                    return None
                return Place("", None, origin if not inner else Origin.PLANNED, inner)
            case None:
                return None

    def operation_place(self, domain: Domain) -> Place | None:
        """Return the place of an operation: its device, and the memories of a lone result."""
        if type(domain) is Leaf:
            return self.place(domain)
        atoms = list(leaves(domain))
        if not atoms:
            return None
        if len(atoms) == 1:
            return self.place(Leaf(atoms[0]))
        return Place(self.machine.devices[self.places.device(atoms[0])])


def is_alias(value: Expr) -> bool:
    """Whether a value is its operand, asked to be somewhere: nothing of it is left when written."""
    if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
        return False
    attrs, place = value.callee.attrs, value.place
    if isinstance(attrs, CopyAttrs):
        return not attrs.engine or (place is not None and place.origin is Origin.PLANNED)
    return isinstance(attrs, OnDeviceAttrs)
