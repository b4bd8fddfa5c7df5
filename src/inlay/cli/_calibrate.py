"""Measures kernels and copies on the devices of a board that are here, against what is predicted.

Some small programs, and a model if one is given, run on each device in turn: everything that can run
there does. Times are those of the trace, one kernel after the other: on the host the least of several
runs, of devices and copies the middle. They go into a file (`placement/choose/calibration.py`):
for each device what a launch costs, a factor for each operator and the time of each kernel whose sizes
are known; for each link latency and bandwidth; and which devices do not work beside the host.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from inlay.analysis.cost import bytes_of
from inlay.api import compilation
from inlay.arith.expr import Sym
from inlay.base.diagnostics import RunError, unsupported
from inlay.bytecode.program import CopyBody, DeviceBody
from inlay.bytecode.spec import TensorSpec
from inlay.cli._command import Output
from inlay.cli._sizes import shape_of
from inlay.codegen.backend_table import unavailable
from inlay.ir import make
from inlay.ir.expr import Call, Function, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.walk import spine, substitute_vars
from inlay.machine.board import Board
from inlay.ops.device import CopyAttrs
from inlay.ops.table import table
from inlay.pipeline.build_kernels import LoopBody
from inlay.pipeline.detect import find_detected
from inlay.pipeline.devices import runnable
from inlay.placement.choose.calibration import calibrated, write_measured
from inlay.placement.choose.costs import Costs, Measured, Predictor, Step, is_static, kernel_key
from inlay.placement.choose.transfers import fitted
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable, executable_of
from inlay.runtime.trace import Event, EventKind

Inputs = Callable[[Executable], Mapping[str, np.ndarray]]
"""Gives inputs of an executable."""
_EMPTY = "fn main(x: Tensor[16, f32], y: Tensor[16, f32]) { add(x, y) }"
"""A kernel that does next to nothing: what it takes is a launch."""
_PRODUCT = f"matmul of {256**3} macs -> f32 {256**2}"
_HIDDEN = 0.4
"""Devices work side by side where so much of the shorter chain is hidden behind the longer one."""
_PROGRAMS = (
    _EMPTY,
    "fn main(x: Tensor[256, 256, f32], w: Tensor[256, 256, f32]) { matmul(x, w) }",
    "fn main(x: Tensor[256, 256, f32], y: Tensor[256, 256, f32]) { matmul(x, y) }",
    "fn main(x: Tensor[64, 384, f32], y: Tensor[384, 64, f32]) { matmul(x, y) }",
    "fn main(x: Tensor[1, 32, 56, 56, f32], w: Tensor[32, 32, 3, 3, f32]) { conv(x, w) }",
    "fn main(x: Tensor[1, 64, 14, 14, f32], w: Tensor[64, 64, 1, 1, f32]) { conv(x, w) }",
    "fn main(x: Tensor[1024, 1024, f32], y: Tensor[1024, 1024, f32]) { add(x, y) }",
    "fn main(x: Tensor[32, 1024, f32], y: Tensor[32, 1024, f32]) { mul(x, y) }",
    "fn main(x: Tensor[512, 512, f32]) { exp(x) }",
    "fn main(x: Tensor[512, 512, f32]) { tanh(x) }",
    "fn main(x: Tensor[512, 512, f32]) { softmax(x) }",
    "fn main(x: Tensor[1024, 1024, f32]) { reduce_sum{axes=[1]}(x) }",
    "fn main(x: Tensor[1024, 1024, f32]) { transpose{perm=[1, 0]}(x) }",
)
"""Operands called `w` are constants, so that they are packed as weights of models are."""


@dataclass(slots=True)
class _Samples:
    """What the trace said.

    Attributes:
        kernels: nanoseconds, steps and sizes of dims, by device and key.
        copies: bytes and nanoseconds, by names of two memories.
        launches: nanoseconds, by device.
    """

    kernels: dict[tuple[str, str], tuple[float, Sequence[Step], Mapping[Sym, int]]] = field(
        default_factory=dict[tuple[str, str], "tuple[float, Sequence[Step], Mapping[Sym, int]]"]
    )
    copies: dict[tuple[str, str], list[tuple[float, float]]] = field(
        default_factory=dict[tuple[str, str], "list[tuple[float, float]]"]
    )
    launches: dict[str, float] = field(default_factory=dict[str, float])


def calibrate(name: str, path: Path, seconds: float, output: Output, *models: tuple[Module, Inputs]) -> None:
    """Measure, and write the file.

    Args:
        name: of the board.
        path: where to write.
        seconds: for each program on each device.
        output: for words.
        models: programs to measure besides, and what gives their inputs.

    Raises:
        UnsupportedError: `bench.nothing-to-measure` where no device of the board is here.
    """
    board = runnable(find_detected(name))
    samples = _Samples()
    programs = [*((_program(text), _inputs) for text in _PROGRAMS), *models]
    for device in _here(board):
        variant = replace(board, default=device)
        try:
            for index, (module, inputs) in enumerate(programs):
                _measure(module, inputs, variant, seconds, samples, is_launch=index == 0)
        except RunError as failure:
            if failure.ids != ("run.device-absent",):
                raise
            output.say(f"{device:8} is not here: {failure.diagnostics[0].message}")
    if not samples.kernels:
        raise unsupported(
            "bench.nothing-to-measure",
            f"found no device of board '{board.name}' that is here",
            hint="measure on the machine itself, or describe speeds in the board's file",
        )
    here = [d for d in _here(board) if any(d == device for device, _ in samples.kernels)]
    measured = replace(_summary(board, samples), exclusive=_exclusive(board, here, samples))
    for device, ns in measured.launches.items():
        output.say(f"{device:8} {'a launch':20} {ns / 1000:9.2f} us")
    for (device, operator), factor in sorted(measured.factors.items()):
        output.say(f"{device:8} {operator:20} {factor:9.2f} x predicted")
    for (a, b), (latency, rate) in measured.links.items():
        output.say(f"{a} -> {b}: {latency / 1000:.1f} us and {rate:.2f} GB/s")
    for pair in sorted(measured.exclusive):
        output.say(f"{' and '.join(pair)} exclude each other: one works while the other waits")
    sources = [s for module, _ in models for s in module.sources]
    write_measured(path, board.name, measured, sources)
    output.say(f"wrote {path}")
    output.record(
        file=str(path),
        launch_ns=measured.launches,
        factors={f"{d}.{n}": f for (d, n), f in measured.factors.items()},
        links={f"{a} -> {b}": link for (a, b), link in measured.links.items()},
        exclusive=sorted(measured.exclusive),
    )


def _here(board: Board) -> list[str]:
    """Return the devices for which code is made here and run."""
    if unavailable(board, board.host.name):
        return []
    return [d.name for d in board.devices if not unavailable(board, d.name)]


def _program(text: str) -> Module:
    """Return a program whose operand `w` is a constant."""
    module = parse_module(text, table())
    main = module.functions["main"]
    rng = np.random.default_rng(0)
    weights = {
        p: make.const(rng.random(_shape(p), np.float32) - np.float32(0.5))
        for p in main.params
        if p.name == "w"
    }
    params = tuple(p for p in main.params if p not in weights)
    body = substitute_vars(main.body, weights)
    return module.with_functions({"main": make.function(params, body, span=main.span)})


def _shape(p: Var) -> tuple[int, ...]:
    shape = getattr(p.type, "shape", ())
    return tuple(d.value or 1 for d in shape)


def _measure(
    module: Module, inputs_of: Inputs, board: Board, seconds: float, samples: _Samples, *, is_launch: bool
) -> None:
    """Run a program with all that can on the default device of a board, and keep the least times."""
    device = board.default
    compiled = compilation(module, board=board, placement="first", threads=1)
    settings = Settings(threads=1, trace=True)
    executable = executable_of(
        compiled.program,
        threads=1,
        mode="sequential",
        settings=settings,
        externs=compiled.externs,
        callbacks=compiled.functions,
    )
    inputs = inputs_of(executable)
    taken: dict[str, list[float]] = {}
    bodies = DeviceBody | CopyBody
    off_host_names = {k.name for k in compiled.program.kernels if isinstance(k.body, bodies)}
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 4 or time.perf_counter() < end:
        executable.run(inputs)
        for name, ns in _costs(executable.events()):
            if rounds:
                taken.setdefault(name, []).append(ns)
        rounds += 1
    sizes = {
        s.name: inputs[executable.entries[0].inputs[s.input].name].shape[s.axis]
        for s in executable.entries[0].symbols
    }
    for name, times in taken.items():
        # Handing over wakes threads, which has no least time that one could count on.
        ns = statistics.median(times) if name in off_host_names else min(times)
        body = compiled.module.kernels[name].body
        if not isinstance(body, LoopBody):
            continue
        steps = _steps(body.function)
        attrs = steps[0][1].callee.attrs if isinstance(steps[0][1].callee, OpRef) else None
        dims = {d.sym: sizes.get(d.sym.name, 64) for d in body.function.type.dims}
        if isinstance(attrs, CopyAttrs):
            predictor = Predictor(board, table(), Costs(), dims)
            size = predictor.number(bytes_of(steps[0][1].type))
            ends = (board.devices_by_name[d].memories[0] for d in (attrs.src, attrs.dst))
            source, target = ends
            link = attrs.src_memory or source, attrs.dst_memory or target
            samples.copies.setdefault(link, []).append((size, ns))
            continue
        place = body.function.place
        where = board.host.name if place is None else place.device
        if where == device:
            if is_launch:
                samples.launches[device] = ns
            else:
                samples.kernels[device, kernel_key(steps, table())] = (ns, steps, dims)


def _costs(events: Sequence[Event]) -> Iterator[tuple[str, float]]:
    """Yield kernels and copies with what each costs the program that waits for it.

    A device tells when it worked; before and behind that the host hands over and waits. One after the
    other, each command of a device has its wait, in the same order.
    """
    runs = [e for e in events if e.kind is EventKind.RUN]
    off_host = sorted((e for e in runs if e.device), key=lambda e: e.begin)
    waits = sorted((e for e in events if e.kind is EventKind.WAIT), key=lambda e: e.begin)
    spans = waits if len(waits) == len(off_host) else off_host
    yield from ((e.name, e.end - e.begin) for e in runs if not e.device)
    yield from ((e.name, span.end - span.begin) for e, span in zip(off_host, spans, strict=True))


def _steps(function: Function) -> list[Step]:
    lets, tail = spine(function.body)
    found: list[Step] = [(x.var, x.value) for x in lets if isinstance(x.value, Call)]
    return [*found, (None, tail)] if isinstance(tail, Call) else found


def _inputs(executable: Executable) -> dict[str, np.ndarray]:
    rng, entry = np.random.default_rng(0), executable.entries[0]
    return {
        s.name: rng.random(shape_of(s, ()), np.float32) for s in entry.inputs if isinstance(s, TensorSpec)
    }


def _exclusive(board: Board, devices: Sequence[str], samples: _Samples) -> frozenset[tuple[str, str]]:
    """Return which devices do not work beside the host.

    A chain of products runs on the host, one on the device, and both in one program; the chains are
    about as long. Of the shorter one, what the program does not hide behind the other counts.
    """
    found: set[tuple[str, str]] = set()
    host = board.host.name
    times = {d: ns for (d, key), (ns, _, _) in samples.kernels.items() if key == _PRODUCT}
    for device in devices:
        if device == host or not times.get(host) or not times.get(device):
            continue
        shape = "Tensor[256, 256, f32]"
        chains = {d: _chain(d, min(40, max(4, round(4e6 / times[d])))) for d in (host, device)}
        texts = {d: f"fn main({d}0: {shape}) {{ {lets} {last} }}" for d, (lets, last) in chains.items()}
        (lets, last), (others, other) = chains.values()
        texts[""] = f"fn main({host}0: {shape}, {device}0: {shape}) {{ {lets} {others} ({last}, {other}) }}"
        alone = {which: _least(text, board) for which, text in texts.items()}
        hidden = alone[host] + alone[device] - alone[""]
        if hidden < _HIDDEN * min(alone[host], alone[device]):
            found.add((host, device))
    return frozenset(found)


def _chain(device: str, count: int) -> tuple[str, str]:
    """Return lets of so many products one after the other on a device, and the last one's name."""
    lets = (
        f'let {device}{i + 1} = on_device{{device="{device}"}}(matmul({device}{i}, {device}{i}));'
        for i in range(count)
    )
    return " ".join(lets), f"{device}{count}"


