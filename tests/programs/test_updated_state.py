"""State of a fixed size that sessions update where it is: the bits are those of calls that copy all of it, and a
run that does not succeed changes nothing."""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import inlay
from inlay.base.diagnostics import RunError
from inlay.runtime.growing import GrowingRuns
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable
from inlay.runtime.sessions import Session
from tests import tflite_models as tflite
from tests.programs.draw_updates import draw_program

TABLES = """
fn main<n, m>(
  a: Tensor[m, 4, f32], b: Tensor[2, m, 3, bf16], c: Tensor[m, f32], log: Tensor[1, k, f32],
  ia: Tensor[n, 1, i64], ua: Tensor[n, 4, f32], at: Tensor[i64], ub: Tensor[2, n, 3, bf16],
  row: Tensor[i64], turns: Tensor[i64]
) {
  let cell = ref(a);
  let sums = reduce_sum{axes=[0], keepdims=false}(read(cell));
  put(cell, scatter_nd(take(cell), ia, ua));
  let new = read(cell);
  let begin: some int begin. int[begin] = to_control(at);
  let half = update_slice{axes=[1]}(b, ub, shape(begin));
  let whole = update_slice{axes=[1]}(half, ub, shape(0));
  let added = scatter_elements{axis=0, combine=add}(c, reshape(ia, shape(n)), reduce_sum{axes=[1], keepdims=false}(ua));
  let limit: some int limit. int[limit] = to_control(turns);
  let loop = fn<i>(i: int[i], y: Tensor[4, f32]) {
    if (int_less(int(i), int(limit))) { loop(int(i + 1), tanh(add(y, sums))) } else { y }
  };
  let which: some int which. int[which] = to_control(row);
  let longer = concat{axis=1}(log, reshape(sums, shape(1, 4)));
  let halves = reduce_sum{axes=[0, 1], keepdims=false}(cast{dtype=f32}(half));
  (loop(int(0), get_row(new, int(which))), halves, sums, new, whole, added, longer)
}
entry main("a", "b", "c", "log", "ia", "ua", "at", "ub", "row", "turns")
  -> ("y", "halves", "sums", "new", "whole", "added", "longer") state("a", "new") state("b", "whole") state("c", "added");
"""
CARRY = {"new": "a", "whole": "b", "added": "c", "longer": "log"}
ROWS = 64
SETTINGS = {
    "sequential": Settings(mode="sequential"),
    "parallel": Settings(mode="parallel", threads=2),
    "replay": Settings(mode="replay", seed=3),
    "races": Settings(mode="replay", seed=5, races=True),
    "chosen": Settings(threads=2),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("updated") / "tables.inlay"
    inlay.compile(io.StringIO(TABLES.replace("<n, m>", "<n, m, k>")), threads=1).save(path)
    return path


def first() -> dict[str, np.ndarray]:
    random = np.random.default_rng(9)
    return {
        "a": random.standard_normal((ROWS, 4)).astype(np.float32),
        "b": random.standard_normal((2, ROWS, 3)).astype(ml_dtypes.bfloat16),
        "c": random.standard_normal(ROWS).astype(np.float32),
        "log": np.zeros((1, 0), np.float32),
    }


def inputs(i: int, row: int = 0, turns: int = 3) -> dict[str, np.ndarray]:
    random, n = np.random.default_rng(i), i % 4
    return {
        "ia": random.integers(-ROWS, ROWS, (n, 1)),
        "ua": random.standard_normal((n, 4)).astype(np.float32),
        "at": np.array(random.integers(0, ROWS - n)),
        "ub": random.standard_normal((2, n, 3)).astype(ml_dtypes.bfloat16),
        "row": np.array(row),
        "turns": np.array(turns),
    }


class Copying:
    """What a session is compared with: calls of the entry that give all back."""

    def __init__(self, executable: Executable, state: Mapping[str, Any], carry: Mapping[str, str]) -> None:
        self.executable, self.state, self.carry = executable, dict(state), carry

    def run(self, given: Mapping[str, Any]) -> dict[str, Any]:
        found = self.executable.run({**self.state, **given})
        self.state.update({to: found.pop(name) for name, to in self.carry.items()})
        return found


def both(executable: Executable) -> tuple[Session, Copying]:
    state = first()
    session = executable.session(CARRY, state)
    assert isinstance(session._run.__self__, GrowingRuns)  # type: ignore[attr-defined]
    return session, Copying(executable, state, CARRY)


def same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name].dtype == expected[name].dtype
        assert np.array_equal(found[name], expected[name]), name


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SETTINGS)
def test_bits_are_those_of_calls_that_copy(name: str, file) -> None:
    executable = inlay.load_executable(file, settings=SETTINGS[name])
    session, copying = both(executable)
    for i in range(14):
        same(session.run(inputs(i, row=i)), copying.run(inputs(i, row=i)))
        if i % 5 == 4:
            same(session.state, copying.state)
    same(session.state, copying.state)
    assert executable.live_objects() == 0


