"""What was taken out of a cell is updated where it is: bytes that are copied, and values in all modes."""

from __future__ import annotations

import io

import numpy as np
import pytest

import inlay
from inlay.analysis.infer_types import infer_types
from inlay.base.diagnostics import CompileError, RunError
from inlay.interp.tensor import evaluate_entry
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.native import Settings

LOOP = """
fn main<n>(x: Tensor[64, 128, f32], at: Tensor[n, 1, i64], rows: Tensor[n, 128, f32], k: Tensor[i64])
    -> (Tensor[64, 128, f32], Tensor[128, f32]) {
  let limit: some int limit. int[limit] = to_control(k);
  let cell = ref(neg(x));
  let loop = fn<i>(i: int[i]) {
    if (int_less(int(i), int(limit))) {
      put(cell, UPDATE);
      loop(int(i + 1))
    } else { int(0) }
  };
  let done = loop(int(0));
  let all = read(cell);
  (all, reduce_sum{axes=[0]}(all))
}
entry main("x", "at", "rows", "k") -> ("all", "sum");
"""
UPDATES = {
    "scatter_nd": "scatter_nd(take(cell), at, rows)",
    "update_slice": "update_slice{axes=[0]}(take(cell), rows, shape(3))",
    "set_row": "set_row(take(cell), int(5), reduce_sum{axes=[0], keepdims=false}(rows))",
}
GROWING = """
fn first(x: Tensor[3, 4, f32]) -> some j. Tensor[j, 4, f32] { neg(x) }
fn main(x: Tensor[3, 4, f32], k: Tensor[i64]) -> some j. Tensor[j, 4, f32] {
  let limit: some int limit. int[limit] = to_control(k);
  let cell = ref(@first(x));
  let loop = fn<i>(i: int[i]) {
    if (int_less(int(i), int(limit))) {
      put(cell, concat{axis=0}(take(cell), x));
      loop(int(i + 1))
    } else { int(0) }
  };
  let done = loop(int(0));
  read(cell)
}
entry main("x", "k") -> ("all");
"""
MODES = {
    "sequential": Settings(mode="sequential"),
    "parallel": Settings(mode="parallel", threads=2),
    "races": Settings(mode="replay", seed=5, races=True),
}


def inputs(turns: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        "x": random.standard_normal((64, 128)).astype(np.float32),
        "at": np.array([[3], [-5]]),
        "rows": random.standard_normal((2, 128)).astype(np.float32),
        "k": np.array(turns),
    }


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_copies_nothing_else(name: str) -> None:
    taking = LOOP.replace("UPDATE", UPDATES[name])
    reading = taking.replace("take(", "read(").replace("put(", "write(")
    given = inputs(5)
    expected = evaluate_entry(infer_types(parse_module(taking, table())), given)
    copied: list[int] = []
    for text in (taking, reading):
        executable = inlay.compile(io.StringIO(text), threads=1, cache="none")
        found = executable.run(given)
        assert np.array_equal(found["all"], expected["all"])
        copied.append(executable.usage().copied_bytes)
    whole = given["x"].nbytes
    assert copied[0] < whole
    assert copied[1] >= 5 * whole


def test_values_are_those_of_the_evaluator_in_all_modes(tmp_path) -> None:
    text = LOOP.replace("UPDATE", UPDATES["scatter_nd"])
    inlay.compile(io.StringIO(text), threads=1, cache="none").save(tmp_path / "loop.inlay")
    given = inputs(3)
    expected = evaluate_entry(infer_types(parse_module(text, table())), given)
    for settings in MODES.values():
        executable = inlay.load_executable(tmp_path / "loop.inlay", settings=settings)
        assert np.array_equal(executable.run(given)["all"], expected["all"])
        assert executable.live_objects() == 0


def test_what_grows_in_a_cell_is_copied_a_few_times_in_all() -> None:
    executable = inlay.compile(io.StringIO(GROWING), threads=1, cache="none")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = executable.run({"x": x, "k": np.array(200)})["all"]
    assert np.array_equal(found, np.concatenate([-x, *[x] * 200]))
    assert executable.usage().copied_bytes <= 4 * found.nbytes


def test_the_evaluator_stops_at_an_empty_cell_and_the_compiler_before() -> None:
    text = """
    fn main(x: Tensor[4, f32]) -> Tensor[4, f32] {
      let c = ref(x);
      let t = take(c);
      add(t, OPERATION)
    }
    entry main("x") -> ("y");
    """
    for operation in ("take(c)", "read(c)"):
        wrong = text.replace("OPERATION", operation)
        module = infer_types(parse_module(wrong, table()))
        with pytest.raises(RunError, match="empty"):
            evaluate_entry(module, {"x": np.zeros(4, np.float32)})
        with pytest.raises(CompileError) as refusal:
            inlay.compile(io.StringIO(wrong), cache="none")
        assert refusal.value.ids == ("cell.empty",)
