"""Packs constant right-hand sides of contractions into panels.

A matrix product streams its right operand; in panels of a few vectors of columns, `[n/panel, k,
panel]`, every load is the next one in memory. The right operand of a product and the weights of a
channels-last convolution are packed here when they are constants; what is not constant is packed by
the kernel that reads it, if that pays. The original constant goes when nobody reads it.

**Panel width.** `analysis/register_tiles.py` weighs the shapes of tiles against columns computed for
nothing; for a convolution it is told the pixels of a line. A panel is to stay in the second cache while
all rows pass, so many terms make it narrower. All of that is of the device that an operation runs on:
a constant that two devices read is packed for each. What has code that reads no panels is left alone.

**Integers** are packed for the instruction of the device that multiplies them: in groups of as many
neighbors along the sum as it adds at once, in the format that it reads. Zero points of weights are taken
off before, where that format holds the difference. Convolutions of 3 x 3 take Winograd's form where it
is exact and faster (`analysis/winograd.py`). Where an instruction for bytes wants one side without a sign,
128 is added to what has one, and `128 * sum(w)` is taken off the sums, with what is added to them anyway.

**Narrow floats.** Operands that are bf16 (`round-operands`) are packed in groups as well, where an
instruction adds products of bf16, weights that are computed too, by an operation in front. What f16 or bf16
hold exactly of larger constants is kept so (`_stored_weights`).

**Bytes for time.** Winograd's form takes more bytes than the sums as they are written: 16 weights for 9,
and transformed tiles in scratch memory. It is chosen here alone: who keeps a program to a budget runs this
pass again and says which operations keep the plainest form (`PackOptions.plain`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any, TypeGuard

import numpy as np

from inlay.analysis.matrix_tiles import matrix_blocks
from inlay.analysis.register_tiles import panel_width
from inlay.analysis.winograd import (
    float_gain,
    float_lines,
    float_scratch,
    integer_gain,
    integer_scratch,
    pays,
)
from inlay.arith.dtype import BF16, F32, I8, I16, U8, DType, from_numpy
from inlay.arith.expr import Int
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.machine.device import Speed
from inlay.machine.dot_products import DotProduct
from inlay.machine.matrix_units import MatrixProduct
from inlay.machine.target import Target
from inlay.ops._build import Array
from inlay.ops.bf16_products import PackBf16Attrs, PackedBf16Attrs, PackedBf16ConvAttrs
from inlay.ops.convolution import ConvAttrs, PackedConvAttrs
from inlay.ops.integer_lines import PackedLinesAttrs
from inlay.ops.integer_products import (
    IntegerConvAttrs,
    PackedIntegerAttrs,
    PackedIntegerConvAttrs,
    PackIntegerAttrs,
)
from inlay.ops.matmul import PackAttrs, PackedAttrs
from inlay.ops.quantized import along
from inlay.ops.table import OperatorTable
from inlay.ops.winograd import WinogradAttrs, WinogradPackAttrs, fits
from inlay.ops.winograd_floats import WinogradFloatAttrs
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, is_call, rewrite_module
from inlay.transforms._packed_blocks import packed_blocks
from inlay.transforms._stored_weights import StoredWeights, narrow_table, stored_format
from inlay.transforms.round_operands import widened_from


def _same(_device: str) -> Target | None:
    return Target(vector_bytes=64, vector_registers=32)


def _usual(_device: str, macs: int) -> int:
    return round(macs / Speed().macs_per_ns)


@dataclass(frozen=True, slots=True)
class FasterForm:
    """A form of an operation that is faster than the plainest one and takes more bytes.

    Attributes:
        number: of the operation among those that have one, in the order in which the pass meets them.
        name: of the form.
        bytes: what it takes beyond the plainest form: of weights, and of scratch memory of one thread.
        saves_ns: predicted time that it saves.
        is_taken: whether it is the form of the program.
    """

    number: int
    name: str
    bytes: int
    saves_ns: int
    is_taken: bool


@dataclass(frozen=True, slots=True)
class PackOptions:
    """Options of this pass.

    Attributes:
        targets: gives for a device, by its name, what panels are made for; None where its code reads
            none. What has no place is on the device without a name.
        plain: numbers of operations that keep the plainest form (`FasterForm.number`).
        watch: is told each operation that has a faster form, and whether it is taken.
        time: predicts the nanoseconds of so many multiply-adds on a device, by its name.
        stored: is told each constant that 16 bits hold.
        bf16: whether products of bf16 may be added by an instruction that takes numbers below 2^-126 for 0.
    """

    targets: Callable[[str], Target | None] = _same
    plain: frozenset[int] = frozenset()
    watch: Callable[[FasterForm], None] | None = None
    time: Callable[[str, int], int] = _usual
    stored: Callable[[StoredWeights], None] | None = None
    bf16: bool = False

    def pairs(self, target: Target) -> DotProduct | None:
        """Return the kind of instruction that adds products of bf16 on a device, where it may be taken."""
        return target.dot_product(BF16, BF16) if self.bf16 else None


@dataclass(slots=True)
class _Forms:
    """Decides which operations take a faster form, one after the other."""

    options: PackOptions
    met: int = 0

    def takes(self, name: str, call: Call, extra: int, macs: int) -> bool:
        """Whether the next operation takes its faster form; tells who watches.

        Args:
            name: of the form.
            call: the operation.
            extra: bytes beyond the plainest form.
            macs: multiply-adds that it saves.
        """
        number, self.met = self.met, self.met + 1
        taken = number not in self.options.plain
        if self.options.watch is not None:
            device = "" if call.place is None else call.place.device
            self.options.watch(FasterForm(number, name, extra, self.options.time(device, macs), taken))
        return taken


_FORMS = {
    "matmul": ("pack_weights", "matmul_packed"),
    "conv_nhwc": ("pack_conv_weights", "conv_nhwc_packed"),
    "matmul_integer": ("pack_integer_weights", "matmul_integer_packed"),
    "conv_nhwc_integer": ("pack_integer_weights", "conv_nhwc_integer_packed"),
}
"""What packs the weights of an operator, and the operator that reads them."""

_WINOGRAD = "Winograd's form of a convolution"

_LINES = ("pack_integer_weights", "conv_lines_integer_packed")
"""The same where the last axis of the kernel and the channels are one."""

_BF16_FORMS = {
    "matmul": ("pack_bf16_weights", "matmul_bf16_packed"),
    "conv_nhwc": ("pack_bf16_weights", "conv_nhwc_bf16_packed"),
}
"""The same where an instruction adds products of bf16."""


@dataclass(frozen=True, slots=True)
class _Product:
    """A product whose weights can be packed.

    Attributes:
        call: the product.
        name: of its operator.
        conv: how windows move; None for a matrix product.
        x: the other operand.
        weights: the constant, `[*k, c, n]`.
        zero: what is taken off the weights, if anything is.
        narrow: the bf16 that the other operand is made of, where the weights are bf16 too.
    """

    call: Call
    name: str
    conv: ConvAttrs | None
    x: Expr
    weights: Const
    zero: Const | None = None
    narrow: Expr | None = None

    @property
    def array(self) -> Array:
        """The constant's elements."""
        return _array(self.weights)

    def less_zero(self) -> Array:
        """Return the weights less their zero point, in the narrowest format that has them."""
        if self.zero is None:
            return self.array
        shifted = self.array.astype(np.int16) - along(_array(self.zero).astype(np.int16), self.array.ndim, -1)
        same = shifted.astype(np.int8)
        return same if (same == shifted).all() else shifted

    def fills_lines(self, group: int) -> bool:
        """Whether groups of terms along lines are no more than along the channels of each pixel, some of
        which they do not fill: then lines are read as they are.
        """
        if self.conv is None or self.conv.groups > 1 or (self.conv.dilations or (1,))[-1] != 1:
            return False
        *_, width, inputs, _ = self.array.shape
        return -(-width * inputs // group) <= width * -(-inputs // group) and inputs % group != 0


@dataclass(frozen=True, slots=True)
class _Packing:
    """How the weights of a product are laid out, the attributes of what reads them, and what does both.

    `shift` is added to the other operand. Weights are in `dtype` where that is not their own.
    """

    how: PackAttrs | PackIntegerAttrs | PackBf16Attrs | WinogradPackAttrs
    attrs: object
    forms: tuple[str, str]
    shift: int = 0
    dtype: DType | None = None


def run(module: Module, context: PassContext) -> Module:
    """Pack what is constant. Cost: linear in the program and in the bytes packed."""
    operators = context.ops
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    options = context.options_for(PackOptions)
    forms = _Forms(options)
    packed: dict[tuple[int, int, object], Const] = {}

    def pack(product: _Product, packing: _Packing) -> Const:
        """Return the packed constant; one array is packed once."""
        zero = 0 if product.zero is None else id(product.zero.value)
        lines = packing.forms is _LINES
        key = (id(product.weights.value), zero, (packing.how, lines))
        if key not in packed:
            definition = operators.definition(packing.forms[0])
            array = product.less_zero()
            if packing.dtype is not None:
                array = array.astype(packing.dtype.numpy)
            if lines:
                *kernel, width, inputs, channels = array.shape
                array = array.reshape(*kernel, width * inputs, channels)
            array = definition.evaluate(packing.how, array)
            packed[key] = make.const(np.ascontiguousarray(array), span=product.weights.span)
        return packed[key]

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        if _is_in_blocks(value):
            return _packed_blocks(block, value, options, operators)
        if is_call(value, "add"):
            return _joined(block, value)
        if is_call(value, "gather") and isinstance(value.args[0], Const):
            target = options.targets("" if value.place is None else value.place.device)
            return None if target is None else narrow_table(block, value, target, operators, options.stored)
        product = _product(block, value)
        if product is None:
            return _computed_bf16(block, value, options, operators)
        place = product.call.place
        target = options.targets("" if place is None else place.device)
        packing = None if target is None else _packing(product, target, forms)
        if packing is None:
            return None
        x = product.x
        if packing.forms in _BF16_FORMS.values() and product.narrow is not None:
            x = product.narrow
        if packing.forms is _LINES:
            assert isinstance(x.type, TensorType), "convolutions have tensors for operands"
            *outer, pixels, inputs = x.type.shape
            lines = make.shape_const((*outer, pixels * inputs))
            x = block.call(operators.definition("reshape").op, (x, lines), None)
        op = operators.definition(packing.forms[1]).op
        made = block.make(op, (x, pack(product, packing)), packing.attrs)
        if not packing.shift:
            return made
        more = packing.shift * product.less_zero().sum(
            axis=tuple(range(product.array.ndim - 1)), dtype=np.int32
        )
        return block.make(operators.definition("add").op, (block.bind(made, op.name), make.const(-more)))

    return rewrite_module(module, step)


def _joined(block: BlockWriter, call: Call) -> Expr | None:
    """Return a sum with a constant, added to a sum with another one, as one; None for anything else.

    Of integers of 32 bits, which wrap: the order is not seen.
    """
    x, more = call.args
    inner = block.definition(x)
    if not is_call(inner, "add") or inner.place != call.place or not isinstance(more, Const):
        return None
    own = inner.args[1]
    if not isinstance(own, Const) or _array(own).dtype != np.int32 or _array(more).dtype != np.int32:
        return None
    assert isinstance(call.callee, OpRef), "additions are calls of their operator"
    return block.make(call.callee.op, (inner.args[0], make.const(_array(own) + _array(more))))


def _is_in_blocks(value: Expr) -> TypeGuard[Call]:
    """Whether a value is a product whose weights are in few bits."""
    if not is_call(value, "matmul_blocks"):
        return False
    x = value.args[0].type
    return isinstance(x, TensorType) and len(x.shape) > 1


def _packed_blocks(
    block: BlockWriter, call: Call, options: PackOptions, operators: OperatorTable
) -> Expr | None:
    target = options.targets("" if call.place is None else call.place.device)
    if target is None:
        return None
    assert isinstance(call.type, TensorType), "contractions have one result"
    rows = _rows(call.type.shape[:-1])
    made = packed_blocks(call, lambda columns, terms: panel_width(target, columns, terms, rows, 1))
    if made is None:
        return None
    operands, attrs = made
    return block.make(operators.definition("matmul_blocks_packed").op, (call.args[0], *operands), attrs)


def _computed_bf16(
    block: BlockWriter, value: Expr, options: PackOptions, operators: OperatorTable
) -> Expr | None:
    """Return a product of two matrices of bf16 that are computed, the second one packed in front of it.

    None for anything else, and where no instruction adds products of bf16.
    """
    if not options.bf16 or not is_call(value, "matmul"):
        return None
    x, w = (widened_from(block, a, BF16) for a in value.args)
    if x is None or w is None:
        return None
    target = options.targets("" if value.place is None else value.place.device)
    dot = None if target is None else options.pairs(target)
    if target is None or dot is None:
        return None
    assert isinstance(value.type, TensorType), "contractions have one result"
    assert isinstance(w.type, TensorType), "products have tensors for operands"
    terms, columns = (d.value for d in w.type.shape[-2:])
    if len(w.type.shape) != 2 or terms is None or columns is None or len(value.type.shape) < 2:
        return None
    panel = panel_width(target, columns, terms, _rows(value.type.shape[:-1]), BF16.itemsize)
    pack, multiply = (operators.definition(name).op for name in _BF16_FORMS["matmul"])
    packed = block.call(pack, (w,), PackBf16Attrs(panel, dot.width))
    return block.make(multiply, (x, packed), PackedBf16Attrs(panel, columns, dot.width))


def _product(block: BlockWriter, value: Expr) -> _Product | None:
    """Return a product with constant weights whose operands need nothing taken off but of weights."""
    if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
        return None
    name, attrs = value.callee.op.name, value.callee.attrs
    if name not in _FORMS:
        return None
    x, w, *zeros = value.args
    rounded = widened_from(block, w, BF16)
    narrow = None
    if isinstance(rounded, Const):
        w, narrow = rounded, widened_from(block, x, BF16)
    if not isinstance(w, Const) or not isinstance(w.value, np.ndarray) or not w.value.size:
        return None
    if any(not isinstance(z, Const) for z in zeros) or (zeros and _array(zeros[0]).any()):
        return None
    conv = attrs if isinstance(attrs, ConvAttrs) else None
    if conv is None and w.value.ndim != 2:
        return None
    zero = zeros[1] if len(zeros) > 1 and _array(zeros[1]).any() else None
    assert zero is None or isinstance(zero, Const), "all zero points are constants"
    return _Product(value, name, conv, x, w, zero, narrow)


def _array(e: Expr) -> Array:
    assert isinstance(e, Const), "a constant is asked for its elements"
    assert isinstance(e.value, np.ndarray), "a constant tensor has elements"
    return e.value


def _packing(product: _Product, target: Target, forms: _Forms) -> _Packing | None:
    """Return how weights are packed for a device, None where they are not."""
    *_, columns = product.array.shape
    terms = product.array.size // columns
    assert isinstance(product.call.type, TensorType), "contractions have one result"
    assert isinstance(product.x.type, TensorType), "contractions have tensors for operands"
    rows = _rows(product.call.type.shape[:-1])
    window = _window(product.conv)
    if not product.name.endswith("integer"):
        if len(product.x.type.shape) < 2 or (product.conv is not None and product.conv.groups > 1):
            return None
        if columns == 1 and product.conv is None:
            return None  # One column is contiguous as it is.
        return _float_packing(product, target, forms, rows)
    own, weights = product.x.type.dtype, from_numpy(product.less_zero().dtype)
    unit = _matrix_unit(product, target, own, weights)
    dot, shift = _dot(target, own, weights)
    group, operand = (1, own) if dot is None else (dot.width, dot.first)
    groups = 1 if product.conv is None else product.conv.groups
    if unit is not None:
        panel, group, operand, shift = unit.columns, unit.width, own, 0
    else:
        winograd = _winograd(product, target, forms)
        if winograd is not None:
            return winograd
        registers = target.tile_registers(dot)
        panel = panel_width(target, columns // groups, terms, rows, weights.itemsize, registers)
    if product.fills_lines(group):
        *_, width, inputs, _ = product.array.shape
        del window["groups"]
        attrs = PackedLinesAttrs(panel, columns, width, inputs, group, operand, shift=shift, **window)
        return _Packing(PackIntegerAttrs(panel, group, weights), attrs, _LINES, shift)
    if groups > 1:  # a panel is of one group of channels
        panel = next((p for p in range(panel, 0, -target.lanes(4)) if columns // groups % p == 0), 0)
    if panel == 0:
        return None
    whole = PackedIntegerAttrs(panel, columns, group, operand, shift)
    conv = PackedIntegerConvAttrs(panel, columns, group, operand, shift=shift, **window)
    attrs = whole if product.conv is None else conv
    return _Packing(PackIntegerAttrs(panel, group, weights), attrs, _FORMS[product.name], shift)


def _float_packing(product: _Product, target: Target, forms: _Forms, rows: int | None) -> _Packing:
    """Return how weights of a product of floats are packed; `rows` are those of a line."""
    *_, columns = product.array.shape
    terms, window = product.array.size // columns, _window(product.conv)
    dot = None if product.narrow is None else forms.options.pairs(target)
    if dot is not None:
        panel = panel_width(target, columns, terms, rows, BF16.itemsize)
        window.pop("groups", None)
        whole = PackedBf16Attrs(panel, columns, dot.width)
        conv = PackedBf16ConvAttrs(panel, columns, dot.width, **window)
        attrs = whole if product.conv is None else conv
        return _Packing(PackBf16Attrs(panel, dot.width), attrs, _BF16_FORMS[product.name])
    winograd = _winograd_floats(product, target, forms)
    if winograd is not None:
        return winograd
    panel = panel_width(target, columns, terms, rows)
    plain = PackedAttrs(panel, columns)
    attrs = plain if product.conv is None else PackedConvAttrs(panel, columns, **window)
    dtype = stored_format(product.name, product.weights, product.call.span, target, forms.options.stored)
    return _Packing(PackAttrs(panel), attrs, _FORMS[product.name], dtype=dtype)


def _dot(target: Target, own: DType, weights: DType) -> tuple[DotProduct | None, int]:
    """Return the instruction for a product, and what is added to the other operand for it."""
    found = target.dot_product(own, weights)
    if own is I8:
        bytes = target.dot_product(U8, weights)
        if bytes is not None and not bytes.saturates and bytes.width > (0 if found is None else found.width):
            return bytes, 128
    return found, 0


def _matrix_unit(product: _Product, target: Target, own: DType, weights: DType) -> MatrixProduct | None:
    """Return the matrix instruction that computes a product; None where there is none or it does not pay."""
    unit, result = target.matrix_product(own, weights), product.call.type
    if unit is None or (product.conv is not None and product.conv.groups > 1):
        return None
    assert isinstance(result, TensorType), "contractions have one result"
    *kernel, terms, columns = product.array.shape
    if product.fills_lines(unit.width):
        terms *= kernel.pop()
    wide = [n.value or 0 for n in result.shape[:-1] if n != 1]
    lines, rows = [1, 1, *wide][-2:]
    groups = -(-terms // unit.width)
    return unit if matrix_blocks(unit, rows, lines, columns, groups, prod(kernel), target.l1_bytes) else None


def _winograd(product: _Product, target: Target, forms: _Forms) -> _Packing | None:
    """Return the packing for Winograd's form; None where it does not apply, is not exact, does not pay or
    is to stay plain.

    It does not where an instruction multiplies bytes exactly.
    """
    conv, x, result = product.conv, product.x.type, product.call.type
    dot = target.dot_product(I16, I16)
    if not isinstance(conv, IntegerConvAttrs) or dot is None or target.multiplies_bytes:
        return None
    if conv.groups > 1 or any(n != 1 for n in (*conv.strides, *conv.dilations)):
        return None
    assert isinstance(x, TensorType), "contractions have tensors for operands"
    assert isinstance(result, TensorType), "contractions have one result"
    w = product.less_zero()
    if x.dtype not in (I8, U8) or w.dtype != np.int8 or w.ndim != 4 or w.shape[:2] != (3, 3):
        return None
    images, rows, columns, oc = (n.value for n in result.shape)
    if images is None or rows is None or columns is None or oc is None:
        return None
    last = target.l3_bytes or target.l2_bytes
    if not pays(rows, columns, w.shape[2], oc, images=images, cache_bytes=last):
        return None
    if not fits(w, max(abs(int(e)) for e in (np.iinfo(x.dtype.numpy).min, np.iinfo(x.dtype.numpy).max))):
        return None
    sizes = rows, columns, w.shape[2], oc
    extra = 16 * 2 * sizes[2] * oc - w.size + integer_scratch(*sizes, images=images)
    if not forms.takes(_WINOGRAD, product.call, extra, integer_gain(*sizes, images=images)):
        return None
    tiles = images * -(-rows // 2) * -(-columns // 2)
    panel = panel_width(target, oc, w.shape[2], tiles, dot.second.itemsize, target.tile_registers(dot))
    how, attrs = WinogradPackAttrs(panel, dot.width), WinogradAttrs(panel, oc, conv.pads, conv.outside)
    return _Packing(how, attrs, ("pack_winograd_weights", "conv_winograd"))


def _winograd_floats(product: _Product, target: Target, forms: _Forms) -> _Packing | None:
    """Return the packing for Winograd's form in floats; None where it does not apply, does not pay or is
    to stay plain.
    """
    conv, result, w = product.conv, product.call.type, product.array
    if conv is None or conv.groups > 1 or any(n != 1 for n in (*conv.strides, *conv.dilations)):
        return None
    assert isinstance(result, TensorType), "contractions have one result"
    if result.dtype is not F32 or w.ndim != 4 or w.shape[:2] != (3, 3):
        return None
    images, rows, columns, oc = (n.value for n in result.shape)
    if rows is None or columns is None or oc is None:
        return None
    last, terms = target.l3_bytes or target.l2_bytes, w.shape[2]
    lines = float_lines(rows, columns, terms, oc, images=images, l2_bytes=target.l2_bytes, cache_bytes=last)
    if lines is None:
        return None
    gain = float_gain(rows, columns, terms, oc, lines, images=images, l2_bytes=target.l2_bytes)
    extra = 4 * (16 * terms * oc - w.size) + float_scratch(columns, terms, oc, lines)
    if not forms.takes(_WINOGRAD, product.call, extra, gain):
        return None
    panel = panel_width(target, oc, terms, lines * -(-columns // 2))
    attrs = WinogradFloatAttrs(panel, oc, conv.pads, lines)
    return _Packing(PackAttrs(panel), attrs, ("pack_winograd_floats", "conv_winograd_float"))


def _window(conv: ConvAttrs | None) -> dict[str, Any]:
    """Return how windows move, as attributes of a packed form."""
    return {} if conv is None else {f.name: getattr(conv, f.name) for f in fields(conv)}


def _rows(outer: Sequence[Int]) -> int | None:
    """Return the rows that share a line of tiles: the innermost axis of several, as schedules do."""
    wide = [d for d in outer if d != 1]
    return wide[-1].value if wide else 1


PASS = Pass(
    __name__,
    run,
    "pack constant right-hand sides of contractions",
    requires=(Property.ANF,),
    establishes=(Property.PACKED,),
    options=PackOptions,
)
