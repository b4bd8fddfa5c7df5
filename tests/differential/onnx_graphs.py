"""Draw graphs of several ONNX operators, whose values and dims flow from one to the next.

Single operators are drawn in `onnx_calls.py`. What they leave out is how operators meet: shapes that
are computed and used, values that are read twice, fusion across layouts, branches. A graph starts
from one or two inputs whose dims may have names; each step takes values that are there and adds a
node. The values are numbers of small size, so that results can be compared; the number of a case is
its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.differential.onnx_calls import Case
from tests.differential.onnx_draw import Array, Draw

OPSET = 18


@dataclass
class Graph:
    """A graph under construction: every value with an example of its content (shape, type)."""

    d: Draw
    nodes: list[onnx.NodeProto] = field(default_factory=list[Any])
    fixed: list[onnx.TensorProto] = field(default_factory=list[Any])
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict[str, "tuple[int, ...]"])
    count: int = 0

    def name(self) -> str:
        """Return a name that is not taken."""
        self.count += 1
        return f"v{self.count}"

    def pick(self) -> str:
        """Return a value, the newest more often than others."""
        names = [*self.shapes]
        return names[-1] if self.d.chance(0.6) else self.d.one(*names)

    def const(self, content: Any, dtype: Any = np.int64) -> str:
        """Add an initializer."""
        name = self.name()
        self.fixed.append(numpy_helper.from_array(np.asarray(content, dtype), name))
        return name

    def weights(self, *shape: int) -> str:
        """Add an initializer of random numbers that keep sums near 1."""
        scale = 1 / max(1.0, float(np.sqrt(np.prod(shape[1:]))))
        return self.const(self.d.rng.standard_normal(shape) * scale, np.float32)

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: Any) -> str:
        """Add a node with one float result of a known example shape."""
        name = self.hidden(op, inputs, **attrs)
        self.shapes[name] = shape
        return name

    def hidden(self, op: str, inputs: list[str], **attrs: Any) -> str:
        """Add a node whose result is no value of its own, such as a shape."""
        name = self.name()
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        return name


Step = Callable[[Graph, str], None]


def _unary(g: Graph, x: str) -> None:
    ops = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Softplus", "HardSwish", "Elu", "Erf")
    g.add(g.d.one(*ops), [x], g.shapes[x])


def _binary(g: Graph, x: str) -> None:
    shape = g.shapes[x]
    op = g.d.one("Add", "Sub", "Mul", "Max", "Min")
    same = [n for n, s in g.shapes.items() if s == shape]
    other = g.d.one(*same)
    if g.d.chance(0.5):
        other = g.weights(*(1,) * g.d.int(0, len(shape)))  # dims may have names, so no others
    g.add(op, [x, other] if g.d.chance(0.5) else [other, x], shape)


def _reduce(g: Graph, x: str) -> None:
    shape = g.shapes[x]
    axes = sorted({g.d.int(0, len(shape) - 1) for _ in range(g.d.int(1, 2))}) if shape else []
    if not axes or any(shape[a] == 0 for a in axes):
        return
    keep = g.d.int(0, 1)
    out = tuple(1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes)
    written = g.const([a - len(shape) if g.d.chance(0.5) else a for a in axes])
    op = g.d.one("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")
    y = g.add(op, [x, written], out, keepdims=keep)
    if keep and g.d.chance(0.5):
        g.add(g.d.one("Sub", "Add"), [x, y], shape)


def _transpose(g: Graph, x: str) -> None:
    if not g.shapes[x]:
        return  # nothing says that no axes are meant
    perm = [int(i) for i in g.d.rng.permutation(len(g.shapes[x]))]
    g.add("Transpose", [x], tuple(g.shapes[x][p] for p in perm), perm=perm)


def _flatten(g: Graph, x: str) -> None:
    """Join two neighboring axes by a shape that is computed from the tensor's own."""
    shape = g.shapes[x]
    if len(shape) < 2 or 0 in shape:
        return
    at = g.d.int(0, len(shape) - 2)
    whole = g.hidden("Shape", [x])
    front = g.hidden("Slice", [whole, g.const([0]), g.const([at])])
    back = g.hidden("Slice", [whole, g.const([at + 2]), g.const([len(shape)])])
    target = g.hidden("Concat", [front, g.const([-1]), back], axis=0)
    y = g.add("Reshape", [x, target], (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))
    if g.d.chance(0.5):
        g.add("Reshape", [g.hidden("Relu", [y]), whole], shape)


