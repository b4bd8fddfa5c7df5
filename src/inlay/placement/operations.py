"""The operations of a program in the order in which it runs them, and which of them run as one.

A *unit* is what one device runs as one kernel: operators that code generation would fuse if they were
on one device, as far as the same devices can run them. It costs one launch, and only what goes in and
out of it is moved. Units are convex, each has its place where its last operation stands, and in that
order every unit comes behind what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from inlay.analysis.blocks import nested
from inlay.ir.expr import Call, Expr, If, Match, Var
from inlay.ir.module import Module
from inlay.ir.walk import spine
from inlay.placement._domains import leaves
from inlay.placement._graph import Graph
from inlay.placement._instance import Instance

GroupSource = Callable[[Module], Mapping[int, int]]
"""Gives for calls, by identity, the number of the group that would be one kernel on one device."""


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A call of an operator in an instance of a function.

    Attributes:
        call: the operation.
        var: what its result is called; None for the result of a block.
        instance: of which function.
        atom: of its result.
        name: of the operator.
    """

    call: Call
    var: Var | None
    instance: Instance
    atom: int
    name: str


def operations_of(graph: Graph, instances: Sequence[Instance]) -> list[Operation]:
    """Return the operations of all instances in the order in which the program runs them."""
    found: list[Operation] = []
    done: set[int] = set()
    pending: list[tuple[Var | None, Expr, Instance]] = []  # values still to visit, the next one last

    def enter(instance: Instance) -> None:
        if id(instance) not in done and instance.function.primitive is None:
            done.add(id(instance))
            push((instance.function.body,), instance)

    def push(blocks: Sequence[Expr], instance: Instance) -> None:
        values: list[tuple[Var | None, Expr, Instance]] = []
        for root in blocks:
            lets, tail = spine(root)
            values.extend((x.var, x.value, instance) for x in lets)
            values.append((None, tail, instance))
        pending.extend(reversed(values))

    for root in instances:
        enter(root)
        while pending:
            var, value, instance = pending.pop()
            if not isinstance(value, Call):
                if isinstance(value, If | Match):
                    push(nested(value), instance)
                continue
            atoms = list(leaves(instance.domains.get(id(value))))
            if atoms and atoms[0] in graph.operations:
                name = graph.operations[atoms[0]].name
                found.append(Operation(value, var, instance, atoms[0], name))
            for index in range(len(value.args), -1, -1):  # the callee is written out first
                child = instance.children.get((id(value), index))
                if child is not None:
                    enter(child)
    return found


def units_of(
    operations: Sequence[Operation], groups: Mapping[int, int], able: Sequence[Hashable]
) -> list[tuple[int, ...]]:
    """Return the operations in units, as indices, in the order of their last operations.

    Args:
        operations: in program order.
        groups: what would be one kernel, by identity of the call.
        able: for each operation on which devices it may be: a unit is a run of a group in which that
            does not change. A run of a convex set is convex.
    """
    runs: dict[Hashable, list[list[int]]] = {}
    for index, o in enumerate(operations):
        group = groups.get(id(o.call))
        key = ("alone", index) if group is None else (id(o.instance), group)
        known = runs.setdefault(key, [])
        if known and able[known[-1][-1]] == able[index]:
            known[-1].append(index)
        else:
            known.append([index])
    return sorted((tuple(run) for found in runs.values() for run in found), key=lambda u: u[-1])
