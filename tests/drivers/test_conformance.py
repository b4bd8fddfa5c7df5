"""Every driver passes one suite, under the address and undefined-behavior sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from inlay.codegen.opencl import OPENCL_C
from tests.data import REPOSITORY
from tests.drivers.kernels import host_table, source

RUNTIME = REPOSITORY / "runtime"
STRICT = [
    "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wshadow",
    "-Wconversion", "-Wstrict-prototypes", "-Wundef", "-Wdouble-promotion", "-Werror",
    "-I", str(RUNTIME / "include"), "-I", str(RUNTIME / "src"),
]  # fmt: skip
SANITIZE = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

pytestmark = [
    pytest.mark.cc,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler"),
]


@pytest.fixture(scope="module")
def suite(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("drivers")
    (folder / "kernels.c").write_text(host_table())
    sources = [folder / "kernels.c", REPOSITORY / "tests/drivers/conformance.c",
               RUNTIME / "src/driver_null.c", RUNTIME / "src/driver_host.c",
               *sorted((RUNTIME / "src/platform").glob("opencl*.c"))]  # fmt: skip
    command = ["gcc", *STRICT, *SANITIZE, "-DWITH_OPENCL", *sources, "-o", folder / "suite",
               "-pthread", "-lm", "-ldl"]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder / "kernels.cl").write_text(source(OPENCL_C))
    return folder


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
    assert len(names) == len(lines) == 16


def test_null(suite):
    passed(run(suite, "null", ""))


@pytest.mark.parametrize("options", ["", *(f"units=2 seed={s}" for s in range(8))])
def test_host(suite, options):
    passed(run(suite, "host", f"memory=16777216 {options}"))


@pytest.mark.parametrize("options", ["", "units=2"])
def test_opencl(suite, options):
    passed(run(suite, "opencl", options, str(suite / "kernels.cl")))


def test_a_device_that_is_not_there_says_so(suite):
    [line] = [x for x in run(suite, "opencl", "index=15") if x.startswith("ABSENT")]
    assert "needed 16" in line or "libOpenCL" in line
