"""Union-find over any hashable items, with a callback where two classes become one.

Source: Tarjan, "Efficiency of a good but not linear set union algorithm", 1975 (union by size, path
halving).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class UnionFind(Generic[T]):
    """A partition of items that only grows coarser; items appear when first asked about.

    The representative of a class is deterministic: it follows from the order of the unions.

    Args:
        items: Items to have from the start.
        on_merge: Called as ``on_merge(kept, absorbed)`` after the class of ``absorbed`` has joined
            the class of ``kept``; both are the former representatives. It may call `union`.
    """

    __slots__ = ("_on_merge", "_parent", "_size")

    def __init__(
        self, items: Iterable[T] = (), on_merge: Callable[[T, T], None] | None = None
    ) -> None:
        self._parent: dict[T, T] = {item: item for item in items}
        self._size: dict[T, int] = dict.fromkeys(self._parent, 1)
        self._on_merge = on_merge

    def find(self, item: T) -> T:
        """Return the representative of an item. Cost: amortized nearly constant."""
        parent = self._parent
        if item not in parent:
            parent[item] = item
            self._size[item] = 1
            return item
        while (above := parent[item]) != item:
            parent[item] = item = parent[above]
        return item

    def union(self, left: T, right: T) -> T:
        """Join two classes and return the representative; the larger class keeps its own."""
        kept, absorbed = self.find(left), self.find(right)
        if kept == absorbed:
            return kept
        if self._size[kept] < self._size[absorbed]:
            kept, absorbed = absorbed, kept
        self._parent[absorbed] = kept
        self._size[kept] += self._size[absorbed]
        if self._on_merge is not None:
            self._on_merge(kept, absorbed)
        return self.find(kept)

    def same(self, left: T, right: T) -> bool:
        """Whether two items are in one class."""
        return self.find(left) == self.find(right)

    def classes(self) -> list[list[T]]:
        """Return the classes, each in order of appearance, ordered by their first item."""
        groups: dict[T, list[T]] = {}
        for item in list(self._parent):
            groups.setdefault(self.find(item), []).append(item)
        return list(groups.values())

    def __contains__(self, item: object) -> bool:
        return item in self._parent

    def __len__(self) -> int:
        return len(self._parent)
