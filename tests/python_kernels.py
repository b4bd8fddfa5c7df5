"""Kernels from reference functions, so that what follows code generation can be tested without it.

`with_python_kernels` replaces every call of a tensor operator by the call of a kernel whose body is
the operator's reference in NumPy; `run_program` runs a compiled program of such kernels on the
reference interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inlay.analysis.blocks import spine
from inlay.bytecode import program as bc
from inlay.ir.dims import free_symbols
from inlay.ir.expr import Arm, Call, Const, Expr, Function, GlobalVar, If, Let, Match, OpRef, Var
from inlay.ir.kernel import Access, Kernel, Port
from inlay.ir.module import Module
from inlay.ir.types import DimParam, FuncType, TensorType
from inlay.memory.explicit_alloc import PASS as EXPLICIT
from inlay.memory.plan_memory import plan_module
from inlay.ops._define import Pattern
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.runtime.interp import Interpreter
from inlay.runtime.value import from_array
from inlay.vm.compile import compile_module
from inlay.vm.intrinsics import INTRINSICS


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceBody:
    """The reference of an operator, with its attributes and control operands."""

    call: Call

    @property
    def kind(self) -> str:
        return "python"

    def text(self) -> str:
        return "reference"

    def digest(self) -> str:
        return f"{id(self.call)}"

    def evaluate(self, inputs: Sequence[np.ndarray], dims: Mapping) -> tuple[np.ndarray, ...]:
        callee = self.call.callee
        assert isinstance(callee, OpRef)
        supply = iter(inputs)
        args = [
            next(supply) if isinstance(a.type, TensorType) else _control(a) for a in self.call.args
        ]
        result = table().definition(callee.op).evaluate(callee.attrs, *args)
        return result if isinstance(result, tuple) else (result,)


def _control(e: Expr):
    assert isinstance(e, Const), "control operands of kernels are constants here"
    if isinstance(e.value, tuple):
        return tuple(d.value for d in e.value)
    return e.value.value


def with_python_kernels(module: Module) -> Module:
    """Return the module with a kernel for each call of a tensor operator."""
    kernels: dict[str, Kernel] = dict(module.kernels)

    def value(e: Expr) -> Expr:
        match e:
            case Function():
                return replace(e, body=block(e.body))
            case If():
                return replace(e, then=block(e.then), otherwise=block(e.otherwise))
            case Match():
                return replace(e, arms=tuple(Arm(a.pattern, block(a.body)) for a in e.arms))
            case Call(callee=OpRef(op=op)) if _is_tensor_op(op):
                tensors = tuple(a for a in e.args if isinstance(a.type, TensorType))
                name = f"k{len(kernels)}_{op.name.replace('.', '_')}"
                result = e.type
                assert isinstance(result, TensorType)
                syms = dict.fromkeys(s for t in (*(a.type for a in tensors), result)
                                     for s in free_symbols(t))
                types = tuple(a.type for a in tensors)
                ft = FuncType(types, result, tuple(DimParam(s) for s in syms))
                ports = [Port(f"p{i}", t, Access.READ) for i, t in enumerate(types)]
                alias = next((i for i in op.in_place if types[i] == result), None)
                ports.append(Port("out", result, Access.WRITE, may_alias=alias))
                kernels[name] = Kernel(name, ft, tuple(ports), ReferenceBody(e), origin=op.name)
                return Call(GlobalVar(name, ft), tensors, result, e.span)
            case _:
                return e

    def block(e: Expr) -> Expr:
        lets, tail = spine(e)
        tail = value(tail)
        for let in reversed(lets):
            tail = Let(let.var, value(let.value), tail, tail.type, let.span)
        return tail

    functions = {n: replace(f, body=block(f.body)) for n, f in module.functions.items()}
    return module.with_functions(functions).with_kernels(kernels)


def _is_tensor_op(op) -> bool:
    if op.name in INTRINSICS or op.alias is not None:
        return False
    return table().definition(op).pattern is not Pattern.CONTROL


def compile_with_python_kernels(module: Module, *, plan: bool = True) -> tuple[bc.Program, Module]:
    """Return the program of a module in A-normal form, and the module as compiled."""
    lowered = with_python_kernels(module)
    explicit = EXPLICIT.run(lowered, PassContext(table()))
    if plan:
        explicit, _ = plan_module(explicit)
    kernels = {
        name: bc.Kernel(
            name,
            tuple(bc.Access.READ if p.access is Access.READ else bc.Access.WRITE for p in k.ports),
            len(k.ints),
            bc.HostBody(name),
        )
        for name, k in explicit.kernels.items()
    }
    return compile_module(explicit, kernels), explicit


def run_program(
    program: bc.Program, module: Module, inputs: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Run the first entry of a program whose kernels are those of the module."""

    def kernel(k: bc.Kernel, tensors: list[np.ndarray], ints: list[int]) -> None:
        body = module.kernels[k.name].body
        reads = [t for t, a in zip(tensors, k.ports) if a is bc.Access.READ]
        writes = [t for t, a in zip(tensors, k.ports) if a is not bc.Access.READ]
        for place, result in zip(writes, body.evaluate([r.copy() for r in reads], {}), strict=True):
            place[...] = result

    interpreter = Interpreter(program, kernel)
    entry = program.entries[0]
    results = interpreter.call(entry.function, [from_array(np.ascontiguousarray(x)) for x in inputs])
    return [r.array().copy() for r in results]


__all__ = ["Var", "compile_with_python_kernels", "run_program", "with_python_kernels"]
