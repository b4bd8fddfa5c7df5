"""What running an expression may do besides computing its value.

Effects are a set of five facts, joined by union:

* ``READS``: the result depends on the content of a cell or of another resource;
* ``WRITES``: changes such content, or does something that the outside can see;
* ``CREATES``: makes a cell or storage, so that two runs give two different things;
* ``FAILS``: may stop the program with an error that the program asked for (checks);
* ``UNKNOWN``: calls a function value that is not known here.

From them follow the questions that passes ask:

* an expression is *discardable* when nobody who ignores its value can tell that it ran;
* *repeatable* when running it twice in a row gives equal values with nothing else changed: two
  copies may become one, one may become two;
* *movable* when it is repeatable, discardable and independent of any content, so that it may run
  earlier, later, or in another block.

Not returning is not an effect: a call that may loop forever may be discarded.

Functions are summarized once for a module, callees before callers; a recursive group is assumed to
do what any of its members does. A call of a variable bound to a function literal has the effects of
its body; of any other function value, `UNKNOWN`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from typing import assert_never

from inlay.analysis.blocks import definitions, nested
from inlay.analysis.call_graph import bottom_up, call_graph
from inlay.ir.expr import (
    Call,
    Const,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    OpRef,
    Project,
    RefCreate,
    RefPut,
    RefRead,
    RefTake,
    RefWrite,
    Tuple,
    Var,
)
from inlay.ir.module import Module
from inlay.ir.op import Effect


class Effects(Flag):
    """A set of the facts in the module docstring; `NONE` for pure expressions."""

    NONE = 0
    READS = auto()
    WRITES = auto()
    CREATES = auto()
    FAILS = auto()
    UNKNOWN = auto()

    @property
    def is_discardable(self) -> bool:
        """Whether an unused value need not be computed."""
        return not self & (Effects.WRITES | Effects.FAILS | Effects.UNKNOWN)

    @property
    def is_movable(self) -> bool:
        """Whether it may run at any place where its operands exist."""
        return self is Effects.NONE


_OF_OPERATOR = {
    Effect.PURE: Effects.NONE,
    Effect.ALLOCATES: Effects.CREATES,
    Effect.WRITES: Effects.READS | Effects.WRITES,
    Effect.FAILS: Effects.FAILS,
}


@dataclass(frozen=True, slots=True)
class EffectTable:
    """Effects of the functions of a module and of the local functions with a name.

    Attributes:
        functions: by name; kernels included.
        locals: effects of calling a variable that is bound to a function literal.
    """

    functions: Mapping[str, Effects]
    locals: Mapping[Var, Effects]

    def of_call(self, callee: Expr) -> Effects:
        """Return what a call of that callee may do."""
        match callee:
            case OpRef(op=op):
                return _OF_OPERATOR[op.effect]
            case ConstructorRef():
                return Effects.NONE
            case GlobalVar(name=name):
                return self.functions.get(name, Effects.UNKNOWN)
            case Var():
                return self.locals.get(callee, Effects.UNKNOWN)
            case _:
                return Effects.UNKNOWN

    def of(self, value: Expr) -> Effects:
        """Return what evaluating a value of a block may do, its nested blocks included."""
        own = self.of_one(value)
        if isinstance(value, If | Match):
            for block in nested(value):
                own |= self._of_block(block)
        return own

    def of_one(self, value: Expr) -> Effects:
        """Return the effects of a value itself, without those of its nested blocks."""
        match value:
            case Call(callee=callee):
                return self.of_call(callee)
            case RefCreate():
                return Effects.CREATES
            case RefRead():
                return Effects.READS
            case RefWrite() | RefTake() | RefPut():
                return Effects.READS | Effects.WRITES
            case Var() | Const() | GlobalVar() | OpRef() | ConstructorRef():
                return Effects.NONE
            case Function() | Let() | If() | Match() | Tuple() | Project():
                return Effects.NONE
            case _:
                assert_never(value)

    def _of_block(self, block: Expr) -> Effects:
        found = Effects.NONE
        for value in _run_values(block):
            found |= self.of_one(value)
        return found


def effect_table(module: Module) -> EffectTable:
    """Return the effects of all functions of a module in A-normal form. Cost: linear."""
    functions: dict[str, Effects] = {
        name: Effects.NONE if kernel.resource is None else Effects.READS | Effects.WRITES
        for name, kernel in module.kernels.items()
    }
    found: dict[Var, Effects] = {}
    table = EffectTable(functions, found)
    for group in bottom_up(call_graph(module)):
        _summarize_group(group, module, table, functions, found)
    return table


def _summarize_group(
    group: list[str],
    module: Module,
    table: EffectTable,
    functions: dict[str, Effects],
    found: dict[Var, Effects],
) -> None:
    """Add the effects of mutually recursive functions and of the local functions in them.

    Within the group and within a nest of local functions, what is not known yet counts as nothing;
    the summary is run to its fixed point, which a set of five facts reaches in a few rounds.
    """
    local = {
        var: value
        for name in group
        for var, value in definitions(module.functions[name].body).items()
        if isinstance(value, Function)
    }
    functions.update(dict.fromkeys(group, Effects.NONE))
    found.update(dict.fromkeys(local, Effects.NONE))
    bodies: dict[Var | str, list[Expr]] = {
        **{name: list(_run_values(module.functions[name].body)) for name in group},
        **{var: list(_run_values(value.body)) for var, value in local.items()},
    }
    changed = True
    while changed:
        changed = False
        for who, body in bodies.items():
            effects = Effects.NONE
            for value in body:
                effects |= table.of_one(value)
            known = functions[who] if isinstance(who, str) else found[who]
            if effects != known:
                changed = True
                if isinstance(who, str):
                    functions[who] = effects
                else:
                    found[who] = effects


def _run_values(block: Expr) -> list[Expr]:
    """Return the values that running a block may run: all but those inside function literals."""
    result: list[Expr] = []
    pending = [block]
    while pending:
        inner = pending.pop()
        while True:
            value = inner.value if isinstance(inner, Let) else inner
            result.append(value)
            if isinstance(value, If | Match):
                pending.extend(nested(value))
            if not isinstance(inner, Let):
                break
            inner = inner.body
    return result
