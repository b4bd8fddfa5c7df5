"""From an ONNX graph to a module: names, scopes, symbols, and the walk over nodes.

An ONNX graph is a list of nodes in topological order that name their inputs and outputs. Names of a
graph are visible in the subgraphs of its nodes. Every node is handed to the rule of its operator;
what a rule refuses is collected, its outputs are marked as missing, and the walk goes on, so that
one run reports everything that stands in the way. Nodes that need a missing value are passed over
in silence: their trouble is not their own.

Axes that are named (`batch`) are one symbol wherever the inputs use the name; unnamed ones are a
symbol each. Local functions of the model are expanded where they are called.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx

from inlay.arith.dtype import I64
from inlay.arith.expr import Int, Sym, fresh, lit, to_int
from inlay.base.diagnostics import Collector, CompileError, UnsupportedError, error, unsupported
from inlay.base.graph import postorder
from inlay.base.span import Span
from inlay.importers.onnx import externs, load, schemas, table
from inlay.importers.onnx.broadcast import stretched
from inlay.importers.onnx.limits import DEFAULT_LIMITS, MAX_DIM, MAX_RANK, ImportLimits
from inlay.importers.onnx.node import Node, describe
from inlay.importers.onnx.structure import (
    as_type,
    call_prelude,
    filled,
    form_of,
    is_structured,
    list_of,
    option_of,
    some_tensor,
)
from inlay.importers.onnx.values import ABSENT, MAX_KNOWN, Value
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Const, Expr
from inlay.ir.module import EntryNames, Module
from inlay.ir.opening import pack
from inlay.ir.prelude import with_prelude
from inlay.ir.types import AdtType, DimParam, TensorType, Type
from inlay.ops._define import OpDef, Pattern
from inlay.ops.table import OperatorTable


def load_model(
    path: str | Path, operators: OperatorTable, limits: ImportLimits = DEFAULT_LIMITS
) -> Module:
    """Return the program in an ONNX file.

    Raises:
        CompileError: `import.*`; everything that stands in the way, at once.
    """
    file = Path(path)
    model = load.read_model(file, limits)
    return import_model(model, operators, folder=file.parent, name=str(path), limits=limits)


def import_model(
    model: onnx.ModelProto,
    operators: OperatorTable,
    *,
    folder: Path | None = None,
    name: str = "model",
    limits: ImportLimits = DEFAULT_LIMITS,
) -> Module:
    """Return the program of a model that is already parsed; see `load_model`."""
    importer = _Importer.of(model, operators, folder, limits)
    return importer.module(name)


@dataclass(slots=True)
class _Scope:
    """Names of a graph and of the graphs around it. A value of None is missing (refused).

    `opsets` are the versions of the operator sets that the nodes are written for, by domain;
    `where` says for messages what the nodes are part of.
    """

    opsets: Mapping[str, int]
    values: dict[str, Value | None] = field(default_factory=dict[str, "Value | None"])
    outer: _Scope | None = None
    depth: int = 0
    where: str = ""

    def find(self, name: str) -> tuple[bool, Value | None]:
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
    folder: Path | None
    opsets: dict[str, int]
    functions: dict[tuple[str, str], onnx.FunctionProto]
    limits: ImportLimits
    findings: Collector = field(default_factory=Collector)
    symbols: dict[str, Sym] = field(default_factory=dict[str, Sym])
    unnamed: set[Sym] = field(default_factory=set[Sym])
    seen: int = 0
    ranks: dict[str, list[Type]] = field(default_factory=dict[str, list[Type]])
    holes: dict[str, list[Type]] | None = None

    @staticmethod
    def of(
        model: onnx.ModelProto, operators: OperatorTable, folder: Path | None, limits: ImportLimits
    ) -> _Importer:
        """Read what the model declares outside its graph."""
        opsets = {_domain(o.domain): o.version for o in model.opset_import}
        for o in model.opset_import:
            if opsets[_domain(o.domain)] != o.version:
                raise error(
                    "import.opset",
                    f"two versions of the operators of '{o.domain or 'ai.onnx'}' are named",
                    hint="the model is damaged; export it again",
                )
        _check_opsets(opsets)
        load.check_nodes(model, limits)
        functions = {(_domain(f.domain), f.name): f for f in model.functions}
        return _Importer(model, operators, folder, opsets, functions, limits)

    # ------------------------------------------------------------------ the whole

    def module(self, name: str) -> Module:
        """Import the graph of the model as `main`."""
        graph = self.model.graph
        self.ranks = self._find_ranks()
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
                    at_end = _node(last, (), b, self, scope, span)
                    exprs.append(_output_of(at_end, result, info.type))
        self.findings.raise_if_fatal()
        if not results:
            raise error("import.invalid-graph", f"'{name}' has no outputs", hint="export it again")
        assert None not in results, "a missing output has a reason"
        main = b.function(exprs[0] if len(exprs) == 1 else exprs)
        constants = {t.name for t in graph.initializer}
        names = EntryNames(
            tuple(v.name for v in graph.input if v.name not in constants),
            tuple(v.name for v in graph.output),
        )
        return with_prelude(
            Module(
                functions=MappingProxyType({"main": main}),
                entries=MappingProxyType({"main": names}),
            )
        )

    def _inputs(self, graph: onnx.GraphProto, scope: _Scope, b: Builder) -> None:
        constants = {t.name for t in graph.initializer}
        for info in graph.input:
            if info.name in constants:
                continue
            span = Span.named(f"input '{info.name}'")
            self._name(info.name, scope, span)
            with self.findings.catching():
                hole = self._hole(info)
                scope.values[info.name] = hole or Value(
                    b.param(info.name, self._input_type(info.type, info.name, span), span)
                )
            scope.values.setdefault(info.name, None)

    def _hole(self, info: onnx.ValueInfoProto) -> Value | None:
        """Return what stands for a sequence of unknown rank while its rank is looked for."""
        if self.holes is None or _elements_of(info.type) is None:
            return None
        hole: list[Type] = self.holes.setdefault(info.name, [])
        return Value(items=(), hole=hole)

    def _find_ranks(self) -> dict[str, list[Type]]:
        """Return the types of what is inserted into sequences that are inputs of unknown rank.

        The model is imported on trial, with these inputs empty; all it refuses is passed over.
        """
        if all(_elements_of(info.type) is None for info in self.model.graph.input):
            return {}
        trial = _Importer.of(self.model, self.operators, self.folder, self.limits)
        trial.holes = {}
        scope, b = _Scope(self.opsets), Builder()
        with contextlib.suppress(CompileError):
            trial._inputs(self.model.graph, scope, b)
            trial._graph(self.model.graph, scope, b)
        return trial.holes

    def _input_type(self, declared: onnx.TypeProto, name: str, span: Span) -> Type:
        match declared.WhichOneof("value"):
            case "tensor_type":
                return self._tensor_type(declared.tensor_type, name, span)
            case "sequence_type":
                return list_of(self._element_type(declared.sequence_type.elem_type, name, span))
            case "optional_type":
                return option_of(self._element_type(declared.optional_type.elem_type, name, span))
            case kind:
                raise unsupported(
                    "import.input-type",
                    f"input '{name}' is a {(kind or 'value of no type').removesuffix('_type')}, "
                    "only tensors, sequences and optionals can be given",
                    span=span,
                    hint="split it into tensor inputs",
                )

    def _element_type(self, declared: onnx.TypeProto, name: str, span: Span) -> Type:
        """Return the type of elements: sizes that are no numbers are each element's own."""
        if declared.WhichOneof("value") != "tensor_type":
            return self._input_type(declared, name, span)
        inserted = [t for t in self.ranks.get(name, ()) if isinstance(t, TensorType)]
        if inserted and not declared.tensor_type.shape.dim:
            sizes = [fresh("k") for _ in inserted[0].shape]
            shape = tuple(to_int(s) for s in sizes)
            return pack(TensorType(shape, inserted[0].dtype), [DimParam(s, 0) for s in sizes])
        t = self._tensor_type(declared.tensor_type, name, span)
        return some_tensor(declared.tensor_type.shape, t.dtype)

    def _tensor_type(self, tensor: onnx.TypeProto.Tensor, name: str, span: Span) -> TensorType:
        dtype = load.dtype_of(tensor.elem_type)
        if dtype is None:
            raise unsupported(
                "import.dtype",
                f"input '{name}' has element type {load.elem_type_name(tensor.elem_type)}",
                span=span,
                hint="convert the model to a supported type",
            )
        if not tensor.HasField("shape"):
            raise unsupported(
                "import.rank-unknown",
                f"input '{name}' has no shape; its rank must be known",
                span=span,
                hint="export the model with named dynamic axes",
            )
        rank = len(tensor.shape.dim)
        if rank > MAX_RANK:
            raise error(
                "import.bad-dim",
                f"input '{name}' has {rank} axes; at most {MAX_RANK} are possible",
                span=span,
                hint="the model is damaged; export it again",
            )
        dims = [self._dim(d, name, i, span) for i, d in enumerate(tensor.shape.dim)]
        if math.prod(d.value or 1 for d in dims) > MAX_DIM:
            raise error(
                "import.bad-dim",
                f"input '{name}' has more elements than a machine has memory",
                span=span,
                hint="the model is damaged; export it again",
            )
        return TensorType(tuple(dims), dtype)

    def _dim(self, dim: onnx.TensorShapeProto.Dimension, name: str, axis: int, span: Span) -> Int:
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
            if dim.dim_value > MAX_DIM:
                raise error(
                    "import.bad-dim",
                    f"axis {axis} of input '{name}' has {dim.dim_value} elements",
                    span=span,
                    hint="the model is damaged; export it again",
                )
            return lit(dim.dim_value)
        label = dim.dim_param if dim.WhichOneof("value") == "dim_param" else ""
        if not label:
            symbol = fresh(f"{name}_{axis}")
            self.unnamed.add(symbol)
            return to_int(symbol)
        return to_int(self.symbols.setdefault(label, fresh(label)))

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

    def _graph(self, graph: onnx.GraphProto, scope: _Scope, b: Builder) -> tuple[Value | None, ...]:
        for tensor in graph.initializer:
            span = Span.named(f"initializer '{tensor.name}'")
            self._name(tensor.name, scope, span)
            with self.findings.catching():
                widen = load.is_narrow(tensor) and _only_dequantized(tensor.name, graph)
                array = load.read_tensor(tensor, self.folder, span, self.limits, widen=widen)
                scope.values[tensor.name] = constant(array)
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            span = Span.named(f"initializer '{name}'")
            self._name(name, scope, span)
            with self.findings.catching():
                scope.values[name] = constant(load.read_sparse(sparse, span, self.limits))
        for index in _order(graph.node):
            self._node(graph.node[index], index, scope, b)
        return tuple(self._output(o.name, scope) for o in graph.output)

    def _output(self, name: str, scope: _Scope) -> Value | None:
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
        inputs: list[Value | None] = []
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
        domain = _domain(proto.domain)
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
        inputs: tuple[Value | None, ...],
        scope: _Scope,
        b: Builder,
        span: Span,
    ) -> Sequence[Value | None]:
        """Give a node to the model's own function, else our rule, else the operator's body."""
        domain = _domain(proto.domain)
        function = self.functions.get((domain, proto.op_type))
        if function is None:
            version = scope.opsets.get(domain, 0)
            node = _node(proto, inputs, b, self, scope, span)
            fault = schemas.fault(proto, domain, version)
            if fault:
                raise node.invalid(fault)
            rule = table.find(domain, proto.op_type)
            own = externs.find(self.operators, domain, proto.op_type)
            if own is not None and (rule is None or domain):
                b.span = span
                return externs.call(own, node)
            if rule is not None:
                b.span = span
                return _ruled(rule, node)
            function = schemas.body_of(proto, domain, version, inputs)
        if function is None:
            raise _unknown(proto, span)
        return self._call(function, proto, inputs, scope, b, span)

    def _call(
        self,
        function: onnx.FunctionProto,
        proto: onnx.NodeProto,
        inputs: tuple[Value | None, ...],
        scope: _Scope,
        b: Builder,
        span: Span,
    ) -> Sequence[Value | None]:
        """Expand a function: its nodes see its inputs and nothing of the caller."""
        opsets = {_domain(o.domain): o.version for o in function.opset_import}
        _check_opsets(opsets)
        where = f", in the body of {describe(proto, 0)}"
        inner = _Scope({**scope.opsets, **opsets}, depth=self._deeper(scope, span), where=where)
        for i, name in enumerate(function.input):
            inner.values[name] = (inputs[i] if i < len(inputs) else None) or ABSENT
        given = {a.name: a for a in proto.attribute}
        for default in function.attribute_proto:
            given.setdefault(default.name, default)
        for index in _order(function.node):
            self._node(_with_attributes(function.node[index], given), index, inner, b)
        # A body need not produce an output that the node does not ask for.
        asked = [
            i < len(proto.output) and bool(proto.output[i]) for i in range(len(function.output))
        ]
        return [
            self._output(name, inner) if wanted else None
            for name, wanted in zip(function.output, asked, strict=True)
        ]

    def subgraph(
        self,
        graph: onnx.GraphProto,
        inputs: Sequence[Value],
        b: Builder,
        scope: _Scope,
        span: Span,
    ) -> tuple[Value, ...]:
        """Import a subgraph into a b; names of the graphs around it are visible."""
        inner = _Scope(
            scope.opsets, outer=scope, depth=self._deeper(scope, span), where=scope.where
        )
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

    # ------------------------------------------------------------------ operations

    def emit(
        self, b: Builder, name: str, args: Sequence[Expr], attrs: Mapping[str, object], result: str
    ) -> Expr:
        """Emit an operation, or fold it; part of `node.Emitter`."""
        definition = self.operators.definition(name)
        if self.unnamed and definition.pattern is Pattern.BROADCAST:
            args = stretched(
                args,
                frozenset(self.unnamed),
                lambda e, back, size: self._stretch(b, e, back, size),
            )
        record = definition.op.attrs_type(**attrs)
        folded = _folded(definition, record, args)
        if folded is not None:
            return folded
        made = b.emit(definition.op, args, record, name=result)
        if isinstance(made.type, TensorType):
            _check_size(made.type, b.span)
        return made

    def _stretch(self, b: Builder, e: Expr, back: int, size: int) -> Expr:
        """Read an axis of 1 or `size` elements as one of `size`; see `broadcast`."""
        assert isinstance(e.type, TensorType), "only tensors are stretched"
        axis = len(e.type.shape) - back
        n = e.type.shape[axis]
        whole = make.int_const((n - 1) * (n - size))
        why = {"why": f"axis {axis} has 1 or {size} elements"}
        e = self.emit(b, "check_equal", (e, whole, make.int_const(0)), why, "checked")
        ends = [make.int_const(v) for v in (0, size, 1)]
        places = self.emit(b, "range", ends, {"dtype": I64}, "places")
        last = self.emit(b, "to_tensor", (make.int_const(n - 1),), {}, "last")
        index = self.emit(b, "minimum", (places, last), {}, "places")
        return self.emit(b, "gather", (e, index), {"axis": axis, "clamp": True}, "stretched")


