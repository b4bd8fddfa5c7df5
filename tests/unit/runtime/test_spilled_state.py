"""State of sessions in files: bits come back, memory goes, and what is not such a file is refused."""

from __future__ import annotations

import hashlib
import io
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import InlayError, RunError, UnsupportedError
from inlay.runtime.session import Executable
from inlay.runtime.sessions import Session

TEXT = """
fn main<n>(past: Tensor[2, n, 512, f32], h: Tensor[512, f32], x: Tensor[2, 1, 512, f32]) {
  let all = concat{axis=1}(past, x);
  let next = tanh(add(h, reduce_sum{axes=[0, 1], keepdims=false}(x)));
  (reduce_sum{axes=[1], keepdims=false}(all), all, next)
}
entry main("past", "h", "x") -> ("y", "present", "next") state("h", "next");
"""


@pytest.fixture(scope="module")
def executable() -> Executable:
    return inlay.compile(io.StringIO(TEXT), threads=1)


def run(session: Session, steps: range) -> list[np.ndarray]:
    return [session.run({"x": np.full((2, 1, 512), i / 7, np.float32)})["y"] for i in steps]


def same(a: Session, b: Session) -> bool:
    return all(np.array_equal(x, b.state[name]) for name, x in a.state.items())


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def test_bits_come_back(executable: Executable, tmp_path: Path) -> None:
    alone, spilled, kept = (executable.session() for _ in range(3))
    file = tmp_path / "idle.state"
    for k in range(4):
        steps = range(5 * k, 5 * k + 5)
        expected = run(alone, steps)
        assert all(map(np.array_equal, run(spilled, steps), expected))
        assert all(map(np.array_equal, run(kept, steps), expected))
        spilled.spill(file)
        kept.spill()
        assert file.exists()
        spilled.spill(tmp_path / "elsewhere")  # it is in its file already
        assert [p.name for p in tmp_path.iterdir()] == ["idle.state"]
    assert same(spilled, alone)
    assert same(kept, alone)
    assert not file.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_goes(executable: Executable, tmp_path: Path) -> None:
    session = executable.session(state={"past": np.zeros((2, 8192, 512), np.float32)})
    run(session, range(3))
    before = resident()
    session.spill(tmp_path / "idle.state")
    after = resident()
    assert before - after > 0.9 * 2 * 8192 * 512 * 4
    run(session, range(3, 4))
    assert resident() - after > 0.9 * 2 * 8192 * 512 * 4
    assert session.state["past"].shape == (2, 8196, 512)


def test_a_session_goes_on_from_a_file(executable: Executable, tmp_path: Path) -> None:
    file = tmp_path / "kept.state"
    first, second = executable.session(), executable.session()
    run(first, range(6))
    first.save(file)
    second.restore(file)
    assert same(first, second)
    for k in range(6, 9):
        assert all(map(np.array_equal, run(first, range(k, k + 1)), run(second, range(k, k + 1))))
    second.spill(tmp_path / "idle.state")
    second.restore(file)  # what was spilled is not wanted any more
    assert second.state["past"].shape == (2, 6, 512)
    assert [p.name for p in tmp_path.iterdir()] == ["kept.state"]


def test_a_file_that_changed_is_refused_and_may_be_put_back(executable: Executable, tmp_path: Path) -> None:
    file = tmp_path / "idle.state"
    session, other = executable.session(), executable.session()
    expected = run(executable.session(), range(7))[6]
    run(session, range(6))
    run(other, range(3))
    session.spill(file)
    held = file.read_bytes()
    other.save(file)
    with pytest.raises(RunError, match="not what was written"):
        session.run({"x": np.zeros((2, 1, 512), np.float32)})
    file.unlink()
    with pytest.raises(OSError, match="idle"):
        session.submit({"x": np.zeros((2, 1, 512), np.float32)}).result(10)
    file.write_bytes(held)
    assert np.array_equal(run(session, range(6, 7))[0], expected)


def test_foreign_files_are_refused(executable: Executable, tmp_path: Path) -> None:
    file = tmp_path / "a.state"
    inlay.compile(io.StringIO(TEXT.replace("512", "256")), threads=1).session().save(file)
    session = executable.session()
    run(session, range(2))
    with pytest.raises(RunError, match=r"\[2, n, 256\].*needed.*\[2, n, 512\]") as caught:
        session.restore(file)
    assert caught.value.ids == ("run.bad-state",)
    for content in (b"", b"\x89INLYST\n", b"\x7fELF" * 100, Path(__file__).read_bytes()):
        file.write_bytes(content)
        with pytest.raises(RunError, match="no file of state"):
            session.restore(file)
    assert session.state["past"].shape == (2, 2, 512)