def _least(text: str, board: Board) -> float:
    """Return the shortest of some runs of a program in parallel mode, in nanoseconds."""
    compiled = compilation(parse_module(text, table()), board=board, threads=1)
    executable = executable_of(compiled.program, threads=1, mode="parallel")
    inputs = {
        s.name: np.zeros(shape_of(s, ()), np.float32)
        for s in executable.entries[0].inputs
        if isinstance(s, TensorSpec)
    }
    times: list[float] = []
    for _ in range(12):
        begun = time.perf_counter_ns()
        executable.run(inputs)
        times.append(time.perf_counter_ns() - begun)
    return min(times)


def _summary(board: Board, samples: _Samples) -> Measured:
    links = {link: fitted(found) for link, found in samples.copies.items()}
    measured = Measured(launches=samples.launches, links=links)
    totals: dict[tuple[str, str], list[float]] = {}
    for (device, _), (ns, steps, dims) in samples.kernels.items():
        predictor = Predictor(calibrated(board, measured), table(), Costs(measured=measured), dims)
        launch = samples.launches.get(device, board.arch_of(device).speed.launch_ns)
        work, taken = predictor.kernel(steps, device) - launch, max(ns - launch, 0.05 * ns)
        for operator in (predictor.heaviest(steps, device), "*"):
            total = totals.setdefault((device, operator), [0.0, 0.0])
            total[0] += taken
            total[1] += max(work, 1.0)
    factors = {key: taken / work for key, (taken, work) in totals.items()}
    kernels = {key: ns for key, (ns, _, _) in samples.kernels.items() if is_static(key[1])}
    return Measured(factors, samples.launches, kernels, links)
