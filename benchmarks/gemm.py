"""Contractions through the default schedules, against the measured peak of this processor.

    python benchmarks/gemm.py [--json]

The peak is that of a loop of independent multiply-adds in registers. Each kernel is what a model
would get: operators, default schedule, lowering, LLVM; bias and relu are part of it, and so is the
padding of convolutions. Results are checked before anything is timed. One thread; the least thread
time of many runs, so that other load on the machine counts little. FLOPs are nominal: products with
padding are counted, whether they are done or not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inlay.analysis.register_tiles import panel_width
from inlay.arith.dtype import F32
from inlay.arith.expr import Int, evaluate, fresh, to_int
from inlay.codegen.image import link
from inlay.codegen.llvm_generator import compile_function
from inlay.ir.op import NoAttrs
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.parser import parse_function
from inlay.lower.lower import lower
from inlay.machine.target import Target, host
from inlay.ops.convolution import DepthwiseAttrs, PackedConvAttrs
from inlay.ops.matmul import PackedAttrs
from inlay.ops.table import table
from inlay.schedule.choose import decide
from measure import Report

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.mapped_image import MappedImage

GEMMS = [
    (512, 512, 512),
    (128, 384, 384),
    (128, 1536, 384),
    (128, 384, 1536),
    (128, 768, 768),
    (128, 3072, 768),
    (196, 256, 1024),
    (49, 512, 2048),
    (3136, 64, 64),
    (16, 768, 768),
    (1, 3072, 768),
    (77, 100, 300),
]
COMPUTED = [
    ((256, 256), (256, 256)),
    ((512, 512), (512, 512)),
    ((1024, 1024), (1024, 1024)),
    ((2048, 2048), (2048, 2048)),
    ((64, 768), (768, 3072)),
    ((1024, 64), (64, 1024)),
    ((1024, 1024), (1024, 64)),
    ((12, 128, 64), (12, 64, 128)),
    ((8, 384, 384), (8, 384, 384)),
    ((100, 300), (300, 77)),
]
"""Products of which neither factor is a constant."""
CONVS = [
    (56, 64, 64, 3, 1),
    (28, 128, 128, 3, 1),
    (14, 256, 256, 3, 1),
    (7, 512, 512, 3, 1),
    (56, 64, 128, 3, 2),
    (56, 64, 256, 1, 1),
    (224, 3, 64, 7, 2),
]
DEPTHWISE = [(112, 32, 3, 1), (56, 144, 3, 1), (14, 384, 3, 1), (14, 576, 3, 2)]


def aligned(shape: Sequence[int], *, noise: int | None = None) -> np.ndarray:
    """Return an array on a cache line, of noise or not written."""
    size = int(np.prod(shape)) * 4
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    out = raw[start : start + size].view(np.float32).reshape(shape)
    out[...] = np.nan if noise is None else np.random.default_rng(noise).standard_normal(shape)
    return out


def least_seconds(work: Callable[[], object], seconds: float = 0.3) -> float:
    """Return the least thread time of a call."""
    work()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.thread_time_ns()
        for _ in range(4):
            work()
        best = min(best, (time.thread_time_ns() - start) / 4e9)
    return best


def runner(f: LoopFunction, target: Target, buffers: list[np.ndarray], ints: Sequence[int] = ()):
    """Compile a lowered function and return a call that runs all its phases."""
    unit = compile_function(f, target)
    mapped = MappedImage(link([("f", unit.data)]))
    env = dict(zip(f.dims, ints, strict=True))
    scratch = aligned(((evaluate(unit.workspace.bytes, env) if unit.workspace else 0) // 4 + 16,))
    symbols = [f"f.{symbol}" for symbol, _ in unit.phases]
    return lambda: [mapped.call(s, [*buffers, scratch], ints) for s in symbols]


@dataclass(frozen=True)
class Peak:
    """A loop of independent multiply-adds in registers.

    Attributes:
        call: runs it.
        work: its floating-point operations.
    """

    call: Callable[[], object]
    work: float


def peak_loop(target: Target) -> Peak:
    """Return the loop that shows the peak of a processor; it runs for some milliseconds."""
    lanes, count, steps = target.lanes(4), target.vector_registers * 3 // 4, 2_000_000
    text = f"""lowered func peak(x: f32[{lanes}]) -> (y: f32[{count}, {lanes}]) {{
      alloc a: f32[{count}, {lanes}] @register
      for r in 0..{count} unroll {{ for l in 0..{lanes} vector {{ a[r, l] = x[l] }} }}
      for k in 0..{steps} {{ for r in 0..{count} unroll {{ for l in 0..{lanes} vector {{
        a[r, l] = fma(a[r, l], x[0], x[1]) }} }} }}
      for r in 0..{count} unroll {{ for l in 0..{lanes} vector {{ y[r, l] = a[r, l] }} }} }}"""
    work = runner(parse_function(text), target, [aligned((lanes,), noise=1), aligned((count, lanes))])
    return Peak(work, 2.0 * count * lanes * steps)


def peak(target: Target) -> float:
    """Return FLOP/s of independent multiply-adds in registers."""
    loop = peak_loop(target)
    return loop.work / least_seconds(loop.call, 1.0)


def kernel(
    op: str, attrs: object, inputs: Sequence[te.Tensor], shape: Sequence[Int], target: Target
) -> LoopFunction:
    """Return the lowered function of `relu(op(inputs) + bias)`."""
    y = table().definition(op).compute(attrs, inputs, TensorType(tuple(shape), F32))
    bias = te.placeholder((shape[-1],), F32, "bias")
    z = te.compute(shape, lambda *i: te.maximum(y[i] + bias[i[-1]], 0.0), name="z")
    return lower(decide(from_te(op, [*inputs, bias], [z]), target).function, target)


def panels(w: np.ndarray, panel: int) -> np.ndarray:
    """Return weights [..., n] as [ceil(n/panel), ..., panel]."""
    n = -(-w.shape[-1] // panel)
    full = np.zeros((*w.shape[:-1], n * panel), np.float32)
    full[..., : w.shape[-1]] = w
    split = np.moveaxis(full.reshape(*w.shape[:-1], n, panel), -2, 0)
    out = aligned(split.shape)
    out[...] = split
    return out


def checked(y: np.ndarray, sums: np.ndarray, bias: np.ndarray, terms: int) -> float:
    """Return the largest error; stop if it is more than rounding explains."""
    error = float(np.abs(y - np.maximum(sums + bias, 0)).max())
    assert error < 1e-5 * max(terms, 10), f"wrong result: error {error}"
    return error


def gemm(m: int, n: int, k: int, target: Target) -> tuple[float, float]:
    """Return FLOP/s and error of a packed product with a symbolic number of rows."""
    panel, rows = panel_width(target, n, None, None), to_int(fresh("m"))
    x, w = aligned((m, k), noise=1), np.random.default_rng(2).standard_normal((k, n), np.float32)
    packed, bias, y = panels(w, panel), aligned((n,), noise=3), aligned((m, n))
    operands = [te.placeholder((rows, k), F32, "x"), te.placeholder(packed.shape, F32, "w")]
    f = kernel("matmul_packed", PackedAttrs(panel, n), operands, (rows, to_int(n)), target)
    work = runner(f, target, [x, packed, bias, y], [m])
    work()
    error = checked(y, x.astype(np.float64) @ w, bias, k)
    return 2 * m * n * k / least_seconds(work), error


def computed(a: Sequence[int], b: Sequence[int], target: Target) -> tuple[float, float]:
    """Return FLOP/s and error of a product of two inputs."""
    shape = (*a[:-1], b[-1])
    x, w, bias, y = aligned(a, noise=1), aligned(b, noise=2), aligned((b[-1],), noise=3), aligned(shape)
    operands = [te.placeholder(a, F32, "x"), te.placeholder(b, F32, "w")]
    f = kernel("matmul", NoAttrs(), operands, tuple(map(to_int, shape)), target)
    work = runner(f, target, [x, w, bias, y])
    work()
    error = checked(y, x.astype(np.float64) @ w, bias, a[-1])
    return 2 * float(np.prod(shape)) * a[-1] / least_seconds(work), error


def convolution(
    size: int, c: int, oc: int, k: int, stride: int, target: Target, *, depthwise: bool = False
) -> tuple[float, float]:
    """Return FLOP/s and error of a convolution of a square image."""
    pad, out = k // 2, (size + 2 * (k // 2) - k) // stride + 1
    x, y = aligned((1, size, size, c), noise=1), aligned((1, out, out, oc))
    w = np.random.default_rng(2).standard_normal((k, k, c if depthwise else c * oc), np.float32)
    bias, pads = aligned((oc,), noise=3), (pad,) * 4
    image = np.pad(x[0].astype(np.float64), ((pad, pad), (pad, pad), (0, 0)))
    span = out * stride
    taps = [
        (i, j, image[i : i + span : stride, j : j + span : stride][:out, :out])
        for i in range(k)
        for j in range(k)
    ]
    if depthwise:
        op, attrs = "depthwise_conv_nhwc", DepthwiseAttrs(strides=(stride, stride), pads=pads)
        weights = aligned(w.shape)
        weights[...] = w
        sums = sum(part * w[i, j] for i, j, part in taps)
    else:
        panel, w = panel_width(target, oc, None, None), w.reshape(k, k, c, oc)
        op = "conv_nhwc_packed"
        attrs = PackedConvAttrs(strides=(stride, stride), pads=pads, panel=panel, channels=oc)
        weights = panels(w, panel)
        sums = sum(part @ w[i, j] for i, j, part in taps)
    operands = [te.placeholder(x.shape, F32, "x"), te.placeholder(weights.shape, F32, "w")]
    f = kernel(op, attrs, operands, tuple(map(to_int, y.shape)), target)
    work = runner(f, target, [x, weights, bias, y])
    work()
    error = checked(y[0], np.asarray(sums), bias, k * k * c)
    return 2 * out * out * oc * k * k * (1 if depthwise else c) / least_seconds(work), error


def main() -> None:
    """Print a row for each kernel."""
    report = Report("contractions, one thread", ["kernel", "GFLOP/s", "% of peak", "error"])
    target = host()
    best = peak(target)
    report.row("peak", best / 1e9, 100.0, 0.0)

    def row(name: str, speed: float, error: float) -> None:
        report.row(name, speed / 1e9, 100 * speed / best, error)

    for m, n, k in GEMMS:
        row(f"{m}x{n}x{k}", *gemm(m, n, k, target))
    for a, b in COMPUTED:
        row(f"{'x'.join(map(str, a))} @ {'x'.join(map(str, b))}", *computed(a, b, target))
    for size, c, oc, k, stride in CONVS:
        row(f"{size}: {c}>{oc} {k}/{stride}", *convolution(size, c, oc, k, stride, target))
    for size, c, k, stride in DEPTHWISE:
        name = f"{size}: dw {c} {k}/{stride}"
        row(name, *convolution(size, c, c, k, stride, target, depthwise=True))


if __name__ == "__main__":
    main()
