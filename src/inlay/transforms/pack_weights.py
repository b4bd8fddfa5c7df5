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

**Choices.** How wide a panel is, and whether and in which blocks a convolution takes Winograd's form, are
estimates: each product leaves them open (`analysis/choices.py`) to what was measured for it.

**Bytes for time.** Winograd's form takes more bytes than the sums as they are written: 16 weights for 9,
and transformed tiles in scratch memory. It is chosen here alone: who keeps a program to a budget runs this
pass again and says which operations keep the plainest form (`PackOptions.plain`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from inlay.analysis.blocks import nested, spine
from inlay.analysis.choices import Asked, Choice
from inlay.analysis.register_tiles import panel_width
from inlay.arith.deferred import AnyArray, DeferredArray, narrow_of
from inlay.arith.dtype import BF16
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.machine.target import Target
from inlay.ops._build import Array
from inlay.ops._define import FusionPattern
from inlay.ops.bf16_products import PackBf16Attrs, PackedBf16Attrs
from inlay.ops.convolution import ConvAttrs
from inlay.ops.quantized_blocks import step_of
from inlay.ops.table import OperatorTable
from inlay.ops.weight_blocks import BlocksAttrs, DequantizeBlocksAttrs
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, is_call, rewrite_module
from inlay.transforms._deferred_packing import packed
from inlay.transforms._packed_blocks import packed_blocks, packed_quantized
from inlay.transforms._packings import (
    BF16_FORMS,
    FORMS,
    LINES,
    Form,
    Forms,
    PackedProduct,
    Packing,
    PackOptions,
    Product,
    array_of,
    packing_of,
    rows_of_line,
)
from inlay.transforms._stored_weights import narrow_table
from inlay.transforms.round_operands import widened_from


def run(module: Module, context: PassContext) -> Module:
    """Pack what is constant. Cost: linear in the program and in the bytes packed."""
    operators = context.ops
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    options = context.options_for(PackOptions)
    forms = Forms(options)
    made: dict[tuple[int, int, object], Const] = {}
    unpacked = {x for f in module.functions.values() for x in _of_scores(f.body, operators)}

    def pack(product: Product, packing: Packing) -> Const:
        """Return the packed constant; one array is packed once."""
        zero = 0 if product.zero is None else id(product.zero.held)
        key = (id(product.weights.held), zero, (packing.how, packing.forms is LINES))
        if key not in made:
            made[key] = make.const(_packed(product, packing, operators), span=product.weights.span)
        return made[key]

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        if _is_in_blocks(value):
            return _packed_blocks(block, value, options, operators)
        if is_call(value, "matmul_quantized_blocks"):
            return _packed_quantized(block, value, options, operators)
        if is_call(value, "add"):
            return _joined(block, value)
        if is_call(value, "gather") and isinstance(value.args[0], Const):
            target = _target_of(value, options)
            return None if target is None else narrow_table(block, value, target, operators, options.stored)
        product = _product(block, value)
        if product is None:
            return _computed_bf16(block, value, options, operators)
        if id(product.weights.held) in unpacked:
            return None
        target = options.targets(product.device)
        asked = Asked(options.choice(product.device, product.key))
        packing = None if target is None else packing_of(product, target, forms, asked)
        if packing is None or target is None:
            return None
        if options.packed is not None:
            options.packed(_told(product, packing, target, options, asked, pack(product, packing), operators))
        x = product.x
        if packing.forms in BF16_FORMS.values() and product.narrow is not None:
            x = product.narrow
        if packing.forms is LINES:
            assert isinstance(x.type, TensorType), "convolutions have tensors for operands"
            *outer, pixels, inputs = x.type.shape
            lines = make.shape_const((*outer, pixels * inputs))
            x = block.call(operators.definition("reshape").op, (x, lines), None)
        op = operators.definition(packing.forms[1]).op
        call = block.make(op, (x, pack(product, packing)), packing.attrs)
        if not packing.shift:
            return call
        more = packing.shift * product.less_zero().sum(
            axis=tuple(range(len(product.held.shape) - 1)), dtype=np.int32
        )
        return block.make(operators.definition("add").op, (block.bind(call, op.name), make.const(-more)))

    return rewrite_module(module, step)


def _of_scores(body: Expr, operators: OperatorTable) -> Iterator[int]:
    """Yield which constants are several matrices on either side of a softmax: attention reads them plain.

    Products with them are one kernel with what is between (`_attention.py`), and scores are never written.
    """
    made_of: dict[Expr | None, frozenset[int]] = {}  # sums with these constants, and element-wise of such
    weights: set[Expr | None] = set()  # what comes of a softmax
    for var, value in _values_below(body):
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            continue
        before = frozenset[int]().union(*(made_of.get(a, ()) for a in value.args))
        held = _several_matrices(value)
        if is_call(value, "softmax"):
            yield from before
            weights.add(var)
        elif held is not None:
            made_of[var] = frozenset((held,))
            yield from made_of[var] if value.args[0] in weights else ()
        elif operators.definition(value.callee.op).pattern in _EACH:
            made_of[var] = before
            weights |= {var} if not weights.isdisjoint(value.args) else set()


_EACH = (FusionPattern.ELEMENTWISE, FusionPattern.BROADCAST)


def _values_below(body: Expr) -> Iterator[tuple[Expr | None, Expr]]:
    """Yield all values of an expression with what they are bound to, if to anything."""
    pending = [body]
    while pending:
        lets, tail = spine(pending.pop())
        for var, value in (*((let.var, let.value) for let in lets), (None, tail)):
            pending.extend(nested(value))
            yield var, value


def _several_matrices(value: Call) -> int | None:
    """Return which constant of several matrices a product has, if one."""
    if not is_call(value, "matmul") or not isinstance(value.args[1], Const):
        return None
    held = value.args[1].held
    return id(held) if isinstance(held, np.ndarray | DeferredArray) and len(held.shape) > 2 else None


def _packed(product: Product, packing: Packing, operators: OperatorTable) -> AnyArray:
    """Return the weights of a product as they are laid out."""
    source = product.packed_from()
    if packing.dtype is not None:
        narrow = narrow_of(source)
        source = source if narrow is None or narrow.dtype != packing.dtype.numpy else narrow

    def prepared(array: Array) -> Array:
        if packing.dtype is not None:
            array = array.astype(packing.dtype.numpy, copy=False)
        if packing.forms is not LINES:
            return array
        *kernel, width, inputs, channels = array.shape
        return array.reshape(*kernel, width * inputs, channels)

    pack = operators.definition(packing.forms[0])
    return packed(pack, packing.how, packing.how.panel, source, prepared)


def _told(
    product: Product,
    packing: Packing,
    target: Target,
    options: PackOptions,
    asked: Asked,
    weights: Const,
    operators: OperatorTable,
) -> PackedProduct:
    """Return what is told of a product, with what makes other forms of it."""

    def remake(choice: Choice) -> Form | None:
        other = packing_of(product, target, Forms(replace(options, watch=None, stored=None)), Asked(choice))
        if other is None or other.shift != packing.shift or (LINES in (other.forms, packing.forms)):
            return None
        return Form(other.forms[1], other.attrs, _packed(product, other, operators))

    assert isinstance(weights.held, np.ndarray | DeferredArray), "weights are a tensor"
    form = Form(packing.forms[1], packing.attrs, weights.held)
    return PackedProduct(
        product.key, product.device, form, asked.choice, tuple(asked.questions.values()), remake
    )


def _target_of(value: Call, options: PackOptions) -> Target | None:
    """Return what the device of an operation is; None where its code reads no panels."""
    return options.targets("" if value.place is None else value.place.device)


def _joined(block: BlockWriter, call: Call) -> Expr | None:
    """Return a sum with a constant, added to a sum with another one, as one; None for anything else.

    Of integers of 32 bits, which wrap: the order is not seen.
    """
    x, more = call.args
    inner = block.definition(x)
    if not is_call(inner, "add") or inner.place != call.place or not isinstance(more, Const):
        return None
    own = inner.args[1]
    if not isinstance(own, Const) or array_of(own).dtype != np.int32 or array_of(more).dtype != np.int32:
        return None
    assert isinstance(call.callee, OpRef), "additions are calls of their operator"
    return block.make(call.callee.op, (inner.args[0], make.const(array_of(own) + array_of(more))))


def _is_in_blocks(value: Expr) -> TypeGuard[Call]:
    """Whether a value is a product whose weights are in few bits."""
    if not is_call(value, "matmul_blocks"):
        return False
    x = value.args[0].type
    return isinstance(x, TensorType) and len(x.shape) > 1


def _packed_blocks(
    block: BlockWriter, call: Call, options: PackOptions, operators: OperatorTable
) -> Expr | None:
    target = _target_of(call, options)
    if target is None:
        return None
    assert isinstance(call.type, TensorType), "contractions have one result"
    made = packed_blocks(call, target, rows_of_line(call.type.shape[:-1]))
    if made is None:
        return None
    operands, attrs = made
    return block.make(operators.definition("matmul_blocks_packed").op, (call.args[0], *operands), attrs)


def _packed_quantized(
    block: BlockWriter, call: Call, options: PackOptions, operators: OperatorTable
) -> Expr | None:
    """Return a product of integers by packed weights; of floats where no instruction adds up bytes."""
    target = _target_of(call, options)
    if target is None:
        return None
    assert isinstance(call.callee, OpRef)
    attrs = call.callee.attrs
    assert isinstance(attrs, BlocksAttrs), "both sides have blocks"
    x, scale = call.args[:2]
    packed = packed_quantized(call, target)
    if packed is None:
        floats = DequantizeBlocksAttrs(attrs.block, -1)
        real = block.bind(block.make(operators.definition("dequantize_blocks").op, (x, scale), floats), "x")
        made = block.make(operators.definition("matmul_blocks").op, (real, *call.args[2:]), attrs)
        assert isinstance(made, Call), "a product is a call"
        return _packed_blocks(block, made, options, operators) if _is_in_blocks(made) else made
    step = BlocksAttrs(step_of(attrs.block))
    sums = block.bind(block.make(operators.definition("sum_blocks").op, (x,), step), "sums")
    op = operators.definition("matmul_quantized_blocks_packed").op
    return block.make(op, (x, scale, sums, *packed[0]), packed[1])


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
    target = _target_of(value, options)
    dot = None if target is None else options.pairs(target)
    if target is None or dot is None:
        return None
    assert isinstance(value.type, TensorType), "contractions have one result"
    assert isinstance(w.type, TensorType), "products have tensors for operands"
    terms, columns = (d.value for d in w.type.shape[-2:])
    if len(w.type.shape) != 2 or terms is None or columns is None or len(value.type.shape) < 2:
        return None
    panel = panel_width(target, columns, terms, rows_of_line(value.type.shape[:-1]), BF16.itemsize)
    pack, multiply = (operators.definition(name).op for name in BF16_FORMS["matmul"])
    packed = block.call(pack, (w,), PackBf16Attrs(panel, dot.width))
    return block.make(multiply, (x, packed), PackedBf16Attrs(panel, columns, dot.width))


def _product(block: BlockWriter, value: Expr) -> Product | None:
    """Return a product with constant weights whose operands need nothing taken off but of weights."""
    if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
        return None
    name, attrs = value.callee.op.name, value.callee.attrs
    if name not in FORMS:
        return None
    x, w, *zeros = value.args
    rounded = widened_from(block, w, BF16)
    narrow = None
    if isinstance(rounded, Const):
        w, narrow = rounded, widened_from(block, x, BF16)
    if not isinstance(w, Const) or not isinstance(w.held, np.ndarray | DeferredArray) or not w.held.size:
        return None
    if any(not isinstance(z, Const) for z in zeros) or (zeros and array_of(zeros[0]).any()):
        return None
    conv = attrs if isinstance(attrs, ConvAttrs) else None
    several = name == "matmul" and narrow is None
    if conv is None and (len(w.held.shape) < 2 or (len(w.held.shape) > 2 and not several)):
        return None
    zero = zeros[1] if len(zeros) > 1 and array_of(zeros[1]).any() else None
    assert zero is None or isinstance(zero, Const), "all zero points are constants"
    return Product(value, name, conv, x, w, zero, narrow)


PASS = Pass(
    __name__,
    run,
    "pack constant right-hand sides of contractions",
    requires=(Property.ANF,),
    establishes=(Property.PACKED,),
    options=PackOptions,
)
