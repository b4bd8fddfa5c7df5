"""Fourier transforms and filters of mel frequencies.

A transform is a product with the matrix of its waves. Complex numbers are pairs on the last axis;
here they are kept as one row `[real parts, imaginary parts]`, so that a transform of N to K numbers
is one product with a real matrix `[2N, 2K]`, or `[N, 2K]` where all imaginary parts are 0. The
matrices are constants where the length is known. Long transforms of a length a*b are b transforms of
length a, a rotation, and a transforms of length b (Cooley and Tukey, 1965).

A short-time transform is a convolution: its filters are windowed waves, its stride the step.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from inlay.arith import dtype as dt
from inlay.arith.expr import Int, floordiv, lit, minimum
from inlay.importers.onnx import load
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, arange, concat, constant, integers, term
from inlay.importers.onnx.values import OnnxValue
from inlay.ir import make

Waves = npt.NDArray[np.complex128]
Reals = npt.NDArray[np.float64]

_WHOLE = 96 * 96
"""Elements of a matrix up to which a transform is one product."""

_LONG = 256
"""Numbers of a column from which on it is transformed in two steps, as a row."""

_MOST = 1 << 22
"""A matrix of more elements is computed where the program runs, not stored in it."""


def _waves(inputs: int, outputs: int, length: int, sign: float) -> Waves:
    """Return exp(sign * 2 pi i k n / length) for n < inputs and k < outputs, exactly reduced."""
    turns = np.outer(np.arange(inputs), np.arange(outputs)) % length / length
    return np.asarray(np.exp(sign * 2j * np.pi * turns), np.complex128)


def _as_real(waves: Waves, *, real_input: bool) -> np.ndarray:
    """Return the matrix that multiplies rows of real parts, then imaginary parts."""
    upper = np.concatenate([waves.real, waves.imag], 1)
    if real_input:
        return upper
    return np.concatenate([upper, np.concatenate([-waves.imag, waves.real], 1)], 0)


def _matrix_at_run_time(
    x: Term, inputs: Int, outputs: Int, length: Int, sign: float, *, real_input: bool
) -> Term:
    node = x.node
    n, k = arange(node, inputs).reshape(inputs, 1), arange(node, outputs).reshape(1, outputs)
    size = integers(node, (length,))
    turns = (n * k).op("rem", size).cast(dt.F64) / size.cast(dt.F64)
    angle = turns * (sign * 2 * np.pi)
    real, imaginary = angle.op("cos").cast(x.dtype), angle.op("sin").cast(x.dtype)
    upper = concat([real, imaginary], 1)
    return upper if real_input else concat([upper, concat([-imaginary, real], 1)], 0)


def _transformed(x: Term, *, real_input: bool, outputs: Int, length: Int, sign: float) -> Term:
    """Transform rows: the last axis of the result is `[outputs real, outputs imaginary]`."""
    inputs = x.shape[-1] if real_input else floordiv(x.shape[-1], lit(2))
    n, k, size = inputs.value, outputs.value, length.value
    if n is None or k is None or size is None:
        waves = _matrix_at_run_time(x, inputs, outputs, length, sign, real_input=real_input)
        return x.op("matmul", waves)
    elements = (1 if real_input else 2) * n * 2 * k
    factor = _factor(size) if n == size and 2 * k > size and elements > _WHOLE else 1
    if factor > 1:
        return _in_two_steps(x, factor, k, sign, real_input=real_input)
    if n * k > _MOST:
        waves = _matrix_at_run_time(x, inputs, outputs, length, sign, real_input=real_input)
        return x.op("matmul", waves)
    table = _as_real(_waves(n, k, size, sign), real_input=real_input)
    return x.op("matmul", constant(x.node, table, x.dtype))


def _factor(size: int) -> int:
    """Return the largest divisor up to the square root."""
    return max(f for f in range(1, int(size**0.5) + 1) if size % f == 0)


def _in_two_steps(x: Term, factor: int, outputs: int, sign: float, *, real_input: bool) -> Term:
    """Transform rows of a*b numbers to so many: more than half, so that columns give half of theirs at least.

    Element b*p + q of a row goes to column q first. Steps over reals are half the work of others: they are
    the longer ones.
    """
    rows, parts = x.shape[:-1], 1 if real_input else 2
    lead, r = tuple(range(len(rows))), len(rows)
    size = (x.shape[-1].value or 0) // parts
    b = factor if real_input else size // factor
    a, few = size // b, b if outputs > size // 2 + 1 else b // 2 + 1
    y = _columns(x.reshape(*rows, parts * a, b), real_input=real_input, sign=sign)
    turn = _waves(a, b, size, sign)
    real, imaginary = y.part(r, 0, a), y.part(r, a, 2 * a)
    cos, sin = (constant(x.node, v, x.dtype) for v in (turn.real, turn.imag))
    y = concat([real * cos - imaginary * sin, real * sin + imaginary * cos], r + 1)
    y = _transformed(y, real_input=False, outputs=lit(few), length=lit(b), sign=sign)
    y = y.reshape(*rows, a, 2, few).transpose(*lead, r + 1, r + 2, r).reshape(*rows, 2, few * a)
    return y.part(r + 1, 0, outputs).reshape(*rows, 2 * outputs)


def _columns(x: Term, *, real_input: bool, sign: float) -> Term:
    """Transform the columns of matrices, whose real parts are above imaginary ones."""
    count, swapped = (x.shape[-2].value or 0) // (1 if real_input else 2), [*range(x.rank)]
    swapped[-2:] = reversed(swapped[-2:])
    if count > _LONG:
        rows, size = x.transpose(*swapped), lit(count)
        y = _transformed(rows, real_input=real_input, outputs=size, length=size, sign=sign)
        return y.transpose(*swapped)
    table = _as_real(_waves(count, count, count, sign), real_input=real_input)
    return constant(x.node, np.ascontiguousarray(table.T), x.dtype).op("matmul", x)


def _rows(x: Term, axis: int, used: Int) -> Term:
    """Bring `[..., n, ..., 1 or 2]` to rows of the axis: real parts, then imaginary parts."""
    x = x.part(axis, 0, used)
    last = x.rank - 1
    order = (*(i for i in range(last) if i != axis), last, axis)
    y = x.transpose(*order)
    return y.reshape(*y.shape[:-2], y.shape[-2] * y.shape[-1])


def _complex(y: Term, axis: int, count: Int) -> Term:
    """Bring rows of real and imaginary parts back: pairs on the last axis."""
    y = y.reshape(*y.shape[:-1], 2, count)
    last = y.rank - 1
    order = [*range(last - 1)]
    order.insert(axis, last)
    return y.transpose(*order, last - 1)


def _dft(node: Node) -> OnnxValue:
    x = term(node, 0)
    if x.rank < 2:
        raise node.invalid(f"has an input of rank {x.rank}")
    axis = node.axis(_dft_axis(node), x.rank)
    if axis == x.rank - 1:
        raise node.invalid("transforms the axis of real and imaginary parts")
    parts = x.shape[-1].value
    if parts not in (1, 2):
        raise node.invalid(f"has {x.shape[-1]} parts of each number, needed 1 or 2")
    # A product loses more to rounding than a fast transform does, so it is computed wider.
    wide = x.cast(dt.F64)
    inverse, onesided = node.flag("inverse"), node.flag("onesided")
    n = x.shape[axis]
    if node.has(1):
        length = _one(node, 1)
    else:
        length = (n - 1) * 2 if inverse and onesided else n
    if inverse and onesided:
        return _real_inverse(node, wide, axis, length).cast(x.dtype).value
    outputs = floordiv(length, lit(2)) + 1 if onesided else length
    y = _transformed(
        _rows(wide, axis, minimum(n, length)),
        real_input=parts == 1,
        outputs=outputs,
        length=length,
        sign=1.0 if inverse else -1.0,
    )
    y = _complex(y, axis, outputs)
    if inverse:
        y = y / integers(node, (length,)).cast(y.dtype)
    return y.cast(x.dtype).value


def _real_inverse(node: Node, x: Term, axis: int, length: Int) -> Term:
    """Return the real numbers whose one-sided transform is given; what is missing is 0."""
    size, n = length.value, x.shape[axis].value
    if x.shape[-1].value != 2 or (size is not None and size < 1):
        raise node.invalid(f"inverts {x.shape[-1]} parts of each number to {length} numbers")
    if size is None or n is None:
        return _real_inverse_at_run_time(x, axis, length)
    used = min(n, size // 2 + 1)
    y = _rows(x, axis, lit(used))
    if used * size > _WHOLE and (factor := _factor(size)) > 1:
        y = _in_two_steps(_whole_rows(y, used, size), factor, size, 1.0, real_input=False)
        y = y.part(y.rank - 1, 0, size) / float(size)
    else:
        waves = _waves(used, size, size, 1.0) / size
        # All but the first and, of an even length, the middle stand for two: themselves, conjugated.
        twice = np.array([1.0 if k == 0 or 2 * k == size else 2.0 for k in range(used)])[:, None]
        table = np.concatenate([waves.real * twice, -waves.imag * twice], 0)
        y = y.op("matmul", constant(node, table, x.dtype))
    return y.move(y.rank - 1, axis).reshape(*x.shape[:axis], size, *x.shape[axis + 1 : -1], 1)


def _whole_rows(x: Term, used: int, size: int) -> Term:
    """Return rows of `size` numbers, of which the first are given: the others are these, conjugated."""
    k = np.arange(size)
    source = np.minimum(k, size - k)
    signs = np.where(source < used, np.stack([np.ones(size), np.where(k == source, 1.0, -1.0)]), 0.0)
    parts = x.reshape(*x.shape[:-1], 2, used).gather(
        constant(x.node, np.minimum(source, used - 1), dt.I64), axis=x.rank
    )
    return (parts * constant(x.node, signs, x.dtype)).reshape(*x.shape[:-1], 2 * size)


def _real_inverse_at_run_time(x: Term, axis: int, length: Int) -> Term:
    """Do the same for lengths that only the running program knows."""
    node = x.node
    used = minimum(x.shape[axis], floordiv(length, lit(2)) + 1)
    waves = _matrix_at_run_time(x, used, length, length, 1.0, real_input=False).part(1, 0, length)
    size, k = integers(node, (length,)), arange(node, used)
    alone = k.equals(0) | (k * 2).equals(size)
    twice = alone.where(constant(node, 1.0, x.dtype), 2.0)
    y = (_rows(x, axis, used) * concat([twice, twice], 0)).op("matmul", waves)
    y = y / size.cast(x.dtype)
    return y.move(y.rank - 1, axis).reshape(*x.shape[:axis], length, *x.shape[axis + 1 : -1], 1)


def _dft_axis(node: Node) -> int:
    if node.opset < 20:
        return node.int("axis", 1)
    return node.numbers(2, "an axis")[0] if node.has(2) else -2


def _one(node: Node, i: int) -> Int:
    """Return an input of one integer as a control value."""
    found = node.known(i)
    return found[0] if found is not None and len(found) == 1 else term(node, i).control()


def _stft(node: Node) -> OnnxValue:
    x = term(node, 0)
    x = x.reshape(*x.shape, 1) if x.rank == 2 else x
    if x.rank != 3:
        raise node.invalid(f"has a signal of rank {x.rank}")
    step = _one(node, 1)
    window = term(node, 2) if node.has(2) else None
    length = _one(node, 3) if node.has(3) else window.shape[0] if window else x.shape[1]
    size, parts, stride = length.value, x.shape[2].value, step.value
    if parts not in (1, 2):
        raise node.invalid(f"has {x.shape[2]} parts of each number, needed 1 or 2")
    if (stride is not None and stride < 1) or (size is not None and size < 1):
        raise node.invalid(f"has frames of {length} numbers and a step of {step}")
    wide = x.cast(dt.F32) if x.dtype in (dt.F16, dt.BF16) else x
    if size is None or stride is None:
        return _frames_at_run_time(node, wide, window, length, step).cast(x.dtype).value
    outputs = size // 2 + 1 if node.flag("onesided", default=True) else size
    table = _as_real(_waves(size, outputs, size, -1.0), real_input=parts == 1)
    filters = np.ascontiguousarray(table.reshape(parts, size, 2 * outputs).transpose(2, 0, 1))
    weights = constant(node, filters, wide.dtype)
    if window is not None:
        weights = weights * window.cast(wide.dtype).reshape(1, 1, size)
    y = wide.transpose(0, 2, 1).op("conv", weights, strides=(stride,))
    frames = y.shape[2]
    y = y.reshape(y.shape[0], 2, outputs, frames).transpose(0, 3, 2, 1)
    return y.cast(x.dtype).value


def _frames_at_run_time(node: Node, x: Term, window: Term | None, length: Int, step: Int) -> Term:
    """Transform frames whose length or distance only the running program knows."""
    x = x.checked_least(x.shape[1] - length, 0, "a frame fits into the signal")
    x = x.checked_least(step, 1, "frames have a distance").checked_least(length, 1, "a frame's size")
    count = floordiv(x.shape[1] - length, step) + 1
    begins = arange(node, count).reshape(count, 1) * integers(node, (step,))
    frames = x.gather(begins + arange(node, length).reshape(1, length), axis=1, clamp=True)
    if window is not None:
        frames = frames * window.cast(x.dtype).reshape(1, 1, length, 1)
    outputs = floordiv(length, lit(2)) + 1 if node.flag("onesided", default=True) else length
    rows = _rows(frames, 2, length)
    real_input = x.shape[2].value == 1
    y = _transformed(rows, real_input=real_input, outputs=outputs, length=length, sign=-1.0)
    return _complex(y, 2, outputs)


def _mel_weight_matrix(node: Node) -> OnnxValue:
    to = load.dtype_of(node.int("output_datatype", 1))
    if to is None:
        raise node.unsupported(f"gives {load.elem_type_name(node.int('output_datatype', 1))}")
    given = [node.array(i) for i in range(5)]
    numbers = [float(a.reshape(-1)[0]) for a in given if a is not None and a.size == 1]
    if len(numbers) < 5:
        return _mel_at_run_time(node, to)
    bins, length, rate = (int(n) for n in numbers[:3])
    low, high = numbers[3:]
    if bins < 1 or length < 1 or rate < 1:
        raise node.invalid("has bins, a length or a rate that are not positive")
    mels = 2595 * np.log10(1 + np.array([low, high]) / 700)
    edges = mels[0] + np.arange(bins + 2) * (mels[1] - mels[0]) / (bins + 2)
    hertz = 700 * (10 ** (edges / 2595) - 1)
    places = ((length + 1) * hertz // rate).astype(np.int64)
    rows = length // 2 + 1
    if places.min() < 0 or places[1:-1].max() >= rows:
        raise node.invalid("has mel bins outside the spectrum")
    at = np.arange(rows)[:, None]
    left, middle, right = places[:-2], places[1:-1], places[2:]
    with np.errstate(all="ignore"):
        rising: Reals = (at - left) / (middle - left)
        falling: Reals = (right - at) / (right - middle)
    slope: Reals = np.where(left == middle, np.asarray(at == middle, np.float64), rising)
    beyond: Reals = np.where((at > middle) & (at < right), falling, 0.0)
    table: Reals = np.where((at >= left) & (at <= middle), slope, beyond)
    return OnnxValue(make.const(np.ascontiguousarray(table.astype(to.numpy))))


def _mel_at_run_time(node: Node, to: dt.DType) -> OnnxValue:
    """Compute the table where the program runs: what it depends on is computed there."""
    bins, length = _one(node, 0), _one(node, 1)
    rate, low, high = (term(node, i).cast(dt.F64).reshape() for i in (2, 3, 4))
    first, last = ((f / 700.0 + 1.0).op("log") * (2595.0 / np.log(10.0)) for f in (low, high))
    parts = integers(node, (bins + 2,)).cast(dt.F64)
    edges = arange(node, bins + 2, dt.F64) * (last - first) / parts + first
    hertz = ((edges * (np.log(10.0) / 2595.0)).op("exp") - 1.0) * 700.0
    scale = integers(node, (length + 1,)).cast(dt.F64)
    places = (hertz * scale / rate).op("floor")
    rows = floordiv(length, lit(2)) + 1
    left, middle, right = (places.part(0, i, bins + i).reshape(1, bins) for i in range(3))
    outside = (middle < 0.0) | (middle >= integers(node, (rows,)).cast(dt.F64))
    at = arange(node, rows, dt.F64).reshape(rows, 1)
    rising = left.equals(middle).where(1.0, (at - left) / (middle - left).op("maximum", 1.0))
    falling = (right - at) / (right - middle).op("maximum", 1.0)
    beyond = ((at > middle) & (at < right)).where(falling, 0.0)
    table = ((at >= left) & (at <= middle)).where(rising, beyond)
    count = outside.cast(dt.I64).over("sum")
    return table.checked_zero(count, "mel bins lie in the spectrum").cast(to).value


RULES: Mapping[str, Rule] = {"DFT": _dft, "STFT": _stft, "MelWeightMatrix": _mel_weight_matrix}
