"""From an ONNX graph to a module: names, scopes, symbols, and the walk over nodes.

An ONNX graph is a list of nodes in topological order that name their inputs and outputs. Names of a
graph are visible in the subgraphs of its nodes. Every node is handed to the rule of its operator;
what a rule refuses is collected, its outputs are marked as missing, and the walk goes on, so that
one run reports everything that stands in the way. Nodes that need a missing value are passed over
in silence: their trouble is not their own.

Local functions of the model are expanded where they are called.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import onnx

from inlay.base.diagnostics import Collector, CompileError, UnsupportedError, error, unsupported
from inlay.base.span import Span
from inlay.importers.limits import DEFAULT_LIMITS, ImportLimits
from inlay.importers.onnx import checked, contrib, externs, load, narrow, schemas, table
from inlay.importers.onnx.emit import Emitter
from inlay.importers.onnx.external import ExternalFiles
from inlay.importers.onnx.inputs import InputTypes
from inlay.importers.onnx.node import Node, describe
from inlay.importers.onnx.protos import (
    dim_name,
    domain_of,
    elements_of_unknown_rank,
    in_order,
    with_attributes,
)
from inlay.importers.onnx.structure import as_type, call_prelude, filled, form_of, is_structured, option_of
from inlay.importers.onnx.values import ABSENT, OnnxValue
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr
from inlay.ir.module import EntryNames, Module
from inlay.ir.prelude import with_prelude
from inlay.ir.types import AdtType, Type
from inlay.ops.table import OperatorTable


def load_model(path: str | Path, operators: OperatorTable, limits: ImportLimits = DEFAULT_LIMITS) -> Module:
    """Return the program in an ONNX file.

    Raises:
        CompileError: `import.*`; everything that stands in the way, at once.
    """
    file = Path(path)
    model, stored = load.read_parts(file, limits)
    files = ExternalFiles.beside(file, stored)
    return import_model(model, operators, files=files, name=str(path), limits=limits)


def import_model(
    model: onnx.ModelProto,
    operators: OperatorTable,
    *,
    files: ExternalFiles | None = None,
    name: str = "model",
    limits: ImportLimits = DEFAULT_LIMITS,
) -> Module:
    """Return the program of a model that is already parsed; see `load_model`."""
    importer = _Importer.of(model, operators, files or ExternalFiles(), limits)
    return importer.module(name)


@dataclass(slots=True)
class _Scope:
    """Names of a graph and of the graphs around it. A value of None is missing (refused).

    `opsets` are the versions of the operator sets that the nodes are written for, by domain;
    `where` says for messages what the nodes are part of.
    """

    opsets: Mapping[str, int]
    values: dict[str, OnnxValue | None] = field(default_factory=dict[str, "OnnxValue | None"])
    outer: _Scope | None = None
    depth: int = 0
    where: str = ""

    def find(self, name: str) -> tuple[bool, OnnxValue | None]:
        """Return (whether the name is defined, its value)."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.values:
                return True, scope.values[name]
            scope = scope.outer
        return False, None


