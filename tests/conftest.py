"""What every test gets: the bounded hypothesis profile and the place of the shared data."""

from __future__ import annotations

import collections
import gc
import hashlib
import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from tests import data
from tests.budget import Budget
from tests.examples import SAMPLE
from tests.text_cases import CaseFile, is_cases
from tests.text_files import TextFile

# Derandomized: a failure found on one machine is found on every machine. `make test-all` takes "whole".
settings.register_profile(
    "sample",
    max_examples=SAMPLE,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("whole", settings.get_profile("sample"), max_examples=120)
settings.register_profile("thorough", settings.get_profile("sample"), max_examples=1000)
settings.load_profile("sample")

TOGETHER = {
    "tests/drivers": "drivers",
    "tests/architecture": "architecture",
    "tests/fuzz": "sanitizers",
    "tests/runtime_c": "sanitizers",
}
"""Folders whose tests share what is slow to make, once for each process: they run in one process, but for slow
tests under sanitizers, which take longer than what they share."""

BLOCK = 40
"""So many tests that follow each other in a file are handed to a process at a time: handing out each alone
costs more than many of them take. Of slow ones few, so that no process ends long after the others."""
SLOW_BLOCK = 8


@pytest.fixture(scope="session")
def kernels(tmp_path_factory) -> str:
    """A cache for tests that compile nearly the same again and again."""
    return str(tmp_path_factory.mktemp("kernels"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shared-data", help="folder of the shared models (default: found beside)")
    parser.addoption("--budget", action="store_true", help="print the processor time of each part")


def pytest_configure(config: pytest.Config) -> None:
    chosen = config.getoption("--shared-data")
    if chosen:
        data.use(Path(chosen))
    if config.getoption("--budget"):
        config.pluginmanager.register(Budget())


@pytest.hookimpl(trylast=True)  # Hypothesis has to have begun
def pytest_sessionstart() -> None:
    begin_laws()


@settings(max_examples=1)
@given(strategies.none())
def begin_laws(_: None) -> None:
    """Hypothesis walks through all objects at its first law, so that comes before they are millions."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    draw_samples(items)
    for file, members in itertools.groupby(items, key=lambda item: item.path):
        place = file.relative_to(data.REPOSITORY).as_posix()
        group = next((group for start, group in TOGETHER.items() if place.startswith(start)), "")
        size = 0.0
        for item in members:
            is_slow = item.get_closest_marker("slow") is not None
            name = f"{place}-{int(size)}" if not group or (is_slow and group == "sanitizers") else group
            size += 1 / (SLOW_BLOCK if is_slow else BLOCK)
            item.add_marker(pytest.mark.xdist_group(name))


def draw_samples(items: list[pytest.Item]) -> None:
    """Leave so many cases of a test as its mark `sample` says to `make test`; the others are slow.

    Cases are drawn by a digest of their names, so that a new one does not exchange all others.
    """
    cases = collections.defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("sample")
        if mark is not None:
            cases[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    for (_, size), all_of_a_test in cases.items():
        drawn = sorted(all_of_a_test, key=lambda x: hashlib.sha256(x.nodeid.encode()).digest())
        for item in drawn[size:]:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking through thousands of collected tests again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 50)


def pytest_sessionfinish() -> None:
    """Keep pytest from collecting the garbage of all tests five times before it ends."""
    gc.freeze()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".inl" and "text" in file_path.relative_to(data.REPOSITORY).parts:
        kind = CaseFile if is_cases(file_path) else TextFile
        return kind.from_parent(parent, path=file_path)
    return None