def _slice(g: Graph, x: str) -> None:
    shape = g.shapes[x]
    if not shape:
        return
    axis = g.d.int(0, len(shape) - 1)
    begin, end = g.d.one(0, 1, -2), g.d.one(2, 100, -1)
    step = g.d.one(1, 1, 2)
    size = len(range(shape[axis])[begin:end:step])
    out = (*shape[:axis], size, *shape[axis + 1 :])
    g.add("Slice", [x, g.const([begin]), g.const([end]), g.const([axis]), g.const([step])], out)


def _concat(g: Graph, x: str) -> None:
    shape = g.shapes[x]
    if not shape:
        return
    axis = g.d.int(0, len(shape) - 1)
    same = [n for n, s in g.shapes.items() if s == shape]
    parts = [x, *(g.d.one(*same) for _ in range(g.d.int(1, 2)))]
    out = (*shape[:axis], shape[axis] * len(parts), *shape[axis + 1 :])
    g.add("Concat", parts, out, axis=axis - len(shape) if g.d.chance(0.5) else axis)


def _pad(g: Graph, x: str) -> None:
    shape = g.shapes[x]
    if not shape:
        return
    pads = [g.d.int(0, 2) for _ in range(2 * len(shape))]
    out = tuple(n + pads[i] + pads[len(shape) + i] for i, n in enumerate(shape))
    g.add("Pad", [x, g.const(pads)], out)


def _softmax(g: Graph, x: str) -> None:
    if g.shapes[x]:
        g.add("Softmax", [x], g.shapes[x], axis=g.d.axis(len(g.shapes[x])))


def _project(g: Graph, x: str) -> None:
    """Multiply by a matrix what the last axis is made of: its first element, four times."""
    shape = g.shapes[x]
    if not shape or not 0 < shape[-1] < 64:
        return
    four = g.hidden("Slice", [x, g.const([0]), g.const([1]), g.const([-1])])
    wide = g.hidden("Concat", [four] * 4, axis=-1)
    g.add("MatMul", [wide, g.weights(4, 6)], (*shape[:-1], 6))


def _attention(g: Graph, x: str) -> None:
    """Multiply a tensor with its own transpose, and back."""
    shape = g.shapes[x]
    if len(shape) < 2 or 0 in shape:
        return
    perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = g.hidden("Transpose", [x], perm=perm)
    scores = g.hidden("Softmax", [g.hidden("MatMul", [x, turned])], axis=-1)
    g.add("MatMul", [scores, x], shape)


def _image(g: Graph, x: str) -> str:
    """Return a value of rank 4 with one channel, and note its shape."""
    shape = g.shapes[x]
    if len(shape) < 2 or 0 in shape:
        return ""
    y = g.hidden("Unsqueeze", [x, g.const([1])]) if len(shape) == 3 else x
    if len(shape) == 2:
        y = g.hidden("Unsqueeze", [x, g.const([0, 1])])
    if len(shape) == 4:
        y = g.hidden("ReduceMean", [x, g.const([1])], keepdims=1)
    if len(shape) > 4:
        return ""
    n = 1 if len(shape) == 2 else shape[0]
    g.shapes[y] = (n, 1, *shape[-2:])
    return y


