"""Rows of tables in few bits: GatherBlockQuantized of onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.base.diagnostics import InlayError
from tests.unit.importers.onnx.models import load, model, run, value

RNG = np.random.default_rng(5)
LIMITS = {"i4": (-8, 7), "u4": (0, 15), "bytes": (0, 255), "halves": (0, 15)}
NARROW = {"i4": TensorProto.INT4, "u4": TensorProto.UINT4}


def stored(name, kind, x):
    """Return numbers as a model stores them: 4 bits each, a byte each, or two in a byte of the last axis."""
    if kind in NARROW:
        return helper.make_tensor(name, NARROW[kind], x.shape, x.ravel().tolist())
    if kind == "halves":
        rest = x.shape[-1] % 2
        x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, rest)])
        x = x[..., 0::2] | (x[..., 1::2] << 4)
    return numpy_helper.from_array(x.astype(np.uint8), name)


def gathered(kind, shape, quantized, axis, block=16, *, has_zeros=True, **more):
    """Return a model that gathers, and the rows that it stands for."""
    low, high = LIMITS[kind]
    count = list(shape)
    count[quantized] = -(-shape[quantized] // block)
    q, zero = (RNG.integers(low, high, s, endpoint=True) for s in (shape, count))
    scale = RNG.uniform(0.01, 0.1, count).astype(np.float32)
    constants = [stored("q", kind, q), numpy_helper.from_array(scale, "s")]
    if has_zeros:
        constants.append(stored("z", kind, zero))
    else:
        zero[:] = {"halves": 8, "bytes": 128}.get(kind, 0)
    names = ["q", "i", "s", *(["z"] if has_zeros else [])]
    bits = {"bits": 8} if kind == "bytes" else {}
    attrs = {"gather_axis": axis, "quantize_axis": quantized, "block_size": block, **bits, **more}
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft", **attrs)
    m = model([node], [value("i", ("n",), TensorProto.INT64)], [value("y", None)], {}, opset=21)
    m.graph.initializer.extend(constants)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    places = np.arange(shape[quantized]) // block
    real = (q - np.take(zero, places, quantized)).astype(np.float32) * np.take(scale, places, quantized)
    return m, real


@pytest.mark.parametrize("has_zeros", [True, False])
@pytest.mark.parametrize(
    ("kind", "shape", "quantized", "axis"),
    [
        ("halves", (7, 48), -1, 0),
        ("halves", (5, 3, 32), 2, 0),
        ("bytes", (7, 48), 1, 0),
        ("i4", (7, 40), 1, 0),
        ("i4", (32, 6), 0, 1),
        ("u4", (4, 32, 6), 1, 2),
    ],
)
def test_rows_are_what_they_stand_for(kind, shape, quantized, axis, has_zeros):
    m, real = gathered(kind, shape, quantized, axis, has_zeros=has_zeros)
    for indices in ([0, 2, 2], [-1]):
        ids = np.array(indices, np.int64)
        np.testing.assert_array_equal(run(load(m), {"i": ids})["y"], np.take(real, ids, axis))


def test_rows_of_tables_are_no_rounded_operands():
    m, _ = gathered("i4", (7, 48), 1, 0)
    found = inlay.explain(m, view="numerics")
    assert (found.in_bytes, found.rounded) == ((), ())


@pytest.mark.parametrize(
    ("kind", "more", "id_"),
    [
        ("halves", {"bits": 2}, "import.unsupported"),
        ("halves", {"gather_axis": 1}, "import.invalid-node"),
        ("halves", {"gather_axis": 2}, "import.invalid-node"),
        ("halves", {"gather_axis": 1, "quantize_axis": 0}, "import.unsupported"),
        ("bytes", {"other": 1}, "import.unsupported"),
        ("bytes", {"block_size": 0}, "import.invalid-node"),
    ],
)
def test_what_is_refused(kind, more, id_):
    m, _ = gathered(kind, (6, 32), 1, 0)
    node = m.graph.node[0]
    for name, number in more.items():
        for a in [a for a in node.attribute if a.name == name]:
            node.attribute.remove(a)
        node.attribute.append(helper.make_attribute(name, number))
    with pytest.raises(InlayError) as failure:
        load(m)
    assert failure.value.ids == (id_,)
