"""Put wrong attributes into valid nodes of every operator, and compare who refuses them.

The nodes are those of the backend suite of `onnx`, of each operator a few. What onnxruntime refuses
must be refused here too: when the model is imported, or when it runs. Run as a program, for it asks
onnxruntime in children: on some attributes it dies.

    python -m tests.differential.onnx_attributes [OPERATOR ...]
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import onnxruntime
from onnx import AttributeProto, ModelProto, defs, helper

from inlay.base.diagnostics import InlayError
from tests import onnx_tests
from tests.unit.importers.onnx.models import load, run

Inputs = dict[str, np.ndarray]

MODELS_OF_AN_OPERATOR = 3

DEPARTURES: dict[tuple[str, str], str] = {
    ("Attention", "scale"): "a scale may have any sign; the peer wants it positive",
    ("AveragePool", "pads"): "the peer wants pads smaller than the kernel",
    ("LpPool", "pads"): "the peer wants pads smaller than the kernel",
    ("MaxPool", "pads"): "the peer wants pads smaller than the kernel",
    ("Conv", "dilations"): "the peer does not pad windows with holes to the same size",
    ("ConvTranspose", "output_shape"): "the specification of old versions counts all axes",
    ("EyeLike", "dtype"): "declared types of outputs are not looked at",
    ("LRN", "alpha"): "the specification allows any number",
    ("LRN", "beta"): "the specification allows any number",
    ("LRN", "size"): "the specification says what an even size means",
    ("LpPool", "dilations"): "a window that does not fit gives an empty result",
    ("LpPool", "strides"): "an empty list is an absent one",
    ("SplitToSequence", "axis"): "declared types of outputs are not looked at",
    ("SplitToSequence", "keepdims"): "declared types of outputs are not looked at",
    ("TfIdfVectorizer", "pool_int64s"): "an n-gram that is there twice counts twice",
    ("TfIdfVectorizer", "weights"): "an empty list is an absent one",
}
"""What onnxruntime refuses and we do not, with the reason."""


def nodes(only: tuple[str, ...]) -> Iterator[tuple[ModelProto, Inputs]]:
    """Give models of one node, and inputs, on which both agree that they are right."""
    count: Counter[str] = Counter()
    seen: set[tuple[str, ...]] = set()
    for case in onnx_tests.load("node"):
        graph, (arrays, _) = case.model.graph, case.data_sets[0]
        node = graph.node[0]
        kind = (node.op_type, *sorted(a.name for a in node.attribute))
        if len(graph.node) > 1 or node.domain or (only and node.op_type not in only):
            continue
        if kind in seen or count[node.op_type] >= MODELS_OF_AN_OPERATOR:
            continue
        if any(not isinstance(x, np.ndarray) for x in arrays) or not _schema(case.model).attributes:
            continue
        case.model.ir_version = min(case.model.ir_version, 11)
        inputs = dict(zip([i.name for i in graph.input], arrays, strict=False))
        if theirs(case.model, inputs) or ours(case.model, inputs):
            continue
        seen.add(kind)
        count[node.op_type] += 1
        yield case.model, inputs


def _schema(model: ModelProto) -> Any:
    version = next(o.version for o in model.opset_import if not o.domain)
    return defs.get_schema(model.graph.node[0].op_type, version, "")


def wrong(model: ModelProto) -> Iterator[tuple[str, Any, ModelProto]]:
    """Give the model with other values of each attribute; some of them may be right."""
    given = {a.name: helper.get_attribute_value(a) for a in model.graph.node[0].attribute}
    for name, schema in sorted(_schema(model).attributes.items()):
        kind = schema.type.value
        for value in _values(kind, given.get(name)):
            changed = deepcopy(model)
            node = changed.graph.node[0]
            kept = [a for a in node.attribute if a.name != name]
            del node.attribute[:]
            node.attribute.extend(kept)
            if value == []:
                node.attribute.add(name=name, type=kind)
            else:
                node.attribute.append(helper.make_attribute(name, value))
            for output in changed.graph.output:
                output.type.tensor_type.ClearField("shape")
            yield name, value, changed


def _values(kind: int, now: Any) -> list[Any]:
    match kind:
        case AttributeProto.INT:
            return [99, -99, -1, 2]
        case AttributeProto.FLOAT:
            return [-1.0, float("nan")]
        case AttributeProto.STRING:
            return ["bogus", ""]
        case AttributeProto.INTS:
            old = list(now) if now is not None else [1, 1]
            n = len(old)
            return [[-1] * n, [0] * n, [*old, 1], old[:-1], [99] * n, old + old]
        case AttributeProto.FLOATS:
            return [[-1.0], []]
        case AttributeProto.STRINGS:
            return [["bogus"], ["bogus"] * 3]
        case _:
            return []


def ours(model: ModelProto, inputs: Inputs) -> str:
    """Return why we refuse a call, or nothing; another exception goes through."""
    try:
        run(load(model), inputs)
    except InlayError as failure:
        return str(failure)
    return ""


def theirs(model: ModelProto, inputs: Inputs) -> str:
    """Return why onnxruntime refuses a call, or nothing."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        session.run(None, inputs)
    except Exception as failure:
        return str(failure) or "no"
    return ""


def in_a_child(model: ModelProto, inputs: Inputs) -> str:
    """Return why onnxruntime refuses a call, which may be its death."""
    back, forth = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(forth, ("+" + theirs(model, inputs))[:2000].encode())
        os._exit(0)
    os.close(forth)
    with os.fdopen(back, "rb") as stream:
        said = stream.read().decode(errors="replace")
    os.waitpid(child, 0)
    return said[1:] if said else "it died"


def findings(only: tuple[str, ...]) -> Iterator[str]:
    """Give what onnxruntime refuses and we accept, and what we stumble over."""
    for model, inputs in nodes(only):
        op = model.graph.node[0].op_type
        for name, value, changed in wrong(model):
            if (op, name) in DEPARTURES:
                continue
            try:
                if ours(changed, inputs):
                    continue
            except Exception as fault:
                yield f"{op} {name}={value}: {type(fault).__name__}: {fault}"
                continue
            said = in_a_child(changed, inputs)
            if said and "NOT_IMPLEMENTED" not in said:
                yield f"{op} {name}={value}: accepted; the peer says {said[-160:]!r}"


def main(words: list[str]) -> int:
    """Print findings."""
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    found = 0
    for finding in findings(tuple(words)):
        print(finding, flush=True)
        found += 1
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
