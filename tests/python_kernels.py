"""The compile route without loops and native code: kernels are evaluated, the machine is Python's.

So what follows fusion (storage, plan, bytecode) is tested by itself, on the reference interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlay.bytecode import program as bc
from inlay.ir.kernel import Access
from inlay.ir.module import Module
from inlay.ir.verify import check
from inlay.memory import explicit_alloc
from inlay.memory.plan_memory import plan_module
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.pipeline.build_kernels import build_kernels
from inlay.pipeline.compile import meanings_of
from inlay.runtime.interp import Interpreter
from inlay.runtime.value import from_array
from inlay.transforms import decompose_ops, fuse_ops, to_anf
from inlay.vm.compile import compile_module

_ACCESS = {Access.READ: bc.Access.READ, Access.WRITE: bc.Access.WRITE}


def compile_with_python_kernels(module: Module, *, plan: bool = True) -> tuple[bc.Program, Module]:
    """Return the program of a typed module, and the module as it was compiled."""
    operators = table()
    context = PassContext(operators)
    for step in (to_anf.PASS, decompose_ops.PASS, fuse_ops.PASS):
        module = step.run(module, context)
    module = build_kernels(module, operators, meanings_of(operators), _no_loops, "").module
    module = explicit_alloc.PASS.run(module, context)
    if plan:
        module, _ = plan_module(module)
    check(module)
    kernels = {
        name: bc.Kernel(
            name, tuple(_ACCESS[p.access] for p in k.ports), len(k.ints), bc.HostBody(name)
        )
        for name, k in module.kernels.items()
    }
    return compile_module(module, kernels), module


def _no_loops(*_):
    raise AssertionError("nothing asks for loops here")


def run_program(
    program: bc.Program, module: Module, inputs: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Run the first entry of a program whose kernels are those of the module."""

    def kernel(k: bc.Kernel, tensors: list[np.ndarray], ints: list[int]) -> None:
        found = module.kernels[k.name]
        dims = {d.sym: n for d, n in zip(found.type.dims, ints, strict=True)}
        reads = [t.copy() for t, a in zip(tensors, k.ports) if a is bc.Access.READ]
        writes = [t for t, a in zip(tensors, k.ports) if a is not bc.Access.READ]
        for place, result in zip(writes, found.body.evaluate(reads, dims), strict=True):
            place[...] = result

    entry = program.entries[0]
    results = Interpreter(program, kernel).call(
        entry.function, [from_array(np.asarray(x, order="C")) for x in inputs]
    )
    return [r.array().copy() for r in results]
