"""The pause of the cycle collector ends as it began."""

from __future__ import annotations

import gc

import pytest

from inlay.base.garbage import paused


def test_the_setting_is_restored_after_nesting_and_failure() -> None:
    assert gc.isenabled()
    with paused():
        with pytest.raises(ValueError, match="x"), paused():
            raise ValueError("x")
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
