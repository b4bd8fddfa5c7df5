"""What every test gets: the bounded hypothesis profile and the place of the shared data."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import data
from tests.text_files import TextFile

# Derandomized: a failure found on one machine is found on every machine.
settings.register_profile(
    "bounded",
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", settings.get_profile("bounded"), max_examples=1000)
settings.load_profile("bounded")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shared-data", help="folder of the shared models (default: found beside)")


def pytest_configure(config: pytest.Config) -> None:
    chosen = config.getoption("--shared-data")
    if chosen:
        data.use(Path(chosen))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".inl" and "text" in file_path.relative_to(data.REPOSITORY).parts:
        return TextFile.from_parent(parent, path=file_path)
    return None
