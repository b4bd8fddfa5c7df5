"""Native code for matrix units in a C program: it runs after the system was asked, and never without."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from inlay.bytecode import writer
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Constant, Entry, ImageBody, ImageTarget, Kernel, Phase
from inlay.bytecode.spec import Dim, TensorSpec
from inlay.codegen.interface import Request
from inlay.codegen.llvm_generator import LlvmGenerator
from inlay.machine.matrix_units import TILE_FEATURES
from inlay.machine.target import Target, host
from tests.runtime_c.build import build, write
from tests.system import lacks_sanitizer, needs
from tests.unit.codegen.support import parsed
from tests.unit.codegen.test_matrices import expected, operands, program

pytestmark = [pytest.mark.cc, pytest.mark.llvm, needs("gcc")]
PLAIN = replace(host(), features=tuple(f for f in host().features if f not in TILE_FEATURES))
FACTORS = operands("u8i8", 8, 16, 32, 1)
RESULT = "ok 3:2,8,32,:" + expected(*FACTORS).tobytes().hex()


@pytest.fixture(scope="module")
def driver() -> Path:
    if reason := lacks_sanitizer("address,undefined"):
        pytest.skip(reason)
    return build("address,undefined")


def product(here: Target, features: tuple[str, ...] = ()) -> bytes:
    """Return a file that multiplies two constants, with code for a target that says to need more features."""
    made = LlvmGenerator(here, workers=1).compile([Request("f", lambda: parsed(program("u8i8", 4, 16)))])
    code = made.kernels["f"]
    needed = tuple(sorted({*made.image.features, *features}))
    b = ProgramBuilder(image=made.image.data, target=ImageTarget(here.triple, needed))
    phases = tuple(Phase(p.offset, p.parallel) for p in code.phases)
    reads = (AccessCode.READ, AccessCode.READ, AccessCode.WRITE)
    kernel = b.kernel(Kernel("f", reads, len(code.dims), ImageBody(phases)))
    x, w = (b.constant(Constant(name, v.shape, v)) for name, v in zip(("u8", "i8"), FACTORS, strict=True))
    main = b.function("main", [Kind.TENSOR, Kind.TENSOR], [Kind.TENSOR])
    for n in (2, 8, 32):
        main.emit("INT", n)
    main.emit("ALLOCATE", 0, "i32", 3)
    made_at = main.depth - 1
    main.emit("CONST", x), main.emit("CONST", w), main.emit("COPY", made_at)
    main.emit("INT", 1), main.emit("INVOKE", kernel)
    main.emit("COPY", made_at), main.emit("RETURN")
    inputs = (
        TensorSpec("x", "i64", (Dim("3", (3,)),)),
        TensorSpec("y", "f32", (Dim("2", (2,)), Dim("3", (3,)))),
    )
    outputs = (TensorSpec("z", "i32", tuple(Dim(str(n), (n,)) for n in (2, 8, 32))),)
    b.entry(Entry("main", main.index, inputs, outputs))
    return writer.to_bytes(b.finish())


def lines(driver: Path, maps: int, files: list[Path]) -> list[str]:
    done = subprocess.run(
        [driver, f"0,0,0,0,0,0,{maps}", *files], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    return done.stdout.splitlines()


def test_a_program_that_asks_runs_what_this_machine_has(driver: Path, tmp_path: Path) -> None:
    """With matrix units that is their code, in a process where nobody else has asked."""
    assert lines(driver, 2, write(tmp_path, [product(host())])) == [RESULT]


def test_a_program_that_does_not_ask_or_is_refused_is_told(driver: Path, tmp_path: Path) -> None:
    files = write(tmp_path, [product(PLAIN, tuple(TILE_FEATURES))])
    [silent], [refused] = (lines(driver, maps, files) for maps in (1, 3))
    for line, why in ((silent, "nobody asks the system"), (refused, "does not let the process use")):
        assert line.startswith("container.permission the native code uses amx-int8, ")
        assert why in line


def test_code_that_needs_no_leave_runs_without(driver: Path, tmp_path: Path) -> None:
    files = write(tmp_path, [product(PLAIN)])
    assert [lines(driver, maps, files) for maps in (1, 3)] == [[RESULT], [RESULT]]
