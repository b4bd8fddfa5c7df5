"""In what formats products are computed, and constants stored: as data.

Which operations of a quantized model are computed in integers, and why others stay float, was decided and
kept by the pass `fold-quantization`; which products of floats are in bf16 by `round-operands`; what is
stored in 16 bits, and what takes a faster form whose sums round differently, by `pack-weights`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from inlay.analysis.blocks import definitions
from inlay.analysis.winograd import ACCURACY
from inlay.ir.expr import Expr, Var
from inlay.ir.module import Module
from inlay.pipeline.running import Run
from inlay.placement.explain.reasons import explanation_of
from inlay.transforms._blocks import is_call
from inlay.transforms._integers.record import InFloats, InIntegers, Numerics
from inlay.transforms._packings import PackOptions
from inlay.transforms._stored_weights import StoredWeights
from inlay.transforms.fold_quantization import QuantizationOptions
from inlay.transforms.round_operands import REASONS, PrecisionOptions, RoundedProduct


@dataclass(frozen=True, slots=True)
class NumericsExplanation:
    """What is computed in integers, and what stays float.

    Attributes:
        exact: whether floats were asked for.
        functions: of the program.
        saturating: which devices that run something take instructions that saturate sums of pairs of
            products; None where that was not asked for.
        precision: that products of floats may have.
        products: of floats, where that is not f32.
        stored: constants of f32 that 16 bits hold.
        accuracy: max abs error over max abs result that a product of floats may have.
        forms: faster forms that operations have, with how many have each.
        in_bytes: where in the model products are in integers because one operand has few bits, and the
            model says that the other one be rounded to 8, block by block.
        rounded: operands that are rounded so and multiplied in floats.
    """

    exact: bool
    functions: tuple[Numerics, ...]
    saturating: tuple[str, ...] | None
    precision: str = "f32"
    products: tuple[RoundedProduct, ...] = ()
    stored: tuple[StoredWeights, ...] = ()
    accuracy: float = ACCURACY
    forms: tuple[tuple[str, int], ...] = ()
    in_bytes: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()

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
            "precision": self.precision,
            "products": [
                {
                    **_json(p),
                    "dtype": "f32" if p.reason else self.precision,
                    "reason": p.reason or "",
                    "message": REASONS[p.reason] if p.reason else "",
                }
                for p in self.products
            ],
            "accuracy": self.accuracy,
            "forms": dict(self.forms),
            "in_bytes": list(self.in_bytes),
            "rounded": list(self.rounded),
            "stored": [
                {
                    "operator": s.operator,
                    "at": str(s.span) if s.span else "",
                    "dtype": str(s.dtype),
                    "bytes": s.bytes,
                    "kept": s.is_kept,
                }
                for s in self.stored
            ],
        }


def _json(o: InIntegers | InFloats | RoundedProduct) -> dict[str, Any]:
    return {"operator": o.operator, "value": o.value, "at": str(o.span) if o.span else ""}


def _used(run: Run) -> list[str]:
    """Return the devices that run something: others are not asked, as they may be far, or not there."""
    devices = [d.name for d in run.setting.board.devices]
    if run.planned is None:  # nobody plans places on a single device
        return devices
    used = {o.device for o in explanation_of(run.planned).operations}
    return [name for name in devices if name in used]


def numerics_of(run: Run) -> NumericsExplanation:
    """Return in what formats products are computed, and constants stored."""
    setting = run.setting
    exact = setting.context.options_for(QuantizationOptions).exact
    targets = {name: setting.targets(name) for name in _used(run)}
    asked = any(t.saturating for t in targets.values())
    found = tuple(name for name, t in targets.items() if t.saturates_products)
    precision = setting.context.options_for(PrecisionOptions).precision
    saturating = found if asked else None
    accuracy = setting.context.options_for(PackOptions).accuracy
    forms = Counter(form.name for form in run.forms if form.is_taken)
    return NumericsExplanation(
        exact,
        run.numerics,
        saturating,
        precision,
        run.products,
        run.stored,
        accuracy,
        tuple(sorted(forms.items())),
        *_rounded(run.module),
    )


def _rounded(module: Module) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the products of operands in bytes that are computed in integers, and operands of others."""
    products: list[Expr] = []
    floats: list[Expr] = []
    for f in module.functions.values():
        bound = {} if f.primitive is not None else definitions(f.body)
        for value in bound.values():
            if is_call(value, "matmul_quantized_blocks") or is_call(value, "matmul_quantized_blocks_packed"):
                products.append(value)
            elif is_call(value, "dequantize_blocks") and isinstance(q := value.args[0], Var):
                if q in bound and is_call(bound[q], "quantize_blocks"):
                    floats.append(value)
    # A function may be there for several sizes.
    in_bytes, rounded = (
        tuple(dict.fromkeys(str(c.span or c) for c in found)) for found in (products, floats)
    )
    return in_bytes, rounded
