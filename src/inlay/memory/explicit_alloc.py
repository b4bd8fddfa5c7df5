"""Writes down where results of kernels are stored: storage, tensors in it, invocations.

    let y = @kernel(x)      becomes      let y.s = alloc_storage(int(size of y));
                                         let y = tensor_at(y.s, int(0), shape(dims of y));
                                         let _ = invoke(@kernel, x, y, shape(kernel ints));

A kernel that updates an operand gets it as its own (`own`), with a copy only if somebody else still
has it. Every other result gets a storage of its own here; which of them share bytes is the business of
`plan_memory`. Variables keep their names and types, so nothing else of the program changes. Sizes are
integers over the dims in scope: what is symbolic stays symbolic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from inlay.analysis.blocks import spine
from inlay.arith.expr import Int, from_atom, lit, substitute
from inlay.base.diagnostics import InternalError
from inlay.base.span import Span
from inlay.ir import make
from inlay.ir.conform import Matching
from inlay.ir.context import Context
from inlay.ir.dims import rename_dims, substitute_type
from inlay.ir.expr import Arm, Call, Expr, Function, GlobalVar, If, Match, Tuple, Var
from inlay.ir.kernel import Access, Kernel
from inlay.ir.module import Module
from inlay.ir.types import STORAGE, UNIT, ExistsType, TensorType, TupleType, Type
from inlay.ops.memory import ALLOC_STORAGE, INVOKE, OWN, TENSOR_AT, InvokeAttrs, TensorAtAttrs
from inlay.passes.contract import Pass, PassContext, Property

Binding = tuple[Var, Expr, Span]


def run(module: Module, _context: PassContext) -> Module:
    """Make storage explicit in every function."""
    writer = _Writer(module.kernels)
    return module.with_functions(
        {name: writer.function(function) for name, function in module.functions.items()}
    )


class _Writer:
    """Rewrites blocks; spines with loops, nested blocks recursively."""

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self.kernels = kernels

    def function(self, function: Function) -> Function:
        """Rewrite a function."""
        return replace(function, body=self.block(function.body))

    def block(self, block: Expr) -> Expr:
        """Rewrite a block."""
        lets, tail = spine(block)
        bindings: list[Binding] = []
        for let in lets:
            if not self._kernel_call(let.var, let.value, bindings):
                bindings.append((let.var, self._nested(let.value), let.span))
        result = make.var("result", _open(tail.type), tail.span)
        tail = result if self._kernel_call(result, tail, bindings) else self._nested(tail)
        for var, value, span in reversed(bindings):
            tail = make.let(var, value, tail, span=span)
        return tail

    def _nested(self, value: Expr) -> Expr:
        match value:
            case Function():
                return self.function(value)
            case If(then=then, otherwise=otherwise):
                return replace(value, then=self.block(then), otherwise=self.block(otherwise))
            case Match(arms=arms):
                return replace(
                    value, arms=tuple(Arm(arm.pattern, self.block(arm.body)) for arm in arms)
                )
            case _:
                return value

    def _kernel_call(self, var: Var, value: Expr, bindings: list[Binding]) -> bool:
        """Write the call of a kernel, if it is one."""
        if not isinstance(value, Call) or not isinstance(value.callee, GlobalVar):
            return False
        kernel = self.kernels.get(value.callee.name)
        if kernel is None:
            return False
        span = value.span
        tensors = [a for a in value.args if isinstance(a.type, TensorType)]
        updated = next((p.may_alias for p in kernel.ports if p.access is Access.UPDATE), None)
        if updated is not None:
            owned = make.call(OWN, (tensors[updated],), span=span, place=value.place)
            bindings.append((var, owned, span))
            tensors[updated] = var
            self._invoke(kernel, value, [*tensors, var], 1, bindings)
            return True
        results = _results(var)
        outputs: list[Var] = []
        for index, t in enumerate(results):
            output = var if isinstance(var.type, TensorType) else make.var(f"{var.name}.{index}", t)
            outputs.append(output)
            storage = make.var(f"{var.name}.s", STORAGE, span)
            size = make.call(ALLOC_STORAGE, (make.int_const(size_of(t)),), span=span)
            bindings.append((storage, size, span))
            view = make.call(
                TENSOR_AT,
                (storage, make.int_const(0), make.shape_const(t.shape)),
                TensorAtAttrs(t.dtype),
                span=span,
                place=value.place,
            )
            bindings.append((output, view, span))
        self._invoke(kernel, value, [*tensors, *outputs], len(outputs), bindings)
        if not isinstance(var.type, TensorType):
            bindings.append((var, Tuple(tuple(outputs), var.type, span, value.place), span))
        return True

    def _invoke(
        self, kernel: Kernel, call: Call, tensors: list[Expr], writes: int, bindings: list[Binding]
    ) -> None:
        ints = make.shape_const(_ints(kernel, call))
        args = (call.callee, *tensors, ints)
        invoke = make.call(INVOKE, args, InvokeAttrs(writes), span=call.span, place=call.place)
        bindings.append((make.var("_", UNIT), invoke, call.span))


def size_of(t: TensorType) -> Int:
    """Return the bytes of a dense tensor."""
    size = lit(t.dtype.itemsize)
    for dim in t.shape:
        size = size * dim
    return size


def _results(var: Var) -> list[TensorType]:
    fields = var.type.fields if isinstance(var.type, TupleType) else (var.type,)
    tensors = [t for t in fields if isinstance(t, TensorType)]
    if len(tensors) != len(fields):
        raise InternalError("a kernel has a result that is no tensor", where=str(var.span))
    return tensors


def _open(t: Type) -> Type:
    return t.body if isinstance(t, ExistsType) else t


def _ints(kernel: Kernel, call: Call) -> tuple[Int, ...]:
    """Return the integer arguments of a call: the kernel's, over the dims of the caller."""
    if not kernel.ints:
        return ()
    # Renamed, because a kernel's symbols may be those of the function it was cut out of.
    dims = rename_dims(kernel.type.dims)
    names = {d.sym: from_atom(f.sym) for d, f in zip(kernel.type.dims, dims, strict=True)}
    matching = Matching(Context(kernel.name, call.span))
    matching.bind(dims)
    for index, (declared, arg) in enumerate(zip(kernel.type.params, call.args, strict=True)):
        matching.match(substitute_type(declared, names), arg.type, f"argument {index + 1}")
    matching.finish()
    return tuple(substitute(substitute(e, names), matching.ints) for e in kernel.ints)


PASS = Pass(
    __name__,
    run,
    "give every result of a kernel a storage of its own",
    requires=(Property.ANF, Property.LOWERED),
    establishes=(Property.EXPLICIT_STORAGE,),
)