def _folded(definition: OpDef, attrs: object, args: Sequence[Expr]) -> Const | None:
    """Return the constant that an operation on small constants is."""
    values = [_number(a) for a in args]
    if definition.reference is None or not any(isinstance(v, np.ndarray) for v in values):
        return None
    if any(v is None or (isinstance(v, np.ndarray) and v.size > MAX_KNOWN) for v in values):
        return None
    call = make.call(definition.op, args, attrs)
    if not isinstance(call.type, TensorType):
        return None
    if math.prod(d.value or 0 for d in call.type.shape) > MAX_KNOWN:
        return None
    try:
        folded = definition.evaluate(attrs, *(v for v in values if v is not None))
    except CompileError:
        return None  # where this is ever computed, the program stops and says why
    return make.const(np.asarray(folded, call.type.dtype.numpy))


def _check_size(t: TensorType, span: Span) -> None:
    if len(t.shape) > MAX_RANK:
        raise unsupported(
            "import.too-large",
            f"a tensor has {len(t.shape)} axes, of which {MAX_RANK} are possible",
            span=span,
            hint="merge axes before this node",
        )
    if math.prod(d.value or 1 for d in t.shape) > MAX_DIM:
        raise error(
            "import.bad-dim",
            f"a tensor {t.dtype}[{', '.join(map(str, t.shape))}] has more elements than a machine "
            "has memory",
            span=span,
            hint="the model is damaged; export it again",
        )


