"""An image of the code generator runs in the machine: from memory, from a file, on threads."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.bytecode import formula, writer
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Constant, Entry, ImageBody, ImageTarget, Kernel, Phase, Program
from inlay.bytecode.spec import Symbol
from inlay.codegen.interface import Request
from inlay.codegen.llvm_generator import LlvmGenerator
from inlay.loop.parser import parse_function
from inlay.machine.target import host
from inlay.runtime.session import executable_of, load_executable
from tests.unit.runtime.programs import spec

pytestmark = pytest.mark.llvm

DENSE = """\
lowered func dense(x: f32[m, 24], w: f32[3, 24, 32]) -> (y: f32[m, 96]) over (m) {
  assert [m] < 1000:i64, "fewer than 1000 rows"
  for j in 0..3 parallel {
    for i in 0..m {
      alloc acc: f32[32] @register
      for l in 0..32 vector { acc[l] = 0.0:f32 }
      for k in 0..24 {
        for l in 0..32 vector { acc[l] = fma(x[i, k], w[j, k, l], acc[l]) }
      }
      for l in 0..32 vector { y[i, j*32 + l] = max(acc[l], 0.0:f32) }
    }
  }
}
"""
WEIGHTS = np.random.default_rng(3).standard_normal((3, 24, 32)).astype(np.float32)


@pytest.fixture(scope="module")
def program() -> Program:
    """x: f32[m, 24] -> relu(x @ w)."""
    generator = LlvmGenerator(host())
    artifact = generator.compile([Request("dense", lambda: parse_function(DENSE))])
    code = artifact.kernels["dense"]
    b = ProgramBuilder(image=artifact.image.data, target=ImageTarget(host().triple, artifact.image.features))
    kernel = b.kernel(
        Kernel(
            "dense",
            (AccessCode.READ, AccessCode.READ, AccessCode.WRITE),
            len(code.dims),
            ImageBody(tuple(Phase(p.offset, p.parallel) for p in code.phases)),
            assertions=code.assertions,
        )
    )
    weights = b.constant(Constant("f32", WEIGHTS.shape, WEIGHTS))
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    main.emit("COPY", 0), main.emit("DIM", 0)
    main.emit("COPY", 1), main.emit("INT", 96), main.emit("ALLOCATE", 0, "f32", 2)
    main.emit("MOVE", 0), main.emit("CONST", weights), main.emit("COPY", 2)
    main.emit("COPY", 1), main.emit("INVOKE", kernel)
    main.emit("RETURN")
    m = ["m"]
    b.entry(
        Entry(
            "main",
            main.index,
            (spec("x", "f32", "m, 24", m),),
            (spec("y", "f32", "m, 96", m),),
            (Symbol("m", 0, 0, formula.parse("d", ["d"])),),
        )
    )
    return b.finish()


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ WEIGHTS.transpose(1, 0, 2).reshape(24, 96), 0)


@pytest.mark.parametrize("engine", ["native", "python"])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_from_memory(program, engine, threads):
    exe = executable_of(program, engine=engine, threads=threads)
    for rows in (0, 1, 17):
        x = np.random.default_rng(rows).standard_normal((rows, 24)).astype(np.float32)
        np.testing.assert_allclose(exe(x), expected(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(RunError, match="fewer than 1000 rows") as caught:
        exe(np.zeros((1000, 24), np.float32))
    assert caught.value.ids == ("run.check-failed",)


def test_from_a_file(program, tmp_path):
    writer.save(program, tmp_path / "dense.inlay")
    exe = load_executable(tmp_path / "dense.inlay", threads=2)
    x = np.ones((5, 24), np.float32)
    np.testing.assert_allclose(exe.run({"x": x})["y"], expected(x), rtol=1e-5, atol=1e-5)
