"""The operations of a program in the order in which it runs them, how often, and which run as one.

A *unit* is what one device runs as one kernel: operators that code generation would fuse if they were
on one device, as far as the same devices can run them. It costs one launch, and only what goes in and
out of it is moved. Units are convex, each has its place where its last operation stands, and in that
order every unit comes behind what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from inlay.analysis.blocks import nested
from inlay.ir.expr import Call, Expr, If, Match, Var
from inlay.ir.module import Module
from inlay.ir.walk import spine
from inlay.placement.infer.domains import leaves
from inlay.placement.infer.graph import Graph
from inlay.placement.infer.instance import Instance

GroupSource = Callable[[Module], Mapping[int, int]]
"""Gives for calls, by identity, the number of the group that would be one kernel on one device."""


@dataclass(slots=True, eq=False)
class ControlNode:
    """Where operations stand: a function body at an occurrence, or one arm of a branch.

    Attributes:
        outer: the block around it, or of the call; None for what nobody calls.
        body_of: the instance whose body it is; None for an arm.
        arms: of an arm, all arms of the branch.
        repeats: whether the function calls itself; of an arm, whether that happens in it.
    """

    outer: ControlNode | None
    body_of: Instance | None = None
    arms: list[ControlNode] = field(default_factory=list["ControlNode"])
    repeats: bool = False


def often(block: ControlNode, iterations: Callable[[Instance], float], known: dict[int, float]) -> float:
    """Return how often a block is thought to run.

    A function that calls itself has its iterations. Of a branch one arm runs, each as often as the
    others; but where one of them goes round a loop, that one in every iteration, the others at the end.

    Args:
        block: where it stands.
        iterations: how often an instance that calls itself runs each time.
        known: of blocks, by identity; it grows.
    """
    chain: list[ControlNode] = []
    here: ControlNode | None = block
    while here is not None and id(here) not in known:
        chain.append(here)
        here = here.outer
    for inner in reversed(chain):
        outer = 1.0 if inner.outer is None else known[id(inner.outer)]
        known[id(inner)] = outer * _share(inner, iterations)
    return known[id(block)]


def _share(block: ControlNode, iterations: Callable[[Instance], float]) -> float:
    if block.body_of is not None:
        return iterations(block.body_of) if block.repeats else 1.0
    if block.repeats:
        return 1.0
    if not any(arm.repeats for arm in block.arms):
        return 1.0 / len(block.arms)
    home = block.outer
    while home is not None and not (home.body_of is not None and home.repeats):
        home = home.outer
    assert home is not None, "what repeats is in a function that does"
    assert home.body_of is not None, "what repeats is in a function that does"
    return 1.0 / max(1.0, iterations(home.body_of))


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A call of an operator in an instance of a function.

    Attributes:
        call: the operation.
        var: what its result is called; None for the result of a block.
        instance: of which function.
        atom: of its result.
        name: of the operator.
        block: where it stands.
    """

    call: Call
    var: Var | None
    instance: Instance
    atom: int
    name: str
    block: ControlNode


def operations_of(graph: Graph, instances: Sequence[Instance]) -> list[Operation]:
    """Return the operations of all instances in the order in which the program runs them."""
    found: list[Operation] = []
    done: set[int] = set()
    # Still to visit, the next one last.
    pending: list[tuple[Var | None, Expr, Instance, ControlNode]] = []

    def enter(instance: Instance, outer: ControlNode | None) -> None:
        if id(instance) in done:
            _repeat(instance, outer)
        elif instance.function.primitive is None:
            done.add(id(instance))
            push(instance.function.body, instance, ControlNode(outer, instance))

    def push(root: Expr, instance: Instance, block: ControlNode) -> None:
        lets, tail = spine(root)
        pending.append((None, tail, instance, block))
        pending.extend((x.var, x.value, instance, block) for x in reversed(lets))

    for root in instances:
        if id(root) not in done:
            enter(root, None)
        while pending:
            var, value, instance, block = pending.pop()
            if not isinstance(value, Call):
                if isinstance(value, If | Match):
                    roots, arms = nested(value), list[ControlNode]()
                    arms.extend(ControlNode(block, arms=arms) for _ in roots)
                    for arm, body in zip(reversed(arms), reversed(roots), strict=True):
                        push(body, instance, arm)
                continue
            atoms = list(leaves(instance.domains.get(id(value))))
            if atoms and atoms[0] in graph.supports:
                name = graph.supports[atoms[0]].name
                found.append(Operation(value, var, instance, atoms[0], name, block))
            for index in range(len(value.args), -1, -1):  # the callee is written out first
                child = instance.children.get((id(value), index))
                if child is not None:
                    enter(child, block)
    return found


def _repeat(instance: Instance, block: ControlNode | None) -> None:
    """Note a call of an instance inside itself, on the way from its body to the call."""
    passed: list[ControlNode] = []
    while block is not None:
        passed.append(block)
        if block.body_of is instance:
            for b in passed:
                b.repeats = b.repeats or b.body_of in (None, instance)
            return
        block = block.outer


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
