"""Every driver passes one suite, under the address and undefined-behavior sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.drivers.build import offers, programs
from tests.drivers.serving import served
from tests.system import need_sanitizer

pytestmark = [pytest.mark.cc, pytest.mark.llvm]


def run(suite: Path, *words: str) -> list[str]:
    # Leaks are counted by the suite itself, for what a driver takes from the host; libraries of
    # devices keep some memory for good.
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "POCL_CACHE_DIR": str(suite / "cache")}
    done = subprocess.run(
        [suite / "suite", *words], check=False, capture_output=True, text=True, timeout=300, env=env
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout.splitlines()


def passed(lines: list[str]) -> None:
    for line in lines:
        if line.startswith("ABSENT"):
            pytest.skip(line.removeprefix("ABSENT "))
    names = [line for line in lines if line.startswith("passed ")]
    assert len(names) == len(lines) == 20


def test_null(suite):
    passed(run(suite, "null", ""))


@pytest.mark.sample(5)
@pytest.mark.parametrize("options", ["", *(f"units=2 seed={s}" for s in range(8))])
def test_host(suite, options):
    passed(run(suite, "host", f"memory=16777216 {options}"))


@pytest.mark.parametrize("options", ["", pytest.param("units=2", marks=pytest.mark.slow)])
def test_opencl(suite, options):
    passed(run(suite, "opencl", options, str(suite / "opencl")))


@pytest.mark.parametrize("options", ["", "units=2 threads=3"])
def test_native(suite, options):
    passed(run(suite, "native", f"{offers()} {options}", str(suite / "native")))


def test_native_without_races(suite):
    """Its lists and counts are shared by all threads of all devices: the thread sanitizer is silent."""
    need_sanitizer("thread")
    program = [str(programs("thread")["suite"]), "native", offers(), str(suite / "native")]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=300)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the thread sanitizer does not run on this kernel")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    passed(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("driver", "options"),
    [
        ("null", ""),
        ("host", "memory=16777216 units=2 seed=0"),
        *(
            pytest.param("host", f"memory=16777216 units=2 seed={s}", marks=pytest.mark.slow)
            for s in range(1, 4)
        ),
        ("native", "units=2 threads=2"),
        pytest.param("opencl", "", marks=pytest.mark.slow),
    ],
)
def test_remote(suite, driver, options):
    options += f" {offers()}" if driver == "native" else ""
    image = [] if driver == "null" else [str(suite / driver)]
    with served(suite, driver, options, "tcp://127.0.0.1:*") as server:
        passed(run(suite, "remote" if image else "remote-null", server.words, *image))


def test_remote_through_a_file(suite, tmp_path):
    with served(suite, "native", offers(), f"ipc://{tmp_path}/s") as server:
        passed(run(suite, "remote", server.words, str(suite / "native")))


def test_a_device_that_is_not_there_says_so(suite):
    [line] = [x for x in run(suite, "opencl", "index=15") if x.startswith("ABSENT")]
    assert "needed 16" in line or "libOpenCL" in line
    words = "endpoint=tcp://127.0.0.1:9 connect=50 key=none"
    [line] = [x for x in run(suite, "remote", words) if x.startswith("ABSENT")]
    assert "nothing answers within 50 ms" in line or "libzmq" in line
