"""Gives the constant operands of regions the layouts that their devices want.

A device says in which order of axes it wants the constant operands of a region. A constant is written
in that order here, once, and the function of the region begins with the transpose that undoes it:

    @conv_relu(x, w)              becomes      @conv_relu_1(x, <w, transposed>)

    fn conv_relu_1(x, w_1) { let w = transpose(w_1); <as before> }

So the region means what it meant, and who makes its code finds the bytes as they are stored. Operands
that are computed keep their layout: between devices there is only one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from inlay.base.names import NameSupply
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, Function, GlobalVar, Var
from inlay.ir.module import Module
from inlay.ir.walk import copy as fresh_copy
from inlay.ops.layout import PermAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module

Layouts = Mapping[int, tuple[int, ...]]
"""For positions of operands, the order in which their axes are wanted."""


@dataclass(frozen=True, slots=True)
class RegionOptions:
    """Options of this pass.

    Attributes:
        layouts: for each device that has wishes, by name, what it wants of a region.
    """

    layouts: Mapping[str, Callable[[Function], Layouts]] = field(
        default_factory=dict[str, Callable[[Function], Layouts]]
    )


def run(module: Module, context: PassContext) -> Module:
    """Pack. Cost: linear in the program and in the bytes packed."""
    operators, wanted = context.ops, context.options_for(RegionOptions).layouts
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    packing = _Packing(module, operators, wanted)
    if not any(packing.layouts_of(name) for name in module.functions):
        return module
    packed = rewrite_module(module, packing.step)
    gone = {name for name, _ in packing.versions} - packing.called
    functions = {n: f for n, f in packed.functions.items() if n not in gone}
    return packed.with_functions({**functions, **packing.made})


class _Packing:
    """Packs the constants of one module.

    Attributes:
        made: functions of regions on packed constants, by name.
        versions: what to call instead, by name and positions of packed operands.
        called: names of functions that are still called as they were.
    """

    def __init__(
        self, module: Module, operators: OperatorTable, wanted: Mapping[str, Callable[[Function], Layouts]]
    ) -> None:
        self.made: dict[str, Function] = {}
        self.called: set[str] = set()
        self._module = module
        self._transpose = operators.definition("transpose").op
        self._wanted = wanted
        self._names = NameSupply([*module.functions, *module.kernels])
        self._layouts: dict[str, Layouts] = {}
        self.versions: dict[tuple[str, tuple[int, ...]], GlobalVar] = {}
        self._packed: dict[tuple[int, tuple[int, ...]], Const] = {}

    def layouts_of(self, name: str) -> Layouts:
        """Return what is wanted of a function; nothing of one that is no region of such a device."""
        function = self._module.functions.get(name)
        if function is None or function.primitive is None or function.place is None:
            return {}
        ask = self._wanted.get(function.place.device)
        if ask is None:
            return {}
        if name not in self._layouts:
            self._layouts[name] = ask(function)
        return self._layouts[name]

    def step(self, _block: BlockWriter, value: Expr) -> Expr | None:
        """Answer a call of a region with one of the same on packed constants."""
        if not isinstance(value, Call) or not isinstance(value.callee, GlobalVar):
            return None
        name = value.callee.name
        perms = {
            i: perm
            for i, perm in self.layouts_of(name).items()
            if isinstance(value.args[i], Const) and perm != tuple(range(len(perm)))
        }
        if not perms:
            self.called.add(name)
            return None
        key = (name, tuple(sorted(perms)))
        if key not in self.versions:
            function = self._on_packed(self._module.functions[name], perms)
            fresh = self._names.fresh(name)
            self.made[fresh] = function
            self.versions[key] = GlobalVar(fresh, function.type, function.span)
        args = [self._pack(a, perms[i]) if i in perms else a for i, a in enumerate(value.args)]
        return Call(self.versions[key], tuple(args), value.type, value.span, value.place)

    def _pack(self, constant: Expr, perm: tuple[int, ...]) -> Const:
        assert isinstance(constant, Const), "only constants are packed"
        assert isinstance(constant.value, np.ndarray), "operands of regions are tensors"
        key = (id(constant.held), perm)
        if key not in self._packed:
            array = np.ascontiguousarray(constant.value.transpose(perm))
            self._packed[key] = make.const(array, span=constant.span, place=constant.place)
        return self._packed[key]

    def _on_packed(self, function: Function, perms: Layouts) -> Function:
        params, body = list(function.params), function.body
        for i, perm in sorted(perms.items(), reverse=True):
            old = function.params[i]
            inverse = PermAttrs(tuple(int(a) for a in np.argsort(perm)))
            to = make.call(self._transpose, (old,), PermAttrs(perm), span=old.span)
            params[i] = Var(f"{old.name}_packed", to.type, old.span, old.place)
            back = make.call(self._transpose, (params[i],), inverse, span=old.span, place=function.place)
            body = make.let(old, back, body)
        made = fresh_copy(
            make.function(
                params, body, span=function.span, place=function.place, primitive=function.primitive
            )
        )
        assert isinstance(made, Function), "a copy of a function"
        return made


PASS = Pass(
    __name__,
    run,
    "give constants of regions the layouts that devices want",
    requires=(Property.ANF, Property.PLACED),
    options=RegionOptions,
)
