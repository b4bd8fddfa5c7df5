"""Back ends of tests, installed as those of packages are: by an entry point."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from inlay.codegen import backend_table


@contextlib.contextmanager
def installed(name: str, module: str) -> Iterator[None]:
    """Let there be a back end under a name: the `BACKEND` of a module."""
    found = {"inlay.backends": [SimpleNamespace(name=name, value=module)]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.metadata, "entry_points", lambda group: found.get(group, []))
        backend_table.backends.cache_clear()
        try:
            yield
        finally:
            backend_table.backends.cache_clear()
