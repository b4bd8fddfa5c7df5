"""Calls of operators that compute: element by element, sums, products, windows, recurrences."""

from __future__ import annotations

import numpy as np

from tests.differential.onnx_draw import F16, F32, F64, I64, INTS, Draw, Family, a_float, like


def unary(d: Draw, op: str) -> None:
    d.give(
        d.array(d.shape(), d.one(F32, F32, F64) if op not in {"Abs", "Neg", "Relu", "Sign"} else a_float(d))
    )


def unary_integer(d: Draw, op: str) -> None:
    kinds = {"Neg": INTS[:4], "Relu": INTS[:4]}.get(op.removesuffix("~i"), INTS)
    d.give(d.array(d.shape(), d.one(*kinds)))


def activation(d: Draw, op: str) -> None:
    x = d.array(d.shape(), F32)
    d.give(x)
    names = {
        "LeakyRelu": ("alpha",),
        "Elu": ("alpha",),
        "Selu": ("alpha", "gamma"),
        "Celu": ("alpha",),
        "HardSigmoid": ("alpha", "beta"),
        "ThresholdedRelu": ("alpha",),
        "Shrink": ("bias", "lambd"),
    }
    for name in names.get(op, ()):
        if d.chance(0.7):
            d.attrs[name] = round(float(d.rng.uniform(0.1, 2)), 2)
    if op == "Gelu" and d.chance(0.5):
        d.attrs["approximate"] = "tanh"


def binary(d: Draw, op: str) -> None:
    op = op.removesuffix("~i")
    shape = d.shape()
    dtype = a_float(d) if op in {"Pow", "PRelu"} else d.one(F32, F64, F16, *INTS[2:4], *INTS[2:4])
    if op == "Mod":
        d.attrs["fmod"] = int(dtype.kind == "f" or d.chance(0.3))
    if op in {"And", "Or", "Xor"}:
        dtype = np.dtype(bool)
    if op.startswith("Bitwise"):
        dtype = d.one(*INTS)
    if op == "BitShift":
        dtype = d.one(*INTS[4:])
        d.attrs["direction"] = d.one("LEFT", "RIGHT")
    x, y = d.array(shape, dtype), d.array(like(d, shape), dtype)
    if dtype.kind in "iu" and op in {"Div", "Mod"}:
        y = np.where(np.isin(y, (0, -1)), 3, y).astype(dtype)
    if op == "BitShift":
        y = (np.abs(y) % (dtype.itemsize * 8)).astype(dtype)
    if op == "Pow":
        x = np.abs(x) if d.chance(0.6) else x
        if d.chance(0.4):
            y = d.array(y.shape, d.one(np.dtype("int32"), I64), special=0)
    if op != "PRelu" and d.chance(0.4):
        x, y = y, x
        if dtype.kind in "iu" and op in {"Div", "Mod"}:
            y = np.where(np.isin(y, (0, -1)), 3, y).astype(dtype)
        if op == "BitShift":
            y = (np.abs(y) % (dtype.itemsize * 8)).astype(dtype)
        if op == "Pow" and x.dtype.kind != "f":
            x, y = x.astype(dtype), y
    d.give(x, y)


def several(d: Draw, op: str) -> None:
    shape = d.shape()
    dtype = a_float(d) if op in {"Sum", "Mean"} else d.one(F32, F64, *INTS[2:4])
    d.give(d.array(shape, dtype), *(d.array(like(d, shape), dtype) for _ in range(d.int(0, 2))))


def reduce(d: Draw, op: str) -> None:
    shape = d.shape(least=d.one(0, 1))
    floats = (F32, F32, F64)
    dtype = (
        d.one(*floats, *INTS[2:4])
        if op not in {"ReduceLogSum", "ReduceLogSumExp", "ReduceL2"}
        else d.one(*floats)
    )
    d.give(d.array(shape, dtype, special=0.2))
    d.attrs["keepdims"] = d.int(0, 1)
    if d.chance(0.75):
        axes = d.axes(len(shape))
        d.give(np.array(axes, np.int64), constant=d.chance(0.8))
        if not axes or d.chance(0.3):
            d.attrs["noop_with_empty_axes"] = d.int(0, 1)


def arg_reduce(d: Draw, op: str) -> None:
    shape = d.shape(1, 4, least=1)
    d.give(d.array(shape, d.one(F32, F64, *INTS[2:3])))
    d.attrs.update(axis=d.axis(len(shape)), keepdims=d.int(0, 1), select_last_index=d.int(0, 1))


def along(d: Draw, op: str) -> None:
    shape = d.shape(1, 4)
    d.give(d.array(shape, d.one(F32, F32, F64), special=0.15))
    d.attrs["axis"] = d.axis(len(shape))
    if op == "LpNormalization":
        d.attrs["p"] = d.int(1, 2)


