"""A module in explicit storage, with its kernels compiled, to a bytecode program.

Functions of the module become functions of the program, with parameters and results in flat form
(`lower`), each when something first mentions it. An entry gets code of its own around its function
(`entries`). Results that something else still refers to are copied by the runtime, when they leave
the machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from inlay.arith.deferred import AnyArray
from inlay.arith.dtype import from_numpy
from inlay.arith.text import text_array
from inlay.base.diagnostics import InternalError
from inlay.bytecode.builder import FunctionBuilder, ProgramBuilder
from inlay.bytecode.constants import content_of
from inlay.bytecode.program import (
    HOST_MEMORY,
    BatchRecord,
    Constant,
    DeviceRecord,
    ImageTarget,
    Kernel,
    Memory,
    Program,
    ShapeCode,
)
from inlay.bytecode.spec import slot_kind
from inlay.codegen.shapes import ShapeFunction
from inlay.ir.expr import Function
from inlay.ir.module import Module
from inlay.ir.place import Place
from inlay.vm.code import Code
from inlay.vm.emit import ShapeSite, emit
from inlay.vm.entries import entry_code
from inlay.vm.environment import Environment
from inlay.vm.facts import facts_of
from inlay.vm.lower import Lowering
from inlay.vm.shapes import MOST_NATIVE, gather_shapes
from inlay.vm.signature import output_types, signature_of
from inlay.vm.tasks import mark_tasks
from inlay.vm.values import Lifted, layout_of, param_kinds, result_kinds

NO_TARGET = ImageTarget()
"""Of programs without native code."""

ShapeCompiler = Callable[[Sequence[ShapeFunction]], tuple[bytes, Sequence[int]]]
"""Returns the image of the program with code for functions in it, and where each begins."""


def compile_module(
    module: Module,
    kernels: Mapping[str, Kernel],
    *,
    target: ImageTarget = NO_TARGET,
    image: bytes = b"",
    memories: Sequence[Memory] = (HOST_MEMORY,),
    devices: Sequence[DeviceRecord] = (),
    spaces: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    shapes: ShapeCompiler | None = None,
) -> Program:
    """Return the program of a module.

    Args:
        module: in A-normal form and explicit storage.
        kernels: the compiled kernels by name; those that are used go into the program.
        target: what the image was compiled for.
        image: native code of the kernels.
        memories: of the board, the host's first.
        devices: besides the host.
        spaces: the memory space of each device that is not the host, by their names.
        properties: facts for people.
        shapes: makes native code of shape arithmetic; without it, the machine executes that one
            instruction at a time.

    Raises:
        CompileError: an entry takes or gives what has no tensor form (`entry.type`, `entry.dim`).
        InternalError: the module is not in the form that is required.

    Cost: linear in the program.
    """
    program = ProgramBuilder(
        target=target, image=image, memories=memories, devices=devices, properties=properties
    )
    opened = {m for device in devices for m in device.memories}
    names = [m.name for m in memories]
    indices = {d: names.index(m) for d, m in (spaces or {}).items()}
    # Where nothing runs and nothing is brought to, it does not matter where a constant is.
    reached = {d: index for d, index in indices.items() if index in opened}
    compiler = _Compiler(module, kernels, program, reached, native=shapes is not None)
    names = list(module.entries) or [module.entry]
    for name in names:
        compiler.entry(name)
    compiler.finish()
    if shapes is not None and compiler.sites:
        program.image, offsets = shapes([site.function for site in compiler.sites])
        program.shapes = [
            ShapeCode(offset, site.inputs, len(site.function.results))
            for offset, site in zip(offsets, compiler.sites, strict=True)
        ]
    return program.finish()


class _Compiler:
    """The tables of the program while it is made. Implements `environment.Tables`."""

    def __init__(
        self,
        module: Module,
        kernels: Mapping[str, Kernel],
        program: ProgramBuilder,
        spaces: Mapping[str, int],
        *,
        native: bool,
    ) -> None:
        self.module = module
        self.program = program
        self.sites: list[ShapeSite] = []
        self._native = MOST_NATIVE if native else 0
        self._kernels = kernels
        self._spaces = spaces
        self._kernel_index: dict[str, int] = {}
        self._constants: dict[object, int] = {}
        self._kept: list[AnyArray] = []
        self._functions: dict[str, FunctionBuilder] = {}
        self._boxed: dict[str, FunctionBuilder] = {}
        self._pending: deque[Lowering] = deque()

    # ------------------------------------------------------------------ Tables

    def constant(self, array: AnyArray, memory: int) -> int:
        """Return the index of a tensor in the constant table, in a memory."""
        if isinstance(array, np.ndarray) and from_numpy(array.dtype).is_host_only:
            return self._strings(array)
        key = (memory, content_of(array))
        found = self._constants.get(key)
        if found is None:
            name = from_numpy(array.dtype).name
            found = self.program.constant(Constant(name, array.shape, array, memory=memory))
            self._constants[key] = found
            self._kept.append(array)  # while it is kept, no other array has its id
        return found

    def _strings(self, array: np.ndarray) -> int:
        """Return the index of a tensor of strings: of their positions in the table of strings."""
        items = text_array(array).reshape(-1).tolist()
        numbers = np.array([self.program.string(text) for text in items], np.int64)
        key = ("string", array.shape, numbers.tobytes())
        found = self._constants.get(key)
        if found is None:
            constant = Constant("string", array.shape, numbers.reshape(array.shape))
            found = self._constants[key] = self.program.constant(constant)
        return found

    def kernel(self, name: str) -> int:
        """Return the index of a kernel."""
        found = self._kernel_index.get(name)
        if found is None:
            kernel = self._kernels.get(name)
            if kernel is None:
                raise InternalError(f"kernel '{name}' was not compiled")
            node = self.module.kernels.get(name)
            if node is not None and node.batch is not None:
                shared = tuple(sorted(node.batch.shared))
                kernel = replace(kernel, batch=BatchRecord(self.kernel(node.batch.code), shared))
            found = self._kernel_index[name] = self.program.kernel(kernel)
        return found

    def memory_at(self, place: Place | None) -> int:
        """Return the memory of what is at a place: the host's, or that of the device."""
        return 0 if place is None else self._spaces.get(place.device, 0)

    def function(self, name: str) -> FunctionBuilder:
        """Return the builder of a function of the module; its code follows."""
        found = self._functions.get(name)
        if found is None:
            node = self.module.functions[name]
            found = self._functions[name] = self._add(name, node, boxed=False)
        return found

    def boxed_function(self, name: str) -> FunctionBuilder:
        """Return code for closures of a function of the module."""
        found = self._boxed.get(name)
        if found is None:
            node = self.module.functions[name]
            if _is_boxed(node):
                found = self.function(name)
            else:
                found = self._add(f"{name}.boxed", node, boxed=True)
            self._boxed[name] = found
        return found

    def local_function(self, code: Lifted, around: Environment, *, boxed: bool) -> FunctionBuilder:
        """Add the code of a local function, which takes its captures first."""
        name = f"{around.name}.{code.var.name}"
        kinds = [*(r.kind for r in code.captures), *param_kinds(code.node, boxed=boxed)]
        builder = self.program.function(name, kinds, result_kinds(code.node, boxed=boxed))
        env, captures = around.inside(code, builder.name)
        self._pending.append(Lowering(env, builder, code.node, captures, boxed=boxed))
        return builder

    # ------------------------------------------------------------------ functions

    def _add(self, name: str, node: Function, *, boxed: bool) -> FunctionBuilder:
        kinds = param_kinds(node, boxed=boxed)
        builder = self.program.function(name, kinds, result_kinds(node, boxed=boxed))
        env = Environment(self, builder.name, facts_of(node))
        self._pending.append(Lowering(env, builder, node, boxed=boxed))
        return builder

    def finish(self) -> None:
        """Write everything that was asked for."""
        codes: list[Code] = []
        while self._pending:
            codes.append(self._pending.popleft().finish())
        mark_tasks(codes, self.program.kernels)
        for code in codes:
            self._emit(code)

    def _emit(self, code: Code) -> None:
        self._native = gather_shapes(code, self.program.kernels, native=self._native)
        emit(code, self.sites)

    # ------------------------------------------------------------------ entries

    def entry(self, name: str) -> None:
        """Make a function callable from outside."""
        node = self.module.functions[name]
        signature = signature_of(name, node, self.module.entries.get(name))
        inner = self.function(name)
        takes = [slot_kind(spec) for spec in signature.inputs]
        results = [slot_kind(spec) for spec in signature.outputs]
        outer = self.program.function(f"{name}.entry", takes, results)
        gives = output_types(node.type.result, self.module.entries.get(name))
        self._emit(entry_code(outer, inner, node, takes, gives))
        self.program.entry(signature.entry(name, outer.index))


def _is_boxed(node: Function) -> bool:
    """Whether flat and boxed form are the same for all parameters and the result."""
    types = [*(p.type for p in node.params), node.type.result]
    return all(layout_of(t) == 1 for t in types)
