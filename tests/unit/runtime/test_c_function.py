"""Kernels that are C functions over tensors: both machines, and what happens when they fail."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from inlay.base.diagnostics import CompileError, RunError
from inlay.bytecode import formula
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, FunctionBody, Kernel, Program
from inlay.bytecode.spec import Dim, Symbol, TensorSpec
from inlay.runtime.session import executable_of
from tests.system import needs

pytestmark = [pytest.mark.cc, needs("cc")]
RUNTIME = Path(__file__).parents[3] / "runtime"
SOURCE = """
#include <string.h>
#include "inlay_extern.h"
int32_t reverse(const inlay_call_t *call)
{
    const inlay_tensor_t *x = call->inputs, *y = call->outputs;
    int64_t n = x->dims[0], i;
    if (call->n_inputs != 1 || call->n_outputs != 1 || x->rank != 1 || x->dtype != INLAY_I64 ||
        y->dtype != INLAY_I64 || y->dims[0] != n) return 99;
    for (i = 0; i < n; i++) {
        int64_t value = ((const int64_t *)x->data)[i];
        if (value == -1) return 7;
        if (value == -2) {
            strncpy(call->message, "no -2, please", call->message_bytes);
            return -8;
        }
        if (value == -3) { /* a message without an end */
            memset(call->message, 'a', call->message_bytes);
            return 9;
        }
        ((int64_t *)y->data)[n - 1 - i] = value;
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> int:
    folder = tmp_path_factory.mktemp("c")
    (folder / "f.c").write_text(SOURCE)
    subprocess.run(
        [
            "cc",
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-shared",
            "-fPIC",
            f"-I{RUNTIME / 'include'}",
            str(folder / "f.c"),
            "-o",
            str(folder / "f.so"),
        ],
        check=True,
    )
    library = ctypes.CDLL(str(folder / "f.so"))
    return ctypes.cast(library.reverse, ctypes.c_void_p).value or 0


def reversing() -> Program:
    b = ProgramBuilder()
    kernel = b.kernel(Kernel("k", (AccessCode.READ, AccessCode.WRITE), 0, FunctionBody("my.reverse")))
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    main.at("node 'r'")
    main.emit("COPY", 0), main.emit("DIM", 0), main.emit("ALLOCATE", 0, "i64", 1)
    main.emit("COPY", 0), main.emit("COPY", 1), main.emit("INVOKE", kernel), main.emit("RETURN")
    dims = (Dim("n", formula.parse("n", ["n"])),)
    x, y = TensorSpec("x", "i64", dims), TensorSpec("y", "i64", dims)
    symbol = Symbol("n", 0, 0, formula.parse("d", ["d"]))
    b.entry(Entry("main", main.index, (x,), (y,), (symbol,)))
    return b.finish()


@pytest.mark.parametrize("engine", ["native", "python"])
def test_functions_read_and_write_tensors(address, engine):
    exe = executable_of(reversing(), symbols={"my.reverse": address}, engine=engine)
    for n in (0, 1, 5):
        assert (exe(np.arange(n)) == np.arange(n)[::-1]).all()


@pytest.mark.parametrize("engine", ["native", "python"])
def test_functions_fail_with_a_place(address, engine):
    exe = executable_of(reversing(), symbols={"my.reverse": address}, engine=engine)
    for value, said in (
        (-1, "operator 'my.reverse' failed with status 7"),
        (-2, "operator 'my.reverse' failed with status -8: no -2, please"),
        (-3, "operator 'my.reverse' failed with status 9: aaaa"),
    ):
        with pytest.raises(RunError) as caught:
            exe(np.array([1, value, 2]))
        (finding,) = caught.value.diagnostics
        assert finding.id == "run.kernel-failed"
        assert finding.message == said or (value == -3 and finding.message.startswith(said))
        assert finding.notes == ("in 'main' at node 'r'",)
    assert (exe(np.arange(3)) == [2, 1, 0]).all()


@pytest.mark.parametrize("engine", ["native", "python"])
def test_functions_must_be_given(engine):
    with pytest.raises(CompileError) as caught:
        executable_of(reversing(), engine=engine)
    assert caught.value.ids == ("container.symbol",)
