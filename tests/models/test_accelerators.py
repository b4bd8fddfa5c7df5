"""Quantized models with accelerators: bit for bit what the processor gives, most products offloaded."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import inlay
from inlay.ir.parser import parse_module
from inlay.machine.board import Board
from inlay.machine.board_file import find_board
from inlay.ops.table import table
from tests.data import Case, model_case

MODELS = ["mlperf_ic_int8", "mlperf_kws_int8", "micro_kws_qdq", "mlperf_ad_int8", "mlperf_vww_int8"]


def fast(name: str, parameter: tuple[str, str]) -> Board:
    """A board whose device is so fast that plans take it wherever it can be."""
    board = find_board(name)
    archs = (a if a.name == "native" else replace(a, parameters=(parameter,)) for a in board.archs)
    return replace(board, archs=tuple(archs))


@pytest.mark.llvm
@pytest.mark.data
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", MODELS)
def test_models_on_vanilla(name: str) -> None:
    case, board = model_case(name), fast("vanilla", ("macs", "1000000"))
    exe = inlay.compile(case.model, board=board, threads=1)
    here = inlay.compile(case.model, threads=1)
    for stored in case.runs()[:1]:
        found = exe.run(stored.inputs)
        case.check(found, stored.outputs)
        for k, v in here.run(stored.inputs).items():
            assert (found[k] == v).all()
    plan = inlay.explain(case.model, board=board, threads=1)
    products = [o for o in plan.operations if "conv_integer" in o.operator or "matmul" in o.operator]
    left = [o for o in products if o.device != "npu0"]
    # What is left is a mean over windows, which models write as a convolution: few products.
    assert len(left) <= 1
    assert all(
        "no pattern of npu0 takes it: conv takes conv_integer with add behind it" in o.others["npu0"]
        for o in left
    )
    assert sum(o.device == "npu0" for o in products) >= 4


@pytest.mark.llvm
@pytest.mark.data
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [*MODELS, "mlperf_sww_int8"])
def test_models_on_strawberry(name: str) -> None:
    case, board = model_case(name), fast("strawberry", ("clock", "1000000000000"))
    exe = inlay.compile(case.model, board=board, threads=1)
    here = inlay.compile(case.model, threads=1)
    for stored in case.runs()[:1]:
        found = exe.run(stored.inputs)
        case.check(found, stored.outputs)
        for k, v in here.run(stored.inputs).items():
            assert (found[k] == v).all()
    plan = inlay.explain(case.model, board=board, threads=1)
    products = [o for o in plan.operations if "conv_integer" in o.operator or "matmul" in o.operator]
    left = [o for o in products if o.device != "npu0"]
    # A mean over windows, which models write as a convolution, stays: few products.
    assert len(left) <= 1
    if name in ("mlperf_ic_int8", "mlperf_vww_int8"):
        said = [
            re.search(r"(\d+) cycles of copies, (\d+) %", o.reason) for o in products if o.device == "npu0"
        ]
        moving, hidden = zip(*((int(m[1]), int(m[1]) * int(m[2]) / 100) for m in said if m), strict=True)
        assert sum(hidden) >= sum(moving) / 2
    assert all("conv takes conv_integer with requantize behind it" in o.others["npu0"] for o in left)


@pytest.mark.llvm
@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [("mlperf_ad_int8", 10), ("mlperf_ic_int8", 10), ("mlperf_kws_int8", 6), ("mlperf_vww_int8", 15)],
)
def test_models_on_gemmini(name: str, least: int) -> None:
    case, board = model_case(name), fast("gemmini", ("clock", "1000000000000"))
    assert_same_bits(case, board)
    plan = inlay.explain(case.model, board=board, threads=1)
    products = [o for o in plan.operations if "conv_integer" in o.operator or "matmul" in o.operator]
    left = [o.others["npu0"] for o in products if o.device != "npu0"]
    assert len(products) - len(left) == least
    # Convolutions of each channel by itself; what is around an image is left to the host.
    assert all("no instruction computes a sum of products of each channel" in x for x in left)


def assert_same_bits(case: Case, board: Board) -> None:
    """Assert that a model computes on a board what it computes on the processor."""
    exe = inlay.compile(case.model, board=board, threads=1)
    stored = case.runs()[0]
    found = exe.run(stored.inputs)
    for k, v in inlay.compile(case.model, threads=1).run(stored.inputs).items():
        assert (found[k] == v).all()


@pytest.mark.llvm
@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlperf_vww_int8", "mlperf_sww_int8"])
def test_models_on_chocolate(name: str) -> None:
    case, board = model_case(name), fast("chocolate", ("clock", "1000000000000"))
    assert_same_bits(case, board)
    plan = inlay.explain(case.model, board=board, threads=1)
    left = [o for o in plan.operations if o.device == "cpu" and "matmul" in o.operator]
    means = [o for o in plan.operations if o.device == "cpu" and "conv_integer" in o.operator]
    assert left == []
    assert len(means) <= 1  # a mean over windows: few products


@pytest.mark.llvm
@pytest.mark.data
@pytest.mark.slow
def test_a_model_on_several_accelerators() -> None:
    case, board = model_case("mlperf_ic_int8"), fast("chocolate", ("clock", "100000000000"))
    quick = (("clock", "1000000000000"),)
    archs = (replace(a, parameters=quick) if a.name == "vector-unit" else a for a in board.archs)
    board = replace(board, archs=tuple(archs))
    assert_same_bits(case, board)
    plan = inlay.explain(case.model, board=board, threads=1)
    used = {o.device: o.operator for o in plan.operations}
    assert {"npu0", "npu1", "vec0"} <= set(used)
    assert used["vec0"].startswith("transpose+transpose+cast+add+mul+requantize")


BRANCHES = """fn main(x: Tensor[1, 16, 24, 24, i8]) {{
  let a = conv_integer{{strides=[1, 1], dilations=[1, 1]}}(x, {w});
  let b = requantize{{rounding="tflite"}}(add(a, {b}), i32(1518500250), i32(-9));
  let c = conv_integer{{strides=[1, 1], dilations=[1, 1]}}(x, {v});
  let d = requantize{{rounding="tflite"}}(add(c, {b}), i32(1318500250), i32(-8));
  (b, d) }}
