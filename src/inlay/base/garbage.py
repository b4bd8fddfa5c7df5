"""Holding off Python's cycle collector while a large program is built.

The collector runs after so many allocations and looks at everything alive. A compiler allocates
millions of small immutable objects that stay, so most of that work finds nothing: building the
document of a program of 100,000 lets takes four times as long with it. Our data has almost no
cycles, and no pass leaves one that holds a module; what there is waits until the end of the outermost
phase.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def paused() -> Generator[None, None, None]:
    """Run the body without the cycle collector; nested and failing bodies are fine.

    The setting is that of the whole process, so it is for entry points (a command, a call of the
    facade) and for passes that build much and drop nothing on the way, not for loops inside them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
