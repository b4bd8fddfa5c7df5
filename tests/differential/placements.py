"""Draw where the operations of a whole model run, and compare with the host alone.

A draw is pins by the names that `explain` gives, from a seed: one operation, a few, a share of them, a
kind of operator, or everything that the device can run. What nobody pins is placed by predicted time.
A draw that fails is told as the command that runs it again.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import inlay
from inlay.api import compilation
from inlay.base.diagnostics import CompileError, InlayError
from inlay.bytecode.program import CopyBody, DeviceBody
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.data import Case, Run
from tests.differential.onnx_draw import Draw


@dataclass(frozen=True)
class Alone:
    """A model, its stored runs, and what the host alone gives for each."""

    case: Case
    runs: Sequence[Run]
    outputs: Sequence[Mapping[str, np.ndarray]]


def alone(case: Case, cache: str) -> Alone:
    """Run a model on the host alone."""
    executable = inlay.compile(case.model, threads=1, cache=cache)
    runs = case.runs()
    return Alone(case, runs, [executable.run(run.inputs) for run in runs])


@functools.cache
def nameable(model: Path, board: str, device: str) -> list[tuple[str, ...]]:
    """Return what pins may call each operation that a device can run."""
    found = inlay.explain(model, board).operations
    able = [o for o in found if o.others.get(device, "cost").startswith(("cost", "capacity"))]
    return [tuple(n for n in o.names if not n.startswith("@")) for o in able]


def draw_pins(d: Draw, operations: Sequence[tuple[str, ...]], device: str) -> tuple[str, ...]:
    """Return pins of operations to a device."""
    how = d.one("one", "few", "share", "half", "kind", "kinds", "most")
    count = len(operations)
    if how in ("kind", "kinds"):
        kinds = list(dict.fromkeys(names[0] for names in operations))
        chosen = [d.one(*kinds) for _ in range(1 if how == "kind" else d.int(2, 4))]
    else:
        share = {"one": 0.0, "few": 0.0, "share": 0.15, "half": 0.5, "most": 0.9}[how]
        at_least = {"one": 1, "few": d.int(2, 5)}.get(how, 1)
        picked = [i for i in range(count) if d.chance(share)] or [
            d.int(0, count - 1) for _ in range(at_least)
        ]
        chosen = [_specific(operations[i]) for i in picked]
    return tuple(f"{name}={device}" for name in dict.fromkeys(chosen))


def _specific(names: Sequence[str]) -> str:
    """Return the name of a node of the model, or else of the operator."""
    return max(names, key=lambda n: ("/" in n or "_" in n, len(n)))


def command(case: Case, board: str, pins: Sequence[str]) -> str:
    """Return the command that runs a draw again."""
    said = " ".join(f"--pin {shlex.quote(p)}" for p in pins)
    return f"inlay run {case.model} --board {board} {said}"


def try_draw(model: Alone, board: str, device: str, seed: int, *, cache: str, name: str) -> str:
    """Draw pins and try them; see `try_placement`.

    Args:
        model: a model.
        board: the machine, as `inlay.compile` takes it.
        device: of it, that gets what is drawn.
        seed: of the draw.
        cache: folder of compiled objects.
        name: what a person calls the board.

    Raises:
        AssertionError: with the command, whatever is wrong.
    """
    pins = draw_pins(Draw(seed), nameable(model.case.model, board, device), device)
    try:
        return try_placement(model, board, pins, cache=cache, modes=("sequential", "parallel"))
    except (AssertionError, InlayError) as failure:
        where = f"draw {seed} of {model.case.id} on {name}"
        raise AssertionError(f"{where}: {failure}\n  {command(model.case, name, pins)}") from failure


def try_placement(model: Alone, board: str, pins: Sequence[str], *, cache: str, modes: Sequence[str]) -> str:
    """Compile with pins and run the stored inputs; return `split`, `alone` or `refused`.

    Raises:
        AssertionError: a result differs, or something is left behind.
        CompileError: with an id that no placement may give.
    """
    try:
        program = compilation(model.case.model, board=board, pins=tuple(pins), cache=cache).program
    except CompileError as refusal:
        if not set(refusal.ids) <= {"placement.unsupported-op"}:
            raise
        return "refused"
    for mode in modes:
        executable = executable_of(program, settings=Settings(threads=2, mode=mode))
        for run, expected in zip(model.runs, model.outputs, strict=True):
            compare(model.case, executable.run(run.inputs), expected)
        assert executable.live_objects() == 0, f"objects are left in {mode}"
    bodies = {type(k.body) for k in program.kernels}
    return "split" if {DeviceBody, CopyBody} <= bodies else "alone"


def compare(case: Case, found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Assert that integers are equal and floats within the tolerance of the case."""
    for name, want in expected.items():
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(found[name], want, err_msg=f"{case.id}.{name}")
    case.check(found, expected)
