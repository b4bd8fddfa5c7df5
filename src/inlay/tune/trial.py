"""What was measured, and what it holds for.

A *trial* is one choice (`analysis/choices.py`) for one kernel, or for one product whose weights are packed,
with what came of it. It holds for one *place*: a processor with its features and caches, a version of the
rules that ask, and a number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inlay.analysis.choices import Choice


class Kind(StrEnum):
    """What a key is of."""

    PRODUCT = "product"
    """A product with constant weights: how they are packed."""
    KERNEL = "kernel"
    """A kernel: how it is scheduled."""


class Outcome(StrEnum):
    """What came of a trial."""

    MEASURED = "measured"
    REFUSED = "refused"
    """No code could be made."""
    WRONG = "wrong"
    """Its results were not those of the default."""


@dataclass(frozen=True, slots=True)
class Place:
    """What trials hold for.

    Attributes:
        processor: as the system names it.
        target: what code was made for, as `Target.key` says it: features, caches, registers.
        rules: the version of all that makes code of kernels.
        threads: that kernels ran on.
    """

    processor: str
    target: str
    rules: str
    threads: int

    def differs(self, here: Place) -> str:
        """Return why trials of this place do not hold for another one; nothing where they do."""
        if self.processor != here.processor:
            return f"measured on '{self.processor}', this is '{here.processor}'"
        if self.target != here.target:
            return "measured with other features or caches of the processor"
        if self.rules != here.rules:
            return f"measured with version {self.rules[:8]} of the rules, this is {here.rules[:8]}"
        if self.threads != here.threads:
            return f"measured on {_threads(self.threads)}, this is for {_threads(here.threads)}"
        return ""


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"


@dataclass(frozen=True, slots=True)
class Trial:
    """One choice, and what came of it.

    Attributes:
        choice: what was tried.
        outcome: what came of it.
        ns: its median time in nanoseconds; 0 where there is none.
        default_ns: that of the default, in the same rounds.
        noise: how far two copies of the default were apart, as a share of their time.
        rounds: how many there were.
        kept: whether it won again, measured a second time with more rounds; None where it was not.
        said: why it was dropped.
    """

    choice: Choice
    outcome: Outcome
    ns: float = 0.0
    default_ns: float = 0.0
    noise: float = 0.0
    rounds: int = 0
    kept: bool | None = None
    said: str = ""

    @property
    def gain(self) -> float:
        """The share of the default's time that it saves; 0 where it was not measured."""
        return 1 - self.ns / self.default_ns if self.outcome is Outcome.MEASURED else 0.0

    @property
    def wins(self) -> bool:
        """Whether it is faster by more than the noise."""
        return self.gain > max(self.noise, LEAST_GAIN)


LEAST_GAIN = 0.01
"""A share of time that is worth a choice, however quiet the machine was."""
