"""Channels-last: the same values, and no transposes left between convolutions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper

from inlay.interp.tensor import evaluate_entry, evaluate_expr
from inlay.ir.expr import Call, OpRef
from inlay.ir.module import Module
from inlay.ir.verify import verify
from inlay.ir.walk import postorder
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.transforms import (
    convert_layout,
    decompose_ops,
    eliminate_dead,
    fold_constants,
    pack_weights,
    simplify_algebra,
    to_anf,
)
from tests.unit.importers.onnx.models import load, meaning, model, value

node = helper.make_node
SHAPE = (2, 3, 9, 8)


def noise(*shape: int) -> np.ndarray:
    """Return reproducible noise."""
    return np.random.default_rng(len(shape) + shape[0]).standard_normal(shape).astype(np.float32)


def convert(module: Module, *, pack: bool = False) -> Module:
    """Run the pass between those that it lives with."""
    context = PassContext(table(), evaluate=evaluate_expr)
    for p in (
        to_anf,
        simplify_algebra,
        decompose_ops,
        fold_constants,
        convert_layout,
        *((pack_weights,) if pack else ()),
        eliminate_dead,
    ):
        module = p.PASS.run(module, context)
    assert not verify(module)
    return module


def operators(module: Module) -> Counter[str]:
    """Count calls by operator."""
    calls = (e for f in module.functions.values() for e in postorder(f) if isinstance(e, Call))
    return Counter(c.callee.op.name for c in calls if isinstance(c.callee, OpRef))


def check(m: onnx.ModelProto, *, pack: bool = False, **inputs: np.ndarray) -> Counter[str]:
    """Compare before and after, and count operators after."""
    before = load(m)
    after = convert(before, pack=pack)
    want, got = (evaluate_entry(x, inputs, meaning) for x in (before, after))
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5)
    return operators(after)


def network(nodes: Sequence[onnx.NodeProto], weights: dict[str, np.ndarray], out: Sequence[object]):
    """Return a model of one image."""
    x = value("x", ["n", *SHAPE[1:]])
    return model(nodes, [x], [value("y", out)], weights)


def conv(x: str, w: str, y: str, **attributes: object) -> onnx.NodeProto:
    """Return a convolution that keeps the size."""
    return node("Conv", [x, w], [y], pads=[1, 1, 1, 1], **attributes)


@pytest.mark.parametrize("pack", [False, True])
def test_nothing_is_left_between_convolutions(pack: bool):
    nodes = [
        conv("x", "w1", "a"),
        node("BatchNormalization", ["a", "s", "b", "m", "v"], ["bn"]),
        node("Relu", ["bn"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        conv("p", "w2", "q", group=6),
        node("Add", ["q", "bias"], ["q1"]),
        node("Add", ["q1", "p"], ["res"]),
        node("Concat", ["res", "p"], ["c"], axis=1),
        node("Pad", ["c", "pads"], ["c2"]),
        node("Softmax", ["c2"], ["sm"], axis=1),
        node("ReduceMean", ["sm"], ["y"], axes=[2, 3], keepdims=0),
    ]
    weights = {
        "w1": noise(6, 3, 3, 3),
        "w2": noise(6, 1, 3, 3),
        "bias": noise(6, 1, 1),
        "s": noise(6),
        "b": noise(6),
        "m": noise(6),
        "v": np.abs(noise(6)) + 1,
        "pads": np.array([0, 0, 1, 0, 0, 0, 0, 2]),
    }
    count = check(network(nodes, weights, ["n", 12]), pack=pack, x=noise(*SHAPE))
    assert count["transpose"] == 1  # of the input
    assert count["conv"] == 0
    assert count["depthwise_conv_nhwc"] == 1
    assert count["conv_nhwc_packed" if pack else "conv_nhwc"] == 1


def test_outputs_keep_their_layout():
    m = network([conv("x", "w", "y")], {"w": noise(5, 3, 3, 3)}, ["n", 5, 9, 8])
    assert check(m, x=noise(*SHAPE))["transpose"] == 2


def test_transposes_compose():
    nodes = [conv("x", "w", "a"), node("Transpose", ["a"], ["y"], perm=[0, 2, 3, 1])]
    m = network(nodes, {"w": noise(5, 3, 3, 3)}, ["n", 9, 8, 5])
    assert check(m, x=noise(*SHAPE))["transpose"] == 1
    nodes = [conv("x", "w", "a"), node("Transpose", ["a"], ["y"], perm=[3, 1, 0, 2])]
    m = network(nodes, {"w": noise(5, 3, 3, 3)}, [8, 5, "n", 9])
    assert check(m, x=noise(*SHAPE))["transpose"] == 2


def test_readers_that_need_the_order_get_it():
    nodes = [conv("x", "w", "a"), node("Flatten", ["a"], ["y"])]
    m = network(nodes, {"w": noise(5, 3, 3, 3)}, ["n", 360])
    assert check(m, x=noise(*SHAPE))["transpose"] == 2


@pytest.mark.parametrize(("groups", "channels"), [(3, 6), (1, 4)])
def test_groups_and_strides(groups: int, channels: int):
    weights = {"w": noise(channels, 3 // groups, 3, 3)}
    nodes = [node("Conv", ["x", "w"], ["y"], group=groups, strides=[2, 1], dilations=[1, 2])]
    check(network(nodes, weights, ["n", channels, 4, 4]), x=noise(*SHAPE))


def test_one_dimensional_convolution():
    m = model(
        [node("Conv", ["x", "w"], ["a"], pads=[1, 1]), node("Relu", ["a"], ["y"])],
        [value("x", [2, 3, "t"])],
        [value("y", [2, 4, "t"])],
        {"w": noise(4, 3, 3)},
    )
    check(m, x=noise(2, 3, 7))


def test_matrix_products_with_constants_are_packed():
    weights = {"w": noise(20, 37), "v": noise(37, 5)}
    m = model(
        [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"], ["y"])],
        [value("x", ["b", "s", 20])],
        [value("y", ["b", "s", 5])],
        weights,
    )
    count = check(m, pack=True, x=noise(2, 3, 20))
    assert count["matmul_packed"] == 2
    assert count["matmul"] == 0


def test_products_of_two_activations_stay():
    m = model(
        [node("MatMul", ["x", "z"], ["y"])],
        [value("x", ["s", 20]), value("z", [20, 4])],
        [value("y", ["s", 4])],
    )
    count = check(m, pack=True, x=noise(2, 20), z=noise(20, 4))
    assert count["matmul"] == 1


def test_tokens_of_an_image_stay_in_rows() -> None:
    """Transposing one axis is what makes tokens, too: that is no layout to compute in."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 4], strides=[3, 4]),
        node("Reshape", ["c", "shape"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        node("Concat", ["t", "class"], ["j"], axis=1),
        node("Add", ["j", "places"], ["a"]),
        node("Relu", ["a"], ["p"]),
        node("MatMul", ["p", "m"], ["q"]),
        node("Add", ["a", "q"], ["y"]),
    ]
    weights = {
        "m": noise(8, 8),
        "w": noise(8, 3, 3, 4),
        "shape": np.array([1, 8, 6], np.int64),
        "class": noise(1, 1, 8),
        "places": noise(1, 7, 8),
    }
    x = value("x", [1, *SHAPE[1:]])
    m = model(nodes, [x], [value("y", [1, 7, 8])], weights)
    found = check(m, x=noise(1, *SHAPE[1:]))
    assert found["transpose"] == 3  # into and out of the convolution, and the one of the program


@pytest.mark.parametrize("dynamic", [False, True])
def test_halves_of_the_channels_stay_last(dynamic: bool) -> None:
    """A gated activation: slices of the channels, of which one is read as it is."""
    nodes = [
        conv("x", "w", "a"),
        node("Slice", ["a", "zero", "half", "axis"], ["left"]),
        node("Slice", ["a", "half", "end", "axis", "step"], ["right"]),
        node("Sigmoid", ["right"], ["gate"]),
        node("Mul", ["left", "gate"], ["m"]),
        conv("m", "v", "y"),
    ]
    numbers = {"zero": 0, "half": 3, "end": 9, "axis": 1, "step": 2}
    weights = {name: np.array([number], np.int64) for name, number in numbers.items()}
    weights |= {"w": noise(9, 3, 3, 3), "v": noise(4, 3, 3, 3)}
    batch = "n" if dynamic else SHAPE[0]
    m = model(nodes, [value("x", [batch, *SHAPE[1:]])], [value("y", [batch, 4, *SHAPE[2:]])], weights)
    assert check(m, x=noise(*SHAPE))["transpose"] == 2  # of the input and the output


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(("channels", "transposes"), [(8, 2), (3, 4)])
def test_channels_that_fill_vectors_are_resampled_last(mode: str, channels: int, transposes: int) -> None:
    nodes = [conv("x", "w", "a"), node("Resize", ["a", "", "scales"], ["r"], mode=mode), conv("r", "v", "y")]
    weights = {"w": noise(channels, 3, 3, 3), "v": noise(5, channels, 3, 3)}
    weights["scales"] = np.array([1, 1, 2, 1.5], np.float32)
    shape = [SHAPE[0], *SHAPE[1:]]
    m = model(nodes, [value("x", shape)], [value("y", [SHAPE[0], 5, 18, 12])], weights)
    assert check(m, x=noise(*SHAPE))["transpose"] == transposes


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax", "ReduceSum"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(("side", "reductions"), [(8, 1), (48, 2)])
def test_large_images_are_reduced_by_lines(op: str, keepdims: int, side: int, reductions: int) -> None:
    weights = {"w": noise(8, 3, 1, 1), "axes": np.array([2, -1], np.int64)}
    axes = {"inputs": ["a", "axes"]} if op == "ReduceSum" else {"inputs": ["a"], "axes": [2, -1]}
    nodes = [node("Conv", ["x", "w"], ["a"]), node(op, axes.pop("inputs"), ["y"], keepdims=keepdims, **axes)]
    shape = [2, 8, 1, 1] if keepdims else [2, 8]
    m = model(nodes, [value("x", [2, 3, side, side])], [value("y", shape)], weights)
    found = check(m, x=noise(2, 3, side, side))
    assert sum(count for name, count in found.items() if name.startswith("reduce")) == reductions


@pytest.mark.parametrize(("axis", "shape"), [(0, [8, 4, 6]), (1, [2, 4, 6]), (2, [2, 8, 6]), (3, [2, 8, 4])])
def test_a_reduction_leaves_channels_last(axis: int, shape: list[int]) -> None:
    """The image is read as it lies, and what is left of it is transposed."""
    weights = {"w": noise(8, 3, 1, 1)}
    nodes = [node("Conv", ["x", "w"], ["a"]), node("ReduceMax", ["a"], ["y"], axes=[axis], keepdims=0)]
    m = model(nodes, [value("x", [2, 3, 4, 6])], [value("y", shape)], weights)
    found = check(m, x=noise(2, 3, 4, 6))
    assert found["reduce_max"] == 1
    assert found["transpose"] == (1 if axis == 1 else 2)


@pytest.mark.parametrize("batch", [2, "n"])
def test_shuffled_channels_stay_last(batch: int | str) -> None:
    """Groups of channels are dealt out: one move, and no change of the layout."""
    nodes = [
        conv("x", "w", "a"),
        node("Reshape", ["a", "groups"], ["g"]),
        node("Transpose", ["g"], ["t"], perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["t", "channels"], ["s"]),
        conv("s", "v", "y"),
    ]
    weights = {"w": noise(6, 3, 3, 3), "v": noise(4, 6, 3, 3)}
    weights |= {"groups": np.array([0, 2, 3, 9, 8]), "channels": np.array([0, 6, 9, 8])}
    m = model(nodes, [value("x", [batch, *SHAPE[1:]])], [value("y", [batch, 4, 9, 8])], weights)
    assert check(m, x=noise(*SHAPE))["transpose"] == 3


def test_pixels_that_become_channels_change_the_layout() -> None:
    """Only channels are cut and joined where they are last."""
    nodes = [
        conv("x", "w", "a"),
        node("Reshape", ["a", "blocks"], ["g"]),
        node("Transpose", ["g"], ["t"], perm=[0, 1, 4, 2, 3]),
        node("Reshape", ["t", "channels"], ["s"]),
        conv("s", "v", "y"),
    ]
    weights = {"w": noise(6, 3, 3, 3), "v": noise(4, 12, 3, 3)}
    weights |= {"blocks": np.array([2, 6, 9, 4, 2]), "channels": np.array([2, 12, 9, 4])}
    m = model(nodes, [value("x", [2, *SHAPE[1:]])], [value("y", [2, 4, 9, 4])], weights)
    check(m, x=noise(*SHAPE))


def test_instances_are_normalized_where_they_are():
    nodes = [
        conv("x", "w1", "a"),
        node("InstanceNormalization", ["a", "s", "b"], ["i"], epsilon=1e-3),
        node("Relu", ["i"], ["r"]),
        conv("r", "w2", "c"),
        node("ReduceMean", ["c"], ["y"], axes=[2, 3], keepdims=0),
    ]
    weights = {"w1": noise(6, 3, 3, 3), "w2": noise(6, 6, 3, 3), "s": noise(6), "b": noise(6)}
    count = check(network(nodes, weights, ["n", 6]), x=noise(*SHAPE))
    assert count["transpose"] == 1  # of the input
    assert count["instance_norm"] == 0


@pytest.mark.parametrize("shape", [(2, 3, 9, 8), (2, 3, 10)], ids=str)
def test_groups_are_normalized_where_they_are(shape: tuple[int, ...]):
    """As exporters write it: as instances of an image whose rows are groups."""
    spatial = shape[2:]
    nodes = [
        node("Conv", ["x", "w1"], ["a"]),
        node("Reshape", ["a", "rows"], ["rows_a"]),
        node("InstanceNormalization", ["rows_a", "s", "b"], ["i"], epsilon=1e-3),
        node("Reshape", ["i", "image"], ["g"]),
        node("Conv", ["g", "w2"], ["y"]),
    ]
    ones = (1,) * len(spatial)
    weights = {"w1": noise(6, 3, *ones), "w2": noise(5, 6, *ones), "s": noise(3), "b": noise(3)}
    weights |= {"rows": np.array([2, 3, -1]), "image": np.array([2, 6, *spatial])}
    m = model(nodes, [value("x", shape)], [value("y", [2, 5, *spatial])], weights)
    count = check(m, x=noise(*shape))
    assert count["transpose"] == 2  # of the input and the output
    assert count["instance_norm"] == count["group_norm"] == 0


@pytest.mark.parametrize("spatial", [(7,), (5, 4), (3, 4, 2)], ids=str)
def test_transposed_convolutions_join_their_phases_with_channels_last(spatial: tuple[int, ...]):
    rank = len(spatial)
    nodes = [
        node("Conv", ["x", "w1"], ["a"]),
        node("ConvTranspose", ["a", "w2"], ["b"], strides=[2] * rank, pads=[1] * 2 * rank),
        node("Relu", ["b"], ["c"]),
        node("Conv", ["c", "w3"], ["d"]),
        node("ReduceMax", ["d"], ["y"], axes=[*range(2, 2 + rank)], keepdims=0),
    ]
    ones = (1,) * rank
    weights = {"w1": noise(4, 3, *ones), "w2": noise(4, 6, *(4,) * rank), "w3": noise(2, 6, *ones)}
    m = model(nodes, [value("x", [2, 3, *spatial])], [value("y", [2, 2])], weights)
    count = check(m, x=noise(2, 3, *spatial))
    assert count["transpose"] == (1 if rank == 1 else 2)  # of the input, and where phases meet rows


def test_windows_are_cut_with_channels_last():
    """Axes of an image that are cut, and joined again, as in attention over windows."""
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Reshape", ["a", "cut"], ["b"]),
        node("Transpose", ["b"], ["c"], perm=[0, 2, 4, 3, 5, 1]),
        node("Reshape", ["c", "tokens"], ["y"]),
    ]
    weights = {"w": noise(6, 3, 1, 1)}
    weights |= {"cut": np.array([2, 6, 3, 3, 2, 4]), "tokens": np.array([12, 12, 6])}
    m = model(nodes, [value("x", SHAPE)], [value("y", [12, 12, 6])], weights)
    assert check(m, x=noise(*SHAPE))["transpose"] == 2  # of the input, and the one that is written


def test_rows_that_join_channels_are_read_as_they_are():
    """No twin is made where channels and rows become one axis: it would be read in the order that it has."""
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Reshape", ["a", "shape"], ["y"])]
    m = network(nodes, {"w": noise(5, 3, 1, 1), "shape": np.array([0, 45, 8])}, ["n", 45, 8])
    assert check(m, x=noise(*SHAPE))["transpose"] == 2  # of the input and the output