@dataclass(slots=True)
class _Importer:
    """One run over one model."""

    model: onnx.ModelProto
    operators: OperatorTable
    files: ExternalFiles
    opsets: dict[str, int]
    functions: dict[tuple[str, str], onnx.FunctionProto]
    limits: ImportLimits
    findings: Collector = field(default_factory=Collector)
    types: InputTypes = field(default_factory=InputTypes)
    seen: int = 0
    holes: dict[str, list[Type]] | None = None

    @staticmethod
    def of(
        model: onnx.ModelProto, operators: OperatorTable, files: ExternalFiles, limits: ImportLimits
    ) -> _Importer:
        """Read what the model declares outside its graph."""
        opsets = {domain_of(o.domain): o.version for o in model.opset_import}
        for o in model.opset_import:
            if opsets[domain_of(o.domain)] != o.version:
                raise error(
                    "import.opset",
                    f"two versions of the operators of '{o.domain or 'ai.onnx'}' are named",
                    hint="the model is damaged; export it again",
                )
        _check_opsets(opsets)
        load.check_nodes(model, limits)
        functions = {(domain_of(f.domain), f.name): f for f in model.functions}
        return _Importer(model, operators, files, opsets, functions, limits)

    # ------------------------------------------------------------------ the whole

    def module(self, name: str) -> Module:
        """Import the graph of the model as `main`."""
        graph = self.model.graph
        self.types.ranks = self._find_ranks()
        scope, b = _Scope(self.opsets), Builder()
        self._inputs(graph, scope, b)
        results = self._graph(graph, scope, b)
        counts = Counter(o.name for o in graph.output)
        for twice in (n for n, count in counts.items() if count > 1):
            self.findings.error(
                "import.duplicate-name",
                f"two outputs are called '{twice}'",
                hint="give the second one a name of its own, with an Identity",
            )
        last = onnx.NodeProto(op_type="outputs")
        exprs: list[Expr] = []
        for info, result in zip(graph.output, results, strict=True):
            if result is not None:
                with self.findings.catching():
                    span = Span.named(f"output '{info.name}'")
                    at_end = _node(last, (result,), b, self, scope, span)
                    narrow.check(at_end)
                    exprs.append(_output_of(at_end, result, info.type))
        self.findings.raise_if_fatal()
        if not results:
            raise error("import.invalid-graph", f"'{name}' has no outputs", hint="export it again")
        assert None not in results, "a missing output has a reason"
        main = b.function(exprs[0] if len(exprs) == 1 else exprs)
        constants = {t.name for t in graph.initializer}
        names = EntryNames(
            tuple(v.name for v in graph.input if v.name not in constants), tuple(v.name for v in graph.output)
        )
        return with_prelude(
            Module(
                functions=MappingProxyType({"main": main}),
                entries=MappingProxyType({"main": names}),
                sources=self.files.used,
                metadata=load.metadata_of(self.model),
            )
        )

    def _inputs(self, graph: onnx.GraphProto, scope: _Scope, b: Builder) -> None:
        constants = {t.name for t in graph.initializer}
        given = [info for info in graph.input if info.name not in constants]
        self.types.names.update(dim_name(d) for info in given for d in info.type.tensor_type.shape.dim)
        for info in given:
            span = Span.named(f"input '{info.name}'")
            self._name(info.name, scope, span)
            with self.findings.catching():
                hole = self._hole(info)
                scope.values[info.name] = hole or OnnxValue(
                    b.param(info.name, self.types.type_of(info.type, info.name, span), span)
                )
            scope.values.setdefault(info.name, None)

    def _hole(self, info: onnx.ValueInfoProto) -> OnnxValue | None:
        """Return what stands for a sequence of unknown rank while its rank is looked for."""
        if self.holes is None or elements_of_unknown_rank(info.type) is None:
            return None
        hole: list[Type] = self.holes.setdefault(info.name, [])
        return OnnxValue(items=(), hole=hole)

    def _find_ranks(self) -> dict[str, list[Type]]:
        """Return the types of what is inserted into sequences that are inputs of unknown rank.

        The model is imported on trial, with these inputs empty; all it refuses is passed over.
        """
        if all(elements_of_unknown_rank(info.type) is None for info in self.model.graph.input):
            return {}
        trial = _Importer.of(self.model, self.operators, self.files, self.limits)
        trial.holes = {}
        scope, b = _Scope(self.opsets), Builder()
        with contextlib.suppress(CompileError):
            trial._inputs(self.model.graph, scope, b)
            trial._graph(self.model.graph, scope, b)
        return trial.holes

    # ------------------------------------------------------------------ graphs

    def _name(self, name: str, scope: _Scope, span: Span) -> None:
        """Note a name of a graph, which no other value of the graph may have."""
        if name in scope.values:
            self.findings.error(
                "import.duplicate-name",
                f"two values of one graph are called '{name}'",
                span=span,
                hint="the model is damaged or was written by a faulty exporter",
            )
        scope.values[name] = None

    def _graph(self, graph: onnx.GraphProto, scope: _Scope, b: Builder) -> tuple[OnnxValue | None, ...]:
        for tensor in graph.initializer:
            span = Span.named(f"initializer '{tensor.name}'")
            self._name(tensor.name, scope, span)
            with self.findings.catching():
                array = load.read_tensor(tensor, self.files, span, self.limits, widen=True)
                scope.values[tensor.name] = narrow.constant(array, tensor.data_type)
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            span = Span.named(f"initializer '{name}'")
            self._name(name, scope, span)
            with self.findings.catching():
                array = load.read_sparse(sparse, self.files, span, self.limits)
                scope.values[name] = OnnxValue(make.const(array))
        for index in in_order(graph.node):
            self._node(graph.node[index], index, scope, b)
        return tuple(self._output(o.name, scope) for o in graph.output)

    def _output(self, name: str, scope: _Scope) -> OnnxValue | None:
        defined, value = scope.find(name)
        if not defined:
            self.findings.error(
                "import.undefined-name",
                f"output '{name}' is produced by no node",
                span=Span.named(f"output '{name}'"),
                hint="the model is damaged; export it again",
            )
        return value

    def _node(self, proto: onnx.NodeProto, index: int, scope: _Scope, b: Builder) -> None:
        span = Span.named(describe(proto, index) + scope.where)
        self.seen += 1
        if self.seen > self.limits.max_expanded + len(self.model.graph.node):
            self.findings.raise_if_fatal()
            raise unsupported(
                "import.too-deep",
                f"expanding functions makes more than {self.limits.max_expanded} nodes",
                span=span,
                hint="a function that calls others twice doubles them with every level",
            )
        inputs: list[OnnxValue | None] = []
        complete = True
        for name in proto.input:
            if not name:
                inputs.append(None)
                continue
            defined, value = scope.find(name)
            if not defined:
                self.findings.error(
                    "import.undefined-name",
                    f"input '{name}' is produced by no earlier node",
                    span=span,
                    hint="nodes must be in topological order, without cycles",
                )
            complete = complete and value is not None
            inputs.append(None if value is ABSENT else value)
        for name in proto.output:
            if name:
                self._name(name, scope, span)
        if not complete:
            self._check_known(proto, scope, span)
            return
        with self.findings.catching():
            results = self._expand(proto, tuple(inputs), scope, b, span)
            for name, value in zip(proto.output, results, strict=False):
                if name:
                    scope.values[name] = value
            short = [o for o in proto.output[len(results) :] if o]
            if short:
                raise unsupported(
                    "import.unsupported",
                    f"operator {proto.op_type} has outputs {', '.join(short)} that are not computed",
                    span=span,
                    hint="export the model without these outputs",
                )

    def _check_known(self, proto: onnx.NodeProto, scope: _Scope, span: Span) -> None:
        """Report an unknown operator even where its inputs are missing: the list is complete."""
        domain = domain_of(proto.domain)
        known = (
            (domain, proto.op_type) in self.functions
            or table.find(domain, proto.op_type)
            or externs.find(self.operators, domain, proto.op_type)
        )
        if not known and not schemas.has_body(domain, proto.op_type, scope.opsets.get(domain, 0)):
            with self.findings.catching():
                raise _unknown(proto, span)

    def _expand(
        self,
        proto: onnx.NodeProto,
        inputs: tuple[OnnxValue | None, ...],
        scope: _Scope,
        b: Builder,
        span: Span,
    ) -> Sequence[OnnxValue | None]:
        """Give a node to the model's own function, else our rule, else the operator's body."""
        domain = domain_of(proto.domain)
        function = self.functions.get((domain, proto.op_type))
        if function is None:
            version = scope.opsets.get(domain, 0)
            node = _node(proto, inputs, b, self, scope, span)
            fault = schemas.fault(proto, domain, version)
            if fault:
                raise node.invalid(fault)
            narrow.check(node)
            rule = table.find(domain, proto.op_type)
            own = externs.find(self.operators, domain, proto.op_type)
            if own is not None and (rule is None or domain):
                b.span = span
                return externs.call(own, node)
            if rule is not None:
                b.span = span
                return _ruled(rule, node)
            if not domain and proto.op_type in checked.CHECKS:
                checked.CHECKS[proto.op_type](node)
            function = schemas.body_of(proto, domain, version, inputs)
        if function is None:
            raise _unknown(proto, span)
        return self._call(function, proto, inputs, scope, b, span)

    def _call(
        self,
        function: onnx.FunctionProto,
        proto: onnx.NodeProto,
        inputs: tuple[OnnxValue | None, ...],
        scope: _Scope,
        b: Builder,
        span: Span,
    ) -> Sequence[OnnxValue | None]:
        """Expand a function: its nodes see its inputs and nothing of the caller."""
        opsets = {domain_of(o.domain): o.version for o in function.opset_import}
        _check_opsets(opsets)
        where = f", in the body of {describe(proto, 0)}"
        inner = _Scope({**scope.opsets, **opsets}, depth=self._deeper(scope, span), where=where)
        for i, name in enumerate(function.input):
            inner.values[name] = (inputs[i] if i < len(inputs) else None) or ABSENT
        given = {a.name: a for a in proto.attribute}
        for default in function.attribute_proto:
            given.setdefault(default.name, default)
        for index in in_order(function.node):
            self._node(with_attributes(function.node[index], given), index, inner, b)
        # A body need not produce an output that the node does not ask for.
        asked = [i < len(proto.output) and bool(proto.output[i]) for i in range(len(function.output))]
        return [
            self._output(name, inner) if wanted else None
            for name, wanted in zip(function.output, asked, strict=True)
        ]

    def subgraph(
        self, graph: onnx.GraphProto, inputs: Sequence[OnnxValue], b: Builder, scope: _Scope, span: Span
    ) -> tuple[OnnxValue, ...]:
        """Import a subgraph into a b; names of the graphs around it are visible."""
        inner = _Scope(scope.opsets, outer=scope, depth=self._deeper(scope, span), where=scope.where)
        if len(inputs) != len(graph.input):
            raise error(
                "import.invalid-graph",
                f"subgraph '{graph.name}' has {len(graph.input)} inputs, needed {len(inputs)}",
                span=span,
                hint="the model is damaged; export it again",
            )
        for info, value in zip(graph.input, inputs, strict=True):
            inner.values[info.name] = value
        results = self._graph(graph, inner, b)
        narrow.check(_node(onnx.NodeProto(op_type="outputs"), results, b, self, inner, span))
        if any(r is None for r in results):
            self.findings.raise_if_fatal()
        return tuple(r for r in results if r is not None)

    def _deeper(self, scope: _Scope, span: Span) -> int:
        if scope.depth >= self.limits.max_depth:
            raise unsupported(
                "import.too-deep",
                f"subgraphs or local functions are nested more than {self.limits.max_depth} deep",
                span=span,
                hint="a function that calls itself cannot be expanded",
            )
        return scope.depth + 1


