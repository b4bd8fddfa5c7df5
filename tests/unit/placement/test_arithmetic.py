"""What is predicted, checked by hand: sizes of copies, room, turns of loops, arms of branches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import inlay
from inlay.analysis.blocks import values
from inlay.api import compilation
from inlay.base.diagnostics import CompileError
from inlay.ir import make
from inlay.ir.expr import Call, Expr, OpRef
from inlay.ir.walk import rewrite
from inlay.machine.board_check import Use
from inlay.machine.board_file import read_board
from inlay.ops.device import DEVICE_COPY
from inlay.pipeline import planning
from inlay.placement import plan_places
from inlay.placement.choose.capacity import fits, memory_groups, peaks, predict, too_small
from inlay.placement.choose.costs import Costs
from inlay.placement.choose.schedule import Item, Problem, Task
from inlay.placement.explain.reasons import explain
from inlay.placement.plan_places import Choice
from tests.unit.placement.cases import OPS, capability, normal, read

BOARD = """
[[arch]]
name = "slow"
macs_per_ns = 1
[[arch]]
name = "fast"
operators = ["matmul", "tanh", "neg", "add"]
macs_per_ns = 1000
elements_per_ns = 1000
transcendentals_per_ns = 1000
[[memory]]
name = "ram"
bytes_per_ns = 1000
[[memory]]
name = "npu.mem"
bytes_per_ns = 1000
FIRST
MORE
[[device]]
name = "cpu"
arch = "slow"
memories = ["ram"]
[[device]]
name = "npu"
arch = "fast"
memories = ["npu.mem"WITH]
[[engine]]
name = "dma"
memories = ["ram", "npu.mem"WITH]
[[link]]
from = "ram"
to = "npu.mem"
engine = "dma"
bytes_per_ns = 1
[[link]]
from = "npu.mem"
to = "ram"
engine = "dma"
bytes_per_ns = 1
"""
"""Nothing but copies takes time on the device: a byte a nanosecond."""


def board(first: str = "", more: str = "", name: str = ""):
    extra = f', "{name}"' if name else ""
    text = BOARD.replace("FIRST", first).replace("MORE", more).replace("WITH", extra)
    return read_board("hand", text, place="hand.toml", use=Use({d.name for d in OPS}))


def weighted(text: str, **shapes: tuple[int, ...]):
    """Return a program in which variables of some names are constants."""
    module = read(text)
    main = module.functions["main"]
    weights = {p: make.const(np.ones(shapes[p.name], np.float32)) for p in main.params if p.name in shapes}
    params = tuple(p for p in main.params if p not in weights)

    def put(e: Expr) -> Expr:
        return weights.get(e, e)  # type: ignore[call-overload]

    body = rewrite(main.body, put)
    return module.with_functions({"main": make.function(params, body, span=main.span)})


def explained(module, machine, *pins: str, costs: Costs | None = None):
    module = plan_places.with_host_ends(normal(module), plan_places.Place(machine.host.name))
    return explain(module, machine, capability(machine), Choice(OPS, costs or Costs(), pins))


PRODUCT = "fn main(x: Tensor[1, 1024, f32], w: Tensor[1024, 1024, f32]) { matmul(x, w) }"


def test_constants_are_not_copied_by_the_program():
    """4 KiB go there and come back; 4 MiB of weights are there when it is loaded."""
    e = explained(weighted(PRODUCT, w=(1024, 1024)), board(), "matmul=npu")
    (kernel,) = e.operations
    copies = sorted(c.bytes for c in e.copies)
    assert copies == [4096, 4096]
    assert e.total_ns == pytest.approx(kernel.ns + sum(c.ns for c in e.copies))
    given = explained(read(PRODUCT), board(), "matmul=npu")
    assert given.total_ns - e.total_ns == pytest.approx(4 << 20)


def test_an_input_is_copied_at_its_own_size():
    """Not at the middle of all operands."""
    text = "fn main(x: Tensor[1, 1024, f32], y: Tensor[64, 1024, f32]) { add(x, y) }"
    e = explained(read(text), board(), "add=npu")
    assert e.total_ns == pytest.approx(4096 * (1 + 64 + 64) + e.operations[0].ns)


def test_constants_take_room():
    text = weighted(PRODUCT, w=(1024, 1024))
    small, large = board('bytes = "4MiB"'), board('bytes = "5MiB"')
    assert explained(text, large, "matmul=npu").operations[0].device == "npu"
    with pytest.raises(CompileError) as failure:
        explained(text, small, "matmul=npu")
    assert failure.value.ids == ("placement.over-capacity",)
    said = str(failure.value)
    assert f"npu.mem has {4 << 20} bytes, and {(4 << 20) + 8192} are needed at once" in said
    assert f"constants there take {4 << 20} bytes" in said
    e = explained(text, small)
    assert e.operations[0].device == "cpu"
    assert (
        e.operations[0]
        .others["npu"]
        .startswith(
            f"capacity: the values would not fit in npu.mem, which has {4 << 20} bytes: "
            f"{(4 << 20) + 8192} are needed at once"
        )
    )


@pytest.mark.parametrize("kind", ["static", "rom"])
def test_all_memories_of_a_device_hold_constants(kind):
    """Also those that nothing writes; and values are in the first that has room."""
    more = f'[[memory]]\nname = "npu.more"\nkind = "{kind}"\nbytes = "4MiB"'
    text = weighted(PRODUCT, w=(1024, 1024))
    e = explained(text, board('bytes = "64KiB"', more, "npu.more"), "matmul=npu")
    assert e.operations[0].device == "npu"
    values_too = "fn main(x: Tensor[1024, 512, f32]) { neg(x) }"
    machine = board('bytes = "1MiB"', more.replace("4MiB", "8MiB"), "npu.more")
    if kind == "rom":
        with pytest.raises(CompileError) as failure:
            explained(read(values_too), machine, "neg=npu")
        assert failure.value.ids == ("placement.over-capacity",)
    else:
        assert explained(read(values_too), machine, "neg=npu").operations[0].device == "npu"


def test_nothing_writes_rom():
    more = '[[memory]]\nname = "flash"\nkind = "rom"'
    machine = board("", more, "flash")
    machine = replace(
        machine,
        devices=tuple(
            replace(d, memories=("flash", *(m for m in d.memories if m != "flash"))) if d.name == "npu" else d
            for d in machine.devices
        ),
    )
    module = plan_places.with_host_ends(
        normal(read("fn main(x: Tensor[64, f32]) { neg(tanh(x)) }")), plan_places.Place("cpu")
    )
    choice = Choice(OPS, Costs(), ("tanh=npu",))
    placed = plan_places.plan(module, machine, capability(machine), choice)
    copies = [
        v.callee.attrs
        for v in values(placed.functions["main"].body)
        if isinstance(v, Call) and isinstance(v.callee, OpRef) and v.callee.op is DEVICE_COPY
    ]
    assert copies
    assert all(c.dst_memory != "flash" for c in copies)
    link = '[[link]]\nfrom = "ram"\nto = "flash"\nengine = "dma"'
    with pytest.raises(CompileError, match="a link to 'flash', which is rom"):
        board("", f"{more}\n{link}", "flash")


LOOP = """
fn main(x: Tensor[1024, f32], y: Tensor[1024, f32]) {
  let loop = fn<i>(i: int[i], h: Tensor[1024, f32]) -> Tensor[1024, f32] {
    if (int_less(int(i), int(COUNT))) { loop(int(i + 1), add(tanh(h), y)) } else { h } };
  loop(int(0), x) }
