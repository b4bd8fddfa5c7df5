"""Pieces are in memory as they are, whatever pages they get."""

from __future__ import annotations

import pytest

from inlay.base.pages import LARGE
from inlay.runtime.pages import in_memory


@pytest.mark.parametrize("size", [0, 3, LARGE - 1, LARGE + 4097])
def test_pieces_follow_one_another(size: int) -> None:
    whole = [b"head", bytes(range(251)) * (size // 251), b"end"]
    pieces = list(whole)
    with in_memory(pieces) as memory:
        assert memory[:] == b"".join(whole)
    assert pieces == [], "what has been copied is let go"
    assert len(in_memory([])) == 1
