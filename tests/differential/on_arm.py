"""Programs whose kernels are scheduled and compiled for a processor, and run wherever that is, emulated if need be.

Values move as the evaluator says; only kernels are machine code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.expr import Sym, evaluate
from inlay.base.instrument import SILENT
from inlay.codegen.unit import Unit
from inlay.ir.kernel import Access, Kernel, Port
from inlay.ir.module import Module
from inlay.loop.func import LoopFunction
from inlay.machine.target import Target, baseline, host
from inlay.pipeline import build_kernels
from inlay.pipeline.building import explaining_options
from inlay.pipeline.options import CompileOptions
from inlay.pipeline.planning import setting_of
from inlay.pipeline.running import run_passes
from tests.emulated_image import EMULATOR
from tests.system import absent
from tests.unit.codegen.support import run_unit, unit_for, with_features

ARM = with_features(baseline("aarch64"), "dotprod")
I8MM = with_features(ARM, "i8mm")


def runs_here(target: Target) -> bool:
    """Whether this machine runs code for a target, or emulates its processor."""
    if target.arch == host().arch:
        return set(target.features) <= set(host().features)
    return target.arch == "aarch64" and not absent(EMULATOR)


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The body of a kernel: loops, what they are compiled to, and the ports of results."""

    function: LoopFunction
    unit: Unit
    writes: tuple[Port, ...]

    def evaluate(self, inputs: Sequence[np.ndarray], dims: Mapping[Sym, int]) -> tuple[np.ndarray, ...]:
        """Run it, in parts as threads would; loops may leave out axes of one element."""
        updates = [p.may_alias if p.access is Access.UPDATE else None for p in self.writes]
        found = run_unit(self.function, self.unit, inputs, dims, 2, updates)
        shapes = (tuple(evaluate(d, dims) for d in p.type.shape) for p in self.writes)
        return tuple(x.reshape(shape) for x, shape in zip(found, shapes, strict=True))


def kernels_for(module: Module, target: Target) -> Module:
    """Return a program of kernels that are scheduled for a host."""
    options = CompileOptions(cache="none")
    setting = setting_of(options, SILENT, 1, lambda _board, _name: target)
    return run_passes(module, setting, explaining_options(setting), until=build_kernels.PASS).module


def in_machine_code(built: Module, target: Target) -> Module:
    """Return a program of kernels whose bodies in loops are machine code for a processor."""
    kernels = {name: _in_machine_code(kernel, target) for name, kernel in built.kernels.items()}
    return dataclasses.replace(built, kernels=kernels)


def _in_machine_code(kernel: Kernel, target: Target) -> Kernel:
    if not isinstance(kernel.body, build_kernels.LoopBody):
        return kernel
    writes = tuple(p for p in kernel.ports if p.access is not Access.READ)
    function = kernel.body.lower()
    return dataclasses.replace(kernel, body=MachineCode(function, unit_for(function, target), writes))
