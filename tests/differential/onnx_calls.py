"""Draw calls of single ONNX operators: attributes, element types, shapes and values.

Dims of 0 and 1 are common, and so are infinities, NaN and the ends of integer types. Some cases name
their dims, so that one program serves all sizes. The number of a case is its seed.

Values that ONNX leaves open are not drawn: division of integers by 0, indices outside their axes,
places written twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import onnx.shape_inference
from onnx import helper

from tests.differential import onnx_arithmetic, onnx_movement
from tests.differential.onnx_draw import Array, Draw

OPSET = 21
FAMILIES = onnx_arithmetic.FAMILIES | onnx_movement.FAMILIES


@dataclass(frozen=True)
class Case:
    """One drawn call."""

    seed: int
    op: str
    model: onnx.ModelProto
    inputs: dict[str, Array]

    def __str__(self) -> str:
        node = self.model.graph.node[0]
        attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        fixed = {t.name: onnx.numpy_helper.to_array(t).tolist() for t in self.model.graph.initializer}
        given = {
            n: f"{x.dtype}{list(x.shape)}" + (f"={x.tolist()}" if x.size < 20 else "")
            for n, x in self.inputs.items()
        }
        return f"seed {self.seed}: {node.op_type} {attrs} {given} constants {fixed}"[:1500]


def draw(seed: int, only: str = "") -> Case:
    """Return the case of a seed."""
    d = Draw(seed)
    names = sorted(n for n in FAMILIES if not only or only in (n, n.removesuffix("~i")))
    op = d.one(*names)
    FAMILIES[op](d, op)
    kind = op.removesuffix("~i")
    symbolic = d.chance(0.3)
    names, infos, fixed, values = [], [], [], {}
    while d.inputs and d.inputs[-1] is None:
        d.inputs.pop()
    for i, x in enumerate(d.inputs):
        names.append("" if x is None else f"x{i}")
        if x is None:
            continue
        x = np.ascontiguousarray(x).reshape(np.shape(x))
        if i in d.constant:
            fixed.append(onnx.numpy_helper.from_array(x, f"x{i}"))
            continue
        dims = [f"n{v}" if symbolic and v > 1 and d.chance(0.7) else v for v in x.shape]
        infos.append(helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), dims))
        values[f"x{i}"] = x
    outs = [f"y{i}" for i in range(d.outputs)]
    node = helper.make_node(kind, names, outs, **d.attrs)
    types = [onnx.ValueInfoProto(name=o) for o in outs]
    graph = helper.make_graph([node], "case", infos, types, fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    return Case(seed, kind, model, values)