def _number(e: Expr) -> np.ndarray | int | bool | tuple[int, ...] | None:
    """Return the value of a constant as references take it; None where it is not a number."""
    match e:
        case Const(value=np.ndarray() | bool() as v):
            return v
        case Const(value=Int() as v):
            return v.value
        case Const(value=tuple() as v):
            numbers = tuple(x.value for x in v if x.value is not None)
            return numbers if len(numbers) == len(v) else None
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _Subgraphs:
    """`node.Subgraphs` for the nodes of one scope."""

    importer: _Importer
    scope: _Scope

    def run(
        self, graph: onnx.GraphProto, inputs: Sequence[Value], b: Builder, span: Span
    ) -> tuple[Value, ...]:
        """Import a subgraph where the names of this scope are visible."""
        return self.importer.subgraph(graph, inputs, b, self.scope, span)


def constant(array: np.ndarray) -> Value:
    """Return a constant; small integer vectors also have known content (see `Node.known`)."""
    return Value(make.const(array))


def _node(
    proto: onnx.NodeProto,
    inputs: tuple[Value | None, ...],
    b: Builder,
    importer: _Importer,
    scope: _Scope,
    span: Span,
) -> Node:
    opset = scope.opsets.get(_domain(proto.domain), 0)
    return Node(proto, opset, inputs, b, importer, _Subgraphs(importer, scope), span)


