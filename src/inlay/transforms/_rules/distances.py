"""What is known of constant factors of integers: how far products are shifted to the right."""

from __future__ import annotations

from dataclasses import replace

from inlay.ir.expr import Expr
from inlay.ops.requantization import FARTHEST, RequantizeAttrs
from inlay.transforms._rules.rule_match import Rule, RuleMatch, array


def _known_distance(matched: RuleMatch) -> Expr | None:
    """A requantization by multipliers and shifts, with the least distance of constant shifts."""
    shift = array(matched.args[2]) if len(matched.args) > 2 else None
    if shift is None or not shift.size:
        return None
    attrs = matched.attrs(RequantizeAttrs)
    least = min(max(attrs.bits - int(shift.max()), 0), FARTHEST)
    if least <= attrs.least:
        return None
    return matched.make(matched.name, matched.args, replace(attrs, least=least))


RULES: dict[str, tuple[Rule, ...]] = {"requantize": (_known_distance,)}
