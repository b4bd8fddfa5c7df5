"""Devices that read a stream: tokens, words, a model that refuses, and the same results as the program."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random

import numpy as np
import pytest

from inlay.accel.backend import AcceleratorBackend, backend_in_file
from inlay.accel.commands import Ordered, Place, Planned, Span
from inlay.accel.declare import Driver, Library, Mock
from inlay.accel.encode import decoded, encoded
from inlay.accel.kit_order import tokens, without
from inlay.accel.launch import Launcher
from inlay.accel.order import Channel, Ordering, unordered
from inlay.accel.overlay import Mismatch, blocks
from inlay.accel.rounding import terms
from inlay.accel.stages import Factor, Untiled
from inlay.accel.tiled import TiledCommand
from inlay.accel.waits import channels
from inlay.accelerators import strawberry
from inlay.analysis.roundings import Requantization
from inlay.base.diagnostics import InlayError
from inlay.interp.tensor import evaluate
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.walk import spine
from inlay.ops.requantization import RequantizeAttrs, Rounding, quantized_multiplier
from inlay.ops.table import table

BACKEND = AcceleratorBackend("strawberry", strawberry.Strawberry)
MODEL = strawberry.Strawberry.drivers[0]
SOURCE = Path(strawberry.__file__).read_text(encoding="utf-8")
THREE = [Channel("a", "b"), Channel("b", "a"), Channel("b", "c"), Channel("c", "b")]


def constant(rng: np.random.Generator, dtype: str, low: int, high: int, shape: tuple[int, ...]) -> str:
    values = rng.integers(low, high, shape).ravel()
    return f"{dtype}[{', '.join(map(str, shape))}]({', '.join(map(str, values))})"


def convolution(c: int, k: int, size: int, window: int, stride: int = 1, groups: int = 1) -> str:
    rng, pad = np.random.default_rng(c * k + size), window // 2
    return f"""fn main(x: Tensor[1, {c}, {size}, {size}, i8]) {{
  let p = pad(x, shape(0, 0, {pad}, {pad}, 0, 0, {pad}, {pad}), i8(-7));
  let a = conv_integer{{strides=[{stride}, {stride}], dilations=[1, 1], groups={groups}}}(
    p, {constant(rng, "i8", -128, 128, (k, c // groups, window, window))});
  let b = add(a, {constant(rng, "i32", -9000, 9000, (k, 1, 1))});
  let y = requantize{{zero=-4, low=-128, high=120, rounding="tflite"}}(
    b, {constant(rng, "i32", 1 << 30, (1 << 31) - 1, (k,))}, {constant(rng, "i32", -11, -6, (k,))});
  y }}
entry main;"""


@lru_cache(maxsize=32)
def parsed(text: str) -> Module:
    return parse_module(text, table())


def command(
    text: str, backend: AcceleratorBackend = BACKEND, parameters: tuple[tuple[str, str], ...] = ()
) -> TiledCommand:
    body = parsed(text).functions["main"].body
    (block,) = blocks(body)
    found = [x for x in backend.patterns(parameters).at(spine(body)[1], block) if not isinstance(x, Mismatch)]  # type: ignore[arg-type]
    only, *_ = found  # others leave a pad to the host
    assert isinstance(only, TiledCommand)
    return only


def run(
    text: str, driver: Driver, found: TiledCommand | None = None, parameters: tuple[tuple[str, str], ...] = ()
) -> tuple[bool, int]:
    """Return whether a driver gives what a program means, and its cycles."""
    module = parsed(text)
    f = module.functions["main"]
    found = found or command(text, BACKEND, parameters)
    assert not found.reasons
    rng = np.random.default_rng(5)
    inputs = [rng.integers(-128, 128, [e.value for e in p.type.shape]).astype(np.int8) for p in f.params]  # type: ignore[union-attr]
    want = evaluate(module, inputs, lambda op, attrs, args: table().definition(op).evaluate(attrs, *args))
    got = np.zeros_like(want)
    launcher = Launcher(BACKEND.patterns(parameters).arch, driver, "npu0", found, f.params)
    launcher([*inputs, got], [])
    return np.array_equal(want, got), launcher.cycles


@pytest.mark.parametrize(
    "text",
    [
        convolution(20, 24, 9, 3),
        convolution(3, 16, 17, 3, stride=2),
        convolution(40, 40, 8, 5, groups=40),
        convolution(64, 33, 5, 1),
    ],
    ids=["conv", "stride", "depthwise", "pointwise"],
)
def test_the_model_computes_what_the_program_means_in_the_time_that_was_planned(text) -> None:
    found = command(text)
    right, cycles = run(text, MODEL)
    assert right
    assert found.made is not None
    assert cycles == found.made.scheduled.timing.total


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "parameters",
    [
        {"block": 8, "dram_bytes": 1},
        {"block": 32},
        {"act_kib": 2, "wgt_kib": 8, "acc_kib": 2},
        {"block": 32, "act_kib": 2, "wgt_kib": 4, "acc_kib": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("groups", [1, 20])
def test_tiles_follow_the_parameters(parameters, groups) -> None:
    text = convolution(20, 40 if groups == 1 else 20, 12, 3, groups=groups)
    asked = tuple((n, str(x)) for n, x in parameters.items())
    found = command(text, BACKEND, asked)
    assert found.made is not None, found.reasons
    right, cycles = run(text, MODEL, found, parameters=asked)
    assert right
    assert cycles == found.made.scheduled.timing.total


def test_a_memory_that_is_too_small_is_a_reason(tmp_path) -> None:
    path = tmp_path / "small.py"
    path.write_text(SOURCE.replace("act = Memory(act_kib * KiB", "act = Memory(block * 1"), encoding="utf-8")
    (reason,) = command(convolution(3, 3, 9, 3, groups=3), backend_in_file(str(path))).reasons
    assert reason == "act has 1 units, and the smallest tiles take 3"


def random_commands(seed: int) -> list[Planned]:
    r = Random(seed)

    def span() -> Span:
        first = r.randrange(6)
        return Span(r.choice("xy"), first, first + r.randrange(1, 4))

    return [Planned("run", r.choice("abc"), reads=(span(),), writes=(span(),)) for _ in range(14)]


def ordered(commands: list[Planned]) -> list[Ordered]:
    ordering = Ordering(THREE)
    for c in commands:
        ordering.add(c)
    return ordering.ordered()


@pytest.mark.parametrize("seed", range(60))
def test_tokens_order_every_conflict_and_none_can_be_left_out(seed) -> None:
    stream = ordered(random_commands(seed))
    assert list(unordered(stream, THREE)) == []
    for pushed, popped, token in tokens(stream):
        assert list(unordered(without(stream, pushed, popped, token), THREE)), (pushed, popped)


def test_words_say_what_was_planned_and_the_mock_notices_a_missing_wait() -> None:
    text = convolution(20, 24, 9, 3)
    found, arch = command(text), BACKEND.patterns(()).arch
    assert found.made is not None
    stream = found.made.scheduled.stream
    read = decoded(arch, found.made.words)
    assert [(x.pops, x.pushes, dict(x.command.numbers)) for x in read] == [
        (x.pops, x.pushes, dict(x.command.numbers)) for x in stream
    ]
    assert run(text, Mock(), found)[0]
    pushed, popped, token = tokens(stream)[3]
    words = encoded(arch, without(stream, pushed, popped, token))
    wrong = replace(found, made=_with_words(found, words))
    with pytest.raises(InlayError, match="nothing orders command"):
        run(text, Mock(), wrong)


def _with_words(found: TiledCommand, words: bytes):
    assert found.made is not None
    return type(found.made)(found.made.scheduled, words, found.made.stages)


def changed(c: Ordered, place: str, **numbers: int) -> Ordered:
    places = {**c.command.places, place: Place(numbers.pop("at"), c.command.places[place].stride)}
    return replace(c, command=replace(c.command, places=places))


@pytest.mark.parametrize(
    ("name", "fault"),
    [("deadlock", 5), ("left over", 6), ("address", 2), ("poison", 4), ("outside", 3), ("no end", 1)],
)
def test_the_model_refuses(name, fault) -> None:
    text = convolution(20, 24, 9, 3)
    found, arch = command(text), BACKEND.patterns(()).arch
    assert found.made is not None
    stream = list(found.made.scheduled.stream)
    pushed, _, _ = tokens(stream)[0]
    at = next(i for i, x in enumerate(stream) if x.command.name == "gemm")
    match name:
        case "deadlock":
            stream[pushed] = replace(stream[pushed], pushes=())
        case "left over":
            stream[-1] = replace(stream[-1], pushes=(3,))
        case "address":
            stream[at] = changed(stream[at], "a", at=4000)
        case "poison":
            stream[at] = changed(stream[at], "w", at=1000)
        case "outside":
            numbers = {**stream[0].command.numbers, "dram": 1 << 20}
            stream[0] = replace(stream[0], command=replace(stream[0].command, numbers=numbers))
    words = encoded(arch, stream)
    words = words[:-24] if name == "no end" else words
    with pytest.raises(InlayError, match=f"with the fault {fault},"):
        run(text, MODEL, replace(found, made=_with_words(found, words)))


def test_limits_are_reasons() -> None:
    groups = convolution(8, 8, 9, 3, groups=2)
    assert command(groups).reasons == ("groups 2 of 8 channels: one for all, or one for each",)


@pytest.mark.parametrize("number", [0, -7])
def test_a_copy_puts_around_a_tile_what_it_can(number: int, tmp_path) -> None:
    text = SOURCE
    for old, new in (
        ("Imm(-128, 127)), b", f"{number}), b"),
        (" value:8s", " more:8s"),
        (" value=c.value,", ""),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "strawberry.py").write_text(text)
    backend = backend_in_file(str(tmp_path / "strawberry.py"))
    found = command(convolution(4, 4, 9, 3), backend)
    assert found.reasons == (() if number else ("ld_act puts 0 around a tile of x: -7 is there",))


def residual(x: str, z: str) -> str:
    scaled = """let {n}w = cast{{dtype=i32}}({n});
  let {n}0 = add({n}w, i32(3));
  let {n}1 = mul({n}0, i32(1048576));
  let {n}2 = requantize{{dtype=i32, rounding="tflite", axis=0}}({n}1, i32(1518500250), i32(-1));"""
    return f"""fn main(x: Tensor[{x}, i8], z: Tensor[{z}, i8]) {{
  {scaled.format(n="x")}
  {scaled.format(n="z")}
  let s = add(x2, z2);
  let y = requantize{{zero=5, rounding="tflite", axis=0}}(s, i32(1318500250), i32(-18));
  y }}
entry main;"""


def test_sums_of_two_tensors_of_one_shape() -> None:
    assert run(residual("1, 9, 5, 20", "1, 9, 5, 20"), MODEL)[0]
    assert command(residual("1, 9, 5, 20", "1, 1, 1, 20")).reasons == ("z is broadcast",)
    assert command(residual("20", "3, 9, 5, 20")).reasons == ("x is broadcast",)


def test_numbers_that_a_field_does_not_hold_are_a_reason(tmp_path) -> None:
    path = tmp_path / "narrow.py"
    path.write_text(SOURCE.replace("dram:32", "dram:7"), encoding="utf-8")
    (reason,) = command(convolution(20, 24, 9, 3), backend_in_file(str(path))).reasons
    assert reason.endswith("in a field of 7 bits")
    assert reason.startswith("dram = ")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("y:16 ", "", "found the field y, needed"),
        ("i:14", "i:13", "found H of 'gemm' up to 16383 in the field 'i' of 13 bits"),
        ("dram=c.dram.at,", "dram=c.dram.at // 2,", "found the field dram of 'ld_act' to be computed"),
        ("chip=c.chip.at,", "", "found no field for chip at in words of 'ld_act'"),
        ('    Token(compute, load, push="push_prev"', '    Token(load, compute, push="push_prev"', "no way of tokens"),
        ("unit=block * 16", "unit=block * 15", "found 'par' of 4096 bytes in units of 240"),
    ],
)  # fmt: skip
def test_declarations_that_are_wrong(tmp_path, old, new, message) -> None:
    assert old in SOURCE
    path = tmp_path / "wrong.py"
    path.write_text(SOURCE.replace(old, new), encoding="utf-8")
    with pytest.raises(InlayError) as caught:
        backend_in_file(str(path)).patterns(())
    assert any(message in d.message for d in caught.value.diagnostics), caught.value


@pytest.mark.parametrize("rounding", ["half_even", "half_up", "half_away"])
def test_multipliers_are_shown_to_round_as_a_float_scale_does(rounding) -> None:
    attrs, results = RequantizeAttrs(zero=-3, axis=0), list[bool]()
    drawn = np.exp2(np.random.default_rng(3).uniform(-13, -7, 12)).astype(np.float32)
    for scale in [*drawn.reshape(-1, 1), np.array([0.00045053163], np.float32)]:
        factor = Factor(attrs, (None,), rounding, of_product=True)  # type: ignore[arg-type]
        sums = np.arange(-60_000, 60_001)[None]
        mul, shift = quantized_multiplier(scale.astype(np.float64))
        device = Requantization(replace(attrs, rounding=Rounding(rounding)), mul, shift)
        same = np.array_equal(Requantization(attrs, scale)(sums), device(sums))
        try:
            terms(factor, [scale], sums[:, 0], sums[:, -1])
        except Untiled:
            assert not same
        else:
            assert same
        results.append(same)
    assert set(results) == {True, False}


def test_a_rounding_that_cannot_agree_is_a_reason_with_the_sum() -> None:
    factor = Factor(RequantizeAttrs(), (None,), "half_up", of_product=True)  # type: ignore[arg-type]
    with pytest.raises(Untiled, match="half_up differs from half_even with its scale: of the sum"):
        terms(factor, [np.array([0.25], np.float32)], np.array([-500]), np.array([500]))


def test_the_queues_of_a_device_may_be_taken_in_any_order_that_tokens_permit() -> None:
    found = command(convolution(20, 24, 9, 3))
    assert found.made is not None
    assert list(unordered(found.made.scheduled.stream, channels(BACKEND.patterns(()).arch))) == []
    assert isinstance(MODEL, Library)