def cumsum(d: Draw, op: str) -> None:
    shape = d.shape(1, 4)
    d.give(d.array(shape, d.one(F32, F64, *INTS[2:4]), special=0.1))
    d.give(np.array(d.axis(len(shape)), np.int64), constant=True)
    d.attrs.update(exclusive=d.int(0, 1), reverse=d.int(0, 1))


def clip(d: Draw, op: str) -> None:
    dtype = d.one(F32, F64, F16, *INTS[2:4])
    low, high = sorted([d.int(0, 6), d.int(0, 6)])
    d.give(d.array(d.shape(), dtype))
    d.give(np.array(low, dtype) if d.chance(0.7) else None)
    d.give(np.array(high, dtype) if d.chance(0.7) else None)


def matmul(d: Draw, op: str) -> None:
    m, k, n = (int(d.rng.choice([1, 2, 3, 8, 17, 33] + [0] * d.chance(0.1))) for _ in range(3))
    batch = d.shape(0, 2)
    a, b = (*batch, m, k), (*like(d, batch), k, n)
    a = a[-1:] if d.chance(0.15) else a
    b = b[-2:-1] if d.chance(0.15) else b
    dtype = d.one(F32, F32, F64, np.dtype("int32"))
    d.give(d.array(a, dtype, special=0.1))
    d.give(d.array(b, dtype, special=0.1), constant=d.chance(0.3))


def gemm(d: Draw, op: str) -> None:
    m, k, n = (int(d.rng.choice([1, 2, 3, 8, 17])) for _ in range(3))
    ta, tb = d.int(0, 1), d.int(0, 1)
    d.attrs.update(transA=ta, transB=tb)
    d.give(
        d.array((k, m) if ta else (m, k), F32, special=0), d.array((n, k) if tb else (k, n), F32, special=0)
    )
    if d.chance(0.7):
        d.give(d.array(d.one((m, n), (n,), (1, n), (m, 1), (1,), ()), F32, special=0))
    for name in ("alpha", "beta"):
        if d.chance(0.5):
            d.attrs[name] = d.one(0.0, 0.5, 2.0)


def _window(d: Draw, rank: int, *, auto: bool = True) -> tuple[int, ...]:
    kernel = tuple(d.int(1, 3) for _ in range(rank))
    d.attrs["kernel_shape"] = list(kernel)
    if d.chance(0.6):
        d.attrs["strides"] = [d.int(1, 3) for _ in range(rank)]
    dilated = d.chance(0.3)
    if dilated:
        d.attrs["dilations"] = [d.int(1, 2) for _ in range(rank)]
    choice = d.int(0, 3)
    if choice == 1:
        d.attrs["pads"] = [d.int(0, k - 1) for k in kernel] + [d.int(0, k - 1) for k in kernel]
    elif choice == 2 and auto and not dilated:
        d.attrs["auto_pad"] = d.one("SAME_UPPER", "SAME_LOWER", "VALID")
    return kernel


