"""Emitted OpenCL C on an OpenCL device, against the evaluator."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest

from inlay.arith.expr import Sym, evaluate
from inlay.base.diagnostics import RunError
from inlay.codegen.opencl import OPENCL, make_image, unsupported_reason
from inlay.interp.loop import run
from inlay.loop.func import LoopFunction
from inlay.lower.lower import lower
from inlay.lower.ops_to_loops import ops_to_loops
from inlay.ops.table import table
from inlay.runtime.device import OpenDevice
from inlay.schedule.choose import FEW_ITEM_RULES, ITEM_RULES, decide
from tests.unit.codegen import test_llvm as programs
from tests.unit.codegen.c_support import empty_outputs
from tests.unit.codegen.samples import SAMPLES
from tests.unit.codegen.support import parsed
from tests.unit.codegen.test_c import PROGRAMS, same
from tests.unit.codegen.test_operators import chosen
from tests.unit.lower.op_functions import function_of
from tests.unit.lower.test_ops_to_loops import agree

# Each kernel takes an OpenCL compiler a tenth of a second, so `make test` tries a few of each kind,
# and the whole sweep is several programs.
SLICES = 10


def every(some: int) -> pytest.MarkDecorator:
    slow = [
        pytest.param(slice(i, None, SLICES), id=f"all-{i}", marks=pytest.mark.slow) for i in range(SLICES)
    ]
    some_of = pytest.param(slice(0, None, some), id="some")
    return pytest.mark.parametrize("tried", [some_of, *slow])


@pytest.fixture(scope="module")
def device() -> Iterator[OpenDevice]:
    try:
        opened = OpenDevice("opencl")
    except RunError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        pytest.skip(str(failure))
    with opened:
        yield opened


class Loaded:
    """Functions as one image on a device."""

    def __init__(self, device: OpenDevice, functions: Sequence[LoopFunction]) -> None:
        self.device = device
        named = [dataclasses.replace(f, name=f"f{i}") for i, f in enumerate(functions)]
        self.image = make_image(named, OPENCL)
        self.functions = named
        self.program = device.load(self.image.text)

    def run(
        self, index: int, inputs: Sequence[np.ndarray], dims: Mapping[Sym, int]
    ) -> tuple[np.ndarray, ...]:
        f, kernel = self.functions[index], self.image.kernels[f"f{index}"]
        env = {d: dims[d] for d in f.dims}
        outputs = empty_outputs(f, env)
        arrays = [*(np.ascontiguousarray(x) for x in inputs), *outputs]
        memories = [self.device.allocate(a.nbytes) for a in arrays]
        copies = [self.device.copy(m, a) for m, a in zip(memories, arrays, strict=True)]
        size = evaluate(kernel.workspace.bytes, env) if kernel.workspace else 0
        if f.workspaces:
            memories.append(self.device.allocate(size))
        items = [evaluate(e, env) for e in kernel.items]
        launched = self.device.launch(
            self.program, kernel.name, memories, list(env.values()), items, after=copies
        )
        pairs = zip(outputs, memories[len(inputs) :], strict=False)
        ends = [self.device.copy(a, m, after=[launched]) for a, m in pairs]
        for m in memories:
            m.release()
        launched.wait()
        for end in ends:
            end.wait()
        return tuple(outputs)


@every(60)
def test_operations_on_every_format(device, tried) -> None:
    samples = SAMPLES[tried]
    functions = [parsed(s.text) for s in samples]
    loaded = Loaded(device, functions)
    for i, (f, s) in enumerate(zip(functions, samples, strict=True)):
        if unsupported_reason(f, dataclasses.replace(OPENCL, doubles=device.facts.has_f64)):
            continue
        env = {f.dims[0]: s.count}
        for a, b in zip(loaded.run(i, s.inputs, env), run(f, s.inputs, env), strict=True):
            try:
                same(a, b)
            except AssertionError as failure:
                raise AssertionError(f"{s.name}\n{s.text}") from failure


def test_programs(device) -> None:
    functions = [parsed(text) for text, _, _ in PROGRAMS.values()]
    loaded = Loaded(device, functions)
    for i, (f, (_, inputs, dims)) in enumerate(zip(functions, PROGRAMS.values(), strict=True)):
        env = {d: dims[d.name] for d in f.dims}
        for a, b in zip(loaded.run(i, inputs, env), run(f, inputs, env), strict=True):
            same(a, b, 1e-6)


@pytest.mark.parametrize("rules", [ITEM_RULES, FEW_ITEM_RULES], ids=["items", "few"])
@every(100)
def test_operators(device, tried, rules) -> None:
    found = [(d, s) for d in table() if d.compute or d.loops for s in chosen(d)]
    cases = []
    for d, s in found[tried]:
        made = function_of(d, s, symbolic=bool(s.symbolic))
        if made is None:
            continue
        loops = ops_to_loops(made[0], table().definition)
        target = dataclasses.replace(OPENCL, doubles=device.facts.has_f64)
        lowered = lower(decide(loops, target, rules).function, target)
        if not unsupported_reason(lowered, target):
            cases.append((d, s, made, lowered))
    loaded = Loaded(device, [c[-1] for c in cases])
    for i, (d, s, (_, inputs, values), _) in enumerate(cases):
        expected = d.evaluate(s.attrs, *s.args)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for got, want in zip(loaded.run(i, inputs, values), expected, strict=True):
            agree(got.reshape(want.shape), want, d, s)


def test_a_failed_assertion_is_told(device) -> None:
    f = parsed(programs.ASSERTING)
    loaded = Loaded(device, [f])
    assert loaded.image.kernels["f0"].assertions == ("negative index", "index beyond the end")
    x, n = np.arange(5, dtype=np.float32), {f.dims[0]: 5, f.dims[1]: 2}
    loaded.run(0, [x, np.array([4, 0])], n)
    for indices, number in [([0, 5], 2), ([-1, 5], 1)]:
        with pytest.raises(RunError, match=rf"assertion {number}") as failure:
            loaded.run(0, [x, np.array(indices)], n)
        assert failure.value.ids == ("run.check-failed",)


def test_a_compiler_that_refuses_is_quoted(device) -> None:
    with pytest.raises(RunError, match="error") as failure:
        device.load("__kernel void wrong(")
    assert failure.value.ids == ("run.build-failed",)


def test_reasons_against_a_function() -> None:
    doubles = "lowered func f(x: f32[4]) -> (y: f32[4]) { for i in 0..4 { y[i] = f32(exp(f64(x[i]))) } }"
    single = dataclasses.replace(OPENCL, doubles=False, stack_bytes=16 << 10)
    assert unsupported_reason(parsed(doubles), single) == "the device has no doubles (f64)"
    assert unsupported_reason(parsed(doubles), OPENCL) == ""
    large = """\
