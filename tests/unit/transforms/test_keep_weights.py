"""Weights in few bits stay so under products of few rows, and mean what they meant."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import inlay
from inlay.api import compilation
from inlay.arith.dtype import F32
from inlay.runtime.session import executable_of
from tests.tolerance import bound
from tests.unit.importers.onnx.models import load, model, value

node = helper.make_node
K, N = 96, 40
RNG = np.random.default_rng(7)


def compiled(nodes, constants, rows, k=K, n=N, opset=21, **more):
    """Compile a product of `x` and return what it gives, the bytes of its constants, its kernels."""
    x = RNG.normal(size=(3 if rows is None else rows, k)).astype(np.float32)
    m = model(
        nodes, [value("x", ("m" if rows is None else rows, k))], [value("y", None)], constants, opset=opset
    )
    if more:
        m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    made = compilation(load(m), cache="none", threads=1)
    size = sum(c.data.nbytes for c in made.program.constants)
    kernels = " ".join(kernel.origin for kernel in made.module.kernels.values())
    return x, executable_of(made.program, threads=1)(x), size, kernels


def agrees(x, y, real):
    """Hold a product against that in f64 with what weights stand for."""
    want = x.astype(np.float64) @ real
    scale = (np.abs(x).astype(np.float64) @ np.abs(real)).max()
    assert np.abs(y - want).max() <= bound(F32, x.shape[1]) * max(1.0, scale)


ROWS = [1, None]
FORMS = [
    ("tensor", np.int8, False),
    ("tensor", np.uint8, True),
    ("column", np.int8, False),
    ("column", np.uint8, True),
]


@pytest.mark.sample(2)
@pytest.mark.llvm
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("per", "dtype", "has_zero"), FORMS)
@pytest.mark.parametrize("is_turned", [False, True])
def test_bytes_with_a_scale_for_all_or_for_a_column(rows, per, dtype, has_zero, is_turned):
    info = np.iinfo(dtype)
    shape = (N, K) if is_turned else (K, N)
    q = RNG.integers(info.min, info.max, shape, dtype, endpoint=True)
    count = () if per == "tensor" else (N,)
    scale = np.asarray(RNG.uniform(0.001, 0.01, count), np.float32)
    zero = RNG.integers(info.min, info.max, count, dtype) if has_zero else None
    axis = 0 if is_turned else 1
    constants = {"q": q, "s": scale} | ({} if zero is None else {"z": np.asarray(zero, dtype)})
    nodes = [node("DequantizeLinear", list(constants), ["w"], axis=axis)]
    if is_turned:
        nodes.append(node("Gemm", ["x", "w"], ["y"], transB=1))
    else:
        nodes.append(node("MatMul", ["x", "w"], ["y"]))
    x, y, size, kernels = compiled(nodes, constants, rows)
    assert "matmul_blocks_packed" in kernels
    assert size < 2 * K * N
    wide = (q.T if is_turned else q).astype(np.float64) - (0 if zero is None else zero.astype(np.float64))
    agrees(x, y, wide * scale.astype(np.float64))


@pytest.mark.sample(4)
@pytest.mark.llvm
@pytest.mark.parametrize("elem", [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8, TensorProto.UINT8])
@pytest.mark.parametrize("has_zero", [False, True])
def test_dequantize_in_blocks(elem, has_zero):
    low, high = {
        TensorProto.INT4: (-8, 7),
        TensorProto.UINT4: (0, 15),
        TensorProto.INT8: (-128, 127),
        TensorProto.UINT8: (0, 255),
    }[elem]
    q, scale = RNG.integers(low, high, (K, N)), RNG.uniform(0.001, 0.01, (K // 32, N)).astype(np.float32)
    zero = RNG.integers(low, high, scale.shape)
    tensors = [helper.make_tensor("q", elem, q.shape, q.ravel().tolist())]
    names = ["q", "s"]
    if has_zero:
        tensors.append(helper.make_tensor("z", elem, zero.shape, zero.ravel().tolist()))
        names.append("z")
    nodes = [node("DequantizeLinear", names, ["w"], axis=0, block_size=32), node("MatMul", ["x", "w"], ["y"])]
    m = model(nodes, [value("x", (1, K))], [value("y", None)], {"s": scale}, opset=21)
    m.graph.initializer.extend(tensors)
    made = compilation(load(m), cache="none", threads=1)
    size = sum(c.data.nbytes for c in made.program.constants)
    assert size < K * N * (1 if high < 16 else 2)
    x = RNG.normal(size=(1, K)).astype(np.float32)
    y = executable_of(made.program, threads=1)(x)
    places = np.arange(K) // 32
    agrees(x, y, (q - (zero[places] if has_zero else 0.0)) * scale.astype(np.float64)[places])


@pytest.mark.parametrize("rows", [32])
def test_many_rows_are_computed_in_floats(rows):
    q, scale = RNG.integers(-128, 127, (K, N), np.int8), np.float32(0.01)
    nodes = [node("DequantizeLinear", ["q", "s"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    *_, kernels = compiled(nodes, {"q": q, "s": np.asarray(scale)}, rows)
    assert "matmul_packed" in kernels


def n_bits(bits, block, zeros, k, n):
    """Return a node of onnxruntime's, its constants, and the weights that it stands for."""
    blocks = -(-k // block)
    q = RNG.integers(0, 1 << bits, (n, blocks * block))
    scale = RNG.uniform(0.001, 0.01, (n, blocks)).astype(np.float32)
    zero = RNG.integers(0, 1 << bits, (n, -(-blocks // 2) * 2))

    def packed(x):
        return (x if bits == 8 else x[:, 0::2] | (x[:, 1::2] << 4)).astype(np.uint8)

    constants = {"q": packed(q).reshape(n, blocks, -1), "s": scale.ravel()}
    real = zero[:, :blocks].astype(np.float64)
    if zeros == "packed":
        constants["z"] = packed(zero[:, :blocks] if bits == 8 else zero).ravel()
    elif zeros == "float":
        real = RNG.uniform(0, 15, (n, blocks)).astype(np.float32)
        constants["z"] = real
    else:
        real = np.full((n, blocks), float(1 << (bits - 1)))
    places = np.arange(k) // block
    weights = (q[:, :k] - real.astype(np.float64)[:, places]) * scale.astype(np.float64)[:, places]
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block, "domain": "com.microsoft"}
    return node("MatMulNBits", ["x", *constants], ["y"], **attrs), constants, weights.T


CASES = [
    (bits, block, zeros)
    for bits in (4, 8)
    for block in (16, 32, 64, 128, 256)
    for zeros in ("absent", "packed", "float")
]


def room(bits, block, zeros, k, n):
    """Return more bytes than weights of few bits take, with what goes with them."""
    return 1.4 * n * (k * bits / 8 + -(-k // block) * (8 if zeros == "float" else 5))


@pytest.mark.llvm
@pytest.mark.sample(1)
@pytest.mark.parametrize(("bits", "block", "zeros"), CASES)
@pytest.mark.parametrize("k", [256, 300])
def test_products_of_few_bits(bits, block, zeros, k):
    product, constants, real = n_bits(bits, block, zeros, k, 24)
    for rows in ROWS:
        x, y, size, kernels = compiled([product], constants, rows, k, contrib=True)
        assert "matmul_blocks_packed" in kernels
        assert size < room(bits, block, zeros, k, 24)
        agrees(x, y, real)


def rounded(x, block):
    """Return rows in 8 bits, with a scale for each block of neighbors."""
    y = np.empty(x.shape, np.float64)
    for start in range(0, x.shape[1], block):
        part = x[:, start : start + block]
        scale = np.abs(part).max(1, keepdims=True) / np.float32(127)
        y[:, start : start + block] = np.rint(part / scale).astype(np.float64) * scale
    return y


@pytest.mark.llvm
@pytest.mark.sample(1)
@pytest.mark.parametrize(("bits", "block", "zeros"), CASES)
@pytest.mark.parametrize("k", [256, 300])
def test_products_of_few_bits_by_bytes(bits, block, zeros, k):
    product, constants, real = n_bits(bits, block, zeros, k, 24)
    product.attribute.append(helper.make_attribute("accuracy_level", 4))
    for rows in (1, 40, None):
        x, y, size, kernels = compiled([product], constants, rows, k, contrib=True)
        assert "quantize_blocks" in kernels
        assert size < room(bits, block, zeros, k, 24) or k % block
        agrees(rounded(x, block), y, real)


def test_rounded_operands_are_told():
    product, constants, _ = n_bits(4, 32, "absent", 64, 8)
    for level, count in ((0, 0), (4, 1)):
        product.attribute.append(helper.make_attribute("accuracy_level", level))
        m = model([product], [value("x", ("m", 64))], [value("y", None)], constants)
        m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        found = inlay.explain(m, view="numerics")
        assert len(found.in_bytes) + len(found.rounded) == count  # in integers, where there are instructions
        del product.attribute[-1]


@pytest.mark.llvm
@pytest.mark.sample(1)
@pytest.mark.parametrize("zeros", ["absent", "float"])
def test_halves_are_multiplied_by_bytes_too(zeros):
    product, constants, real = n_bits(4, 32, zeros, 64, 24)
    product.attribute.append(helper.make_attribute("accuracy_level", 4))
    constants = {n: a.astype(np.float16) if a.dtype == np.float32 else a for n, a in constants.items()}
    graph_input = helper.make_tensor_value_info("x", TensorProto.FLOAT16, ("m", 64))
    m = model([product], [graph_input], [value("y", None, TensorProto.FLOAT16)], constants)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    made = compilation(load(m), cache="none", threads=1)
    assert "quantize_blocks" in " ".join(kernel.origin for kernel in made.module.kernels.values())
    x = RNG.normal(size=(5, 64)).astype(np.float16)
    y = executable_of(made.program, threads=1)(x)
    assert y.dtype == np.float16
    want = rounded(x.astype(np.float32), 32) @ real
    # f16 has 11 bits, and scales are rounded to it, too.
    assert np.abs(y - want).max() <= 4e-3 * np.abs(want).max()


def test_rows_of_zeros_and_what_is_no_number_stay_what_they_are():
    product, constants, real = n_bits(4, 32, "absent", 64, 8)
    product.attribute.append(helper.make_attribute("accuracy_level", 4))
    m = model([product], [value("x", ("m", 64))], [value("y", None)], constants)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    run = executable_of(compilation(load(m), cache="none", threads=1).program, threads=1)
    x = RNG.normal(size=(4, 64)).astype(np.float32)
    x[0] = 0
    x[1, 40], x[2, 3] = np.nan, np.inf
    y = run(x)
    assert (y[0] == 0).all()
    assert np.isnan(y[1]).all()
    assert not np.isfinite(y[2]).any()
    agrees(rounded(x[3:], 32), y[3:], real)


@pytest.mark.parametrize(
    ("change", "id_"),
    [
        ({"bits": 3}, "import.unsupported"),
        ({"block_size": 24}, "import.invalid-node"),
        ({"K": 2048}, "import.invalid-node"),
        ({"more": 1}, "import.unsupported"),
    ],
)
def test_what_is_refused(change, id_):
    product, constants, _ = n_bits(4, 32, "absent", 64, 8)
    for name, number in change.items():
        kept = [a for a in product.attribute if a.name != name]
        del product.attribute[:]
        product.attribute.extend([*kept, helper.make_attribute(name, number)])
    with pytest.raises(Exception) as caught:
        compiled([product], constants, 1, 64, contrib=True)
    assert caught.value.diagnostics[0].id == id_


def test_rows_in_another_order_are_refused():
    product, constants, real = n_bits(4, 32, "packed", 64, 8)
    product.input.append("g")
    x, y, *_ = compiled(
        [product], constants | {"g": np.arange(64, dtype=np.int32) // 32}, 1, 64, contrib=True
    )
    agrees(x, y, real)
    with pytest.raises(Exception, match="g_idx"):
        compiled([product], constants | {"g": np.arange(64, dtype=np.int32) % 2}, 1, 64, contrib=True)
