"""Shapes as values, and the operators that give a tensor another shape.

`Shape`, `Gather`, `Concat`, `Slice`, `Squeeze` and the like do their work on known integers when
they can (`values.py`), so that the shape computations of exporters end here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from inlay.arith import dtype as dt
from inlay.arith.expr import Int, floordiv, lit, maximum, product
from inlay.importers.folding import MAX_KNOWN
from inlay.importers.onnx import axes as runtime_axes
from inlay.importers.onnx import narrow
from inlay.importers.onnx.load import read_tensor
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, arange, concat, constant, filled, integers, term
from inlay.importers.onnx.values import OnnxValue, known, known_scalar
from inlay.ir import make
from inlay.ir.expr import Const


def _shape(node: Node) -> OnnxValue:
    dims = node.type(0).shape
    rank = len(dims)
    start = _clamped(node.int("start", 0), rank)
    end = _clamped(node.int("end", rank), rank)
    return known(dims[start : max(start, end)])


def _clamped(axis: int, rank: int) -> int:
    return min(max(axis + rank if axis < 0 else axis, 0), rank)


def _size(node: Node) -> OnnxValue:
    return known_scalar(product(node.type(0).shape))


def _identity(node: Node) -> OnnxValue:
    return node.value(0)


def _dropout(node: Node) -> tuple[OnnxValue, ...]:
    """Pass the input on; dropping elements at random is refused, when the program runs at last."""
    x = term(node, 0)
    training = node.array(2) if node.has(2) else np.zeros((), np.bool_)
    if training is None or training.any():
        ratio = node.array(1) if node.has(1) else np.full((), 0.5)
        if training is not None and ratio is not None and ratio.any():
            raise node.unsupported("in training mode is random")
        rate = term(node, 1).equals(0) if ratio is None else constant(node, not ratio.any(), dt.BOOL)
        random = ~rate.reshape() & term(node, 2).reshape()
        x = x.checked_zero(random.cast(dt.I64), "dropout in training mode, which is random")
    if len(node.proto.output) < 2:
        return (x.value if training is None else node.value(0),)
    return x.value, filled(node, 1, x.shape, dt.BOOL).value


def _constant(node: Node) -> OnnxValue:
    proto = node.tensor_proto("value")
    if proto is not None:
        array = read_tensor(proto, node.files, node.span, widen=True)
        return narrow.constant(array, proto.data_type)
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        if any(a.name == name for a in node.proto.attribute):
            scalar = node.float(name, 0.0) if dtype is np.float32 else node.int(name, 0)
            return OnnxValue(make.const(np.array(scalar, dtype)))
    floats, ints = node.float_list("value_floats"), node.int_list("value_ints")
    if floats is not None:
        return OnnxValue(make.const(np.array(floats, np.float32)))
    if ints is not None:
        return OnnxValue(make.const(np.array(ints, np.int64)))
    texts = node.string_list("value_strings")
    if texts is not None:
        return constant(node, texts, dt.STRING).value
    if any(a.name == "value_string" for a in node.proto.attribute):
        return constant(node, node.string("value_string", ""), dt.STRING).value
    sparse = node.sparse_attribute("sparse_value")
    if sparse is None:
        raise node.invalid("has no value")
    return OnnxValue(make.const(sparse))


def _constant_of_shape(node: Node) -> OnnxValue:
    fill = node.tensor_attribute("value")
    fill = np.zeros((1,), np.float32) if fill is None else fill
    shape = node.shape(0)
    length = shape[0].value if len(shape) == 1 else None
    if fill.dtype.kind in "iu" and length is not None and length <= MAX_KNOWN:
        return known((lit(int(fill.reshape(-1)[0])),) * length, dtype=dt.from_numpy(fill.dtype))
    return node.result("broadcast_to", make.const(fill.reshape(())), make.shape_const(shape))


def _reshape(node: Node) -> OnnxValue:
    v = node.value(0)
    old = node.type(0).shape
    if node.opset < 5:
        given = node.int_list("shape")
        wanted: tuple[Int, ...] = tuple(lit(i) for i in given or ())
    else:
        if node.known(1) is None:
            return _reshape_at_run_time(node)
        wanted = node.shape(1)
    keep_zero = node.flag("allowzero")
    new = [old[i] if d == 0 and not keep_zero and i < len(old) else d for i, d in enumerate(wanted)]
    if any(d == 0 and not keep_zero for d in wanted[len(old) :]):
        raise node.invalid("copies an axis that its input does not have")
    unknown = [i for i, d in enumerate(new) if d == -1]
    if len(unknown) > 1:
        raise node.invalid("leaves more than one axis to be found")
    if unknown:
        others = product([d for i, d in enumerate(new) if i != unknown[0]])
        new[unknown[0]] = _quotient(node, old, others)
    if v.ints is not None and len(new) <= 1:
        return OnnxValue(v.expr, v.ints, not new, v.dtype)
    return OnnxValue(node.reshape(node.tensor(0), new))


def _reshape_at_run_time(node: Node) -> OnnxValue:
    """Resolve 0 (the old dim) and -1 (what is left) where the program runs."""
    x, wanted = term(node, 0), term(node, 1).cast(dt.I64)
    rank = wanted.shape[0].value if wanted.rank == 1 else None
    if rank is None:
        raise node.unsupported(
            "is given a shape of unknown length, so the rank of its result depends on data",
            hint="ranks must be static: export the model with a shape of fixed length",
        )
    if not node.flag("allowzero") and rank:
        old = (*x.shape[:rank], *(lit(0),) * (rank - x.rank))
        wanted = wanted.equals(0).where(integers(node, old), wanted)
    left = wanted.equals(-1)
    others = left.where(1, wanted).over("prod").op("maximum", 1)
    total = integers(node, (product(x.shape),)).reshape()
    return x.reshape(*left.where(total / others, wanted).controls()).value


def _quotient(node: Node, old: Sequence[Int], others: Int) -> Int:
    """Return the dim that makes a reshape keep the number of elements."""
    total = product(old)
    if others == 0:
        raise node.invalid("has axes of size 0 and leaves one to be found")
    return floordiv(total, others)


def _flatten(node: Node) -> OnnxValue:
    dims = node.type(0).shape
    axis = node.int("axis", 1)
    if not -len(dims) <= axis <= len(dims):
        raise node.invalid(f"has axis {axis} of a tensor of rank {len(dims)}")
    axis = axis + len(dims) if axis < 0 else axis
    return OnnxValue(node.reshape(node.tensor(0), (product(dims[:axis]), product(dims[axis:]))))


def _axes(node: Node) -> tuple[int, ...] | None:
    if node.opset >= 13:
        return node.numbers(1, "axes") if node.has(1) else None
    return node.int_list("axes")


def _axes_at_run_time(node: Node) -> bool:
    return node.opset >= 13 and node.has(1) and node.array(1) is None


def _count_of_axes(node: Node) -> int:
    count = node.type(1).shape[0].value if node.rank(1) == 1 else None
    if count is None:
        raise node.unsupported(
            "is given a number of axes that depends on data, so the rank of its result does too",
            hint="ranks must be static: export the model with a fixed number of axes",
        )
    return count


def _unsqueeze_at_run_time(node: Node) -> OnnxValue:
    x = term(node, 0)
    rank = x.rank + _count_of_axes(node)
    new = runtime_axes.chosen(runtime_axes.given(node, 1, rank), rank)
    source = (~new).cast(dt.I64).op("cumsum", axis=0) - 1
    old = integers(node, (*x.shape, lit(1))).gather(source.op("maximum", 0), clamp=True)
    return x.reshape(*new.where(1, old).controls()).value


def _squeeze_at_run_time(node: Node) -> OnnxValue:
    x = term(node, 0)
    gone = runtime_axes.chosen(runtime_axes.given(node, 1, x.rank), x.rank)
    return x.reshape(*runtime_axes.left(x, gone, _count_of_axes(node))).value


def _unsqueeze(node: Node) -> OnnxValue:
    if _axes_at_run_time(node):
        return _unsqueeze_at_run_time(node)
    v, axes = node.value(0), _axes(node)
    if axes is None:
        raise node.invalid("needs axes")
    if v.ints is not None and v.is_scalar and axes in ((0,), (-1,)):
        return OnnxValue(v.expr, v.ints, is_scalar=False, dtype=v.dtype)
    dims = list(node.type(0).shape)
    rank = len(dims) + len(axes)
    for a in sorted(node.axis(a, rank) for a in axes):
        dims.insert(a, lit(1))
    return OnnxValue(node.reshape(node.tensor(0), dims))


def _squeeze(node: Node) -> OnnxValue:
    if _axes_at_run_time(node):
        return _squeeze_at_run_time(node)
    v, axes = node.value(0), _axes(node)
    dims = node.type(0).shape
    if axes is None:
        dropped = {i for i, d in enumerate(dims) if d == 1}
    else:
        dropped = {node.axis(a, len(dims)) for a in axes}
    if v.ints is not None and not v.is_scalar and dropped == {0} and len(v.ints) == 1:
        return OnnxValue(v.expr, v.ints, is_scalar=True, dtype=v.dtype)
    x = term(node, 0)
    if axes is None:
        # Ranks are static: a dim that is not known is taken to stay, and the program checks it.
        for d in dims:
            if d.value is None:
                why = "an axis that might be dropped, but for that its size would have to be known"
                x = x.checked_least((d - 1) * (d - 1), 1, why)
    return x.reshape(*(d for i, d in enumerate(dims) if i not in dropped)).value


def _transpose(node: Node) -> OnnxValue:
    rank = node.rank(0)
    perm = node.int_list("perm") or tuple(reversed(range(rank)))
    if sorted(perm) != list(range(rank)):
        raise node.invalid(f"has the permutation {list(perm)} of {rank} axes")
    if perm == tuple(range(rank)):
        return node.value(0)
    return node.result("transpose", node.tensor(0), perm=perm)


def _expand_at_run_time(node: Node) -> OnnxValue:
    """A dim of 1 adapts on either side, also where only the program knows the wanted shape."""
    x, wanted = term(node, 0), term(node, 1).cast(dt.I64)
    length = wanted.shape[0].value if wanted.rank == 1 else None
    if length is None:
        raise node.unsupported(
            "is given a shape of unknown length, so the rank of its result depends on data",
            hint="ranks must be static: export the model with a shape of fixed length",
        )
    rank = max(x.rank, length)
    x = x.reshape(*(1,) * (rank - x.rank), *x.shape)
    if length < rank:
        wanted = concat([filled(node, 1, (rank - length,), dt.I64), wanted], 0)
    target = wanted.equals(1).where(integers(node, x.shape), wanted).controls()
    for axis, size in enumerate(target):
        if x.shape[axis].value is None:
            x = _stretched(x, axis, size)
    return x.broadcast(target).value


def _stretched(x: Term, axis: int, size: Int) -> Term:
    """Read an axis of 1 or `size` elements as one of `size`: the element `min(i, n - 1)`."""
    node, n = x.node, x.shape[axis]
    ends = make.int_const((n - 1) * (n - size)), make.int_const(0)
    why = f"axis {axis} has 1 element or as many as are wanted"
    checked = Term(node, node.emit("check_equal", x.expr, *ends, why=why))
    places = arange(node, size).op("minimum", integers(node, (n - 1,)))
    return checked.gather(places, axis=axis, clamp=True)


def _expand(node: Node) -> OnnxValue:
    if node.known(1) is None:
        return _expand_at_run_time(node)
    old, wanted = node.type(0).shape, node.shape(1)
    rank = max(len(old), len(wanted))
    a = (lit(1),) * (rank - len(old)) + old
    b = (lit(1),) * (rank - len(wanted)) + wanted
    # A dim that is 0 or 1 (such as min(1, n)) does not stretch what it meets, but may empty it.
    most = [node.b.known.facts.range_of(y).high for y in b]
    b = tuple(x * y if y.value is None and high == 1 else y for x, y, high in zip(a, b, most, strict=True))
    dims = tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))
    # Where neither is 1 the two must be equal, and broadcast_to checks the one it is given.
    target = tuple(x if y == 1 else y for x, y in zip(dims, b, strict=True))
    v = node.value(0)
    length = target[0].value if len(target) == 1 else None
    if v.ints is not None and len(v.ints) == 1 and length is not None and length <= MAX_KNOWN:
        return known(v.ints * length, dtype=v.dtype)
    return node.result("broadcast_to", node.tensor(0), make.shape_const(target))


MAX_RANK = 16
"""A vector of more elements than this is no shape."""


def _may_be_a_shape(node: Node) -> bool:
    """Whether the joined vector is as long as shapes are, and of their format.

    Some of its elements are known then, and to read the others keeps what is known: a size that is
    computed beside sizes that are given.
    """
    types = [node.type(i) for i in range(len(node.inputs))]
    if any(t.dtype != dt.I64 or len(t.shape) != 1 for t in types):
        return False
    lengths = [t.shape[0].value for t in types]
    return all(n is not None for n in lengths) and sum(n or 0 for n in lengths) <= MAX_RANK


def _concat(node: Node) -> OnnxValue:
    values = [node.value(i) for i in range(len(node.inputs))]
    parts = [node.known(i) for i in range(len(values))]
    if all(p is not None for p in parts) and any(v.ints is not None for v in values):
        return known(tuple(d for p in parts if p is not None for d in p), dtype=node.type(0).dtype)
    if any(p is not None for p in parts) and _may_be_a_shape(node):
        found = [node.shape(i) for i in range(len(values))]
        return known(tuple(d for part in found for d in part))
    axis = node.axis(node.int("axis", 1 if node.opset < 4 else 0), node.rank(0))
    if len(values) == 1:
        return values[0]
    return node.result("concat", *node.tensors(), axis=axis)


def _gather(node: Node) -> OnnxValue:
    v, rank = node.value(0), node.rank(0)
    axis = node.axis(node.int("axis", 0), rank)
    indices = node.array(1)
    if v.ints is not None and not v.is_scalar and indices is not None and indices.ndim <= 1:
        length = len(v.ints)
        picked = [int(i) for i in indices.reshape(-1)]
        if any(not -length <= i < length for i in picked):
            raise node.invalid(f"takes element {picked} of {length}")
        found = tuple(v.ints[i] for i in picked)
        if indices.ndim == 0:
            return known_scalar(found[0], dtype=v.dtype)
        return known(found, dtype=v.dtype)
    return node.result("gather", node.tensor(0), node.tensor(1), axis=axis)


def _slice(node: Node) -> OnnxValue:
    v, dims = node.value(0), node.type(0).shape
    rank = len(dims)
    steps: tuple[Int, ...]
    if node.opset < 10:
        starts = tuple(lit(i) for i in node.int_list("starts") or ())
        ends = tuple(lit(i) for i in node.int_list("ends") or ())
        axes = node.int_list("axes")
        steps = (lit(1),) * len(starts)
    else:
        if any(node.has(i) and node.array(i) is None for i in (3, 4)) and node.has(3):
            return _slice_at_run_time(node)
        starts, ends = _bounds(node, 1), _bounds(node, 2)
        axes = node.numbers(3, "axes") if node.has(3) else None
        steps = node.shape(4) if node.has(4) else (lit(1),) * len(starts)
    axes = tuple(range(len(starts))) if axes is None else axes
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise node.invalid("has starts, ends, axes and steps of different lengths")
    if any(s == 0 for s in steps):
        raise node.invalid("has a step of 0")
    axes = tuple(node.axis(a, rank) for a in axes)
    whole = _known_slice(v, starts, ends, steps) if axes == (0,) else None
    if whole is not None:
        return whole
    starts = tuple(_start(b, s, dims[a]) for a, b, s in zip(axes, starts, steps, strict=True))
    ends = tuple(_end(e, s, dims[a]) for a, e, s in zip(axes, ends, steps, strict=True))
    bounds = (make.shape_const(b) for b in (starts, ends, steps))
    return node.result("slice", node.tensor(0), *bounds, axes=axes)


FAR = 2**62
"""Beyond any index; bounds at run time are limited to it, so that sums with sizes do not wrap."""


def _bounds(node: Node, i: int) -> tuple[Int, ...]:
    if node.known(i) is not None:
        return node.shape(i)
    return term(node, i).cast(dt.I64).clamp(-FAR, FAR).controls()


def _slice_at_run_time(node: Node) -> OnnxValue:
    """Find out first indices and counts for all axes, and gather.

    Which axes are cut, and in which direction, is data here; the counts are the dims of the result.
    """
    x = term(node, 0)
    axes = runtime_axes.given(node, 3, x.rank)
    bounds = [term(node, i).cast(dt.I64).clamp(-FAR, FAR) for i in (1, 2)]
    steps = term(node, 4).cast(dt.I64) if node.has(4) else filled(node, 1, axes.shape, dt.I64)
    step = runtime_axes.full(axes, steps, x.rank, 1).clamp(-FAR, FAR)
    forward, sizes = step > 0, integers(node, x.shape)
    first = filled(node, 0, (x.rank,), dt.I64)
    high = forward.where(sizes, sizes - 1)
    begin, end = (
        (v < 0).where(v + sizes, v).op("maximum", low).op("minimum", high)
        for v, low in (
            (runtime_axes.full(axes, bounds[0], x.rank, 0), first),
            (runtime_axes.full(axes, bounds[1], x.rank, FAR), forward.where(first, -1)),
        )
    )
    stride = step.op("abs").op("maximum", 1)
    length = forward.where(end - begin, begin - end) + (stride - 1)
    counts = (length.op("floor_div", stride)).op("maximum", 0).controls()
    for d, count in enumerate(counts):
        index = arange(node, count) * step.at(0, d) + begin.at(0, d)
        x = x.gather(index, axis=d, clamp=True)
    return x.value


def _start(start: Int, step: Int, size: Int) -> Int:
    """Return the start of a slice: going backward from before the first element is from the first.

    There ONNX differs from Python, for which nothing is left.
    """
    backward = step.value is not None and step.value < 0
    return maximum(start, -size) if backward else start


def _end(end: Int, step: Int, size: Int) -> Int:
    """Return the end of a slice, with "as far as there is" spelled as the size."""
    forward = step.value is not None and step.value > 0
    return size if forward and end.value is not None and end.value >= 2**31 - 1 else end


def _known_slice(
    v: OnnxValue, starts: Sequence[Int], ends: Sequence[Int], steps: Sequence[Int]
) -> OnnxValue | None:
    lo, hi, step = starts[0].value, ends[0].value, steps[0].value
    if v.ints is None or v.is_scalar or lo is None or hi is None or step is None:
        return None
    lo = max(lo, -len(v.ints)) if step < 0 else lo
    return known(v.ints[slice(lo, _python_end(hi, step, len(v.ints)), step)], dtype=v.dtype)


def _python_end(end: int, step: int, length: int) -> int | None:
    """ONNX counts an end below -length as "before the first"; Python writes that None."""
    return None if step < 0 and end < -length else end


def _split(node: Node) -> tuple[OnnxValue, ...]:
    dims = node.type(0).shape
    axis = node.axis(node.int("axis", 0), len(dims))
    count = len(node.proto.output)
    if node.opset >= 13:
        sizes = node.shape(1) if node.has(1) else None
    else:
        given = node.int_list("split")
        sizes = tuple(lit(i) for i in given) if given is not None else None
    if sizes is None:
        part = floordiv(dims[axis] + (count - 1), lit(count))
        sizes = (part,) * (count - 1) + (dims[axis] - part * (count - 1),)
    if len(sizes) != count:
        raise node.invalid(f"has {count} outputs and {len(sizes)} sizes")
    if node.int("num_outputs", count) != count:
        raise node.invalid(f"has {count} outputs and num_outputs = {node.int('num_outputs', 0)}")
    parts = node.emit("split", node.tensor(0), make.shape_const(sizes), axis=axis)
    return tuple(OnnxValue(e) for e in node.b.unpack(parts, [o or "unused" for o in node.proto.output]))


def _range(node: Node) -> OnnxValue:
    dtype = node.type(0).dtype
    if dtype.is_integer:
        ends = [node.control_int(i) for i in range(3)]
        numbers = [e.value.value if isinstance(e, Const) else None for e in ends]  # type: ignore[union-attr]
        if None not in numbers and numbers[2] and dtype in (dt.I64, dt.I32):
            content = range(*numbers)  # type: ignore[arg-type]
            if len(content) <= MAX_KNOWN:
                return known(tuple(lit(n) for n in content), dtype=dtype)
        return node.result("range", *ends, dtype=dtype)
    start, limit, step = (term(node, i).reshape().cast(dt.F64) for i in range(3))
    count = ((limit - start) / step).op("ceil").op("maximum", 0.0).control()
    return (arange(node, count, dt.F64) * step + start).cast(dtype).value


def _tile(node: Node) -> OnnxValue:
    return node.result("tile", node.tensor(0), make.shape_const(node.shape(1)))


RULES: Mapping[str, Rule] = {
    "Shape": _shape,
    "Size": _size,
    "Identity": _identity,
    "Dropout": _dropout,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Concat": _concat,
    "Gather": _gather,
    "Slice": _slice,
    "Split": _split,
    "Range": _range,
    "Tile": _tile,
}
