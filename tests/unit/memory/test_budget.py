"""Budgets: kept, or refused with what stands in the way and what it would cost to move it."""

from __future__ import annotations

import io
import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest

import inlay
from inlay.api import compilation
from inlay.base.byte_sizes import bytes_in
from inlay.base.diagnostics import CompileError
from inlay.cli.main import main
from inlay.machine.board_file import find_board
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable, executable_of, load_executable
from tests.boards import PARTED

pytestmark = pytest.mark.llvm

TENSOR = 16 * 64 * 4
HALVES = """
fn main(x: Tensor[16, 64, f32], y: Tensor[16, 64, f32], w: Tensor[64, 64, f32])
    -> (Tensor[16, 64, f32], Tensor[64, f32]) {
  let a1 = matmul(x, w);   let b1 = matmul(y, w);
  let a2 = matmul(a1, w);  let b2 = matmul(b1, w);
  let a3 = matmul(a2, w);  let b3 = matmul(b2, w);
  let c = matmul(add(a3, b3), w);
  (c, reduce_sum{axes=[0], keepdims=false}(c))
}
entry main("x", "y", "w") -> ("c", "sum");
"""
# Wide and narrow in turns, so that no result has the size of its operand and is written over it.
IN_TURNS = """
fn main(x: Tensor[16, 64, f32], y: Tensor[16, 64, f32], v: Tensor[64, 32, f32], w: Tensor[32, 64, f32])
    -> Tensor[16, 64, f32] {
  let a1 = matmul(x, v);   let b1 = matmul(y, v);
  let a2 = matmul(a1, w);  let b2 = matmul(b1, w);
  let a3 = matmul(a2, v);  let b3 = matmul(b2, v);
  let a4 = matmul(a3, w);  let b4 = matmul(b3, w);
  add(a4, b4)
}
entry main("x", "y", "v", "w") -> ("z");
"""
SIZED = """
fn main<DIM>(x: Tensor[n, 64, f32]) -> Tensor[n, 64, f32] { softmax(softmax(softmax(softmax(x)))) }
entry main("x") -> ("y");
"""


def compiled(text: str, **options) -> Executable:
    return inlay.compile(io.StringIO(text), threads=options.pop("threads", 1), **options)


def refused(text: str, **options) -> CompileError:
    with pytest.raises(CompileError) as found:
        compiled(text, **options)
    return found.value


def takes(text: str, **options) -> int:
    (host, *_) = inlay.explain(io.StringIO(text), view="memory", threads=1, **options).accounts
    return host.total


def test_sizes_as_people_write_them():
    said = {"64KiB": 65536, "1.5MiB": 1572864, "300MB": 300_000_000, "7": 7, "0.5GB": 500_000_000, 9: 9}
    assert {text: bytes_in(text) for text in said} == said
    for wrong in ("0", "-1", "1e9", "12X", "", "99999999999GiB", "0.1B", True, None, 1.5):
        with pytest.raises(ValueError, match="bytes, as a positive number"):
            bytes_in(wrong)


def test_a_budget_is_kept_or_refused_at_its_last_byte():
    need = takes(HALVES)
    exe = compiled(HALVES, budget={"host": need})
    x = np.ones((16, 64), np.float32)
    exe.run({"x": x, "y": x, "w": np.eye(64, dtype=np.float32)})
    assert exe.usage().peak_bytes <= need
    failure = refused(HALVES, budget={"host": need - 1})
    assert failure.ids == ("memory.over-budget",)
    assert f"found a program that takes {need:,} bytes of 'host', needed at most {need - 1:,}" in str(failure)


def test_the_refusal_lists_what_is_alive_and_what_forbids_it():
    notes = refused(HALVES, budget={"host": 100}).diagnostics[0].notes
    alive = [n for n in notes if n.startswith("alive there: ")]
    assert sum(int(re.findall(r"there: ([\d,]+)", n)[0].replace(",", "")) for n in alive) >= 2 * TENSOR
    assert all("made by " in n and ("last used by" in n or "stays" in n) for n in alive)
    assert any(n.startswith("no plan that has these values there, in this order, fits: ") for n in notes)
    assert any("--only, for other outputs than 'c'" in n and f"saves {TENSOR:,} bytes" in n for n in notes)


