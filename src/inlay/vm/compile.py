"""A module in explicit storage, with its kernels compiled, to a bytecode program.

Functions of the module become functions of the program, with parameters and results in flat form.
Each entry gets a function that converts between the outside and what the function takes: control
values are read from tensors and made tensors, tuples are taken apart and built. Results that something
else still refers to are copied by the runtime, when they leave the machine.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from inlay.arith.dtype import from_numpy
from inlay.arith.text import text_array
from inlay.base.diagnostics import InternalError
from inlay.bytecode.builder import FunctionBuilder, ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import (
    Batch,
    Constant,
    Device,
    DeviceBody,
    Kernel,
    Program,
    ShapeCode,
    Target,
)
from inlay.bytecode.spec import slot_kind
from inlay.codegen.shapes import ShapeFunction
from inlay.ir.expr import Function, Var
from inlay.ir.module import Module
from inlay.ir.types import (
    AdtType,
    BoolType,
    ExistsType,
    IntType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
)
from inlay.vm.code import Block, Code, Operand, Register, Return
from inlay.vm.emit import ShapeSite, emit
from inlay.vm.intrinsics import INTRINSICS
from inlay.vm.lower import Intrinsic, Lowering, ReturnTo, facts_of
from inlay.vm.shapes import MOST_NATIVE, gather_shapes
from inlay.vm.signature import output_types, signature_of
from inlay.vm.tasks import mark_tasks
from inlay.vm.values import (
    Fields,
    Layout,
    Value,
    as_operand,
    flat_kinds,
    is_spread,
    kind_of,
    layout_of,
    spread_over,
)
from inlay.vm.writer import Writer

NO_TARGET = Target()
"""Of programs without native code."""

ShapeCompiler = Callable[[Sequence[ShapeFunction]], tuple[bytes, Sequence[int]]]
"""Returns the image of the program with code for functions in it, and where each begins."""

_HASHED_BYTES = 1 << 16
"""Constants up to this size are shared when their contents are equal; larger ones by identity."""


def compile_module(
    module: Module,
    kernels: Mapping[str, Kernel],
    *,
    target: Target = NO_TARGET,
    image: bytes = b"",
    memories: Sequence[str] = ("host",),
    devices: Sequence[Device] = (),
    properties: Mapping[str, str] | None = None,
    shapes: ShapeCompiler | None = None,
) -> Program:
    """Return the program of a module.

    Args:
        module: in A-normal form and explicit storage.
        kernels: the compiled kernels by name; those that are used go into the program.
        target: what the image was compiled for.
        image: native code of the kernels.
        memories: names of the memories of the board, the host's first.
        devices: besides the host.
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
    compiler = _Compiler(module, kernels, program, native=shapes is not None)
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
    """The tables of the program while it is made. Implements `lower.Tables`."""

    def __init__(
        self, module: Module, kernels: Mapping[str, Kernel], program: ProgramBuilder, *,
        native: bool,
    ) -> None:  # fmt: skip
        self.module = module
        self.program = program
        self.sites: list[ShapeSite] = []
        self._native = MOST_NATIVE if native else 0
        self._kernels = kernels
        self._kernel_index: dict[str, int] = {}
        self._constants: dict[object, int] = {}
        self._kept: list[np.ndarray] = []
        self._functions: dict[str, FunctionBuilder] = {}
        self._boxed: dict[str, FunctionBuilder] = {}
        self._pending: deque[Lowering] = deque()

    # ------------------------------------------------------------------ Tables

    def constant(self, array: np.ndarray) -> int:
        """Return the index of a tensor in the constant table."""
        if from_numpy(array.dtype).is_host_only:
            return self._strings(array)
        key: object = id(array)
        if array.nbytes <= _HASHED_BYTES:
            key = (array.dtype.str, array.shape, hashlib.blake2b(array.tobytes()).digest())
        found = self._constants.get(key)
        if found is None:
            name = from_numpy(array.dtype).name
            found = self.program.constant(Constant(name, array.shape, array))
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
                kernel = replace(kernel, batch=Batch(self.kernel(node.batch.code), shared))
            found = self._kernel_index[name] = self.program.kernel(kernel)
        return found

    def resident(self, constant: int, kernel: str) -> int:
        """Return the index of a constant where a kernel can read it: on its device."""
        body = self._kernels[kernel].body
        if not isinstance(body, DeviceBody):
            return constant
        key = ("resident", constant, body.memory)
        found = self._constants.get(key)
        if found is None:
            moved = replace(self.program.constants[constant], memory=body.memory)
            found = self._constants[key] = self.program.constant(moved)
        return found

    def function(self, name: str) -> FunctionBuilder:
        """Return the builder of a function of the module; its code follows."""
        found = self._functions.get(name)
        if found is None:
            node = self.module.functions[name]
            kinds = [k for p in node.params for k in flat_kinds(p.type)]
            found = self.program.function(name, kinds, flat_kinds(node.type.result))
            self._functions[name] = found
            self._prepare(found, node, boxed=False)
        return found

    def boxed_function(self, name: str) -> FunctionBuilder:
        """Return code for closures of a function of the module."""
        found = self._boxed.get(name)
        if found is None:
            node = self.module.functions[name]
            if _is_boxed(node):
                found = self.function(name)
            else:
                kinds = [kind_of(p.type) for p in node.params]
                result = (kind_of(node.type.result),)
                found = self.program.function(f"{name}.boxed", kinds, result)
                self._prepare(found, node, boxed=True)
            self._boxed[name] = found
        return found

    def new_function(
        self, name: str, params: Sequence[Kind], results: Sequence[Kind]
    ) -> FunctionBuilder:
        """Add a function."""
        return self.program.function(name, params, results)

    def later(self, lowering: Lowering) -> None:
        """Finish a lowering that was prepared, after the one in progress."""
        self._pending.append(lowering)

    def intrinsic(self, name: str) -> Intrinsic | None:
        """Return how calls of an operator are written as instructions, if they are."""
        return INTRINSICS.get(name)

    # ------------------------------------------------------------------ functions

    def _prepare(self, builder: FunctionBuilder, node: Function, *, boxed: bool) -> None:
        lowering = Lowering(self, builder, facts_of(node))
        params: list[Register] = []
        bound: list[tuple[Var, Value]] = []
        for var in node.params:
            kinds = (kind_of(var.type),) if boxed else flat_kinds(var.type)
            own = [Register(kind) for kind in kinds]
            params.extend(own)
            bound.append((var, own[0] if boxed else spread_over(var.type, own)))
        lowering.prepare(params, bound, node.body, ReturnTo(node.type.result, boxed))
        self.later(lowering)

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
        outer = self.program.function(
            f"{name}.entry",
            [slot_kind(spec) for spec in signature.inputs],
            [slot_kind(spec) for spec in signature.outputs],
        )
        params = [Register(slot_kind(spec)) for spec in signature.inputs]
        writer = Writer()
        block: Block = writer.block
        args = [
            x
            for param, register in zip(node.type.params, params, strict=True)
            for x in _from_outside(writer, param, register)
        ]
        result = node.type.result
        value = spread_over(result, writer.emit("CALL", inner, args=args, kinds=flat_kinds(result)))
        types = output_types(result, self.module.entries.get(name))
        parts = (value,) if types == (_without_exists(result),) else _fields(writer, result, value)
        outputs = [_to_outside(writer, t, part) for t, part in zip(types, parts, strict=True)]
        writer.end(Return(tuple(outputs)))
        self._emit(Code(outer, tuple(params), block))
        self.program.entry(signature.entry(name, outer.index))


