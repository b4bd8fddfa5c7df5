"""Build of the native parts: the C runtime with its extension module, the search of packing, and more.

Everything else is declared in pyproject.toml. The portable runtime lives in ``runtime/`` (C99, one
public header); ``src/inlay/runtime/_ext`` wraps it for Python with the limited API, so one wheel
serves every Python from 3.11 on. Sources are found by glob: a new ``.c`` file needs no edit here.

A wheel carries the runtime as sources too, in ``inlay/runtime/c``: operators in C include its
headers, and a program that embeds Inlay compiles it. In a checkout both are in ``runtime/``, where
``inlay.get_include`` finds them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
# One platform layer is chosen per build; the extension module runs on hosts.
_OTHERS = {"bare.c", "win32.c"}
_POSIX = {path.name for path in (ROOT / "runtime/src/platform").glob("*.c")} - _OTHERS
OTHER_PLATFORMS = _OTHERS if sys.platform != "win32" else {"bare.c"} | _POSIX
LIMITED_API = "0x030B0000"


def _files(*patterns: str) -> list[str]:
    found = (path for pattern in patterns for path in ROOT.glob(pattern))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def _extensions() -> list[Extension]:
    wrapper = _files("src/inlay/runtime/_ext/*.c")
    if not wrapper:
        return []
    portable = [
        path
        for path in _files("runtime/src/**/*.c")
        if not (path.startswith("runtime/src/platform/") and Path(path).name in OTHER_PLATFORMS)
    ]
    headers = _files(
        "runtime/include/**/*.h", "runtime/src/**/*.h", "runtime/src/**/*.inc", "src/inlay/runtime/_ext/*.h"
    )
    return [
        Extension(
            "inlay.runtime._runtime",
            sources=wrapper + portable,
            depends=headers,
            include_dirs=["runtime/include", "runtime/src", "src/inlay/runtime/_ext"],
            define_macros=[("Py_LIMITED_API", LIMITED_API)],
            extra_compile_args=[
                "-std=c11",
                "-O2",
                "-g0",
                "-pthread",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
                "-Wshadow",
                "-Wstrict-prototypes",
                "-Wundef",
            ],
            extra_link_args=["-pthread"],
            libraries=["m"] if sys.platform == "darwin" else ["m", "dl"],
            py_limited_api=True,
        ),
        _permission(),
        _packing(),
        *(_model(path) for path in _files("src/inlay/accelerators/*_model.c")),
    ]


def _permission() -> Extension:
    """Return what asks the operating system for registers, for the description of this machine."""
    sources = [*_files("src/inlay/machine/_ext/*.c"), "runtime/src/platform/permission.c"]
    return Extension(
        "inlay.machine._permission",
        sources=sources,
        depends=["runtime/src/on_request.h", "runtime/src/platform/permission.h"],
        include_dirs=["runtime/src"],
        define_macros=[("Py_LIMITED_API", LIMITED_API)],
        extra_compile_args=["-std=c11", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wshadow"],
        py_limited_api=True,
    )


def _packing() -> Extension:
    """Return the search of packing: an extension module by itself, in C99."""
    folder = "src/inlay/packing/_ext"
    return Extension(
        "inlay.packing._search",
        sources=_files(f"{folder}/*.c"),
        depends=_files(f"{folder}/*.h"),
        include_dirs=[folder],
        define_macros=[("Py_LIMITED_API", LIMITED_API)],
        extra_compile_args=["-std=c99", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wshadow"],
        py_limited_api=True,
    )


def _model(path: str) -> Extension:
    """Return a model of an accelerator: a library that is loaded by its file, and is no module."""
    name = f"inlay.accelerators._{Path(path).stem}"
    flags = ["-std=c11", "-O2", "-g0", "-ffp-contract=off", "-Wall", "-Wextra"]
    return Extension(
        name,
        sources=[path],
        depends=["src/inlay/accelerators/stream_model.h"],
        extra_compile_args=flags,
        py_limited_api=True,
    )


class BuildWithRuntime(build_py):
    """Copies what operators in C and embedding programs compile into the package of a wheel."""

    def run(self):
        super().run()
        if not self.editable_mode:
            package = Path(self.build_lib, "inlay", "runtime", "c")
            shutil.copytree(ROOT / "runtime", package, dirs_exist_ok=True)


setup(
    ext_modules=_extensions(),
    cmdclass={"build_py": BuildWithRuntime},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
