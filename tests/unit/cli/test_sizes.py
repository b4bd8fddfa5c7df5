"""Sizes of dims that nobody gave: they fit together, or the dim at fault is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inlay.base.diagnostics import RunError, error
from inlay.bytecode.formula import Arg, parse
from inlay.cli._sizes import Relation, Sizes, _solved, run_fitting
from inlay.cli.main import main
from tests.unit.importers.onnx.models import model, value

node = helper.make_node


def solved(names: str, *relations: tuple[str, int | None], **given: int) -> dict[str, int]:
    """Return sizes for dims, given relations in text (a value that is 0, or at least a number)."""
    labels = names.split()
    found = tuple(Relation(parse(text, labels), least, "") for text, least in relations)
    pinned = {labels.index(name): size for name, size in given.items()}
    sizes = Sizes(tuple(labels), pinned, found, _solved(labels, pinned, found, {}))
    assert not sizes.violated(), sizes.values
    return dict(zip(labels, sizes.values, strict=True))


def test_what_nothing_is_demanded_of_is_usual() -> None:
    assert solved("batch n B") == {"batch": 1, "n": 8, "B": 1}


def test_bounds_multiples_and_equations() -> None:
    assert solved("n", ("(n - 400)//160", 0)) == {"n": 512}
    assert solved("h w", ("h % 32", None), ("w % 48", None)) == {"h": 32, "w": 48}
    assert solved("n", ("n - 5347", None)) == {"n": 5347}
    assert solved("n", ("(n - 25)//16 + 1 - 999", None))["n"] in range(15993, 16009)
    assert solved("n", ("n*n - 121", None)) == {"n": 11}


def test_dims_are_found_together() -> None:
    found = solved("a b c", ("a - 3*b", None), ("b + c - 7", None), ("c - 6", 0))
    assert found == {"a": 3, "b": 1, "c": 6}
    assert solved("past total new", ("past + new - total", None), ("past - 10", 0))["past"] >= 10
    assert solved("a b", ("a - 3*b", None), b=50) == {"a": 150, "b": 50}


def test_what_only_some_runs_get_to_yields() -> None:
    always = Relation((Arg(0), 256, "sub"), 0, "")
    sometimes = Relation((Arg(0), 8, "sub"), None, "", always=False)
    assert _solved(["n"], {}, (always, sometimes), {}) == (256,)


def test_advice_names_the_dim_and_what_would_do() -> None:
    relations = (Relation(parse("h % 32", ["h", "w"]), None, "the halves meet"),)
    sizes = Sizes(("h", "w"), {0: 100}, relations, (100, 8))
    assert sizes.advice() == "h=100 cannot be (the halves meet): try --dim h=96, or 128 or 64"
    unknown = Sizes(("h", "w"), {0: 100}, (), (100, 8))
    assert "--dim w=SIZE" in unknown.advice()
    assert not Sizes(("h",), {0: 100}, (), (100,)).advice()


def fitting(sizes: Sizes, good: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Find sizes of a program that says nothing of them; return them and how often it ran."""
    runs: list[tuple[int, ...]] = []

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        shape = inputs["x"].shape
        runs.append(shape)
        for axis, size in enumerate(good):
            if shape[axis] != size:
                raise error("run.check-failed", f"axis {axis}: found {shape[axis]}, needed {size}")
        return inputs

    run_fitting(run, lambda s: {"x": np.zeros(s)}, lambda s: int(np.prod(s)), sizes)
    return runs[-1], len(runs)


def test_what_a_run_says_is_tried() -> None:
    sizes = Sizes(("a", "b", "c"), {2: 3}, (), (8, 8, 3))
    found, runs = fitting(sizes, (5, 77, 3))
    assert found == (5, 77, 3)
    assert runs < 10


def test_the_first_failure_is_told_at_last() -> None:
    with pytest.raises(RunError, match="axis 2: found 4, needed 3") as failure:
        fitting(Sizes(("a", "b", "c"), {2: 4}, (), (5, 77, 4)), (5, 77, 3))
    assert "--dim b=SIZE" in str(failure.value)


# --------------------------------------------------------------------------- whole commands


def saved(tmp_path: Path, m: onnx.ModelProto) -> str:
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString())
    return str(path)


def windows() -> onnx.ModelProto:
    """Return a model with a window of 300 numbers, and pairs of the rows it gives."""
    nodes = [node("Conv", ["x", "w"], ["c"], strides=[100]), node("Concat", ["c", "y"], ["z"], axis=1)]
    w = np.ones((1, 1, 300), np.float32)
    return model(
        nodes, [value("x", ["batch", 1, "n"]), value("y", ["batch", 1, "rows"])], [value("z", None)], {"w": w}
    )


def computed() -> onnx.ModelProto:
    """Return a model that adds to its input as many numbers as another input has rows."""
    nodes = [
        node("Greater", ["c", "low"], ["g"]),
        node("Cast", ["g"], ["i"], to=TensorProto.INT64),
        node("ReduceSum", ["i"], ["count"], keepdims=0),
        node("Range", ["zero", "count", "one"], ["r"]),
        node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
        node("Add", ["x", "f"], ["y"]),
    ]
    numbers = {"low": np.array([-1]), "zero": np.array(0), "one": np.array(1)}
    inputs = [value("c", [5], TensorProto.INT64), value("x", ["n"])]
    return model(nodes, inputs, [value("y", None)], numbers)


@pytest.mark.parametrize("make", [windows, computed])
def test_models_run_with_sizes_that_nobody_gave(make, tmp_path, cache, capsys) -> None:
    assert main(["run", saved(tmp_path, make()), "--cache", cache]) == 0
    shown = capsys.readouterr().out
    assert "input x: f32[1, 1, 512]" in shown or "input x: f32[5]" in shown


def test_a_saved_executable_knows_too(tmp_path, cache, capsys) -> None:
    out = str(tmp_path / "m.inlay")
    assert main(["compile", saved(tmp_path, windows()), "-o", out, "--cache", cache]) == 0
    assert main(["run", out]) == 0
    assert main(["run", out, "--dim", "n=300", "--dim", "rows=2"]) == 3
    assert "n=300 and rows=2 cannot be" in capsys.readouterr().err
    assert main(["run", out, "--dim", "m=300"]) == 1
    assert "there are batch, n, rows" in capsys.readouterr().err


@pytest.fixture
def cache(tmp_path_factory) -> str:
    return str(tmp_path_factory.getbasetemp() / "inlay-cache")