lowered func f(x: f32[4]) -> (y: f32[4]) {
  alloc t: f32[8000] @stack
  for i in 0..4 { t[i] = x[i] }
  for j in 0..4 { y[j] = t[j] }
}
"""
    reason = unsupported_reason(parsed(large), single)
    assert reason == "a temporary of 32000 bytes, a work item has 16384"


def test_text_of_a_kernel() -> None:
    f = parsed(
        "lowered func twice(x: f32[n]) -> (y: f32[n]) over (n) "
        "{ for i in 0..n parallel { y[i] = x[i] * 2.0:f32 } }"
    )
    image = make_image([f], OPENCL)
    assert str(image.kernels["twice"].items[0]) == "64*((n + 63) // 64)"
    assert image.text.endswith("""\
__kernel void twice_phase0(__global uint8_t *x_memory, const int64_t x_offset,
    __global uint8_t *y_memory, const int64_t y_offset, const int64_t n)
{
    __global const float *restrict x = (__global const float *)(x_memory + x_offset);
    __global float *restrict y = (__global float *)(y_memory + y_offset);
    const int64_t part = (int64_t)get_global_id(0);
    const int64_t parts = (int64_t)get_global_size(0);
    for (int64_t i = part; i < n; i += parts) {
        y[i] = x[i] * 2.0f;
    }
}
""")


def test_loops_that_would_become_very_long_are_not_written_out():
    text = """
lowered func f(x: f32[1024]) -> (y: f32[1024]) {
  for i in 0..ROWS unroll { for j in 0..16 vector { y[(i * 16) + j] = x[(i * 16) + j] } }
}
"""
    for rows, expected in (8, 1), (64, 0):
        made = make_image([parsed(text.replace("ROWS", str(rows)))], OPENCL).text
        assert made.count("#pragma unroll") == expected


VECTORS = """
lowered func f(a: KIND[3, 31], b: KIND[31], n: NARROW[31]) -> (y: KIND[3, 31]) {
  for i in 0..3 {
    alloc t: KIND[31] @register
    for j in 0..31 vector { t[j] = VALUE }
    for k in 0..31 vector { y[i, k] = t[k] }
  }
}
"""


@pytest.mark.parametrize(
    ("kind", "narrow", "value"),
    [
        ("f32", "i8", "fma(a[i, j], b[j], b[3])"),
        ("f32", "i8", "max(min(a[i, j] / b[j], 2.0:f32), a[i, 0] - b[j])"),
        ("i32", "i8", "(a[i, j] * b[j]) + i32(n[j])"),
        ("i32", "u16", "max(a[i, j] - i32(n[j]), min(b[j], i32(n[2])))"),
    ],
)
def test_vectors(device, kind, narrow, value) -> None:
    """31 elements are vectors of 16, 8, 4, 2 and one."""
    text = VECTORS.replace("KIND", kind).replace("NARROW", narrow).replace("VALUE", value)
    f = parsed(text)
    random = np.random.default_rng(5)
    if kind == "f32":
        inputs = [random.standard_normal(s, np.float32) for s in ((3, 31), 31)]
        inputs[0][1, ::3] = np.nan
        inputs[1][::5] = [0.0, -0.0, np.inf, np.nan, 1.0, -np.inf, 2.0]
    else:
        inputs = [random.integers(-(2**31), 2**31, s, np.int32) for s in ((3, 31), 31)]
    inputs.append(random.integers(0, 127, 31).astype(f.params[2].dtype.numpy))
    loaded = Loaded(device, [f])
    for width in (16, 8, 4, 2):
        assert f"inlay_{kind}x{width} *)&y[" in loaded.image.text
    [found], [expected] = loaded.run(0, inputs, {}), run(f, inputs, {})
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "body",
    [
        "y[j * 2] = x[j]",
        "y[j] = x[31 - j]",
        "y[j] = x[min(j, 5)]",
        "y[j] = exp(x[j])",
        "if [j] < [n] { y[j] = x[j] }",
        "y[j] = f32([j])",
    ],
)
def test_what_vectors_do_not_have_stays_a_loop(body) -> None:
    f = parsed(
        "lowered func f(x: f32[32]) -> (y: f32[64]) over (n) { for j in 0..16 vector { BODY } }".replace(
            "BODY", body
        )
    )
    text = make_image([f], OPENCL).text
    assert "inlay_f32x" not in text
    assert "j < 16" in text
