"""From a TFLite graph to a module: operators in order, each by the rule of its name.

What a rule refuses is collected, its outputs are marked as missing, and the walk goes on, so that one run
reports everything that stands in the way. What an operator gives is held against what the file says of its
outputs: a damaged file is refused, and no value is wrong in silence.

**Variables** keep their values from run to run. A program has no memory of its own: each variable is a
further input, and its new value, named `NAME:next`, a further output. `Executable.session` ties them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from inlay.arith.expr import Int, fresh, to_int
from inlay.base.diagnostics import Collector, error, unsupported
from inlay.base.metadata import Metadata
from inlay.base.registry import suggestion
from inlay.base.span import Span
from inlay.importers.limits import DEFAULT_LIMITS, ImportLimits, read_bytes, too_large
from inlay.importers.tflite import ops_elementwise, ops_linear, ops_recurrent, ops_reduce, ops_shape
from inlay.importers.tflite.node import Node, Rule
from inlay.importers.tflite.schema import GraphRecord, OperatorRecord, TensorRecord, damaged, read_model
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr
from inlay.ir.module import EntryNames, Module
from inlay.ir.prelude import with_prelude
from inlay.ir.types import TensorType
from inlay.ops.table import OperatorTable

RULES: Mapping[str, Rule] = {
    **ops_elementwise.RULES,
    **ops_linear.RULES,
    **ops_recurrent.RULES,
    **ops_reduce.RULES,
    **ops_shape.RULES,
}


def load_model(path: Path, operators: OperatorTable, limits: ImportLimits = DEFAULT_LIMITS) -> Module:
    """Return the program in a TFLite file.

    Raises:
        CompileError: `import.*`; everything that stands in the way, at once.
    """
    return import_bytes(read_bytes(path, limits), operators, limits)


def import_bytes(content: bytes, operators: OperatorTable, limits: ImportLimits = DEFAULT_LIMITS) -> Module:
    """Return the program of a model that was read: its first graph as `main`; see `load_model`."""
    model = read_model(content)
    found = sum(len(g.operators) for g in model.graphs)
    if found > limits.max_nodes:
        raise too_large("the model has", limits.max_nodes, "operators", "max_nodes")
    return _Importer(model.graphs[0], operators).module(model.description)


@dataclass(slots=True)
class _Importer:
    """One run over one graph.

    Attributes:
        values: what tensors are, by index; None for what is missing because it was refused.
        updates: what variables are for the next run, by index.
    """

    graph: GraphRecord
    operators: OperatorTable
    builder: Builder = field(default_factory=Builder)
    findings: Collector = field(default_factory=Collector)
    values: dict[int, Expr | None] = field(default_factory=dict[int, "Expr | None"])
    updates: dict[int, Expr] = field(default_factory=dict[int, Expr])

    def module(self, description: str) -> Module:
        graph, names = self.graph, _names(self.graph)
        variables = [i for i, t in enumerate(graph.tensors) if t.is_variable and i not in graph.inputs]
        if not graph.outputs:
            raise damaged("it has no outputs")
        for index in (*graph.inputs, *variables):
            t = graph.tensors[index]
            if t.data is not None or index in self.values:
                raise damaged(f"the input '{t.name}' is a constant, or named twice")
            self.values[index] = self.builder.param(
                names[index], self._type(t), Span.named(f"input '{t.name}'")
            )
        for number, record in enumerate(graph.operators):
            self._operator(number, record)
        self.findings.raise_if_fatal()
        results = [self._value(i) for i in graph.outputs]
        results += [self.updates.get(i, self._value(i)) for i in variables]
        if any(r is None for r in results):
            raise damaged("an output is made by nothing")
        found = [r for r in results if r is not None]
        main = self.builder.function(found[0] if len(found) == 1 else found)
        given = tuple(names[i] for i in (*graph.inputs, *variables))
        entry = EntryNames(
            given, (*(names[i] for i in graph.outputs), *(f"{names[i]}:next" for i in variables))
        )
        return with_prelude(
            Module(
                functions=MappingProxyType({"main": main}),
                entries=MappingProxyType({"main": entry}),
                metadata=Metadata(graph=graph.name, description=description),
            )
        )

    @staticmethod
    def _type(t: TensorRecord) -> TensorType:
        return TensorType(tuple(_dim(t, axis, d) for axis, d in enumerate(t.shape)), t.dtype)

    def _value(self, index: int) -> Expr | None:
        """Return what a tensor is: made before, or a constant."""
        if index not in self.values:
            t = self.graph.tensors[index]
            self.values[index] = None if t.data is None else make.const(t.data)
        return self.values[index]

    def _operator(self, number: int, record: OperatorRecord) -> None:
        span = Span.named(f"operator {number} ({record.name})")
        values = [self._value(i) if i >= 0 else None for i in record.inputs]
        missing = any(v is None and i >= 0 for v, i in zip(values, record.inputs, strict=True))
        made: Sequence[Expr] | None = None
        if not missing:
            with self.findings.catching():
                made = self._made(
                    Node(record, self.graph, tuple(values), self.builder, self.operators, span, self.updates)
                )
        for k, index in enumerate(record.outputs):
            if self.values.get(index) is not None:
                raise damaged(f"the tensor '{self.graph.tensors[index].name}' is made twice")
            self.values[index] = None if made is None else made[k]

    def _made(self, node: Node) -> Sequence[Expr]:
        rule = RULES.get(node.record.name)
        if rule is None:
            raise unsupported(
                "import.unknown-operator",
                f"the operator {node.record.name} is not known",
                span=node.span,
                hint=suggestion(node.record.name, RULES, "convert the model without it"),
            )
        self.builder.span = node.span
        found = rule(node)
        outputs = found if isinstance(found, tuple) else (found,)
        if len(outputs) != len(node.record.outputs):
            raise damaged(f"{node.record.name} has {len(node.record.outputs)} outputs, not {len(outputs)}")
        for k, e in enumerate(outputs):
            self._check(node, e, node.output(k))
        return outputs

    @staticmethod
    def _check(node: Node, e: Expr, t: TensorRecord) -> None:
        """Hold what was emitted against what the file says."""
        assert isinstance(e.type, TensorType), "operators give tensors"
        shape = [d.value for d in e.type.shape]
        fits = len(shape) == len(t.shape) and all(
            a is None or b < 0 or a == b for a, b in zip(shape, t.shape, strict=True)
        )
        if not fits or e.type.dtype is not t.dtype:
            raise error(
                "import.invalid-node",
                f"{node.record.name} gives {e.type.dtype}{shape}, and the file says {t.dtype}{list(t.shape)}",
                span=node.span,
                hint="the model is damaged; convert it again",
            )


def _dim(t: TensorRecord, axis: int, size: int) -> Int:
    return to_int(fresh(f"{t.name or 'input'}_{axis}") if size < 0 else size)


def _names(graph: GraphRecord) -> dict[int, str]:
    """Return names of the inputs, outputs and variables, each once."""
    taken: set[str] = set()
    names: dict[int, str] = {}
    variables = [i for i, t in enumerate(graph.tensors) if t.is_variable]
    for index in (*graph.inputs, *graph.outputs, *variables):
        name = base = graph.tensors[index].name or f"tensor{index}"
        count = 1
        while index not in names and name in taken:
            count += 1
            name = f"{base}_{count}"
        names.setdefault(index, name)
        taken.add(name)
    return names
