"""Operators that the machine runs itself: checks, control values, rows, storage, views.

Everything else is a kernel by the time it comes here and is run by `invoke`. An operator
that is a view (`op.alias`) and not in this table is a reshape to the type of its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from inlay.bytecode.isa import Kind
from inlay.ir.core_ops import CheckAttrs, LeastAttrs
from inlay.ir.expr import Call, GlobalVar
from inlay.ir.types import BoolType, ExistsType, IntType, ShapeType, TensorType, Type
from inlay.ops.index_checks import IndicesAttrs, outside
from inlay.ops.layout import AxisAttrs
from inlay.ops.memory import StorageAttrs, TensorAtAttrs
from inlay.vm.code import Operand
from inlay.vm.lower import Intrinsic, Lowering
from inlay.vm.values import UNIT, Constant, Fields, Value, as_operand


def _check_equal(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    assert isinstance(attrs, CheckAttrs)
    _require_equal(lower, as_operand(args[1]), as_operand(args[2]), attrs.why)
    return args[0]


def _require_equal(lower: Lowering, found: Operand, needed: Operand, why: str) -> None:
    holds = lower.writer.binary("EQ", found, needed)
    if holds != 1:
        message = f"{why}: found {{1}} and {{2}}, needed equal sizes"
        lower.writer.emit("CHECK", 2, message, args=(found, needed, holds))


def _check_at_least(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    assert isinstance(attrs, LeastAttrs)
    found = as_operand(args[1])
    holds = lower.writer.binary("LE", attrs.low, found)
    if holds != 1:
        message = f"{attrs.why}: found {{1}}, needed at least {attrs.low}"
        lower.writer.emit("CHECK", 1, message, args=(found, holds))
    return args[0]


def _check_shape(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    assert isinstance(attrs, CheckAttrs)
    t = call.args[0].type
    assert isinstance(t, TensorType), "only tensors have a shape to check"
    tensor = lower.operand(args[0])
    wanted = lower.fields(args[1], len(t.shape))
    types = call.args[1].type
    known = types.values if isinstance(types, ShapeType) else (None,) * len(wanted)
    for axis, (need, sure) in enumerate(zip(wanted, known, strict=True)):
        if sure is not None and sure == t.shape[axis]:
            continue
        found = lower.writer.make("DIM", axis, args=(tensor,), kind=Kind.INT)
        holds = lower.writer.binary("EQ", found, as_operand(need))
        why = attrs.why or "shape"
        message = f"{why}: found {{1}} for dim {axis}, needed {{2}}"
        lower.writer.emit("CHECK", 2, message, args=(found, as_operand(need), holds))
    return tensor


def _check_indices(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    """Compare least and greatest index (stored as its complement) of each axis with its size."""
    assert isinstance(attrs, IndicesAttrs)
    write = lower.writer
    ends, sizes = lower.operand(args[1]), [as_operand(a) for a in args[2:]]
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
    def write(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
        return lower.writer.binary(name, as_operand(args[0]), as_operand(args[1]))

    return write


def _not(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    operand = as_operand(args[0])
    if isinstance(operand, int):
        return int(not operand)
    return lower.writer.make("NOT", args=(operand,), kind=Kind.INT)


def _to_control(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    tensor = lower.operand(args[0])
    t = _open(call.type)
    if isinstance(t, ShapeType):
        count = len(t.values)
        kinds = (Kind.INT,) * count
        return Fields(lower.writer.emit("READ_INTS", count, args=(tensor,), kinds=kinds))
    number = lower.writer.make("TO_INT", args=(tensor,), kind=Kind.INT)
    if isinstance(t, BoolType):
        return lower.writer.binary("NE", number, 0)
    return number


def _to_tensor(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    t, source = call.type, _open(call.args[0].type)
    assert isinstance(t, TensorType), "to_tensor makes a tensor"
    if isinstance(source, ShapeType):
        parts = [as_operand(p) for p in lower.fields(args[0], len(source.values))]
        return lower.writer.make(
            "MAKE_INTS", t.dtype.name, len(parts), args=parts, kind=Kind.TENSOR
        )
    assert isinstance(source, (IntType, BoolType)), "only control values become tensors"
    return lower.writer.make(
        "TO_TENSOR", t.dtype.name, args=(as_operand(args[0]),), kind=Kind.TENSOR
    )


def _get_row(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    operands = (lower.operand(args[0]), as_operand(args[1]))
    return lower.writer.make("ROW", args=operands, kind=Kind.TENSOR)


def _set_row(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    index, row = as_operand(args[1]), lower.operand(args[2])
    owned = lower.writer.make("OWN", args=(lower.operand(args[0]),), kind=Kind.TENSOR)
    place = lower.writer.make("ROW", args=(owned, index), kind=Kind.TENSOR)
    lower.writer.emit("ASSIGN", args=(place, row))
    return owned


def _push_row(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    operands = (lower.operand(args[0]), lower.operand(args[1]))
    return lower.writer.make("APPEND", args=operands, kind=Kind.TENSOR)


def _extend(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    assert isinstance(attrs, AxisAttrs)
    t = call.args[0].type
    assert isinstance(t, TensorType), "only tensors grow"
    operands = (lower.operand(args[0]), lower.operand(args[1]))
    axis = attrs.axis % len(t.shape)
    return lower.writer.make("EXTEND", axis, args=operands, kind=Kind.TENSOR)


def _alloc_storage(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    assert isinstance(attrs, StorageAttrs)
    memory = attrs.memory or 0
    size = as_operand(args[0])
    return lower.writer.make("STORAGE", memory, attrs.alignment, args=(size,), kind=Kind.STORAGE)


def _tensor_at(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    assert isinstance(attrs, TensorAtAttrs)
    t = call.type
    assert isinstance(t, TensorType), "tensor_at makes a tensor"
    dims = [as_operand(d) for d in lower.fields(args[2], len(t.shape))]
    operands = (lower.operand(args[0]), as_operand(args[1]), *dims)
    return lower.writer.make(
        "TENSOR", attrs.dtype.name, len(dims), args=operands, kind=Kind.TENSOR
    )


def _resident(lower: Lowering, value: Value, kernel: str) -> Value:
    """Return an operand of a kernel; a constant is where the kernel runs."""
    if isinstance(value, Constant):
        return Constant(lower.tables.resident(value.index, kernel))
    return value


def _invoke(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    kernel, ints = call.args[0], call.args[-1].type
    assert isinstance(kernel, GlobalVar), "invoke names a kernel"
    assert isinstance(ints, ShapeType), "the integers of a kernel are a shape"
    values = [_resident(lower, t, kernel.name) for t in args[1:-1]]
    tensors = [lower.operand(t) for t in values]
    numbers = [as_operand(n) for n in lower.fields(args[-1], len(ints.values))]
    index = lower.tables.kernel(kernel.name)
    lower.writer.emit("INVOKE", index, args=(*tensors, *numbers))
    return UNIT


def _own(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
    return lower.writer.make("OWN", args=(lower.operand(args[0]),), kind=Kind.TENSOR)


def _kill(lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
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
