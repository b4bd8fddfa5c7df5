"""Operators of TFLite that few models have, against NumPy, and against the interpreter where it is installed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from inlay.interp.tensor import evaluate_entry
from inlay.ops.table import table

pytest.importorskip("tflite", reason="the package 'tflite' is not installed")

from inlay.base.diagnostics import CompileError
from inlay.importers.tflite.graph import import_bytes
from tests.tflite_models import Op, Sparse, T, constant, model

RNG = np.random.default_rng(5)


@dataclass
class Case:
    """An operator, its operands by name, what it has to give, and options."""

    op: str
    inputs: dict[str, np.ndarray | T]
    outputs: list[np.ndarray]
    table: str = ""
    options: dict[str, object] = field(default_factory=dict)
    signature: tuple[int, ...] = ()

    def content(self) -> bytes:
        tensors = {n: v if isinstance(v, T) else T(v.shape, v.dtype.name) for n, v in self.inputs.items()}
        for i, y in enumerate(self.outputs):
            tensors[f"y{i}"] = T(y.shape, y.dtype.name, signature=self.signature)
        results = [f"y{i}" for i in range(len(self.outputs))]
        op = Op(self.op, list(self.inputs), results, self.table, self.options)
        return model(tensors, [op], list(self.given()), results)

    def given(self) -> dict[str, np.ndarray]:
        return {n: v for n, v in self.inputs.items() if isinstance(v, np.ndarray)}


def real(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


def ints(*values: object) -> np.ndarray:
    return np.array(values, np.int32)


def segments(name: str) -> Case:
    x, groups = real(5, 2), ints(0, 2, -1, 2, 0)
    start, combine = {
        "SUM": (0, np.add),
        "PROD": (1, np.multiply),
        "MIN": (np.finfo(np.float32).max, np.minimum),
        "MAX": (np.finfo(np.float32).min, np.maximum),
    }[name]
    y = np.full((4, 2), start, np.float32)
    for row, group in zip(x, groups, strict=True):
        if group >= 0:
            y[group] = combine(y[group], row)
    return Case(f"UNSORTED_SEGMENT_{name}", {"x": x, "g": groups, "n": constant(ints(4)[0])}, [y])


def sums_in_order() -> Case:
    x = real(5, 2)
    y = np.stack([x[0] + x[1], x[2], x[3] + x[4]])
    return Case("SEGMENT_SUM", {"x": x, "g": constant(ints(0, 0, 1, 2, 2))}, [y], "SegmentSumOptions")


def buckets() -> Case:
    ends = np.linspace(-2, 2, 21).astype(np.float32)
    x = np.concatenate([real(30), ends[:3]]).astype(np.float32)
    y = np.searchsorted(ends, x, side="right").astype(np.int32)
    return Case("BUCKETIZE", {"x": x}, [y], "BucketizeOptions", {"Boundaries": ends})


def diagonals() -> list[Case]:
    x, m, d = real(2, 3), real(2, 3, 4), real(2, 3)
    y = np.stack([np.diag(row) for row in x])
    z = m.copy()
    z[:, range(3), range(3)] = d
    return [
        Case("MATRIX_DIAG", {"x": x}, [y], "MatrixDiagOptions"),
        Case("MATRIX_SET_DIAG", {"x": m, "d": d}, [z], "MatrixSetDiagOptions"),
    ]


def filled() -> Case:
    y = np.full((3, 4), 7, np.float32)
    y[0, 1], y[2, 3] = 1, 2
    places = constant(np.array([[0, 1], [2, 3]], np.int32))
    inputs = {"i": places, "s": constant(ints(3, 4)), "v": np.array([1, 2], np.float32)}
    return Case("SPARSE_TO_DENSE", inputs | {"o": constant(np.float32(7))}, [y], "SparseToDenseOptions")


def rounded() -> Case:
    low, high = np.float32(-1.3), np.float32(2.1)
    scale = (high - low) / np.float32(255)
    zero = np.round(-low / scale)
    x = (RNG.normal(0, 1, 50) * 1.5).astype(np.float32)
    bottom, top = (0 - zero) * scale, (255 - zero) * scale
    y = np.floor((np.clip(x, bottom, top) - bottom) / scale + np.float32(0.5)) * scale + bottom
    options = {"Min": float(low), "Max": float(high), "NumBits": 8}
    return Case("FAKE_QUANT", {"x": x}, [y.astype(np.float32)], "FakeQuantOptions", options)


def volume(stride: int, padding: int) -> Case:
    x, w, b = real(1, 5, 6, 4, 2), real(3, 2, 3, 2, 4), real(4)
    sizes, kernel = np.array([5, 6, 4]), np.array([3, 2, 3])
    total = np.maximum((-(-sizes // stride) - 1) * stride + kernel - sizes, 0) if padding == 0 else sizes * 0
    padded = np.pad(x, [(0, 0), *((t // 2, t - t // 2) for t in total), (0, 0)])
    view = np.lib.stride_tricks.sliding_window_view(padded, tuple(kernel), (1, 2, 3))
    view = view[:, ::stride, ::stride, ::stride]
    y = np.einsum("ndhwcijk,ijkco->ndhwo", view, w).astype(np.float32) + b
    steps = {"StrideD": stride, "StrideH": stride, "StrideW": stride, "Padding": padding}
    options = steps | {f"Dilation{a}Factor": 1 for a in "DHW"}
    return Case("CONV_3D", {"x": x, "w": constant(w), "b": constant(b)}, [y], "Conv3DOptions", options)


def enlarged(stride: int, padding: int) -> Case:
    x, w = real(1, 2, 3, 2, 3), real(3, 2, 3, 4, 3)
    sizes, kernel = np.array([2, 3, 2]), np.array([3, 2, 3])
    out = sizes * stride if padding == 0 else (sizes - 1) * stride + kernel
    whole = np.zeros((1, *((sizes - 1) * stride + kernel), 4), np.float32)
    for d, h, c in np.ndindex(*sizes):
        at = tuple(slice(p * stride, p * stride + k) for p, k in zip((d, h, c), kernel, strict=True))
        whole[(0, *at)] += np.einsum("c,ijkoc->ijko", x[0, d, h, c], w)
    front = np.maximum((sizes - 1) * stride + kernel - out, 0) // 2
    behind = [(0, max(f + o - s, 0)) for f, o, s in zip(front, out, whole.shape[1:4], strict=True)]
    whole = np.pad(whole, [(0, 0), *behind, (0, 0)])
    y = whole[(slice(None), *(slice(f, f + o) for f, o in zip(front, out, strict=True)))]
    options = {"StrideD": stride, "StrideH": stride, "StrideW": stride, "Padding": padding}
    options |= {f"Dilation{a}Factor": 1 for a in "DHW"}
    inputs = {"s": constant(np.array([1, *out, 4], np.int32)), "w": constant(w), "x": x}
    return Case("CONV_3D_TRANSPOSE", inputs, [y], "Conv3DOptions", options)


def suppressed(sigma: float | None) -> Case:
    boxes = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [1, 1.1, 0, 0.1], [0, 10, 1, 11], [0, 10.1, 1, 11.1]])
    scores = np.array([0.9, 0.75, 0.6, 0.95, 0.3])
    left, taken, kept = scores.copy(), list[int](), list[float]()
    corners = np.stack([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)
    while len(taken) < 4 and left.max() > 0.35:
        best = int(left.argmax())
        taken.append(best)
        kept.append(left[best])
        low = np.maximum(corners[:, 0], corners[best, 0])
        both = np.maximum(np.minimum(corners[:, 1], corners[best, 1]) - low, 0).prod(-1)
        ratio = both / (2 - both)
        left = left * np.exp(-0.5 / sigma * ratio**2) if sigma else left
        left[ratio >= 0.95 if sigma else ratio >= 0.5] = 0
    pads = 4 - len(taken)
    found = [ints(*taken, *[0] * pads), np.array([*kept, *[0] * pads], np.float32), ints(len(taken))[0]]
    inputs = {"b": boxes.astype(np.float32), "s": scores.astype(np.float32), "n": constant(ints(4)[0])}
    inputs |= {"o": constant(np.float32(0.95 if sigma else 0.5)), "t": constant(np.float32(0.35))}
    if sigma is None:
        return Case("NON_MAX_SUPPRESSION_V4", inputs, found[::2], "NonMaxSuppressionV4Options")
    inputs["d"] = constant(np.float32(sigma))
    return Case("NON_MAX_SUPPRESSION_V5", inputs, found, "NonMaxSuppressionV5Options")


def once() -> Case:
    x = ints(7, 3, 7, 7, -2, 3, 9)
    options = {"IdxOutType": 4}
    found = [ints(7, 3, -2, 9), np.array([0, 1, 0, 0, 2, 1, 3], np.int64)]
    return Case("UNIQUE", {"x": x}, found, "UniqueOptions", options, signature=(-1,))


def looked_up(combiner: int) -> Case:
    """Rows of a table of which the third place has none."""
    rows, weights = ints(1, 3, 0, 2, 3), np.array([1, 2, 0.5, 1.5, -1], np.float32)
    places = ints([0, 0], [0, 1], [1, 0], [3, 0], [3, 2])
    values = real(4, 3, 2)
    y = np.zeros((4, 3, 2), np.float32)
    for place in range(4):
        at = places[:, 0] == place
        divisor = (1, weights[at].sum(), np.sqrt((weights[at] ** 2).sum()))[combiner]
        if at.any():
            y[place] = np.einsum("i,ijk->jk", weights[at], values[rows[at]]) / divisor
    inputs = {"i": rows, "p": places, "d": constant(ints(4, 3)), "w": weights, "v": values}
    return Case(
        "EMBEDDING_LOOKUP_SPARSE", inputs, [y], "EmbeddingLookupSparseOptions", {"Combiner": combiner}
    )


def apart() -> Case:
    x = real(2, 3, 4)
    y = np.full((3, 3, 10), 0.5, np.float32)
    y[::2, :, ::3] = x
    return Case("DILATE", {"x": x, "d": constant(ints(2, 1, 3)), "v": constant(np.float32(0.5))}, [y])


def windows(function: int, combine: np.ufunc, first: object, dtype: str) -> Case:
    """Windows of 2 x 3, the rows of which are 2 apart, at steps of 1 and 2."""
    x = RNG.integers(0, 2 if dtype == "bool" else 9, (6, 9)).astype(dtype)
    y = np.empty((4, 4), dtype)
    for i, j in np.ndindex(4, 4):
        part = x[i : i + 3 : 2, 2 * j : 2 * j + 3]
        y[i, j] = combine(combine.reduce(part, axis=None), np.array(first, dtype))
    sizes = {n: constant(np.array(v, np.int64)) for n, v in (("w", (2, 3)), ("s", (1, 2)), ("g", (2, 1)))}
    inputs = {"x": x, "f": constant(np.array(first, dtype)), **sizes}
    return Case("REDUCE_WINDOW", inputs, [y], "ReduceWindowOptions", {"ReduceFunction": function})


CASES = [
    once(),
    *map(looked_up, range(3)),
    apart(),
    windows(1, np.add, 3, "float32"),
    windows(2, np.multiply, 2, "int32"),
    windows(3, np.minimum, 4, "float32"),
    windows(4, np.maximum, 2, "int32"),
    windows(5, np.logical_and, True, "bool"),
    windows(6, np.logical_or, False, "bool"),
    *map(segments, ("SUM", "PROD", "MIN", "MAX")),
    sums_in_order(),
    buckets(),
    *diagonals(),
    filled(),
    rounded(),
    *(volume(s, p) for s in (1, 2) for p in (0, 1)),
    *(enlarged(s, p) for s in (1, 2) for p in (0, 1)),
    suppressed(None),
    suppressed(0.5),
]


def evaluated(content: bytes, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(v) for v in evaluate_entry(import_bytes(content, table()), given).values()]


@pytest.mark.parametrize("case", CASES, ids=[f"{c.op}-{i}" for i, c in enumerate(CASES)])
def test_operators_give_what_they_mean(case):
    for found, wanted in zip(evaluated(case.content(), case.given()), case.outputs, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[f"{c.op}-{i}" for i, c in enumerate(CASES)])
def test_the_interpreter_gives_the_same(case):
    package = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="the package 'ai-edge-litert' is missing"
    )
    kind = package.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = package.Interpreter(model_content=case.content(), experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    for detail, x in zip(interpreter.get_input_details(), case.given().values(), strict=True):
        interpreter.set_tensor(detail["index"], x)
    interpreter.invoke()
    for detail, wanted in zip(interpreter.get_output_details(), case.outputs, strict=True):
        np.testing.assert_allclose(interpreter.get_tensor(detail["index"]), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (4, 8), (1, 12)])
def test_the_size_of_a_transform(rows, columns):
    x, kept = real(3, rows, 10), columns // 2 + 1
    wave = T((3, rows, kept), "complex64")
    tensors = {"x": T(x.shape), "n": constant(ints(rows, columns)), "w": wave}
    tensors |= {"f": T((3 * rows, kept), "complex64"), "s": constant(ints(3 * rows, kept))}
    outputs = {name: T((3 * rows, kept)) for name in ("size", "real", "imaginary")}
    ops = [
        Op("RFFT2D", ["x", "n"], ["w"], "Rfft2dOptions"),
        Op("RESHAPE", ["w", "s"], ["f"]),
        Op("COMPLEX_ABS", ["f"], ["size"]),
        Op("REAL", ["f"], ["real"]),
        Op("IMAG", ["f"], ["imaginary"]),
    ]
    found = evaluated(model(tensors | outputs, ops, ["x"], list(outputs)), {"x": x})
    wanted = np.fft.rfft2(x, (rows, columns)).reshape(3 * rows, kept)
    for got, want in zip(found, (np.abs(wanted), wanted.real, wanted.imag), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_complex_numbers_go_to_operators_that_take_them():
    tensors = {"x": T((2, 8)), "n": constant(ints(2, 8)), "w": T((2, 5), "complex64")}
    tensors["y"] = tensors["w"]
    ops = [Op("RFFT2D", ["x", "n"], ["w"], "Rfft2dOptions"), Op("NEG", ["w"], ["y"])]
    with pytest.raises(CompileError, match="takes or gives complex numbers"):
        import_bytes(model(tensors, ops, ["x"], ["y"]), table())


def test_quotients_of_16_bits_are_those_of_reals():
    a, b = (RNG.integers(-32768, 32768, 200).astype(np.int16) for _ in range(2))
    b[:3] = 0
    tensors = {"a": T((200,), "int16", scale=0.002), "b": T((200,), "int16", scale=0.001)}
    tensors["y"] = T((200,), "int16", scale=0.0005)
    content = model(tensors, [Op("DIV", ["a", "b"], ["y"], "DivOptions")], ["a", "b"], ["y"])
    (found,) = evaluated(content, {"a": a, "b": b})
    exact = a[3:] * np.float64(np.float32(0.002)) / (b[3:] * np.float64(np.float32(0.001))) / 0.0005
    assert (np.abs(found[3:] - np.clip(exact, -32768, 32767)) <= 0.501).all()
    assert (found[:3] == 0).all()


@pytest.mark.parametrize("name", ["NEG", "FLOOR_DIV", "FLOOR_MOD"])
def test_integers_whose_scales_kernels_leave_out_are_refused(name):
    x = T((2, 6), "int8", scale=0.1, zero=3)
    names = ["x"] if name == "NEG" else ["x", "w"]
    content = model(dict.fromkeys((*names, "y"), x), [Op(name, names, ["y"])], names, ["y"])
    with pytest.raises(CompileError, match="its kernels"):
        import_bytes(content, table())


def sparse(w: np.ndarray, how: Sparse) -> bytes:
    tensors = {
        "x": T((2, w.shape[1])),
        "w": constant(w, sparse=how),
        "d": T(w.shape),
        "y": T((2, w.shape[0])),
    }
    ops = [
        Op("DENSIFY", ["w"], ["d"], "DensifyOptions"),
        Op("FULLY_CONNECTED", ["x", "d"], ["y"], "FullyConnectedOptions"),
    ]
    return model(tensors, ops, ["x"], ["y"])


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("width", ["uint8", "uint16", "int32"])
def test_weights_without_their_zeros(block, width):
    """Rows of lists of blocks: what converters write for pruned networks."""
    rows, columns = 6, 12
    w = real(rows, columns // block, block)
    w *= RNG.random((rows, columns // block, 1)) < 0.4
    is_kept = w.any(-1)
    ends, at = np.concatenate([[0], is_kept.sum(1).cumsum()]), np.nonzero(is_kept)[1]
    levels = [rows, (ends.astype(width), at.astype(width)), *([block] if block > 1 else [])]
    how = Sparse(list(range(len(levels))), [1] if block > 1 else [], levels, w[is_kept])
    dense, x = w.reshape(rows, columns), real(2, columns)
    np.testing.assert_allclose(evaluated(sparse(dense, how), {"x": x})[0], x @ dense.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("order", "blocks", "levels"),
    [
        ([0, 0], [], [2, 2]),
        ([0, 1], [], [2]),
        ([0, 1], [], [3, 2]),
        ([0, 1], [], [2, (ints(0, 1), ints(0))]),
        ([0, 1], [], [2, (ints(0, 1, 1), ints(2))]),
        ([0, 1], [], [2, (ints(0, 2, 1), ints(0))]),
        ([0, 1, 2], [1], [2, 2, 3]),
        ([0, 1, 2], [5], [2, 2, 1]),
    ],
)
def test_storage_that_does_not_fit_is_refused(order, blocks, levels):
    how = Sparse(order, blocks, levels, real(1))
    with pytest.raises(CompileError) as failure:
        import_bytes(sparse(real(2, 2), how), table())
    assert failure.value.ids == ("import.not-tflite",)
