"""Replaces operators by better ones, one call and what is behind it at a time.

The rules are in `_rules/`, by what they are about: `identities` (what does nothing, or has a cheaper
form), `layout` (reshapes and transposes), `weights` (constants that move into weights, batch
normalization), `idioms` (normalizations and activations that exporters spell out), `distances` (what is
known of shifts), `repeats` (factors of products that are copied for several heads), `products` (factors
that are scaled, or transposed for a few rows), `updates` (of parts). Each file has a table from the operator
to its rules; they are tried in that order, and what a rule answers is simplified again.

A rule answers with the same value up to rounding: a sum in another order, constants combined in
advance. What a replaced form needed stays for `eliminate_dead` to find. No rule looks through an
operand on another place, and none makes work: an operand that others read is not computed again in
another form, unless that is cheaper than what it replaces.
"""

from __future__ import annotations

from inlay.analysis.blocks import count_uses
from inlay.ir.expr import Call, Expr, Function, OpRef, Var
from inlay.ir.module import Module
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_function
from inlay.transforms._rules import distances, identities, idioms, layout, products, repeats, updates, weights
from inlay.transforms._rules.rule_match import RewriteContext, Rule, RuleMatch

_MOST_STEPS = 20
"""Rules may only make progress; this bounds what a pair that undoes each other could do."""


def _merge_tables() -> dict[str, tuple[Rule, ...]]:
    merged: dict[str, tuple[Rule, ...]] = {}
    for part in (identities, layout, idioms, weights, distances, repeats, updates, products):
        for name, rules in part.RULES.items():
            merged[name] = merged.get(name, ()) + rules
    return merged


_RULES = _merge_tables()


def run(module: Module, context: PassContext) -> Module:
    """Apply the rules. Cost: linear, as each rule looks at a bounded number of operands.

    What is a kernel already stays as it is: who makes it has seen it (`outline_regions`).
    """
    functions: dict[str, Function] = {}
    for name, function in module.functions.items():
        if function.primitive is not None:
            functions[name] = function
            continue
        uses = count_uses(function.body)
        shared = RewriteContext(context.ops, context.evaluate, uses, _simplify)

        def step(block: BlockWriter, value: Expr, shared: RewriteContext = shared) -> Expr | None:
            answer = _simplify(shared, block, value)
            if isinstance(answer, Var) and block.variable is not None:
                # Whatever reads the result now reads the answer.
                uses = shared.uses
                uses[answer] = uses.get(answer, 2) + uses.get(block.variable, 2)
            return None if answer is value else answer

        functions[name] = rewrite_function(function, step)
    if all(functions[name] is f for name, f in module.functions.items()):
        return module
    return module.with_functions(functions)


def _simplify(context: RewriteContext, block: BlockWriter, value: Expr) -> Expr:
    """Return what is left of a value when no rule applies any more."""
    for _ in range(_MOST_STEPS):
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return value
        rules = _RULES.get(value.callee.op.name)
        if rules is None:
            return value
        matched = RuleMatch(context, block, value)
        answer = next((found for rule in rules if (found := rule(matched)) is not None), None)
        if answer is None or not _may_replace(value, answer):
            return value
        value = answer
    return value


def _may_replace(old: Expr, new: Expr) -> bool:
    """Whether an answer has the type of what it stands for; another type would lose a check."""
    return new.type is old.type or new.type == old.type


PASS = Pass(
    __name__,
    run,
    "replace operators by better ones: identities, layouts, weights, idioms",
    requires=(Property.ANF,),
)
