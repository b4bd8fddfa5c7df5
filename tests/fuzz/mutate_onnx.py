"""Damages ONNX models: at random among their bytes, and on purpose among their fields.

Every mutation is a function of a random source, so that a seed names a damaged model for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import onnx
from google.protobuf.message import Message
from onnx import AttributeProto, TensorProto

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    255,
    1 << 16,
    1 << 31,
    -(1 << 31),
    (1 << 31) - 1,
    1 << 40,
    (1 << 62),
    (1 << 63) - 1,
    -(1 << 63),
)
FLOATS = (0.0, -1.0, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))


def damaged_bytes(data: bytes, random: Random) -> bytes:
    """Return the bytes with a few of them changed, cut out, repeated or inserted."""
    found = bytearray(data)
    for _ in range(random.randint(1, 4)):
        if not found:
            break
        at = random.randrange(len(found))
        length = random.randint(1, 16)
        match random.randrange(5):
            case 0:
                found[at] = random.randrange(256)
            case 1:
                found[at] ^= 1 << random.randrange(8)
            case 2:
                del found[at : at + length]
            case 3:
                found[at:at] = found[at : at + length]
            case _:
                found = found[:at] if random.random() < 0.2 else found + found[at:]
    return bytes(found)


def damaged_model(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """Return a copy of the model with a few fields changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _ in range(random.randint(1, 3)):
        random.choice(MUTATIONS)(copy, random)
    return copy


# --------------------------------------------------------------------------- mutations


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for a in node.attribute:
            if a.HasField("g"):
                yield from _graphs(a.g)


def _some_graph(model: onnx.ModelProto, random: Random) -> onnx.GraphProto:
    return random.choice(list(_graphs(model.graph)))


def _some_node(model: onnx.ModelProto, random: Random) -> onnx.NodeProto | None:
    nodes = _some_graph(model, random).node
    return random.choice(nodes) if nodes else None


def _names(graph: onnx.GraphProto) -> list[str]:
    names = [v.name for v in graph.input] + [t.name for t in graph.initializer]
    return names + [o for n in graph.node for o in n.output] or ["x"]


def _rewire(model: onnx.ModelProto, random: Random) -> None:
    graph = _some_graph(model, random)
    node = _some_node(model, random)
    if node is not None and node.input:
        node.input[random.randrange(len(node.input))] = random.choice([*_names(graph), "", "?"])


def _drop_or_add_input(model: onnx.ModelProto, random: Random) -> None:
    node = _some_node(model, random)
    if node is None:
        return
    if node.input and random.random() < 0.5:
        del node.input[random.randrange(len(node.input))]
    else:
        node.input.append(random.choice(_names(model.graph)))


def _rename_output(model: onnx.ModelProto, random: Random) -> None:
    node = _some_node(model, random)
    if node is not None and node.output:
        names = [*_names(model.graph), "", "new"]
        node.output[random.randrange(len(node.output))] = random.choice(names)


def _other_operator(model: onnx.ModelProto, random: Random) -> None:
    node = _some_node(model, random)
    if node is not None:
        schemas = onnx.defs.get_all_schemas()
        node.op_type = random.choice(schemas).name if random.random() < 0.9 else ""


def _attribute(model: onnx.ModelProto, random: Random) -> None:
    node = _some_node(model, random)
    if node is None or not node.attribute:
        return
    a = random.choice(node.attribute)
    match random.randrange(4):
        case 0:
            a.type = random.choice(AttributeProto.AttributeType.values())
        case 1 if a.type == AttributeProto.INT:
            a.i = random.choice(NUMBERS)
        case 1 if a.type == AttributeProto.FLOAT:
            a.f = random.choice(FLOATS)
        case 1 if a.type == AttributeProto.STRING:
            a.s = random.choice([b"", b"\xff\xfe", b"nearest", b"x" * 1000])
        case 2 if a.ints:
            a.ints[random.randrange(len(a.ints))] = random.choice(NUMBERS)
        case 2:
            a.ints.append(random.choice(NUMBERS))
        case _:
            node.attribute.remove(a)


def _tensor(model: onnx.ModelProto, random: Random) -> None:
    tensors = [t for g in _graphs(model.graph) for t in g.initializer]
    tensors += [a.t for g in _graphs(model.graph) for n in g.node for a in n.attribute if a.HasField("t")]
    if not tensors:
        return
    t = random.choice(tensors)
    match random.randrange(4):
        case 0:
            t.data_type = random.choice([*TensorProto.DataType.values(), 99])
        case 1 if t.dims:
            t.dims[random.randrange(len(t.dims))] = random.choice(NUMBERS)
        case 2:
            t.dims.append(random.choice(NUMBERS))
        case _:
            t.raw_data = t.raw_data[: random.randrange(len(t.raw_data) + 1)]


def _input_type(model: onnx.ModelProto, random: Random) -> None:
    if not model.graph.input:
        return
    info = random.choice(model.graph.input)
    tensor = info.type.tensor_type
    match random.randrange(4):
        case 0:
            tensor.elem_type = random.choice([*TensorProto.DataType.values(), -5, 99])
        case 1 if tensor.shape.dim:
            random.choice(tensor.shape.dim).dim_value = random.choice(NUMBERS)
        case 2:
            tensor.shape.dim.add().dim_value = random.choice(NUMBERS)
        case _ if tensor.shape.dim:
            random.choice(tensor.shape.dim).dim_param = random.choice(["n", "", "n" * 999, "a b"])
        case _:
            info.type.Clear()


def _opset(model: onnx.ModelProto, random: Random) -> None:
    if model.opset_import:
        random.choice(model.opset_import).version = random.choice([*range(1, 30), *NUMBERS])


def _outputs(model: onnx.ModelProto, random: Random) -> None:
    graph = _some_graph(model, random)
    if graph.output and random.random() < 0.5:
        random.choice(graph.output).name = random.choice([*_names(graph), "", "?"])
    elif graph.output:
        del graph.output[random.randrange(len(graph.output))]


def _shuffle(model: onnx.ModelProto, random: Random) -> None:
    graph = _some_graph(model, random)
    nodes = list(graph.node)
    random.shuffle(nodes)
    _replace(graph.node, nodes)


def _repeat(model: onnx.ModelProto, random: Random) -> None:
    graph = _some_graph(model, random)
    if graph.node:
        graph.node.append(random.choice(graph.node))


def _replace(field: object, items: list[Message]) -> None:
    copies = [type(i).FromString(i.SerializeToString()) for i in items]
    del field[:]  # type: ignore[attr-defined]
    field.extend(copies)  # type: ignore[attr-defined]


MUTATIONS: tuple[Callable[[onnx.ModelProto, Random], None], ...] = (
    _rewire,
    _drop_or_add_input,
    _rename_output,
    _other_operator,
    _attribute,
    _attribute,
    _tensor,
    _input_type,
    _opset,
    _outputs,
    _shuffle,
    _repeat,
)