def conv(d: Draw, op: str) -> None:
    rank = d.one(1, 2, 2, 3)
    group = d.one(1, 1, 2, 3)
    cin, cout = group * d.int(1, 4), group * d.int(1, 4)
    kernel = _window(d, rank)
    spatial = tuple(d.int(6, 9) for _ in range(rank))
    d.attrs["group"] = group
    d.give(d.array((d.int(1, 2), cin, *spatial), F32, special=0))
    shape = (cout, cin // group, *kernel) if op == "Conv" else (cin, cout // group, *kernel)
    d.give(d.array(shape, F32, special=0), constant=d.chance(0.7))
    if d.chance(0.6):
        d.give(d.array((cout,), F32, special=0), constant=True)
    if op == "ConvTranspose" and d.chance(0.3) and "auto_pad" not in d.attrs:
        strides = d.attrs.get("strides", [1] * rank)
        d.attrs["output_padding"] = [d.int(0, s - 1) for s in strides]


def pool(d: Draw, op: str) -> None:
    rank = d.one(1, 2, 2, 3)
    _window(d, rank)
    d.give(d.array((d.int(1, 2), d.int(1, 9), *(d.int(6, 9) for _ in range(rank))), F32, special=0.1))
    if op != "LpPool" or d.chance(0.5):
        d.attrs["ceil_mode"] = d.int(0, 1)
    if op == "AveragePool":
        d.attrs["count_include_pad"] = d.int(0, 1)
    if op == "MaxPool" and d.chance(0.3) and "auto_pad" not in d.attrs:
        d.outputs = 2
    if op == "LpPool":
        d.attrs["p"] = d.int(1, 3)


def global_pool(d: Draw, op: str) -> None:
    d.give(d.array((d.int(1, 3), d.int(1, 9), *(d.int(1, 9) for _ in range(d.int(1, 3)))), F32, special=0.1))


def normalization(d: Draw, op: str) -> None:
    channels = d.int(1, 4) * 2
    shape = (d.int(1, 2), channels, *(d.int(1, 5) for _ in range(d.int(1, 2))))
    d.give(d.array(shape, F32, special=0))
    if op == "LayerNormalization":
        axis = d.int(-len(shape), len(shape) - 1)
        tail = shape[axis:]
        d.attrs["axis"] = axis
        d.give(d.array(tail, F32, special=0))
        if d.chance(0.5):
            d.give(d.array(tail, F32, special=0))
    elif op == "LRN":
        d.attrs.update(size=d.one(1, 2, 3, 5), alpha=0.01, beta=0.75, bias=1.5)
    elif op == "MeanVarianceNormalization":
        d.attrs["axes"] = [0, *range(2, len(shape))]
    else:
        d.give(d.array((channels,), F32, special=0), d.array((channels,), F32, special=0))
        if op == "BatchNormalization":
            d.give(d.array((channels,), F32, special=0), np.abs(d.array((channels,), F32, special=0)))
        if op == "GroupNormalization":
            d.attrs["num_groups"] = d.one(1, 2, channels)


def einsum(d: Draw, op: str) -> None:
    equation = d.one(
        "ij,jk->ik",
        "ij,jk",
        "bij,bjk->bik",
        "ij->ji",
        "ij->i",
        "ii->i",
        "ii",
        "i,j->ij",
        "bhid,bhjd->bhij",
        "...ij,...jk->...ik",
        "ij,ij->",
        "ijk->kji",
        "ij,j->i",
        "i,i->",
    )
    sizes = {c: d.int(1, 5) for c in "abhdijk"}
    d.attrs["equation"] = equation
    for term in equation.split("->")[0].split(","):
        letters = term.replace("...", "ab")
        d.give(d.array(tuple(sizes[c] for c in letters), F32, special=0))


def quantize(d: Draw, op: str) -> None:
    shape = d.shape(1, 3, least=1)
    to = d.one(np.dtype("int8"), np.dtype("uint8"), np.dtype("int16"), np.dtype("uint16"))
    axis = d.axis(len(shape))
    per = d.chance(0.5)
    scale = np.asarray(d.rng.uniform(0.01, 0.5, (shape[axis],) if per else ())).astype(np.float32)
    zero = np.asarray(d.rng.integers(0, 9, scale.shape)).astype(to)
    x = d.array(shape, F32, special=0.2, scale=30) if op == "QuantizeLinear" else d.array(shape, to)
    d.give(np.where(np.isnan(x), 0, x).astype(x.dtype), scale)
    if op == "DequantizeLinear" or d.chance(0.7) or to != np.uint8:
        d.give(zero)
    d.attrs["axis"] = axis


def dynamic_quantize(d: Draw, op: str) -> None:
    d.give(d.array(d.shape(1, 3, least=1), F32, special=0))
    d.outputs = 3


def resize(d: Draw, op: str) -> None:
    rank = d.one(3, 4, 4)
    shape = (d.int(1, 2), d.int(1, 3), *(d.int(1, 7) for _ in range(rank - 2)))
    mode = d.one("nearest", "linear", "cubic") if rank == 4 else d.one("nearest", "linear")
    d.attrs["mode"] = mode
    d.attrs["coordinate_transformation_mode"] = d.one(
        "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"
    )
    if mode == "nearest":
        d.attrs["nearest_mode"] = d.one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        d.attrs["cubic_coeff_a"] = d.one(-0.5, -0.75)
        d.attrs["exclude_outside"] = d.int(0, 1)
    d.give(d.array(shape, F32, special=0), None)
    if d.chance(0.5):
        scales = [1, 1, *(d.one(0.5, 1.5, 2.0, 3.0, 0.6) for _ in range(rank - 2))]
        d.give(np.array(scales, np.float32), constant=True)
    else:
        d.give(None)
        d.give(np.array([*shape[:2], *(d.int(1, 9) for _ in range(rank - 2))], np.int64), constant=True)


def grid_sample(d: Draw, op: str) -> None:
    n, c = d.int(1, 2), d.int(1, 3)
    d.give(d.array((n, c, d.int(1, 6), d.int(1, 6)), F32, special=0))
    d.give(np.asarray(d.rng.uniform(-1.5, 1.5, (n, d.int(1, 4), d.int(1, 4), 2))).astype(np.float32))
    d.attrs.update(
        mode=d.one("linear", "nearest", "cubic"),
        align_corners=d.int(0, 1),
        padding_mode=d.one("zeros", "border", "reflection"),
    )


def det(d: Draw, op: str) -> None:
    n = d.int(1, 4)
    d.give(d.array((*d.shape(0, 2), n, n), F32, special=0))


def windows(d: Draw, op: str) -> None:
    d.give(np.array(d.int(1, 12), np.int64), constant=d.chance(0.5))
    d.attrs["periodic"] = d.int(0, 1)


def recurrent(d: Draw, op: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    time, batch, size, hidden = d.int(1, 4), d.int(1, 3), d.int(1, 5), d.int(1, 9)
    direction = d.one("forward", "reverse", "bidirectional")
    both = 2 if direction == "bidirectional" else 1
    d.attrs.update(hidden_size=hidden, direction=direction)
    if op == "GRU":
        d.attrs["linear_before_reset"] = d.int(0, 1)
    d.give(d.array((time, batch, size), F32, special=0))
    d.give(d.array((both, gates * hidden, size), F32, special=0, scale=0.5), constant=True)
    d.give(d.array((both, gates * hidden, hidden), F32, special=0, scale=0.5), constant=True)
    d.give(d.array((both, 2 * gates * hidden), F32, special=0) if d.chance(0.6) else None)
    d.give(np.asarray(d.rng.integers(1, time + 1, batch)).astype(np.int32) if d.chance(0.4) else None)
    d.give(d.array((both, batch, hidden), F32, special=0) if d.chance(0.4) else None)
    d.outputs = d.int(1, 3 if op == "LSTM" else 2)


def matmul_integer(d: Draw, op: str) -> None:
    m, k, n = d.int(1, 9), d.int(1, 17), d.int(1, 9)
    left, right = d.one(*INTS[:5:4]), d.one(*INTS[:5:4])
    d.give(d.array((m, k), left), d.array((k, n), right))
    if d.chance(0.5):
        d.give(d.array((), left, special=0), d.array((), right, special=0))


FAMILIES: dict[str, Family] = {
    **dict.fromkeys(
        (
            "Abs",
            "Neg",
            "Sqrt",
            "Exp",
            "Log",
            "Sin",
            "Cos",
            "Tan",
            "Asin",
            "Acos",
            "Atan",
            "Sinh",
            "Cosh",
            "Tanh",
            "Asinh",
            "Acosh",
            "Atanh",
            "Erf",
            "Sigmoid",
            "Relu",
            "Ceil",
            "Floor",
            "Round",
            "Sign",
            "IsNaN",
            "IsInf",
            "Reciprocal",
        ),
        unary,
    ),
    **dict.fromkeys(("Abs~i", "Neg~i", "Sign~i", "Relu~i", "BitwiseNot"), unary_integer),
    **dict.fromkeys(
        (
            "LeakyRelu",
            "Elu",
            "Selu",
            "Celu",
            "Softplus",
            "Softsign",
            "HardSigmoid",
            "HardSwish",
            "Gelu",
            "Mish",
            "ThresholdedRelu",
            "Shrink",
        ),
        activation,
    ),
    **dict.fromkeys(
        (
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Pow",
            "Mod",
            "PRelu",
            "Equal",
            "Less",
            "Greater",
            "LessOrEqual",
            "GreaterOrEqual",
            "And",
            "Or",
            "Xor",
            "BitShift",
            "BitwiseAnd",
            "BitwiseOr",
            "BitwiseXor",
        ),
        binary,
    ),
    **dict.fromkeys(("Min", "Max", "Sum", "Mean"), several),
    **dict.fromkeys(
        (
            "ReduceSum",
            "ReduceMean",
            "ReduceMax",
            "ReduceMin",
            "ReduceProd",
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceSumSquare",
        ),
        reduce,
    ),
    **dict.fromkeys(("ArgMax", "ArgMin"), arg_reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"), along),
    **dict.fromkeys(("Conv", "ConvTranspose"), conv),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), global_pool),
    **dict.fromkeys(
        (
            "BatchNormalization",
            "InstanceNormalization",
            "LayerNormalization",
            "GroupNormalization",
            "LRN",
            "MeanVarianceNormalization",
        ),
        normalization,
    ),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), quantize),
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow"), windows),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), recurrent),
    "CumSum": cumsum,
    "Clip": clip,
    "MatMul": matmul,
    "Gemm": gemm,
    "Einsum": einsum,
    "DynamicQuantizeLinear": dynamic_quantize,
    "Resize": resize,
    "GridSample": grid_sample,
    "Det": det,
    "MatMulInteger": matmul_integer,
}
"""How to draw each operator; `~i` marks the integers of one."""
