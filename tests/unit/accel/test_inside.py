"""Copies between memories of a device: values stay where their readers read, though they are written elsewhere."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from inlay.accel.backend import AcceleratorBackend, backend_in_file
from inlay.accel.chains import larger
from inlay.accel.declare import Mock
from inlay.accel.kit import Checked, checks
from inlay.accel.kit_order import conflict, with_less
from inlay.accel.kit_sequences import stays
from inlay.accel.launch import Launcher
from inlay.accel.overlay import blocks
from inlay.accel.tiled import TiledCommand
from inlay.accelerators import strawberry
from inlay.base.diagnostics import CompileError
from inlay.interp.tensor import evaluate
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from tests.unit.accel.test_merge import Program

SOURCE = Path(strawberry.__file__).read_text(encoding="utf-8")
APART = (
    SOURCE.replace("    wgt = Memory(", "    out = Memory(act_kib * KiB, unit=block)\n    wgt = Memory(", 1)
    .replace("Out(act,", "Out(out,")
    .replace("st_act = Copy(act, dram", "st_act = Copy(out, dram")
    .replace('Library("inlay.accelerators._strawberry_model")', "Mock()")
    .replace("    Memory,\n", "    Memory,\n    Mock,\n", 1)
)
MOVING = APART.replace(
    "\n    # ---- patterns",
    "    move_out = Copy(out, act, store, 2, bytes_per_cycle=16, latency=4)\n\n    # ---- patterns",
    1,
).replace(
    "    @encodes(clear)",
    """    @encodes(move_out)
    def move_inside(self, c):
        return self.MOVE(op=2, **c.flags, kind=4, chip=c.chip.at, dram=c.to.at, y=c.y, x=c.x, stride=c.stride)

    @encodes(clear)""",
    1,
)


def backend_of(folder: Path, text: str) -> AcceleratorBackend:
    path = folder / "own.py"
    path.write_text(text, encoding="utf-8")
    return backend_in_file(str(path))


def merged(backend: AcceleratorBackend, module: Module) -> TiledCommand:
    (block,) = blocks(module.functions["main"].body)
    patterns = backend.patterns(())
    found = {}
    for var in block.calls:
        for match in patterns.at(var, block):
            if isinstance(match, TiledCommand) and not match.reasons:
                found[var] = match
    streams = larger(patterns.tiler, block.calls, block.uses, found)
    return next(s for s in streams if len(s.calls) == len(block.calls))


def drawn(seed: int) -> Module:
    p = Program(seed)
    shape = p.first
    x = p.convolution("x", shape, 16, 3)
    y = p.convolution(x, (16, *shape[1:]), 16, 3 if seed % 2 else 1)
    return parse_module(p.text(p.residual(x, y)), table())


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(4))
def test_values_stay_in_the_memory_of_their_readers(tmp_path, seed: int) -> None:
    module, backend = drawn(seed), backend_of(tmp_path, MOVING)
    found = merged(backend, module)
    arch = backend.patterns(()).arch
    assert stays(found)
    assert found.made is not None
    stream = found.made.scheduled.stream
    assert any(x.command.name == "move_out" for x in stream)
    assert conflict(arch, stream) == ""
    assert all(conflict(arch, fewer) for fewer, _ in islice(with_less(arch, stream), 40))
    f = module.functions["main"]
    x = (
        np.random.default_rng(seed)
        .integers(-128, 128, [e.value for e in f.params[0].type.shape])
        .astype(np.int8)
    )
    want = evaluate(module, [x], lambda op, attrs, args: table().definition(op).evaluate(attrs, *args))
    got = np.zeros_like(want)
    Launcher(arch, Mock(), "npu0", found, f.params)([x, got], [])
    np.testing.assert_array_equal(got, want)


def test_what_stays_is_not_brought_again(tmp_path) -> None:
    module = drawn(1)
    apart, moving = (backend_of(tmp_path, text) for text in (APART, MOVING))
    without, found = merged(apart, module), merged(moving, module)
    assert not stays(without)
    assert stays(found)
    assert found.total < without.total


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Copy(out, act, store", "Copy(out, out, store", "has one end, ends of other units"),
        ("Copy(out, act, store", "Copy(out, acc, store", "has one end, ends of other units"),
        ("kind=4, chip=c.chip.at, dram=c.to.at", "kind=4, chip=c.chip.at, dram=c.dram.at", "has no 'dram'"),
        ("kind=4, chip=c.chip.at, dram=c.to.at", "kind=4, chip=c.chip.at", "no field for dram"),
    ],
)
def test_copies_that_cannot_be_are_refused(tmp_path, old: str, new: str, message: str) -> None:
    assert old in MOVING
    with pytest.raises(CompileError) as refused:
        backend_of(tmp_path, MOVING.replace(old, new)).description
    assert message in str(refused.value)


@pytest.mark.llvm
@pytest.mark.slow
def test_the_kit_finds_nothing_wrong(tmp_path) -> None:
    found = [c for c in checks(backend_of(tmp_path, MOVING), 6, 0) if isinstance(c, Checked)]
    assert [c for c in found if c.failure] == []