def _ruled(rule: table.Rule, node: Node) -> Sequence[Value]:
    """Return what a rule makes of a node.

    A rule looks for what a correct node can ask. What a damaged one can ask has no end: whatever
    it makes a rule stumble over is the fault of the node, and says so.
    """
    try:
        result = rule(node)
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as failure:
        raise node.invalid(
            f"has inputs or attributes that do not fit each other ({type(failure).__name__}: "
            f"{failure})"
        ) from failure
    return result if isinstance(result, tuple) else (result,)


def _elements_of(declared: onnx.TypeProto) -> onnx.TypeProto.Tensor | None:
    """Return the element type of a sequence, itself or in an optional, whose rank is not known.

    Some exporters write a shape without axes where they know none.
    """
    while declared.WhichOneof("value") == "optional_type":
        declared = declared.optional_type.elem_type
    if declared.WhichOneof("value") != "sequence_type":
        return None
    inner = declared.sequence_type.elem_type
    is_tensor = inner.WhichOneof("value") == "tensor_type"
    return inner.tensor_type if is_tensor and not inner.tensor_type.shape.dim else None


def _output_of(at_end: Node, result: Value, declared: onnx.TypeProto) -> Expr:
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
    domain = f"{proto.domain}." if _domain(proto.domain) else ""
    return unsupported(
        "import.unknown-operator",
        f"operator {domain}{proto.op_type} is not known",
        span=span,
        hint="export without it, or give an implementation: "
        f"externs=[inlay.extern('{domain}{proto.op_type}', ...)]",
    )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


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


