"""Choices by cost, from a program: annotations are kept, pins too, copies are worth their time."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import inlay
from inlay.analysis.blocks import values
from inlay.analysis.candidates import Candidate
from inlay.arith.expr import lit
from inlay.base.diagnostics import CompileError
from inlay.cli.main import main
from inlay.interp.tensor import evaluate
from inlay.ir.expr import Call, OpRef
from inlay.ir.printer import print_module
from inlay.ir.verify import check
from inlay.machine.board import Board
from inlay.machine.board_file import find_board, read_board
from inlay.ops.device import DEVICE_COPY
from inlay.passes.contract import PassContext
from inlay.placement import plan_places
from inlay.placement.choose.calibration import calibrated, read_measured, write_measured
from inlay.placement.choose.candidates import offers_of
from inlay.placement.choose.costs import Costs, Measured
from inlay.placement.explain.reasons import explain
from inlay.placement.explain.report import describe
from inlay.placement.plan_places import Choice, PlanOptions
from inlay.transforms import outline_regions
from tests.data import model_case
from tests.unit.placement.cases import OPS, arguments, assert_alike, capability, normal, read, same

BIG = """
fn main(x: Tensor[256, 512, f32], w: Tensor[512, 512, f32], v: Tensor[512, 512, f32]) {
  let a = matmul(x, w); let b = matmul(x, v); add(relu(a), exp(b)) }
"""


def accelerated(link: float, *, size: str = "", second: str = "") -> Board:
    """A processor, and a fast device for products behind a link of so many bytes a nanosecond."""
    text = f"""
