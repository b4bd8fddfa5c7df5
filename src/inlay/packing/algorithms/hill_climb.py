"""Improve an order of first fit by moving buffers at the peak forward.

A plan is as large as its highest end. The buffers that end there, and those that force them up,
are placed too late in the order; exchanging one of them with an earlier one, and placing all again,
gives a neighbor. It is kept if it is not larger, now and then even if it is, and the best plan seen
is the result. The choice is seeded: the same input gives the same plan.

Source: the idea is that of the hill-climb allocator in TVM's unified static memory planner and of
the Ethos-U compiler; written anew.
"""

from __future__ import annotations

from inlay.packing import _search
from inlay.packing.algorithms.interface import Found, Task, unpacked
from inlay.packing.algorithms.orders import order_by


def run(task: Task) -> Found:
    """Start at the order by size."""
    instance = task.instance
    return unpacked(
        _search.climb(instance.native, order_by(instance, "size"), task.goal, task.steps, task.watch)
    )
