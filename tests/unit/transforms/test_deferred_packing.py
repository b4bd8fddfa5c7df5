"""Weights that are packed some panels at a time are, to the bit, what their operator makes of them whole."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.blocks import values
from inlay.arith.deferred import DeferredArray, transposed
from inlay.arith.dtype import BF16, F32, F64, I8, DType
from inlay.ir import make
from inlay.ir.expr import Call, OpRef
from inlay.ops.bf16_products import PackBf16Attrs
from inlay.ops.integer_products import PackIntegerAttrs
from inlay.ops.matmul import PackAttrs
from inlay.ops.winograd import WinogradPackAttrs
from inlay.ops.winograd_floats import WinogradFloatPackAttrs
from inlay.transforms import _deferred_packing
from inlay.transforms._deferred_packing import packed
from tests.unit.transforms.programs import OPS, Program, run

F, B, Q = np.dtype(np.float32), BF16.numpy, np.dtype(np.int8)
CASES = [
    ("pack_weights", PackAttrs(16), (300, 128), F),
    ("pack_weights", PackAttrs(16), (300, 71), F),
    ("pack_weights", PackAttrs(16), (2000, 9), F),
    ("pack_weights", PackAttrs(16), (3, 100, 71), F),
    ("pack_conv_weights", PackAttrs(16), (3, 3, 65, 70), F),
    ("pack_bf16_weights", PackBf16Attrs(16, 2), (301, 150), B),
    ("pack_integer_weights", PackIntegerAttrs(16, 4, I8), (3, 3, 90, 100), Q),
    ("pack_winograd_weights", WinogradPackAttrs(16, 2), (3, 3, 33, 70), Q),
    ("pack_winograd_floats", WinogradFloatPackAttrs(16), (3, 3, 60, 70), F),
    ("pack_winograd_floats", WinogradFloatPackAttrs(64, 4), (3, 3, 60, 64), F),
]


def _weights(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    drawn = np.random.default_rng(len(shape)).standard_normal(shape)
    return (30 * drawn).clip(-127, 127).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("block", [1, 1 << 13, 1 << 30])
@pytest.mark.parametrize(("name", "attrs", "shape", "dtype"), CASES)
def test_panels_are_the_same_at_whatever_pace(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    attrs: object,
    shape: tuple[int, ...],
    dtype: np.dtype,
    block: int,
) -> None:
    monkeypatch.setattr(_deferred_packing, "BLOCK_BYTES", block)
    definition, w = OPS.definition(name), _weights(shape, dtype)
    seen: list[int] = []

    def prepared(columns: np.ndarray) -> np.ndarray:
        seen.append(columns.nbytes)
        return columns

    panel = attrs.panel
    found = packed(definition, attrs, panel, w, prepared)
    want = definition.evaluate(attrs, w)
    assert isinstance(found, DeferredArray)
    assert not any(seen), "what it will be is known without looking at weights"
    out = np.full(found.shape, 77, found.dtype)
    found.write(out)
    assert (out.shape, out.dtype) == (want.shape, want.dtype)
    assert out.tobytes() == want.tobytes()
    one = w.nbytes // w.shape[-1] * panel
    assert max(seen) <= max(block, one), "what is packed at once is a block, or one panel"


def test_weights_whose_axes_are_in_another_order_are_packed_from_where_they_are() -> None:
    w = _weights((70, 65, 3, 3), F)
    turned, definition = transposed(w, (2, 3, 1, 0)), OPS.definition("pack_conv_weights")
    found = packed(definition, PackAttrs(16), 16, turned, lambda columns: columns)
    assert isinstance(found, DeferredArray)
    want = definition.evaluate(PackAttrs(16), np.ascontiguousarray(w.transpose(2, 3, 1, 0)))
    assert found.array().tobytes() == want.tobytes()


def test_a_panel_of_f64_has_half_the_columns_of_one_of_f32() -> None:
    """Tiles have as many registers of sums, whatever a register holds."""

    def width(dtype: DType) -> int:
        p = Program()
        w = make.const(np.ones((512, 256), dtype.numpy))
        product = p.op("matmul", p.input("x", 256, 512, dtype=dtype), w)
        module = run("infer-types,to-anf,pack-weights", p.module(product))
        [attrs] = [
            v.callee.attrs
            for v in values(module.functions["main"].body)
            if isinstance(v, Call) and isinstance(v.callee, OpRef) and v.callee.op.name == "matmul_packed"
        ]
        return attrs.panel

    assert width(F32) == 2 * width(F64)
