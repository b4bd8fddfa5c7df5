"""Draws nodes of ONNX models that are typed and mostly run; `draw_control.py` makes models of them.

A value of a model is known here by its element type and its axes. An axis is a number, or an object
that stands for a size known to the model alone: two axes that are the same object have the same
size. Values stay small, by clips, and those that conditions, trip counts and indices come from are
whole numbers, exact in any order of summation: rounding decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Unknown:
    """A size that only the model knows."""


Axis = int | Unknown
ELEMENTS = {
    "f": (TensorProto.FLOAT, np.float32),
    "d": (TensorProto.DOUBLE, np.float64),
    "l": (TensorProto.INT64, np.int64),
    "i": (TensorProto.INT32, np.int32),
    "b": (TensorProto.BOOL, np.bool_),
}
"""Element types: of the model, and of its inputs."""

NUMBERS = "fdli"
MAX_RANK = 4


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A value of a model.

    Attributes:
        name: in the model.
        kind: its element type.
        axes: numbers, or objects that stand for sizes.
        exact: whether it is a whole number whatever the order of computation.
        items: whether it is a sequence of such tensors, of any sizes.
    """

    name: str
    kind: str
    axes: tuple[Axis, ...]
    exact: bool = True
    items: bool = False

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.axes)


@dataclass(slots=True)
class Graph:
    """A graph that is being drawn.

    Attributes:
        depth: in how many graphs it is.
        values: what it may use.
        own: what its nodes make.
    """

    depth: int
    values: list[Drawn]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    own: list[Drawn] = field(default_factory=list)


def same(a: Drawn, b: Drawn) -> bool:
    """Whether two values have one type."""
    return (a.kind, a.axes, a.items) == (b.kind, b.axes, b.items)


