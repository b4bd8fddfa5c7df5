"""A device as published: commands of several words, copies of a few rows, and hardware that orders queues by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from inlay.accel.accelerator import Architecture, describe
from inlay.accel.backend import backend_in_file
from inlay.accel.commands import SHARED, Place, Planned, Span
from inlay.accel.encode import decoded, encoded
from inlay.accel.kit import Checked, checks
from inlay.accel.order import unordered
from inlay.accel.stages import Untiled
from inlay.accel.stream_mock import StreamMock
from inlay.accel.waits import channels, in_order
from inlay.accelerators import gemmini
from inlay.base.diagnostics import RunError
from inlay.runtime.driver_places import function_of
from inlay.runtime.streams import region_of, run_words

SOURCE = Path(gemmini.__file__).read_text(encoding="utf-8")
MODEL = "inlay.accelerators._gemmini_model"


def architecture() -> Architecture:
    return describe(gemmini.Gemmini).architecture({})


def copied(name: str, queue: str, x: int, dram: int, chip: int) -> Planned:
    memory, cycles = {"mvin": ("act", 1), "mvin2": ("wgt", 16), "mvout": ("acc", 4)}[name]
    there = Span(memory, chip, chip + x)
    numbers = dict.fromkeys(("stride", "top", "bottom", "left", "right", "value"), 0)
    numbers |= {"y": 1, "x": x, "dram": dram}
    reads, writes = ((), (there,)) if queue == "load" else ((there,), ())
    return Planned(name, queue, numbers, {"chip": Place(chip)}, reads, writes, 8, x * cycles, is_copy=True)


def executed(name: str, n: int, c: int, a: int = 0, b: int = 0) -> Planned:
    places = {"c": Place(c, (1,))} | ({"a": Place(a, (1,)), "b": Place(b)} if name == "matmul" else {})
    reads = (Span("act", a, a + n), Span("wgt", b, b + 1)) if name == "matmul" else ()
    return Planned(name, "execute", {"N": n}, places, reads, (Span("acc", c, c + n),), n + 16)


def product(n: int) -> list[Planned]:
    """Return the commands of a product of n rows by a block, twice into the same rows."""
    once = [
        copied("mvin", "load", n, 0, 5),
        copied("mvin2", "load", 1, 1, 2),
        executed("zero", n, 7),
        executed("matmul", n, 7, 5, 2),
        copied("mvout", "store", n, 32, 7),
    ]
    return [*once, *once]


@pytest.mark.parametrize("run", ["model", "mock"])
def test_a_trace_computes_a_product_in_the_time_that_is_simulated(run) -> None:
    arch, n = architecture(), 4
    stream, timing = in_order(arch, product(n))
    assert next(unordered(stream, channels(arch)), "") == ""
    words = encoded(arch, stream)
    assert len(words) == (2 * (2 + 2 + 3 + 3 + 2) + 1) * 17
    read = decoded(arch, words)
    assert [(x.command.name, dict(x.command.numbers)) for x in read] == [
        (x.command.name, dict(x.command.numbers)) for x in stream
    ]
    region, rng = region_of(4096), np.random.default_rng(1)
    a, b = rng.integers(-128, 128, (n, 16)), rng.integers(-128, 128, (16, 16))
    region[: n * 16] = a.astype(np.int8).view(np.uint8).ravel()
    region[256:512] = b.astype(np.int8).view(np.uint8).ravel()
    if run == "mock":
        StreamMock(arch, seed=3).run(words, region)
    else:
        target = function_of(MODEL, "gemmini_run", "npu0")
        assert run_words(target, "gemmini_run", "npu0", (10**9, 16), words, region) == timing.total
    found = region[32 * 64 : (32 + n) * 64].view(np.int32).reshape(n, 16)
    np.testing.assert_array_equal(found, a @ b)


def test_what_nothing_orders_is_found_where_the_hardware_does_not_look() -> None:
    arch = architecture()
    stream, _ = in_order(arch, product(4))
    bare = [type(x)(x.command, (), ()) for x in stream]
    assert "nothing orders command 0 before 3, and both touch act" in list(unordered(bare, channels(arch)))
    outside = Span(SHARED, 0, 64)
    writes, reads = copied("mvout", "store", 1, 0, 0), copied("mvin", "load", 1, 0, 0)
    both = [
        Planned(c.name, c.queue, c.numbers, c.places, (*c.reads, *r), (*c.writes, *w), 8, 1, is_copy=True)
        for c, r, w in ((writes, (), (outside,)), (reads, (outside,), ()))
    ]
    with pytest.raises(Untiled, match="the hardware orders no copies by addresses outside"):
        in_order(arch, both)
    again = [executed("zero", 1, 0), copied("mvout", "store", 1, 0, 0), copied("mvin", "load", 1, 0, 0)]
    with pytest.raises(RunError, match="the mock refuses: nothing orders command 1 before 2, and both touch"):
        StreamMock(arch).run(encoded(arch, in_order(arch, again)[0]), region_of(4096))


@pytest.mark.parametrize(
    ("commands", "fault"),
    [
        ([executed("matmul", 4, 0, 0, 0)], 4),
        ([copied("mvin", "load", 4, 0, 8190)], 2),
        ([copied("mvin", "load", 4, 255, 0)], 3),
    ],
)
def test_the_model_refuses(commands, fault) -> None:
    arch = architecture()
    words = encoded(arch, in_order(arch, commands)[0])
    target = function_of(MODEL, "gemmini_run", "npu0")
    if fault == 2:  # the last rows for activations are before those for weights, which are there
        run_words(target, "gemmini_run", "npu0", (10**9, 16), words, region_of(4096))
        return
    with pytest.raises(RunError, match=f"with the fault {fault}"):
        run_words(target, "gemmini_run", "npu0", (10**9, 16), words, region_of(4096))


DECLARED = [
    # what is wrong, and what is said
    ("order = (Interlock(load, execute, store),)", "order = ()", "no way of tokens"),
    (
        "order = (Interlock(load, execute, store),)",
        "order = Interlock(load)",
        "no tuple of Token(...), of AtMost(...)",
    ),
    ("Interlock(load, execute, store)", "Interlock(load, execute)", "without the queue 'store'"),
    (", c_stride=c_stride)", ", c_stride=1)", "no field for c stride 0"),
    ("return stride, self.MVOUT(", "return stride, c.nothing, self.MVOUT(", "has no 'nothing'"),
    ("most=16)\n    mvin2", "most=0)\n    mvin2", "moves at most 0 units"),
    ("return stride, self.MVOUT(", "return stride, 3, self.MVOUT(", "'mvout' to return tuple: no word"),
    ("strides = self.CONFIG_EX(", "return ()\n        strides = self.CONFIG_EX(", "to return tuple: no word"),
]
WRONG = [
    # what is wrong, the section that is named, and what is said
    ("funct=4, a=c.a.at", "funct=5, a=c.a.at", "drivers", "fault 1"),
    ('"add": 1, "acc": 1', '"acc": 1', "driver", "gives something else"),
    ("act = Memory(128 * KiB", "act = Memory(256 * KiB", "memory act", "no word says it"),
    ("wgt = Memory(128 * KiB", "wgt = Memory(132 * KiB", "memory wgt", "its last unit is"),
    ("most=16)\n    mvin2", "most=64)\n    mvin2", "drivers", "fault 1"),
    ("byte:4 dram:60", "byte:5 dram:59", "driver", "gives something else"),
    ("i32(a[i, k]) * i32(b[k, j])", "i32(a[i, k]) * i32(b[j, k])", "driver", "gives something else"),
    (
        "cycles=N + 16\n    )\n    def matmul",
        "cycles=N\n    )\n    def matmul",
        "cost of matmul",
        "are predicted",
    ),
    ("bus, latency=8, most=1)", "1, latency=8, most=1)", "cost", "predicted"),
    (
        "def conv(self, p):",
        "def conv(self, p):\n        p.need(lambda m: m.q, '')",
        "pattern conv",
        "nothing is",
    ),
]


def failures(folder: Path, old: str, new: str, trials: int) -> list[Checked]:
    assert old in SOURCE
    path = folder / "own.py"
    path.write_text(SOURCE.replace(old, new, 1), encoding="utf-8")
    return [c for c in checks(backend_in_file(str(path)), trials, 0) if isinstance(c, Checked) and c.failure]


@pytest.mark.parametrize(("old", "new", "message"), DECLARED)
def test_a_declaration_that_contradicts_itself_is_refused(tmp_path, old, new, message) -> None:
    (found,) = failures(tmp_path, old, new, 1)
    assert found.section == "declarations"
    assert message in found.failure


@pytest.mark.llvm
@pytest.mark.slow
@pytest.mark.parametrize(("old", "new", "section", "message"), WRONG)
def test_a_wrong_description_is_caught_at_its_section(tmp_path, old, new, section, message) -> None:
    found = failures(tmp_path, old, new, 10 if "most" in old else 5)
    assert any(section in c.section and message in c.failure for c in found), found


@pytest.mark.llvm
@pytest.mark.slow
def test_the_kit_finds_nothing_wrong(tmp_path) -> None:
    assert failures(tmp_path, "", "", 12) == []
