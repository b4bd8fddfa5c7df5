"""What tests of drivers share: the programs, built once, with sanitizers where the compiler has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers.build import build
from tests.system import need


@pytest.fixture(scope="session")
def suite(tmp_path_factory) -> Path:
    need("gcc")
    return build(tmp_path_factory.mktemp("drivers"))
