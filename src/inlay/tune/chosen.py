"""What was measured, for who compiles: choices that hold here, and why others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from inlay.analysis.choices import NO_CHOICE, Choice
from inlay.tune.database import Entry, entries_of
from inlay.tune.trial import Kind, Place


@dataclass(frozen=True, slots=True)
class Tuned:
    """Choices that hold for a place.

    Attributes:
        file: that they come from; empty for none.
        kernels: choices by the keys of kernels.
        products: choices by the keys of products.
        others: how many choices of the file do not hold here, by the reason.
    """

    file: str = ""
    kernels: Mapping[str, Choice] = field(default_factory=dict[str, Choice])
    products: Mapping[str, Choice] = field(default_factory=dict[str, Choice])
    others: Mapping[str, int] = field(default_factory=dict[str, int])

    def of_kernel(self, key: str) -> Choice:
        """Return the choice for a kernel."""
        return self.kernels.get(key, NO_CHOICE)

    def of_product(self, key: str) -> Choice:
        """Return the choice for a product."""
        return self.products.get(key, NO_CHOICE)


NOT_TUNED = Tuned()


def read_tuned(path: str, here: Place) -> Tuned:
    """Return the choices of a file that hold for a place.

    Raises:
        CompileError: `tune.missing`, `tune.damaged`, `tune.version`, `tune.busy`.
    """
    others: Counter[str] = Counter()
    best: dict[tuple[Kind, str], Entry] = {}
    for entry in entries_of(Path(path)):
        if why := entry.place.differs(here):
            others[why] += 1
            continue
        known = best.get((entry.kind, entry.key))
        if known is None or entry.trial.gain > known.trial.gain:
            best[entry.kind, entry.key] = entry

    def of(kind: Kind) -> dict[str, Choice]:
        return {key: e.trial.choice for (k, key), e in best.items() if k is kind}

    return Tuned(path, of(Kind.KERNEL), of(Kind.PRODUCT), dict(others))