def test_a_serial_plan_is_a_price_and_is_what_it_says():
    serial, parallel = takes(IN_TURNS), takes(IN_TURNS, plan="parallel")
    assert serial < parallel
    failure = refused(IN_TURNS, plan="parallel", budget={"host": serial})
    assert f"price: --plan serial: saves {parallel - serial:,} bytes, adds " in str(failure)
    assert "hint: --plan serial" in str(failure)
    compiled(IN_TURNS, budget={"host": serial})


AGAIN = """
fn main(x: Tensor[128, 128, f32], w: Tensor[128, 128, f32]) -> Tensor[1, 128, f32] {
  let big = softmax{axis=1}(x);
  let p = softmax{axis=0}(matmul(big, w));
  let q = softmax{axis=0}(matmul(p, w));
  let r = softmax{axis=0}(matmul(q, w));
  matmul(reduce_sum{axes=[0], keepdims=true}(r), big)
}
entry main("x", "w") -> ("y");
"""


def test_what_is_cheap_is_made_again_where_a_budget_asks_for_it():
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal((128, 128)).astype(np.float32) for name in "xw"}
    need, saved = takes(AGAIN), 128 * 128 * 4
    expected = compiled(AGAIN).run(inputs)["y"].view(np.uint32)
    made = compilation(io.StringIO(AGAIN), threads=1, budget={"host": need - saved})
    (moved,) = made.run.spills
    assert [(m.name, m.to) for m in moved.moved] == [("big", "")]
    assert moved.added_ns > 0
    exe = executable_of(made.program)
    np.testing.assert_array_equal(exe.run(inputs)["y"].view(np.uint32), expected)
    assert exe.usage().peak_bytes <= need - saved
    seen = inlay.explain(io.StringIO(AGAIN), view="memory", threads=1, budget={"host": need - saved})
    assert seen.accounts[0].total <= need - saved
    failure = str(refused(AGAIN, budget={"host": need - saved - 1}))
    assert f"making values again (done where it is enough): saves {saved:,} bytes, adds " in failure
    assert compilation(io.StringIO(AGAIN), threads=1, budget={"host": need}).run.spills == ()


def kept_and_used(seed: int) -> str:
    """Return a program that makes values early and uses them in a chain, some of them at the end again."""
    rng = random.Random(seed)
    makers = ["softmax{axis=1}(x)", "softmax{axis=1}(w)", "matmul(x, w)", "softmax{axis=0}(x)"]
    names = [f"b{i}" for i in range(rng.randint(2, 4))]
    lets = [f"let {name} = {rng.choice(makers)};" for name in names]
    last = "x"
    for i in range(rng.randint(5, 8)):
        product = f"matmul({last}, {rng.choice([*names, 'w'])})"
        lets.append(f"let c{i} = {rng.choice([product, f'softmax{{axis=1}}({product})'])};")
        last = f"c{i}"
    for i, name in enumerate(names):
        lets.append(f"let e{i} = matmul({last}, {name});")
        last = f"e{i}"
    square = "Tensor[16, 16, f32]"
    body = " ".join(lets)
    return (
        f'fn main(x: {square}, w: {square}) -> {square} {{ {body} {last} }}\nentry main("x", "w") -> ("y");'
    )


def test_drawn_programs_compute_the_same_within_budgets():
    made_again = 0
    for seed in range(5):
        text = kept_and_used(seed)
        x, w = np.random.default_rng(seed).standard_normal((2, 16, 16)).astype(np.float32)
        whole = compiled(text)
        expected = whole.run({"x": x, "w": w})["y"].view(np.uint32)
        budget = takes(text) - 1024
        try:
            made = compilation(io.StringIO(text), threads=1, budget={"host": budget})
        except CompileError as failure:
            assert failure.ids == ("memory.over-budget",)  # noqa: PT017
            continue
        made_again += len(made.run.spills)
        exe = executable_of(made.program)
        found = exe.run({"x": x, "w": w})["y"].view(np.uint32)
        np.testing.assert_array_equal(found, expected, err_msg=text)
        assert exe.usage().peak_bytes <= budget, text
    assert made_again


