"""What leaves a memory that is too small for a time: what is decided, and that programs compute the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation, explain
from inlay.base.diagnostics import CompileError
from inlay.cli.main import main
from inlay.ir.parser import parse_module
from inlay.memory.spill import Gap, Pressure, Spill, Stay, decide, profile, timeline
from inlay.ops.table import table
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of

BOARD = """
summary = "this processor, and a device whose memory is small"
default = "npu"
[[arch]]
name = "products"
generator = "llvm"
loader = "native"
[[memory]]
name = "host"
[[memory]]
name = "npu.mem"
kind = "static"
bytes = {bytes}
owner = "npu"
[[device]]
name = "cpu"
arch = "native"
memories = ["host"]
[[device]]
name = "npu"
arch = "products"
memories = ["npu.mem"]
[[engine]]
name = "dma"
memories = ["host", "npu.mem"]
[[link]]
from = "host"
to = "npu.mem"
engine = "dma"
bytes_per_ns = 0.5
[[link]]
from = "npu.mem"
to = "host"
engine = "dma"
bytes_per_ns = 0.5
"""
MODES = [
    Settings(mode="sequential", races=True),
    Settings(mode="parallel", threads=2, races=True),
    *[Settings(mode="replay", seed=seed, races=True) for seed in range(2)],
]


@pytest.fixture
def board(tmp_path):
    def made(size: int) -> str:
        path = tmp_path / f"board{size}.toml"
        path.write_text(BOARD.format(bytes=size))
        return str(path)

    return made


def module(text: str):
    return infer_types(parse_module(text, table()))


def network(depth: int, n: int = 16) -> str:
    """Return values that are made one after the other, and read in reverse."""
    down = "\n".join(f"  let d{i + 1} = tanh(matmul(d{i}, w));" for i in range(depth))
    up = "\n".join(f"  let u{i} = tanh(add(matmul(u{i + 1}, w), d{i}));" for i in reversed(range(depth)))
    return f"""
