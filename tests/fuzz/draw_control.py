"""Draws ONNX models with If, Loop and Scan, by seeds.

    model = drawn(7)               the model that seed 7 names
    inputs = inputs_of(model, 7)   what it runs on

Carried values keep their sizes or change them, change places, come from outside or from a constant,
are carried twice; bodies read counters, tables, what is around them, and hold graphs themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.draw_nodes import ELEMENTS, PLAIN, Axis, Drawn, Graph, Nodes, Unknown

DEEPEST = 3
"""Levels of graphs in graphs."""

MOST = 4
"""Turns of a loop."""


def drawn(seed: int) -> onnx.ModelProto:
    """Return the model that a seed names."""
    return _Control(Random(seed)).model()


def inputs_of(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Return small whole numbers for the inputs of such a model."""
    random = Random(seed)
    sizes: dict[str, int] = {}
    numbers = dict(ELEMENTS.values())
    found: dict[str, np.ndarray] = {}
    for info in model.graph.input:
        t = info.type.tensor_type
        shape = [
            sizes.setdefault(d.dim_param, random.randint(1, 4)) if d.dim_param else d.dim_value
            for d in t.shape.dim
        ]
        values = [random.randint(-4, 4) for _ in range(math.prod(shape))]
        found[info.name] = np.array(values).astype(numbers[t.elem_type]).reshape(shape)
    return found


@dataclass(frozen=True, slots=True)
class _Carried:
    """A value that a loop carries.

    Attributes:
        start: what it is before.
        param: what it is in a turn.
        free: whether its sizes may change.
    """

    start: Drawn
    param: Drawn
    free: bool


