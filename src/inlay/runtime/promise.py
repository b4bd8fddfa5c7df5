"""The budget that an executable was compiled within, and how it must run to keep it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from inlay.base.diagnostics import error
from inlay.runtime.native import Settings

BUDGET = "budget"
"""The property of an executable that says it."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a call takes at most of memories, constants included.

    Attributes:
        bytes: the budgets, by memory.
        takes: what a call takes at most, of these memories.
        threads: on so many at most; 0 where their number does not matter.
    """

    bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    takes: Mapping[str, int] = field(default_factory=dict[str, int])
    threads: int = 0

    def to_json(self) -> str:
        """Return it as text, for the property."""
        return json.dumps(asdict(self), sort_keys=True)


def promise_of(properties: Mapping[str, str]) -> Promise | None:
    """Return the promise of an executable, if it has one."""
    said = properties.get(BUDGET)
    return Promise(**json.loads(said)) if said else None


def kept(promise: Promise | None, settings: Settings, *, asked: bool) -> Settings:
    """Return settings that keep a promise: those given, on fewer threads where nobody asked for so many.

    Args:
        promise: of the executable.
        settings: how it is to run.
        asked: whether a person chose the number of threads.

    Raises:
        CompileError: `memory.beyond-promise`.
    """
    if promise is None or not promise.threads:
        return settings
    listed = ", ".join(f"{name} {count:,} bytes" for name, count in promise.bytes.items())
    if settings.threads > promise.threads:
        if not asked:
            return replace(settings, threads=promise.threads)
        raise error(
            "memory.beyond-promise",
            f"found threads={settings.threads}, needed at most {promise.threads}: the executable was "
            f"compiled within a budget ({listed}) for those",
        )
    if promise.threads == 1 and settings.mode not in (None, "sequential"):
        raise error(
            "memory.beyond-promise",
            f"found mode='{settings.mode}', needed 'sequential': the executable was compiled within a "
            f"budget ({listed}) for one thread, and other modes run kernels at once",
        )
    return replace(settings, mode="sequential") if promise.threads == 1 else settings