def _order(nodes: Sequence[onnx.NodeProto]) -> list[int]:
    """Return the nodes so that each comes after those that make its inputs.

    ONNX demands this of the list itself, but some writers do not care. A list in order keeps it; on
    a cycle some node comes too early, and its inputs are reported as undefined.
    """
    producers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [[producers[n] for n in _read_by(node) if n in producers] for node in nodes]
    if all(p < i for i, before in enumerate(needs) for p in before):
        return list(range(len(nodes)))
    return postorder(range(len(nodes)), lambda i: needs[i])


def _only_dequantized(name: str, graph: onnx.GraphProto) -> bool:
    """Whether all that reads a constant turns it into numbers, whatever format it is stored in."""
    readers = [node for node in graph.node if name in _read_by(node)]
    outputs = {o.name for o in graph.output}
    return name not in outputs and all(node.op_type == "DequantizeLinear" for node in readers)


def _read_by(root: onnx.NodeProto) -> list[str]:
    """Return all names that a node reads, in its subgraphs too, defined there or not."""
    found: list[str] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        found += node.input
        for a in node.attribute:
            for graph in (*([a.g] if a.HasField("g") else []), *a.graphs):
                waiting += graph.node
                found += (o.name for o in graph.output)
    return found


def _with_attributes(node: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """Return the node with references to attributes of the function replaced by their values.

    Subgraphs of the node refer to them too.
    """
    if not any(a.ref_attr_name or a.HasField("g") or a.graphs for a in node.attribute):
        return node
    out = onnx.NodeProto()
    out.CopyFrom(node)
    del out.attribute[:]
    for a in node.attribute:
        if not a.ref_attr_name:
            kept = out.attribute.add()
            kept.CopyFrom(a)
            for graph in (*([kept.g] if kept.HasField("g") else []), *kept.graphs):
                inner = [_with_attributes(n, given) for n in graph.node]
                del graph.node[:]
                graph.node.extend(inner)
        elif a.ref_attr_name in given:
            copy = out.attribute.add()
            copy.CopyFrom(given[a.ref_attr_name])
            copy.name = a.name
    return out
