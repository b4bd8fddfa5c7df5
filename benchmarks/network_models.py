"""Well-known convolutional networks with random weights, as ONNX models.

Each function returns a network for images of a given size, from what its paper says; batch
normalization is folded into biases, as for inference. Weights are drawn so that the variance of
activations is about kept from layer to layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dims = Sequence[int | str]

_TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(bool): TensorProto.BOOL,
}


def value_info(name: str, dims: Dims | None, dtype: type = np.float32) -> onnx.ValueInfoProto:
    """Return what says the type of a value; without dims its rank is open."""
    return helper.make_tensor_value_info(name, _TYPES[np.dtype(dtype)], dims)


class Graph:
    """A graph under construction; `op` adds a node and returns the name of its result.

    Random weights come from one seed, so that two runs build the same model.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._rng = np.random.default_rng(seed)

    def input(self, name: str, dims: Dims, dtype: type = np.float32) -> str:
        """Add an input."""
        self._inputs.append(value_info(name, dims, dtype))
        return name

    def graph(self, results: Mapping[str, Dims | None], dtypes: Mapping[str, type] = {}) -> onnx.GraphProto:
        """Return the graph, as what it is or as the body of a loop; floats unless `dtypes` says more."""
        outputs = [value_info(r, dims, dtypes.get(r, np.float32)) for r, dims in results.items()]
        return helper.make_graph(self._nodes, self._name, self._inputs, outputs, self._weights)

    def built(self, results: Mapping[str, Dims | None], dtypes: Mapping[str, type] = {}) -> onnx.ModelProto:
        """Return a model with these results."""
        opset = helper.make_opsetid("", 17)
        return helper.make_model(self.graph(results, dtypes), opset_imports=[opset], ir_version=9)

    def op(self, name: str, *inputs: str, **attributes: object) -> str:
        """Add an operator."""
        result = f"{self._name}_{name.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(name, inputs, [result], **attributes))
        return result

    def named(self, name: str, x: str) -> str:
        """Give a value the name of a result."""
        self._nodes.append(helper.make_node("Identity", [x], [name]))
        return name

    def more(self, count: int) -> list[str]:
        """Give the last operator `count` more results."""
        node = self._nodes[-1]
        node.output.extend(f"{node.output[0]}_{i + 1}" for i in range(count))
        return list(node.output)

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Cut a tensor along an axis."""
        self.op("Split", x, self.constant(np.array(sizes)), axis=axis)
        return self.more(len(sizes) - 1)

    def constant(self, value: np.ndarray) -> str:
        """Add a constant."""
        name = f"{self._name}_w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(value, name))
        return name

    def noise(self, shape: Sequence[int], deviation: float) -> str:
        """Add random weights."""
        return self.constant((self._rng.standard_normal(shape) * deviation).astype(np.float32))


class Network(Graph):
    """A graph over images; every method adds nodes and returns the name of the result."""

    def __init__(self, size: int) -> None:
        super().__init__("network", 0)
        self.input("x", [1, 3, size, size])

    def model(self, results: Sequence[str]) -> onnx.ModelProto:
        """Return the network with these results."""
        return self.built(dict.fromkeys(results))

    def conv(
        self, x: str, c: int, o: int, k: int = 1, s: int = 1, *, groups: int = 1, act: str = "Relu"
    ) -> str:
        """Add a convolution from c to o channels, its bias and an activation."""
        per_group = c // groups
        w = self.noise((o, per_group, k, k), (2 / (per_group * k * k)) ** 0.5)
        y = self.op(
            "Conv", x, w, self.noise((o,), 0.1), strides=[s, s], pads=[(k - 1) // 2] * 4, group=groups
        )
        return self.act(y, act)

    def act(self, x: str, act: str) -> str:
        """Add an activation: a name of ONNX, `Silu`, or nothing."""
        if act == "Silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if act == "Relu6":
            low, high = (self.constant(np.array(v, np.float32)) for v in (0.0, 6.0))
            return self.op("Clip", x, low, high)
        return self.op(act, x) if act else x

    def squeeze(self, x: str, c: int, inner: int, act: str, gate: str) -> str:
        """Scale channels by what a small network makes of their means."""
        y = self.conv(self.op("GlobalAveragePool", x), c, inner, act=act)
        attributes = {"alpha": 1 / 6} if gate == "HardSigmoid" else {}
        scale = self.op(gate, self.conv(y, inner, c, act=""), **attributes)
        return self.op("Mul", x, scale)

    def classes(self, x: str, c: int, o: int = 1000) -> str:
        """Add global pooling and a linear layer."""
        y = self.op("Flatten", self.op("GlobalAveragePool", x))
        return self.op("Gemm", y, self.noise((c, o), c**-0.5), self.noise((o,), 0.1))


def _inverted(
    net: Network,
    x: str,
    c: int,
    wide: int,
    o: int,
    k: int,
    s: int,
    act: str,
    squeeze: str = "",
    inner: int = 0,
) -> str:
    """An inverted residual: expand, filter each channel, weigh channels, project."""
    y = x if wide == c else net.conv(x, c, wide, act=act)
    y = net.conv(y, wide, wide, k, s, groups=wide, act=act)
    if squeeze:
        y = net.squeeze(y, wide, inner, "Relu" if squeeze == "HardSigmoid" else act, squeeze)
    y = net.conv(y, wide, o, act="")
    return net.op("Add", x, y) if s == 1 and c == o else y


def mobilenet_v2(size: int) -> onnx.ModelProto:
    """Sandler and others, 2018."""
    net = Network(size)
    x, c = net.conv("x", 3, 32, 3, 2, act="Relu6"), 32
    for times, o, repeat, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for i in range(repeat):
            x, c = _inverted(net, x, c, times * c, o, 3, 1 if i else stride, "Relu6"), o
    return net.model([net.classes(net.conv(x, c, 1280, act="Relu6"), 1280)])


def mobilenet_v3(size: int) -> onnx.ModelProto:
    """Howard and others, 2019: the large one."""
    net = Network(size)
    x, c = net.conv("x", 3, 16, 3, 2, act="HardSwish"), 16
    for k, wide, o, has_gate, is_hard, stride in (
        (3, 16, 16, 0, 0, 1),
        (3, 64, 24, 0, 0, 2),
        (3, 72, 24, 0, 0, 1),
        (5, 72, 40, 1, 0, 2),
        (5, 120, 40, 1, 0, 1),
        (5, 120, 40, 1, 0, 1),
        (3, 240, 80, 0, 1, 2),
        (3, 200, 80, 0, 1, 1),
        (3, 184, 80, 0, 1, 1),
        (3, 184, 80, 0, 1, 1),
        (3, 480, 112, 1, 1, 1),
        (3, 672, 112, 1, 1, 1),
        (5, 672, 160, 1, 1, 2),
        (5, 960, 160, 1, 1, 1),
        (5, 960, 160, 1, 1, 1),
    ):
        act, gate = "HardSwish" if is_hard else "Relu", "HardSigmoid" if has_gate else ""
        inner = (wide // 4 + 4) // 8 * 8
        x, c = _inverted(net, x, c, wide, o, k, stride, act, gate, inner), o
    return net.model([net.classes(net.conv(x, c, 960, act="HardSwish"), 960)])


def efficientnet_b0(size: int) -> onnx.ModelProto:
    """Tan and Le, 2019."""
    net = Network(size)
    x, c = net.conv("x", 3, 32, 3, 2, act="Silu"), 32
    for times, o, k, stride, repeat in (
        (1, 16, 3, 1, 1),
        (6, 24, 3, 2, 2),
        (6, 40, 5, 2, 2),
        (6, 80, 3, 2, 3),
        (6, 112, 5, 1, 3),
        (6, 192, 5, 2, 4),
        (6, 320, 3, 1, 1),
    ):
        for i in range(repeat):
            inner, s = max(1, c // 4), 1 if i else stride
            x, c = _inverted(net, x, c, times * c, o, k, s, "Silu", "Sigmoid", inner), o
    return net.model([net.classes(net.conv(x, c, 1280, act="Silu"), 1280)])


def _resnet(size: int, blocks: Sequence[int], groups: int = 1) -> onnx.ModelProto:
    net = Network(size)
    x, c = net.conv("x", 3, 64, 7, 2), 64
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage, repeat in enumerate(blocks):
        w, o = 64 << stage, 256 << stage
        for i in range(repeat):
            s = 2 if stage and not i else 1
            y = net.conv(net.conv(x, c, w), w, w, 3, s, groups=groups)
            y = net.conv(y, w, o, act="")
            x = x if i else net.conv(x, c, o, 1, s, act="")
            x, c = net.op("Relu", net.op("Add", y, x)), o
    return net.model([net.classes(x, c)])


def resnet50(size: int) -> onnx.ModelProto:
    """He and others, 2015."""
    return _resnet(size, (3, 4, 6, 3))


def resnext(size: int) -> onnx.ModelProto:
    """Xie and others, 2016: groups of 2 to 16 channels, one block in each stage."""
    return _resnet(size, (1, 1, 1, 1), groups=32)


def shufflenet_v2(size: int) -> onnx.ModelProto:
    """Ma and others, 2018."""
    net = Network(size)
    x, c, side = net.conv("x", 3, 24, 3, 2), 24, size // 4
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for repeat, o in ((4, 116), (8, 232), (4, 464)):
        half = o // 2
        side //= 2
        for i in range(repeat):
            if i:
                first, second = net.split(x, [half, half], 1)
                y = net.conv(net.conv(second, half, half), half, half, 3, groups=half, act="")
            else:
                first = net.conv(net.conv(x, c, c, 3, 2, groups=c, act=""), c, half)
                y = net.conv(net.conv(x, c, half), half, half, 3, 2, groups=half, act="")
            x, c = net.op("Concat", first, net.conv(y, half, half), axis=1), o
            x = net.op("Reshape", x, net.constant(np.array([1, 2, half, side, side])))
            x = net.op("Transpose", x, perm=[0, 2, 1, 3, 4])
            x = net.op("Reshape", x, net.constant(np.array([1, o, side, side])))
    return net.model([net.classes(net.conv(x, c, 1024), 1024)])


def ssd(size: int) -> onnx.ModelProto:
    """Liu and others, 2015, on the trunk of Howard and others, 2017: boxes and classes of two maps."""
    net = Network(size)
    x, c, maps = net.conv("x", 3, 32, 3, 2), 32, list[tuple[str, int]]()
    for o, s in (
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        (512, 1),
        (512, 1),
        (512, 1),
        (512, 1),
        (512, 1),
        (1024, 2),
        (1024, 1),
    ):
        if o == 1024 and s == 2:
            maps.append((x, c))
        x, c = net.conv(net.conv(x, c, c, 3, s, groups=c), c, o), o
    maps.append((x, c))
    results: list[str] = []
    for per_box in (4, 21):
        rows = [
            net.op(
                "Reshape",
                net.op("Transpose", net.conv(y, n, 6 * per_box, 3, act=""), perm=[0, 2, 3, 1]),
                net.constant(np.array([1, -1, per_box])),
            )
            for y, n in maps
        ]
        results.append(net.op("Concat", *rows, axis=1))
    return net.model([results[0], net.op("Softmax", results[1], axis=-1)])


def unet(size: int) -> onnx.ModelProto:
    """Ronneberger and others, 2015, with 32 channels at first and three halvings."""
    net = Network(size)
    x, c, skipped = "x", 3, list[tuple[str, int]]()
    for o in (32, 64, 128, 256):
        x, c = net.conv(net.conv(x, c, o, 3), o, o, 3), o
        skipped.append((x, o))
        if o < 256:
            x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    for y, o in reversed(skipped[:-1]):
        w = net.noise((c, o, 2, 2), c**-0.5)
        x = net.op("ConvTranspose", x, w, net.noise((o,), 0.1), strides=[2, 2])
        x = net.op("Concat", y, x, axis=1)
        x, c = net.conv(net.conv(x, 2 * o, o, 3), o, o, 3), o
    return net.model([net.conv(x, c, 2, act="")])


def _csp(net: Network, x: str, c: int, o: int, repeat: int, *, adds: bool) -> str:
    """Two branches of half the channels, one of them deep."""
    half = o // 2
    y = net.conv(x, c, half, act="Silu")
    for _ in range(repeat):
        z = net.conv(net.conv(y, half, half, act="Silu"), half, half, 3, act="Silu")
        y = net.op("Add", y, z) if adds else z
    both = net.op("Concat", y, net.conv(x, c, half, act="Silu"), axis=1)
    return net.conv(both, o, o, act="Silu")


def yolo(size: int) -> onnx.ModelProto:
    """A detector in the manner of the small YOLOs of 2020 and later: three maps, boxes and classes."""
    net, classes, anchors = Network(size), 80, 3
    x, c, maps = net.conv("x", 3, 16, 6, 2, act="Silu"), 16, list[tuple[str, int]]()
    for o, repeat in ((32, 1), (64, 2), (128, 3), (256, 1)):
        x, c = _csp(net, net.conv(x, c, o, 3, 2, act="Silu"), o, o, repeat, adds=True), o
        maps.append((x, c))
    pools = [net.conv(x, c, c // 2, act="Silu")]
    for _ in range(3):
        pools.append(net.op("MaxPool", pools[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4))
    maps[-1] = (net.conv(net.op("Concat", *pools, axis=1), 2 * c, c, act="Silu"), c)
    twice, (x, c), up = net.constant(np.array([1, 1, 2, 2], np.float32)), maps[-1], list[tuple[str, int]]()
    for y, o in reversed(maps[1:-1]):
        x = net.conv(x, c, o, act="Silu")
        up.append((x, o))
        x = net.op("Resize", x, "", twice, mode="nearest", coordinate_transformation_mode="asymmetric")
        x, c = _csp(net, net.op("Concat", x, y, axis=1), 2 * o, o, 1, adds=False), o
    found = [(x, c)]
    for y, o in reversed(up):
        x = net.op("Concat", net.conv(x, c, o, 3, 2, act="Silu"), y, axis=1)
        x, c = _csp(net, x, 2 * o, 2 * o, 1, adds=False), 2 * o
        found.append((x, c))
    rows: list[str] = []
    for (y, o), side in zip(found, (size // 8, size // 16, size // 32), strict=True):
        y = net.conv(y, o, anchors * (5 + classes), act="")
        y = net.op("Reshape", y, net.constant(np.array([0, anchors, 5 + classes, side * side])))
        y = net.op("Sigmoid", net.op("Transpose", y, perm=[0, 1, 3, 2]))
        middle, extent, rest = net.split(y, [2, 2, 1 + classes], 3)
        grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)
        at = net.op("Add", middle, net.constant(grid.astype(np.float32)))
        wide = net.op("Mul", extent, net.constant(np.array([4.0, 4.0], np.float32)))
        y = net.op("Concat", at, net.op("Mul", wide, wide), rest, axis=3)
        rows.append(net.op("Reshape", y, net.constant(np.array([0, -1, 5 + classes]))))
    return net.model([net.op("Concat", *rows, axis=1)])


def densenet(size: int) -> onnx.ModelProto:
    """Huang and others, 2017: DenseNet-121. Normalization before convolutions scales, shifts and cuts."""
    net, growth, c = Network(size), 32, 64
    x = net.op("MaxPool", net.conv("x", 3, c, 7, 2), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)

    def normal(x: str, c: int) -> str:
        scaled = net.op("Mul", x, net.noise((c, 1, 1), 1.0))
        return net.op("Relu", net.op("Add", scaled, net.noise((c, 1, 1), 0.1)))

    for layers in (6, 12, 24, 16):
        for _ in range(layers):
            y = net.conv(normal(x, c), c, 4 * growth)
            x, c = net.op("Concat", x, net.conv(y, 4 * growth, growth, 3, act=""), axis=1), c + growth
        if layers != 16:
            x, c = net.conv(normal(x, c), c, c // 2, act=""), c // 2
            x = net.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    return net.model([net.classes(normal(x, c), c)])


def squeezenet(size: int) -> onnx.ModelProto:
    """Iandola and others, 2016, version 1.1: fire modules squeeze channels and expand them twice."""
    net = Network(size)
    x, c = net.conv("x", 3, 64, 3, 2), 64
    for squeezed, o, pools in (
        (16, 64, True),
        (16, 64, False),
        (32, 128, True),
        (32, 128, False),
        (48, 192, True),
        (48, 192, False),
        (64, 256, False),
        (64, 256, False),
    ):
        if pools:
            x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
        y = net.conv(x, c, squeezed)
        x = net.op("Concat", net.conv(y, squeezed, o), net.conv(y, squeezed, o, 3), axis=1)
        c = 2 * o
    return net.model([net.op("Flatten", net.op("GlobalAveragePool", net.conv(x, c, 1000)))])


def googlenet(size: int) -> onnx.ModelProto:
    """Szegedy and others, 2015: four branches a module, without the classifiers beside."""
    net = Network(size)

    def pooled(x: str, s: int) -> str:
        return net.op("MaxPool", x, kernel_shape=[3, 3], strides=[s, s], pads=[1] * 4)

    x = net.conv(pooled(net.conv("x", 3, 64, 7, 2), 2), 64, 64)
    x, c = pooled(net.conv(x, 64, 192, 3), 2), 192
    for one, (in3, out3), (in5, out5), pool, pools in (
        (64, (96, 128), (16, 32), 32, False),
        (128, (128, 192), (32, 96), 64, True),
        (192, (96, 208), (16, 48), 64, False),
        (160, (112, 224), (24, 64), 64, False),
        (128, (128, 256), (24, 64), 64, False),
        (112, (144, 288), (32, 64), 64, False),
        (256, (160, 320), (32, 128), 128, True),
        (256, (160, 320), (32, 128), 128, False),
        (384, (192, 384), (48, 128), 128, False),
    ):
        branches = [
            net.conv(x, c, one),
            net.conv(net.conv(x, c, in3), in3, out3, 3),
            net.conv(net.conv(x, c, in5), in5, out5, 5),
            net.conv(pooled(x, 1), c, pool),
        ]
        x, c = net.op("Concat", *branches, axis=1), one + out3 + out5 + pool
        x = pooled(x, 2) if pools else x
    return net.model([net.classes(x, c)])


NETWORKS: dict[str, tuple[Callable[[int], onnx.ModelProto], int]] = {
    "resnet50": (resnet50, 224),
    "resnet50_96": (resnet50, 96),
    "resnext": (resnext, 224),
    "mobilenet_v2": (mobilenet_v2, 224),
    "mobilenet_v3": (mobilenet_v3, 224),
    "efficientnet_b0": (efficientnet_b0, 224),
    "shufflenet_v2": (shufflenet_v2, 224),
    "ssd": (ssd, 300),
    "unet": (unet, 128),
    "yolo": (yolo, 320),
    "densenet": (densenet, 224),
    "squeezenet": (squeezenet, 224),
    "googlenet": (googlenet, 224),
}
"""Networks by name, with the sides of their images."""