class Nodes:
    """Draws nodes into graphs."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.names = 0
        self.opset = random.choice((13, 16, 17, 21))

    # ------------------------------------------------------------------ choices

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def choose(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def some(
        self, g: Graph, kinds: str = "", ranks: Sequence[int] = (0, 1, 2, 3), *, exact: bool = False
    ) -> Drawn | None:
        """Return a tensor in scope that fits; mostly one of the last."""
        found = [
            v
            for v in g.values
            if not v.items and (not kinds or v.kind in kinds) and v.rank in ranks and (v.exact or not exact)
        ]
        if not found:
            return None
        return self.choose(found[-4:]) if self.chance(0.6) else self.choose(found)

    def like(self, g: Graph, x: Drawn) -> Drawn:
        """Return a tensor of the same type, perhaps the same one, perhaps a scalar."""
        found = [v for v in g.values if same(v, x)]
        scalars = [v for v in g.values if v.kind == x.kind and not v.rank and not v.items]
        return self.choose([*found, *scalars] if self.chance(0.2) else found)

    # ------------------------------------------------------------------ nodes

    def emit(
        self,
        g: Graph,
        op: str,
        inputs: Sequence[Drawn],
        kind: str,
        axes: Sequence[Axis],
        /,
        *,
        exact: bool = True,
        **attrs: Any,
    ) -> Drawn:
        """Add a node of one result."""
        fine = exact and all(v.exact for v in inputs)
        out = Drawn(self.name("v"), kind, tuple(axes), fine)
        g.nodes.append(helper.make_node(op, [v.name for v in inputs], [out.name], **attrs))
        return self.add(g, out)

    def add(self, g: Graph, v: Drawn) -> Drawn:
        g.values.append(v)
        g.own.append(v)
        return v

    def constant(self, g: Graph, array: np.ndarray, kind: str) -> Drawn:
        """Make a constant: a node, or an initialiser."""
        out = Drawn(self.name("c"), kind, tuple(array.shape))
        tensor = numpy_helper.from_array(array, out.name)
        if self.chance(0.5):
            g.constants.append(tensor)
        else:
            g.nodes.append(helper.make_node("Constant", [], [out.name], value=tensor))
        return out

    def array(self, kind: str, shape: Sequence[int]) -> np.ndarray:
        values = [self.number(-4, 4) for _ in range(math.prod(shape))]
        return np.array(values).astype(ELEMENTS[kind][1]).reshape(shape)

    def ints(self, g: Graph, *values: int) -> Drawn:
        return self.constant(g, np.array(values, np.int64), "l")

    def scalar(self, g: Graph, value: float, kind: str = "l") -> Drawn:
        return self.constant(g, np.array(value, ELEMENTS[kind][1]), kind)

    def small(self, g: Graph, x: Drawn) -> Drawn:
        """Keep a tensor between -8 and 8."""
        if x.kind == "b":
            return x
        return self.emit(g, "Clip", [x, *(self.scalar(g, v, x.kind) for v in (-8, 8))], x.kind, x.axes)

    def whole(self, g: Graph, low: int, high: int) -> Drawn:
        """Return a scalar i64 between two numbers: of the data, of a counter, or constant."""
        scalars = [v for v in g.values if v.kind == "l" and not v.rank and v.exact and not v.items]
        x = self.choose(scalars) if scalars and self.chance(0.5) else self.some(g, exact=True)
        if x is None or self.chance(0.15):
            return self.scalar(g, self.number(low, high))
        if x.kind != "l":
            x = self.emit(g, "Cast", [x], "l", x.axes, to=TensorProto.INT64)
        if x.rank:
            x = self.emit(g, "ReduceSum", [x], "l", (), keepdims=0)
        x = self.emit(g, "Mod", [x, self.scalar(g, high - low + 1)], "l", ())
        return self.emit(g, "Add", [x, self.scalar(g, low)], "l", ()) if low else x

    def reduce(
        self, g: Graph, op: str, x: Drawn, axes: Sequence[int], kept: Sequence[Axis], *, keep: int
    ) -> Drawn:
        """Reduce axes, which are an attribute or an operand."""
        exact = op != "ReduceMean"
        if op == "ReduceSum" or self.opset >= 18:
            return self.emit(g, op, [x, self.ints(g, *axes)], x.kind, kept, exact=exact, keepdims=keep)
        return self.emit(g, op, [x], x.kind, kept, exact=exact, axes=list(axes), keepdims=keep)

    # ------------------------------------------------------------------ statements

    def unary(self, g: Graph) -> None:
        x = self.some(g)
        if x is None:
            return
        if x.kind == "b":
            self.emit(g, "Not", [x], "b", x.axes)
            return
        names = ["Neg", "Abs", "Identity", *(["Sign"] if x.exact else [])]
        if x.kind in "fd":
            names += ["Relu", "Tanh", "Sigmoid", "Exp"]
        op = self.choose(names)
        out = self.emit(g, op, [x], x.kind, x.axes, exact=op not in ("Tanh", "Sigmoid", "Exp"))
        if op == "Exp":
            self.small(g, out)

    def binary(self, g: Graph) -> None:
        x = self.some(g)
        if x is None:
            return
        y = self.like(g, x)
        if x.kind == "b":
            self.emit(g, self.choose(("And", "Or", "Xor")), [x, y], "b", x.axes)
            return
        op = self.choose(("Add", "Sub", "Mul", "Max", "Min"))
        pair = [x, y] if self.chance(0.5) else [y, x]
        out = self.emit(g, op, pair, x.kind, x.axes)
        if op in ("Add", "Sub", "Mul"):
            self.small(g, out)

    def compare(self, g: Graph) -> None:
        x = self.some(g, NUMBERS, exact=True)
        if x is None:
            return
        y = self.like(g, x)
        if not y.exact:
            y = self.scalar(g, 1, x.kind)
        self.emit(g, self.choose(("Less", "Greater", "Equal")), [x, y], "b", x.axes)

    def where(self, g: Graph) -> None:
        c = self.some(g, "b")
        found = [v for v in g.values if c and v.axes == c.axes and v.kind != "b" and not v.items]
        if c is None or not found:
            return
        x = self.choose(found)
        self.emit(g, "Where", [c, x, self.like(g, x)], x.kind, x.axes)

    def cast(self, g: Graph) -> None:
        x = self.some(g, exact=True)
        if x is not None:
            kind = self.choose("fdlib")
            self.emit(g, "Cast", [x], kind, x.axes, to=ELEMENTS[kind][0])

    def reduction(self, g: Graph) -> None:
        x = self.some(g, NUMBERS, (1, 2, 3))
        if x is None:
            return
        axis = self.number(0, x.rank - 1)
        keep = self.number(0, 1)
        axes = (*x.axes[:axis], *([1] if keep else []), *x.axes[axis + 1 :])
        op = self.choose(("ReduceSum", "ReduceMax", "ReduceMean"))
        if op == "ReduceMean" and x.kind not in "fd":
            op = "ReduceSum"
        self.small(g, self.reduce(g, op, x, [axis], axes, keep=keep))

    def concat(self, g: Graph) -> None:
        x = self.some(g, ranks=(1, 2, 3))
        if x is None:
            return
        axis = self.number(0, x.rank - 1)
        y = self.choose(
            [
                v
                for v in g.values
                if v.kind == x.kind
                and v.rank == x.rank
                and not v.items
                and v.axes[:axis] == x.axes[:axis]
                and v.axes[axis + 1 :] == x.axes[axis + 1 :]
            ]
        )
        a, b = x.axes[axis], y.axes[axis]
        size = a + b if isinstance(a, int) and isinstance(b, int) else Unknown()
        self.emit(g, "Concat", [x, y], x.kind, (*x.axes[:axis], size, *x.axes[axis + 1 :]), axis=axis)

    def transpose(self, g: Graph) -> None:
        x = self.some(g, ranks=(2, 3))
        if x is not None:
            perm = self.random.sample(range(x.rank), x.rank)
            self.emit(g, "Transpose", [x], x.kind, [x.axes[p] for p in perm], perm=perm)

    def product(self, g: Graph) -> None:
        x = self.some(g, "fd", (2, 3))
        if x is None:
            return
        found = [
            v
            for v in g.values
            if v.kind == x.kind and v.rank == 2 and not v.items and v.axes[0] == x.axes[-1]
        ]
        if found:
            y = self.choose(found)
        elif isinstance(x.axes[-1], int):
            y = self.constant(g, self.array(x.kind, (x.axes[-1], self.number(1, 3))), x.kind)
        else:
            return
        self.small(g, self.emit(g, "MatMul", [x, y], x.kind, (*x.axes[:-1], y.axes[1])))

    def unsqueeze(self, g: Graph) -> None:
        x = self.some(g)
        if x is None or x.rank >= MAX_RANK - 1:
            return
        axis = self.number(0, x.rank)
        self.emit(g, "Unsqueeze", [x, self.ints(g, axis)], x.kind, (*x.axes[:axis], 1, *x.axes[axis:]))

    def squeeze(self, g: Graph) -> None:
        found = [v for v in g.values if 1 in v.axes and not v.items]
        if found:
            x = self.choose(found)
            axis = x.axes.index(1)
            axes = x.axes[:axis] + x.axes[axis + 1 :]
            self.emit(g, "Squeeze", [x, self.ints(g, axis)], x.kind, axes)

    def flatten(self, g: Graph) -> None:
        x = self.some(g)
        if x is None:
            return
        known = [a for a in x.axes if isinstance(a, int)]
        size = math.prod(known) if len(known) == x.rank else Unknown()
        self.emit(g, "Reshape", [x, self.ints(g, -1)], x.kind, (size,))

    def slice(self, g: Graph) -> None:
        x = self.some(g, ranks=(1, 2, 3))
        if x is None:
            return
        axis = self.number(0, x.rank - 1)
        if self.chance(0.5):
            ends = [self.ints(g, self.number(-2, 2)) for _ in range(2)]
        else:
            ends = [
                self.emit(g, "Reshape", [self.whole(g, 0, 3), self.ints(g, 1)], "l", (1,)) for _ in range(2)
            ]
        step = self.ints(g, self.choose((1, 1, 1, 2, -1)))
        axes = (*x.axes[:axis], Unknown(), *x.axes[axis + 1 :])
        self.emit(g, "Slice", [x, *ends, self.ints(g, axis), step], x.kind, axes)

    def gather(self, g: Graph) -> None:
        """Read rows: of a table, of what is computed, at what a counter or the data says."""
        x = self.some(g, ranks=(1, 2, 3))
        if x is None or self.chance(0.3):
            shape = (self.number(2, 4), *(self.number(1, 3) for _ in range(self.number(0, 2))))
            kind = self.choose("ffl")
            x = self.constant(g, self.array(kind, shape), kind)
        axis = self.choose((0, 0, x.rank - 1))
        size = x.axes[axis]
        if not isinstance(size, int):
            index = self.scalar(g, 0)
        elif size == 0:
            return
        else:
            index = self.whole(g, 0, size - 1)
        if self.chance(0.4):
            index = self.emit(g, "Reshape", [index, self.ints(g, 1)], "l", (1,))
        axes = (*x.axes[:axis], *index.axes, *x.axes[axis + 1 :])
        self.emit(g, "Gather", [x, index], x.kind, axes, axis=axis)

    def size(self, g: Graph) -> None:
        x = self.some(g, ranks=(1, 2, 3))
        if x is not None:
            shape = self.emit(g, "Shape", [x], "l", (x.rank,))
            if self.chance(0.7):
                at = self.scalar(g, self.number(0, x.rank - 1))
                self.emit(g, "Gather", [shape, at], "l", ())

    def range(self, g: Graph) -> None:
        ends = [self.scalar(g, 0), self.whole(g, 0, 4), self.scalar(g, 1)]
        self.emit(g, "Range", ends, "l", (Unknown(),))

    def expand(self, g: Graph) -> None:
        """Stretch to a size that a number says."""
        x = self.some(g, ranks=(0, 1))
        if x is None:
            return
        first = self.emit(g, "Reshape", [self.whole(g, 1, 3), self.ints(g, 1)], "l", (1,))
        shape = self.emit(g, "Concat", [first, self.ints(g, *[1] * x.rank)], "l", (x.rank + 1,), axis=0)
        self.emit(g, "Expand", [x, shape], x.kind, (Unknown(), *x.axes))

    def nonzero(self, g: Graph) -> None:
        x = self.some(g, "flb", (1, 2), exact=True)
        if x is not None:
            self.emit(g, "NonZero", [x], "l", (x.rank, Unknown()))

    def cumsum(self, g: Graph) -> None:
        x = self.some(g, "fl", (1, 2))
        if x is not None:
            at = self.scalar(g, self.number(0, x.rank - 1))
            self.small(g, self.emit(g, "CumSum", [x, at], x.kind, x.axes))

    def update(self, g: Graph) -> None:
        """Write a row of a tensor at a counter, as caches are written."""
        found = [
            v
            for v in g.values
            if v.rank == 2 and v.kind != "b" and isinstance(v.axes[0], int) and v.axes[0] and not v.items
        ]
        if not found:
            return
        x = self.choose(found[-4:])
        row = self.reduce(g, "ReduceSum", x, [0], (1, x.axes[1]), keep=1)
        place = self.emit(g, "Reshape", [self.whole(g, 0, x.axes[0] - 1), self.ints(g, 1, 1)], "l", (1, 1))
        self.small(g, self.emit(g, "ScatterND", [x, place, row], x.kind, x.axes))

    # ------------------------------------------------------------------ sequences

    def sequence(self, g: Graph) -> None:
        x = self.some(g, "fl")
        if x is not None:
            self.node_of_sequence(g, "SequenceConstruct", [x], x)

    def insert(self, g: Graph) -> None:
        found = [v for v in g.values if v.items]
        if not found:
            self.sequence(g)
            return
        s = self.choose(found)
        fitting = [v for v in g.values if v.kind == s.kind and v.rank == s.rank and not v.items]
        if fitting:
            self.node_of_sequence(g, "SequenceInsert", [s, self.choose(fitting)], s)

    def item(self, g: Graph) -> None:
        found = [v for v in g.values if v.items]
        if not found:
            return
        s = self.choose(found)
        if self.chance(0.4):
            self.emit(g, "SequenceLength", [s], "l", ())
            return
        at = self.scalar(g, self.choose((0, 0, -1)))
        self.emit(g, "SequenceAt", [s, at], s.kind, [Unknown() for _ in s.axes])

    def node_of_sequence(self, g: Graph, op: str, inputs: Sequence[Drawn], like: Drawn) -> None:
        exact = all(v.exact for v in inputs)
        axes = tuple([Unknown() for _ in like.axes])
        out = Drawn(self.name("s"), like.kind, axes, exact, items=True)
        g.nodes.append(helper.make_node(op, [v.name for v in inputs], [out.name]))
        self.add(g, out)


PLAIN: tuple[Callable[[Nodes, Graph], None], ...] = (
    *(Nodes.unary, Nodes.binary, Nodes.binary, Nodes.compare, Nodes.where, Nodes.cast),
    *(Nodes.reduction, Nodes.concat, Nodes.transpose, Nodes.product, Nodes.unsqueeze),
    *(Nodes.squeeze, Nodes.flatten, Nodes.slice, Nodes.gather, Nodes.gather, Nodes.size),
    *(Nodes.range, Nodes.expand, Nodes.nonzero, Nodes.cumsum, Nodes.update),
    *(Nodes.sequence, Nodes.insert, Nodes.item),
)
