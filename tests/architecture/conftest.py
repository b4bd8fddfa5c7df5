"""Tests of the sources keep hundreds of thousands of nodes of syntax trees, none of which is garbage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inlay.base.garbage import paused
from tests.architecture.sources import forget_trees


@pytest.fixture(scope="package", autouse=True)
def trees() -> Iterator[None]:
    """Let go of the trees behind the last test that walks through them."""
    yield
    forget_trees()


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Keep the collector of cycles from walking through the trees again and again."""
    with paused():
        yield
