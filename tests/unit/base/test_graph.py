"""Graph algorithms against naive ones on generated graphs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.base import graph

SIZE = 9
graphs = st.lists(st.lists(st.integers(0, SIZE - 1), max_size=3), min_size=SIZE, max_size=SIZE)


def reachable(edges: list[list[int]], start: int, without: int | None = None) -> set[int]:
    seen: set[int] = set()
    todo = [start]
    while todo:
        node = todo.pop()
        if node not in seen and node != without:
            seen.add(node)
            todo.extend(edges[node])
    return seen


@given(graphs)
def test_components_are_mutual_reachability_callees_first(edges: list[list[int]]) -> None:
    components = graph.strong_components(range(SIZE), lambda n: edges[n])
    assert sorted(n for c in components for n in c) == list(range(SIZE))
    reach = [reachable(edges, n) for n in range(SIZE)]
    for index, component in enumerate(components):
        for node in component:
            assert set(component) == {m for m in reach[node] if node in reach[m]}
            assert not any(m in reach[node] for later in components[index + 1 :] for m in later)
        cyclic = any(component[0] in reach[child] for child in edges[component[0]])
        assert graph.is_recursive(component, lambda n: edges[n]) == cyclic


@given(graphs)
def test_topological_order_or_a_real_cycle(edges: list[list[int]]) -> None:
    try:
        order = graph.topological_order(range(SIZE), lambda n: edges[n])
    except graph.CycleError as failure:
        cycle = failure.cycle
        for here, there in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert there in edges[here]
    else:
        assert sorted(order) == list(range(SIZE))
        for node in range(SIZE):
            assert all(order.index(node) < order.index(child) for child in edges[node])


@given(graphs)
def test_dominators_are_what_every_path_goes_through(edges: list[list[int]]) -> None:
    above = graph.dominators(0, lambda n: edges[n])
    alive = reachable(edges, 0)
    assert set(above) == alive - {0}
    depth = graph.dominator_depths(0, above)

    def chain(node: int) -> set[int]:
        found = {node}
        while node != 0:
            node = above[node]
            found.add(node)
        return found

    for node in alive:
        truth = {d for d in alive if d == node or node not in reachable(edges, 0, without=d)}
        assert chain(node) == truth
        assert depth[node] == len(truth) - 1
        for other in alive:
            common = graph.common_dominator(node, other, above, depth)
            assert depth[common] == len(chain(node) & chain(other)) - 1


@given(graphs)
def test_predecessors_turn_the_edges_round(edges: list[list[int]]) -> None:
    before = graph.predecessors([0], lambda n: edges[n])
    alive = reachable(edges, 0)
    assert set(before) == alive
    for node in alive:
        assert sorted(before[node]) == [m for m in sorted(alive) if node in edges[m]]


def test_orders_keep_the_given_order_of_independent_nodes() -> None:
    edges = {"a": ["d"], "b": ["d"], "c": [], "d": []}
    assert graph.postorder("abc", lambda n: edges[n]) == ["d", "a", "b", "c"]


def test_chains_need_no_recursion() -> None:
    size = 50_000

    def successors(node: int) -> list[int]:
        return [node + 1] if node + 1 < size else []

    assert graph.topological_order([0], successors)[-1] == size - 1
    assert len(graph.strong_components([0], successors)) == size
    above = graph.dominators(0, successors)
    assert graph.dominator_depths(0, above)[size - 1] == size - 1


def test_a_cycle_error_shows_the_cycle() -> None:
    edges = {"a": ["b"], "b": ["c"], "c": ["b"]}
    with pytest.raises(graph.CycleError, match="cycle: (b -> c -> b|c -> b -> c)"):
        graph.topological_order("a", lambda n: edges[n])
