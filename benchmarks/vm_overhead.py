"""What the virtual machine costs outside kernels: instructions, loops over kernels, calls, hand-offs.

    python benchmarks/vm_overhead.py [--json]

The figures are the best of several rounds, on one thread unless stated.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from inlay.bytecode.builder import FunctionBuilder, ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, Kernel, Program, SymbolBody
from inlay.bytecode.spec import Dim, TensorSpec
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of

INTEGER = (TensorSpec("y", "i64", ()),)
VECTOR = (TensorSpec("x", "f32", (Dim("64", (64,)),)),)


def best(run: Callable[[], object], rounds: int = 7) -> float:
    """Return the least time of a call in seconds."""
    times: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def counting(count: int) -> Program:
    """A loop in a frame: 9 instructions a turn."""
    b = ProgramBuilder()
    f = b.function("main", [], [Kind.TENSOR])
    f.emit("INT", 0), f.emit("INT", count)
    head, done = f.label(), f.label()
    f.place(head)
    f.emit("COPY", 1), f.emit("JUMP_IF_FALSE", done)
    f.emit("COPY", 0), f.emit("COPY", 1), f.emit("ADD")
    f.emit("COPY", 1), f.emit("INT", 1), f.emit("SUB")
    f.emit("SLIDE", 2, 2)
    f.emit("JUMP", head)
    f.place(done)
    f.emit("POP", 1), f.emit("TO_TENSOR", "i64"), f.emit("RETURN")
    b.entry(Entry("main", f.index, (), INTEGER))
    return b.finish()


def calling(depth: int) -> Program:
    """Calls that nest: 10 instructions each, one of them a call, one a return."""
    b = ProgramBuilder()
    f = b.function("count", [Kind.INT], [Kind.INT])
    end = f.label()
    f.emit("COPY", 0), f.emit("JUMP_IF_FALSE", end)
    f.emit("COPY", 0), f.emit("INT", 1), f.emit("SUB"), f.emit("CALL", f)
    f.emit("INT", 1), f.emit("ADD"), f.emit("RETURN")
    f.place(end)
    f.emit("INT", 0), f.emit("RETURN")
    main = b.function("main", [], [Kind.TENSOR])
    main.emit("INT", depth), main.emit("CALL", f), main.emit("TO_TENSOR", "i64")
    main.emit("RETURN")
    b.entry(Entry("main", main.index, (), INTEGER))
    return b.finish()


def kernels(turns: int, *, parallel: bool = False, cost: int = 0) -> Program:
    """A tail-recursive loop over three kernels that do nothing, each with a new tensor."""
    b = ProgramBuilder()
    ports = (AccessCode.READ, AccessCode.READ, AccessCode.WRITE)
    kernel = b.kernel(Kernel("nothing", ports, 1, SymbolBody("nothing", parallel=parallel), cost=(cost,)))
    loop = b.function("loop", [Kind.INT, Kind.TENSOR], [Kind.TENSOR])
    end = loop.label()
    loop.emit("COPY", 0), loop.emit("JUMP_IF_FALSE", end)

    def invoke(f: FunctionBuilder, source: int) -> int:
        slot = f.depth
        f.emit("INT", 64), f.emit("ALLOCATE", 0, "f32", 1)
        f.emit("COPY", source), f.emit("MOVE", source), f.emit("COPY", slot)
        f.emit("INT", 64), f.emit("INVOKE", kernel)
        return slot

    slot = 1
    for _ in range(3):
        slot = invoke(loop, slot)
    loop.emit("COPY", 0), loop.emit("INT", 1), loop.emit("SUB"), loop.emit("MOVE", slot)
    loop.emit("TAIL_CALL", loop)
    loop.place(end)
    loop.emit("MOVE", 1), loop.emit("RETURN")
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    main.emit("INT", turns), main.emit("MOVE", 0), main.emit("TAIL_CALL", loop)
    b.entry(Entry("main", main.index, VECTOR, (TensorSpec("y", "f32", VECTOR[0].dims),)))
    return b.finish()


def nothing() -> dict[str, int]:
    """Compile a kernel that returns at once; return its address by name."""
    if shutil.which("gcc") is None:
        raise SystemExit("this benchmark needs gcc")
    folder = Path(tempfile.mkdtemp())
    source = folder / "nothing.c"
    source.write_text(
        "#include <stdint.h>\nint64_t nothing(void *const *b, const int64_t *n, int64_t p,"
        " int64_t q) { (void)b; (void)n; (void)p; (void)q; return 0; }\n"
    )
    library = folder / "nothing.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    found = ctypes.CDLL(str(library))
    address = ctypes.cast(found.nothing, ctypes.c_void_p).value
    assert address is not None, "the library has the function"
    return {"nothing": address}


def measure() -> dict[str, float]:
    """Return figures by name, in nanoseconds."""
    symbols = nothing()
    x = np.zeros(64, np.float32)
    figures: dict[str, float] = {}
    count = 1_000_000
    exe = executable_of(counting(count))
    figures["instruction (integer loop)"] = best(exe) / (9 * count) * 1e9
    exe = executable_of(calling(100_000))
    figures["call and return (10 instructions)"] = best(exe) / 100_000 * 1e9
    exe = executable_of(kernels(100_000), symbols=symbols, threads=1)
    figures["turn of a 3-kernel loop"] = best(lambda: exe(x)) / 100_000 * 1e9
    short = executable_of(kernels(0), symbols=symbols, threads=1)
    figures["call from Python by position"] = best(lambda: [short(x) for _ in range(10_000)]) / 10_000 * 1e9
    given = {"x": x}
    figures["call from Python by name"] = (
        best(lambda: [short.run(given) for _ in range(10_000)]) / 10_000 * 1e9
    )
    two = executable_of(
        kernels(20_000, parallel=True, cost=1_000_000),
        symbols=symbols,
        threads=2,
        settings=Settings(hand_off_ns=0),
    )
    figures["kernel on two threads"] = best(lambda: two(x)) / 60_000 * 1e9
    return figures


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    figures = measure()
    if parser.parse_args().json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:36} {value:10.1f} ns")


if __name__ == "__main__":
    main()
