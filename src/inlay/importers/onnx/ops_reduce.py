"""Reductions, arg-reductions and running sums.

Axes that are not constant are decided where the program runs: each axis is reduced in a branch of
its own, which is why a reduction is split there into what composes axis by axis (`_Parts`) and what
is done before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inlay.arith import dtype as dt
from inlay.arith.expr import maximum, minimum, product
from inlay.importers.onnx import axes as runtime_axes
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, arange, integers, term
from inlay.importers.onnx.values import OnnxValue, known, known_scalar
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr


def _same(x: Term) -> Term:
    return x


@dataclass(frozen=True, slots=True)
class _Parts:
    """A reduction as one that composes axis by axis, with work before and after it."""

    core: str
    before: Callable[[Term], Term] = _same
    after: Callable[[Term], Term] = _same


_PARTS: Mapping[str, _Parts] = {
    "reduce_sum": _Parts("sum"),
    "reduce_mean": _Parts("sum"),
    "reduce_max": _Parts("max"),
    "reduce_min": _Parts("min"),
    "reduce_prod": _Parts("prod"),
    "reduce_l1": _Parts("sum", before=lambda x: x.op("abs")),
    "reduce_l2": _Parts("sum", before=lambda x: x * x, after=lambda y: y.op("sqrt")),
    "reduce_log_sum": _Parts("sum", after=lambda y: y.op("log")),
    "reduce_logsumexp": _Parts("logsumexp"),
    "reduce_sum_square": _Parts("sum", before=lambda x: x * x),
}


def _reduce(name: str, axes_input_since: int) -> Rule:
    def rule(node: Node) -> OnnxValue:
        rank = node.rank(0)
        keep = node.flag("keepdims", default=True)
        given: tuple[int, ...] | None = None
        if node.opset < axes_input_since:
            given = node.int_list("axes")
        elif node.has(1):
            if node.array(1) is None and node.type(1).shape != (0,):
                return _at_run_time(node, _PARTS[name], name, keep=keep)
            given = () if node.array(1) is None else node.numbers(1, "axes")
        if not given and node.flag("noop_with_empty_axes"):
            # Without axes to reduce, what is done to each element is still done.
            if name == "reduce_mean":
                return node.value(0)
            axes: tuple[int, ...] = ()
        else:
            axes = tuple(sorted(node.axis(a, rank) for a in given)) if given else ()
            axes = axes or tuple(range(rank))
        known_result = _on_ints(node, name, keep=keep) if axes else None
        if known_result is not None:
            return known_result
        x, narrow = _reducible(node, name)
        return OnnxValue(node.cast(node.emit(name, x.expr, axes=axes, keepdims=keep), narrow))

    return rule


def _reducible(node: Node, name: str) -> tuple[Term, dt.DType]:
    """Return the input in a format that the operator takes, and the format of the result."""
    x = term(node, 0)
    narrow = x.dtype
    if name in ("reduce_max", "reduce_min") and narrow is dt.BOOL:
        return x.cast(dt.U8), narrow
    if name in ("reduce_l2", "reduce_log_sum", "reduce_logsumexp") and narrow.is_integer:
        return x.cast(dt.F64), narrow
    return x, narrow


_ON_INTS = ("reduce_prod", "reduce_sum", "reduce_max", "reduce_min")


def _on_ints(node: Node, name: str, *, keep: bool) -> OnnxValue | None:
    v = node.value(0)
    if v.ints is None or v.is_scalar or name not in _ON_INTS or not v.ints:
        return None
    total = v.ints[0]
    for i in v.ints[1:]:
        match name:
            case "reduce_prod":
                total = total * i
            case "reduce_sum":
                total = total + i
            case "reduce_max":
                total = maximum(total, i)
            case _:
                total = minimum(total, i)
    return known((total,), dtype=v.dtype) if keep else known_scalar(total, dtype=v.dtype)


def _at_run_time(node: Node, parts: _Parts, name: str, *, keep: bool) -> OnnxValue:
    x, narrow = _reducible(node, name)
    if narrow in (dt.F16, dt.BF16):
        x = x.cast(dt.F32)
    axes = runtime_axes.given(node, 1, x.rank)
    count = axes.shape[0].value
    if count is None and not keep:
        raise node.unsupported(
            "drops a number of axes that depends on data, so the rank of its result does too",
            hint="ranks must be static: keep the reduced axes as dims of 1",
        )
    gone = runtime_axes.chosen(axes, x.rank)
    if count is None and not node.flag("noop_with_empty_axes"):
        none = integers(node, axes.shape).equals(0)
        gone = gone | none
    y = parts.before(x)
    for d in range(x.rank):
        y = _reduced_if(gone, d, y, parts.core)
    y = parts.after(y)
    if name == "reduce_mean":
        y = _divided(y, x)
    if not keep and count is not None:
        y = y.reshape(*runtime_axes.left(y, gone, count))
    return y.cast(narrow).value


def _reduced_if(gone: Term, axis: int, y: Term, core: str) -> Term:
    node = y.node
    condition = node.emit("to_control", gone.at(0, axis).expr)

    def reduced(s: Builder) -> Expr:
        return Term(node.within(s), y.expr).over(core, axis, keep=True).expr

    return Term(node, node.b.if_(condition, reduced, lambda _: y.expr))


def _divided(total: Term, x: Term) -> Term:
    """Divide sums by how many elements went into each."""
    count = integers(x.node, x.shape).over("prod")
    kept = integers(x.node, total.shape).over("prod")
    return total / (count / kept.op("maximum", 1)).cast(total.dtype)


def _arg(name: str) -> Rule:
    def rule(node: Node) -> OnnxValue:
        axis = node.axis(node.int("axis", 0), node.rank(0))
        return node.result(
            name,
            node.tensor(0),
            axis=axis,
            keepdims=node.flag("keepdims", default=True),
            last=node.flag("select_last_index"),
        )

    return rule


def _cumulative(name: str) -> Rule:
    def rule(node: Node) -> OnnxValue:
        x, rank = node.tensor(0), node.rank(0)
        how = {"exclusive": node.flag("exclusive"), "reverse": node.flag("reverse")}

        def along(inside: Node, axis: int) -> Expr:
            return inside.emit(name, x, axis=axis, **how)

        if node.array(1) is not None:
            return OnnxValue(along(node, node.axis(node.numbers(1, "axis")[0], rank)))
        axis = runtime_axes.given(node, 1, rank)
        return OnnxValue(runtime_axes.choose(node, axis, rank, along))

    return rule


def _hardmax(node: Node) -> OnnxValue:
    x = term(node, 0)
    axis = node.axis(node.int("axis", -1 if node.opset >= 13 else 1), x.rank)
    dims = x.shape
    if node.opset < 13:  # the axes from `axis` on are one axis
        x = x.reshape(product(dims[:axis]), product(dims[axis:]))
        axis = 1
    first = x.op("argmax", axis=axis, keepdims=True)
    places = arange(node, x.shape[axis]).along(axis, x.rank)
    return first.equals(places).cast(x.dtype).reshape(*dims).value


RULES: Mapping[str, Rule] = {
    "ReduceSum": _reduce("reduce_sum", 13),
    "ReduceMean": _reduce("reduce_mean", 18),
    "ReduceMax": _reduce("reduce_max", 18),
    "ReduceMin": _reduce("reduce_min", 18),
    "ReduceProd": _reduce("reduce_prod", 18),
    "ReduceL1": _reduce("reduce_l1", 18),
    "ReduceL2": _reduce("reduce_l2", 18),
    "ReduceLogSum": _reduce("reduce_log_sum", 18),
    "ReduceLogSumExp": _reduce("reduce_logsumexp", 18),
    "ReduceSumSquare": _reduce("reduce_sum_square", 18),
    "ArgMax": _arg("argmax"),
    "ArgMin": _arg("argmin"),
    "CumSum": _cumulative("cumsum"),
    "CumProd": _cumulative("cumprod"),
    "Hardmax": _hardmax,
}
