"""Union-find against the naive partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inlay.base.unionfind import UnionFind

pairs = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=30)


@given(pairs)
def test_it_is_the_closure_of_the_unions(unions: list[tuple[int, int]]) -> None:
    found = UnionFind(range(16))
    naive = {i: {i} for i in range(16)}
    for left, right in unions:
        found.union(left, right)
        joined = naive[left] | naive[right]
        for item in joined:
            naive[item] = joined
    for left in range(16):
        assert found.find(left) in naive[left]
        for right in range(16):
            assert found.same(left, right) == (right in naive[left])
    assert sorted(map(tuple, found.classes())) == sorted({tuple(sorted(x)) for x in naive.values()})


def test_merges_are_told_once_with_both_representatives() -> None:
    told: list[tuple[str, str]] = []
    found: UnionFind[str] = UnionFind(on_merge=lambda kept, gone: told.append((kept, gone)))
    found.union("a", "b")
    found.union("c", "a")
    found.union("b", "c")
    assert told == [("a", "b"), ("a", "c")]
    assert found.find("c") == "a"


def test_a_merge_may_union_further() -> None:
    found: UnionFind[int] = UnionFind()
    found = UnionFind(on_merge=lambda kept, gone: found.union(10, 11) and None)
    found.union(1, 2)
    assert found.same(10, 11)
    assert len(found) == 4
    assert 10 in found


def test_a_long_chain_is_flattened_without_recursion() -> None:
    found = UnionFind(range(50_000))
    for i in range(49_999):
        found.union(i, i + 1)
    assert found.same(0, 49_999)