@dataclass(frozen=True, slots=True)
class _Subgraphs:
    """`node.Subgraphs` for the nodes of one scope."""

    importer: _Importer
    scope: _Scope

    def run(
        self, graph: onnx.GraphProto, inputs: Sequence[OnnxValue], b: Builder, span: Span
    ) -> tuple[OnnxValue, ...]:
        """Import a subgraph where the names of this scope are visible."""
        return self.importer.subgraph(graph, inputs, b, self.scope, span)


def _node(
    proto: onnx.NodeProto,
    inputs: tuple[OnnxValue | None, ...],
    b: Builder,
    importer: _Importer,
    scope: _Scope,
    span: Span,
) -> Node:
    opset = scope.opsets.get(domain_of(proto.domain), 0)
    emitter = Emitter(importer.operators, importer.types.unnamed)
    return Node(proto, opset, inputs, b, emitter, _Subgraphs(importer, scope), importer.files, span)


def _ruled(rule: table.Rule, node: Node) -> Sequence[OnnxValue]:
    """Return what a rule makes of a node.

    A rule looks for what a correct node can ask. What a damaged one can ask has no end: whatever
    it makes a rule stumble over is the fault of the node, and says so.
    """
    try:
        result = rule(node)
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as failure:
        raise node.invalid(
            f"has inputs or attributes that do not fit each other ({type(failure).__name__}: {failure})"
        ) from failure
    return narrow.moved(node, result if isinstance(result, tuple) else (result,))


