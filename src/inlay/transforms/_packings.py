"""How weights of contractions are laid out, and what each product leaves open: see `pack_weights.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any

import numpy as np

from inlay.analysis.choices import NO_CHOICE, Asked, Choice, Question
from inlay.analysis.matrix_tiles import matrix_blocks
from inlay.analysis.register_tiles import panel_widths
from inlay.analysis.winograd import (
    ACCURACY,
    FLOAT_ERROR,
    float_gain,
    float_lines,
    float_options,
    float_scratch,
    float_tiles,
    integer_gain,
    integer_scratch,
    pays,
)
from inlay.arith.deferred import AnyArray, DeferredArray, elements
from inlay.arith.dtype import BF16, F32, I8, I16, U8, DType, from_numpy
from inlay.arith.expr import Int
from inlay.ir.expr import Call, Const, Expr
from inlay.ir.type_printer import type_text
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
from inlay.ops.winograd import WinogradAttrs, WinogradPackAttrs, fits
from inlay.ops.winograd_floats import WinogradFloatAttrs, WinogradFloatPackAttrs
from inlay.transforms._stored_weights import StoredWeights, stored_format


def _same(_device: str) -> Target | None:
    return Target(vector_bytes=64, vector_registers=32)


def _usual(_device: str, macs: int) -> int:
    return round(macs / Speed().macs_per_ns)


def _by_estimates(_device: str, _key: str) -> Choice:
    return NO_CHOICE


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a product: what computes it from which constant.

    Attributes:
        name: of the operator.
        attrs: of it.
        weights: as it reads them.
    """

    name: str
    attrs: object
    weights: AnyArray


@dataclass(frozen=True, slots=True)
class PackedProduct:
    """A product whose weights are packed, and what it leaves open.

    Attributes:
        key: equal for products that are measured alike.
        device: that runs it.
        form: that it has.
        choice: answers that were given.
        questions: what is open.
        remake: gives the form by other answers; None where that is none of the product alone.
    """

    key: str
    device: str
    form: Form
    choice: Choice
    questions: tuple[Question, ...]
    remake: Callable[[Choice], Form | None]


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
        choice: gives answers to what a product leaves open, by its device and its key.
        packed: is told each product whose weights are packed.
        shared: bytes of weights from which on calls of a row each may run as one; None where none do.
        accuracy: max abs error over max abs result that a product of floats may have.
    """

    targets: Callable[[str], Target | None] = _same
    plain: frozenset[int] = frozenset()
    watch: Callable[[FasterForm], None] | None = None
    time: Callable[[str, int], int] = _usual
    stored: Callable[[StoredWeights], None] | None = None
    bf16: bool = False
    choice: Callable[[str, str], Choice] = _by_estimates
    packed: Callable[[PackedProduct], None] | None = None
    shared: int | None = None
    accuracy: float = ACCURACY

    @property
    def tiles(self) -> tuple[int, ...]:
        """Tiles of Winograd's form of floats that are accurate enough."""
        return float_tiles(self.accuracy)

    def rows(self, product: Product) -> int | None:
        """Return the rows of a line of a product; None where they are not known, or several calls' rows."""
        assert isinstance(product.call.type, TensorType), "contractions have one result"
        shape = product.call.type.shape
        rows = shape[-2].value if product.is_several else rows_of_line(shape[:-1])
        may_be_many = self.shared is not None and product.held.nbytes >= self.shared
        return None if rows == 1 and may_be_many else rows

    def pairs(self, target: Target) -> DotProduct | None:
        """Return the kind of instruction that adds products of bf16 on a device, where it may be taken."""
        return target.dot_product(BF16, BF16) if self.bf16 else None


@dataclass(slots=True)
class Forms:
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


FORMS = {
    "matmul": ("pack_weights", "matmul_packed"),
    "conv_nhwc": ("pack_conv_weights", "conv_nhwc_packed"),
    "matmul_integer": ("pack_integer_weights", "matmul_integer_packed"),
    "conv_nhwc_integer": ("pack_integer_weights", "conv_nhwc_integer_packed"),
}
"""What packs the weights of an operator, and the operator that reads them."""

_WINOGRAD = "Winograd's form of a convolution"
WINOGRAD = "winograd"
"""Whether to take that form; of floats, how many lines of tiles make a block, 0 for the plain sums."""
TILE = "winograd tile"
"""Of floats: rows and columns of the result that a tile gives."""

LINES = ("pack_integer_weights", "conv_lines_integer_packed")
"""The same where the last axis of the kernel and the channels are one."""

