"""Memories are chosen by predicted time, jointly, and as well as trying all choices would."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.analysis.infer_types import infer_types
from inlay.api import explain
from inlay.arith.expr import lit
from inlay.cli.main import main
from inlay.ir import make
from inlay.ir.parser import parse_module
from inlay.ir.types import STORAGE
from inlay.machine.board_file import find_board
from inlay.machine.memory import Pool, PoolKind
from inlay.memory.activations import Storage
from inlay.memory.assign import Assigner, Item
from inlay.ops.table import table
from inlay.packing.buffer import Buffer
from inlay.packing.plan import plan as pack

POOLS = {
    "heap": Pool("heap", PoolKind.HEAP, bytes_per_ns=1.0, latency_ns=50.0),
    "fast": Pool("fast", PoolKind.STATIC, 8, 96, banks=2, bytes_per_ns=8.0, latency_ns=2.0),
    "near": Pool("near", PoolKind.STATIC, 8, 64, banks=1, bytes_per_ns=4.0, latency_ns=5.0),
}
ROOM = {"fast": 96, "near": 64}


def item(name: str, size: int, first: int, accesses: list[int], options: tuple[str, ...]) -> Item:
    storage = Storage([make.var(name, STORAGE)], lit(size), 64, options, first, max(accesses), name=name)
    storage.accesses = accesses
    return Item(storage, size, max(accesses), options)


def predicted(items: list[Item], names: tuple[str, ...]) -> float | None:
    """Return the time of a choice, None where something has no room."""
    ns, touched = 0.0, dict[tuple[str, int], int]()
    for x, name in zip(items, names, strict=True):
        pool = POOLS[name]
        for at in x.storage.accesses:
            touched[name, at] = touched.get((name, at), 0) + 1
            ns += pool.latency_ns + x.size / pool.bytes_per_ns
            ns += pool.latency_ns if touched[name, at] > pool.banks else 0.0
    for name, room in ROOM.items():
        buffers = [
            Buffer(x.storage.name, x.storage.start, x.end + 1, x.size, POOLS[name].alignment)
            for x, chosen in zip(items, names, strict=True)
            if chosen == name
        ]
        if pack(buffers, steps=20_000).peak > room:
            return None
    return ns


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 12),
            st.integers(0, 3),
            st.lists(st.integers(0, 3), min_size=1, max_size=4),
            st.sampled_from([("heap",), ("heap", "fast"), ("near", "fast"), ("heap", "near", "fast")]),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_nothing_is_faster_than_what_is_chosen(drawn):
    items = [
        item(f"s{i}", 8 * size, first, sorted(first + more for more in uses), options)
        for i, (size, first, uses, options) in enumerate(drawn)
    ]
    choices = itertools.product(*(x.options for x in items))
    times = [ns for names in choices if (ns := predicted(items, names)) is not None]
    found = Assigner(POOLS, ROOM, 2_000).assign(items)
    if not times:
        assert found.stuck is not None
        return
    names = tuple(found.memories[x] for x in items)
    assert predicted(items, names) == pytest.approx(found.ns)
    if len(list(itertools.product(*(x.options for x in items)))) <= 64:
        assert found.ns == pytest.approx(min(times))


def test_what_is_read_most_for_its_bytes_is_in_the_fast_memory():
    often = item("often", 64, 0, [0, 1, 2, 3, 4, 5], ("heap", "fast"))
    large = item("large", 96, 0, [0, 5], ("heap", "fast"))
    later = item("later", 96, 6, [6, 7], ("heap", "fast"))
    found = Assigner(POOLS, ROOM, 0).assign([large, often, later])
    # `later` is there when both others are gone: lifetimes count, not sums.
    assert {x.storage.name: m for x, m in found.memories.items()} == {
        "often": "fast",
        "large": "heap",
        "later": "fast",
    }


def test_operands_of_one_kernel_are_in_different_banks():
    two = {m: replace(p, banks=1, bytes_per_ns=4.0, latency_ns=100.0, bytes=64) for m, p in POOLS.items()}
    a, b = (item(name, 32, 0, [0, 1, 2], ("fast", "near")) for name in "ab")
    found = Assigner(two, {"fast": 64, "near": 64}, 0).assign([a, b])
    assert {found.memories[a], found.memories[b]} == {"fast", "near"}


CHAIN = """
fn main(x: Tensor[16, 64, f32], w: Tensor[64, 64, f32]) -> Tensor[16, 64, f32] {
  let often = matmul(x, w);
  let a = matmul(often, w);
  let b = add(matmul(a, w), often);
  add(matmul(b, w), often)
}
entry main("x", "w") -> ("y");
"""


def test_explaining_says_why_a_memory_was_chosen(tmp_path, capsys):
    board = find_board("mcu_dma")
    pools = [replace(p, bytes=5 << 10, bytes_per_ns=8.0) if p.name == "sram1" else p for p in board.memories]
    found = explain(
        infer_types(parse_module(CHAIN, table())), replace(board, memories=tuple(pools)), view="memory"
    )
    members = [m for plan in found.plans for part in plan.parts for m in part.members]
    memory = {
        n: part.memory for plan in found.plans for part in plan.parts for m in part.members for n in m.names
    }
    assert memory["often"] == "sram1"
    assert all([x.memory for x in m.others if not x.lacks] == [memory[m.names[0]]] for m in members)
    lacking = {n: [x.lacks for x in m.others] for m in members for n in m.names}
    assert lacking["often"] == ["", "accesses take longer"]
    assert lacking["a"] == ["there is no room beside what gains more", ""]
    path = tmp_path / "chain.inl"
    path.write_text(CHAIN)
    assert main(["explain", str(path), "--board", "mcu_dma", "--view", "memory", "--all"]) == 0
    text = capsys.readouterr().out
    assert "with a choice; accesses take" in text
    assert "us in sram0 (chosen)" in text
