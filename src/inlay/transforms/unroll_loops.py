"""Makes straight code of loops: of one turn always, of more where a device takes all turns as one operation.

A loop of one turn repeats nothing, and as a loop it hides from every pass behind this one: kernels do not
fuse across its borders, and what it carries has buffers of its own for turns that never come.

Fixed-function hardware runs a whole layer of a recurrent network on one command; the program has a loop.
A candidate is a set of operations of one block, so a loop of known trip count becomes straight code first:

    let loop = fn<i>(i: int[i], h) { if (int_less(i, 2)) { ...; loop(i + 1, g(h)) } else { (i, h) } };
    let end = loop(0, a);                      ->      let h1 = g(a); let h2 = g(h1); let end = (2, h2);

All loops of several turns that qualify are tried at once, and devices are asked what they would take of the
result (`UnrollOptions.takes`). A loop stays as it is where no candidate has an operation of one of its turns,
so a program without such a device, and a loop that it cannot take, are what they were. Whether a candidate is
used is the planner's choice; where it prefers the host, that runs the turns one behind the other.

A tensor of which each turn sets another row is made of the rows at the end. Where that is not seen, as two
turns may set the same one, or none that there is, rows are set as in the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from inlay.analysis.blocks import nested
from inlay.analysis.loops import Loop, Role, loops_of, turns_of
from inlay.arith.expr import Int, Sym, substitute
from inlay.base.options import option
from inlay.ir import make
from inlay.ir.core_ops import GET_ROW, SET_ROW
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import Call, Const, Expr, Function, If, Let, OpRef, Project, Tuple, Var
from inlay.ir.module import Module
from inlay.ir.op import Op
from inlay.ir.types import IntType, TensorType
from inlay.ir.walk import spine
from inlay.ops.joining import CONCAT
from inlay.ops.joining import AxisAttrs as JoinAttrs
from inlay.ops.layout import RESHAPE
from inlay.ops.slicing import SLICE, AxesAttrs
from inlay.passes.contract import Pass, PassContext, Property, Remark
from inlay.transforms._blocks import BlockWriter, rewrite_module

Takes = Callable[[Module, PassContext], frozenset[int]]
"""Gives the operations of a module, by identity, that are in candidates of devices."""


@dataclass(frozen=True, slots=True)
class UnrollOptions:
    """Options of this pass."""

    most: int = option(0, help="turns of a loop that devices take as one; 0 for no such device")
    takes: Takes | None = None


def run(module: Module, context: PassContext) -> Module:
    """Unroll loops of one turn, and those that devices take.

    Cost: linear in what is unrolled, and what devices need to say.
    Required of `takes`: it names values of the module that it is given.
    """
    options = context.options_for(UnrollOptions)
    once = _loops(module, 1)
    for v, x in once.items():
        text = f"the loop '{v.name}' has one turn: it is straight code"
        context.remarks.add(Remark(PASS.name, "unrolled", "one-turn", text, x.function.span))
    if once:
        module = rewrite_module(module, _Unrolling(once).step)
    if options.takes is None or not (loops := _loops(module, options.most)):
        return module
    tried = _Unrolling(loops)
    rewritten = rewrite_module(module, tried.step)
    taken, made = options.takes(rewritten, context), _named(rewritten)
    chosen = {v: x for v, x in loops.items() if any(id(made.get(y)) in taken for y in tried.made[v])}
    for v, x in chosen.items():
        text = f"the {x.bound} turns of '{v.name}' stand one behind the other: a device takes them as one"
        context.remarks.add(Remark(PASS.name, "unrolled", "taken-as-one", text, x.function.span))
    return rewrite_module(module, _Unrolling(chosen).step) if chosen else module


def _loops(module: Module, most: int) -> Mapping[Var, Loop]:
    """Return the loops that have from 1 to so many turns."""
    functions = (f for f in module.functions.values() if f.primitive is None)
    return {x.var: x for f in functions for x in loops_of(f) if turns_of(x, most) is not None}


def _named(module: Module) -> Mapping[Var, Expr]:
    found: dict[Var, Expr] = {}
    pending = [f.body for f in module.functions.values()]
    while pending:
        lets, tail = spine(pending.pop())
        pending += nested(tail)
        for let in lets:
            found[let.var] = let.value
            pending += nested(let.value)
    return found


class _Unrolling:
    """Unrolls loops; keeps for each the variables of its turns."""

    def __init__(self, loops: Mapping[Var, Loop]) -> None:
        self._loops = loops
        self._written: dict[Function, Loop] = {}
        self.made: dict[Var, list[Var]] = {v: [] for v in loops}

    def step(self, block: BlockWriter, value: Expr) -> Expr | None:
        """Answer a call of a loop from outside with what the loop gives, and a part of a tuple with that."""
        match value:
            case Function() if block.variable is not None and block.variable in self._loops:
                self._written[value] = self._loops[block.variable]
                return None
            case Call(callee=Var() as callee):
                # Inside of the loop its variable is not bound yet: that call is one of the next turn.
                function = block.definition(callee)
                loop = self._written.get(function) if isinstance(function, Function) else None
                return None if loop is None else self._unrolled(block, loop, value)
            case Project(value=Var() as whole, index=index):
                made = block.definition(whole)
                return made.fields[index] if isinstance(made, Tuple) else None
            case _:
                return None

    def _unrolled(self, block: BlockWriter, loop: Loop, call: Call) -> Expr | None:
        function, turns = block.definition(call.callee), loop.bound.value if loop.bound is not None else None
        assert isinstance(function, Function), "a loop is a function that a let binds"
        assert turns is not None, "loops of known counts are unrolled"
        args: Sequence[Expr] = call.args
        rows = _filled(loop, function, call, turns)
        for turn in range(turns + 1):
            tail = block.inline(function, args)
            if not isinstance(tail, If):
                assert turn == 0, "a turn gives the next one operands of the types that it takes"
                return None
            if turn == turns:
                return self._end(block, function, tail.otherwise, rows)
            args = self._turn(block, loop, tail.then, args, rows)
        raise AssertionError("the last turn returns")

    def _end(self, block: BlockWriter, function: Function, end: Expr, rows: Mapping[int, Rows]) -> Expr:
        """Write the end of a loop; tensors of which it set rows are made of them."""
        given = _given_back(function)
        whole = {given.index(function.params[i]): _joined(block, made) for i, made in rows.items()}
        result = block.splice(end)
        made = block.definition(result)
        if not isinstance(made, Tuple):
            return whole.get(0, result)
        return make.tuple_([whole.get(i, x) for i, x in enumerate(made.fields)])

    def _turn(
        self, block: BlockWriter, loop: Loop, turn: Expr, args: Sequence[Expr], rows: Mapping[int, Rows]
    ) -> Sequence[Expr]:
        """Write one turn; return the operands of the next one. Rows that it sets are kept, and not set."""
        lets, again = spine(turn)
        assert isinstance(again, Call), "a turn ends with a call of the next one"
        set_here = {again.args[i]: i for i in rows}
        for let in lets:
            number = _number(let.value)
            if (i := set_here.get(let.var)) is not None and number is not None:
                assert isinstance(let.value, Call), "rows are set by an operation"
                rows[i][number] = let.value.args[2]
            elif _op(let.value) is GET_ROW and number is not None:
                self._add(block, loop, let, _row(block, let.value, number))
            else:
                self._add(block, loop, let, let.value)
        return [args[i] if i in rows else x for i, x in enumerate(again.args)]

    def _add(self, block: BlockWriter, loop: Loop, let: Let, value: Expr) -> None:
        self.made[loop.var].append(let.var)
        block.add(let.var, value, opened_dims(value.type, let.var.type), let if value is let.value else None)


Rows = dict[int, Expr]
"""Rows of a tensor, by number."""


def _filled(loop: Loop, function: Function, call: Call, turns: int) -> dict[int, Rows]:
    """Return for which parameters a loop sets all rows of a tensor of known shape, and gives it back."""
    given = _given_back(function)
    return {
        i: {}
        for i, (role, start) in enumerate(zip(loop.roles, call.args, strict=True))
        if role is Role.FILLED and isinstance(start.type, TensorType) and start.type.shape[0] == turns
        if given.count(function.params[i]) == 1 and _sets_each(loop, function, i, turns)
    }


def _sets_each(loop: Loop, function: Function, position: int, turns: int) -> bool:
    """Whether turns set the rows 0, 1 and so on of a parameter, each one once, in any order."""
    counter = function.params[loop.roles.index(Role.COUNTER)].type
    own = counter.value.atom if isinstance(counter, IntType) and counter.value is not None else None
    _, branch = spine(function.body)
    assert isinstance(branch, If), "the body of a loop ends with a branch"
    lets, again = spine(branch.then)
    assert isinstance(again, Call), "a turn ends with a call of the next one"
    made = next((let.value for let in lets if let.var is again.args[position]), None)
    if not isinstance(made, Call) or _op(made) is not SET_ROW or not isinstance(own, Sym):
        return False
    at = made.args[1]
    if not isinstance(at, Const) or not isinstance(at.value, Int) or loop.start is None:
        return False
    rows = (substitute(at.value, {own: loop.start + turn}).value for turn in range(turns))
    return set(rows) == set(range(turns))


def _given_back(function: Function) -> list[Expr]:
    """Return what a loop gives at its end: the parts of a tuple, or one value."""
    _, branch = spine(function.body)
    assert isinstance(branch, If), "the body of a loop ends with a branch"
    lets, tail = spine(branch.otherwise)
    made = next((let.value for let in lets if let.var is tail), tail)
    return list(made.fields) if isinstance(made, Tuple) else [tail]


def _op(e: Expr) -> Op | None:
    return e.callee.op if isinstance(e, Call) and isinstance(e.callee, OpRef) else None


def _number(e: Expr) -> int | None:
    """Return which row an operation reads or sets, where that is a number of the tensor's rows."""
    if not isinstance(e, Call) or _op(e) not in (GET_ROW, SET_ROW):
        return None
    x, at = e.args[0].type, e.args[1]
    number = at.value.value if isinstance(at, Const) and isinstance(at.value, Int) else None
    most = x.shape[0].value if isinstance(x, TensorType) else None
    return number if number is not None and most is not None and 0 <= number < most else None


def _row(block: BlockWriter, call: Expr, number: int) -> Expr:
    """Return a row of a tensor without an effect: `analysis/rows.py`."""
    assert isinstance(call, Call), "rows are read by an operation"
    x = call.args[0]
    ends = [make.shape_const([n], call.span) for n in (number, number + 1, 1)]
    line = block.call(SLICE, (x, *ends), AxesAttrs((0,)), "row")
    assert isinstance(call.type, TensorType), "a row is a tensor"
    return block.make(RESHAPE, (line, make.shape_const(call.type.shape, call.span)))


def _joined(block: BlockWriter, rows: Rows) -> Expr:
    """Return a tensor of rows."""
    lines: list[Expr] = []
    for _, row in sorted(rows.items()):
        assert isinstance(row.type, TensorType), "a row is a tensor"
        lines.append(block.call(RESHAPE, (row, make.shape_const((1, *row.type.shape))), None, "line"))
    return lines[0] if len(lines) == 1 else block.call(CONCAT, lines, JoinAttrs(0), "rows")


PASS = Pass(
    __name__,
    run,
    "make straight code of loops of one turn, and of those that devices take as one",
    requires=(Property.TYPED, Property.ANF),
    options=UnrollOptions,
)
