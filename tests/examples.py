"""How many examples a law gets: a number for `make test`, in proportion for a larger search."""

from __future__ import annotations

from hypothesis import settings

SAMPLE = 20
"""Examples of a law in `make test` that says no number of its own."""


def examples(count: int) -> int:
    """Return `count`, times as many as the chosen profile has more than the sample.

    A number in `@settings` would hold for every profile, so that a longer search found no more.
    """
    return max(1, count * settings().max_examples // SAMPLE)