summary = "x"
[[arch]]
name = "slow"
macs_per_ns = 1
[[arch]]
name = "fast"
operators = ["matmul", "relu"]
macs_per_ns = 100
[[memory]]
name = "ram"
[[memory]]
name = "npu.mem"
{size}
[[device]]
name = "cpu"
arch = "slow"
memories = ["ram"]
[[device]]
name = "npu"
arch = "fast"
memories = ["npu.mem"]
{second}
[[engine]]
name = "dma"
memories = ["ram", "npu.mem"]
[[link]]
from = "ram"
to = "npu.mem"
engine = "dma"
bytes_per_ns = {link}
[[link]]
from = "npu.mem"
to = "ram"
engine = "dma"
bytes_per_ns = {link}
"""
    return read_board("accelerated", text, place="accelerated.toml")


def explained(text: str, board: Board, *pins: str, costs: Costs | None = None):
    module = normal(read(text))
    module = plan_places.with_host_ends(module, plan_places.Place(board.host.name))
    return explain(module, board, capability(board), Choice(OPS, costs or Costs(), pins))


def on(e) -> dict[str, str]:
    return {o.operator: o.device for o in e.operations}


def test_a_fast_link_is_worth_using_and_a_slow_one_is_not():
    e = explained(BIG, accelerated(link=8))
    assert on(e) == {"matmul": "npu", "relu": "npu", "exp": "cpu", "add": "cpu"}
    assert e.proved
    assert e.total_ns < e.operations[0].ns * 200
    slow = explained(BIG, accelerated(link=0.001))
    assert set(on(slow).values()) == {"cpu"}
    assert not slow.copies
    why = next(o.others["npu"] for o in slow.operations if o.operator == "matmul")
    assert why.startswith("cost: the program would take")
    assert next(o.others["npu"] for o in slow.operations if o.operator == "exp") == "fast has no exp"


def test_a_small_memory_is_a_reason():
    e = explained(BIG, accelerated(link=8, size='bytes = "64KiB"'))
    assert set(on(e).values()) == {"cpu"}
    why = next(o.others["npu"] for o in e.operations if o.operator == "matmul")
    assert why.startswith("capacity: ")
    with pytest.raises(CompileError) as failure:
        explained(BIG, accelerated(link=8, size='bytes = "64KiB"'), "matmul=npu")
    assert failure.value.ids == ("placement.over-capacity",)
    assert "npu.mem has 65536 bytes, and " in str(failure.value)
    assert "give npu.mem more bytes" in str(failure.value)


def test_a_pin_to_a_device_that_no_link_leads_to():
    board = replace(accelerated(link=8), links=())
    with pytest.raises(CompileError) as failure:
        explained(BIG, board, "matmul=npu")
    assert failure.value.ids[0] == "device.no-path"
    assert "a link ram -> npu.mem would do" in str(failure.value)


def test_pins_by_the_names_of_a_model():
    """The operator and the node of the model; what lowering adds to a node stays where it can run."""
    case = model_case("mnist8")
    found = inlay.explain(inlay.load(case.model), "soc_npus", pins=("MaxPool=npu0", "Times212=npu1"))
    on = {n: o.device for o in found.operations for n in o.operator.split("+")}
    assert on["max_pool"] == "npu0"
    assert on["matmul"] == "npu1"
    with pytest.raises(CompileError) as failure:
        inlay.explain(inlay.load(case.model), "soc_npus", pins=("Maxpool2=npu0",))
    assert failure.value.ids == ("placement.bad-pin",)
    assert "did you mean MaxPool" in str(failure.value)


def test_pins_and_annotations_are_kept():
    board = accelerated(link=0.001)
    e = explained(BIG, board, "matmul=npu")
    assert on(e)["matmul"] == "npu"
    assert on(e)["add"] == "cpu"
    assert "pinned by matmul=npu" in e.operations[0].reason
    asked = BIG.replace("matmul(x, w)", "on(npu, matmul(x, w))")
    found = [o.device for o in explained(asked, board).operations if o.operator == "matmul"]
    assert sorted(found) == ["cpu", "npu"]
    e = explained("fn f(x: T) { relu(relu(relu(x))) } fn main(x: T) { neg(@f(x)) }", board, "@f=npu")
    assert [o.device for o in e.operations] == ["npu", "npu", "npu", "cpu"]


@pytest.mark.parametrize(
    ("pin", "id", "said"),
    [
        ("matmul=gpu", "placement.unknown-device", "did you mean npu or cpu"),
        ("matmull=npu", "placement.bad-pin", "did you mean matmul"),
        ("matmul", "placement.bad-pin", "needed PATTERN=DEVICE"),
        ("exp=npu", "placement.unsupported-op", "fast has no exp"),
    ],
)
def test_bad_pins(pin, id, said):
    with pytest.raises(CompileError) as failure:
        explained(BIG, accelerated(link=8), pin)
    assert failure.value.ids == (id,)
    assert said in str(failure.value)


TWICE = """
fn f(x: T) -> T { tanh(neg(x)) }
fn main(x: T) { add(@f(x), tanh(relu(x))) }
"""


@pytest.mark.parametrize(
    ("pins", "devices"),
    [
        (("*=npu", "relu=cpu"), {"relu": "cpu", "matmul": "npu"}),
        (("relu=cpu", "*=npu"), {"relu": "cpu", "matmul": "npu"}),
        (("*=cpu", "m*=npu"), {"relu": "cpu", "matmul": "npu"}),
        (("*=cpu", "r*=npu", "relu=cpu", "matmul=npu"), None),  # r* means relu alone
        (("r*=npu", "relu=npu"), {"relu": "npu"}),
        (("@main=cpu", "matmul=npu"), {"relu": "cpu", "matmul": "npu"}),
    ],
)
def test_a_specific_pin_is_over_a_general_one(pins, devices):
    program = "fn main(x: T, w: T) { relu(matmul(x, w)) }"
    board = accelerated(link=8)
    if devices is not None:
        found = on(explained(program, board, *pins))
        assert {n: found[n] for n in devices} == devices
        return
    with pytest.raises(CompileError) as failure:
        explained(program, board, *pins)
    assert set(failure.value.ids) == {"placement.bad-pin"}
    assert "--pin r*=npu, which has no effect" in str(failure.value)
    assert "--pin *=cpu, which has no effect" in str(failure.value)


def test_pins_of_which_none_is_more_specific_contradict_each_other():
    board = find_board("soc_npus")
    with pytest.raises(CompileError) as failure:
        explained(TWICE, board, "@f=dsp", "tanh=cpu")
    assert failure.value.ids == ("placement.contradiction",)
    assert "pinned by @f=dsp" in str(failure.value)
    e = explained(TWICE, board, "@f=dsp", "tanh=dsp", "relu=cpu")
    assert [o.device for o in e.operations if o.operator == "tanh"] == ["dsp", "dsp"]


def test_measured_factors_and_hooks_of_architectures_count():
    board = accelerated(link=8)
    slow = Costs(measured=Measured(factors={("npu", "matmul"): 1000.0}))
    assert on(explained(BIG, board, costs=slow))["matmul"] == "cpu"
    hook = Costs(hooks={"fast": lambda call, dims: 1e9})
    assert set(on(explained(BIG, board, costs=hook)).values()) == {"cpu"}


def test_typical_sizes_decide():
    text = """
