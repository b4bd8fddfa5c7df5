"""Ways that a program of integers is run: its meaning, machine code, and emitted C compiled with gcc.

Emitted C is made of loops for other machines, too; and machine code, where it runs here.
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
from inlay.interp.tensor import evaluate
from inlay.ir.kernel import Access
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.machine.target import Target, baseline, host
from inlay.ops.table import table
from inlay.pipeline import build_kernels
from inlay.runtime.session import Executable
from tests.differential.on_arm import ARM, I8MM, in_machine_code, kernels_for, runs_here
from tests.unit.codegen.c_support import Library
from tests.unit.codegen.support import with_features


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
        coded: the same in machine code for the processor they are scheduled for; None where that runs nowhere.
    """

    module: Module
    executable: Executable
    kernels: Module
    coded: Module | None

    def run(self, inputs: Sequence[np.ndarray], *, coded: bool) -> dict[str, np.ndarray]:
        """Return the result by route, without that of `coded` if it is not asked for: an emulator starts each time."""
        found = {
            "evaluator": np.asarray(evaluate(self.module, inputs)),
            "LLVM": np.asarray(self.executable(*inputs)),
            "C": np.asarray(evaluate(self.kernels, inputs)),
        }
        if coded and self.coded is not None:
            found["machine code"] = np.asarray(evaluate(self.coded, inputs))
        return found


TARGETS = (
    host(),
    baseline("x86_64", "v3"),
    with_features(baseline("x86_64", "v3"), "avxvnni"),
    with_features(baseline("x86_64", "v4"), "avx512vnni"),
    ARM,
    I8MM,
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
        built = kernels_for(module, target)
        kernels = {}
        for name, kernel in built.kernels.items():
            body = kernel.body
            assert isinstance(body, build_kernels.LoopBody)
            writes = [p for p in kernel.ports if p.access is not Access.READ]
            shapes = tuple(tuple(evaluated(d, {}) for d in p.type.shape) for p in writes)
            kernels[name] = dataclasses.replace(kernel, body=InC(library, len(functions), shapes))
            functions.append(body.lower())
        executable = inlay.compile(module, threads=1, cache="none")
        coded = in_machine_code(built, target) if runs_here(target) else None
        made.append(Routes(module, executable, dataclasses.replace(built, kernels=kernels), coded))
    library.append(Library(functions, folder))
    return made