def _output_of(at_end: Node, result: OnnxValue, declared: onnx.TypeProto) -> Expr:
    """Return an output as its declared kind: an optional may have to be made or opened."""
    kind = declared.WhichOneof("value")
    if not is_structured(result) and kind not in ("sequence_type", "optional_type"):
        return at_end.as_tensor(result)
    form = filled(form_of(at_end, result), declared)
    is_option = isinstance(form, AdtType) and form.name == "Option"
    if kind == "optional_type" and not is_option:
        form = option_of(form)
    made = as_type(at_end, result, form)
    if kind in ("sequence_type", "tensor_type") and is_option:
        made = call_prelude(at_end, "option.value", made)
    return made


def _unknown(proto: onnx.NodeProto, span: Span) -> UnsupportedError:
    domain = f"{proto.domain}." if domain_of(proto.domain) else ""
    return unsupported(
        "import.unknown-operator",
        f"operator {domain}{proto.op_type} is not known",
        span=span,
        hint=contrib.HINTS.get(proto.domain)
        or "export without it, or give an implementation: "
        f"externs=[inlay.extern('{domain}{proto.op_type}', ...)]",
    )


def _check_opsets(opsets: Mapping[str, int]) -> None:
    for domain, version in opsets.items():
        newest = schemas.NEWEST if domain == "" else 2**31 - 1
        if not 1 <= version <= newest:
            raise unsupported(
                "import.opset",
                f"the model is written for version {version} of the operators of "
                f"'{domain or 'ai.onnx'}'; versions 1 to {newest} are known",
                hint="export it for an older version, or install a newer onnx",
            )