fn main<n>(x: Tensor[n, 512, f32], w: Tensor[512, 512, f32]) { matmul(x, w) }
"""
    board = accelerated(link=0.8)
    small = explained(text, board, costs=Costs(typical={"n": 1}))
    large = explained(text, board, costs=Costs(typical={"n": 4096}))
    assert (on(small)["matmul"], on(large)["matmul"]) == ("cpu", "npu")
    assert large.sizes["n"] == (4096, "the user")
    guessed = explained(text, board)
    assert guessed.sizes["n"] == (64, "a guess")
    assert (dict(large.depends), dict(small.depends)) == ({}, {})
    assert set(guessed.depends) == {"n"}
    said = "\n".join(describe(guessed))
    other = "1" if on(guessed)["matmul"] == "npu" else "1024"
    assert f"a guess that decides: with {other} the plan is another; say --typical n=SIZE" in said
    either = explained(text, accelerated(link=1e-6))  # never worth it
    assert not either.depends
    assert "a guess; --typical n=SIZE says another" in "\n".join(describe(either))


def test_invariant_weights_of_a_loop_are_copied_once():
    text = """
fn main(x: Tensor[256, 512, f32], w: Tensor[512, 512, f32]) {
  let loop = fn<i>(i: int[i], h: Tensor[256, 512, f32]) -> Tensor[256, 512, f32] {
    if (int_less(int(i), int(9))) { loop(int(i + 1), relu(matmul(h, w))) } else { h } };
  loop(int(0), x) }
