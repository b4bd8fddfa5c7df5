"""Several matches as one program of a vendor: its compiler takes a graph, refuses, and asks for scratch memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.accel.backend import backend_in_file
from inlay.accel.kit import Checked, checks
from inlay.api import compilation
from inlay.base.diagnostics import CompileError
from inlay.ir.parser import parse_module
from inlay.machine.board_file import read_board
from inlay.ops.table import table
from inlay.runtime.session import executable_of, load_executable
from tests.system import needs

pytestmark = [pytest.mark.llvm, pytest.mark.cc, needs("cc")]

HEADER = """
#include <stdint.h>
void *vendor_load(const uint8_t *data, int64_t bytes);
void vendor_unload(void *program);
int vendor_run(void *program, const int8_t *x, int8_t *y, uint8_t *scratch);
"""
LIBRARY = """
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "vendor.h"
/* A program: the number of layers; of each seven numbers (its source, or -1 for the input; rows, depth, columns,
   zero, low, high), a scale, biases, and weights. Values stand in the scratch memory one behind the other. */
void *vendor_load(const uint8_t *data, int64_t bytes) {
    uint8_t *made = malloc((size_t)bytes);
    memcpy(made, data, (size_t)bytes);
    return made;
}
void vendor_unload(void *program) { free(program); }
int vendor_run(void *program, const int8_t *x, int8_t *y, uint8_t *scratch) {
    const uint8_t *p = program;
    int32_t layers, n[7];
    int8_t *values[16], *next = (int8_t *)scratch;
    memcpy(&layers, p, 4), p += 4;
    for (int l = 0; l < layers; ++l) {
        float scale;
        memcpy(n, p, sizeof n), memcpy(&scale, p + sizeof n, 4), p += sizeof n + 4;
        const int8_t *from = n[0] < 0 ? x : values[n[0]], *w = (const int8_t *)(p + 4 * n[3]);
        int8_t *to = values[l] = l + 1 == layers ? y : next;
        next += l + 1 == layers ? 0 : n[1] * n[3];
        for (int r = 0; r < n[1]; ++r) {
            for (int k = 0; k < n[3]; ++k) {
                int32_t sum;
                memcpy(&sum, p + 4 * k, 4);
                for (int c = 0; c < n[2]; ++c) { sum += from[r * n[2] + c] * w[c * n[3] + k]; }
                long whole = lrintf((float)sum * scale) + n[4];
                to[r * n[3] + k] = (int8_t)(whole < n[5] ? n[5] : whole > n[6] ? n[6] : whole);
            }
        }
        p += 4 * n[3] + n[2] * n[3];
    }
    return 0;
}
"""
SOURCE = '''
from inlay.accel.api import *
import struct as packing

LOG = __file__ + ".log"
MOST = 9


class Vendor(Accelerator):
    """Layers of bytes, as graphs."""

    ram, run = Shared(), Queue()
    N, C, K = Dim(1, 64), Dim(1, 4096), Dim(1, 4096)
    launch_cycles = 10
    clock = 10**12

    @pattern
    def dense(self, p):
        x, w, b, scale = p.tensor("x", i8), p.const("w", i8), p.const("b", i32), p.const("scale", f32)
        y = p.requantize(p.dense(x, w) + b, scale, rounding="half_even", name="y")
        return p.call(y, self.layer, x=x, w=w, b=b, scale=scale,
                      zero=lambda m: m.y.zero, low=lambda m: m.y.low, high=lambda m: m.y.high)

    @instruction(
        run, y=Out(ram, i8, (N, K)), x=In(ram, i8, (N, C)), w=In(ram, i8, (C, K)), b=In(ram, i32, (K,)),
        scale=In(ram, f32, ()), zero=Imm(-128, 127), low=Imm(-128, 127), high=Imm(-128, 127), cycles=N * K,
    )
    def layer(self, y, x, w, b, scale, zero, low, high):
        for n, k in nest(y.shape):
            total = Local(i32, b[k])
            for c, in nest(w.shape[0]):
                total.value += i32(x[n, c]) * i32(w[c, k])
            y[n, k] = i8(requantize_float(total.value, scale[()], zero, low, high))

    @region
    def graph(self, r):
        if len(r.commands) > MOST:
            raise ValueError(f"{len(r.commands)} layers, at most {MOST}")
        data, inside = packing.pack("<i", len(r.commands)), 0
        for at, c in enumerate(r.commands):
            source = -1 if c.x.command is None else c.x.command
            rows, columns = c.N.value, c.K.value
            data += packing.pack("<7i", source, rows, c.C.value, columns, c.zero.value, c.low.value, c.high.value)
            data += c.scale.values.tobytes() + c.b.values.tobytes() + c.w.values.tobytes()
            inside += rows * columns if c is not r.commands[-1] else 0
        with open(LOG, "a") as log:
            log.write(f"{len(r.commands)} {r.free}\\n")
        made = program(data, open="vendor_load", close="vendor_unload")
        return call("vendor_run", made, *r.inputs, *r.outputs, r.scratch(inside))

    emit = CCalls(returns=i32, header="vendor.h")
    drivers = (Library("libvendor.so"),)
'''
BOARD = """
[[memory]]
name = "ram"
[[device]]
name = "cpu"
arch = "native"
memories = ["ram"]
[[arch]]
name = "vendor"
generator = "vendor"
loader = "{path}"
[[device]]
name = "npu0"
arch = "vendor"
memories = ["ram"]
[[coherent]]
memory = "ram"
parties = ["cpu", "npu0"]
"""
RNG = np.random.default_rng(6)


def listed(dtype: str, values: np.ndarray) -> str:
    return f"{dtype}[{', '.join(map(str, values.shape))}]({', '.join(map(str, values.ravel()))})"


def layer(x: str, depth: int, columns: int) -> str:
    w, b = RNG.integers(-128, 128, (depth, columns)), RNG.integers(-900, 900, columns)
    return (
        f"requantize{{zero=-3}}(add(matmul_integer({x}, {listed('i8', w)}), {listed('i32', b)}), f32(0.002))"
    )


PROGRAM = f"""
fn main(x: Tensor[24, 32, i8]) {{
  let a = {layer("x", 32, 48)};
  let b = {layer("a", 48, 40)};
  let c = {layer("b", 40, 16)};
  abs({layer("c", 16, 8)})
}}
entry main("x") -> ("y");
"""
X = RNG.integers(-128, 128, (24, 32)).astype(np.int8)


@pytest.fixture(name="folder", scope="module")
def vendor(tmp_path_factory) -> Path:
    """Return a folder with the library of the vendor."""
    folder = tmp_path_factory.mktemp("vendor")
    (folder / "vendor.h").write_text(HEADER, encoding="utf-8")
    (folder / "vendor.c").write_text(LIBRARY, encoding="utf-8")
    made = ["cc", "-shared", "-fPIC", "-O1", "-o", "libvendor.so", "vendor.c", "-lm"]
    subprocess.run(made, cwd=folder, check=True)
    return folder


def compiled(folder: Path, source: str = SOURCE, **options):
    path = folder / "vendor.py"
    path.write_text(source, encoding="utf-8")
    board = read_board("own", BOARD.format(path=path), place="own.toml")
    module = parse_module(PROGRAM, table())
    return compilation(module, board=board, cache="none", threads=1, **options), board


def of_device(found) -> list:
    names = {k.name for k in found.report.kernels if k.device == "npu0"}
    return [k for k in found.module.kernels.values() if k.name in names]


def test_a_network_is_one_program_and_its_scratch_memory_is_planned(folder, tmp_path) -> None:
    want = inlay.compile(parse_module(PROGRAM, table()), cache="none")(X)
    found, _ = compiled(folder)
    (kernel,) = of_device(found)
    assert kernel.note == "one program of 4 commands"
    assert [w.bytes.value for w in kernel.workspaces] == [24 * (48 + 40 + 16)]
    exe = executable_of(found.program, threads=1)
    np.testing.assert_array_equal(exe.run({"x": X})["y"], want)
    exe.save(tmp_path / "model.inla")
    np.testing.assert_array_equal(load_executable(tmp_path / "model.inla").run({"x": X})["y"], want)


def test_what_the_vendor_refuses_is_divided_and_the_reason_is_kept(folder) -> None:
    want = inlay.compile(parse_module(PROGRAM, table()), cache="none")(X)
    found, board = compiled(folder, SOURCE.replace("MOST = 9", "MOST = 2"))
    assert sorted(k.note for k in of_device(found)) == ["one program of 2 commands"] * 2
    np.testing.assert_array_equal(executable_of(found.program, threads=1).run({"x": X})["y"], want)
    told = inlay.explain(parse_module(PROGRAM, table()), board=board, threads=1)
    assert any("region_4 is refused: ValueError at vendor.py:" in o.reason for o in told.operations)
    none, board = compiled(folder, SOURCE.replace("MOST = 9", "MOST = 0"))
    assert of_device(none) == []
    told = inlay.explain(parse_module(PROGRAM, table()), board=board, threads=1)
    assert any("1 layers, at most 0" in o.others.get("npu0", "") for o in told.operations)


def test_the_compiler_of_the_vendor_is_told_what_is_free(folder) -> None:
    (folder / "vendor.py.log").unlink(missing_ok=True)
    found, _ = compiled(folder, budget=("ram=40kB",))
    assert found.report.promise is not None
    assert found.report.promise.takes["ram"] <= 40_000
    said = {line.split()[1] for line in (folder / "vendor.py.log").read_text().splitlines()}
    (free,) = said - {"None"}
    assert 0 < int(free) < 40_000
    with pytest.raises(CompileError) as refused:
        compiled(folder, budget=(f"ram={found.report.promise.takes['ram'] - 2000}",))
    assert refused.value.ids == ("accel.no-room",)
    assert "scratch memory of 2496 bytes:" in str(refused.value)


def test_the_mock_runs_the_commands_of_a_region_one_by_one(folder) -> None:
    want = inlay.compile(parse_module(PROGRAM, table()), cache="none")(X)
    found, _ = compiled(folder, SOURCE.replace('Library("libvendor.so")', "Mock()"))
    assert len(of_device(found)) == 1
    np.testing.assert_array_equal(executable_of(found.program, threads=1).run({"x": X})["y"], want)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("old", "new", "section", "message"),
    [
        ("", "", "", ""),
        ("source = -1 if c.x.command is None else c.x.command", "source = -1", "region graph, or the driver", "the driver gives something else"),
        ("c.zero.value,", "c.zero.value + 1,", "driver", "the driver gives something else"),
        ("*r.outputs, ", "", "encoding", "vendor.h declares something else"),
        ("r.scratch(inside)", "7", "encoding", "vendor.h declares something else"),
        ("r.scratch(inside))", "r.scratch(inside)), 1", "", "no call"),
        ("    @region", "    @encodes(layer)\n    def more(self, c):\n        return call('f')\n\n    @region", "declarations", "beside a region, which writes all commands"),
        ("    @region", "    @region\n    def other(self, r):\n        return call('f')\n\n    @region", "declarations", "found the regions other, graph, needed one"),
        ("    launch_cycles", "    rows = Choice(1)\n    launch_cycles", "declarations", "a Choice or a Temp beside a region"),
    ],
)  # fmt: skip
def test_the_kit_checks_regions(folder, old, new, section, message) -> None:
    (folder / "vendor.py").write_text(SOURCE.replace(old, new), encoding="utf-8")
    found = [c for c in checks(backend_in_file(str(folder / "vendor.py")), 3, 0) if isinstance(c, Checked)]
    failed = [c for c in found if c.failure]
    assert bool(failed) == bool(message)
    assert message or (found[-1].section, found[-1].trials) == ("regions of several matches", 1)
    assert all(section in c.section and message in c.failure for c in failed), failed
