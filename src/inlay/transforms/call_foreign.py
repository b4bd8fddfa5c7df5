"""Makes kernels of operators whose code comes from outside.

    let y = extern.my_op(x, f64(0.5));      becomes      let y = @my_op(x, f64(0.5));

with a kernel whose ports are the operands and the results, in order, and whose body names the code.
Such a kernel takes no integers: the code sees the dims of its tensors. Calls that are the same but
for the names of dims share one.

Symbols that no operand has by itself as a dim (those of a result that only data tell) become integer
parameters, so that the type of the kernel is closed; they are not passed to it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from inlay.arith.expr import Int, Sym, fresh, from_atom
from inlay.arith.expr import evaluate as evaluate_int
from inlay.base.names import NameSupply
from inlay.ir import make
from inlay.ir.dims import dim_params, free_symbols, substitute_type
from inlay.ir.expr import Call, Expr, GlobalVar, OpRef
from inlay.ir.kernel import Access, ForeignBody, Kernel, Port
from inlay.ir.module import Module
from inlay.ir.types import FuncType, IntType, TensorType, TupleType, Type
from inlay.ops._define import Foreign, OpDef
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module


def run(module: Module, context: PassContext) -> Module:
    """Make kernels. Cost: linear."""
    assert isinstance(context.ops, OperatorTable), "tensor passes run with the table of operators"
    calls = _Calls(module, context.ops)
    rewritten = rewrite_module(module, calls.step)
    if not calls.kernels:
        return module
    return rewritten.with_kernels({**module.kernels, **calls.kernels})


class _Calls:
    """Rewrites the calls of one module.

    Attributes:
        kernels: what was made, by name.
    """

    def __init__(self, module: Module, ops: OperatorTable) -> None:
        self._ops = ops
        self.kernels: dict[str, Kernel] = {}
        self._names = NameSupply([*module.functions, *module.kernels])
        self._by_key: dict[Hashable, Kernel] = {}

    def step(self, _block: BlockWriter, value: Expr) -> Expr | None:
        """Answer the call of a kernel for a call of code from outside."""
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return None
        definition = self._ops.definition(value.callee.op)
        if definition.foreign is None:
            return None
        operands = [a for a in value.args if isinstance(a.type, TensorType)]
        inner = _undetermined([a.type for a in operands], value.type)
        kernel = self._kernel(definition, definition.foreign, value, operands, inner)
        ints = tuple(make.int_const(s, value.span) for s in inner)
        callee = GlobalVar(kernel.name, kernel.type, value.span)
        return Call(callee, (*operands, *ints), value.type, value.span, value.place)

    def _kernel(
        self, definition: OpDef, foreign: Foreign, call: Call, operands: Sequence[Expr], inner: Sequence[Sym]
    ) -> Kernel:
        types = [a.type for a in operands]
        symbols = dict.fromkeys(s for t in (*types, call.type) for s in free_symbols(t))
        numbered = {s: from_atom(Sym("s", -1 - i)) for i, s in enumerate(symbols)}
        key = (
            foreign,
            tuple(substitute_type(t, numbered) for t in (*types, call.type)),
            tuple(numbered[s] for s in inner),
        )
        found = self._by_key.get(key)
        if found is None:
            own = {s: from_atom(fresh(s.name)) for s in symbols}
            type_ = _closed(types, inner, call.type, own)
            name = self._names.fresh(foreign.name.replace(":", "."))
            found = Kernel(
                name,
                type_,
                _ports(type_),
                _body(definition, foreign, type_, call),
                resource=foreign.resource or None,
                origin=foreign.name,
            )
            self._by_key[key] = self.kernels[name] = found
        return found


def _undetermined(operands: Sequence[Type], result: Type) -> list[Sym]:
    """Return the symbols that are not by themselves a dim of an operand."""
    alone: set[Sym] = set()
    for t in operands:
        if isinstance(t, TensorType):
            alone.update(d.atom for d in t.shape if isinstance(d.atom, Sym))
    used = dict.fromkeys(s for t in (*operands, result) for s in free_symbols(t))
    return [s for s in used if s not in alone]


def _closed(operands: Sequence[Type], inner: Sequence[Sym], result: Type, own: Mapping[Sym, Int]) -> FuncType:
    """Return the type of the kernel, over symbols of its own."""
    params = (*(substitute_type(t, own) for t in operands), *(IntType(own[s]) for s in inner))
    return FuncType(params, substitute_type(result, own), dim_params(params))


def _ports(t: FuncType) -> tuple[Port, ...]:
    reads = [p for p in t.params if isinstance(p, TensorType)]
    results = t.result.fields if isinstance(t.result, TupleType) else (t.result,)
    writes = [r for r in results if isinstance(r, TensorType)]
    assert len(writes) == len(results), "code from outside gives tensors"
    return (
        *(Port(f"in{i}", p, Access.READ) for i, p in enumerate(reads)),
        *(Port(f"out{i}", w, Access.WRITE) for i, w in enumerate(writes)),
    )


def _body(definition: OpDef, foreign: Foreign, t: FuncType, call: Call) -> ForeignBody:
    """Return the body; evaluated, it runs the reference of the operator with its control operands."""
    assert isinstance(call.callee, OpRef), "operators are called"
    attrs = call.callee.attrs
    results = t.result.fields if isinstance(t.result, TupleType) else (t.result,)

    def run(inputs: Sequence[np.ndarray], dims: Mapping[Sym, int]) -> tuple[np.ndarray, ...]:
        shapes = [tuple(evaluate_int(d, dims) for d in r.shape) for r in results if isinstance(r, TensorType)]
        control = tuple(d for shape in shapes for d in shape)
        given: list[Any] = [*inputs, *([control] if len(call.args) > len(inputs) else [])]
        found = definition.evaluate(attrs, *given)
        return cast("tuple[np.ndarray, ...]", found) if isinstance(found, tuple) else (found,)

    return ForeignBody(foreign.language, foreign.name, foreign.library, foreign.symbol, run)


PASS = Pass(
    __name__, run, "make kernels of operators whose code comes from outside", requires=(Property.ANF,)
)
