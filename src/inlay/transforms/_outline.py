"""A group of operators as a function of its own, and the call that stands in its place.

What a group reads from outside is a parameter: tensors in the order in which they are met, then
integers for dims that no parameter's shape has by itself. `fuse_ops` makes kernels this way, and
`outline_regions` what a device runs as one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from inlay.analysis.blocks import relet
from inlay.arith.expr import Int, Sym, fresh, from_atom
from inlay.base.names import NameSupply
from inlay.ir import make
from inlay.ir.dims import free_symbols, substitute_type
from inlay.ir.existentials import open_exists
from inlay.ir.expr import Call, Const, Expr, Function, GlobalVar, Let, OpRef, Project, Var
from inlay.ir.module import Module
from inlay.ir.place import Place
from inlay.ir.types import IntType, ShapeType, TensorType, TupleType, Type
from inlay.ops.device import DEVICE_COPY
from inlay.transforms._groups import Group, is_literal
from inlay.transforms._nodes import Node

_MOST_LISTED = 64
"""Operators of a group that its name for people has."""


class Outliner:
    """Takes groups out of the functions of one module; groups equal up to names are one function.

    Attributes:
        made: the functions, by name.
    """

    def __init__(self, module: Module) -> None:
        self.made: dict[str, Function] = {}
        self._names = NameSupply([*module.functions, *module.kernels])
        self._by_key: dict[Hashable, GlobalVar] = {}

    def call(self, group: Group) -> Call:
        """Return the call of a group's function."""
        outlined = _Outlined(group)
        callee = self._by_key.get(outlined.key)
        if callee is None:
            name = self._names.fresh(_name(group))
            function = outlined.function()
            callee = GlobalVar(name, function.type, function.span)
            self._by_key[outlined.key] = callee
            self.made[name] = function
        return Call(callee, outlined.args, _result_type(group), group.results[-1].call.span, _place(group))


def function_of(group: Group) -> Function:
    """Return the function of a group."""
    return _Outlined(group).function()


def _result_type(group: Group) -> Type:
    """Return the type of what the kernel of a group returns."""
    types = [n.call.type for n in group.results]
    return types[0] if len(types) == 1 else TupleType(tuple(types))


def _place(group: Group) -> Place | None:
    """Return where a group runs and, of a lone result, in which memories that is."""
    first, *others = group.results
    place = first.call.place
    return Place(place.device) if place is not None and others else place


def bind(group: Group, call: Call, body: Expr) -> Expr:
    """Return lets of the results of a group."""
    if len(group.results) == 1:  # which is not the last node where nobody reads that
        return relet(group.results[0].let, call, body)
    places = tuple(node.call.place for node in group.results)
    together = Var("results", call.type, call.span, call.place and Place("", fields=places))
    for index, node in reversed(list(enumerate(group.results))):
        part = Project(together, index, node.call.type, node.call.span, node.place)
        body = relet(node.let, part, body)
    return Let(together, call, body, body.type, call.span, None)


def _name(group: Group) -> str:
    """Return a name that tells what a group is, or what is in it: its anchor first."""
    if group.title:
        return group.title
    words = [group.anchor.name, *(n.name for n in group.nodes if n is not group.anchor)]
    shown = [w.rpartition(".")[2] for w in words[:4]]
    return "_".join(shown) + (f"_and_{len(words) - 4}" if len(words) > 4 else "")


