"""Which operations of a quantized model are computed in integers, and why others stay float: as data.

All of it was decided and kept by the pass `fold-quantization`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from inlay.pipeline.running import Run
from inlay.transforms._integers.record import InFloats, InIntegers, Numerics
from inlay.transforms.fold_quantization import QuantizationOptions


@dataclass(frozen=True, slots=True)
class NumericsExplanation:
    """What is computed in integers, and what stays float.

    Attributes:
        exact: whether floats were asked for.
        functions: of the program.
        saturating: which devices take instructions that saturate sums of pairs of products; None where
            that was not asked for.
    """

    exact: bool
    functions: tuple[Numerics, ...]
    saturating: tuple[str, ...] | None

    @property
    def integers(self) -> tuple[InIntegers, ...]:
        """Operations in integers, function after function."""
        return tuple(o for f in self.functions for o in f.integers)

    @property
    def floats(self) -> tuple[InFloats, ...]:
        """Operations between a dequantize and a quantize that stay float."""
        return tuple(o for f in self.functions for o in f.floats)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "exact": self.exact,
            "saturating": None if self.saturating is None else list(self.saturating),
            "integers": [
                {**_json(o), "became": list(o.became), "accumulator": [o.low, o.high]} for o in self.integers
            ],
            "floats": [{**_json(o), "reason": o.reason, "message": o.message} for o in self.floats],
        }


def _json(o: InIntegers | InFloats) -> dict[str, Any]:
    return {"operator": o.operator, "value": o.value, "at": str(o.span) if o.span else ""}


def numerics_of(run: Run) -> NumericsExplanation:
    """Return what is computed in integers, and what stays float."""
    setting = run.setting
    exact = setting.context.options_for(QuantizationOptions).exact
    targets = {d.name: setting.targets(d.name) for d in setting.board.devices}
    asked = any(t.saturating for t in targets.values())
    found = tuple(name for name, t in targets.items() if t.saturates_products)
    return NumericsExplanation(exact, run.numerics, found if asked else None)
