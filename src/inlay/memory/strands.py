"""Which kernels may share bytes without waiting for each other: chains of kernels that data orders.

Two results may have the same bytes when one is dead before the other is made. Dead in the order in
which the program is written is enough for a machine that follows it; but a kernel that writes where
another one reads has to wait for it, and parts of a program that have nothing to do with each other
then run one after the other:

    let a1 = f(x);   let b1 = f(y);      a2 in new bytes, b2 in those of a1: b2 waits for a2
    let a2 = f(a1);  let b2 = f(b1);     a3 in those of b1: a3 waits for b2, b3 for a3, ...

A *strand* is a chain of kernels each of which needs, directly or not, the one before it. Results of
one strand share bytes at no price, because whoever writes has waited for the readers of the strand
anyway; results of different strands get different bytes. So a chain takes what it took before, and
parts that are independent take their bytes side by side.

Each kernel knows its *past*: how many kernels of each strand come before it by data (a vector clock).
It continues a strand whose last kernel is in its past, one that it reads from if there is any; else it
begins a new strand. Cost: kernels times strands.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST_STRANDS = 8
"""Beyond, a kernel joins the strand that was used least recently, and may have to wait for it."""

Past = tuple[int, ...]
"""For each strand, how many of its kernels come before; missing ones are 0."""


class Strands:
    """Gives kernels their strands, in the order of the program."""

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._used: list[int] = []  # when each strand was continued last
        self._base: Past = ()
        self._count = 0

    def join(self) -> None:
        """Take everything so far as the past of everything that follows (branches, loops, calls)."""
        self._base = tuple(self._lengths)

    def place(self, needs: Iterable[Past]) -> tuple[int, Past]:
        """Return the strand of a kernel that needs others, given what `place` returned for each as
        its past, and the same for this one: it contains itself.
        """
        pasts = [self._base, *needs]
        known = [max((p[s] for p in pasts if s < len(p)), default=0) for s in range(len(self._lengths))]
        strand = self._choose(known)
        if strand == len(self._lengths):
            self._lengths.append(0)
            self._used.append(0)
            known.append(0)
        self._count += 1
        self._used[strand] = self._count
        self._lengths[strand] += 1
        known[strand] = self._lengths[strand]
        return strand, tuple(known)

    def _choose(self, known: list[int]) -> int:
        free = [s for s, length in enumerate(self._lengths) if known[s] == length]
        if free:
            return max(free, key=lambda s: self._used[s])
        if len(self._lengths) < MOST_STRANDS:
            return len(self._lengths)
        return min(range(MOST_STRANDS), key=lambda s: self._used[s])
