"""The mock of a device: its commands compute what the loop nests of their instructions say.

Nobody writes it. The loops are compiled for this processor, once for each command, so whole models run on a
device that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping

from inlay.accel.accelerator import Architecture
from inlay.accel.declare import Instruction
from inlay.accel.nest import meaning_of
from inlay.arith.expr import Int, Sym
from inlay.bytecode.program import ImageTarget
from inlay.codegen.interface import Request
from inlay.codegen.llvm_generator import LlvmGenerator
from inlay.machine.target import host
from inlay.runtime.calls import Code


def mock_of(
    arch: Architecture, instruction: Instruction, sizes: Mapping[Sym, Int]
) -> tuple[Code, tuple[str, ...], tuple[Sym, ...]]:
    """Return the code of one command, the operands whose addresses it takes, and the dims.

    Args:
        arch: the architecture.
        instruction: what the command does.
        sizes: of its dims and immediates, over dims of the program.
    """
    f = meaning_of(instruction, arch.device, {**arch.values, **sizes})
    target = host()
    found = LlvmGenerator(target).compile([Request("command", lambda: f)])
    order = tuple(b.name for b in f.params)
    phases = tuple(phase.offset for phase in found.kernels["command"].phases)
    runs_on = ImageTarget(target.triple, tuple(sorted(found.image.features)))
    return Code(found.image.data, phases, runs_on), order, f.dims
