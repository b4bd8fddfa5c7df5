"""Collections of garbage in tests, without a walk through all that the tests before have left."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def only_new_objects() -> Generator[None, None, None]:
    """Set what there is aside: a collection in the body looks at what was made there, and at all of that.

    A process of the tests has millions of objects, through which a collection walks for two seconds.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