class _Control(Nodes):
    """Draws models."""

    def model(self) -> onnx.ModelProto:
        tokens = {"n": Unknown(), "m": Unknown()}
        g = Graph(0, [])
        infos: list[onnx.ValueInfoProto] = []

        def take(name: str, kind: str, dims: Sequence[Any]) -> None:
            infos.append(helper.make_tensor_value_info(name, ELEMENTS[kind][0], dims))
            g.values.append(Drawn(name, kind, tuple([tokens.get(d, d) for d in dims])))

        for i in range(self.number(1, 3)):
            dims = [self.choose((*tokens, 1, 2, 3, 4)) for _ in range(self.number(0, 3))]
            take(f"x{i}", self.choose("fffld"), dims)
        if self.chance(0.5):
            take("count", "l", [])
        if self.chance(0.3):
            take("flag", "b", [])
        given = len(g.values)
        while not any(v.name.startswith(("if", "loop", "scan")) for v in g.values):
            self.statements(g, self.number(1, 6))
        made = [v for v in g.values[given:] if not v.items]
        kept = self.random.sample(made, min(len(made), self.number(1, 4)))
        outputs = [self.info(v) for v in dict.fromkeys([*kept, *made[-1:]])]
        graph = helper.make_graph(g.nodes, "control", infos, outputs, g.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def info(self, v: Drawn, *, certain: bool = False) -> onnx.ValueInfoProto:
        """Declare a value, more or less exactly."""
        element = ELEMENTS[v.kind][0]
        if v.items:
            t = helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, None))
            return helper.make_value_info(v.name, t)
        shape: list[Any] | None = [a if isinstance(a, int) else None for a in v.axes]
        if not certain and self.chance(0.5):
            shape = None
        return helper.make_tensor_value_info(v.name, element, shape)

    def statements(self, g: Graph, count: int) -> None:
        """Draw statements; most bodies are plain."""
        share = 0.45 if g.depth == 0 else 0.15 if g.depth < DEEPEST else 0
        for _ in range(count):
            if self.chance(share):
                self.choose((self.if_, self.loop, self.loop, self.scan))(g)
            else:
                self.choose(PLAIN)(self, g)

    def condition(self, g: Graph) -> Drawn:
        """Return a scalar bool: given, of the data, of a counter."""
        flags = [v for v in g.values if v.kind == "b" and not v.rank and v.exact and not v.items]
        if flags and self.chance(0.3):
            return self.choose(flags)
        ends = [self.whole(g, 0, 3), self.scalar(g, self.number(0, 3))]
        return self.emit(g, self.choose(("Less", "Equal", "Greater")), ends, "b", ())

    # ------------------------------------------------------------------ graphs in graphs

    def finish(
        self,
        g: Graph,
        inputs: Sequence[onnx.ValueInfoProto],
        results: Sequence[Drawn],
        *,
        certain: bool = False,
    ) -> onnx.GraphProto:
        """Close a graph; what it returns is made in it or given to it, under a name of its own."""
        given = {i.name for i in inputs}
        taken: set[str] = set()
        outs: list[Drawn] = []
        for v in results:
            if v.name in taken or (v not in g.own and v.name not in given) or self.chance(0.1):
                v = self.copy(g, v)
            taken.add(v.name)
            outs.append(v)
        infos = [self.info(v, certain=certain) for v in outs]
        return helper.make_graph(g.nodes, self.name("body"), list(inputs), infos, g.constants)

    def copy(self, g: Graph, v: Drawn) -> Drawn:
        out = Drawn(self.name("r"), v.kind, v.axes, v.exact, v.items)
        g.nodes.append(helper.make_node("Identity", [v.name], [out.name]))
        return out

    def fitting(self, g: Graph, v: Drawn, *, free: bool) -> Drawn:
        """Return a value that an arm, or a turn, may give where another is expected."""
        found = [
            w
            for w in g.values
            if (w.kind, w.rank, w.items) == (v.kind, v.rank, v.items)
            and (free or v.items or w.axes == v.axes)
            and w.exact >= v.exact
        ]
        recent = [w for w in found if w in g.own]
        return self.choose(recent if recent and self.chance(0.7) else found)

    def constant_shape(self, g: Graph, v: Drawn) -> bool:
        """Whether the size of a value is the same in all turns: it is known around the loop."""
        known = {a for w in g.values for a in w.axes}
        return v.rank < 3 and not v.items and all(isinstance(a, int) or a in known for a in v.axes)

    def rows(self, outside: Graph, body: Graph, one: Drawn, *, some: bool) -> list[Drawn]:
        """Return what the turns of a loop stack."""
        found = [v for v in body.values if self.constant_shape(outside, v)]
        rows = [self.choose(found) for _ in range(self.number(0, 2))] if found else []
        return rows if rows or some else [one]

    def if_(self, g: Graph) -> None:
        models = [self.choose(g.values) for _ in range(self.number(1, 2))]
        always = self.chance(0.1)
        condition = self.scalar(g, self.number(0, 1), "b") if always else self.condition(g)
        graphs: list[onnx.GraphProto] = []
        chosen: list[list[Drawn]] = []
        for _ in range(2):
            arm = Graph(g.depth + 1, list(g.values))
            self.statements(arm, self.number(0, 3))
            results = [self.fitting(arm, v, free=self.chance(0.5)) for v in models]
            chosen.append(results)
            graphs.append(self.finish(arm, (), results))
        outs: list[Drawn] = []
        for a, b in zip(*chosen, strict=True):
            axes = [p if p == q else Unknown() for p, q in zip(a.axes, b.axes, strict=True)]
            outs.append(self.result(g, "if", a, axes, exact=b.exact))
        arms = {"then_branch": graphs[0], "else_branch": graphs[1]}
        names = [v.name for v in outs]
        g.nodes.append(helper.make_node("If", [condition.name], names, **arms))
        for v in outs:
            self.add(g, v)

    def result(self, g: Graph, stem: str, like: Drawn, axes: Sequence[Axis], *, exact: bool = True) -> Drawn:
        """Return a result of a node, of which nobody knows the sizes that are known inside."""
        known = {a for w in g.values for a in w.axes}
        seen = [a if isinstance(a, int) or a in known else Unknown() for a in axes]
        return Drawn(self.name(stem), like.kind, tuple(seen), like.exact and exact, like.items)

    # ------------------------------------------------------------------ loops

    def carry(self, g: Graph, *, scan: bool) -> list[_Carried]:
        """Return what a loop carries; perhaps one value twice."""
        found = [v for v in g.values if not (scan and v.items)]
        carried: list[_Carried] = []
        for _ in range(self.number(0, 3)):
            v = self.choose(found)
            free = not scan and (v.items or self.chance(0.35))
            axes = tuple([Unknown() for _ in v.axes]) if free else v.axes
            param = Drawn(self.name("h"), v.kind, axes, v.exact, v.items)
            carried.append(_Carried(v, param, free))
        return carried

    def next(self, body: Graph, c: _Carried, all_: Sequence[_Carried]) -> Drawn:
        """Return what the next turn gets for a carried value."""
        p, way = c.param, self.number(0, 9)
        others = [
            q.param
            for q in all_
            if (q.param.kind, q.param.rank, q.param.items) == (p.kind, p.rank, p.items)
            and (c.free or q.param.axes == p.axes)
            and q.param.exact >= p.exact
        ]
        if way == 0:
            return p
        if way == 1:
            return self.choose(others)
        if way == 2:
            return c.start
        if way == 3 and not p.items and p.kind != "b" and all(isinstance(a, int) for a in p.axes):
            return self.constant(body, self.array(p.kind, p.axes), p.kind)  # type: ignore[arg-type]
        return self.fitting(body, p, free=c.free)

    def loop(self, g: Graph) -> None:
        carried = self.carry(g, scan=False)
        asks = self.chance(0.4)
        counts = not asks or self.chance(0.6)
        heads = [self.whole(g, 0, MOST).name if counts else "", ""]
        if self.chance(0.4):
            heads[1] = (self.condition(g) if asks else self.scalar(g, 1, "b")).name
        body = Graph(g.depth + 1, list(g.values))
        turn, going = Drawn(self.name("i"), "l", ()), Drawn(self.name("go"), "b", ())
        params = [turn, going, *(c.param for c in carried)]
        body.values += params
        self.statements(body, self.number(1, 4))
        nexts = [self.next(body, c, carried) for c in carried]
        again = self.again(body, turn, counts=counts) if asks else going
        if not asks and self.chance(0.5):
            again = self.scalar(body, 1, "b")
        rows = self.rows(g, body, turn, some=bool(nexts))
        infos = [self.info(v, certain=v in (turn, going)) for v in params]
        graph = self.finish(body, infos, [again, *nexts, *rows])
        outs = [
            self.result(g, "loop", c.start, c.param.axes, exact=n.exact)
            for c, n in zip(carried, nexts, strict=True)
        ]
        outs += [self.result(g, "loop", v, (Unknown(), *v.axes)) for v in rows]
        operands = [*heads, *(c.start.name for c in carried)]
        g.nodes.append(helper.make_node("Loop", operands, [v.name for v in outs], body=graph))
        for v in outs:
            self.add(g, v)

    def again(self, body: Graph, turn: Drawn, *, counts: bool) -> Drawn:
        """Return a condition to go on, which is false at some time where nothing else ends it."""
        if counts and self.chance(0.5):
            return self.condition(body)
        short = self.emit(body, "Less", [turn, self.scalar(body, self.number(0, MOST))], "b", ())
        if self.chance(0.4):
            return self.emit(body, "And", [short, self.condition(body)], "b", ())
        return short

    def scan(self, g: Graph) -> None:
        found = [v for v in g.values if not v.items and v.rank]
        if not found:
            return
        xs = [self.choose(found)]
        length = self.choose(xs[0].axes)
        xs += [v for v in found if len(xs) < 4 and length in v.axes and self.chance(0.2)]
        axes = [v.axes.index(length) for v in xs]
        carried = self.carry(g, scan=True)
        body = Graph(g.depth + 1, list(g.values))
        items = [
            Drawn(self.name("row"), x.kind, x.axes[:a] + x.axes[a + 1 :], x.exact)
            for x, a in zip(xs, axes, strict=True)
        ]
        params = [*(c.param for c in carried), *items]
        body.values += params
        self.statements(body, self.number(1, 3))
        nexts = [self.next(body, c, carried) for c in carried]
        rows = self.rows(g, body, items[0], some=bool(nexts))
        infos = [self.info(v, certain=True) for v in params]
        graph = self.finish(body, infos, [*nexts, *rows], certain=True)
        outs = [
            self.result(g, "scan", c.start, c.param.axes, exact=n.exact)
            for c, n in zip(carried, nexts, strict=True)
        ]
        places = [self.number(0, v.rank) for v in rows]
        for v, a in zip(rows, places, strict=True):
            outs.append(self.result(g, "scan", v, (*v.axes[:a], length, *v.axes[a:])))
        attrs: dict[str, Any] = {"body": graph, "num_scan_inputs": len(xs)}
        if any(axes) or self.chance(0.3):
            attrs["scan_input_axes"] = axes
        if rows and (any(places) or self.chance(0.3)):
            attrs["scan_output_axes"] = places
        if self.chance(0.4):
            attrs["scan_input_directions"] = [self.number(0, 1) for _ in xs]
        if rows and self.chance(0.4):
            attrs["scan_output_directions"] = [self.number(0, 1) for _ in rows]
        names = [v.name for v in (*(c.start for c in carried), *xs)]
        g.nodes.append(helper.make_node("Scan", names, [v.name for v in outs], **attrs))
        for v in outs:
            self.add(g, v)
