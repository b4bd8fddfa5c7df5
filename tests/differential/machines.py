"""Draw machines whose devices are all this processor, and where the operations of a program run.

A board has a host and one to three further devices: most with a memory of their own, some in the
memory of the host; reached over a tree of links, so that some values take several hops; some lack
operators or element types, have little memory, share hardware or engines. Since everything runs here,
what a program gives on any of them is what it gives on the host alone.

A placement is drawn in three ways: pins by the names that `explain` gives, annotations written into the
program, and predicted time on a board whose figures make sharing pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import inlay
from inlay.api import compilation
from inlay.base.diagnostics import CompileError, RunError
from inlay.bytecode.program import CopyBody, DeviceBody, Program
from inlay.ir import make
from inlay.ir.expr import Call, Expr, OpRef
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.ir.walk import rewrite
from inlay.machine.board import Board
from inlay.machine.board_file import read_board
from inlay.ops.device import ON_DEVICE, OnDeviceAttrs
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.differential.onnx_compare import differs
from tests.differential.onnx_draw import Draw

REFUSALS = frozenset(
    {
        "placement.bad-pin",
        "placement.unsupported-op",
        "placement.contradiction",
        "placement.over-capacity",
        "memory.no-room",
        "memory.scope-empty",
        "device.no-path",
    }
)
"""What a drawn machine may answer: it lacks an operator that was asked for there, or memory; a drawn pin has
no effect."""
_LACKING = ("matmul", "softmax", "add", "relu", "concat", "conv_nhwc_packed", "reshape")


def draw_board(d: Draw) -> str:
    """Return the file of a board."""
    names = ["near", "far", "side", "deep"][: d.int(2, 4)]
    lines = ['summary = "drawn"']
    native = ["[[arch]]", 'name = "native"', 'generator = "llvm"', 'loader = "native"', "hand_off_ns = 0"]
    if d.chance(0.3):
        lines.append(f'default = "{d.one(*names)}"')
    lines += native if d.chance(0.5) else []
    memories = {"near": ["ram"]}
    for name in names[1:]:
        own = f"{name}.mem"
        memories[name] = d.one([own], [own], [own], ["ram"], [own, "ram"], ["ram", own])
    for memory in dict.fromkeys(m for ms in memories.values() for m in ms):
        lines += ["[[memory]]", f'name = "{memory}"']
        if memory != "ram":
            lines.append(f'owner = "{memory.partition(".")[0]}"')
            if d.chance(0.3):
                lines.append(f'bytes = "{d.one("512B", "4KiB", "64KiB", "1MiB")}"')
            if d.chance(0.2):
                lines.append(f"alignment = {d.one(1, 16, 128, 4096)}")
        lines.append(f"bytes_per_ns = {d.one(1, 12, 100)}")
    for name in names:
        arch = "native" if name == "near" or d.chance(0.4) else f"arch_{name}"
        if arch != "native":
            lines += _arch(d, arch)
        lines += ["[[device]]", f'name = "{name}"', f'arch = "{arch}"']
        lines.append("memories = [" + ", ".join(f'"{m}"' for m in memories[name]) + "]")
        if d.chance(0.2):
            lines.append('shares = "silicon"')
    together = [n for n in names if "ram" in memories[n]]
    if len(together) > 1:  # compiling refuses a board whose devices share memory and are not coherent
        parties = ", ".join(f'"{n}"' for n in together)
        lines += ["[[coherent]]", 'memory = "ram"', f"parties = [{parties}]"]
    return (
        "\n".join([*lines, *_links(d, list(dict.fromkeys(m for ms in memories.values() for m in ms)))]) + "\n"
    )


def _arch(d: Draw, name: str) -> list[str]:
    lines = ["[[arch]]", f'name = "{name}"', 'generator = "llvm"', 'loader = "native"']
    if d.chance(0.3):
        lines.append('dtypes = ["f32", "i64", "bool"]')
    if d.chance(0.2):
        lines.append(f'operators = ["{d.one(*_LACKING)}", "{d.one(*_LACKING)}", "mul", "sub"]')
    if d.chance(0.6):
        lines.append(f"macs_per_ns = {d.one(1, 400)}")
        lines.append(f"elements_per_ns = {d.one(1, 80)}")
        lines.append(f"launch_ns = {d.one(0, 5, 3000)}")
    return lines


def _links(d: Draw, memories: Sequence[str]) -> list[str]:
    """Return links of a random tree, and sometimes one more, each with an engine or one for all."""
    pairs = [(memories[d.int(0, i - 1)], m) for i, m in enumerate(memories) if i]
    if len(memories) > 2 and d.chance(0.3):
        pairs.append((memories[0], memories[-1]))
    lines: list[str] = []
    shared = d.chance(0.3)
    listed = ", ".join(f'"{m}"' for m in memories)
    if shared:
        lines += ["[[engine]]", 'name = "dma"', f"memories = [{listed}]"]
        if d.chance(0.3):
            lines.append('device = "near"')
    for i, (a, b) in enumerate(dict.fromkeys(pairs)):
        engine = "dma" if shared else f"dma{i}"
        if not shared:
            lines += ["[[engine]]", f'name = "{engine}"', f'memories = ["{a}", "{b}"]']
        for one, other in ((a, b), (b, a)):
            lines += ["[[link]]", f'from = "{one}"', f'to = "{other}"', f'engine = "{engine}"']
            lines += [f"bytes_per_ns = {d.one(1, 8, 100)}", f"latency_ns = {d.one(0, 10, 2000)}"]
    return lines


@dataclass(frozen=True)
class Placement:
    """A program with annotations in it, the pins, and how it was drawn."""

    module: Module
    pins: tuple[str, ...]
    how: str


def draw_placement(d: Draw, module: Module, board: Board, names: Sequence[str]) -> Placement:
    """Return where a program is to run; `names` is what pins may call its operations."""
    devices = [x.name for x in board.devices]
    how = d.one("pins", "annotations", "cost", "both")
    pins: list[str] = []
    if how in ("pins", "both") and names:
        pins = [f"{d.one(*names)}={d.one(*devices)}" for _ in range(d.int(1, 6))]
        pins = list({p.rpartition("=")[0]: p for p in pins}.values())
    if how in ("annotations", "both"):
        module = annotated(d, module, devices)
    return Placement(module, tuple(pins), how)


def annotated(d: Draw, module: Module, devices: Sequence[str]) -> Module:
    """Return a program that asks for some results of operators to be somewhere."""
    share = d.one(0.1, 0.3, 0.8)

    def ask(e: Expr) -> Expr:
        if not isinstance(e, Call) or not isinstance(e.callee, OpRef):
            return e
        if not isinstance(e.type, TensorType) or not d.chance(share):
            return e
        attrs = OnDeviceAttrs(d.one(*devices), result=d.chance(0.05))
        return make.call(ON_DEVICE, (e,), attrs, span=e.span)

    functions = {n: rewrite(f, ask) for n, f in module.functions.items()}
    return module.with_functions(functions)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Job:
    """A program, what it is called with, and what it is to give: by the evaluator, by the host alone."""

    module: Module
    inputs: tuple[np.ndarray, ...]
    meaning: tuple[np.ndarray, ...]
    alone: tuple[np.ndarray, ...]


def job(module: Module, inputs: Sequence[np.ndarray], meaning: Sequence[Any], cache: str) -> Job:
    """Run a program on the host alone."""
    alone = results(inlay.compile(module, threads=1, cache=cache)(*inputs))
    return Job(module, tuple(inputs), tuple(map(np.asarray, meaning)), alone)


def results(found: Any) -> tuple[np.ndarray, ...]:
    """Return what a call gives as a tuple."""
    return tuple(map(np.asarray, found if isinstance(found, tuple) else (found,)))


def try_machine(task: Job, d: Draw, board: str, *, cache: str) -> tuple[str, str]:
    """Draw a placement on a board, run it in every mode; return what came out, and about what.

    Outcomes: `split` and `alone`, by whether a device besides the host has kernels; `refused`.

    Raises:
        AssertionError: a result, or what is left behind, is wrong.
        CompileError: with an id that no drawn machine may give.
    """
    machine = read_board("drawn", board, place="drawn.toml")
    try:
        placement = draw_placement(d, task.module, machine, _names(d, task.module, machine))
        options: dict[str, Any] = {
            "pins": placement.pins,
            "plan": "parallel" if d.chance(0.3) else "serial",
            "verify": d.chance(0.3),
            "cache": cache,
            "placement": d.one("best", "best", "first"),
        }
        program = compilation(placement.module, board=machine, **options).program
    except (CompileError, RunError) as refusal:
        if not set(refusal.ids) <= REFUSALS:
            raise
        return "refused", refusal.ids[0]
    run_everywhere(task, program, f"{placement.how} {options}", d)
    bodies = {type(k.body) for k in program.kernels}
    return "split" if {DeviceBody, CopyBody} <= bodies else "alone", placement.how


def run_everywhere(task: Job, program: Program, how: str, d: Draw) -> None:
    """Run in both modes and a drawn order, twice each; compare every result."""
    for settings in (
        Settings(threads=d.int(1, 2)),
        Settings(threads=2, mode="parallel", hand_off_ns=0),
        Settings(mode="replay", seed=d.int(0, 1000)),
    ):
        executable = executable_of(program, settings=settings)
        for _ in range(2):
            found = results(executable(*task.inputs))
            assert len(found) == len(task.meaning)
            for i, got in enumerate(found):
                for who, want in (("host", task.alone[i]), ("evaluator", task.meaning[i])):
                    why = differs(got, want, strict=True)
                    assert not why, f"{how} in {settings.mode} against the {who}: {why}"
        assert executable.live_objects() == 0, f"{how} in {settings.mode}"


def _names(d: Draw, module: Module, board: Board) -> list[str]:
    """Return what pins may call operations: nodes of the model mostly, operators sometimes."""
    try:
        found = inlay.explain(module, board).operations
    except (
        CompileError,
        RunError,
    ) as refusal:  # with what the board lacks, a pin may still be refused otherwise
        if not set(refusal.ids) <= REFUSALS:
            raise
        return []
    return [d.one(*(n for n in o.names if not n.startswith("@"))) for o in found]