fn main(d0: Tensor[{n}, {n}, f32], w: Tensor[{n}, {n}, f32]) -> Tensor[{n}, {n}, f32] {{
{down}
  let u{depth} = tanh(d{depth});
{up}
  u0
}}
entry main("d0", "w") -> ("y");
"""


def bits(text: str, board: str, inputs: dict[str, np.ndarray], modes=MODES):
    """Return what a program computes in every mode, as integers; and what was moved."""
    compiled = compilation(module(text), board=board, pins=("*=npu",), cache="none", plan="parallel")
    found = []
    for setting in modes:
        (y,) = executable_of(compiled.program, settings=setting).run(inputs).values()
        found.append(y.view(np.uint32))
    return found, compiled.run.spills


def given_inputs(text: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    entry = module(text)
    params = entry.functions["main"].params
    return {p.name: rng.standard_normal([d.value for d in p.type.shape]).astype(np.float32) for p in params}


def test_a_network_that_needs_twice_the_memory_runs_in_it(board):
    text = network(12)
    inputs = given_inputs(text)
    (expected, *_), nothing = bits(text, board(1 << 20), inputs, MODES[:1])
    found, (plan,) = bits(text, board(8 << 10), inputs)
    assert nothing == ()
    assert plan.needed >= 14 << 10
    assert plan.room == 8 << 10
    assert {m.to for m in plan.moved} == {"host", ""}  # what came from outside is fetched from there again
    for y in found:
        np.testing.assert_array_equal(y, expected)


def test_no_kernel_waits_for_a_copy_out_where_there_is_room(board):
    found = explain(module(network(13)), board(8 << 10), view="memory", pins=("*=npu",)).chosen.reuse
    out = [i for i, name in enumerate(found.kernels, 1) if name == "move_0"]
    assert len(out) == 7
    # The bytes of a value that is copied out are those of the next results only when several have passed.
    assert min(later - first for first, later in found.edges if first in out) >= 7


def test_what_cannot_leave_is_refused(board):
    with pytest.raises(CompileError) as caught:
        bits(network(12), board(2 << 10), {})
    assert caught.value.ids in (("placement.over-capacity",), ("memory.no-room",))


VIEWED = """
fn main(x: Tensor[16, 16, f32], w: Tensor[16, 16, f32]) -> Tensor[16, 16, f32] {
  let a = exp(matmul(x, w));
  let v = reshape(a, shape(256));
  let b = matmul(reshape(neg(v), shape(16, 16)), w);
  let c = matmul(b, w);
  let d = matmul(c, w);
  let e = matmul(d, c);
  let f = matmul(e, b);
  let s = reshape(exp(v), shape(16, 16));
  add(matmul(f, s), a)
}
entry main("x", "w") -> ("y");
"""


def test_views_are_made_of_what_comes_back(board):
    inputs = given_inputs(VIEWED)
    (expected, *_), _ = bits(VIEWED, board(1 << 20), inputs, MODES[:1])
    found, plans = bits(VIEWED, board(4 << 10), inputs)
    assert any(m.name == "a" for p in plans for m in p.moved)
    for y in found:
        np.testing.assert_array_equal(y, expected)


def drawn(choices: list[tuple[int, int, int]]) -> str:
    """Return a program of one operation for each choice: what it is, and what it reads."""
    names, lets = ["x", "w"], []
    for i, (kind, a, b) in enumerate(choices):
        one, other = names[a % len(names)], names[b % len(names)]
        call = [f"matmul({one}, {other})", f"tanh(matmul({one}, w))", f"add(exp({one}), {other})"][kind]
        lets.append(f"  let v{i} = {call};")
        names.append(f"v{i}")
    total = "x"
    for name in names[2:]:
        total = f"maximum({total}, matmul({name}, w))"
    square = "Tensor[8, 8, f32]"
    body = "\n".join(lets)
    head = f"fn main(x: {square}, w: {square}) -> {square} {{"
    return f'{head}\n{body}\n  {total}\n}}\nentry main("x", "w") -> ("y");\n'


@settings(max_examples=3)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 30)), min_size=8, max_size=14)
)
def test_drawn_programs_compute_the_same(tmp_path_factory, choices):
    folder, text = tmp_path_factory.mktemp("drawn"), drawn(choices)
    (folder / "a.toml").write_text(BOARD.format(bytes=1 << 20))
    (folder / "b.toml").write_text(BOARD.format(bytes=1536))
    inputs = given_inputs(text)
    (expected, *_), _ = bits(text, str(folder / "a.toml"), inputs, MODES[:1])
    try:
        found, _ = bits(text, str(folder / "b.toml"), inputs, MODES[1:3])
    except CompileError as failure:
        if not {"placement.over-capacity", "memory.no-room"} & set(failure.ids):
            raise
        return
    for y in found:
        np.testing.assert_array_equal(y, expected, err_msg=text)


def test_the_view_of_memory_shows_what_moves_and_when(tmp_path, capsys):
    path = tmp_path / "u.inl"
    path.write_text(network(8, 48))
    assert main(["explain", str(path), "--board", "mcu_serial", "--view", "memory", "--all"]) == 0
    shown = capsys.readouterr().out
    assert "3 values not in sram all the time: 90.0 KiB would be needed at once, 64.0 KiB are there" in shown
    assert "d3: 9.0 KiB to serial by dma0, after matmul_tanh until matmul_add_tanh" in shown
    assert "dma0: d1 leaves" in shown
    (plan,) = explain(module(network(8, 48)), "mcu_serial", view="memory").spills
    # Every value is outside before it returns, and back before it is read; an engine does one copy at a time.
    copies = [e for e in plan.events if e.by == "dma0"]
    assert all(a.end <= b.begin + 1e-6 for a, b in itertools.pairwise(copies))
    left = {e.what: e.end for e in copies if e.how == "leaves"}
    assert all(left[e.what] <= e.begin for e in copies if e.how == "returns")
    assert plan.time.ns <= plan.time.serial_ns


@st.composite
def pressures(draw):
    count = draw(st.integers(4, 9))
    values = []
    for _ in range(draw(st.integers(2, 6))):
        points = sorted(draw(st.sets(st.integers(0, count - 1), min_size=2, max_size=4)))
        values.append((draw(st.integers(1, 5)), points))
    stays = [Stay(size, points[0], points[-1]) for size, points in values]
    gaps = [
        Gap(i, size, points[0], a, b, 3.0 * size, 2.0 * size)
        for i, (size, points) in enumerate(values)
        for a, b in itertools.pairwise(points)
        if b - a > 1
    ]
    return Pressure(stays, gaps, draw(st.integers(3, 14)), [draw(st.integers(0, 20)) for _ in range(count)])


@settings(max_examples=60)
@given(pressures())
def test_what_is_chosen_fits_and_is_found_where_there_is_one(pressure):
    found = decide(pressure)
    everything = [Spill(g, g.before) for g in pressure.gaps]
    if found is None:
        assert profile(pressure, everything).max() > pressure.room
        return
    assert profile(pressure, found).max() <= pressure.room
    assert all(s.gap.after < s.free <= s.fetch <= s.gap.before for s in found)
    time = timeline(pressure, found)
    assert time.steps_ns <= time.ns <= time.serial_ns + 1e-6
    fewest = min(
        (
            timeline(pressure, some).ns
            for n in range(len(everything) + 1)
            for some in itertools.combinations(everything, n)
            if profile(pressure, some).max() <= pressure.room
        ),
        default=0.0,
    )
    assert time.ns <= 2 * fewest + sum(g.out_ns + g.back_ns for g in pressure.gaps)


def test_what_is_cheap_is_made_once_more():
    stays = [Stay(4, 0, 5), Stay(4, 2, 3)]
    dear = Gap(0, 4, 0, 1, 5, 100.0, 100.0)
    cheap = Gap(0, 4, 0, 1, 5, 100.0, 100.0, 10.0)
    for gap, again in ((dear, False), (cheap, True)):
        (spill,) = decide(Pressure(stays, [gap], 4, [50.0] * 6)) or ()
        assert spill.again is again
