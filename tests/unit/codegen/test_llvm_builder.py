"""Order of instructions in the text that grows."""

from __future__ import annotations

from inlay.codegen.llvm_builder import Builder


def chains(builder: Builder, count: int) -> list[int]:
    """Write chains that share what the first of them computes, and return where each begins."""
    starts: list[int] = []
    carried = "%n0"
    for i in range(count):
        starts.append(builder.position)
        scale = builder.pure("add i64 %n1, 1", ("%n1",))
        value = builder.pure(f"mul i64 {scale}, {i + 2}", (scale,))
        carried = builder.pure(f"add i64 {carried}, {value}", (carried, value))
        builder.line(f"store i64 {carried}, ptr %b{i}")
    return starts


def test_mixed_parts_take_turns() -> None:
    builder = Builder()
    builder.mix(chains(builder, 3))
    words = [x.split(" = ")[-1].split()[0] for x in builder.regions[-1].lines]
    assert words == ["add", "mul", "mul", "mul", "add", "add", "add", "store", "store", "store"]


def test_mixed_lines_stand_behind_what_they_read() -> None:
    builder = Builder()
    starts = chains(builder, 4)
    before = sorted(builder.regions[-1].lines)
    builder.mix(starts)
    lines = builder.regions[-1].lines
    assert sorted(lines) == before
    known: set[str] = set()
    for line in lines:
        name, _, text = line.rpartition(" = ")
        assert {x.strip(",") for x in text.split() if x.startswith("%v")} <= known
        known.add(name)


def test_parts_of_several_blocks_stay() -> None:
    builder = Builder()
    starts = [builder.position]
    builder.leave_if("%c", "ret i64 1")
    starts.append(builder.position)
    builder.line("store i64 1, ptr %b0")
    before = list(builder.regions[-1].lines)
    builder.mix(starts)
    assert builder.regions[-1].lines == before
