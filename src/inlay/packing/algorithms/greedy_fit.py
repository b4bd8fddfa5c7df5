"""Place buffers one by one in an order, each into a gap between those placed before.

First fit takes the lowest gap that is large enough, best fit the smallest. Large or long-lived buffers
go first, because small ones fit into what is left between them.
"""

from __future__ import annotations

from functools import partial

from inlay.packing import _search
from inlay.packing.algorithms.interface import Algorithm, Found, Task, unpacked
from inlay.packing.algorithms.orders import ORDERS, order_by


def run(task: Task, *, order: str, best: bool) -> Found:
    """Place in an order of `ORDERS`, by best fit or first fit.

    Cost: linear memory; the sum over buffers of k log k for k placed ones that conflict.
    """
    steps = max(task.steps, 1)
    return unpacked(
        _search.fit(task.instance.native, order_by(task.instance, order), best, steps, task.watch)
    )


ALGORITHMS: dict[str, Algorithm] = {
    f"{rule}_fit.{order}": partial(run, order=order, best=rule == "best")
    for order in ORDERS
    for rule in ("first", "best")
}
"""All of them by name."""
