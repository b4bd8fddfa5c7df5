"""Phases in pieces: forwards and backwards in turn, whatever the number of threads."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, ImageBody, ImageTarget, Kernel, Phase
from inlay.machine.target import host
from inlay.runtime.session import executable_of
from tests.unit.runtime.programs import native_image, spec

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the image of this test is x86-64 code"
)
CODE = """
int64_t begin(void *const *b, const int64_t *n, int64_t part, int64_t parts) {
    ((int64_t *)b[1])[0] = 0;
    return 0;
}
int64_t each(void *const *b, const int64_t *n, int64_t part, int64_t parts) {
    const int64_t *x = b[0]; int64_t *y = b[1];
    for (int64_t i = 6 * part / parts; i < 6 * (part + 1) / parts; i++) {
        if (x[i] < 0) return -x[i];
        y[1 + i] = x[i] < 1000 ? y[0]++ : x[i];
    }
    return 0;
}
"""
X = np.arange(6)


def program(tmp_path, pieces: int):
    """x: i64[6] -> y: i64[7], where y[1 + i] says when i was its turn, or x[i] where that is large."""
    image, (begin, each) = native_image(CODE, tmp_path, ["begin", "each"])
    b = ProgramBuilder(image=image, target=ImageTarget(host().triple, ()))
    phases = (Phase(begin), Phase(each, parallel=True, pieces=pieces))
    ports = (AccessCode.READ, AccessCode.WRITE)
    kernel = b.kernel(Kernel("turns", ports, 0, ImageBody(phases), assertions=("first", "second", "third")))
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    main.emit("INT", 7), main.emit("ALLOCATE", 0, "i64", 1)
    main.emit("COPY", 0), main.emit("COPY", 1), main.emit("INVOKE", kernel), main.emit("RETURN")
    b.entry(Entry("main", main.index, (spec("x", "i64", "6", []),), (spec("y", "i64", "7", []),)))
    return b.finish()


def test_every_second_run_goes_backwards(tmp_path):
    exe = executable_of(program(tmp_path, 3), threads=1)
    assert exe(X)[1:].tolist() == [0, 1, 2, 3, 4, 5]
    assert exe(X)[1:].tolist() == [4, 5, 2, 3, 0, 1]
    assert exe(X)[1:].tolist() == [0, 1, 2, 3, 4, 5]


def test_one_piece_goes_forwards(tmp_path):
    exe = executable_of(program(tmp_path, 1), threads=1)
    assert [exe(X)[1:].tolist() for _ in range(2)] == [[0, 1, 2, 3, 4, 5]] * 2


@pytest.mark.sample(20)
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("pieces", [1, 2, 3, 16])
@pytest.mark.parametrize("mode", ["sequential", "parallel", "replay"])
def test_all_is_done_and_the_first_failure_counts(tmp_path, threads, pieces, mode):
    exe = executable_of(program(tmp_path, pieces), threads=threads, mode=mode)
    failing = np.array([1000, -2, 1000, -1, -3, 1000])
    for _ in range(4):
        assert exe(X + 1000)[1:].tolist() == (X + 1000).tolist()
        with pytest.raises(RunError, match="second"):
            exe(failing)