def test_a_run_copies_only_what_it_says_that_it_wrote(file) -> None:
    executable = inlay.load_executable(file, threads=1)
    session, copying = both(executable)
    copied: list[int] = []
    for i in range(20):
        session.run(inputs(i))
        copied.append(executable.usage().copied_bytes)
        copying.run(inputs(i))
    whole = sum(x.nbytes for x in first().values())
    told = 2 * (3 * 8 + 2 * 3 * 3 * 2) + 3 * 8  # indices twice, a part twice
    assert executable.usage().copied_bytes >= whole  # of the calls that give all back
    assert sorted(copied)[10] <= told + 2 * 16  # and a row of the log


def test_a_run_that_fails_changes_nothing(file) -> None:
    for settings in SETTINGS.values():
        executable = inlay.load_executable(file, settings=settings)
        session, copying = both(executable)
        for i in range(9):
            with pytest.raises(RunError):  # behind the updates
                session.run(inputs(100 + i, row=ROWS))
            with pytest.raises(RunError):  # in them
                session.run({**inputs(103), "ia": np.full((3, 1), ROWS)})
            with pytest.raises(RunError):  # before anything runs
                session.run({**inputs(103), "ua": np.zeros((2, 4), np.float32)})
            if i % 3 == 1:
                same(session.state, copying.state)
            for k in range(i % 3 + 1):
                same(session.run(inputs(10 * i + k)), copying.run(inputs(10 * i + k)))
        same(session.state, copying.state)
        assert executable.live_objects() == 0


def test_a_run_that_is_given_up_changes_nothing(file) -> None:
    for settings in SETTINGS.values():
        executable = inlay.load_executable(file, settings=settings)
        session, copying = both(executable)
        for i in range(3):
            same(session.run(inputs(20 + i)), copying.run(inputs(20 + i)))
            late = inputs(51 + i, turns=10**9)
            with pytest.raises(inlay.DeadlineError):
                session.run(late, timeout=0.01)
            running = session.submit(late)
            behind = session.submit(inputs(i))
            threading.Timer(0.01, running.cancel).start()
            with pytest.raises(RunError):
                running.result(30)
            same(behind.result(30), copying.run(inputs(i)))
        same(session.state, copying.state)


def test_outputs_that_come_too_late_are_not_kept(file) -> None:
    """The request has failed; so the state is not what its run made in the end."""
    executable = inlay.load_executable(file, threads=1)
    session, copying = both(executable)
    for i in range(4):
        same(session.run(inputs(i)), copying.run(inputs(i)))
    done = threading.Event()
    step = session._run

    def slow(given: Any, timeout: float | None = None) -> Any:
        found = step(given, timeout=timeout)
        done.wait(5)
        return found

    session._run = slow  # type: ignore[assignment]
    running = session.submit(inputs(5), timeout=0.05)
    with pytest.raises(RunError):
        running.result(30)
    done.set()
    session._run = step
    for i in range(6, 9):
        same(session.run(inputs(i)), copying.run(inputs(i)))
    same(session.state, copying.state)


def test_arrays_that_were_shown_or_given_stay_as_they_are(file) -> None:
    executable = inlay.load_executable(file, threads=1)
    state = first()
    session, before = executable.session(CARRY, state), first()
    shown: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = []
    for i in range(12):
        session.run(inputs(i))
        if i % 3 == 0:
            shown.append((session.state, {n: x.copy() for n, x in session.state.items()}))
    for views, copies in shown:
        same(views, copies)
        assert not any(x.flags.writeable for x in views.values())
    same(state, before)


