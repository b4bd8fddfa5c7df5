"""Admission control: how long a request would take that has to wait, from how long runs took.

A request that cannot end in time should be refused when it is made: who asked can go elsewhere, and what it
would have taken goes to requests that do end in time. Otherwise, beyond a load, all of them wait too long,
and nothing that is computed is of use to anybody.

Runs take longer the more of them there are at a time, and requests differ. So what is known is what runs
took of late: a mean and a mean deviation that forget (as those of round trips in TCP). To wait for several
runs takes what they take on average. Of the run of the request itself, a prediction takes the mean less a
deviation, as where runs differ it may be one of the shorter ones.
"""

from __future__ import annotations

from dataclasses import dataclass

_LEARNT = 8
"""So many runs say something."""
_OLD = 7 / 8
"""The part of what was known that remains with each run."""


@dataclass
class Pace:
    """How long runs took of late, in seconds."""

    mean: float = 0.0
    deviation: float = 0.0
    count: int = 0

    def note(self, seconds: float) -> None:
        """A run took so long."""
        off = abs(seconds - self.mean)
        self.mean = self.mean * _OLD + seconds * (1 - _OLD) if self.count else seconds
        self.deviation = self.deviation * _OLD + off * (1 - _OLD) if self.count else seconds / 2
        self.count += 1

    @property
    def least(self) -> float:
        """What most runs take at least; 0 where too little is known."""
        return max(0.0, self.mean - self.deviation) if self.count >= _LEARNT else 0.0

    def predicted(self, ahead: int, at_a_time: int, in_line: int) -> float:
        """Return seconds until a request has ended that has to wait.

        Args:
            ahead: requests that begin before it.
            at_a_time: how many runs there are at a time. So many end in the time that one takes.
            in_line: requests that it must follow one by one, those of its session.
        """
        waits = self.mean if self.count >= _LEARNT else 0.0
        return waits * max((ahead + 1) / at_a_time, in_line) + self.least
