"""Dims by choice: a program for inputs of one size, or of sizes up to one, where its model says none.

A dim of the entry that is fixed becomes a number in its types and in its body. So memory can be planned in
bytes, loops have known lengths, and inputs of other sizes are refused. A dim that is bounded stays a symbol:
plans hold for all sizes up to the bound, budgets can be promised, and larger inputs are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from inlay.arith import expr as arith
from inlay.arith.expr import Int, Sym, lit
from inlay.base.diagnostics import Collector
from inlay.base.named_sizes import named_sizes
from inlay.base.registry import suggestion
from inlay.ir import make, walk
from inlay.ir.dims import substitute_type
from inlay.ir.expr import Function, Var
from inlay.ir.module import Module
from inlay.ir.types import DimParam
from inlay.pipeline.outputs import require_uncalled


def with_dims(module: Module, texts: Sequence[str]) -> Module:
    """Return a module whose entry has these sizes for some of its dims.

    Args:
        module: typed.
        texts: `NAME=SIZE` for dims of the entry.

    Raises:
        CompileError: `option.bad-value` for a name that is no dim of the entry, or a size that it has not.
        UnsupportedError: `entry.called` where the program calls its entry itself.
    """
    sizes = named_sizes(texts, "--fix-dim")
    if not sizes:
        return module
    function = module.functions[module.entry]
    _check(function.dims, sizes)
    require_uncalled(module, "whose dims are fixed", hint="give the inputs their sizes in the program")
    ints = {d.sym: lit(sizes[d.sym.name]) for d in function.dims if d.sym.name in sizes}
    return module.with_functions({**module.functions, module.entry: _fixed(function, ints)})


def with_bounds(module: Module, texts: Sequence[str]) -> Module:
    """Return a module whose entry has some of its dims at most as large as this.

    Args:
        module: typed; dims that are fixed are gone (`with_dims`).
        texts: `NAME=SIZE` for dims of the entry.

    Raises:
        CompileError, UnsupportedError: as `with_dims`.
    """
    sizes = named_sizes(texts, "--bound-dim")
    if not sizes:
        return module
    f = module.functions[module.entry]
    _check([replace(d, multiple_of=1) for d in f.dims], sizes, "--bound-dim")
    require_uncalled(module, "whose dims are bounded", hint="bound the dims in the program")
    dims = [replace(d, high=_least(d.high, sizes[d.sym.name])) if d.sym.name in sizes else d for d in f.dims]
    types = f.type.params
    bounded = make.function(
        f.params, f.body, dims=dims, param_types=types, type_vars=f.type.type_vars, span=f.span, place=f.place
    )
    return module.with_functions({**module.functions, module.entry: bounded})


def check_input_sizes(module: Module, texts: Sequence[str]) -> None:
    """Refuse sizes that the inputs of a run are to have, and that the entry has not.

    Raises:
        CompileError: as `with_dims`.
    """
    _check(module.functions[module.entry].dims, named_sizes(texts, "--dim"), "--dim")


def _least(high: Int | None, size: int) -> Int:
    return lit(size) if high is None else arith.minimum(high, size)


def _fixed(function: Function, ints: Mapping[Sym, Int]) -> Function:
    params = [Var(p.name, substitute_type(p.type, ints), p.span, p.place) for p in function.params]
    body = walk.copy(function.body, dict(zip(function.params, params, strict=True)), ints)
    left = [
        replace(d, high=None if d.high is None else arith.substitute(d.high, ints))
        for d in function.dims
        if d.sym not in ints
    ]
    return make.function(
        params,
        body,
        dims=left,
        param_types=[substitute_type(t, ints) for t in function.type.params],
        type_vars=function.type.type_vars,
        span=function.span,
        place=function.place,
    )


def _check(dims: Sequence[DimParam], sizes: Mapping[str, int], flag: str = "--fix-dim") -> None:
    known = {d.sym.name: d for d in dims}
    findings = Collector()
    for name, size in sizes.items():
        dim = known.get(name)
        if dim is None:
            findings.error(
                "option.bad-value",
                f"found {flag} {name}, which is no dim of the inputs",
                hint=suggestion(name, known, f"there are {', '.join(known) or 'none'}"),
            )
            continue
        high = None if dim.high is None else dim.high.value
        if size < dim.low or (high is not None and size > high) or size % dim.multiple_of:
            step = f" in steps of {dim.multiple_of}" if dim.multiple_of > 1 else ""
            limit = "" if high is None else f" and at most {high}"
            findings.error(
                "option.bad-value", f"found {flag} {name}={size}, needed at least {dim.low}{limit}{step}"
            )
    findings.raise_if_fatal()
