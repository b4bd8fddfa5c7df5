"""Builds the conformance suite and the server for it, with sanitizers, and finds ZeroMQ."""

from __future__ import annotations

import tempfile
from pathlib import Path

from inlay.codegen.interface import Request
from inlay.codegen.llvm_generator import LlvmGenerator
from inlay.codegen.native_image import make_native_image
from inlay.codegen.opencl import OPENCL
from inlay.loop.parser import parse_function
from inlay.machine.target import host, offered
from tests.data import REPOSITORY
from tests.drivers.kernels import TEXTS, host_table, source
from tests.native import compiled, linked
from tests.runtime_c.build import INCLUDES, PLATFORM, STRICT
from tests.system import lacks_sanitizer

RUNTIME = REPOSITORY / "runtime"
HERE = REPOSITORY / "tests/drivers"
DRIVERS = [
    *(RUNTIME / "src" / f"{name}.c" for name in "driver_null driver_host request sha256 waiting".split()),
    *(p for p in sorted((RUNTIME / "src/platform").glob("*.c")) if p not in PLATFORM),
]
SANITIZERS = "address,undefined"
NAME_OF_KERNELS = "the kernels of the conformance suite"
"""What `serve` takes as an image of the driver `host`."""


def build(folder: Path) -> Path:
    """Put the programs `suite` and `serve` into a folder, with an image for each driver."""
    for name, made in programs().items():
        (folder / name).symlink_to(made)
    (folder / "host").write_text(NAME_OF_KERNELS)
    (folder / "opencl").write_text(source(OPENCL))
    (folder / "native").write_bytes(native_image())
    return folder


def programs(sanitizers: str = SANITIZERS) -> dict[str, Path]:
    """Return the programs `suite` and `serve`, with sanitizers where the compiler has them."""
    sanitize = (
        ()
        if lacks_sanitizer(sanitizers)
        else ("-g1", "-O1", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all")
    )
    strict = [*STRICT, *INCLUDES, *sanitize]
    with tempfile.TemporaryDirectory() as folder:
        kernels = Path(folder) / "kernels.c"
        kernels.write_text(host_table())
        objects = [
            *compiled(PLATFORM, ["-std=c11", *INCLUDES, *sanitize]),
            *compiled([*DRIVERS, kernels], strict),
        ]
    texts = {"suite": "conformance.c", "serve": "serve.c"}
    return {
        name: linked([*compiled([HERE / text], strict), *objects], [*sanitize, "-pthread", "-lm", "-ldl"])
        for name, text in texts.items()
    }


def native_image() -> bytes:
    """Return the kernels as native code for what this machine offers to others."""
    functions = [parse_function(text) for text in TEXTS]
    made = LlvmGenerator(offered(host().offers), workers=1).compile(
        [Request(f.name, lambda f=f: f) for f in functions]
    )
    sizes = {f.name: len(f.params) + bool(f.workspaces) for f in functions}
    return make_native_image(made, sizes)


def offers() -> str:
    """Return the option of `native` that says what this machine offers."""
    return "offers=" + host().offers
