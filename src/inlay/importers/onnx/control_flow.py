"""If, Loop and Scan: branches and loops stay branches and loops.

Loops become canonical loops of the IR (`ir.builder` finds the types of carried values). A `Loop`
whose condition is constantly true runs a number of times that is known when it starts, so its
stacked outputs are written into tensors of their final shape; otherwise they grow, and their
length is existential.

ONNX carries the condition as a value: the first is an input, the next is an output of the body. A
condition that the body computes is carried as a boolean tensor and asked before each step.

Sequences and optionals are results of branches and carried values as `List` and `Option`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from inlay.arith import dtype as dt
from inlay.arith.expr import Int, Sym, fresh, lit, to_int
from inlay.base.diagnostics import CompileError
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.structure import (
    as_type,
    closed,
    filled,
    form_of,
    has_unknown,
    is_structured,
    joined,
)
from inlay.importers.onnx.values import OnnxValue, known_scalar
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.dims import same_type
from inlay.ir.existentials import open_exists
from inlay.ir.expr import Const, Expr, Var
from inlay.ir.loop_trace import Step
from inlay.ir.types import UNKNOWN, AdtType, IntType, TensorType, Type


def _if(node: Node) -> tuple[OnnxValue, ...]:
    then, otherwise = node.graph("then_branch"), node.graph("else_branch")
    condition = _condition(node, 0)

    if isinstance(condition, Const):
        return node.subgraphs.run(then if condition.value else otherwise, (), node.b, node.span)
    marker = fresh("outside")
    arms = [node.within(node.b.scope()) for _ in range(2)]
    values = [
        node.subgraphs.run(graph, (), arm.b, node.span)
        for graph, arm in zip((then, otherwise), arms, strict=True)
    ]
    types = _result_types(node, then, otherwise, values, marker)
    exprs = [
        [as_type(arm, v, t) for v, t in zip(results, types, strict=True)]
        for arm, results in zip(arms, values, strict=True)
    ]
    try:
        result = node.b.join(
            condition,
            *((arm.b, e[0] if len(e) == 1 else e) for arm, e in zip(arms, exprs, strict=True)),
            name=node.result_name,
        )
    except CompileError as failure:
        if any(d.id != "type.branches-differ" for d in failure.diagnostics):
            raise
        return _supposed(node, then, otherwise)
    if len(node.proto.output) == 1:
        return (OnnxValue(result),)
    return tuple(OnnxValue(e) for e in node.b.unpack(result, [o or "unused" for o in node.proto.output]))


def _result_types(
    node: Node,
    then: onnx.GraphProto,
    otherwise: onnx.GraphProto,
    values: Sequence[Sequence[OnnxValue]],
    marker: Sym,
) -> list[Type]:
    """Return the types that the arms share, as far as they are structures; tensors are as they are."""
    if len(values[0]) != len(values[1]):
        raise node.invalid("has branches with different numbers of outputs")
    types: list[Type] = []
    for a, b, x, y in zip(*values, then.output, otherwise.output, strict=True):
        t = UNKNOWN
        if is_structured(a) or is_structured(b):
            t = closed(joined(node, form_of(node, a), form_of(node, b)), marker)
            t = filled(t, x.type if x.HasField("type") else y.type)
        types.append(t)
    return types


def _supposed(node: Node, then: onnx.GraphProto, otherwise: onnx.GraphProto) -> tuple[OnnxValue, ...]:
    """Import one branch of two whose results differ in rank, and check that it is the right one.

    Ranks are static here. Exporters write such branches for `squeeze` of an axis that may be 1:
    what follows usually makes sense for one of them. The lower rank, which stands for the special
    case, is supposed; the program stops where the condition says otherwise.
    """
    ranks = [sum(_declared_rank(o) for o in g.output) for g in (then, otherwise)]
    taken = ranks[0] <= ranks[1]
    results = node.subgraphs.run(then if taken else otherwise, (), node.b, node.span)
    flag = node.cast(node.reshape(node.tensor(0), ()), dt.I64)
    found = node.emit("to_control", flag)
    first, *rest = (node.as_tensor(r) for r in results)
    checked = node.emit(
        "check_equal",
        first,
        found,
        make.int_const(int(taken)),
        why=f"the branch of '{node.result_name}' that was imported (the other has another rank)",
    )
    return tuple(OnnxValue(e) for e in (checked, *rest))


def _declared_rank(output: onnx.ValueInfoProto) -> int:
    return len(output.type.tensor_type.shape.dim)


def _condition(node: Node, i: int) -> Expr:
    """Return a boolean input as a control value."""
    array = node.array(i)
    if array is not None and array.size == 1:
        return make.bool_const(value=bool(array.reshape(())))
    return node.emit("to_control", node.reshape(node.tensor(i), ()))


def _loop(node: Node) -> tuple[OnnxValue, ...]:
    graph = node.graph("body")
    n_carried = len(node.inputs) - 2
    if len(graph.input) != n_carried + 2 or len(graph.output) < n_carried + 1:
        raise node.invalid("has a body whose inputs or outputs do not fit its own")
    count = _trip_count(node)
    types = _carried_types(node, graph, n_carried)
    initial = [as_type(node, node.value(i + 2), t) for i, t in enumerate(types)]
    asks = not _always_goes_on(node, graph)
    if asks:
        # The condition joins the carried values, as the last of them.
        first = node.reshape(node.tensor(1), ()) if node.has(1) else make.const(_true())
        initial.append(first)
    elif count is None:
        raise node.unsupported("never ends: it has neither a trip count nor a condition")

    def body(scope: Builder, index: Int, carried: tuple[Var, ...]) -> Step:
        inside = node.within(scope)
        go = OnnxValue(carried[-1]) if asks else OnnxValue(make.const(_true()))
        inputs = (known_scalar(index), go, *(OnnxValue(c) for c in carried[:n_carried]))
        results = node.subgraphs.run(graph, inputs, scope, node.span)
        values = [
            as_type(inside, r, _held(node, c.type, r))
            for r, c in zip(results[1 : n_carried + 1], carried, strict=False)
        ]
        if asks:
            values.append(inside.reshape(inside.as_tensor(results[0]), ()))
        rows = [inside.as_tensor(r) for r in results[n_carried + 1 :]]
        declared = graph.output[n_carried + 1 :]
        return Step(values, [_as_declared(r, o) for r, o in zip(rows, declared, strict=True)])

    def condition(scope: Builder, _: Int, carried: tuple[Var, ...]) -> Expr:
        return node.within(scope).emit("to_control", carried[-1])

    done = node.b.loop(
        initial,
        body,
        condition=condition if asks else None,
        count=count,
        names=[*(i.name for i in graph.input[2:]), "go"],
        name=node.loop_name,
    )
    return tuple(OnnxValue(e) for e in (*done.carried[:n_carried], *done.stacked))


def _held(node: Node, carried: Type, result: OnnxValue) -> Type:
    """Return the type in which a step hands a value on."""
    return joined(node, carried, form_of(node, result)) if isinstance(carried, AdtType) else UNKNOWN


def _carried_types(node: Node, graph: onnx.GraphProto, n: int) -> list[Type]:
    """Return the types in which structures are carried; `UNKNOWN` for tensors.

    What an empty sequence or an optional without content will hold, only the body says: it is
    imported on trial, until nothing new comes of it.
    """
    given = [node.value(i + 2) for i in range(n)]
    declared = [i.type for i in graph.input[2:]]
    structured = [
        is_structured(v) or t.WhichOneof("value") in ("sequence_type", "optional_type")
        for v, t in zip(given, declared, strict=True)
    ]
    if not any(structured):
        return [UNKNOWN] * n
    marker = fresh("outside")
    types = [form_of(node, v) for v in given]
    for _ in range(n + 1):
        inside = node.within(node.b.scope())
        inputs = [
            v if not known else _stand_in(inside, v, t)
            for v, t, known in zip(given, types, structured, strict=True)
        ]
        first = (known_scalar(to_int(fresh("i"))), OnnxValue(make.const(_true())))
        results = node.subgraphs.run(graph, (*first, *inputs), inside.b, node.span)
        found = [
            closed(joined(node, t, form_of(node, r)), marker) if known else t
            for t, r, known in zip(types, results[1 : n + 1], structured, strict=True)
        ]
        if all(same_type(a, b) for a, b in zip(found, types, strict=True)):
            break
        types = found
    return [
        filled(t, d) if known else UNKNOWN for t, d, known in zip(types, declared, structured, strict=True)
    ]


def _stand_in(inside: Node, value: OnnxValue, t: Type) -> OnnxValue:
    """Return a value of a type for a trial; what has no type yet stays in known form."""
    if has_unknown(t):
        return value
    opened, dims = open_exists(t)
    inside.b.declare(dims)
    return OnnxValue(Var("carried", opened, inside.span), hole=value.hole)


def _as_declared(row: Expr, info: onnx.ValueInfoProto) -> Expr:
    """Hold a row to the sizes that the body declares for it: rows must have one size."""
    if not isinstance(row.type, TensorType) or not info.type.tensor_type.HasField("shape"):
        return row
    declared = info.type.tensor_type.shape.dim
    if len(declared) != len(row.type.shape):
        return row
    dims = [
        lit(d.dim_value) if own.value is None and d.HasField("dim_value") else own
        for own, d in zip(row.type.shape, declared, strict=True)
    ]
    if tuple(dims) == row.type.shape:
        return row
    return make.assume_shape(row, tuple(dims), "the size that the body of the loop declares")


def _true() -> np.ndarray:
    return np.ones((), np.bool_)


def _trip_count(node: Node) -> Int | None:
    if not node.has(0):
        return None
    trip = node.control_int(0)
    assert isinstance(trip.type, IntType), "a trip count is an int"
    return trip.type.value


def _always_goes_on(node: Node, graph: onnx.GraphProto) -> bool:
    """Whether only the trip count ends the loop: the condition is true and stays so."""
    if node.has(1):
        first = node.array(1)
        if first is None or not first.all():
            return False
    producers = {o: n for n in graph.node for o in n.output}
    name = graph.output[0].name
    for _ in graph.node:  # a damaged body may have a cycle
        made = producers.get(name)
        if made is None or made.op_type != "Identity" or not made.input:
            break
        name = made.input[0]
    if name == graph.input[1].name:
        return True
    made = producers.get(name)
    if made is not None and made.op_type == "Constant":
        return any(a.name == "value" and numpy_helper.to_array(a.t).all() for a in made.attribute)
    return any(t.name == name and numpy_helper.to_array(t).all() for t in graph.initializer)


def _scan(node: Node) -> tuple[OnnxValue, ...]:
    if node.opset < 9:
        return _batched_scan(node)
    graph = node.graph("body")
    n_scanned = node.int("num_scan_inputs", 0)
    n_carried = len(node.inputs) - n_scanned
    n_rows = len(graph.output) - n_carried
    if n_scanned < 1 or n_carried < 0 or n_rows < 0:
        raise node.invalid("has a body whose inputs or outputs do not fit its own")
    in_axes = node.int_list("scan_input_axes") or (0,) * n_scanned
    out_axes = node.int_list("scan_output_axes") or (0,) * n_rows
    if len(in_axes) != n_scanned or len(out_axes) != n_rows:
        raise node.invalid(f"has {len(in_axes)} and {len(out_axes)} axes of what it scans and stacks")
    sequences = [
        node.move_axis(node.tensor(i), node.axis(axis, node.rank(i)), 0)
        for i, axis in enumerate(in_axes, n_carried)
    ]

    def body(scope: Builder, carried: tuple[Var, ...], rows: tuple[Expr, ...]) -> Step:
        inputs = tuple(OnnxValue(e) for e in (*carried, *rows))
        results = node.subgraphs.run(graph, inputs, scope, node.span)
        tensors = [node.within(scope).as_tensor(r) for r in results]
        return Step(tensors[:n_carried], tensors[n_carried:])

    done = node.b.scan(
        [node.tensor(i) for i in range(n_carried)],
        sequences,
        body,
        reverse_sequences=node.flags("scan_input_directions", n_scanned),
        reverse_rows=node.flags("scan_output_directions", n_rows),
        names=[i.name for i in graph.input[:n_carried]],
        name=node.loop_name,
    )
    stacked = [
        node.move_axis(s, 0, node.axis(axis, len(node.type_of(s).shape)))
        for s, axis in zip(done.stacked, out_axes, strict=True)
    ]
    return tuple(OnnxValue(e) for e in (*done.carried, *stacked))


def _batched_scan(node: Node) -> tuple[OnnxValue, ...]:
    """Import a Scan of opset 8, where every operand has a batch axis in front: a scan of scans."""
    if node.has(0):
        raise node.unsupported("of opset 8 has sequences of different lengths")
    graph = node.graph("body")
    n_scanned = node.int("num_scan_inputs", 0)
    n_carried = len(node.inputs) - 1 - n_scanned
    if n_scanned < 1 or n_carried < 0 or len(graph.output) < n_carried:
        raise node.invalid("has a body whose inputs or outputs do not fit its own")

    def step(scope: Builder, carried: tuple[Var, ...], rows: tuple[Expr, ...]) -> Step:
        inputs = tuple(OnnxValue(e) for e in (*carried, *rows))
        results = node.subgraphs.run(graph, inputs, scope, node.span)
        tensors = [node.within(scope).as_tensor(r) for r in results]
        return Step(tensors[:n_carried], tensors[n_carried:])

    def one(scope: Builder, _: tuple[Var, ...], rows: tuple[Expr, ...]) -> Step:
        done = scope.scan(
            rows[:n_carried],
            rows[n_carried:],
            step,
            reverse_sequences=node.flags("directions", n_scanned),
            names=[i.name for i in graph.input[:n_carried]],
            name=node.loop_name,
        )
        return Step([], [*done.carried, *done.stacked])

    operands = [node.tensor(i + 1) for i in range(n_carried + n_scanned)]
    done = node.b.scan([], operands, one, name=f"{node.loop_name}_batch")
    return tuple(OnnxValue(e) for e in done.stacked)


RULES: Mapping[str, Rule] = {"If": _if, "Loop": _loop, "Scan": _scan}
