"""Work in forked children: the same results in order, whatever happens to a child."""

from __future__ import annotations

import gc
import os
import threading
import time

import pytest

from inlay.codegen.workers import MOST_JOBS, can_fork, processors, run_all


def job(i: int):
    return lambda: f"{i}:".encode() * (i % 7 + 1)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_results_are_in_order(workers: int, count: int) -> None:
    jobs = [job(i) for i in range(count)]
    assert run_all(jobs, workers) == [j() for j in jobs]


def test_large_results() -> None:
    jobs = [lambda i=i: bytes([i]) * 300_000 for i in range(8)]
    assert run_all(jobs, 2) == [j() for j in jobs]


def test_children_that_die_are_replaced() -> None:
    parent = os.getpid()

    def dies_in_a_child() -> bytes:
        if os.getpid() != parent:
            os._exit(9)
        return b"done"

    assert run_all([dies_in_a_child] * 10, 2) == [b"done"] * 10


def test_garbage_of_the_parent_is_not_collected_in_a_child(tmp_path) -> None:
    parent, mark = os.getpid(), tmp_path / "collected"

    class Cycle:
        def __del__(self) -> None:
            if os.getpid() != parent:
                mark.touch()

    gc.disable()
    try:
        cycle = Cycle()
        cycle.itself = cycle
        del cycle

        def collects() -> bytes:
            time.sleep(0.01)
            if os.getpid() != parent:
                gc.collect()
            return b"done"

        assert run_all([collects] * 10, 2) == [b"done"] * 10
    finally:
        gc.enable()
    assert not mark.exists()


def test_errors_surface_in_the_caller() -> None:
    def fails() -> bytes:
        raise ValueError("no such job")

    with pytest.raises(ValueError, match="no such job"):
        run_all([job(1), fails, job(2)], 2)


def test_no_child_from_a_process_with_threads() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert not can_fork()
        assert run_all([job(1), job(2)], 2) == [job(1)(), job(2)()]
    finally:
        stop.set()
        thread.join()


def test_limits() -> None:
    assert processors() >= 1
    assert len(run_all([lambda: b""] * (MOST_JOBS + 1), 2)) == MOST_JOBS + 1
