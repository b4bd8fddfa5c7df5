"""Takes what a device runs as one out of its block: each region becomes a function with a place.

The planner writes on an operation which region it belongs to (`@npu0#dense_1`). Operations of a block
with the same region become one primitive function, which is called where they stood:

    let y @npu0 = conv(x, w) in @npu0#dense_1;
    let z @npu0 = relu(y) in @npu0#dense_1;           ->        let z @npu0 = @conv_relu(x, w);

What is in the function is what the planner saw: no later pass changes it, its layouts or its borders.
Who makes code for the device gets it as it is.

A region is convex: no way leads out of it and back into it. Still, operations that read a part of it
may stand between its members, and others that it reads behind the first of them. So the block is put
in an order in which the region is one step: each step behind what it reads, else in program order.
Values with an effect keep their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inlay.analysis.blocks import count_uses, mentioned, relet, values, with_blocks
from inlay.analysis.effects import EffectTable, effect_table
from inlay.arith.expr import Sym
from inlay.base.diagnostics import InternalError
from inlay.base.graph import dependency_order
from inlay.ir import walk
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import Call, Expr, Function, Let, OpRef, Var
from inlay.ir.module import Module
from inlay.ops._define import FusionPattern
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._groups import Group
from inlay.transforms._nodes import Node
from inlay.transforms._outline import Outliner, bind


def run(module: Module, context: PassContext) -> Module:
    """Outline the regions of every block. Cost: linear, n log n in blocks that have any.

    Raises:
        InternalError: a region is not convex.
    """
    operators = context.ops
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    if not any(_region(v) for f in module.functions.values() for v in values(f.body)):
        return module
    outlining = _Outlining(Outliner(module), operators, effect_table(module))
    functions = {
        name: f if f.primitive is not None else outlining.function(f) for name, f in module.functions.items()
    }
    return module.with_functions({**functions, **outlining.outliner.made})


def _region(value: Expr) -> str:
    return value.place.region if isinstance(value, Call) and value.place is not None else ""


@dataclass(slots=True)
class _Outlining:
    """Outlines the functions of one module, one after the other."""

    outliner: Outliner
    operators: OperatorTable
    effects: EffectTable
    reads: Mapping[Var, int] | None = None

    def function(self, function: Function) -> Function:
        """Return a global function with its regions taken out."""
        self.reads = count_uses(function.body)
        return replace(function, body=self._block(function.body))

    def _block(self, block: Expr) -> Expr:
        lets, result = walk.spine(block)
        regions: dict[str, list[int]] = {}
        for index, let in enumerate(lets):
            if name := _region(let.value):
                regions.setdefault(name, []).append(index)
        made: Expr = self._value(result)
        for step in reversed(self._ordered(lets, regions)):
            if name := _region(lets[step[0]].value):
                group = self._group(lets, regions[name])
                made = bind(group, self.outliner.call(group), made)
            else:
                made = relet(lets[step[0]], self._value(lets[step[0]].value), made)
        return made

    def _value(self, value: Expr) -> Expr:
        """Return a value with the regions of its nested blocks taken out."""
        is_kernel = isinstance(value, Function) and value.primitive is not None
        return value if is_kernel else with_blocks(value, self._block)

    def _group(self, lets: Sequence[Let], members: Sequence[int]) -> Group:
        assert self.reads is not None, "set with each function"
        nodes: list[Node] = []
        for index in members:
            let = lets[index]
            call = let.value
            assert isinstance(call, Call), "regions are of operations"
            assert isinstance(call.callee, OpRef), "regions are of operations"
            assert call.place is not None, "regions are in places"
            plain = replace(call, place=replace(call.place, region=""))
            definition = self.operators.definition(call.callee.op)
            nodes.append(Node(index, replace(let, value=plain), plain, definition, call.type))
        inside = Counter(a for n in nodes for a in n.call.args if isinstance(a, Var))
        results = [n for n in nodes if self.reads.get(n.let.var, 0) > inside[n.let.var]]
        contractions = (n for n in nodes if n.definition.pattern is FusionPattern.CONTRACTION)
        anchor = next(contractions, nodes[-1])
        return Group(nodes, anchor, results)

    def _ordered(self, lets: Sequence[Let], regions: Mapping[str, list[int]]) -> list[list[int]]:
        """Return the lets in steps, a region being one, each behind what it reads."""
        if not regions:
            return [[i] for i in range(len(lets))]
        steps = [*regions.values(), *([i] for i, x in enumerate(lets) if not _region(x.value))]
        step_of = {i: s for s, members in enumerate(steps) for i in members}
        maker: dict[Var | Sym, int] = {let.var: step_of[i] for i, let in enumerate(lets)}
        for index, let in enumerate(lets):
            for dim in opened_dims(let.value.type, let.var.type):
                maker[dim.sym] = step_of[index]
        waits: list[set[int]] = [set() for _ in steps]
        last: int | None = None
        for index, let in enumerate(lets):
            here = step_of[index]
            read = {maker[x] for x in mentioned(let.value) if x in maker}
            if self.effects.of(let.value):
                read |= set() if last is None else {last}
                last = here
            waits[here] |= read - {here}
        order = dependency_order(waits, [members[0] for members in steps])
        if order is None:
            raise InternalError("a region is not convex: a way leads out of it and back into it")
        return [steps[s] for s in order]


PASS = Pass(
    __name__, run, "take what a device runs as one out of its block", requires=(Property.ANF, Property.PLACED)
)
