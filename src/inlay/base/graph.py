"""Algorithms over a successor function: order, components.

A graph is a collection of nodes and a function from a node to its successors. Nothing here
recurses, so a chain of 100,000 nodes is fine, and every result depends only on the order of the
nodes and of their successors, never on hashes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T", bound=Hashable)
Successors = Callable[[T], Iterable[T]]


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


def dependency_order(before: Sequence[Collection[int]], keys: Sequence[Any]) -> list[int] | None:
    """Return the nodes 0, 1, ... so that each stands behind those that have to come before it.

    Of the nodes that can be next, the one with the least key is. None where nodes wait for each other.
    Cost: O(edges + nodes log nodes).

    Args:
        before: for each node, those that come before it, each once.
        keys: for each node; of equal ones the first node counts.
    """
    after: list[list[int]] = [[] for _ in before]
    for node, found in enumerate(before):
        for other in found:
            after[other].append(node)
    missing = [len(found) for found in before]
    ready = [(keys[node], node) for node, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)[1]
        order.append(node)
        for other in after[node]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (keys[other], other))
    return order if len(order) == len(before) else None


def on_cycles(nodes: Iterable[T], successors: Successors[T]) -> set[T]:
    """Return the nodes from which a way leads back to them. Cost: as `strong_components`."""
    components = strong_components(nodes, successors)
    return {n for group in components for n in group if len(group) > 1 or n in successors(n)}


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
