"""Branches, loops and calls of other graphs, and variables that operators name by a handle."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlay.importers.tflite.node import Incomplete, Node, Rule
from inlay.importers.tflite.schema import damaged
from inlay.importers.tflite.variables import Key, Variables, graphs_of, key_of_handle, reached
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Const, Expr, Var
from inlay.ir.loop_trace import Step


def _if(node: Node) -> tuple[Expr, ...]:
    graphs, inputs = graphs_of(node.record), node.record.inputs[1:]
    condition, before = node.tensor(0), dict(node.walk.variables)
    if isinstance(condition, Const) and isinstance(condition.value, np.ndarray):
        taken = graphs[0] if condition.value.reshape(()) else graphs[1]
        return tuple(node.walk.run_graph(taken, inputs, node.builder, node.walk.variables))
    arms: list[tuple[Builder, list[Expr], Variables]] = []
    for graph in graphs:
        scope, variables = node.builder.scope(), dict(before)
        arms.append((scope, node.walk.run_graph(graph, inputs, scope, variables), variables))
    changed = [k for k in before if any(v[k] is not before[k] for _, _, v in arms)]
    if len(arms[0][1]) != len(arms[1][1]):
        raise damaged("branches have different numbers of outputs")
    sides = [(scope, [*outputs, *(v[k] for k in changed)]) for scope, outputs, v in arms]
    if not sides[0][1]:
        return ()
    found = node.builder.join(node.control(condition), *((s, e[0] if len(e) == 1 else e) for s, e in sides))
    values = (found,) if len(sides[0][1]) == 1 else node.builder.unpack(found)
    node.walk.variables.update(zip(changed, values[len(arms[0][1]) :], strict=True))
    return values[: len(arms[0][1])]


def _while(node: Node) -> tuple[Expr, ...]:
    condition, body = graphs_of(node.record)
    inputs = node.record.inputs
    keys = _assigned(node, (condition, body))
    moved = [k for k, i in enumerate(inputs) if i not in node.walk.handles]
    first = [node.tensor(k) for k in moved] + [node.walk.variables[k] for k in keys]

    def given(carried: tuple[Var, ...]) -> tuple[list[int | Expr], Variables]:
        values: list[int | Expr] = list(inputs)
        for k, v in zip(moved, carried, strict=False):
            values[k] = v
        return values, {**node.walk.variables, **dict(zip(keys, carried[len(moved) :], strict=True))}

    def goes_on(scope: Builder, _: object, carried: tuple[Var, ...]) -> Expr:
        values, variables = given(carried)
        (found,) = node.walk.run_graph(condition, values, scope, variables)
        return node.within(scope).control(found)

    def step(scope: Builder, _: object, carried: tuple[Var, ...]) -> Step:
        values, variables = given(carried)
        results = node.walk.run_graph(body, values, scope, variables)
        if len(results) != len(inputs):
            raise damaged(f"the body of a loop has {len(results)} outputs for {len(inputs)} inputs")
        inside = node.within(scope)
        kept = [_as_said(inside, results[k], said[k]) for k in moved]
        return Step([*kept, *(variables[k] for k in keys)])

    if len(node.walk.record_of(condition).outputs) != 1:
        raise damaged("the condition of a loop has other than one output")
    body_record = node.walk.record_of(body)
    said = [body_record.tensors[i].shape for i in body_record.outputs]
    names = [t.name or "carried" for t in (node.input(k) for k in moved)]
    done = node.builder.loop(first, step, condition=goes_on, names=names, name="while")
    node.walk.variables.update(zip(keys, done.carried[len(moved) :], strict=True))
    results = dict(zip(moved, done.carried, strict=False))
    return tuple(results.get(k, node.tensor(k)) for k in range(len(inputs)))


def _as_said(node: Node, e: Expr, shape: tuple[int, ...]) -> Expr:
    """Return a tensor in the shape that the file says, where operators do not tell all of it."""
    found = [d.value for d in node.shape(e)]
    is_known = None not in found or -1 in shape or len(shape) != len(found)
    return e if is_known else node.reshape(e, *shape)


def _assigned(node: Node, graphs: tuple[int, ...]) -> list[Key]:
    """Return the variables that graphs may change: none, or all that there are."""
    for start in graphs:
        for index in reached(node.walk.model, start):
            record = node.walk.record_of(index)
            if any(o.name == "ASSIGN_VARIABLE" for o in record.operators) or any(
                t.is_variable for t in record.tensors
            ):
                return list(node.walk.variables)
    return []


def _call(node: Node) -> tuple[Expr, ...]:
    (graph,) = graphs_of(node.record)
    return tuple(node.walk.run_graph(graph, node.record.inputs, node.builder, node.walk.variables))


def _call_once(node: Node) -> tuple[Expr, ...]:
    """Emit nothing: what the graph assigns is what variables are before the first run."""
    if node.walk.index:
        raise node.unsupported("is in a graph that another one runs")
    return ()


def _handle(node: Node) -> Expr:
    t = node.output()
    node.walk.handles[node.record.outputs[0]] = key_of_handle(node.record)
    return make.const(np.zeros(t.shape, t.dtype.numpy))


def _key(node: Node) -> Key:
    node.input(0)
    key = node.walk.handles.get(node.record.inputs[0])
    if key is None:
        raise node.unsupported("has a variable that is chosen when it runs")
    return key


def _read(node: Node) -> Expr:
    value = node.walk.variables.get(_key(node))
    if value is None:
        raise Incomplete
    return value


def _assign(node: Node) -> tuple[Expr, ...]:
    node.walk.variables[_key(node)] = node.tensor(1)
    return ()


RULES: Mapping[str, Rule] = {
    "IF": _if,
    "WHILE": _while,
    "CALL": _call,
    "CALL_ONCE": _call_once,
    "STABLEHLO_COMPOSITE": _call,  # of what it is made of: the name is for who knows a kernel for it
    "VAR_HANDLE": _handle,
    "READ_VARIABLE": _read,
    "ASSIGN_VARIABLE": _assign,
}
