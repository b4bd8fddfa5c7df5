"""Dependence chains: kernels that may share bytes without waiting for each other.

Two results may have the same bytes when one is dead before the other is made. Dead in the order in
which the program is written is enough for a machine that follows it; but a kernel that writes where
another one reads has to wait for it, and parts of a program that have nothing to do with each other
then run one after the other:

    let a1 = f(x);   let b1 = f(y);      a2 in new bytes, b2 in those of a1: b2 waits for a2
    let a2 = f(a1);  let b2 = f(b1);     a3 in those of b1: a3 waits for b2, b3 for a3, ...

A *dependence chain* is a list of kernels each of which needs, directly or not, the one before it.
Results of one chain share bytes at no price, because whoever writes has waited for the readers of the
chain anyway; results of different chains get different bytes. So a chain takes what it took before, and
parts that are independent take their bytes side by side.

Each kernel has a *vector clock*: how many kernels of each chain come before it by data. It continues a
chain whose last kernel its clock counts, one that it reads from if there is any; else it begins a new
chain. Cost: kernels times chains.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST_CHAINS = 8
"""Beyond, a kernel joins the chain that was used least recently, and may have to wait for it."""

VectorClock = tuple[int, ...]
"""For each chain, how many of its kernels come before; missing ones are 0."""


class Chains:
    """Gives kernels their chains, in the order of the program."""

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._used: list[int] = []  # when each chain was continued last
        self._base: VectorClock = ()
        self._count = 0

    def join(self) -> None:
        """Put everything so far before everything that follows (branches, loops, calls)."""
        self._base = tuple(self._lengths)

    def place(self, needs: Iterable[VectorClock]) -> tuple[int, VectorClock]:
        """Return the chain of a kernel that needs others, given the clocks that `place` returned
        for those, and its own clock, which counts itself.
        """
        clocks = [self._base, *needs]
        n = len(self._lengths)
        known = [max((c[s] for c in clocks if s < len(c)), default=0) for s in range(n)]
        chain = self._choose(known)
        if chain == n:
            self._lengths.append(0)
            self._used.append(0)
            known.append(0)
        self._count += 1
        self._used[chain] = self._count
        self._lengths[chain] += 1
        known[chain] = self._lengths[chain]
        return chain, tuple(known)

    def _choose(self, known: list[int]) -> int:
        free = [s for s, length in enumerate(self._lengths) if known[s] == length]
        if free:
            return max(free, key=lambda s: self._used[s])
        if len(self._lengths) < MOST_CHAINS:
            return len(self._lengths)
        return min(range(MOST_CHAINS), key=lambda s: self._used[s])
