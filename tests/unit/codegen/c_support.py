"""Compiling emitted C, many functions at a time, and calling it."""

from __future__ import annotations

import ctypes
import dataclasses
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from inlay.arith.expr import Sym, evaluate
from inlay.codegen.c import PhaseText, emit_source
from inlay.codegen.phases import workspace_layout
from inlay.loop.func import LoopFunction
from inlay.machine.target import Target

STRICT = [
    "-std=c99",
    "-pedantic",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wdouble-promotion",
    "-Wcast-qual",
    "-Wconversion",
    "-Wundef",
    "-Wstrict-prototypes",
    "-Werror",
]
_PHASE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Library:
    """Functions compiled as one file, without a warning."""

    def __init__(self, functions: Sequence[LoopFunction], folder: Path) -> None:
        self.functions = {f"f{i}": f for i, f in enumerate(functions)}
        named = tuple(dataclasses.replace(f, name=n) for n, f in self.functions.items())
        self.source = emit_source(named, Target())
        path = folder / "functions.c"
        path.write_text(self.source.text)
        command = ["gcc", *STRICT, "-O1", "-shared", "-fPIC", path, "-o", folder / "lib.so", "-lm"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:6000]
        self._library = ctypes.CDLL(str(folder / "lib.so"))

    def run(
        self, index: int, inputs: Sequence[np.ndarray], dims: Mapping[Sym, int], parts: int = 1
    ) -> tuple[np.ndarray, ...]:
        """Run a function; outputs and workspaces start as bytes that stand out."""
        f = self.functions[f"f{index}"]
        env = {d: dims[d] for d in f.dims}
        outputs = empty_outputs(f, env)
        layout = workspace_layout(f)
        scratch = np.full(evaluate(layout.bytes_per_part, env) * parts + 64, 0xCD, np.uint8)
        buffers = [*(np.ascontiguousarray(x) for x in inputs), *outputs, scratch]
        for phase in self.source.phases[f"f{index}"]:
            count = parts if phase.parallel else 1
            for part in range(count):
                assert self.call(phase, buffers, list(env.values()), part, count) == 0
        return tuple(outputs)

    def call(
        self,
        phase: PhaseText,
        buffers: Sequence[np.ndarray],
        ints: Sequence[int],
        part: int = 0,
        parts: int = 1,
    ) -> int:
        """Run one part of a phase."""
        pointers = (ctypes.c_void_p * len(buffers))(*(b.ctypes.data for b in buffers))
        values = (ctypes.c_int64 * max(len(ints), 1))(*ints)
        return _PHASE((phase.symbol, self._library))(pointers, values, part, parts)


def empty_outputs(f: LoopFunction, env: Mapping[Sym, int]) -> list[np.ndarray]:
    """Arrays for the results, full of bytes that stand out."""
    outputs = []
    for b in f.params[f.n_reads :]:
        shape = tuple(evaluate(e, env) for e in b.shape)
        raw = np.full(int(np.prod(shape)) * b.dtype.itemsize, 0xAB, np.uint8)
        outputs.append(raw.view(b.dtype.numpy).reshape(shape))
    return outputs
