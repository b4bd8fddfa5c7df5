"""Storage is in the memories that are allowed for it, or is refused; memories have their sizes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation, explain
from inlay.arith.bounds import Range
from inlay.arith.expr import fresh, lit, to_int
from inlay.base.diagnostics import CompileError
from inlay.cli.main import main
from inlay.ir import make
from inlay.ir.expr import Const, Function
from inlay.ir.parser import parse_module
from inlay.ir.types import STORAGE
from inlay.ir.walk import postorder
from inlay.machine.board import Board
from inlay.machine.board_file import find_board
from inlay.machine.memory import Pool, PoolKind
from inlay.machine.target import host
from inlay.memory.activations import Activation, Storage
from inlay.memory.choose_memories import Chooser, Known, MemoryOptions
from inlay.ops.table import table
from inlay.runtime.session import executable_of
from tests.data import model_case

TWO = """
fn main(x: Tensor[16, 64, f32], w: Tensor[64, 64, f32]) -> Tensor[16, 64, f32] {
  let y @cpu![SCOPE] = matmul(x, w);
  let z = matmul(y, w);
  z
}
entry main("x", "w") -> ("z");
"""


def module(text: str):
    return infer_types(parse_module(text, table()))


def places(found) -> dict[str, tuple[str, str]]:
    """Return the memory and the offset of each value, by name."""
    return {
        name: (part.memory, str(member.offset))
        for plan in found.plans
        for part in plan.parts
        for member in part.members
        for name in member.names
    }


def sized(**bytes_: int) -> Board:
    """Return `mcu_dma` with memories of other sizes."""
    board = find_board("mcu_dma")
    pools = [replace(p, bytes=bytes_.get(p.name.replace(".", "_"), p.bytes)) for p in board.memories]
    return replace(board, memories=tuple(pools))


@pytest.mark.parametrize("scope", ["sram0", "sram1", "cpu.stack", "stack", "workspace", "sram1, flash"])
def test_a_value_lands_where_it_was_put(scope):
    found = places(explain(module(TWO.replace("SCOPE", scope)), "mcu_dma", view="memory"))
    expected = {"stack": "cpu.stack", "workspace": "sram0", "sram1, flash": "sram1"}
    assert found["y"][0] == expected.get(scope, scope)
    assert {found[name][0] for name in "xwz"} == {"sram0"}


def test_values_go_where_there_is_room():
    found = places(explain(module(TWO.replace("SCOPE", "global")), sized(sram0=17 << 10), view="memory"))
    assert found["w"] == ("sram0", "0")
    assert {found[name][0] for name in "xyz"} == {"sram1"}


@pytest.mark.parametrize(
    ("scope", "sizes", "words"),
    [
        ("sram1", {"sram1": 1024}, ["'y', needed 4096 bytes", "sram1: it has 1024 bytes left"]),
        # The kernels of the architecture have 2 KiB of the stack.
        ("cpu.stack", {"cpu_stack": 5 << 10}, ["'y', needed 4096 bytes", "cpu.stack: it has 3072"]),
        (
            "sram0",
            {"sram0": 16 << 10, "sram1": 1 << 10},
            ["needed 4096 bytes", "and needs at the same time w with 16384"],
        ),
    ],
)
def test_a_scope_that_cannot_be_obeyed_is_refused(scope, sizes, words):
    with pytest.raises(CompileError) as caught:
        explain(module(TWO.replace("SCOPE", scope)), sized(**sizes), view="memory")
    (found,) = caught.value.diagnostics
    assert found.id == "memory.no-room"
    assert found.span
    assert all(word in str(found) for word in words)


def test_what_may_be_elsewhere_leaves_room_for_what_may_not():
    found = places(explain(module(TWO.replace("SCOPE", "sram0")), sized(sram0=16 << 10), view="memory"))
    assert {name: found[name][0] for name in "yw"} == {"y": "sram0", "w": "sram1"}


NATIVE_STACK = """
name = "small"
[[memory]]
name = "ram"
[[memory]]
name = "fast"
kind = "static"
bytes = "8KiB"
[[memory]]
name = "cpu.stack"
kind = "stack"
bytes = "64KiB"
owner = "cpu"
[[device]]
name = "cpu"
arch = "native"
memories = ["ram", "fast", "cpu.stack"]
"""


@pytest.fixture
def native(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(NATIVE_STACK.replace('name = "small"\n', 'summary = "a small one"\n', 1))
    return str(path)


def test_a_compiled_program_obeys_or_is_refused(native):
    inputs = {"x": np.ones((16, 64), np.float32), "w": np.ones((64, 64), np.float32)}
    with pytest.raises(CompileError, match="cpu.stack: the virtual machine puts no tensors on a stack"):
        compilation(module(TWO.replace("SCOPE", "cpu.stack")), board=native, cache="none")
    compiled = compilation(module(TWO.replace("SCOPE", "fast")), board=native, cache="none")
    (plan,) = compiled.report.plans
    assert [(p.memory, p.kind, p.block) for p in plan.parts] == [("fast", PoolKind.STATIC, lit(4096))]
    assert (executable_of(compiled.program).run(inputs)["z"] == 64 * 64).all()
    result = TWO.replace("let z", "let z @cpu![fast]").replace("SCOPE", "global")
    compiled = compilation(module(result), board=native, cache="none")
    assert (executable_of(compiled.program).run(inputs)["z"] == 64 * 64).all()
    assert [p.memory for p in compiled.report.plans[0].parts] == ["", "fast"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fn main(x @cpu![fast]: Tensor[4, f32]) { neg(x) }", "'x' in fast; it is an input"),
        (
            "fn main(x: Tensor[4, 2, f32], r: Tensor[2, f32]) { let y @cpu![fast] = push_row(x, r); neg(y) }",
            "'y' in fast; it is made by 'push_row', which the virtual machine runs in ram",
        ),
    ],
)
def test_what_the_machine_has_is_not_elsewhere(native, text, words):
    with pytest.raises(CompileError) as caught:
        compilation(module(text + " entry main;"), board=native, cache="none")
    assert words in str(caught.value)


LOOP = """
fn main(n: Tensor[i64], x: Tensor[8, 8, f32]) -> Tensor[8, 8, f32] {
  let limit: some int limit. int[limit] = to_control(n);
  let step = fn<i>(i: int[i], h: Tensor[8, 8, f32]) -> Tensor[8, 8, f32] {
    if (int_less(int(i), int(limit))) {
      let y @cpu![SCOPE] = matmul(h, h);
      step(int(i + 1), y)
    } else { h }
  };
  step(int(0), x)
}
entry main;
"""


def test_what_outlives_its_function_has_no_fixed_place(native):
    # What a loop carries is one value with what it starts from, and nothing copies it to another memory.
    with pytest.raises(CompileError, match="found 'x' in fast; it is an input"):
        compilation(module(LOOP.replace("SCOPE", "fast")), board=native, cache="none")
    compiled = compilation(module(LOOP.replace("SCOPE", "fast, ram")), board=native, cache="none")
    exe = executable_of(compiled.program)
    x = np.eye(8, dtype=np.float32) * 2
    (found,) = exe.run(
        {exe.entries[0].inputs[0].name: np.array(2), exe.entries[0].inputs[1].name: x}
    ).values()
    np.testing.assert_array_equal(found, np.eye(8, dtype=np.float32) * 16)


SYMBOLIC = """
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let y @cpu![fast] = matmul(x, WEIGHTS);
  matmul(y, WEIGHTS)
}
entry main;
"""


def test_symbolic_sizes_count_at_their_bound(native):
    weights = f"f32[8, 8]({', '.join(['1'] * 64)})"
    text = SYMBOLIC.replace("WEIGHTS", weights)
    with pytest.raises(CompileError, match="bytes have no bound") as caught:
        compilation(module(text), board=native, cache="none")
    assert "bound the dim: --bound-dim n=SIZE; fix it: --fix-dim n=SIZE" in str(caught.value)
    bound = module(text.replace("fn main<n>", "fn main<n <= 100>"))
    (plan,) = compilation(bound, board=native, cache="none").report.plans
    assert [p.block for p in plan.parts if p.memory == "fast"] == [lit(3200)]
    with pytest.raises(CompileError, match="'y', needed 32000 bytes"):
        compilation(module(text.replace("<n>", "<n <= 1000>")), board=native, cache="none")


def test_the_keyword_model_fits_two_banks(capsys):
    model = model_case("micro_kws_fp32").model
    assert main(["explain", str(model), "--board", "mcu_dma", "--view", "memory", "--json"]) == 0
    plans = {p["function"]: p["parts"] for p in json.loads(capsys.readouterr().out)["memory"]}
    assert [p["memory"] for p in plans["constants"]] == ["flash"]
    used = {p["memory"]: p["block_bytes"] for p in plans["main"]}
    assert 0 < used["sram0"] <= 128 << 10
    assert 0 < used["sram1"] <= 64 << 10
    assert main(["explain", str(model), "--board", "mcu_dma", "--view", "memory"]) == 0
    assert "sram0 (static): 122.5 KiB of 128.0 KiB" in capsys.readouterr().out


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 20),
            st.integers(0, 6),
            st.integers(1, 40),
            st.sampled_from([("a",), ("b",), ("a", "b"), ("b", "a", "h"), ("h",)]),
        ),
        max_size=14,
    )
)
def test_choices_are_allowed_fit_and_do_not_overlap(drawn):
    pools = (Pool("h", PoolKind.HEAP), Pool("a", PoolKind.STATIC, 16, 640), Pool("b", PoolKind.STACK, 8, 300))
    storages = [
        Storage([make.var(f"s{i}", STORAGE)], lit(8 * size), 64, names, start, start + length, name=f"s{i}")
        for i, (start, length, size, names) in enumerate(drawn)
    ]
    body = make.function([], make.int_const(lit(0)))
    assert isinstance(body, Function)
    activation = Activation(body, "f", None, storages, 40)
    known = Known(frozenset(), {}, is_entry=True, is_recursive=False)
    try:
        chosen = Chooser(MemoryOptions(pools), 200).choose(activation, known)
    except CompileError as failure:
        if failure.ids != ("memory.no-room",):
            raise
        return
    seen = dict.fromkeys((s for group in chosen.heap.values() for s in group), "h")
    for bank in chosen.banks:
        pool = next(p for p in pools if p.name == bank.memory)
        seen.update(dict.fromkeys(bank.offsets, bank.memory))
        for s, at in bank.offsets.items():
            assert at % pool.alignment == 0
            assert at + s.bytes.value <= min(pool.bytes, bank.bytes)
            for t, other in bank.offsets.items():
                if s is not t and s.start <= t.end and t.start <= s.end:
                    assert at + s.bytes.value <= other or other + t.bytes.value <= at
    assert {s: m in s.memories for s, m in seen.items()} == dict.fromkeys(storages, True)


def test_a_bound_is_that_of_the_range():
    n = fresh("n")
    storage = Storage([make.var("s", STORAGE)], 4 * to_int(n), 64, ("a",), 0, 1, name="s")
    activation = Activation(make.function([], make.int_const(lit(0))), "f", None, [storage], 2)
    known = Known(frozenset((n,)), {n: Range(0, 7, 1, 0)}, is_entry=True, is_recursive=False)
    (bank,) = (
        Chooser(MemoryOptions((Pool("h", PoolKind.HEAP), Pool("a", PoolKind.STATIC, 4, 64))), 0)
        .choose(activation, known)
        .banks
    )
    assert bank.bytes == 28


@pytest.mark.parametrize(
    ("escapes", "is_recursive", "is_entry", "words"),
    [
        ("a loop carries it", False, True, "longer than its function sees: a loop carries it"),
        ("it is part of the result", False, False, "longer than its function sees"),
        ("", True, True, "the function calls itself"),
        ("it is part of the result", False, True, ""),
    ],
)
def test_what_has_no_fixed_place_is_refused(escapes, is_recursive, is_entry, words):
    storage = Storage([make.var("s", STORAGE)], lit(8), 64, ("a",), 0, 1, escapes, name="s")
    activation = Activation(make.function([], make.int_const(lit(0))), "f", None, [storage], 2)
    known = Known(frozenset(), {}, is_entry=is_entry, is_recursive=is_recursive)
    chooser = Chooser(MemoryOptions((Pool("h", PoolKind.HEAP), Pool("a", PoolKind.STATIC, 4, 64))), 0)
    if not words:
        assert chooser.choose(activation, known).banks[0].bytes == 8
        return
    with pytest.raises(CompileError, match=words):
        chooser.choose(activation, known)


def weights(rows: int, columns: int) -> str:
    return f"f32[{rows}, {columns}]({', '.join(['1'] * (rows * columns))})"


CONSTANT = f"fn main(x: Tensor[4, 24, f32]) {{ matmul(x, {weights(24, 20)}) }} entry main;"


def test_constants_count_as_they_are_packed():
    found = explain(module(CONSTANT), "mcu_dma", view="memory")
    packed = [e.value for e in postorder(found.module.functions.values()) if isinstance(e, Const)]
    (array,) = (a for a in packed if isinstance(a, np.ndarray))
    constants, main_plan = found.plans
    (part,) = constants.parts
    assert (constants.name, part.memory, part.kind) == ("constants", "flash", PoolKind.ROM)
    assert part.block == lit(-(-array.nbytes // 64) * 64)
    # Inputs and outputs are there too, and all of them within the bank.
    (bank,) = main_plan.parts
    assert {s.names[0]: s.bytes.value for s in bank.members} == {"x": 384, "matmul": 320}
    elsewhere = explain(module(CONSTANT), sized(flash=1024), view="memory").plans[0].parts
    assert [p.memory for p in elsewhere] == ["sram0"]


def test_constants_of_a_device_are_in_its_memory():
    board = find_board("host_two")
    pools = [replace(m, bytes=4096) if m.name == "cpu1.mem" else m for m in board.memories]
    small = replace(board, memories=tuple(pools))
    compiled = compilation(module(CONSTANT), board=small, pins=("matmul=cpu1",), cache="none")
    (part,) = compiled.report.plans[0].parts
    assert (compiled.report.plans[0].name, part.memory) == ("constants", "cpu1.mem")
    panel = host().lanes(4)  # its columns are whole panels, of some vectors
    assert part.block.value in [4 * 24 * -(-20 // (n * panel)) * n * panel for n in (1, 2, 3)]
    exe = executable_of(compiled.program)
    (found,) = exe.run({exe.entries[0].inputs[0].name: np.ones((4, 24), np.float32)}).values()
    np.testing.assert_array_equal(found, np.full((4, 20), 24, np.float32))
    here = compilation(module(CONSTANT), board=small, pins=("matmul=cpu0",), cache="none")
    assert [p.name for p in here.report.plans] == ["main"]