def _conv(g: Graph, x: str) -> None:
    y = _image(g, x)
    if not y:
        return
    n, _, h, w = g.shapes[y]
    kernel, stride = (g.d.int(1, 3), g.d.int(1, 3)), (g.d.int(1, 2), g.d.int(1, 2))
    out_c = g.d.one(1, 3, 8)
    pads = [kernel[0] - 1, kernel[1] - 1] * 2
    sizes = [(s + 2 * (k - 1) - k) // t + 1 for s, k, t in zip((h, w), kernel, stride, strict=True)]
    made = g.add(
        "Conv",
        [y, g.weights(out_c, 1, *kernel), g.weights(out_c)],
        (n, out_c, *sizes),
        strides=stride,
        pads=pads,
    )
    if g.d.chance(0.4):
        whole = [(s - 1) * 2 + 3 for s in sizes]
        g.add("ConvTranspose", [made, g.weights(out_c, 2, 3, 3)], (n, 2, *whole), strides=[2, 2])
    elif g.d.chance(0.5):
        numbers = [abs(g.d.rng.standard_normal(out_c)) + 0.5 for _ in range(4)]
        parameters = [g.const(v, np.float32) for v in numbers]
        g.add("BatchNormalization", [made, *parameters], (n, out_c, *sizes))


def _pool(g: Graph, x: str) -> None:
    y = _image(g, x)
    if not y:
        return
    n, c, h, w = g.shapes[y]
    if min(h, w) < 2:
        g.add("GlobalAveragePool", [y], (n, c, 1, 1))
        return
    op = g.d.one("MaxPool", "AveragePool")
    g.add(op, [y], (n, c, h // 2, w // 2), kernel_shape=[2, 2], strides=[2, 2])


def _resize(g: Graph, x: str) -> None:
    y = _image(g, x)
    if y and max(g.shapes[y]) < 40:
        n, c, h, w = g.shapes[y]
        mode = g.d.one("nearest", "linear")
        scales = g.const([1, 1, 2, 2], np.float32)
        g.add(
            "Resize",
            [y, "", scales],
            (n, c, 2 * h, 2 * w),
            mode=mode,
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )


def _gather(g: Graph, x: str) -> None:
    shape = g.shapes[x]
    if not shape or 0 in shape:
        return
    axis = g.d.int(0, len(shape) - 1)
    index = g.const(g.d.one([0], [0, -1, 0], [[-1], [0]]))
    ranks = {v.name: v for v in g.fixed}[index].dims
    g.add("Gather", [x, index], (*shape[:axis], *ranks, *shape[axis + 1 :]), axis=axis)


def _branch(g: Graph, x: str) -> None:
    """Choose by a sum between two forms of a value."""
    shape = g.shapes[x]
    total = g.hidden("ReduceSum", [x], keepdims=0)
    test = g.hidden("Greater", [total, g.const(0.1, np.float32)])
    branches = []
    for op in ("Neg", "Sigmoid"):
        out = g.name()
        node = helper.make_node(op, [x], [out])
        info = onnx.ValueInfoProto(name=out)
        info.type.tensor_type.elem_type = TensorProto.FLOAT
        branches.append(helper.make_graph([node], op, [], [info]))
    g.add("If", [test], shape, then_branch=branches[0], else_branch=branches[1])


def _select(g: Graph, x: str) -> None:
    test = g.hidden("Less", [x, g.const(0.0, np.float32)])
    g.add("Where", [test, x, g.const(0.5, np.float32)], g.shapes[x])


STEPS: tuple[Step, ...] = (
    _unary,
    _unary,
    _binary,
    _binary,
    _reduce,
    _transpose,
    _flatten,
    _slice,
    _concat,
    _pad,
    _softmax,
    _project,
    _attention,
    _conv,
    _conv,
    _pool,
    _resize,
    _gather,
    _branch,
    _select,
)
MOST = 4096


def draw_graph(seed: int) -> Case:
    """Return the graph of a seed."""
    d = Draw(seed)
    g = Graph(d)
    symbolic = d.chance(0.5)
    infos, values = [], {}
    for i in range(d.int(1, 2)):
        shape = tuple(d.one(1, 2, 3, 4, 5, 7) for _ in range(d.int(1, 4)))
        name = f"x{i}"
        dims = [f"{name}_{a}" if symbolic and d.chance(0.6) else n for a, n in enumerate(shape)]
        infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
        values[name] = d.array(shape, np.dtype("float32"), special=0, scale=1)
        g.shapes[name] = shape
    for _ in range(d.int(3, 9)):
        x = g.pick()
        if len(g.shapes[x]) <= 5 and int(np.prod(g.shapes[x])) <= MOST:
            d.one(*STEPS)(g, x)
    made = {o for n in g.nodes for o in n.output}
    read = {i for n in g.nodes for i in n.input}
    ends = [n for n in g.shapes if n in made and n not in read] or [*made][-1:]
    return _case(seed, g, infos, values, ends)


def _case(
    seed: int, g: Graph, infos: list[onnx.ValueInfoProto], values: dict[str, Array], ends: list[str]
) -> Case:
    outs = []
    for name in ends:
        info = onnx.ValueInfoProto(name=name)
        info.type.tensor_type.elem_type = TensorProto.FLOAT
        outs.append(info)
    if not ends:  # nothing could be drawn: a graph must have an output
        g.nodes.append(helper.make_node("Identity", ["x0"], ["y"]))
        outs.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    graph = helper.make_graph(g.nodes, "drawn", infos, outs, g.fixed)
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    return Case(seed, "graph", model, values)
