"""Settings of executables, from what a caller gives: checked, with defaults of this machine."""

from __future__ import annotations

import os
from dataclasses import replace

from inlay.base.diagnostics import CompileError, error
from inlay.runtime.native import MODES, MOST_THREADS, Mode, Settings

_INT, _LONG = (1 << 31) - 1, (1 << 63) - 1
_RANGES = {
    "threads": (1, MOST_THREADS),
    "stack_bytes": (0, _LONG),
    "cache_bytes": (0, _LONG),
    "activations": (1, _INT),
    "waiting": (0, _INT),
    "hand_off_ns": (0, _LONG),
    "own_batches": (0, _INT),
    "seed": (0, (1 << 64) - 1),
}
"""Fields of `Settings` that are integers, and their limits."""
_MAY_BE_NONE = {"waiting", "hand_off_ns", "own_batches"}


def usable_processors() -> int:
    """Return how many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_integer(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def check_threads(threads: int) -> None:
    """Refuse a number of threads that cannot be.

    Raises:
        CompileError: `option.bad-value`.
    """
    if not _is_integer(threads, 1, MOST_THREADS):
        needed = f"an integer from 1 to {MOST_THREADS}"
        raise error("option.bad-value", f"found threads={threads!r}, needed {needed}")


def chosen_settings(
    settings: Settings | None, threads: int | None, mode: Mode | None, seed: int | None
) -> Settings:
    """Return settings with what was asked for by itself; by default as many threads as processors.

    Raises:
        CompileError: `option.bad-value`, `option.no-effect`.
    """
    given = settings or Settings(threads=usable_processors())
    made = replace(
        given,
        threads=given.threads if threads is None else threads,
        mode=given.mode if mode is None else mode,
        seed=given.seed if seed is None else seed,
    )
    _check(made)
    if seed is not None and made.mode != "replay":
        raise error("option.no-effect", "found a seed, which does nothing without mode='replay'")
    return made


def _check(settings: Settings) -> None:
    """Refuse settings that cannot be, all of them at once."""
    wrong: list[str] = []
    for name, (low, high) in _RANGES.items():
        value = getattr(settings, name)
        if not (value is None and name in _MAY_BE_NONE) and not _is_integer(value, low, high):
            none = " or None" if name in _MAY_BE_NONE else ""
            wrong.append(f"found {name}={value!r}, needed an integer from {low} to {high}{none}")
    if settings.mode is not None and settings.mode not in MODES:
        wrong.append(f"found mode={settings.mode!r}, needed one of {', '.join(MODES)}")
    if wrong:
        raise CompileError(d for text in wrong for d in error("option.bad-value", text).diagnostics)
