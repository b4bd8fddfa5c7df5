"""Graph algorithms against naive ones on generated graphs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inlay.base import graph

SIZE = 9
graphs = st.lists(st.lists(st.integers(0, SIZE - 1), max_size=3), min_size=SIZE, max_size=SIZE)


def reachable(edges: list[list[int]], start: int) -> set[int]:
    seen: set[int] = set()
    todo = [start]
    while todo:
        node = todo.pop()
        if node not in seen:
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


def test_orders_keep_the_given_order_of_independent_nodes() -> None:
    edges = {"a": ["d"], "b": ["d"], "c": [], "d": []}
    assert graph.postorder("abc", lambda n: edges[n]) == ["d", "a", "b", "c"]


def test_chains_need_no_recursion() -> None:
    size = 50_000

    def successors(node: int) -> list[int]:
        return [node + 1] if node + 1 < size else []

    assert graph.postorder([0], successors)[-1] == 0
    assert len(graph.strong_components([0], successors)) == size


@given(graphs, st.lists(st.integers(0, 3), min_size=SIZE, max_size=SIZE))
def test_what_comes_before_stands_before_and_keys_decide_the_rest(
    edges: list[list[int]], keys: list[int]
) -> None:
    before = [set(found) for found in edges]
    order = graph.dependency_order(before, keys)
    if any(n in reachable(edges, m) for n in range(SIZE) for m in edges[n]):
        assert order is None
        return
    assert order is not None
    left = set(range(SIZE))
    for node in order:
        assert node == min((n for n in left if not before[n] & left), key=lambda n: (keys[n], n))
        left.remove(node)
    assert not left
