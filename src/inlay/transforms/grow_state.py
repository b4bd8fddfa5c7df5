"""Lets state of sessions grow where it is: entries that join their inputs get another one that extends them.

    fn main<n>(past: Tensor[h, n, d], x) { ... let present = concat{axis=1}(past, new); ...; (y, present) }

gives `present` to its caller, who gives it back with the next call, and each call copies all of it. A
session holds such a pair itself, so nobody else has to see it from call to call. For it there is

    fn main.grow<n>(past.rows: Tensor[n, h, d], x) {
      ... let grown = extend{axis=0}(past.rows, transpose(new)); let present = transpose(grown); ...
      (y, grown)
    }

as `grow_in_place` does for loops. The runtime gives it memory with room behind `past`, and `extend` writes
there what is new, and nothing else. So a call costs what is added and not what is there, and one that fails
has changed nothing that the session knows of.

**Linear use.** A pair is taken where it can be proved that nothing else needs the input as it was: the
concatenation is its only use, and it is the first of the operands; the output is given once; along the axis
the input has a dim of its own, so that what a call gives can be given to the next. Where one of these does
not hold, the pair stays with `main`, which copies. No declaration is needed or believed.

`main` stays as it is for who calls without session. Code of kernels that are alike is there once. Only named
entries are looked at; `main` says in its `grows` and `grown` what was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from inlay.analysis.blocks import count_uses
from inlay.arith.expr import Sym
from inlay.base.options import option
from inlay.ir import make
from inlay.ir.expr import Call, Expr, Function, Var
from inlay.ir.module import EntryNames, Growth, Module
from inlay.ir.op import Op
from inlay.ir.types import TensorType
from inlay.ir.walk import copy, spine
from inlay.passes.contract import Pass, PassContext, Property, Remark
from inlay.transforms._growing import Written, block_of, carried_var, extended, fields_of, growth_axis


@dataclass(frozen=True, slots=True)
class GrowStateOptions:
    """Options of this pass."""

    sessions: bool = option(True, help="add entries whose state grows where it is")  # noqa: FBT003


def run(module: Module, context: PassContext) -> Module:
    """Add an entry for each that joins its inputs to its outputs. Cost: linear."""
    transpose = context.ops.find("transpose")
    if transpose is None or not context.options_for(GrowStateOptions).sessions:
        return module
    functions, entries = dict(module.functions), dict(module.entries)
    for name, names in module.entries.items():
        other = f"{name}.grow"
        if name not in functions or other in functions or names.grown:
            continue
        twin = copy(functions[name])
        assert isinstance(twin, Function), "a copy of a function is one"
        pairs = _pairs(twin, names)
        if pairs:
            fields = fields_of(twin, len(names.outputs))
            functions[other] = _extending(twin, fields, pairs, transpose)
            entries[other] = EntryNames(names.inputs, names.outputs)
            grows = tuple(Growth(names.inputs[p.param], names.outputs[p.field], p.axis) for p in pairs)
            entries[name] = replace(names, grows=grows, grown=other)
            for g in grows:
                text = f"'{g.made}' grows where '{g.given}' is: a run of a session writes what it adds"
                context.remarks.add(Remark(PASS.name, "in-place", "grows", text))
    if len(functions) == len(module.functions):
        return module
    return replace(module, entries=MappingProxyType(entries)).with_functions(functions)


@dataclass(frozen=True, slots=True)
class _Pair:
    """An input and an output, by position, and the axis along which the output is longer."""

    param: int
    field: int
    axis: int
    made: Var


def _pairs(function: Function, names: EntryNames) -> list[_Pair]:
    lets, _ = spine(function.body)
    known: Mapping[Var, Expr] = {let.var: let.value for let in lets}
    uses, fields = count_uses(function.body), fields_of(function, len(names.outputs))
    own = {d.sym for d in function.dims}
    found: list[_Pair] = []
    for k, made in enumerate(fields):
        value = known.get(made) if isinstance(made, Var) else None
        if not isinstance(value, Call) or not value.args or sum(f is made for f in fields) != 1:
            continue
        first = value.args[0]
        for i, param in enumerate(function.params):
            if first is not param or uses.get(param) != 1 or param.place is not None:
                continue
            axis = growth_axis(param, made, known)
            if axis is not None and isinstance(made, Var) and _can_go_on(param, made, axis, own):
                found.append(_Pair(i, k, axis, made))
    return found


def _can_go_on(param: Var, made: Var, axis: int, own: set[Sym]) -> bool:
    """Whether what a call gives can be given to the next: nothing but one dim differs, and that is free."""
    a, b = param.type, made.type
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.shape[axis].atom not in own:
        return False
    return all(x == y for d, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)) if d != axis)


def _extending(function: Function, fields: Sequence[Expr], pairs: list[_Pair], transpose: Op) -> Function:
    """Return an entry that extends what it is given."""
    by_made = {p.made: p for p in pairs}
    params, param_types, results = list(function.params), list(function.type.params), list(fields)
    for p in pairs:
        params[p.param] = carried_var(params[p.param], p.axis)
        param_types[p.param] = params[p.param].type
    written: Written = []
    for let in spine(function.body)[0]:
        p = by_made.get(let.var)
        if p is None:
            written.append((let.var, let.value, let))
            continue
        carried = params[p.param]
        is_moved = carried is not function.params[p.param]
        results[p.field] = extended(let, carried, p.axis, transpose, written, is_moved=is_moved)
    result = results[0] if len(results) == 1 else make.tuple_(results)
    return make.function(
        params,
        block_of(written, result),
        dims=function.dims,
        param_types=param_types,
        type_vars=function.type.type_vars,
        span=function.span,
        place=function.place,
    )


PASS = Pass(
    __name__,
    run,
    "add entries whose state grows where it is",
    requires=(Property.ANF,),
    options=GrowStateOptions,
)
