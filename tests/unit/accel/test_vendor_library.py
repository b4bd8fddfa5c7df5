"""Libraries of vendors: arguments and structures of C, what they return, and programs that only they read."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.accel.backend import backend_in_file
from inlay.accel.compilers import Compiler
from inlay.accel.kit import Checked, checks
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.calls import CALLS
from inlay.runtime.session import executable_of, load_executable
from tests.system import needs

pytestmark = [pytest.mark.llvm, pytest.mark.cc, needs("cc")]

HEADER = """
#include <stdint.h>
typedef struct { int32_t depth; int64_t rows; uint8_t columns; } vendor_sizes;
typedef struct { const vendor_sizes *sizes; const int8_t *x, *w; const int32_t *b; } vendor_job;
int vendor_multiply(const vendor_job *job, int32_t *y, int16_t mode);
void *vendor_load(const uint8_t *data, int64_t bytes);
void vendor_unload(void *program);
int vendor_run(void *program, const int8_t *x, int32_t *y, int32_t rows);
"""
LIBRARY = """
#include <stdlib.h>
#include <string.h>
#include "vendor.h"
int vendor_multiply(const vendor_job *j, int32_t *y, int16_t mode) {
    const vendor_sizes *s = j->sizes;
    if (mode != -3) { return 1; }
    if (s->rows > 3) { return -2; }
    for (int64_t n = 0; n < s->rows; ++n) {
        for (int k = 0; k < s->columns; ++k) {
            y[n * s->columns + k] = j->b[k];
            for (int c = 0; c < s->depth; ++c) {
                y[n * s->columns + k] += j->x[n * s->depth + c] * j->w[c * s->columns + k];
            }
        }
    }
    return 0;
}
/* A program: 'M', its depth and columns as bytes, then biases of two bytes, then weights a column after the other. */
void *vendor_load(const uint8_t *data, int64_t bytes) {
    if (bytes < 3 || data[0] != 'M') { return NULL; }
    uint8_t *made = malloc((size_t)bytes);
    memcpy(made, data, (size_t)bytes);
    return made;
}
void vendor_unload(void *program) { free(program); }
int vendor_run(void *program, const int8_t *x, int32_t *y, int32_t rows) {
    const uint8_t *p = program, *b = p + 3;
    int depth = p[1], columns = p[2];
    const int8_t *w = (const int8_t *)(b + 2 * columns);
    for (int n = 0; n < rows; ++n) {
        for (int k = 0; k < columns; ++k) {
            int32_t sum = (int16_t)(b[2 * k] | b[2 * k + 1] << 8);
            for (int c = 0; c < depth; ++c) { sum += x[n * depth + c] * w[k * depth + c]; }
            y[n * columns + k] = sum;
        }
    }
    return 0;
}
"""
SOURCE = '''
"""Products of a library."""
from inlay.accel.api import *


class Vendor(Accelerator):
    """Products."""

    ram, run, clock = Shared(), Queue(), 10**12
    emit = CCalls(returns=i32, faults={-2: "more than 3 rows"}, header="vendor.h")
    assembler = Compiler("PYTHON", "FOLDER/assembler.py", "{source}", "{result}", suffix=".s")

    @pattern
    def dense(self, p):
        x, w, b = p.tensor("x", i8), p.const("w", i8), p.const("b", i32)
        return p.call(p.dense(x, w) + b, self.multiply, x=x, w=w, b=b)

    N, C, K = Dim(0), Dim(1, 255), Dim(1, 255)

    @instruction(
        run, y=Out(ram, i32, (N, K)), x=In(ram, i8, (N, C)), w=In(ram, i8, (C, K)), b=In(ram, i32, (K,)), cycles=1
    )
    def multiply(self, y, x, w, b):
        for n, k in nest(y.shape):
            y[n, k] = b[k]
            for (c,) in nest(w.shape[0]):
                y[n, k] += i32(x[n, c]) * i32(w[c, k])

    @encodes(multiply)
    def product(self, c):
        ENCODING

    drivers = (Library("vendor.so"),)
'''
CALL = """sizes = struct("vendor_sizes", depth=i32(c.C), rows=c.N, columns=u8(c.K))
        job = struct("vendor_job", sizes=sizes, x=c.x, w=c.w, b=c.b)
        return call("vendor_multiply", job, c.y, i16(-3))"""
PROGRAM = """w, b = c.w.values, c.b.values
        if abs(b).max() >= 2**15:
            raise ValueError("biases have 16 bits")
        data = bytes([77, *w.shape]) + b.astype("<i2").tobytes() + w.T.tobytes()
        made = program(data, open="vendor_load", close="vendor_unload")
        return call("vendor_run", made, c.x, c.y, i32(c.N))"""
PACKED = """sizes = struct("vendor_sizes", depth=i32(c.C), rows=c.N, columns=u8(c.K))
        w = program(c.w.values.tobytes())
        return call("vendor_multiply", struct("vendor_job", sizes=sizes, x=c.x, w=w, b=c.b), c.y, i16(-3))"""
TEXT = """w, b = c.w.values, c.b.values
        text = f"matrix {w.shape[0]} {w.shape[1]}\\n" + " ".join(map(str, [*b, *w.T.ravel()]))
        made = program(self.assembler(text), open="vendor_load", close="vendor_unload")
        return call("vendor_run", made, c.x, c.y, i32(c.N))"""
ASSEMBLER = """
import struct, sys
head, body = open(sys.argv[1]).read().splitlines()
(_, depth, columns), numbers = head.split(), [int(x) for x in body.split()]
columns = int(columns)
if columns == 7:
    sys.exit("assembler: no seven columns")
