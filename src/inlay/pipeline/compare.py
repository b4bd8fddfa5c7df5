"""Layer by layer: what devices give for each of their kernels, against the host.

The program runs as it was planned. Where a device would compute a kernel, the host does too, from the same
operands, and what the host gives is what the rest of the program gets: so a difference is that of one kernel
alone, and none hides or makes another one. What the host runs is the operations of the kernel, compiled for
it as any program is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from inlay.arith.expr import Sym, evaluate
from inlay.base.diagnostics import InternalError, error
from inlay.base.instrument import Instrument
from inlay.base.registry import suggestion
from inlay.bytecode import formula
from inlay.bytecode.program import HostBody
from inlay.ir.expr import Call, Const, Expr, Function, Let, Tuple, Var
from inlay.ir.kernel import Access, Kernel
from inlay.ir.module import EntryNames, Module
from inlay.ir.types import IntType
from inlay.ir.walk import spine
from inlay.machine.board import Board
from inlay.pipeline.build_kernels import LoopBody
from inlay.pipeline.compile import Compilation, compile_module
from inlay.pipeline.devices import device_of_kernel
from inlay.pipeline.differences import Difference, difference
from inlay.pipeline.options import CompileOptions
from inlay.runtime.calls import DriverCall, calls_of, opened
from inlay.runtime.native import Callback, Clocked
from inlay.runtime.session import Executable, executable_of
from inlay.vm.signature import positions_of

T = TypeVar("T")
ROUNDS = 3
"""How often a kernel runs to be timed; the least counts."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One run of a kernel of a device.

    Attributes:
        device: that runs it.
        kernel: its name.
        origin: the operators in it.
        results: how far each is from that of the host.
        predicted_ns: what the device was predicted to take; None where nothing says.
        device_ns, host_ns: what it took here, in nanoseconds.
        clock_ns: what it took by the clock of the device, where it has one.
    """

    device: str
    kernel: str
    origin: str
    results: tuple[Difference, ...]
    predicted_ns: float | None
    device_ns: int
    host_ns: int
    clock_ns: float | None


def check_compared(names: Sequence[str], board: Board) -> None:
    """Refuse what are not the host of a board and others of its devices.

    Raises:
        CompileError: `name.unknown`, `option.bad-value`.
    """
    known = [d.name for d in board.devices]
    for name in names:
        if name not in known:
            hint = suggestion(name, known, f"the board has {', '.join(known)}")
            raise error("name.unknown", f"found no device named '{name}'", hint=hint)
    host = board.host.name
    if len(names) < 2 or names[0] != host or len(set(names)) < len(names):
        raise error(
            "option.bad-value",
            f"found {', '.join(names)} to compare, needed {host}, which is the host, and others after it",
            hint=f"as in --compare {host},{next((n for n in known if n != host), 'npu0')}",
        )


def comparing(
    found: Compilation,
    options: CompileOptions,
    devices: Sequence[str],
    instrument: Instrument,
    threads: int | None = None,
) -> tuple[Executable, list[Compared]]:
    """Return an executable, and the list to which its runs add what they compared, in order of execution.

    Args:
        found: a compilation.
        options: that it was made with.
        devices: to be compared with the host.
        instrument: where times go.
        threads: of the host; all processors by default.

    Raises:
        CompileError: `option.bad-value` for a device with nothing to compare.
    """
    kernels = {n: k for n, k in found.module.kernels.items() if device_of_kernel(k) in devices}
    functions = _functions(found)
    for device in devices:
        mine = [n for n, k in kernels.items() if device_of_kernel(k) == device]
        if not any(n in functions for n in mine):
            why, hint = _nothing_there(found.run.setting.board, device, runs=bool(mine))
            raise error("option.bad-value", f"found nothing to compare on '{device}': {why}", hint=hint)
    compared = {n: k for n, k in kernels.items() if n in functions}
    reference = _reference(compared, found, options, instrument, threads)
    seen: list[Compared] = []
    given = {
        n: _both(k, *functions[n], partial(_run, reference, n), seen.append) for n, k in compared.items()
    }
    callbacks = {**found.functions, **given}
    whole = executable_of(
        found.program, threads=threads, mode="sequential", externs=found.externs, callbacks=callbacks
    )
    return whole, seen


def _nothing_there(board: Board, device: str, *, runs: bool) -> tuple[str, str]:
    """Return why nothing of a device can be compared, and what to do."""
    if runs:
        hint = f"compare the outputs (--output) of this run and of one with --pin '*={board.host.name}'"
        return "its kernels are no calls of a driver here", hint
    hint = (
        f"`inlay explain --all` says of each operation why it is elsewhere; --pin OPERATOR={device} puts "
        "it there, or says why it cannot be"
    )
    return "it runs nothing of this program", hint


def _functions(found: Compilation) -> Mapping[str, tuple[Callback, DriverCall | None]]:
    """Return what computes kernels in this process, by name; with what is called, where it is a driver."""
    calls = calls_of(lambda: found.program, found.program.properties)
    plain: dict[str, tuple[Callback, DriverCall | None]] = {n: (f, None) for n, f in found.functions.items()}
    return plain | {k.body.name: (opened(c), c) for k, c in calls.items() if isinstance(k.body, HostBody)}


def _both(
    kernel: Kernel,
    device: Callback,
    call: DriverCall | None,
    reference: Callable[[Kernel, Sequence[np.ndarray], Sequence[int]], Sequence[np.ndarray]],
    keep: Callable[[Compared], None],
) -> Callback:
    """Return what runs a kernel on a device and on the host, and compares."""
    reads, tensors = sum(p.access is Access.READ for p in kernel.ports), len(kernel.ports)

    def run(arrays: list[np.ndarray], ints: list[int]) -> None:
        want, host_ns = _timed(lambda: reference(kernel, arrays[:reads], ints))
        _, device_ns = _timed(lambda: device(arrays, ints))
        results = tuple(difference(w, g) for w, g in zip(want, arrays[reads:tensors], strict=True))
        predicted: float | None = None
        clock: float | None = None
        if call is not None:
            picoseconds = formula.evaluate(call.picoseconds, ints)
            predicted = None if picoseconds is None else picoseconds / 1000
        elif isinstance(device, Clocked):
            predicted, clock = device.predicted_ns(arrays), device.clock_ns()
        name, origin = device_of_kernel(kernel), kernel.origin
        keep(Compared(name, kernel.name, origin, results, predicted, device_ns, host_ns, clock))
        for array, value in zip(arrays[reads:tensors], want, strict=True):
            array[...] = value

    return run


def _timed(function: Callable[[], T]) -> tuple[T, int]:
    times: list[int] = []
    for _ in range(ROUNDS - 1):
        begun = time.perf_counter_ns()
        function()
        times.append(time.perf_counter_ns() - begun)
    begun = time.perf_counter_ns()
    found = function()
    return found, min(*times, time.perf_counter_ns() - begun)


# ---------------------------------------------------------------------------- the host


def _reference(
    kernels: Mapping[str, Kernel],
    found: Compilation,
    options: CompileOptions,
    instrument: Instrument,
    threads: int | None,
) -> Executable:
    """Return a program of the host with an entry for each kernel."""
    functions: dict[str, Function] = {}
    entries: dict[str, EntryNames] = {}
    for name, kernel in kernels.items():
        assert isinstance(kernel.body, LoopBody), "kernels of devices keep their operations"
        functions[name] = alone(kernel.body.function)
        results = sum(p.access is not Access.READ for p in kernel.ports)
        inputs = tuple(f"x{i}" for i in range(len(functions[name].params)))
        entries[name] = EntryNames(inputs, tuple(f"y{i}" for i in range(results)))
    module = Module(functions, entries=entries, entry=next(iter(functions)))
    pins = (f"*={found.run.setting.board.host.name}",)
    here = replace(options, pins=pins, required=(), budget=(), dims=(), outputs=(), typical=())
    made = compile_module(module, here, instrument, threads)
    return executable_of(made.program, threads=threads, callbacks=made.functions)


def _run(
    reference: Executable, name: str, kernel: Kernel, arrays: Sequence[np.ndarray], ints: Sequence[int]
) -> list[np.ndarray]:
    """Return the results of a kernel on the host."""
    assert isinstance(kernel.body, LoopBody), "kernels of devices keep their operations"
    env = {sym: ints[i] for sym, i in positions_of(kernel).items()}
    tensors = iter(arrays)
    given = [
        next(tensors) if not isinstance(p.type, IntType) else np.int64(_known(p, env))
        for p in kernel.body.function.params
    ]
    results = reference.run({f"x{i}": x for i, x in enumerate(given)}, entry=name)
    return [np.asarray(x) for x in results.values()]


def _known(p: Var, env: Mapping[Sym, int]) -> int:
    assert isinstance(p.type, IntType), "control values of kernels are integers"
    assert p.type.value is not None, "an integer parameter has a value over the dims"
    return evaluate(p.type.value, env)


def alone(function: Function) -> Function:
    """Return what a kernel computes as a function that may run anywhere: it says of no value where it is."""
    known: dict[Expr, Expr] = {p: replace(p, place=None) for p in function.params}
    lets, tail = spine(function.body)
    body: list[tuple[Let, Expr, Var]] = []
    for let in lets:
        value = _anywhere(let.value, known)
        var = replace(let.var, place=None)
        body.append((let, value, var))
        known[let.var] = var
    result = _anywhere(tail, known)
    for let, value, var in reversed(body):
        result = Let(var, value, result, let.type, let.span)
    params = [known[p] for p in function.params]
    return replace(
        function,
        params=tuple(p for p in params if isinstance(p, Var)),
        body=result,
        place=None,
        primitive=None,
    )


def _anywhere(e: Expr, known: Mapping[Expr, Expr]) -> Expr:
    match e:
        case Var():
            return known[e]
        case Const():
            return replace(e, place=None)
        case Call(args=args):
            return replace(e, args=tuple(_anywhere(a, known) for a in args), place=None)
        case Tuple(fields=parts):
            return replace(e, fields=tuple(_anywhere(a, known) for a in parts), place=None)
        case _:
            raise InternalError(f"a kernel of a device has a {type(e).__name__}", where="compare")