def _is_boxed(node: Function) -> bool:
    """Whether flat and boxed form are the same for all parameters and the result."""
    types = [*(p.type for p in node.params), node.type.result]
    return all(layout_of(t) == 1 for t in types)


def _from_outside(writer: Writer, t: Type, given: Register) -> list[Operand]:
    """Return the parameter of an entry in flat form."""
    match t:
        case ExistsType(body=body):
            return _from_outside(writer, body, given)
        case IntType():
            return [writer.make("TO_INT", args=(given,), kind=Kind.INT)]
        case BoolType():
            number = writer.make("TO_INT", args=(given,), kind=Kind.INT)
            return [writer.binary("NE", number, 0)]
        case ShapeType(values=values):
            kinds = (Kind.INT,) * len(values)
            return list(writer.emit("READ_INTS", len(kinds), args=(given,), kinds=kinds))
        case TupleType(fields=fields):
            kinds = (Kind.ANY,) * len(fields)
            items = writer.emit("UNPACK", len(kinds), args=(given,), kinds=kinds)
            pairs = zip(fields, items, strict=True)
            if is_spread(t):
                return [x for f, item in pairs for x in _from_outside(writer, f, item)]
            boxed = [_boxed(writer, f, _from_outside(writer, f, item)) for f, item in pairs]
            return [writer.make("TUPLE", len(boxed), args=boxed, kind=Kind.TUPLE)]
        case _:
            return [given]


def _boxed(writer: Writer, t: Type, flat: Sequence[Operand]) -> Operand:
    """Return a value in flat form as one register."""
    supply = iter(flat)

    def box(layout: Layout) -> Operand:
        if isinstance(layout, int):
            return next(supply)
        items = [box(part) for part in layout]
        return writer.make("TUPLE", len(items), args=items, kind=Kind.TUPLE)

    return box(layout_of(t))


def _without_exists(t: Type) -> Type:
    while isinstance(t, ExistsType):
        t = t.body
    return t


def _fields(writer: Writer, t: Type, value: Value) -> Sequence[Value]:
    """Return the parts of a tuple or shape."""
    if isinstance(value, Fields):
        return value.items
    match _without_exists(t):
        case TupleType(fields=fields):
            kinds: tuple[Kind, ...] = (Kind.ANY,) * len(fields)
        case ShapeType(values=values):
            kinds = (Kind.INT,) * len(values)
        case other:
            raise InternalError(f"a value of type {other} has no parts")
    return writer.emit("UNPACK", len(kinds), args=(as_operand(value),), kinds=kinds)


def _to_outside(writer: Writer, t: Type, value: Value) -> Operand:
    """Return an output of an entry as the outside takes it."""
    match t:
        case ExistsType(body=body):
            return _to_outside(writer, body, value)
        case TensorType() | AdtType():
            return as_operand(value)
        case TupleType(fields=fields):
            parts = zip(fields, _fields(writer, t, value), strict=True)
            items = [_to_outside(writer, f, part) for f, part in parts]
            return writer.make("TUPLE", len(items), args=items, kind=Kind.TUPLE)
        case ShapeType():
            ints = [as_operand(x) for x in _fields(writer, t, value)]
            return writer.make("MAKE_INTS", "i64", len(ints), args=ints, kind=Kind.TENSOR)
        case _:
            dtype = "bool" if isinstance(t, BoolType) else "i64"
            return writer.make("TO_TENSOR", dtype, args=(as_operand(value),), kind=Kind.TENSOR)