with open(sys.argv[2], "wb") as out:
    out.write(bytes([77, int(depth), columns]) + struct.pack(f"<{columns}h", *numbers[:columns]))
    out.write(struct.pack(f"{len(numbers) - columns}b", *numbers[columns:]))
"""
BOARD = (
    (Path(__file__).parents[3] / "examples" / "accelerators" / "dsp.toml")
    .read_text(encoding="utf-8")
    .replace("dsp", "vendor")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("vendor")
    (made / "vendor.h").write_text(HEADER, encoding="utf-8")
    (made / "vendor.c").write_text(LIBRARY, encoding="utf-8")
    (made / "assembler.py").write_text(ASSEMBLER, encoding="utf-8")
    (made / "vendor.toml").write_text(BOARD, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made / "vendor.so", made / "vendor.c"], check=True)
    return made


def described(folder: Path, encoding: str, old: str = "", new: str = "") -> Path:
    text = SOURCE.replace("ENCODING", encoding).replace("PYTHON", sys.executable)
    assert old in text
    path = folder / "vendor.py"
    path.write_text(text.replace("FOLDER", str(folder)).replace(old, new, 1), encoding="utf-8")
    return path


def two_layers(columns: int = 9) -> tuple[str, list[np.ndarray]]:
    """Return a program with two products of equal shapes, and what they multiply by and add."""
    rng = np.random.default_rng(5)
    made = [rng.integers(-128, 128, (columns, columns)) for _ in range(2)] + [
        rng.integers(-999, 999, columns) for _ in range(2)
    ]
    w, v, a, b = (", ".join(map(str, x.ravel())) for x in made)
    shape = f"{columns}, {columns}"
    text = (
        f"fn main<n>(x: Tensor[n, {columns}, i8]) {{\n"
        f"  let y = add(matmul_integer(x, i8[{shape}]({w})), i32[{columns}]({a}));\n"
        f"  add(matmul_integer(cast{{dtype=i8}}(y), i8[{shape}]({v})), i32[{columns}]({b}))\n}}\n"
        'entry main("x") -> ("y");\n'
    )
    return text, made


def wanted(x: np.ndarray, made: list[np.ndarray]) -> np.ndarray:
    w, v, a, b = made
    return ((x.astype(np.int64) @ w + a).astype(np.int8).astype(np.int64) @ v + b).astype(np.int32)


@pytest.mark.parametrize("encoding", [CALL, PROGRAM, TEXT, PACKED])
def test_a_saved_program_calls_the_library_as_the_encoding_says(folder, tmp_path, encoding) -> None:
    described(folder, encoding)
    text, made = two_layers()
    exe = inlay.compile(parse_module(text, table()), board=str(folder / "vendor.toml"), cache="none")
    exe.save(tmp_path / "saved.inlay")
    again, x = load_executable(tmp_path / "saved.inlay"), np.arange(18, dtype=np.int8).reshape(2, 9) - 9
    for one in (exe, again):
        np.testing.assert_array_equal(one(x), wanted(x, made))
    if encoding is not CALL:
        programs = [
            a["program"]
            for c in json.loads(exe.program.properties[CALLS]).values()
            for arg in c["args"]
            for a in arg.get("struct", [arg])
            if "program" in a
        ]
        assert sum(map(len, programs)) == 2
        return
    with pytest.raises(
        inlay.RunError, match="'npu0' ended vendor_multiply with the fault -2: more than 3 rows"
    ):
        exe(np.zeros((4, 9), np.int8))


@pytest.mark.parametrize(
    ("encoding", "old", "new", "message"),
    [
        (CALL, "i16(-3)", "i16(-40000)", "found -40000 in a command of 'multiply' as i16"),
        (CALL, "i16(-3)", "f32(3)", "found a number of 'multiply' as f32"),
        (PROGRAM, ">= 2**15", ">= 0", "ValueError at vendor.py:33: biases have 16 bits"),
        (PROGRAM, "c.w.values", "c.x.values", "'x' is no constant where it is asked for its values"),
        (TEXT, "PYTHON", "no-such-assembler", "no-such-assembler cannot be run"),
        (TEXT, '"matrix ', '"matrix 1 ', "ended with 1"),
    ],
)
def test_what_fails_while_a_command_is_made_is_a_reason(folder, encoding, old, new, message) -> None:
    if old == "PYTHON":
        old = sys.executable
    described(folder, encoding, old, new)
    found = inlay.explain(parse_module(two_layers()[0], table()), board=str(folder / "vendor.toml"))
    why = " ".join(o.others.get("npu0", "") for o in found.operations)
    assert message in why


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", ""),
        ("i16(-3)", "c.N", "may change value"),
        ("x=c.x, w=c.w", "w=c.w, x=c.x", "w of vendor_job is elsewhere"),
        ("depth=i32(c.C)", "depth=c.C", "depth of vendor_sizes is elsewhere"),
        ("c.y, ", "c.x, ", "vendor_multiply"),
        ("returns=i32", "returns=i64", "vendor_multiply returns another type than i64"),
        ("returns=i32", "returns=f32", "found calls that return f32"),
        ("vendor.h", "absent.h", "absent.h: No such file"),
    ],
)
def test_calls_are_held_against_the_header(folder, old, new, message) -> None:
    path = described(folder, CALL.replace("rows=c.N", "rows=c.N"), old, new)
    failures = [c for c in checks(backend_in_file(str(path)), 1, 0) if isinstance(c, Checked) and c.failure]
    if not message:
        assert not any("header" in c.failure or "declares" in c.failure for c in failures)
        return
    (found,) = failures
    assert found.section == ("declarations" if "f32" in new else "encoding of multiply")
    assert message in found.failure


def test_a_program_that_the_driver_does_not_take_is_a_fault_with_its_name(folder) -> None:
    described(folder, PROGRAM, "bytes([77", "bytes([78")
    board = str(folder / "vendor.toml")
    exe = inlay.compile(parse_module(two_layers()[0], table()), board=board, cache="none")
    with pytest.raises(inlay.RunError, match="vendor_load of 'npu0' takes no program of "):
        exe(np.zeros((1, 9), np.int8))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"struct"', '"union"'),
        ('"i16"', '"i17"'),
        ('"returns": "i32"', '"returns": "i33"'),
        ('"faults": [[', '"faults": [[' + "1.5, "),
    ],
)
def test_properties_with_other_arguments_are_refused(folder, old, new) -> None:
    described(folder, CALL)
    exe = inlay.compile(
        parse_module(two_layers()[0], table()), board=str(folder / "vendor.toml"), cache="none"
    )
    said = exe.program.properties[CALLS]
    assert old in said
    wrong = replace(exe.program, properties={**exe.program.properties, CALLS: said.replace(old, new, 1)})
    with pytest.raises(inlay.CompileError) as refused:
        executable_of(wrong)
    assert refused.value.ids == ("container.corrupt",)


def test_a_compiler_says_its_files() -> None:
    with pytest.raises(ValueError, match="has no {result}"):
        Compiler("cc", "{source}")
