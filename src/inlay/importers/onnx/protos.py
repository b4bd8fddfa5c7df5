"""What a graph of ONNX says of itself: order of nodes, names they read, references to attributes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx

from inlay.base.graph import postorder

_PLACEHOLDERS = frozenset(("any", "dynamic", "nan", "nil", "none", "null", "undefined", "unk", "unknown"))
"""Words that exporters write where they know no size, in small letters."""


def dim_name(dim: onnx.TensorShapeProto.Dimension) -> str:
    """Return the name of an axis; nothing for one with a number, and for one without a name.

    A name relates axes: those that share it have one size. Many writers have no name and write
    something all the same: paddle2onnx a `?`, onnxmltools and scripts of all kinds `None`, others
    `-1`. That says of several axes only that nobody knows their sizes. So what has neither a letter
    nor a digit, a negative number, and a word for "unknown" is no name. To take a name for none costs
    a check when the program runs; to take a placeholder for a name refuses inputs that are right.

    What is made up but numbered (`unk__6` of tf2onnx and onnxruntime, `DynamicDimension.0` of
    paddle2onnx) is a name: its writer gives each size its own.
    """
    if dim.WhichOneof("value") != "dim_param":
        return ""
    text = dim.dim_param.strip()
    if re.fullmatch(r"[\W_]*|-\s*\d+", text) or text.lower() in _PLACEHOLDERS:
        return ""
    return dim.dim_param


def elements_of_unknown_rank(declared: onnx.TypeProto) -> onnx.TypeProto.Tensor | None:
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


def domain_of(name: str) -> str:
    """Return a domain by the shorter of its names: that of ONNX itself is empty."""
    return "" if name == "ai.onnx" else name


def in_order(nodes: Sequence[onnx.NodeProto]) -> list[int]:
    """Return the nodes so that each comes after those that make its inputs.

    ONNX demands this of the list itself, but some writers do not care. A list in order keeps it; on
    a cycle some node comes too early, and its inputs are reported as undefined.
    """
    producers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [[producers[n] for n in _read_by(node) if n in producers] for node in nodes]
    if all(p < i for i, before in enumerate(needs) for p in before):
        return list(range(len(nodes)))
    return postorder(range(len(nodes)), lambda i: needs[i])


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


def with_attributes(node: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> onnx.NodeProto:
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
                inner = [with_attributes(n, given) for n in graph.node]
                del graph.node[:]
                graph.node.extend(inner)
        elif a.ref_attr_name in given:
            copy = out.attribute.add()
            copy.CopyFrom(given[a.ref_attr_name])
            copy.name = a.name
    return out
