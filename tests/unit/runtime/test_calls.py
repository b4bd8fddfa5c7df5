"""What calls cost beside their kernels, as far as it can be counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.unit.runtime.programs import dbl, doubling

IO = Path("/proc/self/io")


def reads() -> int:
    """Return how many reads of files this process has made, those of this function in a constant number."""
    return int(next(line for line in IO.read_text().splitlines() if line.startswith("syscr")).split()[1])


@pytest.mark.skipif(not IO.exists(), reason="needs /proc/self/io")
@pytest.mark.parametrize("threads", [1, 2])
def test_calls_read_no_files(threads):
    exe = executable_of(doubling(), settings=Settings(threads=threads), callbacks={"dbl": dbl})
    value = np.ones((3, 4), np.float32)
    exe(value)
    before = reads()
    nothing = reads() - before
    before = reads()
    for _ in range(50):
        exe(value)
    assert reads() - before == nothing
