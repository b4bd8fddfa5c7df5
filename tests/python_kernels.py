"""The compile route without loops and native code: kernels are evaluated, the machine is Python's.

So what follows fusion (storage, plan, bytecode) is tested by itself, on the reference interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from inlay.bytecode import program as bc
from inlay.ir.kernel import Access, Kernel
from inlay.ir.module import Module
from inlay.ir.verify import check
from inlay.memory import carry_buffers, explicit_alloc
from inlay.memory.plan import FunctionPlan, Sharing
from inlay.memory.plan_memory import plan_module
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.pipeline import build_kernels
from inlay.pipeline.build_kernels import BuildOptions
from inlay.pipeline.planning import meanings_of
from inlay.runtime.interp import Interpreter
from inlay.runtime.value import Tensor, Tuple, from_array
from inlay.transforms import decompose_ops, fuse_ops, to_anf
from inlay.vm.compile import compile_module

_ACCESS = {
    Access.READ: bc.AccessCode.READ,
    Access.WRITE: bc.AccessCode.WRITE,
    Access.UPDATE: bc.AccessCode.READ_WRITE,
}


def compile_with_python_kernels(
    module: Module,
    *,
    plan: bool = True,
    sharing: Sharing = Sharing.SERIAL,
    plans: list[FunctionPlan] | None = None,
) -> tuple[bc.Program, Module]:
    """Return the program of a typed module, and the module as it was compiled; add its plans to a list."""
    operators = table()
    context = PassContext(operators)
    for step in (to_anf.PASS, decompose_ops.PASS, fuse_ops.PASS):
        module = step.run(module, context)
    building = BuildOptions(_no_loops, meanings=meanings_of(operators))
    module = build_kernels.PASS.run(module, context.with_options(building))
    module = explicit_alloc.PASS.run(module, context)
    if plan:
        module = carry_buffers.PASS.run(module, context)
        module, made = plan_module(module, sharing=sharing)
        if plans is not None:
            plans += made
    check(module)
    kernels = {
        name: bc.Kernel(name, tuple(_ACCESS[p.access] for p in k.ports), len(k.ints), bc.HostBody(name))
        for name, k in module.kernels.items()
    }
    return compile_module(module, kernels), module


def _no_loops(*_):
    raise AssertionError("nothing asks for loops here")


def callbacks_of(module: Module) -> dict[str, Callable[[list[np.ndarray], list[int]], None]]:
    """Return the kernels of a module as functions that read and write their tensors."""

    def evaluated(kernel: Kernel) -> Callable[[list[np.ndarray], list[int]], None]:
        def run(tensors: list[np.ndarray], ints: list[int]) -> None:
            dims = {d.sym: n for d, n in zip(kernel.type.dims, ints, strict=True)}
            reads = [t.copy() for t, p in zip(tensors, kernel.ports) if p.access is Access.READ]
            writes = [t for t, p in zip(tensors, kernel.ports) if p.access is not Access.READ]
            for place, result in zip(writes, kernel.body.evaluate(reads, dims), strict=True):
                place[...] = result

        return run

    return {name: evaluated(kernel) for name, kernel in module.kernels.items()}


def run_program(program: bc.Program, module: Module, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run the first entry of a program whose kernels are those of the module."""
    callbacks = callbacks_of(module)

    def kernel(k: bc.Kernel, tensors: list[np.ndarray], ints: list[int]) -> None:
        callbacks[k.name](tensors, ints)

    entry = program.entries[0]
    results = Interpreter(program, kernel).call(
        entry.function, [from_array(np.asarray(x, order="C")) for x in inputs]
    )
    return [array for r in results for array in _arrays(r)]


def _arrays(value: object) -> list[np.ndarray]:
    """Return the tensors in a result; tuples are objects of the machine."""
    if isinstance(value, Tuple):
        return [array for item in value.items for array in _arrays(item)]
    assert isinstance(value, Tensor), "results are tensors and tuples of them"
    return [value.array().copy()]
