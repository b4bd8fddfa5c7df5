"""Relations of dims that cannot be proved become checks in the data flow.

A type rule asks for relations: `a == b`, `a >= low`. What its context cannot prove is recorded there.
`settle` wraps operands in operators that check it (`core_ops`): the operand that has a dim gets the
other one in its type, so the rule, asked again, finds them equal. A relation between integers that no
operand has as a dim is checked on the way to the operand that carries it, and its type says nothing
of it; that it holds is read off the operands (`_established`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from inlay.arith.expr import Int, Sym, substitute
from inlay.base.diagnostics import InternalError
from inlay.base.span import Span
from inlay.ir.context import Check, Context, EqualCheck, Known, LeastCheck, simpler
from inlay.ir.core_ops import CHECK_AT_LEAST, CHECK_EQUAL, CHECK_SHAPE, CheckAttrs, LeastAttrs
from inlay.ir.expr import Call, Const, Expr, OpRef, Var
from inlay.ir.types import UNKNOWN, IntType, ShapeType, TensorType, Type

_MOST_ROUNDS = 8
"""How often a type rule may ask for new relations after the ones it asked for were checked."""

Rule = Callable[[Context, tuple[Type, ...]], Type]
"""Returns the type of a result from those of operands; asks its context for relations."""


def settle(args: tuple[Expr, ...], rule: Rule, ctx: Context, known: Known) -> tuple[tuple[Expr, ...], Type]:
    """Wrap operands in checks until the rule is content; return them, and what the rule returns.

    Raises:
        CompileError: `type.dim-unproved` where there is no operand to check.
    """
    checked = list(args)
    for _ in range(_MOST_ROUNDS):
        ctx.checks.clear()
        result = rule(ctx, tuple([a.type for a in checked]))
        established = _established(checked, known)
        missing = [c for c in dict.fromkeys(ctx.checks) if _key(c) not in established]
        if not missing:
            return tuple(checked), result
        if not checked:
            raise ctx.fail(f"found nothing to check {missing[0].why} on", id="type.dim-unproved")
        _insert_checks(checked, missing, ctx.span)
    raise InternalError(f"the type rule of {ctx.what} asks for ever new relations", where=str(ctx.span))


def _established(args: Iterable[Expr], known: Known) -> set[tuple[object, ...]]:
    """Return the relations that checks on the way to the operands have made sure of."""
    found: set[tuple[object, ...]] = set()
    for arg in args:
        node: object = arg
        while True:
            if isinstance(node, Var):
                node = known.definition(node)
            match node:
                case Call(
                    callee=OpRef(op=op), args=(inner, Const(held=Int() as a), Const(held=Int() as b))
                ) if op is CHECK_EQUAL:
                    found.update(((a - b,), (b - a,)))
                    node = inner
                case Call(
                    callee=OpRef(op=op, attrs=LeastAttrs(low=low)), args=(inner, Const(held=Int() as a))
                ) if op is CHECK_AT_LEAST:
                    found.add((a, low))
                    node = inner
                case Call(callee=OpRef(op=op), args=(inner, shape)) if op is CHECK_SHAPE:
                    if isinstance(inner.type, TensorType) and isinstance(shape.type, ShapeType):
                        pairs = zip(inner.type.shape, shape.type.values, strict=False)
                        for d, s in pairs:
                            if s is not None:
                                found.update(((d - s,), (s - d,)))
                    node = inner
                case _:
                    break
    return found


def _key(check: Check) -> tuple[object, ...]:
    if isinstance(check, EqualCheck):
        return (check.left - check.right,)
    return (check.value, check.low)


def _insert_checks(args: list[Expr], checks: Iterable[Check], span: Span) -> None:
    """Wrap operands so that each relation is checked; dims first, as they then hold by type."""
    replaced: dict[Sym, Int] = {}
    for check in checks:
        if isinstance(check, LeastCheck):
            where = _carrier(args)
            args[where] = _check_at_least(args[where], check, span)
            continue
        left, right = substitute(check.left, replaced), substitute(check.right, replaced)
        if left == right:
            continue
        keep = simpler(left, right)
        drop = right if keep is left else left
        if _check_dims(args, keep, drop, check.why, span):
            atom = drop.atom
            if isinstance(atom, Sym):
                replaced[atom] = keep
        elif _is_repeated(args, keep) or not _check_dims(args, drop, keep, check.why, span):
            where = _carrier(args)
            ints = (_int(check.left, span), _int(check.right, span))
            args[where] = Call(
                OpRef(CHECK_EQUAL, CheckAttrs(check.why), UNKNOWN, span),
                (args[where], *ints),
                args[where].type,
                span,
                args[where].place,
            )


def _carrier(args: Sequence[Expr]) -> int:
    """Return the operand that carries a check: the first tensor, as that is what gets used."""
    return next((i for i, a in enumerate(args) if isinstance(a.type, TensorType)), 0)


def _check_at_least(arg: Expr, check: LeastCheck, span: Span) -> Expr:
    callee = OpRef(CHECK_AT_LEAST, LeastAttrs(check.low, check.why), UNKNOWN, span)
    return Call(callee, (arg, _int(check.value, span)), arg.type, span, arg.place)


def _is_repeated(args: Iterable[Expr], dim: Int) -> bool:
    """Whether a number stands in several places of an operand: one of them may be another's dim."""
    types = (a.type for a in args)
    shapes = (t.shape for t in types if isinstance(t, TensorType))
    return dim.value is not None and any(shape.count(dim) > 1 for shape in shapes)


def _check_dims(args: list[Expr], keep: Int, drop: Int, why: str, span: Span) -> bool:
    """Check operands that have a dim `drop` to have `keep` there."""
    done = False
    for i, arg in enumerate(args):
        t = arg.type
        if isinstance(t, TensorType) and drop in t.shape:
            dims = tuple(keep if d == drop else d for d in t.shape)
            shape = Const(dims, ShapeType(dims), span)
            callee = OpRef(CHECK_SHAPE, CheckAttrs(why), UNKNOWN, span)
            args[i] = Call(callee, (arg, shape), TensorType(dims, t.dtype), span, arg.place)
            done = True
    return done


def _int(value: Int, span: Span) -> Const:
    return Const(value, IntType(value), span)
