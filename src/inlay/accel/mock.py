"""The mock of a device: its commands compute what the loop nests of their instructions say.

Nobody writes it. The loops are compiled for this processor, once for each command, so whole models run on a
device that is not there.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence

import numpy as np

from inlay.accel.accelerator import Architecture
from inlay.accel.declare import Access, Instruction
from inlay.accel.nest import meaning_of
from inlay.arith.expr import Int, Sym
from inlay.codegen.image import Image
from inlay.codegen.interface import Request
from inlay.codegen.llvm_generator import LlvmGenerator
from inlay.machine.target import host

_PHASE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class MockCommand:
    """One command, ready to run.

    Args:
        arch: the architecture.
        instruction: what the command does.
        sizes: of its dims and immediates, over dims of the program.
    """

    def __init__(self, arch: Architecture, instruction: Instruction, sizes: Mapping[Sym, Int]) -> None:
        f = meaning_of(instruction, arch.device, {**arch.values, **sizes})
        self.dims = f.dims
        found = LlvmGenerator(host()).compile([Request("command", lambda: f)])
        self._phases = [phase.offset for phase in found.kernels["command"].phases]
        self._base, self._kept = _mapped(found.image)
        operands = instruction.operands.items()
        self._order = [n for kind in (True, False) for n, x in operands if (x.access is Access.READ) is kind]

    def __call__(self, arrays: Mapping[str, np.ndarray], env: Mapping[Sym, int]) -> None:
        """Run it on the operands, by name, for values of the dims of the program."""
        pointers = [arrays[name].ctypes.data for name in self._order]
        buffers = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        ints = _ints([env[d] for d in self.dims])
        for offset in self._phases:
            status = _PHASE(self._base + offset)(buffers, ints, 0, 1)
            assert status == 0, "a loop nest asserts nothing"


def _ints(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def _mapped(image: Image) -> tuple[int, object]:
    """Return where an image is in this process, and what keeps it there."""
    size = max(len(image.data), 1)
    memory = mmap.mmap(-1, size, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(image.data)
    view = (ctypes.c_char * size).from_buffer(memory)
    return ctypes.addressof(view), (memory, view)