entry main;"""


def test_branches_run_on_two_devices_of_one_kind() -> None:
    board = fast("chocolate", ("clock", "20000000000"))
    w, v = (
        f"i8[16, 16, 3, 3]({', '.join(str((7 * i + k) % 100 - 50) for i in range(2304))})" for k in (1, 2)
    )
    text = BRANCHES.format(w=w, v=v, b=f"i32[16, 1, 1]({', '.join(map(str, range(16)))})")
    plan = inlay.explain(parse_module(text, table()), board=board, threads=1)
    assert {o.device for o in plan.operations if "conv_integer" in o.operator} == {"npu0", "npu1"}
    # What both take whole is a matter of time, and no part of anything.
    others = [(o.device, o.others) for o in plan.operations if "conv_integer" in o.operator]
    for device, why in others:
        assert why["npu1" if device == "npu0" else "npu0"].startswith("cost: the program would take")
    assert plan.bound_ns > 0
    # The first device that takes them takes all of them, as where there is one.
    first = inlay.explain(
        parse_module(text, table()), board=fast("strawberry", ("clock", "20000000000")), threads=1
    )
    assert {o.device for o in first.operations if "conv_integer" in o.operator} == {"npu0"}
    assert plan.total_ns <= 0.9 * first.total_ns


def test_explanations_name_what_came_nearest_of_operations_that_run_as_one() -> None:
    text = """fn main(x: Tensor[4, 16, i8]) {
  let a = cast{dtype=i32}(x);
  let b = add(mul(a, i32(3)), i32(7));
  requantize{rounding="tflite"}(b, i32(1518500250), i32(-9)) }
entry main;"""
    plan = inlay.explain(parse_module(text, table()), board="strawberry", threads=1)
    (whole,) = plan.operations
    assert whole.operator == "cast+mul+add+requantize"
    assert whole.others["npu0"] == "no pattern of npu0 takes it: a constant where mul is taken"
