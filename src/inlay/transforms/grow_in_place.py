"""Lets what a loop carries grow where it is: concatenation to its end becomes `extend`.

    loop(int(i + 1), concat{axis=0}(past, x))      becomes
    loop(int(i + 1), extend{axis=0}(past, x))

`concat` is a kernel that copies all its operands into a new tensor: over n turns that is quadratic in
n. `extend` is an instruction that adds to its first operand in place where nobody else sees it and its
storage has room, and that takes twice as much room where it has not: linear in n. It needs dims of 1
before the axis, because only then does what is added come behind what is there.

Where other dims stand before the axis, as the heads of a cache of keys `[1, heads, n, d]`, the loop
carries the tensor with that axis first, and its readers get it through a transpose. Those that read
all of it in any order, as products do, read it as it lies.

    let present = concat{axis=2}(past, x);         let rows = transpose(x);
    loop(int(i + 1), present)             becomes  let grown = extend{axis=0}(past.rows, rows);
                                                   let present = transpose(grown);
                                                   loop(int(i + 1), grown)

What was taken out of a cell grows in the same way, where it has no other use and dims of 1 before the axis:
it is put back, and comes round in the next turn or call. Elsewhere a concatenation has one turn, and its
result a place in the plan of its function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from inlay.analysis.blocks import count_uses, definitions, nested, operands, spine, values, with_blocks
from inlay.analysis.loops import loops_of
from inlay.ir import make
from inlay.ir.entry_state import has_axis_first
from inlay.ir.expr import Arm, Call, Expr, Function, If, Let, Match, RefTake, Var
from inlay.ir.module import Module
from inlay.ir.op import Op
from inlay.ir.types import FuncType, TensorType
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._growing import (
    Written,
    axis_back,
    axis_front,
    block_of,
    carried_var,
    extended,
    growth_axis,
)


def run(module: Module, context: PassContext) -> Module:
    """Rewrite what loops carry. Cost: linear."""
    transpose = context.ops.find("transpose")
    if transpose is None:
        return module
    return module.with_functions({n: _rewrite(f, transpose) for n, f in module.functions.items()})


@dataclass(frozen=True, slots=True)
class _Growing:
    """A parameter of a loop that concatenations make longer.

    Attributes:
        loop: the variable of the loop.
        position: of the parameter.
        param: the parameter.
        axis: that grows.
        made: the variables of the concatenations.
        carried: the parameter of the new loop: the same variable, or one with the axis first.
    """

    loop: Var
    position: int
    param: Var
    axis: int
    made: tuple[Var, ...]
    carried: Var

    @property
    def is_moved(self) -> bool:
        """Whether the loop carries it with the axis first."""
        return self.carried is not self.param


def _rewrite(function: Function, transpose: Op) -> Function:
    found = _find(function)
    if found:
        function = replace(function, body=_Rewriter(found, transpose).block(function.body))
    known = definitions(function.body)
    if not any(isinstance(value, RefTake) for value in known.values()):
        return function
    return replace(function, body=_Taken(known, count_uses(function.body), transpose).block(function.body))


@dataclass(frozen=True, slots=True)
class _Taken:
    """Extends contents of cells: lets of a function, how often variables are mentioned, and the operator."""

    known: Mapping[Var, Expr]
    uses: Mapping[Var, int]
    transpose: Op

    def block(self, block: Expr) -> Expr:
        """Rewrite a block."""
        lets, tail = spine(block)
        written: Written = []
        for let in lets:
            first = let.value.args[0] if isinstance(let.value, Call) and let.value.args else None
            axis = self._axis(let.var, first)
            if axis is None:
                written.append((let.var, with_blocks(let.value, self.block), let))
            else:
                assert isinstance(first, Var), "what grows has a name"
                extended(let, first, axis, self.transpose, written, is_moved=False)
        return block_of(written, with_blocks(tail, self.block))

    def _axis(self, made: Var, first: Expr | None) -> int | None:
        """Return the axis along which a variable is the content of a cell and more; None where it is not."""
        if not isinstance(first, Var) or not isinstance(self.known.get(first), RefTake):
            return None
        axis = growth_axis(first, made, self.known)
        if axis is None or self.uses.get(first) != 1 or not isinstance(first.type, TensorType):
            return None
        return None if has_axis_first(first.type, axis) else axis


# ------------------------------------------------------------------------------- what is possible


def _find(function: Function) -> list[_Growing]:
    known = definitions(function.body)
    found: list[_Growing] = []
    for loop in loops_of(function):
        again = [v for v in values(loop.function.body) if isinstance(v, Call) and v.callee is loop.var]
        for position, param in enumerate(loop.function.params):
            args = dict.fromkeys(c.args[position] for c in again)
            made = tuple(a for a in args if a is not param)
            axes = {growth_axis(param, a, known) for a in made}
            if len(axes) != 1 or not isinstance(param.type, TensorType):
                continue
            (axis,) = axes
            if axis is None:
                continue
            carried = carried_var(param, axis)
            found.append(_Growing(loop.var, position, param, axis, made, carried))  # type: ignore[arg-type]
    return found


# ----------------------------------------------------------------------------------- rewriting


class _Rewriter:
    """Writes loops that carry what grows, as it is or with its axis first."""

    def __init__(self, found: list[_Growing], transpose: Op) -> None:
        self.transpose = transpose
        self.by_made = {v: g for g in found for v in g.made}
        self.by_loop: dict[Var, list[_Growing]] = {}
        for g in found:
            if g.is_moved:
                self.by_loop.setdefault(g.loop, []).append(g)
        self.loops: dict[Var, Var] = {}
        self.inside: set[Var] = set()
        self.grown: dict[Expr, Var] = {g.param: g.carried for g in found if g.is_moved}

    def block(self, block: Expr) -> Expr:
        """Rewrite a block."""
        lets, tail = spine(block)
        written: Written = []
        for let in lets:
            growing = self.by_made.get(let.var)
            if growing is not None:
                self._extend(let, growing, written)
            elif let.var in self.by_loop:
                assert isinstance(let.value, Function), "loops are functions"
                function = self._loop(let.var, let.value)
                written.append((self.loops[let.var], function, let))
            else:
                written.append((let.var, self._value(let.value, written), let))
        return block_of(written, self._value(tail, written))

    def _extend(self, let: Let, g: _Growing, written: Written) -> None:
        grown = extended(let, g.carried, g.axis, self.transpose, written, is_moved=g.is_moved)
        if g.is_moved:
            self.grown[let.var] = grown

    def _loop(self, var: Var, node: Function) -> Function:
        params, declared = list(node.params), list(node.type.params)
        for g in self.by_loop[var]:
            params[g.position], declared[g.position] = g.carried, g.carried.type
        t = FuncType(tuple(declared), node.type.result, node.type.dims, node.type.type_vars)
        self.loops[var] = Var(var.name, t, var.span, var.place)
        self.inside.add(var)
        body = self.block(node.body)
        self.inside.remove(var)
        for g in self.by_loop[var]:
            body = _where_read(g.param, axis_back(g.carried, g.axis, g.param, self.transpose), body)
        return replace(node, params=tuple(params), body=body, type=t)

    def _value(self, value: Expr, written: Written) -> Expr:
        match value:
            case Call(callee=Var() as callee) if callee in self.loops:
                args = list(value.args)
                for g in self.by_loop[callee]:
                    old = args[g.position]
                    if callee in self.inside:
                        args[g.position] = self.grown[old]
                    else:
                        args[g.position] = axis_front(old, g.axis, self.transpose, written)
                return replace(value, callee=self.loops[callee], args=tuple(args))
            case _:
                return with_blocks(value, self.block)


def _where_read(var: Var, value: Expr, body: Expr) -> Expr:
    """Bind a variable in the innermost block that encloses all its uses.

    A loop that only gives it back when it ends is not to compute it in every turn.
    """
    lets, tail = spine(body)
    own = [*(x for let in lets for x in values(let.value)), tail]
    arms = nested(tail) if isinstance(tail, (If, Match)) else ()
    readers = [index for index, arm in enumerate(arms) if count_uses(arm).get(var)]
    if any(x is var or var in operands(x) for x in own) or len(readers) != 1:
        return make.let(var, value, body)
    (index,) = readers
    inner = _where_read(var, value, arms[index])
    if isinstance(tail, If):
        end: Expr = replace(tail, **{("then", "otherwise")[index]: inner})
    else:
        assert isinstance(tail, Match), "branches have arms"
        new = list(tail.arms)
        new[index] = Arm(new[index].pattern, inner)
        end = replace(tail, arms=tuple(new))
    for let in reversed(lets):
        end = make.let(let.var, let.value, end, span=let.span, place=let.place)
    return end


PASS = Pass(__name__, run, "let what loops carry grow where it is", requires=(Property.ANF,))
