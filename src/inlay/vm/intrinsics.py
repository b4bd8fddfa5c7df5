"""Operators that the machine runs itself: checks, control values, rows, storage, views.

Everything else is a kernel by the time it comes here and is run by `invoke`. An operator
that is a view (`op.alias`) and not in this table is a reshape to the type of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from inlay.bytecode.isa import Kind
from inlay.ir.core_ops import CheckAttrs, LeastAttrs
from inlay.ir.expr import Call, GlobalVar
from inlay.ir.types import BoolType, ExistsType, IntType, ShapeType, TensorType, Type
from inlay.ops.index_checks import IndicesAttrs, outside
from inlay.ops.joining import AxisAttrs
from inlay.ops.memory import StorageAttrs, TensorAtAttrs
from inlay.vm.code import Operand
from inlay.vm.environment import Environment
from inlay.vm.values import UNIT, Fields, VmValue, as_operand

Intrinsic = Callable[[Environment, Call, object, list[VmValue]], VmValue]
"""Appends the instructions of a call, given its attributes and arguments; returns the result."""


def _check_equal(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    assert isinstance(attrs, CheckAttrs)
    _require_equal(env, as_operand(args[1]), as_operand(args[2]), attrs.why)
    return args[0]


def _require_equal(env: Environment, found: Operand, needed: Operand, why: str) -> None:
    holds = env.writer.binary("EQ", found, needed)
    if holds != 1:
        message = f"{why}: found {{1}} and {{2}}, needed equal sizes"
        env.writer.emit("CHECK", 2, message, args=(found, needed, holds))


def _check_at_least(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    assert isinstance(attrs, LeastAttrs)
    found = as_operand(args[1])
    holds = env.writer.binary("LE", attrs.low, found)
    if holds != 1:
        message = f"{attrs.why}: found {{1}}, needed at least {attrs.low}"
        env.writer.emit("CHECK", 1, message, args=(found, holds))
    return args[0]


def _check_shape(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    assert isinstance(attrs, CheckAttrs)
    t = call.args[0].type
    assert isinstance(t, TensorType), "only tensors have a shape to check"
    tensor = env.operand(args[0])
    wanted = env.fields(args[1], len(t.shape))
    types = call.args[1].type
    known = types.values if isinstance(types, ShapeType) else (None,) * len(wanted)
    for axis, (need, sure) in enumerate(zip(wanted, known, strict=True)):
        if sure is not None and sure == t.shape[axis]:
            continue
        found = env.writer.make("DIM", axis, args=(tensor,), kind=Kind.INT)
        holds = env.writer.binary("EQ", found, as_operand(need))
        why = attrs.why or "shape"
        message = f"{why}: found {{1}} for dim {axis}, needed {{2}}"
        env.writer.emit("CHECK", 2, message, args=(found, as_operand(need), holds))
    return tensor


def _check_indices(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    """Compare least and greatest index (stored as its complement) of each axis with its size."""
    assert isinstance(attrs, IndicesAttrs)
    write = env.writer
    ends, sizes = env.operand(args[1]), [as_operand(a) for a in args[2:]]
    kinds = (Kind.INT,) * (2 * len(sizes))
    found = write.emit("READ_INTS", len(kinds), args=(ends,), kinds=kinds)
    message = outside(attrs.why, "{1}", "{2}")
    for k, size in enumerate(sizes):
        least, greatest = found[2 * k], write.binary("SUB", -1, found[2 * k + 1])
        above = write.binary("LE", write.binary("SUB", 0, size), least)
        write.emit("CHECK", 2, message, args=(least, size, above))
        below = write.binary("LT", greatest, size)
        write.emit("CHECK", 2, message, args=(greatest, size, below))
    return args[0]


def _binary(name: str) -> Intrinsic:
    def write(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
        return env.writer.binary(name, as_operand(args[0]), as_operand(args[1]))

    return write


def _not(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    operand = as_operand(args[0])
    if isinstance(operand, int):
        return int(not operand)
    return env.writer.make("NOT", args=(operand,), kind=Kind.INT)


def _to_control(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    tensor = env.operand(args[0])
    t = _open(call.type)
    if isinstance(t, ShapeType):
        count = len(t.values)
        kinds = (Kind.INT,) * count
        return Fields(env.writer.emit("READ_INTS", count, args=(tensor,), kinds=kinds))
    number = env.writer.make("TO_INT", args=(tensor,), kind=Kind.INT)
    if isinstance(t, BoolType):
        return env.writer.binary("NE", number, 0)
    return number


def _to_tensor(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    t, source = call.type, _open(call.args[0].type)
    assert isinstance(t, TensorType), "to_tensor makes a tensor"
    if isinstance(source, ShapeType):
        parts = [as_operand(p) for p in env.fields(args[0], len(source.values))]
        return env.writer.make("MAKE_INTS", t.dtype.name, len(parts), args=parts, kind=Kind.TENSOR)
    assert isinstance(source, (IntType, BoolType)), "only control values become tensors"
    return env.writer.make("TO_TENSOR", t.dtype.name, args=(as_operand(args[0]),), kind=Kind.TENSOR)


def _get_row(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    operands = (env.operand(args[0]), as_operand(args[1]))
    return env.writer.make("ROW", args=operands, kind=Kind.TENSOR)


def _set_row(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    index, row = as_operand(args[1]), env.operand(args[2])
    owned = env.writer.make("OWN", args=(env.operand(args[0]),), kind=Kind.TENSOR)
    place = env.writer.make("ROW", args=(owned, index), kind=Kind.TENSOR)
    env.writer.emit("ASSIGN", args=(place, row))
    return owned


def _push_row(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    operands = (env.operand(args[0]), env.operand(args[1]))
    return env.writer.make("APPEND", args=operands, kind=Kind.TENSOR)


def _extend(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    assert isinstance(attrs, AxisAttrs)
    t = call.args[0].type
    assert isinstance(t, TensorType), "only tensors grow"
    operands = (env.operand(args[0]), env.operand(args[1]))
    axis = attrs.axis % len(t.shape)
    return env.writer.make("EXTEND", axis, args=operands, kind=Kind.TENSOR)


def _alloc_storage(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    assert isinstance(attrs, StorageAttrs)
    memory = attrs.memories[0] if attrs.memories else 0
    size = as_operand(args[0])
    return env.writer.make("STORAGE", memory, attrs.alignment, args=(size,), kind=Kind.STORAGE)


def _tensor_at(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    assert isinstance(attrs, TensorAtAttrs)
    t = call.type
    assert isinstance(t, TensorType), "tensor_at makes a tensor"
    dims = [as_operand(d) for d in env.fields(args[2], len(t.shape))]
    operands = (env.operand(args[0]), as_operand(args[1]), *dims)
    return env.writer.make("TENSOR", attrs.dtype.name, len(dims), args=operands, kind=Kind.TENSOR)


def _invoke(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    kernel, ints = call.args[0], call.args[-1].type
    assert isinstance(kernel, GlobalVar), "invoke names a kernel"
    assert isinstance(ints, ShapeType), "the integers of a kernel are a shape"
    index = env.tables.kernel(kernel.name)
    tensors = [env.operand(t) for t in args[1:-1]]
    numbers = [as_operand(n) for n in env.fields(args[-1], len(ints.values))]
    env.writer.emit("INVOKE", index, args=(*tensors, *numbers))
    return UNIT


def _own(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    return env.writer.make("OWN", args=(env.operand(args[0]),), kind=Kind.TENSOR)


def _kill(env: Environment, call: Call, attrs: object, args: list[VmValue]) -> VmValue:
    return UNIT


def _open(t: Type) -> Type:
    return t.body if isinstance(t, ExistsType) else t


INTRINSICS: Mapping[str, Intrinsic] = MappingProxyType(
    {
        "check_shape": _check_shape,
        "check_equal": _check_equal,
        "check_at_least": _check_at_least,
        "check_indices": _check_indices,
        "int_less": _binary("LT"),
        "int_less_equal": _binary("LE"),
        "int_equal": _binary("EQ"),
        "bool_and": _binary("AND"),
        "bool_or": _binary("OR"),
        "bool_not": _not,
        "to_control": _to_control,
        "to_tensor": _to_tensor,
        "get_row": _get_row,
        "set_row": _set_row,
        "push_row": _push_row,
        "extend": _extend,
        "alloc_storage": _alloc_storage,
        "tensor_at": _tensor_at,
        "invoke": _invoke,
        "own": _own,
        "kill": _kill,
    }
)
