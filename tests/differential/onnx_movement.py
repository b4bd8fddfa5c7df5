"""Calls of operators that move elements: layouts, indices, selections; and conversions."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.differential.onnx_draw import F16, F32, F64, I64, INTS, Draw, Family, like


def cast(d: Draw, op: str) -> None:
    kinds = (F32, F64, F16, np.dtype(bool), *INTS)
    source, to = d.one(*kinds), d.one(*kinds)
    x = d.array(d.shape(), source, special=0.3 if source.kind != "f" or to.kind in "fb" else 0, scale=20)
    if source.kind == "f" and to.kind == "u":
        x = np.abs(x)
    d.give(x)
    d.attrs["to"] = helper.np_dtype_to_tensor_dtype(to)


def reshape(d: Draw, op: str) -> None:
    shape = d.shape()
    x = d.array(shape, F32, special=0)
    kept = [n for n in shape if n != 1 or d.chance(0.5)]
    if d.chance(0.5) and len(kept) > 1:
        at = d.int(0, len(kept) - 2)
        kept[at : at + 2] = [kept[at] * kept[at + 1]]
    for _ in range(d.int(0, 2)):
        kept.insert(d.int(0, len(kept)), 1)
    wanted = list(kept)
    if wanted and d.chance(0.5) and 0 not in wanted:
        wanted[d.int(0, len(wanted) - 1)] = -1
    for i, n in enumerate(wanted):
        if i < len(shape) and n == shape[i] and d.chance(0.3):
            wanted[i] = 0
    if 0 in shape:
        d.attrs["allowzero"] = 1
        wanted = kept
    d.give(x)
    d.setting(np.array(wanted, np.int64))


def transpose(d: Draw, op: str) -> None:
    shape = d.shape()
    d.give(d.array(shape, d.one(F32, *INTS)))
    if shape and d.chance(0.8):
        d.attrs["perm"] = [int(i) for i in d.rng.permutation(len(shape))]


def squeeze(d: Draw, op: str) -> None:
    shape = d.shape()
    ones = [i - len(shape) * d.chance(0.5) for i, n in enumerate(shape) if n == 1 and d.chance(0.6)]
    d.give(d.array(shape, F32, special=0))
    if ones or d.chance(0.3):
        d.give(np.array(ones, np.int64), constant=True)


def unsqueeze(d: Draw, op: str) -> None:
    shape = d.shape(0, 3)
    rank = len(shape) + d.int(1, 2)
    axes = [int(a) for a in d.rng.permutation(rank)[: rank - len(shape)]]
    d.give(d.array(shape, F32, special=0))
    d.give(np.array([a - rank * d.chance(0.5) for a in axes], np.int64), constant=True)


def flatten(d: Draw, op: str) -> None:
    shape = d.shape()
    d.give(d.array(shape, F32, special=0))
    d.attrs["axis"] = d.int(-len(shape), len(shape))


def concat(d: Draw, op: str) -> None:
    shape = d.shape(1, 4)
    axis = d.axis(len(shape))
    for _ in range(d.int(1, 4)):
        one = list(shape)
        one[axis] = d.int(0, 5)
        d.give(d.array(tuple(one), F32, special=0))
    d.attrs["axis"] = axis


def split(d: Draw, op: str) -> None:
    shape = d.shape(1, 4)
    axis = d.axis(len(shape))
    d.give(d.array(shape, F32, special=0))
    d.attrs["axis"] = axis
    n = shape[axis]
    if d.chance(0.5):
        first = d.int(0, n)
        d.give(np.array([first, n - first], np.int64), constant=d.chance(0.7))
        d.outputs = 2
    else:
        d.outputs = d.int(1, max(1, min(n, 4)))
        d.attrs["num_outputs"] = d.outputs


def slices(d: Draw, op: str) -> None:
    shape = d.shape(1, 4)
    rank = len(shape)
    axes = d.axes(rank) or [0]
    big = (2**31 - 1, -(2**31), 2**63 - 1, -(2**63) + 1)
    starts, ends, steps = [], [], []
    for a in axes:
        n = shape[a]
        starts.append(d.int(-n - 2, n + 2) if d.chance(0.85) else d.one(*big))
        step = d.one(1, 1, 2, 3, -1, -2, 100, -100)
        # onnxruntime takes the greatest number for "all" backward too, where it means "nothing".
        far = d.one(*(v for v in big if (v > 0) == (step > 0)))
        ends.append(d.int(-n - 2, n + 2) if d.chance(0.8) else far)
        steps.append(step)
    d.give(d.array(shape, d.one(F32, *INTS[2:4]), special=0))
    constant = d.chance(0.7)
    for values in (starts, ends, axes, steps):
        d.give(np.array(values, np.int64), constant=constant)


def pad(d: Draw, op: str) -> None:
    shape = d.shape(1, 4, least=1)
    rank = len(shape)
    mode = d.one("constant", "constant", "reflect", "edge", "wrap")
    axes = d.axes(rank) if d.chance(0.4) else list(range(rank))
    most = [shape[a] - 1 if mode == "reflect" else shape[a] if mode == "wrap" else 4 for a in axes]
    before = [d.int(0, min(m, 4)) for m in most]
    after = [d.int(0, min(m, 4)) for m in most]
    if mode == "constant" and d.chance(0.3) and axes:
        i = d.int(0, len(axes) - 1)
        before[i] = -d.int(0, shape[axes[i]])
    d.give(d.array(shape, d.one(F32, *INTS[2:4]), special=0))
    d.give(np.array(before + after, np.int64), constant=d.chance(0.7))
    x = d.inputs[0]
    assert x is not None
    d.give(np.array(7, x.dtype) if mode == "constant" and d.chance(0.6) else None)
    if axes != list(range(rank)):
        d.give(np.array(axes, np.int64), constant=True)
    d.attrs["mode"] = mode


def tile(d: Draw, op: str) -> None:
    shape = d.shape(0, 3)
    d.give(d.array(shape, F32, special=0))
    d.setting(np.array([d.int(0, 3) for _ in shape], np.int64))


def expand(d: Draw, op: str) -> None:
    shape = d.shape()
    d.give(d.array(like(d, shape), F32, special=0))
    d.setting(np.array(shape, np.int64))


def gather(d: Draw, op: str) -> None:
    shape = d.shape(1, 4, least=1)
    axis = d.axis(len(shape))
    n = shape[axis]
    d.attrs["axis"] = axis
    where = d.shape(0, 3) if op == "Gather" else tuple(d.int(0, m) for m in shape)
    if op == "GatherElements":
        where = tuple(
            d.int(1, 5) if i == axis % len(shape) else min(m, w or 1)
            for i, (m, w) in enumerate(zip(shape, where))
        )
    d.give(d.array(shape, d.one(F32, *INTS[2:4])))
    d.give(np.asarray(d.rng.integers(-n, n, where)).astype(d.one(I64, np.dtype("int32"))))


def gather_nd(d: Draw, op: str) -> None:
    shape = d.shape(1, 4, least=1)
    batch = d.int(0, len(shape) - 1) if d.chance(0.4) else 0
    depth = d.int(1, len(shape) - batch)
    lead = shape[:batch] + d.shape(0 if batch else 1, 2, least=1)
    parts = [d.rng.integers(-n, n, lead) for n in shape[batch : batch + depth]]
    d.give(d.array(shape, F32), np.stack(parts, -1).astype(np.int64))
    d.attrs["batch_dims"] = batch


def scatter_elements(d: Draw, op: str) -> None:
    shape = d.shape(1, 3, least=1)
    axis = d.axis(len(shape))
    where = tuple(d.int(1, m) for m in shape)
    reduction = d.one("none", "add", "mul", "max", "min")
    at = np.asarray(d.rng.integers(-shape[axis], shape[axis], where))
    if reduction == "none":  # each place once
        order = np.argsort(d.rng.random(shape), axis)
        at = order[tuple(slice(0, m) for m in where)]
    d.give(d.array(shape, F32, special=0), at.astype(np.int64), d.array(where, F32, special=0))
    d.attrs.update(axis=axis, reduction=reduction)


def scatter_nd(d: Draw, op: str) -> None:
    shape = d.shape(1, 3, least=1)
    depth = d.int(1, len(shape))
    reduction = d.one("none", "add", "mul", "max", "min")
    count = d.int(0, 4)
    flat = d.rng.permutation(int(np.prod(shape[:depth])))[:count]
    at = np.stack(np.unravel_index(flat, shape[:depth]), -1) if count else np.zeros((0, depth))
    updates = (len(flat), *shape[depth:])
    d.give(d.array(shape, F32, special=0), at.astype(np.int64), d.array(updates, F32, special=0))
    d.attrs["reduction"] = reduction


def one_hot(d: Draw, op: str) -> None:
    shape, depth = d.shape(0, 3), d.int(1, 5)
    d.give(np.asarray(d.rng.integers(-depth - 1, depth + 1, shape)).astype(np.int64))
    d.give(np.array(depth, np.int64), constant=True)
    d.give(d.array((2,), F32, special=0))
    d.attrs["axis"] = d.int(-len(shape) - 1, len(shape))


def where(d: Draw, op: str) -> None:
    shape, dtype = d.shape(), d.one(F32, F64, *INTS)
    d.give(d.array(like(d, shape), np.dtype(bool)), d.array(shape, dtype), d.array(like(d, shape), dtype))


def trilu(d: Draw, op: str) -> None:
    shape = d.shape(2, 4)
    d.give(d.array(shape, d.one(F32, *INTS[2:4])))
    d.attrs["upper"] = d.int(0, 1)
    if d.chance(0.7):
        d.setting(np.array(d.int(-6, 6), np.int64))


def top_k(d: Draw, op: str) -> None:
    shape = d.shape(1, 3, least=1)
    axis = d.axis(len(shape))
    different = d.rng.permutation(int(np.prod(shape))).reshape(shape)
    d.give(different.astype(d.one(F32, I64)))
    d.setting(np.array([d.int(0, shape[axis])], np.int64))
    d.attrs.update(axis=axis, largest=d.int(0, 1), sorted=1)
    d.outputs = 2


def ranges(d: Draw, op: str) -> None:
    dtype = d.one(F32, I64, np.dtype("int32"))
    step = d.one(1, 2, -1, -3) if dtype.kind == "i" else d.one(0.5, 1, -0.75)
    for v in (d.int(-9, 9), d.int(-9, 9), step):
        d.give(np.array(v, dtype), constant=d.chance(0.3))


def shape_of(d: Draw, op: str) -> None:
    d.give(d.array(d.shape(), F32))
    for name in ("start", "end"):
        if op == "Shape" and d.chance(0.5):
            d.attrs[name] = d.int(-5, 5)


def plain(d: Draw, op: str) -> None:
    d.give(d.array(d.shape(), d.one(F32, I64, np.dtype(bool)), special=0.5))


def compress(d: Draw, op: str) -> None:
    shape = d.shape(1, 3, least=1)
    whole = d.chance(0.4)
    n = int(np.prod(shape))
    if not whole:
        d.attrs["axis"] = d.axis(len(shape))
        n = shape[d.attrs["axis"]]
    d.give(d.array(shape, F32), d.array((d.int(1, n),), np.dtype(bool)))


def depth_space(d: Draw, op: str) -> None:
    b = d.int(1, 3)
    d.attrs["blocksize"] = b
    if op == "DepthToSpace":
        d.attrs["mode"] = d.one("DCR", "CRD")
        shape = (d.int(1, 2), b * b * d.int(1, 3), d.int(1, 4), d.int(1, 4))
    else:
        shape = (d.int(1, 2), d.int(1, 3), b * d.int(1, 3), b * d.int(1, 3))
    d.give(d.array(shape, F32, special=0))


def unique(d: Draw, op: str) -> None:
    shape = d.shape(1, 2, least=1)
    d.give(d.array(shape, d.one(F32, I64), special=0, scale=1).round())
    d.attrs["sorted"] = d.int(0, 1)
    if d.chance(0.4):
        d.attrs["axis"] = d.axis(len(shape))
    d.outputs = d.int(1, 4)


def reverse_sequence(d: Draw, op: str) -> None:
    n, batch = d.int(1, 5), d.int(1, 4)
    first = d.int(0, 1)
    shape = (n, batch) if first == 0 else (batch, n)
    d.give(d.array((*shape, *d.shape(0, 1)), F32, special=0))
    d.give(np.asarray(d.rng.integers(1, n + 1, batch)).astype(np.int64))
    d.attrs.update(time_axis=first, batch_axis=1 - first)


def eye_like(d: Draw, op: str) -> None:
    d.give(d.array((d.int(1, 5), d.int(1, 5)), d.one(F32, I64), special=0))
    d.attrs["k"] = d.int(-6, 6)


def center_crop_pad(d: Draw, op: str) -> None:
    shape = d.shape(1, 3, least=1)
    d.give(d.array(shape, F32, special=0))
    d.give(np.array([d.int(1, 9) for _ in shape], np.int64), constant=True)


FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("Gather", "GatherElements"), gather),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), depth_space),
    **dict.fromkeys(("Shape", "Size"), shape_of),
    **dict.fromkeys(("NonZero", "Identity"), plain),
    "Cast": cast,
    "Reshape": reshape,
    "Transpose": transpose,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Flatten": flatten,
    "Concat": concat,
    "Split": split,
    "Slice": slices,
    "Pad": pad,
    "Tile": tile,
    "Expand": expand,
    "GatherND": gather_nd,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "OneHot": one_hot,
    "Where": where,
    "Trilu": trilu,
    "TopK": top_k,
    "Range": ranges,
    "Compress": compress,
    "Unique": unique,
    "ReverseSequence": reverse_sequence,
    "EyeLike": eye_like,
    "CenterCropPad": center_crop_pad,
}
"""How to draw each operator."""
