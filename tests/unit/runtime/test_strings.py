"""The table of strings: what handles stand for, and that it does not grow over calls."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import numpy as np
import pytest

from inlay.base.diagnostics import CompileError, RunError
from inlay.bytecode.program import AccessCode, HostBody, Kernel
from inlay.runtime import strings
from inlay.runtime.strings import Strings
from inlay.runtime.value import Handles


def texts(*items: str) -> np.ndarray:
    made = np.empty(len(items), object)
    made[:] = items
    return made


def test_equal_strings_have_one_handle_and_come_back() -> None:
    table = Strings(["", "own", "own"])
    with table.call():
        x = texts("new", "own", "", "new")
        handles = table.encode(x)
        assert handles.tolist() == [3, 1, 0, 3]
        assert table.decode(handles).tolist() == x.tolist()
        assert table.decode(handles.reshape(2, 2)[:, 1]).tolist() == ["own", "new"]


def test_the_table_is_cut_back_when_no_call_runs() -> None:
    table = Strings(["", "own"])
    with table.call():
        table.encode(texts("a"))
        with table.call():
            table.encode(texts("b"))
        assert len(table) == 4
    assert len(table) == 2
    with table.call():
        assert table.encode(texts("b")).tolist() == [2]


def test_a_handle_that_stands_for_nothing_is_refused() -> None:
    table = Strings(["", "own"])
    for wrong in (-1, 2):
        with pytest.raises(RunError, match="where there are 2 strings") as failure:
            table.decode(np.array([0, wrong]))
        assert failure.value.ids == ("run.bad-handle",)


def test_the_first_string_of_a_file_is_the_empty_one() -> None:
    with pytest.raises(CompileError) as failure:
        Strings(["x"])
    assert failure.value.ids == ("container.corrupt",)


def test_a_callback_that_answers_later_writes_its_strings_then() -> None:
    table = Strings([""])
    kernel = Kernel("k", (AccessCode.READ, AccessCode.WRITE), 0, HostBody("k"))
    answer: Future[None] = Future()
    seen: list[list[np.ndarray]] = []

    def later(tensors: list[np.ndarray], _integers: list[int]) -> Future[None]:
        seen.append(tensors)
        return answer

    out = np.zeros(1, np.int64).view(Handles)
    with table.call():
        got = table.shown(kernel, later)([table.encode(texts("x")), out], [])
        assert got is not None
        assert not got.done()
        seen[0][1][...] = seen[0][0] + "y"
        answer.set_result(None)
        assert got.result(timeout=0) is None
        assert table.decode(out).tolist() == ["xy"]


def test_calls_that_overlap_without_end_keep_it_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strings, "MOST_NEW", 100)
    monkeypatch.setattr(strings, "PATIENCE", 60.0)
    table = Strings([""])
    largest = [0]
    barrier = threading.Barrier(3)
    wrong: list[str] = []

    def serve(thread: int) -> None:
        barrier.wait()
        for i in range(300):
            with table.call():
                own = f"{thread} {i}"
                handles = table.encode(texts(own, "shared"))
                with table.call():  # code from outside that calls again does not wait for itself
                    largest[0] = max(largest[0], len(table))
                if table.decode(handles).tolist() != [own, "shared"]:
                    wrong.append(own)

    threads = [threading.Thread(target=serve, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert largest[0] <= 1 + 100 + 2 * 3
    assert len(table) == 1