def test_state_is_saved_restored_and_spilled(file, tmp_path) -> None:
    executable = inlay.load_executable(file, threads=1)
    session, copying = both(executable)
    for i in range(4):
        same(session.run(inputs(i)), copying.run(inputs(i)))
    session.save(tmp_path / "saved")
    other, state = executable.session(CARRY, first()), dict(copying.state)
    for i in range(4, 8):
        same(session.run(inputs(i)), copying.run(inputs(i)))
        session.spill(tmp_path / "spilled" if i % 2 else None)
    same(session.state, copying.state)
    other.restore(tmp_path / "saved")
    copying.state = state
    for i in range(8, 12):
        same(other.run(inputs(i)), copying.run(inputs(i)))
    same(other.state, copying.state)


def test_what_is_not_carried_is_an_output(file) -> None:
    executable = inlay.load_executable(file, threads=1)
    state = first()
    carry = {"new": "a", "longer": "log"}
    session = executable.session(carry, {n: state[n] for n in carry.values()})
    copying = Copying(executable, {n: state[n] for n in carry.values()}, carry)
    for i in range(6):
        given = {**inputs(i), "b": state["b"], "c": state["c"]}
        found = session.run(given)
        same(found, copying.run(given))
        found["added"][:] = 0
    same(session.state, copying.state)


def test_sessions_of_one_executable_do_not_meet(file) -> None:
    executable = inlay.load_executable(file, settings=Settings(threads=2))
    pairs = [both(executable) for _ in range(4)]
    for i in range(8):
        running = [session.submit(inputs(10 * i + k)) for k, (session, _) in enumerate(pairs)]
        for k, (request, (_, copying)) in enumerate(zip(running, pairs, strict=True)):
            same(request.result(30), copying.run(inputs(10 * i + k)))


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 60))]
)
def test_drawn_programs_agree(seed: int) -> None:
    """Chains of updates over several tables, whose runs fail now and then, in all modes."""
    drawn = draw_program(seed)
    executable = inlay.compile(io.StringIO(drawn.text), threads=1, cache="none")
    session = executable.session(drawn.carry, drawn.state())
    copying = Copying(executable, drawn.state(), drawn.carry)
    assert isinstance(session._run.__self__, GrowingRuns), drawn.text  # type: ignore[attr-defined]
    for turn in range(10):
        if turn % 4 == 2:
            with pytest.raises(RunError):
                session.run(drawn.inputs(1000 + turn, fails=True))
        same(session.run(drawn.inputs(turn)), copying.run(drawn.inputs(turn)))
    same(session.state, copying.state)


def test_caches_of_models_are_updated_where_they_are(tmp_path) -> None:
    """A cache of TFLite with a part replaced, and one of ONNX with rows at indices."""
    shape = (1, 32, 2, 4)
    graph = tflite.Graph(
        {
            "past": tflite.T(shape),
            "new": tflite.T((1, 1, 2, 4)),
            "at": tflite.T((4,), "int32"),
            "present": tflite.T(shape),
            "y": tflite.T(shape),
        },
        [
            tflite.Op("DYNAMIC_UPDATE_SLICE", ["past", "new", "at"], ["present"]),
            tflite.Op("NEG", ["present"], ["y"]),
        ],
        ["past", "new", "at"],
        ["y", "present"],
    )
    (tmp_path / "cache.tflite").write_bytes(tflite.models(graph))
    nodes = [
        helper.make_node("ScatterElements", ["past", "at", "new"], ["present"], axis=1),
        helper.make_node("Neg", ["present"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in
              (("past", shape), ("new", (1, 1, 2, 4)), ("y", shape), ("present", shape))]  # fmt: skip
    places = helper.make_tensor_value_info("at", TensorProto.INT64, (1, 1, 2, 4))
    onnx_graph = helper.make_graph(nodes, "cache", [*values[:2], places], values[2:])
    model = helper.make_model(onnx_graph, opset_imports=[helper.make_opsetid("", 18)])
    places_of = (lambda i: np.array([0, i, 0, 0], np.int32), lambda i: np.full((1, 1, 2, 4), i))
    for source, at in zip((tmp_path / "cache.tflite", model), places_of, strict=True):
        executable = inlay.compile(source, threads=1, cache="none")
        state = {"past": np.zeros(shape, np.float32)}
        session = executable.session({"present": "past"}, state)
        copying = Copying(executable, state, {"present": "past"})
        assert isinstance(session._run.__self__, GrowingRuns)  # type: ignore[attr-defined]
        for i in range(8):
            given = {"new": np.full((1, 1, 2, 4), i + 1, np.float32), "at": at(i)}
            same(session.run(given), copying.run(given))
            session.run(given)
            assert executable.usage().copied_bytes < 128
        same(session.state, copying.state)
