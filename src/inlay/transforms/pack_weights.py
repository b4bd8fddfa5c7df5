"""Packs constant right-hand sides of contractions into panels.

A matrix product streams its right operand; in panels of a few vectors of columns, `[n/panel, k,
panel]`, every load is the next one in memory. The right operand of `matmul` and the weights of
`conv_nhwc` are packed here when they are constants; what is not constant is packed by the kernel
that reads it, if that pays. The original constant goes when nobody reads it.

**Panel width.** `analysis/register_tiles.py` weighs the shapes of tiles against columns computed for
nothing; for a convolution it is told the pixels of a line. A panel is to stay in the second cache while
all rows pass, so many terms make it narrower. All of that is of the device that an operation runs on:
a constant that two devices read is packed for each. What has code that reads no panels is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from inlay.analysis.register_tiles import MAX_VECTORS, panel_vectors
from inlay.arith.expr import Int
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.module import Module
from inlay.ir.op import NoAttrs
from inlay.ir.types import TensorType
from inlay.ops.convolution import ConvAttrs, PackedConvAttrs
from inlay.ops.matmul import PackAttrs, PackedAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module


@dataclass(frozen=True, slots=True)
class Panels:
    """What the width of panels depends on: one core of a device.

    Attributes:
        lanes: elements of 32 bits in a vector register.
        registers: vector registers.
        l2_bytes: size of the second cache; 0 where there is none.
    """

    lanes: int = 16
    registers: int = 32
    l2_bytes: int = 1 << 20

    def width(self, columns: int, terms: int, rows: int | None) -> int:
        """Return the panel width for a product.

        Args:
            columns: of the result.
            terms: of each sum.
            rows: in a line of the result, where that is known.
        """
        vector_bytes = 4 * self.lanes * max(terms, 1)
        most = max(1, 3 * self.l2_bytes // (4 * vector_bytes)) if self.l2_bytes else MAX_VECTORS
        return self.lanes * panel_vectors(columns, rows, self.lanes, self.registers, most)


def _same(_device: str) -> Panels | None:
    return Panels()


@dataclass(frozen=True, slots=True)
class PackOptions:
    """Options of this pass.

    Attributes:
        panels: gives for a device, by its name, what its panels depend on; None where its code reads
            none. What has no place is on the device without a name.
    """

    panels: Callable[[str], Panels | None] = _same


def run(module: Module, context: PassContext) -> Module:
    """Pack what is constant. Cost: linear in the program and in the bytes packed."""
    operators = context.ops
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    options = context.options_for(PackOptions)
    packed: dict[tuple[int, int], Const] = {}

    def pack(w: Const, pack_op: str, panel: int) -> Const:
        """Return the packed constant; one array is packed once."""
        assert isinstance(w.value, np.ndarray)
        key = (id(w.value), panel)
        if key not in packed:
            array = operators.definition(pack_op).evaluate(PackAttrs(panel), w.value)
            packed[key] = make.const(np.ascontiguousarray(array), span=w.span)
        return packed[key]

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return None
        name = value.callee.op.name
        if name not in ("matmul", "conv_nhwc"):
            return None
        x, w = value.args
        if not isinstance(w, Const) or not isinstance(w.value, np.ndarray) or not w.value.size:
            return None
        if not isinstance(x.type, TensorType) or not x.type.dtype.is_float:
            return None
        panels = options.panels("" if value.place is None else value.place.device)
        if panels is None:
            return None
        columns = w.value.shape[-1]
        terms = w.value.size // columns
        assert isinstance(value.type, TensorType), "contractions have one result"
        rows = _rows(value.type.shape[:-1])
        panel = panels.width(columns, terms, rows)
        match value.callee.attrs:
            case ConvAttrs(groups=1) as conv:
                op = operators.definition("conv_nhwc_packed").op
                same = {f.name: getattr(conv, f.name) for f in fields(conv)}
                attrs = PackedConvAttrs(panel=panel, channels=columns, **same)
                return block.make(op, (x, pack(w, "pack_conv_weights", panel)), attrs)
            case NoAttrs() if w.value.ndim == 2 and len(x.type.shape) >= 2:
                op = operators.definition("matmul_packed").op
                packed_w = pack(w, "pack_weights", panel)
                return block.make(op, (x, packed_w), PackedAttrs(panel, columns))
            case _:
                return None

    return rewrite_module(module, step)


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
