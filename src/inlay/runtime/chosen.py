"""Settings of executables, from what a caller gives: checked, with defaults of this machine."""

from __future__ import annotations

import os
from dataclasses import replace

from inlay.base.diagnostics import error
from inlay.runtime.native import MODES, MOST_THREADS, Mode, Settings


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
    made = settings or Settings(threads=usable_processors())
    if threads is not None:
        check_threads(threads)
    if mode is not None and mode not in MODES:
        raise error("option.bad-value", f"found mode={mode!r}, needed one of {', '.join(MODES)}")
    if seed is not None and not _is_integer(seed, 0, (1 << 64) - 1):
        raise error("option.bad-value", f"found seed={seed!r}, needed an integer of 64 bits")
    if seed is not None and (made.mode if mode is None else mode) != "replay":
        raise error("option.no-effect", "found a seed, which does nothing without mode='replay'")
    if made.waiting is not None and not _is_integer(made.waiting, 0, 1 << 31):
        raise error(
            "option.bad-value", f"found waiting={made.waiting!r}, needed a number of requests or None"
        )
    return replace(
        made,
        threads=made.threads if threads is None else threads,
        mode=made.mode if mode is None else mode,
        seed=made.seed if seed is None else seed,
    )
