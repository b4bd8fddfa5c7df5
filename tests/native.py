"""C programs of tests, compiled once for the sources as they are: `python -m tests.native` builds all.

An object is named by a digest of all that it depends on, a program by its objects, so that what did
not change is found in `build/native`, also by another process and another run.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.data import REPOSITORY

FOLDER = REPOSITORY / "build" / "native"
JOBS = 2
"""Compilers that run at a time."""


class BuildError(Exception):
    """The compiler says no; the message is what it said."""


def compiled(sources: Sequence[Path], flags: Sequence[str]) -> list[Path]:
    """Return an object for each source.

    Raises:
        BuildError: one does not compile.
    """
    with ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(lambda source: _object(source, flags), sources))


def linked(objects: Sequence[Path], flags: Sequence[str]) -> Path:
    """Return a program of objects.

    Raises:
        BuildError: it does not link.
    """
    name = _digest([p.name for p in objects], flags)
    return _made(f"{name}.exe", ["gcc", *map(str, objects), *flags])


def _object(source: Path, flags: Sequence[str]) -> Path:
    name = f"{source.stem}-{_digest([source.read_text()], flags)}.o"
    return _made(name, ["gcc", *flags, "-c", str(source)])


def _made(name: str, command: Sequence[str]) -> Path:
    """Run a command that writes a file, where it is not there; one that others read is whole."""
    if not (FOLDER / name).exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as place:
            done = subprocess.run(
                [*command, "-o", f"{place}/{name}"], check=False, capture_output=True, text=True
            )
            if done.returncode:
                raise BuildError(done.stderr)
            Path(place, name).replace(FOLDER / name)
    return FOLDER / name


def _digest(parts: Sequence[str], flags: Sequence[str]) -> str:
    text = "\0".join([*parts, *flags, _surroundings()])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@functools.cache
def _surroundings() -> str:
    """Return what every object depends on: the compiler and the headers."""
    gcc = subprocess.run(["gcc", "--version"], check=True, capture_output=True, text=True).stdout
    places = ("runtime/**/*.h", "runtime/**/*.inc", "src/inlay/packing/_ext/*.h")
    headers = sorted(p for place in places for p in REPOSITORY.glob(place))
    return gcc + "".join(p.read_text() for p in headers)


def main() -> None:
    """Make what tests share, as far as this machine can."""
    from tests.drivers.build import programs
    from tests.onnx_tests import load
    from tests.runtime_c.build import ROOMS, NoSanitizerError, build, room, strict_objects, together
    from tests.system import absent

    load("node")
    if absent("gcc"):
        return
    strict_objects()
    programs(), programs("thread")
    kinds = [functools.partial(build, sanitizer) for sanitizer in ("address,undefined", "thread")]
    for make in (*kinds, together, *(functools.partial(room, name) for name in ROOMS)):
        try:
            make()
        except NoSanitizerError as failure:
            print(f"without programs of tests: {failure}")


if __name__ == "__main__":
    main()
