"""What tests of drivers share: the programs, built once, with sanitizers where the compiler has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers.build import SANITIZE, build
from tests.system import lacks_sanitizer, need


@pytest.fixture(scope="session")
def suite(tmp_path_factory) -> Path:
    need("gcc")
    sanitize = () if lacks_sanitizer("address,undefined") else SANITIZE
    return build(tmp_path_factory.mktemp("drivers"), sanitize)