def test_damaged_files_are_refused(executable: Executable, tmp_path: Path) -> None:
    """Whichever byte differs, and wherever the file ends."""
    file = tmp_path / "a.state"
    session, other = executable.session(), executable.session()
    run(session, range(1))
    session.save(file)
    whole = file.read_bytes()
    random = np.random.default_rng(0)
    head = struct.unpack_from("<8sII", whole)[2] + 48
    places = [*range(0, head, 7), *map(int, random.integers(head, len(whole), 40))]
    for at in places:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(random.integers(8))
        file.write_bytes(damaged)
        try:
            other.restore(file)
        except RunError as problem:
            assert problem.ids == ("run.bad-state",)  # noqa: PT017
        else:
            assert same(session, other)  # padding between tensors
    for end in [*range(0, head, 11), *map(int, random.integers(head, len(whole), 20))]:
        file.write_bytes(whole[:end])
        with pytest.raises(RunError) as caught:
            other.restore(file)
        assert caught.value.ids == ("run.bad-state",)


HEADS = [
    b"", b"null", b"[]", b"{}", b'{"signature": 1, "tensors": []}', b'{"signature": {}, "tensors": []}',
    b'{"signature": {"s": ""}, "tensors": [["s", "f32", [4], 0, 0, 16, 3]]}',
    b'{"signature": {"s": ""}, "tensors": [["s", "f32", [-4], 0, 0, -16, ""]]}',
    b'{"signature": {"s": ""}, "tensors": [["s", "f32", [4], 1, 0, 16, ""]]}',
    b'{"signature": {"s": ""}, "tensors": [["s", "f99", [4], 0, 0, 16, ""]]}',
    b'{"signature": {"s": ""}, "tensors": [["s", "string", [2], 0, 0, 16, ""]]}',
    b'{"signature": {"s": ""}, "tensors": [["s", "f32", [1e400], 0, 0, 16, ""]]}',
    b'{"signature": {"s": ""}, "tensors": [["s", "f32", [4611686018427387904, 4], 0, 0, 0, ""]]}',
    b'{"signature": {"s": ""}, "tensors": [["s", "f32", [1073741824], 0, 0, 4294967296, ""]]}',
    b'{"signature": {"s": ""}, "tensors": [["s", "f32", [4], 0, 100000, 16, ""]]}',
    b"[" * 100000, b"\xff\xfe",
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(HEADS)))
def test_heads_of_any_kind_are_refused(index: int, tmp_path: Path) -> None:
    """Digests keep nobody out who writes them anew."""
    head, file = HEADS[index], tmp_path / "a.state"
    digest = hashlib.sha256(head).digest()
    file.write_bytes(struct.pack("<8sII32s", b"\x89INLYST\n", 1, len(head), digest) + head + bytes(256))
    session = Session(lambda inputs, timeout: {}, {"next": "s"}, {"s": np.zeros(4, np.float32)})
    with pytest.raises(RunError) as caught:
        session.restore(file)
    assert caught.value.ids == ("run.bad-state",)
    assert np.array_equal(session.state["s"], np.zeros(4))


def test_what_is_no_tensor_stays_in_memory(tmp_path: Path) -> None:
    for value in ([np.zeros(2)], np.array(["a"], object), (np.zeros(1), np.zeros(2))):
        session = Session(lambda inputs, timeout: {}, {"next": "s"}, {"s": value})
        with pytest.raises(UnsupportedError) as caught:
            session.spill(tmp_path / "a.state")
        assert caught.value.ids == ("entry.state-structure",)
        assert session.state["s"] is value
        assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_changes_nothing(executable: Executable, tmp_path: Path) -> None:
    session = executable.session()
    run(session, range(2))
    with pytest.raises(OSError, match="nowhere"):
        session.spill(tmp_path / "nowhere" / "a.state")
    assert session.state["past"].shape == (2, 2, 512)
    with pytest.raises((OSError, InlayError)):
        session.restore(tmp_path)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "bool", "i8", "u64"])
def test_all_types_are_kept(dtype: str, tmp_path: Path) -> None:
    text = f"""
fn main<n, k>(past: Tensor[2, n, {dtype}], s: Tensor[{dtype}], x: Tensor[2, k, {dtype}], z: Tensor[{dtype}]) {{
  (concat{{axis=1}}(past, x), z)
}}
entry main("past", "s", "x", "z") -> ("all", "next") state("s", "next");
"""
    session = inlay.compile(io.StringIO(text), threads=1).session()
    kind = session.state["s"].dtype
    for k in range(4):
        session.run({"x": np.full((2, k), k % 2).astype(kind), "z": np.array(1).astype(kind)})
        before = {n: a.copy() for n, a in session.state.items()}
        session.spill(tmp_path / "a.state")
        after = session.state
        assert all(after[n].dtype == a.dtype and np.array_equal(after[n], a) for n, a in before.items())