"""
    e = explained(text, accelerated(link=4))
    assert on(e) == {"matmul": "npu", "relu": "npu"}
    assert sorted(c.value for c in e.copies) == ["h", "w", "x"]  # h where the loop ends


def test_the_chosen_program_means_the_same_and_planning_it_again_changes_nothing():
    for board in (find_board("host_two"), find_board("soc_npus"), accelerated(link=8)):
        options = PlanOptions(board.name, board, optimise=True, host_ends=True)
        context = PassContext(OPS, options={PlanOptions: options})
        module = normal(read(BIG))
        placed = plan_places.PASS.run(module, context)
        again = plan_places.PASS.run(placed, context)
        args = arguments(module.functions["main"])
        assert same(evaluate(module, args), evaluate(placed, args))
        assert count_copies(again) == count_copies(placed)


def count_copies(module) -> int:
    return sum(
        isinstance(v, Call) and isinstance(v.callee, OpRef) and v.callee.op is DEVICE_COPY
        for v in values(module.functions["main"].body)
    )


def is_a(value, *names: str) -> bool:
    return isinstance(value, Call) and isinstance(value.callee, OpRef) and value.callee.op.name in names


def pairs(*names: str, ns: float = 10.0):
    """Return what offers all operations of these names as one candidate."""

    def source(module):
        chosen = [v for f in module.functions.values() for v in values(f.body) if is_a(v, *names)]
        return [Candidate(tuple(chosen), "npu", "dense", lit(round(ns * 1000)))]

    return source


def test_what_a_device_takes_as_one_is_outlined():
    """Also where something that reads a part of it, or that it reads, stands in between."""
    text = """fn main(x: T, w: T) {
        let a = matmul(x, w); let o = exp(a); let e = neg(w); let b = add(a, e); mul(o, b)
    }"""
    board = accelerated(link=100)
    module = normal(read(text))
    options = PlanOptions(
        board.name, board, optimise=True, candidates={"npu": pairs("matmul", "add")}, host_ends=True
    )
    context = PassContext(OPS, options={PlanOptions: options})
    placed = plan_places.PASS.run(module, context)
    assert {v.place.region for v in values(placed.functions["main"].body) if isinstance(v, Call)} == {
        "",
        "dense_1",
    }
    again = read(print_module(placed))
    assert_alike(again, placed)
    lines = sorted(print_module(again).splitlines())
    assert sorted(print_module(plan_places.PASS.run(again, context)).splitlines()) == lines
    made = outline_regions.PASS.run(placed, context)
    check(made)
    (region,) = (f for f in made.functions.values() if f.primitive is not None)
    assert (region.primitive, region.place.device) == ("matmul+add", "npu")
    assert outline_regions.PASS.run(made, context) is made
    args = arguments(module.functions["main"])
    assert same(evaluate(module, args), evaluate(made, args))


@pytest.mark.parametrize(("ns", "functions"), [(60.0, 2), (10.0, 1)])
def test_each_occurrence_of_a_function_chooses_its_regions(ns, functions):
    """Where they differ the function is specialised; where they do not, it stays one."""
    text = """
      fn main(x: T, y: T) { (@f(x), @f(y)) }
      fn f(x: T) { relu(matmul(x, x)) }"""
    board, module = accelerated(link=100), normal(read(text))
    options = PlanOptions(
        board.name, board, optimise=True, candidates={"npu": pairs("matmul", "relu", ns=ns)}, host_ends=True
    )
    context = PassContext(OPS, options={PlanOptions: options})
    placed = plan_places.PASS.run(module, context)
    check(placed)
    written = [values(f.body) for n, f in placed.functions.items() if n != "main"]
    found = [{v.place.region for v in inside if is_a(v, "matmul", "relu")} for inside in written]
    assert found == [{"dense_1"}, {""}][:functions]
    assert print_module(plan_places.PASS.run(placed, context)) == print_module(placed)
    made = outline_regions.PASS.run(placed, context)
    check(made)
    assert [f.primitive for f in made.functions.values() if f.primitive] == ["matmul+relu"]
    args = arguments(module.functions["main"])
    assert same(evaluate(module, args), evaluate(made, args))


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_many_candidates_are_found_in_no_time(count):
    """Each operation asks for its own: all of 20,000 against all would take minutes."""
    text = "\n".join(f"let a{n} = neg(a{n - 1});" for n in range(1, count + 1))
    module = normal(read(f"fn main(a0: T) {{ {text} a{count} }}"))
    calls = [v for v in values(module.functions["main"].body) if isinstance(v, Call)]
    offered = [Candidate((c,), "npu", "one") for c in calls]
    offered += [Candidate((a, b), "npu", "two") for a, b in itertools.pairwise(calls)]
    offers = offers_of(module, {"npu": lambda _: offered})
    assert {offers.refusal(c, "npu") for c in calls} == {""}


def test_a_device_of_patterns_runs_nothing_else():
    text = "fn main(x: T, w: T) { add(relu(matmul(x, w)), w) }"
    board = accelerated(link=100)
    module = normal(read(text))
    for taken, why in (
        (("matmul", "relu"), "takes it only as a part of dense"),
        (("matmul",), "no pattern of npu takes it"),
    ):
        options = PlanOptions(
            board.name, board, optimise=True, pins=("relu=npu",), candidates={"npu": pairs(*taken)}
        )
        with pytest.raises(CompileError) as failure:
            plan_places.PASS.run(module, PassContext(OPS, options={PlanOptions: options}))
        assert why in str(failure.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("exp(relu(matmul(x, w)))", "which no plan that was tried is faster with"),
        ("let a = matmul(x, w); relu(add(a, exp(a)))", "what is not in dense would run in the middle of it"),
    ],
)
def test_why_a_candidate_is_not_used_is_said(text, why):
    module = normal(read(f"fn main(x: T, w: T) {{ {text} }}"))
    offers = offers_of(module, {"npu": pairs("matmul", "relu", ns=1e9)})
    board = accelerated(link=100)
    can = capability(board)
    e = explain(
        module, board, lambda c: {**can(c), "npu": offers.refusal(c, "npu")}, Choice(OPS, offers=offers)
    )
    assert set(on(e).values()) == {"cpu"}
    assert f"npu takes it only as a part of dense, {why}" in e.operations[0].others["npu"].replace("and ", "")
    assert not any("layout" in line for line in describe(e))


BEST = "least predicted time of the program"


def test_a_set_of_operations_can_be_taken_as_one():
    text = "fn main(x: T, w: T) { exp(relu(matmul(x, w))) }"
    board = accelerated(link=100)
    module = normal(read(text))
    offers = offers_of(module, {"npu": pairs("matmul", "relu")})
    e = explain(module, board, capability(board), Choice(OPS, offers=offers))
    assert on(e) == {"matmul+relu": "npu", "exp": "cpu"}
    assert (e.operations[0].reason, e.operations[0].ns) == (f"taken as one, dense: {BEST}", 10.0)
    assert e.operations[0].others["cpu"].startswith("cost: the program would take ")
    assert any("layout" in line for line in describe(e))


def test_other_sizes_are_tried_with_candidates_too():
    """Else each guessed size would be said to decide where operations are that are taken as one."""
    text = "fn main<n>(x: Tensor[n, n, f32]) { relu(matmul(x, x)) }"
    module, board = normal(read(text)), accelerated(link=1e9)
    offers = offers_of(module, {"npu": pairs("matmul", "relu", ns=0.001)})
    can = capability(board)
    e = explain(
        module,
        board,
        lambda c: {**can(c), "npu": offers.refusal(c, "npu")},
        Choice(OPS, offers=offers, asks=True),
    )
    assert on(e) == {"matmul+relu": "npu"}
    assert not e.depends


def test_forgetting_a_plan_leaves_what_people_said():
    board = accelerated(link=0.001)
    text = "fn main(x: T, w @npu!: T) { let y = on(npu, matmul(x, w)); exp(relu(y)) }"
    placed = plan_places.plan(normal(read(text)), board, capability(board))
    assert count_copies(placed) == 1
    bare = plan_places.forget(placed)
    check(bare)
    assert count_copies(bare) == 0
    assert [p.place and p.place.device for p in bare.functions["main"].params] == [None, "npu"]
    again = plan_places.plan(bare, board, capability(board))
    assert_alike(again, placed)


@pytest.mark.slow
def test_the_seed_of_hashes_changes_nothing(tmp_path):
    path = tmp_path / "m.inl"
    path.write_text(BIG.replace("{\n", "-> Tensor[256, 512, f32] {\n", 1))
    command = [sys.executable, "-m", "inlay", "explain", str(path), "--board", "soc_npus", "--json"]
    src = str(Path(inlay.__file__).parents[1])
    said = {
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": src},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "77")
    }
    assert len(said) == 1


def test_operators_are_measured(tmp_path, capsys):
    path = tmp_path / "c.json"
    assert main(["bench", "--calibrate", "soc_npus"]) == 1
    measured = Measured(
        {("npu", "matmul"): 2.0, ("npu", "*"): 0.5},
        {"npu": 900.0},
        {("npu", "neg f32[4] -> f32[4]"): 120.0},
        {("ram", "npu.mem"): (5000.0, 2.5)},
        frozenset({("cpu", "npu")}),
    )
    write_measured(path, "x", measured)
    assert read_measured(str(path)) == measured
    link = calibrated(accelerated(link=8), measured).links[0]
    assert (link.latency_ns, link.bytes_per_ns) == (5000.0, 2.5)
    shared = calibrated(accelerated(link=8), measured)
    assert [names for _, names in shared.hardware] == [("cpu", "npu")]
    path.write_text('{"factors": {"npu": {"add": -1}}}')
    with pytest.raises(CompileError) as failure:
        read_measured(str(path))
    assert failure.value.ids == ("placement.bad-calibration",)
    path.write_text('{"factor": {"npu": {"add": 1}}}')
    with pytest.raises(CompileError, match="the table 'factor'; did you mean factors"):
        read_measured(str(path))
    capsys.readouterr()


def test_measurements_of_another_board():
    measured = Measured({("npv", "matmul"): 2.0}, links={("ram", "gpu.mem"): (1.0, 1.0)})
    with pytest.raises(CompileError) as failure:
        calibrated(accelerated(link=8), measured)
    assert failure.value.ids == ("placement.bad-calibration",) * 2
    assert "the device 'npv'" in str(failure.value)
    assert "did you mean npu" in str(failure.value)
    assert "the memory 'gpu.mem'" in str(failure.value)


def test_the_command(tmp_path, capsys):
    path = tmp_path / "m.inl"
    path.write_text(BIG.replace("{\n", "-> Tensor[256, 512, f32] {\n", 1))
    assert main(["explain", str(path), "--board", "soc_npus", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert {n for o in record["operations"] for n in o["operator"].split("+")} == {
        "matmul",
        "relu",
        "exp",
        "add",
    }
    assert record["proved"]
    assert record["total_ns"] <= record["first_fit_ns"]
    assert main(["explain", str(path), "--board", "soc_npus"]) == 0
    text = capsys.readouterr().out
    assert "strawberry has no exp" in text
    assert "proved to be the least of plans in this order of operations" in text
    assert main(["explain", str(path), "--board", "nowhere"]) == 1
    assert main(["targets", "check", "soc_npus"]) == 0
    assert "npu0" in capsys.readouterr().out


def test_operators_of_described_architectures_exist():
    """What a board's architecture lists is an operator, or one that accelerators will bring."""
    brought = {"requantize", "quantized_add"}
    known = {d.name for d in OPS} | brought
    for name in ("host", "host_two", "mcu_dma", "opencl", "soc_npus"):
        for arch in find_board(name).archs:
            assert set(arch.operators or ()) <= known
