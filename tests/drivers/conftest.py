"""What tests of drivers share: the programs, built once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.drivers.build import build


@pytest.fixture(scope="session")
def suite(tmp_path_factory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    return build(tmp_path_factory.mktemp("drivers"))
