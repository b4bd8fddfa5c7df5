"""Builds the driver that runs executables under sanitizers, and runs it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.data import REPOSITORY
from tests.native import BuildError, compiled, linked
from tests.system import lacks_sanitizer

CORE = sorted((REPOSITORY / "runtime" / "src").glob("*.c"))
PLATFORM = [
    REPOSITORY / "runtime/src/platform" / name
    for name in ("parking.c", "permission.c", "pool.c", "posix.c", "team.c")
]
NATIVE = [REPOSITORY / "runtime/src/platform" / name for name in ("native.c", "native_program.c", "wire.c")]
DRIVER = REPOSITORY / "tests/runtime_c/driver.c"
ROOMS = {
    "blocks": ("address,undefined", [REPOSITORY / "runtime/src/blocks.c"]),
    "choice": ("address,undefined", [REPOSITORY / "runtime/src/choice.c"]),
    "parking": ("thread", [REPOSITORY / "runtime/src/platform/parking.c"]),
    "pool": ("thread", PLATFORM),
}
"""Tests of parts of the runtime that need no other: the sanitizer and the sources of each."""
CONFIGURED = ["-std=c11", "-D_GNU_SOURCE", "-DINLAY_POLL_INTERVAL=500", "-DINLAY_SHARED_COPY=16"]
"""So that little is enough to come to what large programs come to."""
MODES = {"sequential": 0, "parallel": 1, "replay": 2}
STRICT = [
    "-std=c99",
    "-pedantic",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wconversion",
    "-Wstrict-prototypes",
    "-Wundef",
    "-Wdouble-promotion",
    "-Werror",
]
INCLUDES = ["-I", str(REPOSITORY / "runtime" / "include"), "-I", str(REPOSITORY / "runtime/src")]


class NoSanitizerError(Exception):
    """The C compiler, or the kernel, cannot do with a sanitizer."""


def build(sanitizer: str) -> Path:
    """Return the driver with a sanitizer; it is compiled once for the sources as they are.

    But for the thread sanitizer, which looks at real time, the race detector of the runtime is in it.

    Raises:
        NoSanitizerError: the compiler has none.
    """
    flags = [*CONFIGURED]
    if sanitizer == "thread":
        flags.append("-DINLAY_RACES=0")
    return program([*CORE, *PLATFORM, *NATIVE, DRIVER], sanitizer, flags)


def together() -> Path:
    """Return the program in which calls run kernels together, under the thread sanitizer.

    Raises:
        NoSanitizerError: the compiler has none.
    """
    flags = [*CONFIGURED, "-DINLAY_RACES=0"]
    return program([*CORE, *PLATFORM, REPOSITORY / "tests/runtime_c/together.c"], "thread", flags)


def program(sources: Sequence[Path], sanitizer: str, flags: Sequence[str] = ("-std=c11",)) -> Path:
    """Return a program with a sanitizer.

    Raises:
        NoSanitizerError: the compiler has none.
    """
    sanitize = ["-O1", "-g1", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-pthread"]
    try:
        return linked(compiled(sources, [*flags, *sanitize, *INCLUDES]), sanitize)
    except BuildError as failure:
        if reason := lacks_sanitizer(sanitizer):
            raise NoSanitizerError(reason) from failure
        raise


def room(name: str) -> Path:
    """Return the program that tests a part alone.

    Raises:
        NoSanitizerError: the compiler has none.
    """
    sanitizer, sources = ROOMS[name]
    return program([*sources, REPOSITORY / f"tests/runtime_c/{name}.c"], sanitizer)


def strict_objects() -> list[Path]:
    """Return the objects of the core, compiled as strict C99 without a warning."""
    return compiled(CORE, [*STRICT, "-O1", *INCLUDES])


def drive(
    driver: Path,
    files: Sequence[Path],
    limit: int = 0,
    mode: str = "sequential",
    seed: int = 0,
    *,
    is_flow: bool = False,
    has_device: bool = False,
    spoil: tuple[int, int] = (0, 0),
    is_spare: bool = False,
    has_code: bool = False,
) -> list[str]:
    """Run files one after the other; return a line for each. See `driver.c`.

    Raises:
        NoSanitizerError: the thread sanitizer does not run on this kernel.
    """
    flow = 2 if has_device else int(is_flow)
    done = subprocess.run(
        [
            driver,
            f"{limit},{MODES[mode]},{seed},{flow},{spoil[0]},{spoil[1]},{2 * has_code},{int(is_spare)}",
            *files,
        ],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
    )
    if "unexpected memory mapping" in done.stderr:
        raise NoSanitizerError("the thread sanitizer does not run on this kernel")
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    return done.stdout.splitlines()


def write(folder: Path, datas: Sequence[bytes]) -> list[Path]:
    """Write files; return their paths."""
    paths = [folder / f"{index}.inlay" for index in range(len(datas))]
    for path, data in zip(paths, datas, strict=True):
        path.write_bytes(data)
    return paths
