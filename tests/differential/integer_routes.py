"""Ways that a program of integers is run: its meaning, machine code, and emitted C compiled with gcc.

Machine code is for this machine. Emitted C is made of loops for other machines, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import inlay
from inlay.arith.expr import Sym
from inlay.arith.expr import evaluate as evaluated
from inlay.base.instrument import SILENT
from inlay.interp.tensor import evaluate
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.types import TupleType
from inlay.machine.target import Target, host
from inlay.ops.table import table
from inlay.pipeline import build_kernels
from inlay.pipeline.building import explaining_options
from inlay.pipeline.options import CompileOptions
from inlay.pipeline.planning import setting_of
from inlay.pipeline.running import run_passes
from inlay.runtime.session import Executable
from tests.unit.codegen.c_support import Library


@dataclass(frozen=True, slots=True)
class InC:
    """The body of a kernel: a function of a library of emitted C; `shapes` of its results."""

    library: list[Library]
    index: int
    shapes: tuple[tuple[int, ...], ...]

    def evaluate(self, inputs: Sequence[np.ndarray], dims: Mapping[Sym, int]) -> tuple[np.ndarray, ...]:
        """Run it, in parts as threads would; loops may leave out axes of one element."""
        found = self.library[0].run(self.index, inputs, dims, 2)
        return tuple(x.reshape(shape) for x, shape in zip(found, self.shapes, strict=True))


@dataclass(frozen=True)
class Routes:
    """One program, ready to run.

    Attributes:
        module: as it was written.
        executable: its machine code.
        kernels: the program of kernels, whose bodies are in C.
    """

    module: Module
    executable: Executable
    kernels: Module

    def run(self, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return the result by route."""
        return {
            "evaluator": np.asarray(evaluate(self.module, inputs)),
            "LLVM": np.asarray(self.executable(*inputs)),
            "C": np.asarray(evaluate(self.kernels, inputs)),
        }


_X86 = ("avx2", "fma")
TARGETS = (
    host(),
    Target("x86_64", features=_X86),
    Target("x86_64", features=(*_X86, "avxvnni")),
    Target("x86_64", features=(*_X86, "avx512vl", "avx512vnni"), vector_bytes=64, vector_registers=32),
    Target("aarch64", features=("dotprod",), vector_bytes=16, vector_registers=32),
    Target("aarch64", features=("dotprod", "i8mm"), vector_bytes=16, vector_registers=32),
    Target("", dot=("i16",), vector_bytes=4, l2_bytes=0),
    Target("", dot=(), vector_bytes=4, vector_registers=8, l2_bytes=0),
)
"""What kernels in C are scheduled and packed for: each kind of dot product, and none. C computes them by
their meaning, so these run on any machine."""


def routes(texts: Sequence[str], targets: Sequence[Target], folder: Path) -> list[Routes]:
    """Compile programs, C of each for a target; emitted C of all of them is one file."""
    library: list[Library] = []
    functions, made = [], []
    for text, target in zip(texts, targets, strict=True):
        module = parse_module(text, table(), name="drawn")
        options = CompileOptions(cache="none")
        setting = setting_of(options, SILENT, 1, lambda _board, _name, target=target: target)
        options = explaining_options(setting)
        built = run_passes(module, setting, options, until=build_kernels.PASS).module
        kernels = {}
        for name, kernel in built.kernels.items():
            body = kernel.body
            assert isinstance(body, build_kernels.LoopBody)
            result = kernel.type.result
            results = result.fields if isinstance(result, TupleType) else (result,)
            shapes = tuple(tuple(evaluated(d, {}) for d in t.shape) for t in results)
            kernels[name] = dataclasses.replace(kernel, body=InC(library, len(functions), shapes))
            functions.append(body.lower())
        executable = inlay.compile(module, threads=1, cache="none")
        made.append(Routes(module, executable, dataclasses.replace(built, kernels=kernels)))
    library.append(Library(functions, folder))
    return made