"""


@pytest.mark.parametrize("count", [3, 500])
def test_known_turns_are_counted(count):
    e = explained(read(LOOP.replace("COUNT", str(count))), board(), "*=cpu")
    assert e.iterations == {"loop": (count, "the program")}
    assert e.total_ns == pytest.approx(count * sum(o.ns for o in e.operations))


def test_unknown_turns_are_a_guess_that_is_stated():
    text = """
    fn main(x: Tensor[8, f32]) {
      let loop = fn(h: Tensor[8, f32]) -> Tensor[8, f32] {
        if (less_at(h)) { loop(tanh(h)) } else { neg(h) } };
      loop(x) }
    """.replace("less_at(h)", "to_control(less(reduce_max{axes=[0]}(h), f32(2.0)))")
    e = explained(read(text), board(), "*=cpu")
    assert e.iterations == {"loop": (10, "a guess")}
    by_name = {o.operator: o.ns for o in e.operations}
    in_turns = sum(ns for name, ns in by_name.items() if name != "neg")
    assert e.total_ns == pytest.approx(10 * in_turns + by_name["neg"])


def test_copies_of_what_a_loop_reads_from_outside_count_once():
    """`x` and `y` go there, the result comes back: three copies, whatever the number of turns."""
    e = explained(read(LOOP.replace("COUNT", "50")), board(), "*=npu")
    assert len(e.copies) == 3
    assert 3 * 4096 <= e.total_ns <= 3 * 4096 + 50 * sum(o.ns for o in e.operations) < 4 * 4096


def test_one_arm_of_a_branch_runs():
    text = """
    fn main(c: bool, x: Tensor[1024, f32]) {
      let y = if (c) { tanh(x) } else { neg(x) }; add(y, y) }
    """
    e = explained(read(text), board(), "*=cpu")
    ns = {o.operator: o.ns for o in e.operations}
    assert e.total_ns == pytest.approx(ns["tanh"] / 2 + ns["neg"] / 2 + ns["add"])


def by_hand(capacity: tuple[float | None, ...], rom: tuple[tuple[int, ...], ...] = ()) -> Problem:
    """One task on one device with two memories: it reads an input and a constant."""
    tasks = (Task((1.0,), (0,), (1,), constants=(0,)),)
    items = (Item(60.0, -1, 0), Item(40.0, 0))
    return Problem(tasks, items, (0,), (((),),), (), ((1, 0),), ((0, 1),), capacity, 0, (80.0,), rom)


def test_things_go_into_the_first_memory_that_has_room():
    assert peaks(by_hand((None, None)), (0,)) == [180.0, 0.0]
    assert peaks(by_hand((100.0, None)), (0,)) == [80.0, 100.0]
    assert fits(by_hand((100.0, 100.0)), (0,))
    assert not fits(by_hand((100.0, 90.0)), (0,))
    assert [m for m, _, _ in too_small(by_hand((100.0, 90.0)), (0,))] == [1]
    assert predict(by_hand((100.0, 100.0)), (0,)) == 1.0
    # Memory 2 holds constants alone.
    assert peaks(by_hand((100.0, 100.0, 80.0), ((2,),)), (0,)) == [100.0, 0.0, 80.0]
    assert memory_groups(by_hand((100.0, 90.0))) == ([0], [190.0])


def test_rooms_are_what_devices_have_in_common():
    p = replace(by_hand((1.0, 2.0, 4.0, None)), memory=((0,), (1, 2), (0, 1), (3,)))
    assert memory_groups(p) == ([0, 0, 0, 2], [7.0, 0, None])


def test_threads_of_the_host_are_counted():
    """A long kernel is shared, a short one is not; what waits for memory gains from four at most."""
    text = read("fn main(x: Tensor[64, 512, f32], w: Tensor[512, 512, f32]) { tanh(matmul(x, w)) }")
    one = explained(text, board(), "*=cpu")
    four = explained(text, board(), "*=cpu", costs=Costs(threads={"cpu": 4}))
    ns = {o.operator: o.ns for o in one.operations}
    assert ns["matmul"] == pytest.approx(64 * 512 * 512 + 1)
    assert {o.operator: o.ns for o in four.operations} == {
        name: pytest.approx(10_000 + (t - 1 - 10_000) / 4 + 1 if t > 10_001 else t) for name, t in ns.items()
    }
    short = read("fn main(x: Tensor[8, f32]) { tanh(x) }")
    assert explained(short, board(), "*=cpu", costs=Costs(threads={"cpu": 4})).total_ns == (
        explained(short, board(), "*=cpu").total_ns
    )


HALVES = """
fn main(x: Tensor[256, 512, f32], w: Tensor[512, 512, f32], y: Tensor[256, 512, f32]) {
  let a = matmul(matmul(matmul(x, w), w), w);
  let b = matmul(matmul(matmul(y, w), w), w);
  add(a, b) }
