"""Place buffers one by one, each on the highest of those placed before that conflict.

Gaps stay empty, so plans are larger than those of first fit; the time does not depend on how many
conflict, so it is what is left where all of very many buffers live at once.
"""

from __future__ import annotations

from inlay.packing import _search
from inlay.packing.algorithms.interface import Found, Task, unpacked
from inlay.packing.algorithms.orders import order_by


def run(task: Task) -> Found:
    """Place the long-lived first. Cost: n log n."""
    return unpacked(_search.stack(task.instance.native, order_by(task.instance, "length")))
