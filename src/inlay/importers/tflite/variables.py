"""Variables of a model: tensors that keep their values from run to run.

A program has no memory of its own: each variable is a further input, and its new value, named `NAME:next`,
a further output. Sessions tie them. There are two kinds: tensors that the file marks (states of recurrent
layers), and variables that operators name by a handle. The first value of a marked tensor is the zero of its
type; those of the others are what graphs that run once (`CALL_ONCE`) assign to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inlay.arith.dtype import I8, from_numpy
from inlay.arith.expr import lit
from inlay.importers.tflite.schema import (
    MOST_ELEMENTS,
    GraphRecord,
    ModelRecord,
    OperatorRecord,
    TensorRecord,
    damaged,
)
from inlay.interp.tensor import evaluate_expr
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType

Key = tuple[str, str, str]
"""What a variable is called inside of a model."""
Variables = dict[Key, Expr]
"""What variables are at a point of the program."""

_RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "IF": ("IfOptions", ("ThenSubgraphIndex", "ElseSubgraphIndex")),
    "WHILE": ("WhileOptions", ("CondSubgraphIndex", "BodySubgraphIndex")),
    "CALL": ("CallOptions", ("Subgraph",)),
    "CALL_ONCE": ("CallOnceOptions", ("InitSubgraphIndex",)),
    "STABLEHLO_COMPOSITE": ("StableHLOCompositeOptions", ("DecompositionSubgraphIndex",)),
}


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: its key, its name outside, and what it is before the first run."""

    key: Key
    name: str
    first: np.ndarray

    @property
    def type(self) -> TensorType:
        """The type of its values."""
        return TensorType(tuple(lit(d) for d in self.first.shape), from_numpy(self.first.dtype))

    @property
    def next_name(self) -> str:
        """The name of the output that has its new value."""
        return f"{self.name}:next"


def key_of_tensor(graph: int, tensor: int) -> Key:
    """Return what a tensor is called that the file marks as a variable."""
    return ("tensor", str(graph), str(tensor))


def key_of_handle(record: OperatorRecord) -> Key:
    """Return what the variable is called that VAR_HANDLE names."""
    container, name = record.options("VarHandleOptions", "Container", "SharedName")
    return ("named", _text(container), _text(name))


def graphs_of(record: OperatorRecord) -> tuple[int, ...]:
    """Return the graphs that an operator runs, by index."""
    if record.is_custom or record.name not in _RUNS:
        return ()
    table, fields = _RUNS[record.name]
    return tuple(int(i) for i in record.options(table, *fields))


def reached(model: ModelRecord, start: int = 0) -> tuple[int, ...]:
    """Return the graphs that a graph runs, itself included, in the order in which they are met."""
    found, waiting = dict[int, None](), [start]
    while waiting:
        index = waiting.pop()
        if index in found or index not in range(len(model.graphs)):
            continue
        found[index] = None
        waiting += [i for o in model.graphs[index].operators for i in graphs_of(o)]
    return tuple(found)


def find_variables(
    model: ModelRecord, run: Callable[[int, Variables], Builder], taken: set[str]
) -> list[Variable]:
    """Return the variables of a model, with names that are not taken.

    Args:
        model: that has them.
        run: walks a graph without inputs, which leaves what it assigns in the variables; returns its scope.
        taken: names of inputs and outputs.
    """
    assigned = _assigned_once(model, run)
    found: dict[Key, Variable] = {}
    once = {i for o in model.graphs[0].operators if o.name == "CALL_ONCE" for i in graphs_of(o)}
    for index in reached(model):
        graph = model.graphs[index]
        for i, t in enumerate(graph.tensors):
            if t.is_variable and i not in graph.inputs:
                key = key_of_tensor(index, i)
                found[key] = Variable(key, t.name or f"variable{i}", _zero(t))
        for o in graph.operators:
            if o.name != "VAR_HANDLE" or o.is_custom or index in once:
                continue
            key = key_of_handle(o)
            first = assigned.get(key)
            if first is None and key not in found:
                first = next(_seen(graph, o), None)
            if first is not None:
                found.setdefault(key, Variable(key, key[2] or "variable", first))
    return [_named(v, taken) for v in found.values()]


def _assigned_once(model: ModelRecord, run: Callable[[int, Variables], Builder]) -> dict[Key, np.ndarray]:
    """Return what graphs that run once assign."""
    made: dict[Key, np.ndarray] = {}
    for o in model.graphs[0].operators:
        if o.name != "CALL_ONCE" or o.is_custom:
            continue
        variables: Variables = {}
        (index,) = graphs_of(o)
        if index not in range(len(model.graphs)):
            raise damaged(f"it runs graph {index} of {len(model.graphs)}")
        scope = run(index, variables)
        found: Any = evaluate_expr(scope.finish(list(variables.values()))) if variables else ()
        made.update((key, np.asarray(value)) for key, value in zip(variables, found, strict=True))
    return made


def _seen(graph: GraphRecord, handle: OperatorRecord) -> Iterator[np.ndarray]:
    """Return zeros of the types in which a graph reads or assigns what a handle names."""
    for o in graph.operators:
        if o.name == "READ_VARIABLE" and o.inputs[:1] == handle.outputs[:1] and o.outputs:
            yield _zero(graph.tensors[o.outputs[0]])
        elif o.name == "ASSIGN_VARIABLE" and o.inputs[:1] == handle.outputs[:1] and len(o.inputs) > 1:
            yield _zero(graph.tensors[o.inputs[1]])


def _zero(t: TensorRecord) -> np.ndarray:
    """Return what a variable is that nothing was assigned to: integers of 8 bits with a sign stand for 0."""
    if -1 in t.shape:
        raise damaged(f"the variable '{t.name}' has the shape {list(t.shape)}")
    if math.prod(t.shape) > MOST_ELEMENTS:
        raise damaged(f"the variable '{t.name}' has {math.prod(t.shape)} elements")
    value = int(t.quantization.zeros[0]) if t.dtype is I8 and t.quantization is not None else 0
    return np.full(t.shape, value, t.dtype.numpy)


def _named(v: Variable, taken: set[str]) -> Variable:
    name, count = v.name, 1
    while name in taken or f"{name}:next" in taken:
        count += 1
        name = f"{v.name}_{count}"
    taken |= {name, f"{name}:next"}
    return replace(v, name=name)


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")