entry main("x", "w", "y") -> ("z");
"""


def test_threads_reach_predictions_and_plans(monkeypatch):
    """Two devices that are one processor work side by side where it has cores for both."""
    module = read(HALVES)
    monkeypatch.setattr(planning, "usable_processors", lambda: 2)
    one = inlay.explain(module, "host_two", threads=1)
    two = inlay.explain(module, "host_two", threads=2)
    assert {o.device for o in one.operations} == {"cpu0", "cpu1"}
    assert {o.device for o in two.operations} == {"cpu0"}
    assert inlay.explain(module, "host_two").total_ns == two.total_ns
    alone = inlay.explain(module, "host_two", threads=1, pins=("*=cpu0",))
    assert 0.5 * alone.total_ns < two.total_ns < one.total_ns < alone.total_ns
    for threads, plan in ((1, one), (2, two)):
        made = compilation(module, board="host_two", threads=threads, cache="none")
        assert {k["device"] for k in made.report.to_json()["kernels"]} == {o.device for o in plan.operations}
    with pytest.raises(CompileError, match="its host is not this processor") as failure:
        inlay.explain(module, "soc_npus", threads=2)
    assert failure.value.ids == ("option.no-effect",)


AROUND = """
fn main(x: S) -> S {
  let go = fn<i>(i: int[i], h: S) -> S {
    if (int_less(int(i), int(10))) { go(int(i + 1), exp(tanh(h))) } else { h }
  };
  go(int(0), x) }
entry main("x") -> ("y");
""".replace("S", "Tensor[65536, f32]")


@pytest.mark.parametrize("near", [True, False])
def test_what_comes_round_a_loop_crosses_in_every_turn(near: bool):
    one, other = ("cpu1", "cpu0") if near else ("cpu0", "cpu1")
    pins = (f"tanh={one}", f"exp={other}")
    e = inlay.explain(read(AROUND), "host_two", threads=1, pins=pins)
    turn = sum(o.ns for o in e.operations) + 2 * next(c.ns for c in e.copies if c.value == "tanh")
    assert 10 * turn <= e.total_ns < 10.5 * turn
    alone = inlay.explain(read(AROUND), "host_two", threads=1, pins=("*=cpu1",))
    assert alone.total_ns < 0.7 * e.total_ns