def _listed(names: Sequence[str]) -> str:
    """Return the operators of a group for people; of many the first and the last."""
    if len(names) > _MOST_LISTED:
        names = [
            *names[: _MOST_LISTED // 2],
            f"({len(names) - _MOST_LISTED} more)",
            *names[-_MOST_LISTED // 2 :],
        ]
    return "+".join(names)


class _Outlined:
    """The function of one group.

    Attributes:
        args: what the call passes: atoms of the block.
        key: equal for groups that are the same function.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._numbers: dict[Sym, int] = {}
        self._index = {n.let.var: i for i, n in enumerate(group.nodes)}
        self._tensors: dict[Expr, int] = {}
        self._again: dict[Expr, Expr] = {}
        arrays: dict[Hashable, Expr] = {}
        for node in group.nodes:
            for arg in node.call.args:
                if self._is_parameter(node, arg):
                    if isinstance(arg, Const):  # one array of several operations is one parameter
                        first = arrays.setdefault((id(arg.held), arg.type, arg.place), arg)
                        if first is not arg:
                            self._again[arg] = first
                            continue
                    self._tensors.setdefault(arg, len(self._tensors))
        self._ints = self._undetermined()
        ints = [make.int_const(s, group.anchor.call.span) for s in self._ints]
        self.args: tuple[Expr, ...] = (*self._tensors, *ints)
        self.key = self._make_key()

    def _is_parameter(self, node: Node, arg: Expr) -> bool:
        if isinstance(arg, Var):
            is_control = isinstance(arg.type, IntType | ShapeType)
            return arg not in self._index and not is_control
        if not isinstance(arg, Const) or not isinstance(arg.type, TensorType):
            return False
        # A loop body reads buffers; only expressions have numbers written into them. What number a
        # string is, the program says.
        return arg.type.dtype.is_host_only or node.definition.loops is not None or not is_literal(arg)

    def _undetermined(self) -> list[Sym]:
        """Return the symbols in the group that are not by themselves a dim of a parameter."""
        determined: set[Sym] = set()
        for arg in self._tensors:
            if isinstance(arg.type, TensorType):
                determined.update(d.atom for d in arg.type.shape if isinstance(d.atom, Sym))
        found: dict[Sym, None] = {}
        for arg in self._tensors:
            found.update(dict.fromkeys(free_symbols(arg.type)))
        for node in self._group.nodes:
            for e in (*node.call.args, node.call):
                found.update(dict.fromkeys(free_symbols(e.type)))
        for s in found:
            self._numbers[s] = len(self._numbers)
        return [s for s in found if s not in determined]

    # ------------------------------------------------------------------------ identity

    def _make_key(self) -> Hashable:
        """Return the structure of the group, with symbols and operands by number."""
        canonical = {s: from_atom(Sym("s", -1 - i)) for s, i in self._numbers.items()}
        operators: list[Hashable] = []
        for node in self._group.nodes:
            assert isinstance(node.call.callee, OpRef), "nodes are calls of operators"
            operands = tuple([self._operand_key(a, canonical) for a in node.call.args])
            callee = node.call.callee
            result = substitute_type(node.call.type, canonical)
            operators.append((callee.op, _attrs_key(callee.attrs), operands, result))
        parameters = tuple([substitute_type(a.type, canonical) for a in self._tensors])
        ints = tuple([self._numbers[s] for s in self._ints])
        results = tuple([self._index[n.let.var] for n in self._group.results])
        return (tuple(operators), parameters, ints, results, self._group.results[-1].place)

    def _operand_key(self, arg: Expr, canonical: Mapping[Sym, Int]) -> Hashable:
        arg = self._again.get(arg, arg)
        if arg in self._tensors:
            return ("parameter", self._tensors[arg])
        if isinstance(arg, Var) and arg in self._index:
            return ("node", self._index[arg])
        if isinstance(arg, Const) and isinstance(arg.value, np.ndarray):
            return (arg.value.dtype.str, arg.value.shape, arg.value.tobytes())
        return ("control", substitute_type(arg.type, canonical))

    # ------------------------------------------------------------------------ function

    def function(self) -> Function:
        """Return the function, with variables and symbols of its own."""
        # No shape says of these that they are sizes: they may be numbers from data.
        own = {s: fresh(s.name, signed=s in self._ints) for s in self._numbers}
        ints = {s: from_atom(f) for s, f in own.items()}
        replaced: dict[Expr, Expr] = {}
        params: list[Var] = []
        for i, arg in enumerate(self._tensors):
            name = arg.name if isinstance(arg, Var) else f"c{i}"
            param = Var(name, substitute_type(arg.type, ints), arg.span, self._port(arg))
            params.append(param)
            replaced[arg] = param
        anchor = self._group.anchor.call
        params.extend(Var(s.name, IntType(ints[s]), anchor.span) for s in self._ints)
        return make.function(
            params,
            self._body(replaced, ints),
            span=anchor.span,
            place=_place(self._group),
            primitive=_listed([n.name for n in self._group.nodes]),
        )

    def _port(self, arg: Expr) -> Place | None:
        """Return where a parameter is: a copy reads a certain memory, any other kernel all of them."""
        place, copied = arg.place, self._group.anchor.call.callee
        is_copy = isinstance(copied, OpRef) and copied.op is DEVICE_COPY
        return place if is_copy or place is None else replace(place, memories=None)

    def _body(self, replaced: dict[Expr, Expr], ints: Mapping[Sym, Int]) -> Expr:
        bound: list[tuple[Var, Call]] = []
        for node in self._group.nodes:
            call, old = node.call, node.let.var
            args = tuple([_inside(self._again.get(a, a), replaced, ints) for a in call.args])
            type = substitute_type(call.type, ints)
            value = Call(call.callee, args, type, call.span, call.place)
            var = Var(old.name, open_exists(type)[0], old.span, old.place)
            replaced[old] = var
            bound.append((var, value))
        results = [replaced[n.let.var] for n in self._group.results]
        if len(results) == 1:
            return make.lets(bound, results[0])
        together = make.tuple_(results)
        var = Var("results", together.type, together.span)
        return make.lets(bound, make.let(var, together, var))


def _inside(arg: Expr, replaced: Mapping[Expr, Expr], ints: Mapping[Sym, Int]) -> Expr:
    """Return an operand as the kernel sees it."""
    found = replaced.get(arg)
    if found is not None:
        return found
    type = substitute_type(arg.type, ints)
    match type:
        case IntType(value=Int() as value):
            return Const(value, type, arg.span)
        case ShapeType(values=values) if None not in values:
            return Const(tuple([v for v in values if v is not None]), type, arg.span)
        case _:
            return arg


def _attrs_key(attrs: object) -> Hashable:
    """Return attributes as a key; those that cannot be hashed are only equal to themselves."""
    try:
        hash(attrs)
    except TypeError:
        return id(attrs)
    return attrs
