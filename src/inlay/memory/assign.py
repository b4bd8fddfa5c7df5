"""Which memory each storage goes to, jointly: by the predicted time of accesses, and by what packs.

An access moves the bytes of a storage: `latency + bytes / bandwidth` of its memory, as often as kernels read
or write it. Of the storages that one kernel touches in one memory, those beyond its banks wait for a bank: a
latency more for each. Memories that are equally fast keep the order in which they were allowed.

Storages are placed one after the other, each in the memory where it is fastest of those with room; in order
of size, and in order of the time saved for each byte and moment that they take there. The faster of the two
assignments is taken and improved: all assignments are tried where there are few, else a storage that is not
where it is fastest takes the place of one that gains less. Room is what packing finds, by lifetimes. The
effort is counted in tries, so that the same storages give the same memories.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from inlay.machine.memory import Pool
from inlay.memory.activations import Storage
from inlay.memory.bank import Part

_EXACT = 64
"""Assignments that are all tried."""
_EFFORT = 400_000
"""Tries of the search times the square of the storages."""
_MOST_TRIES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A storage that is placed.

    Attributes:
        storage: that it is.
        size: its bytes, at the bounds of dims; 0 where they have none.
        end: the last position at which it is in use.
        options: memories that it can be in, the preferred one first.
    """

    storage: Storage
    size: int
    end: int
    options: tuple[str, ...]

    def ns(self, pool: Pool | None) -> float:
        """Return what kernels are predicted to wait for it in a memory; nothing where that is unknown."""
        if pool is None:
            return 0.0
        return len(self.storage.accesses) * (pool.latency_ns + self.size / pool.bytes_per_ns)


@dataclass(slots=True)
class Assignment:
    """A memory for each storage.

    Attributes:
        memories: by item.
        parts: of bounded memories, with offsets.
        ns: predicted of all accesses.
        stuck: an item without room, where there is one.
    """

    memories: dict[Item, str] = field(default_factory=dict[Item, str])
    parts: dict[str, Part] = field(default_factory=dict[str, Part])
    ns: float = 0.0
    stuck: Item | None = None


class Assigner:
    """Assigns storages of one activation.

    Args:
        pools: all memories, by name.
        room: bytes that are left of bounded ones; others take all.
        steps: effort of packing where placing one by one fails.
    """

    def __init__(self, pools: Mapping[str, Pool], room: Mapping[str, int], steps: int) -> None:
        self._pools, self._room, self._steps = pools, room, steps

    def assign(self, items: Sequence[Item]) -> Assignment:
        """Return the fastest assignment found; with the item that is stuck where none is found."""
        by_size = sorted(items, key=lambda x: (-x.size, x.storage.start))
        gains = {x: self._gain(x) for x in items}
        best = self._placed(by_size)
        if any(gains.values()):
            best = self._better(best, self._placed(sorted(by_size, key=lambda x: -gains[x])))
        if best.stuck is None and best.ns <= sum(min(self._ns(x, m) for m in x.options) for x in items):
            return best
        if prod(min(len(x.options), _EXACT + 1) for x in items) <= _EXACT:
            return self._exact(by_size, best)
        tries = min(_MOST_TRIES, _EFFORT // len(items) ** 2)
        if best.stuck is not None:
            best, tries = self._freed(by_size, best, tries)
        return best if best.stuck is not None else self._climbed(by_size, gains, best, tries)

    def alternatives(self, item: Item) -> tuple[tuple[str, float], ...]:
        """Return the memories that an item can be in, the fastest first, with predicted nanoseconds."""
        return tuple((name, self._ns(item, name)) for name in self._order(item))

    def _ns(self, item: Item, name: str) -> float:
        return item.ns(self._pools.get(name))

    def _order(self, item: Item) -> list[str]:
        return sorted(item.options, key=lambda name: self._ns(item, name))

    def _gain(self, item: Item) -> float:
        """Return the time that the fastest memory saves, for each byte and moment."""
        times = [self._ns(item, name) for name in item.options]
        life = item.end + 1 - item.storage.start
        return (max(times) - min(times)) / max(item.size * life, 1)

    @staticmethod
    def _better(a: Assignment, b: Assignment) -> Assignment:
        if a.stuck is not None or b.stuck is not None:
            return a if b.stuck is not None else b
        return b if b.ns < a.ns else a

    def _placed(self, items: Sequence[Item], fixed: Mapping[Item, str] | None = None) -> Assignment:
        """Place items in order, where they are fastest or where they are said to be."""
        made = Assignment()
        touched: dict[tuple[str, int], int] = {}
        for item in items:
            times = {m: self._ns(item, m) + self._waits(item, m, touched) for m in item.options}
            for name in sorted(times, key=times.__getitem__) if fixed is None else (fixed[item],):
                if self._put(made, name, item):
                    made.memories[item] = name
                    made.ns += times[name]
                    for at in item.storage.accesses:
                        touched[name, at] = touched.get((name, at), 0) + 1
                    break
            else:
                made.stuck = item
                return made
        return made

    def _waits(self, item: Item, name: str, touched: Mapping[tuple[str, int], int]) -> float:
        """Return what waiting for banks takes beside what is touched already."""
        pool, count = self._pools.get(name), 0
        if pool is None or not pool.latency_ns:
            return 0.0
        mine: dict[int, int] = {}
        for at in item.storage.accesses:
            mine[at] = mine.get(at, 0) + 1
            count += touched.get((name, at), 0) + mine[at] > pool.banks
        return count * pool.latency_ns

    def _put(self, made: Assignment, name: str, item: Item) -> bool:
        room = self._room.get(name)
        if room is None:
            return True
        part = made.parts.setdefault(name, Part(self._pools[name], room))
        return part.put(item.storage, item.size, item.end, self._steps)

    # ------------------------------------------------------------------ search

    def _exact(self, items: Sequence[Item], best: Assignment) -> Assignment:
        """Try all choices."""
        for names in itertools.product(*(x.options for x in items)):
            best = self._better(best, self._placed(items, dict(zip(items, names, strict=True))))
        return best

    def _freed(self, items: Sequence[Item], best: Assignment, tries: int) -> tuple[Assignment, int]:
        """Place what is stuck before all others, again and again; return what comes of it, and tries left."""
        order, seen = sorted(items, key=lambda x: len(x.options)), set[Item]()
        while tries > 0:
            tries -= 1
            found = self._placed(order)
            if found.stuck is None or found.stuck in seen:
                return self._better(best, found), tries
            seen.add(found.stuck)
            order.remove(found.stuck)
            order.insert(0, found.stuck)
        return best, tries

    def _climbed(
        self, items: Sequence[Item], gains: Mapping[Item, float], best: Assignment, tries: int
    ) -> Assignment:
        """Let items take the places of those that gain less, where that is faster in all."""
        wanting = sorted(items, key=lambda x: -gains[x])
        for item in wanting:
            target = self._order(item)[0]
            if best.memories[item] == target:
                continue
            others = [x for x in items if best.memories[x] == target and len(x.options) > 1]
            for other in (None, *sorted(others, key=lambda x: gains[x])):
                if tries <= 0:
                    return best
                if other is not None and gains[other] >= gains[item]:
                    break
                tries -= 1
                fixed = {**best.memories, item: target}
                if other is not None:
                    fixed[other] = next(m for m in self._order(other) if m != target)
                found = self._better(best, self._placed(items, fixed))
                if found is not best:
                    best = found
                    break
        return best
