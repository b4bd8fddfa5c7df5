"""Builds the driver that runs executables under sanitizers, and runs it."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.data import REPOSITORY
from tests.system import lacks_sanitizer

CORE = sorted((REPOSITORY / "runtime" / "src").glob("*.c"))
PLATFORM = [REPOSITORY / "runtime/src/platform" / name for name in ("pool.c", "posix.c", "team.c")]
NATIVE = [
    REPOSITORY / "runtime/src/platform" / name
    for name in ("native.c", "native_program.c", "wire.c")
]
MODES = {"sequential": 0, "parallel": 1, "replay": 2}
INCLUDES = ["-I", str(REPOSITORY / "runtime" / "include"), "-I", str(REPOSITORY / "runtime/src")]


class NoSanitizerError(Exception):
    """The C compiler, or the kernel, cannot do with a sanitizer."""


def build(sanitizer: str) -> Path:
    """Return the driver with a sanitizer; it is compiled once for the sources as they are.

    But for the thread sanitizer, which looks at real time, the race detector of the runtime is in it.

    Raises:
        NoSanitizerError: the compiler has none.
    """
    sources = [*CORE, *PLATFORM, *NATIVE, REPOSITORY / "tests/runtime_c/driver.c"]
    folder = REPOSITORY / "build" / "sanitized"
    name = f"{sanitizer.replace(',', '-')}-{_digest(sources)}"
    if not (folder / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            _compile(sources, sanitizer, Path(place) / name).replace(folder / name)
    return folder / name


def _digest(sources: Sequence[Path]) -> str:
    read = sorted([*sources, *REPOSITORY.glob("runtime/**/*.h"), *REPOSITORY.glob("runtime/**/*.inc")])
    return hashlib.sha256(b"".join(p.read_bytes() for p in [*read, Path(__file__)])).hexdigest()[:16]


def _compile(sources: Sequence[Path], sanitizer: str, program: Path) -> Path:
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", f"-fsanitize={sanitizer}", "-pthread",
             "-fno-sanitize-recover=all", "-DINLAY_POLL_INTERVAL=500"]  # fmt: skip
    if sanitizer == "thread":
        flags.append("-DINLAY_RACES=0")
    done = subprocess.run(
        ["gcc", *flags, *INCLUDES, *sources, "-o", program],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode and (reason := lacks_sanitizer(sanitizer)):
        raise NoSanitizerError(reason)
    assert done.returncode == 0, done.stderr
    return program


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
) -> list[str]:
    """Run files one after the other; return a line for each. See `driver.c`.

    Raises:
        NoSanitizerError: the thread sanitizer does not run on this kernel.
    """
    flow = 2 if has_device else int(is_flow)
    done = subprocess.run(
        [driver, f"{limit},{MODES[mode]},{seed},{flow},{spoil[0]},{spoil[1]}", *files],
        check=False, capture_output=True, text=True, errors="replace", timeout=300,
    )  # fmt: skip
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
