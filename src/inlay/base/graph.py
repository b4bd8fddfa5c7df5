"""Algorithms over a successor function: order, components, dominators.

A graph is a collection of nodes and a function from a node to its successors. Nothing here
recurses, so a chain of 100,000 nodes is fine, and every result depends only on the order of the
nodes and of their successors, never on hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
Successors = Callable[[T], Iterable[T]]


class CycleError(ValueError):
    """A topological order was asked of a graph that has none.

    Attributes:
        cycle: The nodes of one cycle, each followed by a successor, the last by the first.
    """

    def __init__(self, cycle: Sequence[object]) -> None:
        super().__init__("cycle: " + " -> ".join(str(node) for node in [*cycle, cycle[0]]))
        self.cycle = tuple(cycle)


def postorder(roots: Iterable[T], successors: Successors[T]) -> list[T]:
    """Return every node reachable from the roots, each after what it reaches first.

    On an acyclic graph each node comes after all its successors. Cost: O(nodes + edges).
    """
    order: list[T] = []
    seen: set[T] = set()
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack: list[tuple[T, Iterator[T]]] = [(root, iter(successors(root)))]
        while stack:
            node, rest = stack[-1]
            for child in rest:
                if child not in seen:
                    seen.add(child)
                    stack.append((child, iter(successors(child))))
                    break
            else:
                stack.pop()
                order.append(node)
    return order


def topological_order(nodes: Iterable[T], successors: Successors[T]) -> list[T]:
    """Return the reachable nodes, each before all its successors.

    Ties are broken by the given order: of two nodes that are ready, the one met first comes first.

    Raises:
        CycleError: With the nodes of one cycle.
    """
    order = postorder(nodes, successors)
    order.reverse()
    position = {node: index for index, node in enumerate(order)}
    for node in order:
        for child in successors(node):
            if position[child] <= position[node]:
                raise CycleError(_cycle_through(child, node, successors))
    return order


def _cycle_through(start: T, end: T, successors: Successors[T]) -> list[T]:
    """Return a shortest path from ``start`` to ``end``, which an edge back makes a cycle."""
    before: dict[T, T | None] = {start: None}
    queue = [start]
    for node in queue:
        if node == end:
            break
        for child in successors(node):
            if child not in before:
                before[child] = node
                queue.append(child)
    path: list[T] = []
    step: T | None = end
    while step is not None:
        path.append(step)
        step = before[step]
    path.reverse()
    return path


def strong_components(nodes: Iterable[T], successors: Successors[T]) -> list[list[T]]:
    """Return the strongly connected components, each before those that reach it.

    That is the order in which mutually recursive functions are to be analyzed: callees first.
    Cost: O(nodes + edges). Source: Tarjan, "Depth-first search and linear graph algorithms", 1972,
    with an explicit stack.
    """
    index: dict[T, int] = {}
    low: dict[T, int] = {}
    open_nodes: dict[T, None] = {}
    components: list[list[T]] = []
    work: list[tuple[T, Iterator[T]]] = []

    def enter(node: T) -> None:
        index[node] = low[node] = len(index)
        open_nodes[node] = None
        work.append((node, iter(successors(node))))

    for root in nodes:
        if root in index:
            continue
        enter(root)
        while work:
            node, rest = work[-1]
            for child in rest:
                if child not in index:
                    enter(child)
                    break
                if child in open_nodes:
                    low[node] = min(low[node], index[child])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    components.append(_close(node, open_nodes))
    return components


def _close(root: T, open_nodes: dict[T, None]) -> list[T]:
    component: list[T] = []
    while True:
        node, _ = open_nodes.popitem()
        component.append(node)
        if node == root:
            component.reverse()
            return component


def is_recursive(component: Sequence[T], successors: Successors[T]) -> bool:
    """Whether a strong component has a cycle: several nodes, or one that is its own successor."""
    return len(component) > 1 or component[0] in list(successors(component[0]))


def predecessors(nodes: Iterable[T], successors: Successors[T]) -> dict[T, list[T]]:
    """Return for each reachable node the nodes that have it as a successor, without repeats."""
    order = postorder(nodes, successors)
    order.reverse()
    found: dict[T, dict[T, None]] = {node: {} for node in order}
    for node in order:
        for child in successors(node):
            found[child][node] = None
    return {node: list(above) for node, above in found.items()}


def dominators(entry: T, successors: Successors[T]) -> Mapping[T, T]:
    """Return the immediate dominator of every node reachable from the entry, except the entry.

    A node dominates another if every path from the entry to the other goes through it. For
    post-dominators pass the exit and a predecessor function.

    Cost: O(edges) on reducible graphs in practice. Source: Cooper, Harvey, Kennedy, "A simple, fast
    dominance algorithm", 2001.
    """
    order = postorder([entry], successors)
    number = {node: index for index, node in enumerate(order)}
    before = predecessors([entry], successors)
    above: dict[T, T] = {entry: entry}
    order.reverse()
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            candidates = iter(p for p in before[node] if p in above)
            best = next(candidates)
            for other in candidates:
                best = _meet(best, other, above, number)
            if above.get(node) != best:
                above[node] = best
                changed = True
    del above[entry]
    return above


def _meet(left: T, right: T, above: Mapping[T, T], number: Mapping[T, int]) -> T:
    while left != right:
        while number[left] < number[right]:
            left = above[left]
        while number[right] < number[left]:
            right = above[right]
    return left


def dominator_depths(entry: T, above: Mapping[T, T]) -> dict[T, int]:
    """Return the depth of each node in the dominator tree, the entry at 0."""
    depth: dict[T, int] = {entry: 0}
    for node in above:
        path: list[T] = []
        while node not in depth:
            path.append(node)
            node = above[node]
        path.reverse()
        depth.update(zip(path, range(depth[node] + 1, depth[node] + 1 + len(path)), strict=True))
    return depth


def common_dominator(left: T, right: T, above: Mapping[T, T], depth: Mapping[T, int]) -> T:
    """Return the lowest node that dominates both. Cost: O(depth)."""
    while left != right:
        if depth[left] >= depth[right]:
            left = above[left]
        else:
            right = above[right]
    return left
