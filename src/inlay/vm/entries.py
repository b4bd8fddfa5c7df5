"""Code of entries: it stands between the outside and the function that an entry names.

Outside there are tensors, tuples and values of data types. Control values are read from tensors and
made tensors, tuples are taken apart and built.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlay.base.diagnostics import InternalError
from inlay.bytecode.builder import FunctionBuilder
from inlay.bytecode.isa import Kind
from inlay.ir.expr import Function
from inlay.ir.types import AdtType, BoolType, ExistsType, IntType, ShapeType, TensorType, TupleType, Type
from inlay.vm.code import Code, Operand, Register, Return
from inlay.vm.values import Fields, Layout, VmValue, as_operand, flat_kinds, is_spread, layout_of, spread_over
from inlay.vm.writer import Writer


def entry_code(
    outer: FunctionBuilder,
    inner: FunctionBuilder,
    node: Function,
    takes: Sequence[Kind],
    gives: tuple[Type, ...],
) -> Code:
    """Return the code of an entry.

    Args:
        outer: of the entry.
        inner: of the function, in flat form.
        node: the function.
        takes: the kinds of the inputs.
        gives: the types of the outputs: the result of the function, or its parts.
    """
    params = [Register(kind) for kind in takes]
    writer = Writer()
    args = [
        x
        for param, register in zip(node.type.params, params, strict=True)
        for x in _from_outside(writer, param, register)
    ]
    result = node.type.result
    value = spread_over(result, writer.emit("CALL", inner, args=args, kinds=flat_kinds(result)))
    parts = (value,) if gives == (_without_exists(result),) else _fields(writer, result, value)
    outputs = [_to_outside(writer, t, part) for t, part in zip(gives, parts, strict=True)]
    root = writer.block
    writer.end(Return(tuple(outputs)))
    return Code(outer, tuple(params), root)


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


def _fields(writer: Writer, t: Type, value: VmValue) -> Sequence[VmValue]:
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


def _to_outside(writer: Writer, t: Type, value: VmValue) -> Operand:
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
