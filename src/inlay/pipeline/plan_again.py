"""Places values a second time, with what kernels say of the memories of their operands and results.

A kernel of a device may need an operand in its scratch memory, or leave its result there. Which kernels
there are is known when regions and groups are made, behind the first planning. So what back ends say then
(`Backend.port_memories`) is written on the functions of kernels, and the program is planned again with
these as facts: devices stay, memories change, and copies are added where one device needs a value in
two memories. Most back ends say nothing, and then nothing is done.

A third planning changes nothing, or the planner is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from inlay.base.diagnostics import InternalError
from inlay.ir.expr import Function, Var
from inlay.ir.module import Module
from inlay.ir.place import Place
from inlay.ir.printer import print_module
from inlay.ir.types import TensorType
from inlay.ir.walk import substitute_vars
from inlay.machine.board import Board
from inlay.passes.contract import Pass, PassContext, Property
from inlay.placement.infer.capability import capability_of
from inlay.placement.plan_places import plan, widened
from inlay.transforms.fuse_ops import fused

Ask = Callable[[Function], Mapping[int, tuple[str, ...]]]
"""Gives the memories of operands and results of a kernel, by position; those of others are free."""


@dataclass(frozen=True, slots=True)
class AgainOptions:
    """Options of this pass.

    Attributes:
        board: the machine.
        ask: for devices whose kernels restrict memories, by name, what says how.
    """

    board: Board | None = None
    ask: Mapping[str, Ask] = field(default_factory=dict[str, Ask])


def run(module: Module, context: PassContext) -> Module:
    """Plan again if kernels say more than the plan knows. Cost: nothing, else that of a planning.

    Raises:
        CompileError: `memory.scope-empty`, `device.no-path`.
        InternalError: a third planning changes the program.
    """
    options = context.options_for(AgainOptions)
    if options.board is None or not options.ask:
        return module
    functions = {name: _with_facts(f, options.ask) for name, f in module.functions.items()}
    if all(f is module.functions[name] for name, f in functions.items()):
        return module
    capability = capability_of(options.board, context.ops)
    stated = widened(module.with_functions(functions))
    again = fused(plan(stated, options.board, capability), context)
    if print_module(plan(again, options.board, capability)) != print_module(again):
        raise InternalError("a third planning changes what the second planned", where=__name__)
    return again


def _with_facts(function: Function, ask: Mapping[str, Ask]) -> Function:
    """Return the function of a kernel with the memories that its back end names."""
    place = function.place
    if function.primitive is None or place is None or place.device not in ask:
        return function
    said = ask[place.device](function)
    if not said:
        return function
    made = [_var(p, _at(p.place or place, said.get(i))) for i, p in enumerate(function.params)]
    body = substitute_vars(function.body, dict(zip(function.params, made, strict=True)))
    result = _at(place, said.get(len(made)))
    return replace(function, params=tuple(made), body=body, place=result)


def _var(p: Var, place: Place) -> Var:
    return Var(p.name, p.type, p.span, place) if isinstance(p.type, TensorType) else p


def _at(place: Place, memories: tuple[str, ...] | None) -> Place:
    return replace(place, memories=None if memories is None else tuple(sorted(memories)))


PASS = Pass(
    __name__,
    run,
    "place values again, with the memories that kernels need",
    requires=(Property.ANF, Property.FUSED),
    options=AgainOptions,
)
