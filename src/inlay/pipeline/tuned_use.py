"""Which measured choices a program was made with, and why others were not used.

Compiling and explaining ask here, of the same run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inlay.analysis.choices import Choice
from inlay.pipeline.build_kernels import LoopBody
from inlay.pipeline.running import Run

NOT_HERE = "of kernels that are not in this program"
BATCHED = "of kernels of which several calls may run as one"


@dataclass(frozen=True, slots=True)
class TunedUse:
    """What was used of a file of measurements.

    Attributes:
        kernels: choices for schedules, by the names of kernels.
        products: choices for forms of products, by their keys.
        others: how many choices of the file were not used, by the reason.
    """

    kernels: Mapping[str, Choice]
    products: Mapping[str, Choice]
    others: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "kernels": {name: dict(c.values) for name, c in self.kernels.items()},
            "products": {key: dict(c.values) for key, c in self.products.items()},
            "others": dict(self.others),
        }


def tuned_use(run: Run) -> TunedUse | None:
    """Return what a run that has built kernels used of a file; None where it was given none."""
    tuned = run.setting.tuned
    if not tuned.file:
        return None
    bodies = {n: k.body for n, k in run.module.kernels.items() if isinstance(k.body, LoopBody)}
    kernels = {name: body.choice for name, body in bodies.items() if body.choice}
    used = {bodies[name].key for name in kernels}
    batched = {body.key for body in bodies.values()} & set(tuned.kernels) - used
    left = len(tuned.kernels) - len(used) - len(batched) + len(set(tuned.products) - set(run.answered))
    others = Counter(tuned.others) + Counter({NOT_HERE: left, BATCHED: len(batched)})
    return TunedUse(kernels, run.answered, dict(others))