def test_symbols_count_at_their_bounds():
    bounded = SIZED.replace("DIM", "n <= 512")
    need = takes(bounded)
    assert need == takes(bounded, dims=("n=512",))
    compiled(bounded, budget={"host": need})
    failure = refused(bounded, budget={"host": need // 2})
    (size,) = re.findall(r"price: --fix-dim n=(\d+) \(it may be 512\)", str(failure))
    fixed = {"dims": (f"n={size}",), "budget": {"host": need // 2}}
    compiled(bounded, **fixed)
    assert refused(bounded, **{**fixed, "dims": (f"n={int(size) + 1}",)}).ids == ("memory.over-budget",)


def test_bounded_sizes_stay_within_what_is_planned():
    bounded = SIZED.replace("DIM", "n <= 512")
    need = takes(bounded)
    exe = compiled(bounded, budget={"host": need})
    seen = []
    for n in (1, 7, 64, 511, 512):
        for _ in range(2):
            exe.run({"x": np.ones((n, 64), np.float32)})
        seen.append((exe.usage().peak_bytes, exe.usage().storages))
    assert [peak for peak, _ in seen] == sorted(peak for peak, _ in seen)
    assert seen[-1][0] <= need
    assert len({storages for _, storages in seen}) == 1  # as many allocations for every size


def test_what_has_no_bound_is_named():
    failure = refused(SIZED.replace("DIM", "n"), budget={"host": "1GB"})
    assert failure.ids == ("memory.no-bound",)
    assert "the dim 'n' has no bound" in str(failure)
    assert "--fix-dim n=SIZE" in str(failure)


GROWING = """
fn main(x: Tensor[4, f32], k: Tensor[i64]) -> List[Tensor[4, f32]] {
  let n = to_control(k);
  let go = fn<i>(i: int[i], kept: List[Tensor[4, f32]]) -> List[Tensor[4, f32]] {
    if (int_less(int(i), n)) { let y = softmax(x); go(int(i + 1), Cons(y, kept)) } else { kept }
  };
  go(int(0), Nil())
}
entry main("x", "k") -> ("all");
"""


def test_what_a_loop_makes_again_and_again_is_named():
    failure = refused(GROWING, budget={"host": "1GB"})
    assert failure.ids == ("memory.no-bound",)
    assert "y: made anew in every turn of 'go', for a constructed value holds it" in str(failure)


SCRATCH = """
fn main<m <= 64, n <= 4000>(x: Tensor[m, n, f32]) -> Tensor[m, n, f32] { softmax(softmax(x)) }
entry main("x") -> ("y");
"""


def test_scratch_memory_is_promised_for_so_many_threads(tmp_path):
    x, path, budget = np.ones((64, 4000), np.float32), tmp_path / "p.inlay", {"host": "1GB"}
    promised: list[int] = []
    for threads in (1, 2, 3):
        made = compilation(io.StringIO(SCRATCH), board=PARTED, threads=threads, budget=budget).run.promise
        assert made is not None
        assert made.threads == threads
        promised.append(made.takes["host"])
        modes = ["sequential"] if threads == 1 else ["sequential", "parallel", "replay"]
        for mode in modes:
            said = Settings(mode=mode, threads=threads)
            program = compilation(io.StringIO(SCRATCH), board=PARTED, threads=threads, budget=budget).program
            exe = executable_of(program, settings=said)
            exe.run({"x": x})
            assert exe.usage().peak_bytes == made.takes["host"]
    assert promised[0] < promised[1] < promised[2]
    inlay.compile(io.StringIO(SCRATCH), threads=2, budget=budget).save(path)
    assert load_executable(path).threads <= 2
    assert load_executable(path, threads=1).threads == 1
    with pytest.raises(CompileError, match="found threads=3, needed at most 2"):
        load_executable(path, threads=3)
    inlay.compile(io.StringIO(SCRATCH), threads=1, budget=budget).save(path)
    with pytest.raises(CompileError, match="found mode='parallel', needed 'sequential'"):
        load_executable(path, threads=1, mode="parallel")
    failure = refused(SCRATCH, threads=2, budget={"host": promised[0]})
    assert f"price: --threads 1: saves {promised[1] - promised[0]:,} bytes" in str(failure)


def test_fixed_memories_are_planned_within_it(capsys, tmp_path):
    path = tmp_path / "p.inl"
    path.write_text(HALVES)
    words = ["explain", str(path), "--board", "mcu_dma", "--view", "memory", "--json"]
    assert main(words) == 0
    before = {t["memory"]: t["total"] for t in json.loads(capsys.readouterr().out)["takes"]}
    small = before["sram0"] - TENSOR
    assert main([*words, "--budget", f"sram0={small}", "--budget", "cpu.stack=1KiB"]) == 0
    found = json.loads(capsys.readouterr().out)
    after = {t["memory"]: t["total"] for t in found["takes"]}
    assert all(t["lower_bound"] <= t["peak"] == t["block"] for t in found["takes"])
    assert after["sram0"] <= small < before["sram0"]
    assert after["sram1"] > 0
    assert found["budgets"] == {"sram0": small, "cpu.stack": 1024}
    assert main([*words[:-1], "--budget", f"sram0={small}", "--budget", "cpu.stack=1KiB"]) == 0
    assert (
        "budget of cpu.stack, 1,024 bytes: nothing is there, so it has no effect" in capsys.readouterr().out
    )
    assert main([*words[:-1], "--budget", "sram0=100", "--budget", "sram1=100"]) == 1
    assert "memory.over-budget" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "id", "found"),
    [
        ("hots=1MB", "name.unknown", "did you mean host?"),
        ("host", "option.bad-value", "needed MEMORY=SIZE"),
        ("=1MB", "option.bad-value", "needed MEMORY=SIZE"),
        ("host=0", "option.bad-value", "as a positive number"),
        ("host=-5", "option.bad-value", "as a positive number"),
        ("host=9999999999GiB", "option.bad-value", "as a positive number"),
        ("host=lots", "option.bad-value", "as a positive number"),
    ],
)
def test_a_budget_that_means_nothing_is_refused(text, id, found):
    failure = refused(HALVES, budget=[text])
    assert failure.ids == (id,)
    assert found in str(failure)
    assert "found two budgets" in str(refused(HALVES, budget=["host=1MB", "host=2MB"]))


def test_what_is_compiled_says_its_budget(tmp_path, capsys):
    path, made = tmp_path / "p.inl", tmp_path / "p.inlay"
    path.write_text(HALVES)
    words = ["compile", str(path), "-o", str(made), "--budget", "host=1MB", "--threads", "1"]
    assert main(words) == 0
    assert "budget of host, 976.6 KiB: takes at most" in capsys.readouterr().out
    assert main(["run", str(made), "--json"]) == 0
    budget = json.loads(capsys.readouterr().out)["report"]["budget"]
    assert budget["bytes"] == {"host": 1_000_000}
    assert budget["takes"] == {"host": takes(HALVES)}
    assert main(["run", str(made), "--budget", "host=1MB"]) == 2
    assert main(["explain", str(path), "--budget", "host=1MB"]) == 2


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"alignment": 48}, "found alignment = 48, needed a power of two"),
        ({"alignment": 0}, "found alignment = 0, needed a power of two"),
        ({"bytes": 0}, "found bytes = 0, needed bytes"),
        ({"bytes": 1 << 80}, "needed bytes, as a positive number"),
        ({"bytes": 1000}, "found no memory for 'w', needed 16384 bytes"),
    ],
)
def test_a_board_whose_memory_cannot_be_is_refused_by_name(changed, found):
    board = find_board("mcu_dma")
    memories = (replace(m, **changed) if m.name.startswith("sram") else m for m in board.memories)
    with pytest.raises(CompileError) as failure:
        inlay.explain(io.StringIO(HALVES), replace(board, memories=tuple(memories)), view="memory")
    assert found in str(failure.value)
    assert "sram0" in str(failure.value)
