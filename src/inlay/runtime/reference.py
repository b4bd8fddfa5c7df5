"""The reference interpreter as an engine: slow, for tests and for finding faults.

Native kernels run through ctypes from a copy of the image; all parts of a phase run one after the
other on the calling thread, in the same division as the C runtime makes.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence

import numpy as np

from inlay.base.diagnostics import InlayError, error
from inlay.bytecode import formula
from inlay.bytecode.program import (
    AccessCode,
    CopyBody,
    DeviceBody,
    DevicePhase,
    FunctionBody,
    HostBody,
    ImageBody,
    Kernel,
    Program,
    SymbolBody,
)
from inlay.runtime.c_function import call_c
from inlay.runtime.interp import Interpreter
from inlay.runtime.native import Callback, Settings
from inlay.runtime.structure import Structure, from_slots, to_slots

_PHASE = ctypes.CFUNCTYPE(
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int64,
    ctypes.c_int64,
)


def _assertion(kernel: Kernel, number: int) -> InlayError:
    known = 1 <= number <= len(kernel.assertions)
    message = kernel.assertions[number - 1] if known else f"kernel '{kernel.name}' answers {number}"
    return error("run.check-failed", message)


def _unlike_copy(source: int, target: int) -> InlayError:
    return error("run.bad-dims", f"{source} bytes are copied to a tensor of {target}")


def _check_size(kernel: Kernel, number: int, found: int, needed: int | None) -> None:
    if needed is not None and 0 <= needed <= found:
        return
    known = "an impossible number of them" if needed is None or needed < 0 else str(needed)
    raise error(
        "run.bad-dims",
        f"kernel '{kernel.name}' is given {found} bytes as tensor {number}, and its code needs {known}",
    )


def _items(kernel: Kernel, phase: DevicePhase, integers: Sequence[int]) -> int:
    items = formula.evaluate(phase.items, integers)
    if items is None or items < 0:
        raise error("run.bad-dims", f"kernel '{kernel.name}' has no possible number of items")
    return items


class ReferenceEngine:
    """A program in the reference interpreter; one call at a time."""

    def __init__(
        self,
        program: Program,
        settings: Settings,
        callbacks: Mapping[Kernel, Callback],
        symbols: Mapping[str, int],
    ) -> None:
        self._program = program
        self._settings = settings
        self._callbacks = callbacks
        self._symbols = symbols
        self._image = mmap.mmap(
            -1, max(len(program.image), 1), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
        self._image.write(program.image)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._image))
        self._interpreter = Interpreter(program, self._run_kernel)

    def call(self, index: int, values: Sequence[Structure]) -> list[Structure]:
        """Return the results of an entry whose inputs were checked."""
        entry = self._program.entries[index]
        results = self._interpreter.call(entry.function, to_slots(entry.inputs, values))
        return from_slots(entry.outputs, results)

    def _run_kernel(self, kernel: Kernel, tensors: list[np.ndarray], integers: list[int]) -> None:
        for number, (tensor, size) in enumerate(zip(tensors, kernel.sizes, strict=False), 1):
            _check_size(kernel, number, tensor.nbytes, formula.evaluate(size, integers))
        match kernel.body:
            case HostBody():
                answer = self._callbacks[kernel](tensors, integers)
                if answer is not None:
                    answer.result()
                return
            case FunctionBody(name=name):
                reads = sum(port is AccessCode.READ for port in kernel.ports)
                call_c(name, self._symbols[name], tensors[:reads], tensors[reads:])
                return
            case CopyBody():
                source, target = (t.reshape(-1).view(np.uint8) for t in tensors)
                if source.size != target.size:
                    raise _unlike_copy(source.size, target.size)
                target[:] = source
                return
            case DeviceBody():
                self._run_on_device(kernel, tensors, integers)
                return
            case ImageBody(phases=phases):
                steps = [(self._base + phase.offset, phase.parallel) for phase in phases]
            case SymbolBody(symbol=symbol, parallel=parallel):
                steps = [(self._symbols[symbol], parallel)]
        cost = formula.evaluate(kernel.cost, integers)
        is_short = cost is not None and cost < self._settings.least_shared_ns
        parts = 1 if is_short else self._settings.threads
        addresses = [array.ctypes.data for array in tensors]
        workspace = self._workspace(kernel, integers, parts)
        if workspace is not None and not kernel.workspace_in_port:
            addresses.append(workspace.ctypes.data)
        elif workspace is not None and workspace.size > tensors[-1].nbytes + 1:
            addresses[-1] = workspace.ctypes.data
        buffers = (ctypes.c_void_p * len(addresses))(*addresses)
        numbers = (ctypes.c_int64 * max(len(integers), 1))(*integers)
        for address, is_parallel in steps:
            count = parts if is_parallel else 1
            answers = [_PHASE(address)(buffers, numbers, part, count) for part in range(count)]
            if failed := next((answer for answer in answers if answer), 0):
                raise _assertion(kernel, failed)

    def _run_on_device(self, kernel: Kernel, tensors: list[np.ndarray], integers: list[int]) -> None:
        """Run native code of a device here: item after item, on the memory of this process."""
        assert isinstance(kernel.body, DeviceBody)
        addresses = [array.ctypes.data for array in tensors]
        workspace = self._workspace(kernel, integers, 1)
        if workspace is not None:
            addresses.append(workspace.ctypes.data)
        buffers = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
        numbers = (ctypes.c_int64 * max(len(integers), 1))(*integers)
        for phase in kernel.body.phases:
            if phase.offset < 0:
                raise error(
                    "run.device-absent",
                    "the reference interpreter runs native code alone",
                    hint="use the C runtime",
                )
            count = _items(kernel, phase, integers)
            run = _PHASE(self._base + phase.offset)
            answers = [run(buffers, numbers, item, count) for item in range(count)]
            if failed := min((answer for answer in answers if answer), default=0):
                raise _assertion(kernel, failed)

    def _workspace(self, kernel: Kernel, integers: list[int], parts: int) -> np.ndarray | None:
        if kernel.workspace is None:
            return None
        size = formula.evaluate(kernel.workspace, integers)
        if size is None or size < 0:
            raise error("run.bad-dims", f"the workspace of kernel '{kernel.name}' has no possible size")
        if kernel.workspace_per_part:
            size = -(-size // 64) * 64 * parts
        return np.full(size + 1, 0xA5, np.uint8)
