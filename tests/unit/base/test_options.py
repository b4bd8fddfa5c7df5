"""Options: layers, reading of text, provenance."""

from __future__ import annotations

import argparse
import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from inlay.base.diagnostics import CompileError
from inlay.base.options import Layer, add_arguments, arguments_layer, environment, option, resolve


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Sample:
    threads: int | None = option(None, help="worker threads")
    ratio: float = option(0.5, help="a ratio")
    verify: bool = option(False, help="verify between passes")
    name: str = option("x", help="a name", choices=("x", "y"))
    level: Literal["low", "high"] = option("low", help="a level")
    color: Color = option(Color.RED, help="a color")
    sizes: tuple[int, ...] = option((), help="sizes")
    out: Path = option(Path("out"), help="a folder")


def test_later_layers_win_and_say_so() -> None:
    found = resolve(
        Sample,
        Layer("file", {"threads": 2, "ratio": 1}),
        Layer("environment", {"threads": "4", "verify": "on", "color": "blue", "sizes": "1,0x10"}),
    )
    assert found.options == Sample(threads=4, ratio=1.0, verify=True, color=Color.BLUE, sizes=(1, 16))
    assert found.provenance["threads"] == "environment"
    assert found.provenance["ratio"] == "file"
    assert found.provenance["name"] == "default"
    assert "threads = 4  (environment)" in found.describe()


def test_none_is_read_where_it_may_be() -> None:
    assert resolve(Sample, Layer("a", {"threads": "none"})).options.threads is None
    with pytest.raises(CompileError, match="needed a number"):
        resolve(Sample, Layer("a", {"ratio": "none"}))


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("threads", "many", "an integer"),
        ("ratio", "half", "a number"),
        ("verify", "maybe", "true or false"),
        ("verify", 3, "true or false"),
        ("name", "z", "one of x, y"),
        ("level", "mid", "one of low, high"),
        ("color", "green", "one of red, blue"),
        ("sizes", "1,b", "an integer"),
        ("name", 3, "text"),
        ("threads", True, "an integer"),
    ],
)
def test_a_bad_value_says_what_was_needed(name: str, value: object, needed: str) -> None:
    with pytest.raises(CompileError) as caught:
        resolve(Sample, Layer("command line", {name: value}))
    assert caught.value.ids == ("option.bad-value",)
    assert caught.value.diagnostics[0].message == f"found {name}={value!r}, needed {needed}"
    assert str(caught.value.diagnostics[0].span) == "command line"


def test_all_bad_options_are_reported_at_once() -> None:
    with pytest.raises(CompileError) as caught:
        resolve(Sample, Layer("a", {"thread": 1, "ratio": "x", "zzz": 0}))
    assert caught.value.ids == ("option.unknown", "option.bad-value", "option.unknown")
    assert caught.value.diagnostics[0].hint == "did you mean threads?"


def test_the_environment_is_a_layer() -> None:
    layer = environment("T_", {"T_THREADS": "3", "OTHER": "1"})
    assert layer.values == {"threads": "3"}


def test_the_command_line_is_a_layer() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Sample)
    arguments = parser.parse_args(["--threads", "2", "--no-verify"])
    layer = arguments_layer(arguments, Sample)
    assert layer.values == {"threads": "2", "verify": False}
    assert resolve(Sample, layer).options == Sample(threads=2)


@dataclass(frozen=True, slots=True)
class Bounded:
    error: float = option(1e-4, help="allowed", least=2e-5)


@pytest.mark.parametrize("given", ["nan", "0", "1e-5", "-1", "much"])
def test_numbers_below_the_least_are_refused(given) -> None:
    with pytest.raises(CompileError) as caught:
        resolve(Bounded, Layer("command line", {"error": given}))
    assert caught.value.ids == ("option.bad-value",)


def test_the_least_number_and_more_are_taken() -> None:
    for given in ("2e-5", 1, "inf"):
        assert resolve(Bounded, Layer("here", {"error": given})).options.error == float(given)
