"""What tests of drivers share: the programs, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers.build import build
from tests.system import need_sanitizer


@pytest.fixture(scope="session")
def suite(tmp_path_factory) -> Path:
    need_sanitizer("address,undefined")
    return build(tmp_path_factory.mktemp("drivers"))
