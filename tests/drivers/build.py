"""Builds the conformance suite and the server for it, with sanitizers, and finds ZeroMQ."""

from __future__ import annotations

import subprocess
from pathlib import Path

from inlay.codegen.interface import Request
from inlay.codegen.llvm_generator import LlvmGenerator
from inlay.codegen.native_image import make_native_image
from inlay.codegen.opencl import OPENCL
from inlay.loop.parser import parse_function
from inlay.machine.target import host
from tests.data import REPOSITORY
from tests.drivers.kernels import TEXTS, host_table, source
from tests.runtime_c.build import PLATFORM

RUNTIME = REPOSITORY / "runtime"
HERE = REPOSITORY / "tests/drivers"
DRIVERS = [
    *(RUNTIME / "src" / name for name in ("driver_null.c", "driver_host.c", "request.c", "sha256.c")),
    *(p for p in sorted((RUNTIME / "src/platform").glob("*.c")) if p not in PLATFORM),
]  # fmt: skip
STRICT = [
    "-pedantic", "-Wall", "-Wextra", "-Wshadow",
    "-Wconversion", "-Wstrict-prototypes", "-Wundef", "-Wdouble-promotion", "-Werror",
]  # fmt: skip
INCLUDES = ["-I", str(RUNTIME / "include"), "-I", str(RUNTIME / "src")]
SANITIZE = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
NAME_OF_KERNELS = "the kernels of the conformance suite"
"""What `serve` takes as an image of the driver `host`."""


def build(folder: Path, sanitize: tuple[str, ...] = SANITIZE) -> Path:
    """Build the programs `suite` and `serve` in a folder, with an image for each driver."""
    (folder / "kernels.c").write_text(host_table())
    _compile(["-std=c11", *sanitize], PLATFORM, folder)
    _compile(["-std=c99", *STRICT, *sanitize], [*DRIVERS, folder / "kernels.c"], folder)
    objects = [folder / f"{p.stem}.o" for p in (*PLATFORM, *DRIVERS, folder / "kernels.c")]
    for name, text in (("suite", "conformance.c"), ("serve", "serve.c")):
        _run(["gcc", "-std=c99", *STRICT, *INCLUDES, *sanitize, HERE / text, *objects,
              "-o", folder / name, "-pthread", "-lm", "-ldl"])  # fmt: skip
    (folder / "host").write_text(NAME_OF_KERNELS)
    (folder / "opencl").write_text(source(OPENCL))
    (folder / "native").write_bytes(native_image())
    return folder


def native_image() -> bytes:
    """Return the kernels as native code for this machine."""
    functions = [parse_function(text) for text in TEXTS]
    made = LlvmGenerator(host(), workers=1).compile(
        [Request(f.name, lambda f=f: f) for f in functions]
    )
    sizes = {f.name: len(f.params) + bool(f.workspaces) for f in functions}
    return make_native_image(made, sizes)


def offers() -> str:
    """Return the option of `native` that says what this machine offers."""
    return "offers=" + ",".join((host().arch, *host().features))


def _compile(options: list[str], sources: list[Path], folder: Path) -> None:
    _run(["gcc", *options, *INCLUDES, "-c", *sources], folder)


def _run(command: list[object], folder: Path | None = None) -> None:
    done = subprocess.run(
        [str(w) for w in command], check=False, capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
