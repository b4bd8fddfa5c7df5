"""A function at one occurrence: what the planner tells apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from inlay.ir import core_ops
from inlay.ir.expr import Call, Expr, Function, Var
from inlay.ir.types import Type
from inlay.placement.infer.domains import Domain, Kind, Parts

Capability = Callable[[Call], Mapping[str, str]]
"""Gives for each device that cannot run an operation the reason, by name."""

Regions = Mapping[tuple[int, int], str]
"""Names of regions, for operations that are in one: by identity of the instance and of the call."""

CHECKS = frozenset({core_ops.CHECK_SHAPE, core_ops.CHECK_EQUAL, core_ops.CHECK_AT_LEAST})
"""Operators that give back their first operand, of which they read the description."""


@dataclass(slots=True, eq=False)
class Instance:
    """A function at one occurrence.

    Attributes:
        function: what is instantiated.
        name: of a global, or the variable of a local function; None for one without a name.
        parent: the instance in whose body a local function stands.
        types: what type variables stand for.
        params, result: the domain of the function.
        env: domains of the variables bound in the body; None for constants.
        domains: of operations, branches and calls, by identity of the node.
        children: instances of occurrences, by identity of the node and index of the operand.
        ports: memories that an operand of a kernel may be in, by node and index; else any.
        sites: who mentions it where: the instance, the node and the index of the operand.
        constants: homes of constants that an annotation puts somewhere, by identity of the annotation.
        atoms: its own, in the order of the walk.
        group: instances of the functions that call each other, by name.
        shared: whether several occurrences use it because the program is too large.
    """

    function: Function
    name: str | Var | None
    parent: Instance | None
    types: Mapping[str, Type]
    params: tuple[Domain, ...] = ()
    result: Domain = None
    env: dict[Var, Domain] = field(default_factory=dict[Var, "Domain"])
    domains: dict[int, Domain] = field(default_factory=dict[int, "Domain"])
    children: dict[tuple[int, int], Instance] = field(default_factory=dict[tuple[int, int], "Instance"])
    atoms: list[int] = field(default_factory=list[int])
    ports: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    sites: list[tuple[Instance, Expr, int]] = field(default_factory=list["tuple[Instance, Expr, int]"])
    constants: dict[int, Domain] = field(default_factory=dict[int, "Domain"])
    group: dict[str, Instance] = field(default_factory=dict[str, "Instance"])
    shared: bool = False

    @property
    def domain(self) -> Parts:
        """The domain of the function as a value."""
        return Parts(Kind.FUNCTION, (*self.params, self.result))
