"""From a TFLite model to a module: operators in order, each by the rule of its name.

What a rule refuses is collected, its outputs are marked as missing, and the walk goes on, so that one run
reports everything that stands in the way. What an operator gives is held against what the file says of its
outputs: a damaged file is refused, and no value is wrong in silence.

Graphs that others run (branches, bodies of loops) are walked where they are run, in a scope of their own.
Variables are said in `variables.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np

from inlay.arith.expr import Int, fresh, to_int
from inlay.base.diagnostics import Collector, error, unsupported
from inlay.base.metadata import Metadata
from inlay.base.registry import suggestion
from inlay.base.span import Span
from inlay.importers.limits import DEFAULT_LIMITS, ImportLimits, read_bytes, too_large
from inlay.importers.tflite import externs, sizes
from inlay.importers.tflite.node import Incomplete, Node, Rule
from inlay.importers.tflite.ops_spectral import OF_COMPLEX
from inlay.importers.tflite.rules import RULES
from inlay.importers.tflite.schema import (
    GraphRecord,
    ModelRecord,
    OperatorRecord,
    TensorRecord,
    damaged,
    read_model,
)
from inlay.importers.tflite.variables import Key, Variables, find_variables, key_of_tensor
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr, Function
from inlay.ir.module import EntryNames, Module
from inlay.ir.prelude import with_prelude
from inlay.ir.types import TensorType
from inlay.ops.table import OperatorTable

_FIRST = "begin"
"""The entry that gives first values of variables."""


def load_model(path: Path, operators: OperatorTable, limits: ImportLimits = DEFAULT_LIMITS) -> Module:
    """Return the program in a TFLite file.

    Raises:
        CompileError: `import.*`; everything that stands in the way, at once.
    """
    return import_bytes(read_bytes(path, limits), operators, limits)


def import_bytes(content: bytes, operators: OperatorTable, limits: ImportLimits = DEFAULT_LIMITS) -> Module:
    """Return the program of a model that was read: its first graph as `main`; see `load_model`."""
    findings = Collector()
    model = read_model(content, findings)
    found = sum(len(g.operators) for g in model.graphs)
    if found > limits.max_nodes:
        raise too_large("the model has", limits.max_nodes, "operators", "max_nodes")
    return _Importer(model, operators, limits, findings).module()


@dataclass(slots=True)
class _Importer:
    """One run over a model.

    Attributes:
        walked: how many operators were walked, those of a graph each time it is run.
        known: what is known of integers that shapes are made of.
    """

    model: ModelRecord
    operators: OperatorTable
    limits: ImportLimits
    findings: Collector
    walked: int = 0
    known: dict[Expr, np.ndarray] = field(default_factory=dict["Expr", np.ndarray])

    def module(self) -> Module:
        graph, builder = self.model.graphs[0], Builder()
        if not graph.outputs:
            raise damaged("it has no outputs")
        names, inputs = _names(graph), list[Expr]()
        for index in graph.inputs:
            t = graph.tensors[index]
            inputs.append(builder.param(names[index], _type(t), Span.named(f"input '{t.name}'")))
        kept = find_variables(self.model, self._run_alone, set(names.values()))
        variables: Variables = {}
        for v in kept:
            variables[v.key] = builder.param(v.name, v.type, Span.named(f"variable '{v.name}'"))
        walk = _Walk(self, 0, builder, variables, ())
        results = walk.run(inputs, [None] * len(inputs))
        self.findings.raise_if_fatal()
        found = [r for r in results if r is not None]
        if len(found) < len(results):
            raise damaged("an output is made by nothing")
        found += [variables[v.key] for v in kept]
        main = builder.function(found[0] if len(found) == 1 else found)
        begun = [v for v in kept if v.first.any()]
        entry = EntryNames(
            (*(names[i] for i in graph.inputs), *(v.name for v in kept)),
            (*(names[i] for i in graph.outputs), *(v.next_name for v in kept)),
            tuple((v.name, v.next_name) for v in kept),
            _FIRST if begun else "",
        )
        functions: dict[str, Function] = {"main": main}
        entries = {"main": entry}
        if begun:
            values = [make.const(v.first) for v in begun]
            functions[_FIRST] = Builder().function(values[0] if len(values) == 1 else values)
            entries[_FIRST] = EntryNames((), tuple(v.name for v in begun))
        return with_prelude(
            Module(
                functions=MappingProxyType(functions),
                entries=MappingProxyType(entries),
                metadata=Metadata(graph=graph.name, description=self.model.description),
            )
        )

    def _run_alone(self, index: int, variables: Variables) -> Builder:
        """Walk a graph without inputs in a scope of its own; return the scope."""
        builder = Builder()
        _Walk(self, index, builder, variables, ()).run([], [])
        return builder


@dataclass(slots=True)
class _Walk:
    """One walk over one graph.

    Attributes:
        index: of the graph.
        builder: where operations are emitted.
        variables: what variables are at this point.
        around: the graphs that run this one, by index.
        values: what tensors are, by index; None for what is missing because it was refused.
        handles: which variable a tensor stands for, by index.
    """

    importer: _Importer
    index: int
    builder: Builder
    variables: Variables
    around: tuple[int, ...]
    values: dict[int, Expr | None] = field(default_factory=dict[int, "Expr | None"])
    handles: dict[int, Key] = field(default_factory=dict[int, Key])

    @property
    def model(self) -> ModelRecord:
        """The model that the graph is in."""
        return self.importer.model

    @property
    def known(self) -> dict[Expr, np.ndarray]:
        """What is known of integers that shapes are made of."""
        return self.importer.known

    @property
    def graph(self) -> GraphRecord:
        """The graph that is walked."""
        return self.importer.model.graphs[self.index]

    def run(self, inputs: Sequence[Expr], handles: Sequence[Key | None]) -> list[Expr | None]:
        """Walk the graph; return its outputs, None for what is missing."""
        graph = self.graph
        if len(inputs) != len(graph.inputs):
            raise damaged(f"graph {self.index} has {len(graph.inputs)} inputs, and is given {len(inputs)}")
        for index, value, handle in zip(graph.inputs, inputs, handles, strict=True):
            t = graph.tensors[index]
            if t.data is not None or index in self.values:
                raise damaged(f"the input '{t.name}' is a constant, or named twice")
            assert isinstance(value.type, TensorType), "values of graphs are tensors"
            if value.type.dtype is not t.dtype:
                raise damaged(f"the input '{t.name}' of {t.dtype} is given {value.type.dtype}")
            self.values[index] = None if t.is_refused else value
            if handle is not None:
                self.handles[index] = handle
        for number, record in enumerate(graph.operators):
            self._operator(number, record)
        return [self._value(i) for i in graph.outputs]

    def run_graph(
        self, index: int, inputs: Sequence[int | Expr], builder: Builder, variables: Variables
    ) -> list[Expr]:
        """Walk another graph of the model in a scope; see `Subgraphs`."""
        graphs, here = self.importer.model.graphs, (*self.around, self.index)
        if index not in range(len(graphs)):
            raise damaged(f"it runs graph {index} of {len(graphs)}")
        if index in here:
            raise damaged(f"graph {index} runs itself, by way of {len(here) - here.index(index)} graphs")
        limits = self.importer.limits
        if len(here) > limits.max_depth:
            raise too_large("the model has", limits.max_depth, "graphs inside each other", "max_depth")
        given = [self._value(i) if isinstance(i, int) else i for i in inputs]
        handles = [self.handles.get(i) if isinstance(i, int) else None for i in inputs]
        if any(v is None for v in given):
            raise Incomplete
        walk = _Walk(self.importer, index, builder, variables, here)
        results = walk.run([v for v in given if v is not None], handles)
        found = [r for r in results if r is not None]
        if len(found) < len(results):
            raise Incomplete
        return found

    def record_of(self, index: int) -> GraphRecord:
        """Return another graph of the model."""
        graphs = self.importer.model.graphs
        if index not in range(len(graphs)):
            raise damaged(f"it runs graph {index} of {len(graphs)}")
        return graphs[index]

    def _value(self, index: int) -> Expr | None:
        """Return what a tensor is: a variable, made before, or a constant."""
        variable = self.variables.get(key_of_tensor(self.index, index))
        if variable is not None:
            return variable
        if index not in self.values:
            t = self.graph.tensors[index]
            self.values[index] = None if t.data is None else make.const(t.data)
        return self.values[index]

    def _operator(self, number: int, record: OperatorRecord) -> None:
        importer = self.importer
        importer.walked += 1
        if importer.walked > importer.limits.max_nodes:
            raise too_large(
                "graphs that run others come to", importer.limits.max_nodes, "operators", "max_nodes"
            )
        inside = f" of graph {self.index}" if self.index else ""
        span = Span.named(f"operator {number} ({record.name}){inside}")
        values = [self._value(i) if i >= 0 else None for i in record.inputs]
        missing = any(v is None and i >= 0 for v, i in zip(values, record.inputs, strict=True))
        missing |= any(self.graph.tensors[i].is_refused for i in record.outputs)
        made: Sequence[Expr] | None = None
        # What is not known is said even where something that it needs is missing.
        own = externs.find(importer.operators, record.name) if record.is_custom else None
        is_known = record.name in RULES or own is not None
        if not missing or not is_known:
            node = Node(record, self.graph, tuple(values), self.builder, importer.operators, span, self)
            with importer.findings.catching():
                try:
                    made = self._made(node)
                except Incomplete:  # what is missing was reported where it is
                    made = None
        for k, index in enumerate(record.outputs):
            if self.values.get(index) is not None:
                raise damaged(f"the tensor '{self.graph.tensors[index].name}' is made twice")
            self.values[index] = None if made is None else made[k]

    def _made(self, node: Node) -> Sequence[Expr]:
        name = node.record.name
        self.builder.span = node.span
        own = externs.find(node.operators, name) if node.record.is_custom else None
        rule = RULES.get(name)
        if own is not None:
            outputs = externs.call(own, node)
        elif rule is None:
            raise unsupported(
                "import.unknown-operator",
                f"the {'custom operator' if node.record.is_custom else 'operator'} {name} is not known",
                span=node.span,
                hint="give its code: load(..., externs=[inlay.extern(...)])"
                if node.record.is_custom
                else suggestion(name, RULES, "convert the model without it"),
            )
        else:
            _only_known_complex(node)
            with np.errstate(all="ignore"):  # scales of damaged files
                outputs = _ruled(rule, node)
        if len(outputs) != len(node.record.outputs):
            raise damaged(f"{name} has {len(node.record.outputs)} outputs, not {len(outputs)}")
        for k, e in enumerate(outputs):
            _check(node, e, node.output(k))
        return outputs


def _only_known_complex(node: Node) -> None:
    """Refuse complex numbers where operators would take their axis for one of the tensor."""
    record = node.record
    tensors = [node.graph.tensors[i] for i in (*record.inputs, *record.outputs) if i >= 0]
    if any(t.is_complex for t in tensors) and record.name not in OF_COMPLEX:
        raise node.unsupported("takes or gives complex numbers")


def _ruled(rule: Rule, node: Node) -> Sequence[Expr]:
    """Run a rule.

    Rules take shapes, operands and options apart as operators of their kind have them. What they cannot take
    apart is a damaged file.
    """
    try:
        found = rule(node)
        return sizes.kept(node, rule, found if isinstance(found, tuple) else (found,))
    except (LookupError, ValueError, ZeroDivisionError, OverflowError) as fault:
        raise error(
            "import.invalid-node",
            f"{node.record.name} has operands or options that do not fit together: {fault}",
            span=node.span,
            hint="the model is damaged; convert it again",
        ) from fault


def _check(node: Node, e: Expr, t: TensorRecord) -> None:
    """Hold what was emitted against what the file says; a shape without axes may be one not known."""
    assert isinstance(e.type, TensorType), "operators give tensors"
    shape = [d.value for d in e.type.shape]
    fits = not t.shape or (
        len(shape) == len(t.shape)
        and all(a is None or b < 0 or a == b for a, b in zip(shape, t.shape, strict=True))
    )
    if not fits or e.type.dtype is not t.dtype:
        raise error(
            "import.invalid-node",
            f"{node.record.name} gives {e.type.dtype}{shape}, and the file says {t.dtype}{list(t.shape)}",
            span=node.span,
            hint="the model is damaged; convert it again",
        )


def _type(t: TensorRecord) -> TensorType:
    return TensorType(tuple(_dim(t, axis, d) for axis, d in enumerate(t.shape)), t.dtype)


def _dim(t: TensorRecord, axis: int, size: int) -> Int:
    return to_int(fresh(f"{t.name or 'input'}_{axis}") if size < 0 else size)


def _names(graph: GraphRecord) -> dict[int, str]:
    """Return names of the inputs and outputs, each once."""
    taken: set[str] = set()
    names: dict[int, str] = {}
    for index in (*graph.inputs, *graph.outputs):
        name = base = graph.tensors[index].name or f"tensor{index}"
        count = 1
        while index not in names and name in taken:
            count += 1
            name = f"{base}_{count}"
        names.setdefault(index, name)
        taken.add(name)
    return names
