"""Every driver passes one suite, under the address and undefined-behavior sanitizers."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inlay.runtime.device import zeromq_library
from tests.drivers.build import build, offers

pytestmark = [
    pytest.mark.cc,
    pytest.mark.llvm,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler"),
]


@pytest.fixture(scope="module")
def suite(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("drivers"))


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
    if lines and lines[0].startswith("ABSENT"):
        pytest.skip(lines[0].removeprefix("ABSENT "))
    names = [line for line in lines if line.startswith("passed ")]
    assert len(names) == len(lines) == 17


def test_null(suite):
    passed(run(suite, "null", ""))


@pytest.mark.parametrize("options", ["", *(f"units=2 seed={s}" for s in range(8))])
def test_host(suite, options):
    passed(run(suite, "host", f"memory=16777216 {options}"))


@pytest.mark.parametrize("options", ["", "units=2"])
def test_opencl(suite, options):
    passed(run(suite, "opencl", options, str(suite / "opencl")))


@pytest.mark.parametrize("options", ["", "units=2 threads=3"])
def test_native(suite, options):
    passed(run(suite, "native", f"{offers()} {options}", str(suite / "native")))


@contextlib.contextmanager
def served(suite: Path, driver: str, options: str, listen: str) -> Iterator[str]:
    """Serve a device in another process; yields the options that reach it."""
    library = zeromq_library() or ""
    env = {**os.environ, "POCL_CACHE_DIR": str(suite / "cache"), "ASAN_OPTIONS": "detect_leaks=0"}
    # Leaks are looked for where no library of a device keeps memory for good.
    if driver != "opencl":
        env["ASAN_OPTIONS"] = "detect_leaks=1"
    server = subprocess.Popen(
        [suite / "serve", driver, options, listen, library],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    try:
        line = server.stdout.readline().strip()
        if line.startswith("ABSENT"):
            pytest.skip(line.removeprefix("ABSENT "))
        yield f"endpoint={line}" + (f" library={library}" if library else "")
    finally:
        server.terminate()
        out, err = server.communicate(timeout=30)
    assert server.returncode == 0, out + err
    assert out == "ended\n", err


@pytest.mark.parametrize(
    ("driver", "options"),
    [
        ("null", ""),
        *(("host", f"memory=16777216 units=2 seed={s}") for s in range(4)),
        ("native", "units=2 threads=2"),
        ("opencl", ""),
    ],
)
def test_remote(suite, driver, options):
    options += f" {offers()}" if driver == "native" else ""
    image = [] if driver == "null" else [str(suite / driver)]
    with served(suite, driver, options, "tcp://127.0.0.1:*") as words:
        computes = run(suite, "remote", words, *image) if image else []
        passed(computes or run(suite, "remote-null", words))


def test_remote_through_a_file(suite, tmp_path):
    with served(suite, "native", offers(), f"ipc://{tmp_path}/s") as words:
        passed(run(suite, "remote", words, str(suite / "native")))


def test_a_device_that_is_not_there_says_so(suite):
    [line] = [x for x in run(suite, "opencl", "index=15") if x.startswith("ABSENT")]
    assert "needed 16" in line or "libOpenCL" in line
    words = "endpoint=tcp://127.0.0.1:9 connect=50"
    [line] = [x for x in run(suite, "remote", words) if x.startswith("ABSENT")]
    assert "nothing answers within 50 ms" in line or "libzmq" in line
