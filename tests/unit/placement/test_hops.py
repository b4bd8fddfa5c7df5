"""Capacities count where copies pass, and at the bounds of dims; what has no room there is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.base.diagnostics import CompileError
from inlay.machine.board import Board
from inlay.machine.device import Coherence
from inlay.machine.memory import PoolKind
from tests.unit.placement.cases import board, read
from tests.unit.placement.test_arithmetic import explained

FAR = board("cpu", {"cpu": "ram", "bridge": "pass", "far": "f.mem"}, "ram-pass pass-f.mem")
VALUE = "fn main(x: Tensor[64, 64, f32]) { neg(x) }"
SYMBOLIC = "fn main<n <= 64 typical 4>(x: Tensor[n, 64, f32]) { neg(x) }"


def sized(**sizes: int) -> Board:
    """Return the board with static memories of some sizes."""
    names = {m.name: sizes.get(m.name.replace(".", "_")) for m in FAR.memories}
    pools = [
        m if names[m.name] is None else replace(m, kind=PoolKind.STATIC, bytes=names[m.name])
        for m in FAR.memories
    ]
    return replace(FAR, memories=tuple(pools))


@pytest.mark.parametrize("text", [VALUE, SYMBOLIC], ids=["fixed", "at its bound"])
def test_a_value_must_fit_where_it_passes(text):
    """16 KiB there and 16 KiB back, one after the other."""
    room = sized(**{"pass": 32 << 10})
    assert explained(read(text), room, "neg=far").operations[0].device == "far"
    with pytest.raises(CompileError) as failure:
        explained(read(text), sized(**{"pass": 12 << 10}), "neg=far")
    assert failure.value.ids == ("placement.over-capacity",)
    assert f"pass has {12 << 10} bytes, and {16 << 10} are needed at once" in str(failure.value)


@pytest.mark.parametrize("memory", ["pass", "f_mem"])
@pytest.mark.parametrize("text", [VALUE, SYMBOLIC], ids=["fixed", "at its bound"])
def test_what_has_no_room_elsewhere_stays(text, memory):
    slow = replace(FAR.archs[0], speed=replace(FAR.archs[0].speed, elements_per_ns=1e-3))
    machine = sized(**{memory: 12 << 10})
    fast = replace(FAR.archs[0], name="fast")
    devices = tuple(replace(d, arch="fast") if d.name == "far" else d for d in machine.devices)
    machine = replace(machine, archs=(slow, fast), devices=devices)
    assert explained(read(text), machine).operations[0].device == "cpu"
    large = replace(machine, memories=sized(**{memory: 64 << 10}).memories)
    assert explained(read(text), large).operations[0].device == "far"


SHARED = board("cpu", {"cpu": "ram", "dsp": "ram fast", "mx": "fast"}, "ram-fast")
COHERENT = (Coherence("ram", ("cpu", "dsp", "dma")), Coherence("fast", ("dsp", "mx", "dma")))


@pytest.mark.parametrize(("size", "fits"), [(12 << 10, False), (64 << 10, True)])
def test_what_two_devices_see_is_in_a_memory_of_both(size, fits):
    """The first device has another memory with room, which the second does not see."""
    pools = [replace(m, kind=PoolKind.STATIC, bytes=size) if m.name == "fast" else m for m in SHARED.memories]
    machine = replace(SHARED, memories=tuple(pools), coherent=COHERENT)
    program = read("fn main(x: Tensor[64, 64, f32]) { exp(neg(x)) }")
    if fits:
        found = explained(program, machine, "neg=dsp", "exp=mx").operations
        assert [o.device for o in found] == ["dsp", "mx"]
        return
    with pytest.raises(CompileError) as failure:
        explained(program, machine, "neg=dsp", "exp=mx")
    assert failure.value.ids == ("placement.over-capacity",)


@pytest.mark.parametrize(("size", "fits"), [(24 << 10, False), (64 << 10, True)])
def test_what_others_see_elsewhere_is_copied(size, fits):
    """The cpu reads in ram what dsp made, so mx, which reaches the fast memory alone, has a copy there."""
    pools = [replace(m, kind=PoolKind.STATIC, bytes=size) if m.name == "fast" else m for m in SHARED.memories]
    machine = replace(SHARED, memories=tuple(pools), coherent=COHERENT)
    program = read("fn main(x: Tensor[64, 64, f32]) { let a = neg(x); (exp(a), sign(a)) }")
    pins = ("neg=dsp", "exp=cpu", "sign=mx")
    if fits:
        assert [o.device for o in explained(program, machine, *pins).operations] == ["dsp", "cpu", "mx"]
        return
    with pytest.raises(CompileError) as failure:
        explained(program, machine, *pins)
    assert failure.value.ids == ("placement.over-capacity",)


def test_a_bound_of_arithmetic_is_no_bound_of_a_dim():
    text = """fn main<n typical 4>(x: Tensor[n, 64, f32]) {
      neg(slice{axes=[0]}(x, shape(0), shape(1000000000), shape(1))) }"""
    found = explained(read(text), sized(**{"pass": 32 << 10}), "neg=far").operations
    assert found[-1].device == "far"