BF16_FORMS = {
    "matmul": ("pack_bf16_weights", "matmul_bf16_packed"),
    "conv_nhwc": ("pack_bf16_weights", "conv_nhwc_bf16_packed"),
}
"""The same where an instruction adds products of bf16."""


@dataclass(frozen=True, slots=True)
class Product:
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
    def held(self) -> AnyArray:
        """What the constant holds."""
        assert isinstance(self.weights.held, np.ndarray | DeferredArray), "a constant tensor has elements"
        return self.weights.held

    @property
    def array(self) -> Array:
        """The constant's elements, in any order in memory."""
        return elements(self.held)

    @property
    def is_several(self) -> bool:
        """Whether it is of several matrices, each with rows of its own."""
        return self.conv is None and len(self.held.shape) > 2

    @property
    def terms(self) -> int:
        """How many products each sum has."""
        columns, matrices = self.held.shape[-1], prod(self.held.shape[:-2]) if self.conv is None else 1
        return self.held.size // (columns * matrices)

    @property
    def device(self) -> str:
        """The device that runs it; empty for the host."""
        return "" if self.call.place is None else self.call.place.device

    @property
    def key(self) -> str:
        """What its time depends on: the operator, the operands, and how windows move."""
        words = [self.name, type_text(self.x.type), f"{self.held.dtype}{list(self.held.shape)}"]
        words += [] if self.conv is None else [str(self.conv)]
        return " ".join([*words, "of bf16" if self.narrow is not None else ""]).rstrip()

    def less_zero(self) -> Array:
        """Return the weights less their zero point, in the narrowest format that has them."""
        return elements(self.packed_from())

    def packed_from(self) -> AnyArray:
        """Return the same; weights without a zero point as the constant holds them."""
        if self.zero is None:
            return self.held
        shifted = self.array.astype(np.int16) - along(
            array_of(self.zero).astype(np.int16), self.array.ndim, -1
        )
        same = shifted.astype(np.int8)
        return same if (same == shifted).all() else shifted

    def fills_lines(self, group: int) -> bool:
        """Whether groups of terms along lines are no more than along the channels of each pixel, some of
        which they do not fill: then lines are read as they are.
        """
        if self.conv is None or self.conv.groups > 1 or (self.conv.dilations or (1,))[-1] != 1:
            return False
        *_, width, inputs, _ = self.held.shape
        return -(-width * inputs // group) <= width * -(-inputs // group) and inputs % group != 0


@dataclass(frozen=True, slots=True)
class Packing:
    """How the weights of a product are laid out, the attributes of what reads them, and what does both.

    `shift` is added to the other operand. Weights are in `dtype` where that is not their own.
    """

    how: PackAttrs | PackIntegerAttrs | PackBf16Attrs | WinogradPackAttrs | WinogradFloatPackAttrs
    attrs: object
    forms: tuple[str, str]
    shift: int = 0
    dtype: DType | None = None


def array_of(e: Expr) -> Array:
    assert isinstance(e, Const), "a constant is asked for its elements"
    assert isinstance(e.value, np.ndarray), "a constant tensor has elements"
    return e.value


def packing_of(product: Product, target: Target, forms: Forms, asked: Asked) -> Packing | None:
    """Return how weights are packed for a device, None where they are not; `asked` answers what is open."""
    *_, columns = product.held.shape
    assert isinstance(product.x.type, TensorType), "contractions have tensors for operands"
    rows = forms.options.rows(product)
    window = _window(product.conv)
    if not product.name.endswith("integer"):
        if len(product.x.type.shape) < 2 or (product.conv is not None and product.conv.groups > 1):
            return None
        if columns == 1 and product.conv is None:
            return None  # One column is contiguous as it is.
        return _float_packing(product, target, forms, rows, asked)
    own, weights = product.x.type.dtype, from_numpy(product.less_zero().dtype)
    unit = _matrix_unit(product, target, own, weights)
    dot, shift = _dot(target, own, weights)
    group, operand = (1, own) if dot is None else (dot.width, dot.first)
    groups = 1 if product.conv is None else product.conv.groups
    if unit is not None:
        panel, group, operand, shift = unit.columns, unit.width, own, 0
    else:
        winograd = _winograd(product, target, forms, asked)
        if winograd is not None:
            return winograd
        registers = target.tile_registers(dot)
        widths = panel_widths(target, columns // groups, product.terms, rows, weights.itemsize, registers)
        panel = _panel(asked, widths if groups == 1 else widths[:1])
    if product.fills_lines(group):
        *_, width, inputs, _ = product.held.shape
        del window["groups"]
        attrs = PackedLinesAttrs(panel, columns, width, inputs, group, operand, shift=shift, **window)
        return Packing(PackIntegerAttrs(panel, group, weights), attrs, LINES, shift)
    if groups > 1:  # a panel is of one group of channels
        panel = next((p for p in range(panel, 0, -target.lanes(4)) if columns // groups % p == 0), 0)
    if panel == 0:
        return None
    whole = PackedIntegerAttrs(panel, columns, group, operand, shift)
    conv = PackedIntegerConvAttrs(panel, columns, group, operand, shift=shift, **window)
    attrs = whole if product.conv is None else conv
    return Packing(PackIntegerAttrs(panel, group, weights), attrs, FORMS[product.name], shift)


MOST_WIDTHS = 5
"""Widths of panels that are worth measuring, by their estimated costs."""


def _panel(asked: Asked, widths: Sequence[int]) -> int:
    """Return the width of panels, of some in order of cost."""
    return asked.pick("panel", widths[0], widths[1:MOST_WIDTHS])


def _float_packing(product: Product, target: Target, forms: Forms, rows: int | None, asked: Asked) -> Packing:
    """Return how weights of a product of floats are packed; `rows` are those of a line."""
    *_, columns = product.held.shape
    terms, window = product.terms, _window(product.conv)
    dot = None if product.narrow is None else forms.options.pairs(target)
    if dot is not None:
        panel = _panel(asked, panel_widths(target, columns, terms, rows, BF16.itemsize))
        window.pop("groups", None)
        whole = PackedBf16Attrs(panel, columns, dot.width)
        conv = PackedBf16ConvAttrs(panel, columns, dot.width, **window)
        attrs = whole if product.conv is None else conv
        return Packing(PackBf16Attrs(panel, dot.width), attrs, BF16_FORMS[product.name])
    winograd = _winograd_floats(product, target, forms, asked)
    if winograd is not None:
        return winograd
    size = max(F32.itemsize, product.held.dtype.itemsize)
    blocks = product.conv is None
    panel = _panel(asked, panel_widths(target, columns, terms, rows, size, sum_bytes=size, in_blocks=blocks))
    plain = PackedAttrs(panel, columns)
    attrs = plain if product.conv is None else PackedConvAttrs(panel, columns, **window)
    dtype = stored_format(product.name, product.weights, product.call.span, target, forms.options.stored)
    return Packing(PackAttrs(panel), attrs, FORMS[product.name], dtype=dtype)


def _dot(target: Target, own: DType, weights: DType) -> tuple[DotProduct | None, int]:
    """Return the instruction for a product, and what is added to the other operand for it."""
    found = target.dot_product(own, weights)
    if own is I8:
        bytes = target.dot_product(U8, weights)
        if bytes is not None and not bytes.saturates and bytes.width > (0 if found is None else found.width):
            return bytes, 128
    return found, 0


def _matrix_unit(product: Product, target: Target, own: DType, weights: DType) -> MatrixProduct | None:
    """Return the matrix instruction that computes a product; None where there is none or it does not pay."""
    unit, result = target.matrix_product(own, weights), product.call.type
    if unit is None or (product.conv is not None and product.conv.groups > 1):
        return None
    assert isinstance(result, TensorType), "contractions have one result"
    *kernel, terms, columns = product.held.shape
    if product.fills_lines(unit.width):
        terms *= kernel.pop()
    wide = [n.value or 0 for n in result.shape[:-1] if n != 1]
    lines, rows = [1, 1, *wide][-2:]
    groups = -(-terms // unit.width)
    return unit if matrix_blocks(unit, rows, lines, columns, groups, prod(kernel), target.l1_bytes) else None


def _winograd(product: Product, target: Target, forms: Forms, asked: Asked) -> Packing | None:
    """Return the packing for Winograd's form; None where it does not apply, is not exact, does not pay or
    is to stay plain.

    It does not where an instruction multiplies bytes exactly.
    """
    conv, x, result = product.conv, product.x.type, product.call.type
    dot = target.dot_product(I16, I16)
    if not isinstance(conv, IntegerConvAttrs) or dot is None or target.multiplies_bytes:
        return None
    if not conv.is_dense:
        return None
    assert isinstance(x, TensorType), "contractions have tensors for operands"
    assert isinstance(result, TensorType), "contractions have one result"
    w = product.less_zero()
    if x.dtype not in (I8, U8) or w.dtype != np.int8 or w.ndim != 4 or w.shape[:2] != (3, 3):
        return None
    images, rows, columns, oc = (n.value for n in result.shape)
    if images is None or rows is None or columns is None or oc is None:
        return None
    if not fits(w, max(abs(int(e)) for e in (np.iinfo(x.dtype.numpy).min, np.iinfo(x.dtype.numpy).max))):
        return None
    last, sizes = target.last_bytes, (rows, columns, w.shape[2], oc)
    held = integer_scratch(*sizes, images=images)
    if held > last or not asked.switch(WINOGRAD, default=pays(*sizes, images=images, cache_bytes=last)):
        return None
    extra = 16 * 2 * sizes[2] * oc - w.size + held
    if not forms.takes(_WINOGRAD, product.call, extra, integer_gain(*sizes, images=images)):
        return None
    tiles = images * -(-rows // 2) * -(-columns // 2)
    registers = target.tile_registers(dot)
    panel = _panel(asked, panel_widths(target, oc, w.shape[2], tiles, dot.second.itemsize, registers))
    how, attrs = WinogradPackAttrs(panel, dot.width), WinogradAttrs(panel, oc, conv.pads, conv.outside)
    return Packing(how, attrs, ("pack_winograd_weights", "conv_winograd"))


def _winograd_floats(product: Product, target: Target, forms: Forms, asked: Asked) -> Packing | None:
    """Return the packing for Winograd's form in floats; None where it does not apply, does not pay or is
    to stay plain.
    """
    conv, result, w = product.conv, product.call.type, product.held
    if conv is None or not conv.is_dense:
        return None
    assert isinstance(result, TensorType), "contractions have one result"
    if result.dtype is not F32 or len(w.shape) not in (4, 5) or w.shape[-4:-2] != (3, 3):
        return None
    *outer, rows, columns, oc = (n.value for n in result.shape)
    if rows is None or columns is None or oc is None:
        return None
    # A plane of a volume is an image, whose pixels have the channels of all planes that it reads.
    known, planes = [n for n in outer if n is not None], prod(w.shape[:-4])
    images = prod(known) if len(known) == len(outer) else None
    last, terms = target.last_bytes, planes * w.shape[-2]
    caches = {"l2_bytes": target.l2_bytes, "cache_bytes": last}
    sizes = (rows, columns, terms, oc)

    def gain(tile: int, lines: int | None) -> int:
        if lines is None:
            return 0
        return float_gain(*sizes, lines, images=images, l2_bytes=target.l2_bytes, tile=tile)

    usual = {tile: float_lines(*sizes, images=images, tile=tile, **caches) for tile in forms.options.tiles}
    if not usual:
        return None
    best = max(usual, key=lambda tile: gain(tile, usual[tile]))
    tile = asked.pick(TILE, best, tuple(usual)) if len(usual) > 1 else best
    others = float_options(*sizes, images=images, tile=tile, **caches)
    # An answer for other tiles is none for these.
    question = WINOGRAD if tile == min(FLOAT_ERROR) else f"{WINOGRAD} {tile}"
    lines = asked.pick(question, usual[tile] or 0, (0, *others))
    if lines == 0:
        return None
    extra = 4 * ((tile + 2) ** 2 * terms * oc - w.size) + float_scratch(columns, terms, oc, lines, tile)
    name = f"Winograd's form F({tile}, 3) of a convolution"
    if not forms.takes(name, product.call, extra, gain(tile, lines)):
        return None
    panel = _panel(asked, panel_widths(target, oc, terms, lines * -(-columns // tile)))
    attrs = WinogradFloatAttrs(panel, oc, conv.pads, lines, tile, planes)
    forms_of_it = ("pack_winograd_floats", "conv_winograd_float")
    dtype = None if w.dtype == np.float32 else F32
    return Packing(WinogradFloatPackAttrs(panel, tile), attrs, forms_of_it, dtype=dtype)


def _window(conv: ConvAttrs | None) -> dict[str, Any]:
    """Return how windows move, as attributes of a packed form."""
    return {} if conv is None else {f.name: getattr(conv, f.name) for f in fields(conv)}


def rows_of_line(outer: Sequence[Int]) -> int | None:
    """Return the rows that share a line of tiles: the innermost axis of several, as schedules do."""
    wide = [d for d in outer if d != 1]
    return wide[-1].value if wide else 1
