"""Several matches as one stream: the same bits, in less time, with every conflict in order."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from inlay.accel.backend import AcceleratorBackend
from inlay.accel.chains import larger
from inlay.accel.commands import Planned, Span
from inlay.accel.declare import Driver, Mock
from inlay.accel.encode import decoded
from inlay.accel.launch import Launcher
from inlay.accel.order import unordered
from inlay.accel.overlay import blocks
from inlay.accel.reorder import behind, earlier
from inlay.accel.tiled import TiledCommand
from inlay.accel.waits import channels
from inlay.accelerators import strawberry
from inlay.interp.tensor import evaluate
from inlay.ir.expr import Var
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ops.table import table

BACKEND = AcceleratorBackend("strawberry", strawberry.Strawberry)
MODEL = strawberry.Strawberry.drivers[0]
ARCH = BACKEND.patterns(()).arch


def listed(rng: np.random.Generator, low: int, high: int, shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]({', '.join(map(str, rng.integers(low, high, shape).ravel()))})"


class Program:
    """Statements of a program that is drawn, each of a value of four axes."""

    def __init__(self, seed: int, batch: str = "1") -> None:
        self.random, self.rng = Random(seed), np.random.default_rng(seed)
        r = self.random
        self.batch, self.lines = batch, list[str]()
        self.first: tuple[int, int, int] = (r.choice((3, 16, 20)), r.choice((5, 9, 14)), r.choice((4, 8, 13)))

    def convolution(self, x: str, shape: tuple[int, int, int], k: int, window: int, groups: int = 1) -> str:
        (c, _, _), pad, n = shape, window // 2, len(self.lines)
        w = listed(self.rng, -128, 128, (k, c // groups, window, window))
        terms = f"i32{listed(self.rng, 1 << 30, (1 << 31) - 1, (k,))}, i32{listed(self.rng, -10, -6, (k,))}"
        self.lines += [
            f"let p{n} = pad({x}, shape(0, 0, {pad}, {pad}, 0, 0, {pad}, {pad}), i8({self.random.choice((0, -7))}));",
            f"let a{n} = conv_integer{{strides=[1, 1], dilations=[1, 1], groups={groups}}}(p{n}, i8{w});",
            f"let b{n} = add(a{n}, i32{listed(self.rng, -9000, 9000, (k, 1, 1))});",
            f'let y{n} = requantize{{zero=-4, low=-128, high=120, rounding="tflite"}}(b{n}, {terms});',
        ]
        return f"y{n}"

    def transpose(self, x: str, perm: str) -> str:
        self.lines.append(f"let t{len(self.lines)} = transpose{{perm=[{perm}]}}({x});")
        return f"t{len(self.lines) - 1}"

    def residual(self, x: str, z: str, *, is_transposed: bool = False) -> str:
        if is_transposed:
            x, z = (self.transpose(v, "0, 2, 3, 1") for v in (x, z))
        n = len(self.lines)
        for v, of in (("x", x), ("z", z)):
            self.lines += [
                f"let {v}w{n} = cast{{dtype=i32}}({of});",
                f"let {v}0{n} = add({v}w{n}, i32(3));",
                f"let {v}1{n} = mul({v}0{n}, i32(1048576));",
                f'let {v}2{n} = requantize{{dtype=i32, rounding="tflite", axis=0}}({v}1{n}, i32(1518500250), i32(-1));',
            ]
        self.lines += [
            f"let s{n} = add(x2{n}, z2{n});",
            f'let y{n} = requantize{{zero=5, rounding="tflite", axis=0}}(s{n}, i32(1318500250), i32(-18));',
        ]
        return self.transpose(f"y{n}", "0, 3, 1, 2") if is_transposed else f"y{n}"

    def drawn(self, length: int) -> str:
        """Return the text of a program: convolutions of all kinds, and sums with what was there before."""
        r, x, (c, h, w) = self.random, "x", self.first
        before: dict[tuple[int, int, int], list[str]] = {}
        for _ in range(length):
            same = before.get((c, h, w), [])
            before.setdefault((c, h, w), []).append(x)
            if same and r.random() < 0.6:
                x = self.residual(x, r.choice(same), is_transposed=r.random() < 0.5)
            elif r.random() < 0.4:
                x = self.convolution(x, (c, h, w), c, r.choice((1, 3)), c)
            else:
                k = r.choice((c, c, 17, 32))
                x, c = self.convolution(x, (c, h, w), k, r.choice((1, 3))), k
        return self.text(x)

    def text(self, result: str) -> str:
        """Return the program so far."""
        shape = ", ".join(map(str, (self.batch, *self.first)))
        dims = f"<{self.batch}>" if self.batch.isalpha() else ""
        return f"fn main{dims}(x: Tensor[{shape}, i8]) {{\n  {chr(10).join(self.lines)}\n  {result} }}\nentry main;"


Parameters = tuple[tuple[str, str], ...]


def streams(module: Module, parameters: Parameters = ()) -> tuple[list[TiledCommand], list[TiledCommand]]:
    """Return the matches of a program, and the larger streams."""
    (block,) = blocks(module.functions["main"].body)
    patterns = BACKEND.patterns(parameters)
    found: dict[Var, TiledCommand] = {}
    for var in block.calls:
        for c in patterns.at(var, block):
            if isinstance(c, TiledCommand) and not c.reasons:
                found[var] = c
    return list(found.values()), list(larger(patterns.tiler, block.calls, block.uses, found))


def run(
    text: str,
    module: Module,
    stream: TiledCommand,
    driver: Driver,
    images: int = 1,
    parameters: Parameters = (),
) -> int:
    """Compare a stream that is a whole program with what that means; return the cycles."""
    f = module.functions["main"]
    (x,) = f.params
    shape = [images, *(e.value for e in x.type.shape[1:])]  # type: ignore[union-attr]
    inputs = [np.random.default_rng(5).integers(-128, 128, shape).astype(np.int8)]
    want = evaluate(module, inputs, lambda op, attrs, args: table().definition(op).evaluate(attrs, *args))
    got = np.zeros_like(want)
    launcher = Launcher(BACKEND.patterns(parameters).arch, driver, "npu0", stream, f.params)
    launcher([*inputs, got], [])
    assert np.array_equal(want, got), text
    return launcher.cycles


def whole(module: Module, parameters: Parameters = ()) -> TiledCommand:
    """Return the stream that is all of a program."""
    calls = sum(1 for _ in blocks(module.functions["main"].body) for _ in _.calls)
    return next(s for s in reversed(streams(module, parameters)[1]) if len(s.calls) == calls)


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", range(12))
def test_chains_give_the_bits_of_their_program(seed: int) -> None:
    text = Program(seed).drawn(4)
    module = parse_module(text, table())
    stream = whole(module)
    assert stream.made is not None
    scheduled = stream.made.scheduled
    assert run(text, module, stream, MODEL) == scheduled.timing.total
    assert list(unordered(scheduled.stream, channels(ARCH))) == []
    said = [x.command.name for x in decoded(ARCH, stream.made.words)]
    assert said == [x.command.name for x in scheduled.stream]


def test_weights_of_the_next_layer_come_while_one_is_computed() -> None:
    program = Program(0)
    program.first, x = (64, 6, 6), "x"
    for _ in range(4):
        x = program.convolution(x, program.first, 64, 1)
    module = parse_module(program.text(x), table())
    stream, alone = whole(module), streams(module)[0]
    assert stream.made is not None
    assert stream.total < 0.9 * sum(m.total for m in alone)
    named = [x.command.name for x in stream.made.scheduled.stream]
    stores = [at for at, name in enumerate(named) if name == "st_act"]
    weights = [at for at, name in enumerate(named) if name == "ld_wgt"]
    assert weights[-1] < stores[-len(stores) // 4]  # those of the last layer before the layer before it ends


@pytest.mark.llvm
def test_the_mock_runs_a_chain_in_any_order_that_tokens_permit() -> None:
    text = Program(3).drawn(3)
    module = parse_module(text, table())
    run(text, module, whole(module), Mock())


def test_a_chain_of_any_number_of_images() -> None:
    program = Program(1, "n")
    c, h, w = program.first
    a = program.convolution("x", (c, h, w), 16, 3)
    b = program.convolution(a, (16, h, w), 16, 1)
    text = program.text(program.residual(a, b, is_transposed=True))
    module = parse_module(text, table())
    for images in (1, 3):
        run(text, module, whole(module), MODEL, images)


def test_a_value_that_is_read_elsewhere_ends_a_chain() -> None:
    program = Program(1)
    c, h, w = program.first
    a = program.convolution("x", (c, h, w), 16, 3)
    b = program.convolution(a, (16, h, w), 16, 1)
    text = program.text(f"({a}, {b})")
    assert streams(parse_module(text, table()))[1] == []


def two_convolutions() -> str:
    program = Program(2)
    program.first = (16, 9, 9)
    a = program.convolution("x", program.first, 16, 3)
    return program.text(program.convolution(a, program.first, 16, 3))


@pytest.mark.parametrize("kib", [64, 8, 1])
def test_a_value_stays_in_the_device_where_it_has_room(kib: int) -> None:
    text, parameters = two_convolutions(), (("act_kib", str(kib)),)
    module = parse_module(text, table())
    stream = whole(module, parameters)
    assert stream.made is not None
    assert run(text, module, stream, MODEL, parameters=parameters) == stream.total
    made = stream.made.scheduled
    kept = [r for p in made.parts for r in p.setting.residents.values()]
    stored = sum(
        x.command.numbers["y"] * x.command.numbers["x"] for x in made.stream if x.command.name == "st_act"
    )
    if kib == 1:  # 64 units, and it is 81 with 40 around them
        assert kept == []
        assert stored == 2 * 81
    else:
        assert [(r.before, r.extents) for r in kept] == [((0, 0, 1, 1), (1, 1, 11, 11))] * 2
        assert stored == 81


@pytest.mark.llvm
def test_the_mock_runs_what_stays_in_any_order_that_tokens_permit() -> None:
    text = two_convolutions()
    module = parse_module(text, table())
    stream = whole(module)
    assert stream.made is not None
    assert any(p.setting.residents for p in stream.made.scheduled.parts)
    run(text, module, stream, Mock())


def test_a_value_whose_readers_want_other_borders_leaves_the_device() -> None:
    program = Program(2)
    program.first = (16, 6, 6)
    a = program.convolution("x", program.first, 16, 1)
    b, c = (program.convolution(a, program.first, 16, 3) for _ in range(2))
    value = "i8(0)" if "i8(0)" in program.lines[4] else "i8(-7)"
    program.lines[8] = program.lines[8].replace(value, "i8(5)")
    text = program.text(program.residual(b, c))
    module = parse_module(text, table())
    stream = whole(module)
    assert stream.made is not None
    made = stream.made.scheduled
    assert made.parts[0].setting.residents == {}
    assert all(p.setting.residents for p in made.parts[1:])
    run(text, module, stream, MODEL)


def drawn_commands(seed: int) -> list[Planned]:
    r = Random(seed)

    def span() -> Span:
        first = r.randrange(6)
        return Span(r.choice("xy"), first, first + r.randrange(1, 4))

    return [
        Planned("run", r.choice("abc"), reads=(span(),), writes=(span(),), cycles=r.randrange(50))
        for _ in range(30)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_another_order_keeps_all_conflicts_in_order(seed: int) -> None:
    commands = drawn_commands(seed)
    position = {id(c): n for n, c in enumerate(earlier(commands)[0])}
    assert len(position) == len(commands)
    for b, c in enumerate(commands):
        for a in commands[:b]:
            touched = ((a.writes, c.reads), (a.writes, c.writes), (a.reads, c.writes))
            if any(x.meets(y) for p, q in touched for x in p for y in q):
                assert position[id(a)] < position[id(c)]
    assert all(n < at for at, needed in enumerate(behind(commands)) for n in needed)
