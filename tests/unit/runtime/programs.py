"""Small programs that the tests of this package share."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from inlay.bytecode import formula
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, HostBody, Kernel, Program, Requirement
from inlay.bytecode.spec import Dim, Symbol, TensorSpec
from inlay.machine.target import host
from tests.system import need


def dims(text: str, symbols: list[str]) -> tuple[Dim, ...]:
    """Read `n, 2*n, 64` as dims over symbols."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(Dim(part, formula.parse(part, symbols)) for part in parts)


def spec(name: str, dtype: str, text: str, symbols: list[str]) -> TensorSpec:
    return TensorSpec(name, dtype, dims(text, symbols))


def doubling(bound: int = 8) -> Program:
    """x: f32[n, 4], n <= bound -> y = 2 * x by a callback `dbl`."""
    b = ProgramBuilder()
    kernel = b.kernel(Kernel("dbl", (AccessCode.READ, AccessCode.WRITE), 0, HostBody("dbl")))
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    main.at("model.onnx: node 'Mul_0'")
    main.emit("COPY", 0), main.emit("DIM", 0), main.emit("INT", 4)
    main.emit("ALLOCATE", 0, "f32", 2)
    main.emit("MOVE", 0), main.emit("COPY", 1), main.emit("INVOKE", kernel)
    main.emit("RETURN")
    n = ["n"]
    b.entry(
        Entry(
            "main",
            main.index,
            (spec("x", "f32", "n, 4", n),),
            (spec("y", "f32", "n, 4", n),),
            (Symbol("n", 0, 0, formula.parse("d", ["d"])),),
            (Requirement(f"n <= {bound}", formula.parse(f"n <= {bound}", n)),),
        )
    )
    return b.finish()


def dbl(tensors: list[np.ndarray], integers: list[int]) -> None:
    assert not integers
    tensors[1][...] = 2 * tensors[0]


def native_image(source: str, tmp_path: Path, names: list[str]) -> tuple[bytes, list[int]]:
    """Compile C functions to position-independent bytes; return them and where each begins."""
    need("gcc", "objcopy", "nm")
    c, o, image = (tmp_path / f"image.{end}" for end in ("c", "o", "bin"))
    c.write_text("#include <stdint.h>\n#include <stddef.h>\n" + source)
    flags = [
        "-O1",
        "-fPIC",
        "-fno-stack-protector",
        "-fno-asynchronous-unwind-tables",
        "-fno-jump-tables",
        "-mcmodel=small",
        *(("-mno-sse", "-fcf-protection=none") if host().arch == "x86_64" else ()),
    ]
    subprocess.run(["gcc", *flags, "-c", c, "-o", o], check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", o, image], check=True)
    table = subprocess.run(["nm", o], check=True, capture_output=True, text=True).stdout
    found = {line.split()[2]: int(line.split()[0], 16) for line in table.splitlines()}
    return image.read_bytes(), [found[name] for name in names]
