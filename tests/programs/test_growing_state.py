"""State that sessions add to where it is: the bits are those of calls that copy it, and nothing is ever lost."""

from __future__ import annotations

import io
import threading

import ml_dtypes
import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError, RunError
from inlay.ir.printer import print_module
from inlay.runtime.growing import GrowingRuns
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable
from inlay.runtime.sessions import Session

DECODER = """
fn main<n>(
  keys: Tensor[2, n, 4, f32], values: Tensor[1, n, 2, 4, f32], x: Tensor[2, 1, 4, f32],
  at: Tensor[i64], turns: Tensor[i64]
) {
  let all = concat{axis=1}(keys, x);
  let new = reshape(tanh(transpose{perm=[1, 0, 2]}(x)), shape(1, 1, 2, 4));
  let more = concat{axis=1}(values, new);
  let mixing = softmax{axis=2}(matmul(x, transpose{perm=[0, 2, 1]}(all)));
  let mixed = matmul(mixing, transpose{perm=[1, 0, 2]}(reshape(more, shape(n + 1, 2, 4))));
  let limit: some int limit. int[limit] = to_control(turns);
  let loop = fn<i>(i: int[i], y: Tensor[2, 1, 4, f32]) {
    if (int_less(int(i), int(limit))) { loop(int(i + 1), tanh(add(y, x))) } else { y }
  };
  let row: some int row. int[row] = to_control(at);
  (loop(int(0), mixed), get_row(transpose{perm=[1, 0, 2]}(all), int(row)), all, more)
}
entry main("keys", "values", "x", "at", "turns") -> ("y", "row", "all", "more");
"""
CARRY = {"all": "keys", "more": "values"}
SETTINGS = {
    "sequential": Settings(mode="sequential"),
    "parallel": Settings(mode="parallel", threads=2),
    "replay": Settings(mode="replay", seed=3),
    "races": Settings(mode="replay", seed=5, races=True),
    "chosen": Settings(threads=2),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("growing") / "decoder.inlay"
    inlay.compile(io.StringIO(DECODER), threads=1).save(path)
    return path


@pytest.fixture(scope="module")
def batched(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("growing") / "batched.inlay"
    inlay.compile(io.StringIO(DECODER), threads=1, batch=True).save(path)
    return path


def is_in_place(session: Session) -> bool:
    return isinstance(getattr(session._run, "__self__", None), GrowingRuns)


def inputs(i: int, at: int = 0, turns: int = 3) -> dict[str, np.ndarray]:
    x = np.random.default_rng(i).standard_normal((2, 1, 4)).astype(np.float32)
    return {"x": x, "at": np.array(at), "turns": np.array(turns)}


class Copying:
    """What a session is compared with: calls of the entry that give all back."""

    def __init__(self, executable: Executable) -> None:
        self.executable = executable
        self.state = {"keys": np.zeros((2, 0, 4), np.float32), "values": np.zeros((1, 0, 2, 4), np.float32)}

    def run(self, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = self.executable.run({**self.state, **given})
        self.state = {to: found.pop(name) for name, to in CARRY.items()}
        return found


def check(found, expected, session: Session, copying: Copying) -> None:
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[n], expected[n]) for n in expected)
    state = session.state
    assert all(np.array_equal(state[n], copying.state[n]) for n in copying.state)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("kind", ["file", "batched"])
def test_bits_are_those_of_calls_that_copy(kind, name, request) -> None:
    executable = inlay.load_executable(request.getfixturevalue(kind), settings=SETTINGS[name])
    session, copying = executable.session(), Copying(executable)
    assert is_in_place(session)
    for i in range(12):
        given = inputs(i, at=i)
        check(session.run(given), copying.run(given), session, copying)
    assert executable.live_objects() == 0


def test_a_run_copies_what_it_adds(file) -> None:
    executable = inlay.load_executable(file, threads=1)
    session = executable.session()
    copied: list[int] = []
    for i in range(200):
        session.run(inputs(i))
        copied.append(executable.usage().copied_bytes)
    added = 2 * 4 * 4 * 2  # keys and values
    grown = [c for c in copied if c > 2 * added]
    assert sorted(copied)[100] <= 2 * added
    assert len(grown) <= 16  # twice for each doubling
    assert sum(copied) <= 8 * 200 * added


def test_a_run_that_fails_loses_nothing(file) -> None:
    for settings in SETTINGS.values():
        executable = inlay.load_executable(file, settings=settings)
        session, copying = executable.session(), Copying(executable)
        for i in range(9):
            with pytest.raises(RunError):
                session.run(inputs(100 + i, at=i + 5))
            with pytest.raises(RunError):
                session.run({**inputs(i), "x": np.zeros((2, 2, 4), np.float32)})
            given = inputs(i, at=i)
            check(session.run(given), copying.run(given), session, copying)
        assert executable.live_objects() == 0


def test_a_run_that_is_given_up_loses_nothing(file) -> None:
    for settings in SETTINGS.values():
        executable = inlay.load_executable(file, settings=settings)
        session, copying = executable.session(), Copying(executable)
        for i in range(3):
            late = inputs(50 + i, turns=10**9)
            with pytest.raises(inlay.DeadlineError):
                session.run(late, timeout=0.01)
            running = session.submit(late)
            behind = session.submit(inputs(i))
            threading.Timer(0.01, running.cancel).start()
            with pytest.raises(RunError):
                running.result(30)
            check(behind.result(30), copying.run(inputs(i)), session, copying)


def test_outputs_that_come_too_late_are_not_kept() -> None:
    """The request has failed; so the state is not what its run made in the end."""
    go = threading.Event()

    def run(inputs, timeout):
        if inputs["late"]:
            go.wait(10)
        return {"next": inputs["s"] + 1, "y": inputs["s"]}

    session = Session(run, {"next": "s"}, {"s": 0})
    late = session.submit({"late": True}, timeout=0.02)
    with pytest.raises(inlay.DeadlineError):
        late.result(10)
    go.set()
    assert session.submit({"late": False}).result(10) == {"y": 0}
    assert session.state == {"s": 1}


def test_a_session_may_be_asked_from_a_callback_of_its_request() -> None:
    session = Session(lambda inputs, timeout: {"next": inputs["s"] + 1}, {"next": "s"}, {"s": 0})
    seen: list[int] = []
    done = threading.Event()

    def look(_):
        seen.append(session.state["s"])
        done.set()

    session.submit().add_done_callback(look)
    assert done.wait(10)
    assert seen[0] >= 1


def test_what_was_shown_stays_as_it_was(file) -> None:
    session = inlay.load_executable(file, threads=1).session()
    shown = []
    for i in range(20):
        session.run(inputs(i))
        state = session.state
        shown.append((state["keys"], state["keys"].copy()))
    assert all(np.array_equal(a, b) for a, b in shown)
    with pytest.raises(ValueError, match="read-only"):
        shown[0][0][:] = 0


def test_sessions_from_one_state_go_apart(file) -> None:
    executable = inlay.load_executable(file, threads=1)
    first = executable.session()
    for i in range(5):
        first.run(inputs(i))
    second = executable.session(state=first.state)
    copying = Copying(executable)
    copying.state = {n: a.copy() for n, a in first.state.items()}
    for i in range(5, 9):
        first.run(inputs(1000 + i))
        check(second.run(inputs(i)), copying.run(inputs(i)), second, copying)


def test_what_does_not_fit_is_said_in_the_words_of_the_entry(file) -> None:
    executable = inlay.load_executable(file, threads=1)
    keys = np.zeros((2, 3, 5), np.float32)
    session = executable.session(state={"keys": keys})
    with pytest.raises(RunError, match=r"'keys'.*\[2, n, 4\]"):
        session.run(inputs(0))
    with pytest.raises(RunError, match="turns"):
        executable.session().run({"x": inputs(0)["x"], "at": np.array(0)})


def test_inputs_are_brought_to_their_types(file) -> None:
    executable = inlay.load_executable(file, threads=1)
    session, copying = executable.session(), Copying(executable)
    for i in range(3):
        given = inputs(i)
        turned = {**given, "x": np.asfortranarray(given["x"])[::1], "at": 0, "turns": 3}
        turned["x"] = np.repeat(given["x"], 2, 2)[:, :, ::2]
        check(session.run(turned), copying.run(given), session, copying)


def test_the_reference_interpreter_copies(file) -> None:
    executable = inlay.load_executable(file, engine="python")
    session = executable.session()
    assert not is_in_place(session)
    found = [session.run(inputs(i))["row"].copy() for i in range(3)]
    other = inlay.load_executable(file, threads=1).session()
    assert all(np.array_equal(a, other.run(inputs(i))["row"]) for i, a in enumerate(found))


PAIR = """
fn main<n>(past: Tensor[2, n, {dtype}], x: Tensor[2, k, {dtype}]) {{ {body} }}
entry main("past", "x") -> ({outputs});
"""


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("let all = concat{axis=1}(past, x); (all, all)", '"a", "b"'),
        ("let all = concat{axis=1}(past, x); (all, neg(past))", '"a", "b"'),
        ("concat{axis=1}(f32[2, 1](1.0, 2.0), past)", '"a"'),
        ("concat{axis=0}(past, x)", '"a"'),
        ("concat{axis=0}(past, past)", '"a"'),
    ],
)
def test_what_is_not_linear_copies(body: str, outputs: str) -> None:
    text = PAIR.format(dtype="f32", body=body, outputs=outputs).replace("[2, k, f32]", "[2, n, f32]")
    executable = inlay.compile(io.StringIO(text), threads=1)
    assert [e.name for e in executable.entries] == ["main"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", ["bf16", "f16", "i8", "bool", "i64"])
def test_all_types_grow(dtype: str) -> None:
    text = PAIR.format(dtype=dtype, body="concat{axis=1}(past, x)", outputs='"all"')
    executable = inlay.compile(io.StringIO(text.replace("main<n>", "main<n, k>")), threads=1)
    session = executable.session()
    assert is_in_place(session)
    kind = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "bool": np.bool_}.get(dtype) or np.dtype(
        {"i8": "int8", "i64": "int64"}.get(dtype, "int8")
    )
    rows = [np.array([[i % 2] * k, [i] * k]).astype(kind) for i, k in enumerate([1, 2, 0, 3, 1])]
    for row in rows:
        assert session.run({"x": row}) == {}
    state = session.state["past"]
    assert state.dtype == rows[0].dtype
    assert np.array_equal(state, np.concatenate(rows, 1))


def test_text_says_what_grows() -> None:
    text = DECODER.rstrip()[:-1] + ' grows("keys", "all", 1);'
    module = inlay.load(io.StringIO(text))
    assert inlay.load(io.StringIO(print_module(module))).entries == module.entries
    with pytest.raises(CompileError, match="an input 'keys' and more"):
        inlay.load(io.StringIO(text.replace('"all", 1)', '"all", 0)')))


def test_fixed_sizes_do_not_grow() -> None:
    text = PAIR.format(dtype="f32", body="concat{axis=1}(past, x)", outputs='"all"').replace("<n>", "<n, k>")
    executable = inlay.compile(io.StringIO(text), threads=1, dims=("n=3", "k=1"))
    assert len(executable.entries) == 1
