"""Laws of operators over drawn shapes and attributes: compute rule = reference, sizes symbolic.

The samples in the operators' records are chosen by hand; here the numbers that interact (windows,
strides and pads; bounds and steps; factors of a reshape) are drawn.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.arith.dtype import F32
from inlay.base.diagnostics import CompileError
from inlay.ops._define import Sample
from inlay.ops._samples import noise
from inlay.ops.convolution import ConvAttrs
from inlay.ops.matmul import PackAttrs, PackedAttrs
from inlay.ops.padding import PadAttrs, PadMode
from inlay.ops.pooling import AveragePoolAttrs, MaxPoolAttrs
from inlay.ops.resize import Coordinates, Mode, Nearest, ResizeAttrs
from inlay.ops.slicing import AxesAttrs
from inlay.ops.table import op_ref, table
from inlay.ops.transposed_convolution import ConvTransposeAttrs
from tests.differential.executors import EXECUTORS, prepare, sum_length
from tests.examples import examples
from tests.tolerance import assert_close

LAW = settings()
(COMPUTE,) = [e for e in EXECUTORS if e.name == "compute"]

small = st.integers(1, 4)
sizes = st.integers(0, 9)


def holds(name: str, sample: Sample) -> bool:
    """Check the law for numbers and for symbols; false where the type rule refuses both."""
    d = table().definition(name)
    ran = False
    for symbolic in (False, True):
        try:
            setup = prepare(d, sample, symbolic=symbolic)
        except CompileError:
            assert not symbolic, "a rule accepted numbers and refused their symbols"
            return False
        expected = d.evaluate(sample.attrs, *sample.args)
        for actual, needed in zip(COMPUTE.run(setup), (expected,), strict=True):
            assert_close(actual, needed, length=sum_length(setup), exact=sample.exact)
        ran = True
    return ran


def array(*shape: int, seed: str = "law") -> np.ndarray:
    return noise(shape, F32, seed=seed)


@st.composite
def windows(draw):
    n = draw(st.integers(1, 2))
    kernel = tuple(draw(small) for _ in range(n))
    strides = tuple(draw(st.integers(1, 3)) for _ in range(n))
    dilations = tuple(draw(st.integers(1, 2)) for _ in range(n))
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    pads = tuple(draw(st.integers(0, r)) for r in (*reach, *reach))
    spatial = tuple(draw(st.integers(1, 8)) for _ in range(n))
    return kernel, strides, dilations, pads, spatial


@LAW
@given(windows(), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_pools(w, ceil, last, include, average):
    kernel, strides, dilations, pads, spatial = w
    shape = (1, *spatial, 2) if last else (1, 2, *spatial)
    names = tuple(f"d{i}" for i in range(len(shape)))
    if average:
        a = AveragePoolAttrs(kernel, strides, pads, dilations, ceil, last, include)
        holds("average_pool", Sample("law", a, (array(*shape),), (names,)))
    else:
        a = MaxPoolAttrs(kernel, strides, pads, dilations, ceil, last)
        sample = Sample("law", a, (array(*shape),), (names,), exact=True)
        holds("max_pool", sample)
        holds("max_pool_index", sample)


@LAW
@given(windows(), st.integers(1, 2), small, small)
def test_convolutions(w, groups, c, oc):
    kernel, strides, dilations, pads, spatial = w
    a = ConvAttrs(strides, pads, dilations, groups)
    x, weights = array(2, c * groups, *spatial), array(oc * groups, c, *kernel, seed="w")
    names = ("n", c * groups, *(f"s{i}" for i in range(len(spatial))))
    holds("conv", Sample("law", a, (x, weights), (names, weights.shape)))
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    weights = np.ascontiguousarray(np.moveaxis(weights, (0, 1), (-1, -2)))
    names = ("n", *(f"s{i}" for i in range(len(spatial))), c * groups)
    holds("conv_nhwc", Sample("law", a, (x, weights), (names, weights.shape)))


@settings(max_examples=examples(4))  # many elements, each with a guard of several conditions
@given(windows(), st.integers(1, 2), small, small, st.integers(0, 1))
def test_transposed_convolutions(w, groups, c, oc, more):
    kernel, strides, dilations, pads, spatial = w
    extra = tuple(min(more, s - 1) for s in strides)
    a = ConvTransposeAttrs(strides, pads, dilations, groups, extra)
    x, weights = array(1, c * groups, *spatial), array(c * groups, oc, *kernel, seed="w")
    names = ("n", c * groups, *(f"s{i}" for i in range(len(spatial))))
    holds("conv_transpose", Sample("law", a, (x, weights), (names, weights.shape)))


@LAW
@given(st.integers(0, 7), st.integers(-12, 12), st.integers(-12, 12), st.integers(-4, 4))
def test_slices(n, begin, end, step):
    sample = Sample(
        "law",
        AxesAttrs((0,)),
        (array(n, 2), (begin,), (end,), (step,)),
        (("n", 2), ("b",), ("e",), ("s",)),
        exact=True,
    )
    assert holds("slice", sample) == (step != 0)
    if step:
        result = table().definition("slice").evaluate(sample.attrs, *sample.args)
        np.testing.assert_array_equal(result, sample.args[0][begin:end:step])


@LAW
@given(st.sampled_from(list(PadMode)), st.integers(1, 4), st.integers(-3, 9), st.integers(-3, 9))
def test_pads(mode, n, front, back):
    x = array(n, 2)
    names = ((("n", 2)), ("p", 0, "q", 0))
    sample = Sample("law", PadAttrs(mode), (x, (front, 0, back, 0)), names, exact=True)
    assert holds("pad", sample) == (n + front + back >= 0)
    if front >= 0 and back >= 0:
        expected = np.pad(x, ((front, back), (0, 0)), mode=mode.value)
        result = table().definition("pad").evaluate(sample.attrs, *sample.args)
        np.testing.assert_array_equal(result, expected)


@LAW
@given(st.lists(st.integers(1, 4), min_size=0, max_size=5), st.data())
def test_reshapes(factors, data):
    def shape(label):
        """Draw a shape of the product of the factors: cut their list into runs."""
        order = data.draw(st.permutations(factors), label=label)
        dims, at = [], 0
        while at < len(order):
            taken = data.draw(st.integers(1, len(order) - at))
            dims.append(int(np.prod(order[at : at + taken])))
            at += taken
        return tuple(dims)

    x, to = array(*shape("from")), shape("to")
    d = table().definition("reshape")
    setup = prepare(d, Sample("law", op_ref("reshape").attrs, (x, to)), symbolic=False)
    (actual,) = COMPUTE.run(setup)
    np.testing.assert_array_equal(actual, x.reshape(to))


@LAW
@given(st.integers(1, 3), sizes, st.integers(1, 20), st.integers(1, 8))
def test_packed_products(m, k, n, panel):
    x, w = array(m, k), array(k, n, seed="w")
    packed = table().definition("pack_weights").evaluate(PackAttrs(panel), w)
    assert holds("pack_weights", Sample("law", PackAttrs(panel), (w,), (("k", "n"),), exact=True))
    a = PackedAttrs(panel, n)
    names = (("m", "k"), (packed.shape[0], "k", panel))
    assert holds("matmul_packed", Sample("law", a, (x, packed), names))
    product = table().definition("matmul_packed").evaluate(a, x, packed)
    assert_close(product, x @ w, length=max(k, 1))


@LAW
@given(
    st.sampled_from(list(Mode)),
    st.sampled_from(list(Coordinates)),
    st.sampled_from(list(Nearest)),
    st.integers(1, 6),
    st.integers(1, 9),
    small,
)
def test_resizes(mode, coordinates, nearest, old, new, other):
    a = ResizeAttrs(mode, coordinates, nearest)
    sample = Sample("law", a, (array(old, 2), (new, other)), (("n", 2), ("p", "q")))
    assert holds("resize", sample)


@LAW
@given(st.integers(1, 6), st.integers(0, 6), st.lists(st.integers(-9, 9), max_size=4))
def test_gathers(n, k, places):
    x, index = array(n, 3), np.array(places, np.int64)
    nearest = op_ref("gather", clamp=True).attrs
    assert holds("gather", Sample("law", nearest, (x, index), (("n", 3), ("k",)), exact=True))
    gather, inside = op_ref("gather").attrs, [p for p in places if -n <= p < n]
    picked = table().definition("gather").evaluate(gather, x, np.array(inside, np.int64))
    np.testing.assert_array_equal(picked, x[inside])
