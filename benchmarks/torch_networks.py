"""Networks beside the set, written in PyTorch and exported, against onnxruntime and OpenVINO.

    python benchmarks/torch_networks.py [--only NAME ...] [--threads N ...] [--rounds R] [--graph]

What the set of `networks.py` has none of: gated and dilated convolutions over lines, windows of attention,
convolutions with few output channels, rotary positions, volumes, steps over caches. Weights are random.
Columns and turns are those of `networks.py`; so are the peers. `--graph` exports by `torch.export`, which
writes attention in another way. `pip install -e '.[peers]'` brings PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import math
import warnings
from collections.abc import Callable, Sequence

import onnx

if importlib.util.find_spec("torch") is None:
    print("PyTorch is not installed; pip install -e '.[peers]' brings it")
    raise SystemExit(0)

import torch
from torch import nn
from torch.nn import functional

from gemm import peak_loop
from inlay.machine.target import host
from network_cases import Case
from networks import heading, line, measured

Made = tuple[nn.Module, Sequence[torch.Tensor]]


class Residual(nn.Module):
    """What is added to its input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result."""
        return x + self.inner(x)


class Permute(nn.Module):
    """Axes in another order."""

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result."""
        return x.permute(self.axes)


class Gated(nn.Module):
    """A layer of WaveNet: a causal dilated convolution whose halves gate each other."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.out, self.dilation = nn.Conv1d(width, width, 1), dilation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result."""
        a, b = self.conv(functional.pad(x, (self.dilation, 0))).chunk(2, 1)
        return x + self.out(torch.tanh(a) * torch.sigmoid(b))


class SelfAttention(nn.Module):
    """Attention of several heads among `[batch, tokens, width]`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result."""
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(width // self.heads), -1)
        return self.out((scores @ v).transpose(1, 2).reshape(n, tokens, width))


class Windows(nn.Module):
    """Attention inside windows of an image `[n, h, w, c]`."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.window, self.attention = window, SelfAttention(width, heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result."""
        n, h, w, c = x.shape
        s = self.window
        y = x.reshape(n, h // s, s, w // s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, s * s, c)
        y = self.attention(y).reshape(n, h // s, w // s, s, s, c)
        return y.permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)


class Rotary(nn.Module):
    """A layer of a decoder: norms by mean squares, rotary positions, shared keys, gated products."""

    def __init__(self, width: int, heads: int, shared: int, inner: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.scale = nn.Parameter(torch.ones(2, width))
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * shared * self.size, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        angles = torch.arange(64)[:, None] / 1e4 ** (torch.arange(self.size // 2) / (self.size // 2))
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1))
        self.register_buffer("sin", torch.cat([angles.sin()] * 2, -1))
        self.register_buffer("mask", torch.triu(torch.full((64, 64), -1e9), 1))

    def normed(self, x: torch.Tensor, which: int) -> torch.Tensor:
        """Return rows over the root of their mean square."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.scale[which]

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """Return heads with their positions."""
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat((-b, a), -1) * self.sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result."""
        n, tokens, width = x.shape
        y = self.normed(x, 0)
        q = self.turned(self.q(y).reshape(n, tokens, self.heads, self.size).transpose(1, 2))
        k, v = self.kv(y).reshape(n, tokens, 2, self.shared, self.size).permute(2, 0, 3, 1, 4)
        k, v = (z.repeat_interleave(self.heads // self.shared, 1) for z in (self.turned(k), v))
        scores = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(self.size) + self.mask, -1)
        x = x + self.o((scores @ v).transpose(1, 2).reshape(n, tokens, width))
        y = self.normed(x, 1)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Cached(nn.Module):
    """A layer of a decoder over the keys and values of earlier steps, which heads share."""

    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.q, self.o = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = (nn.Linear(width, shared * self.size) for _ in range(2))
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the result, and all keys and values."""
        n, tokens, width = x.shape
        y = self.norms[0](x)
        q = self.q(y).reshape(n, tokens, self.heads, self.size).transpose(1, 2)
        new = (f(y).reshape(n, tokens, self.shared, self.size).transpose(1, 2) for f in (self.k, self.v))
        kept = [torch.cat(pair, 2) for pair in zip(past, new, strict=True)]
        k, v = (
            z[:, :, None]
            .expand(n, self.shared, self.heads // self.shared, z.shape[2], self.size)
            .reshape(n, self.heads, z.shape[2], self.size)
            for z in kept
        )
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, width)
        x = x + self.o(y)
        return (x + self.inner(self.norms[1](x)), *kept)


class Branches(nn.Module):
    """The mean of convolutions over a line, of several windows and dilations, one behind the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [nn.Sequential(*(self.layer(width, k, d) for d in (1, 3, 5))) for k in (3, 7, 11)]
        )

    def layer(self, width: int, k: int, d: int) -> nn.Module:
        """Return two convolutions of a window, the first of which is dilated."""
        first = nn.Conv1d(width, width, k, dilation=d, padding=(k - 1) * d // 2)
        second = nn.Conv1d(width, width, k, padding=k // 2)
        return Residual(nn.LeakyReLU(0.1), first, nn.LeakyReLU(0.1), second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result."""
        return sum(branch(x) for branch in self.branches) / len(self.branches)


class Excited(nn.Module):
    """Channels that are scaled by what their means say."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result."""
        return x * torch.sigmoid(self.wide(functional.relu(self.narrow(x.mean((2, 3), keepdim=True)))))


class Recurrent(nn.Module):
    """The sequence of a recurrent layer, and a product."""

    def __init__(self, layer: nn.Module, width: int, out: int) -> None:
        super().__init__()
        self.layer, self.out = layer, nn.Linear(width, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result."""
        return self.out(self.layer(x)[0])


def conv(
    inputs: int, outputs: int, window: int, stride: int = 1, dilation: int = 1, groups: int = 1
) -> nn.Module:
    """Return a convolution that keeps the size but for strides, a norm and an activation."""
    pads = dilation * (window // 2)
    layer = nn.Conv2d(inputs, outputs, window, stride, pads, dilation, groups)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


def image(side: int, channels: int = 3) -> tuple[torch.Tensor]:
    """Return an image."""
    return (torch.randn(1, channels, side, side),)


def convnext() -> Made:
    """Depthwise windows of 7 x 7 and products along channels."""

    def block(c: int) -> nn.Module:
        tail = (nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))
        return Residual(
            nn.Conv2d(c, c, 7, padding=3, groups=c), Permute(0, 2, 3, 1), *tail, Permute(0, 3, 1, 2)
        )

    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4)]
    for width, count in ((96, 3), (192, 3), (384, 9), (768, 3)):
        layers += [] if width == 96 else [nn.Conv2d(width // 2, width, 2, 2)]
        layers += [block(width) for _ in range(count)]
    return nn.Sequential(*layers), image(224)


def wavenet() -> Made:
    """Gated convolutions over a line."""
    layers = [Gated(64, 2 ** (i % 8)) for i in range(16)]
    return nn.Sequential(nn.Conv1d(1, 64, 1), *layers, nn.Conv1d(64, 256, 1)), (torch.randn(1, 1, 2000),)


def conformer() -> Made:
    """Attention and depthwise convolutions over a line."""

    def block(c: int) -> nn.Module:
        halves = [
            Residual(nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.SiLU(), nn.Linear(4 * c, c)) for _ in range(2)
        ]
        middle = (
            nn.Conv1d(c, 2 * c, 1),
            nn.GLU(1),
            nn.Conv1d(c, c, 31, padding=15, groups=c),
            nn.BatchNorm1d(c),
        )
        lines = Residual(
            nn.LayerNorm(c), Permute(0, 2, 1), *middle, nn.SiLU(), nn.Conv1d(c, c, 1), Permute(0, 2, 1)
        )
        return nn.Sequential(halves[0], Residual(nn.LayerNorm(c), SelfAttention(c, 4)), lines, halves[1])

    return nn.Sequential(*[block(256) for _ in range(6)]), (torch.randn(1, 200, 256),)


def swin() -> Made:
    """Attention in windows."""

    def block(c: int) -> nn.Module:
        inner = Residual(nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))
        return nn.Sequential(Residual(nn.LayerNorm(c), Windows(c, c // 32, 7)), inner)

    blocks = [block(192) for _ in range(4)]
    return nn.Sequential(nn.Conv2d(3, 192, 8, 8), Permute(0, 2, 3, 1), *blocks), image(224)


def decoder() -> Made:
    """A prompt of 64 tokens."""
    return nn.Sequential(*[Rotary(512, 8, 2, 1408) for _ in range(4)]), (torch.randn(1, 64, 512),)


def regnet() -> Made:
    """Groups of eight channels, and excited ones."""
    layers, width = [conv(3, 32, 3, 2)], 32
    for outputs, count in ((48, 1), (104, 3), (208, 6), (440, 3)):
        for i in range(count):
            middle = conv(outputs, outputs, 3, 2 if i == 0 else 1, groups=outputs // 8)
            body = (
                conv(width, outputs, 1),
                middle,
                Excited(outputs, width // 4),
                nn.Conv2d(outputs, outputs, 1),
            )
            layers.append(nn.Sequential(*body) if i == 0 else Residual(*body))
            width = outputs
    return nn.Sequential(*layers), image(224)


def superresolution() -> Made:
    """Few output channels, and blocks of 3 x 3 pixels made of them."""
    layers = (
        nn.Conv2d(1, 64, 5, 1, 2),
        nn.Tanh(),
        nn.Conv2d(64, 32, 3, 1, 1),
        nn.Tanh(),
        nn.Conv2d(32, 9, 3, 1, 1),
    )
    return nn.Sequential(*layers, nn.PixelShuffle(3)), image(160, 1)


def dilated() -> Made:
    """A segmentation with dilated windows, resampled."""
    layers = (conv(3, 32, 3, 2), conv(32, 64, 3, 2), conv(64, 128, 3, 2), conv(128, 256, 3, 1, 2))
    tail = (conv(256, 64, 3, 1, 6), conv(64, 64, 3, 1, 12), nn.Conv2d(64, 21, 1))
    return nn.Sequential(*layers, *tail, nn.Upsample(scale_factor=8, mode="bilinear")), image(256)


def diffusion() -> Made:
    """Norms of groups and resampled images."""

    def block(i: int, o: int) -> nn.Module:
        tail = (nn.GroupNorm(8, o), nn.SiLU(), nn.Conv2d(o, o, 3, 1, 1))
        return nn.Sequential(nn.GroupNorm(8, i), nn.SiLU(), nn.Conv2d(i, o, 3, 1, 1), *tail)

    down = (nn.Conv2d(4, 64, 3, 1, 1), block(64, 128), nn.Conv2d(128, 128, 3, 2, 1), block(128, 256))
    return nn.Sequential(*down, nn.Upsample(scale_factor=2), block(256, 64)), image(32, 4)


def volumes() -> Made:
    """Windows of 3 x 3 x 3."""
    layers = [nn.Conv3d(a, b, 3, s, 1) for a, b, s in ((1, 16, 1), (16, 32, 2), (32, 64, 2), (64, 64, 1))]
    return nn.Sequential(*[nn.Sequential(x, nn.ReLU()) for x in layers]), (torch.randn(1, 1, 32, 64, 64),)


def gru() -> Made:
    """Two layers in both directions."""
    return Recurrent(nn.GRU(80, 128, 2, batch_first=True, bidirectional=True), 256, 40), (
        torch.randn(1, 100, 80),
    )


def lstm() -> Made:
    """A batch of sequences."""
    return Recurrent(nn.LSTM(40, 256, 2, batch_first=True), 256, 30), (torch.randn(8, 30, 40),)


def vocoder() -> Made:
    """HiFi-GAN, small: transposed convolutions over a line and many windows."""
    layers: list[nn.Module] = [nn.Conv1d(80, 256, 7, padding=3)]
    width = 256
    for k, stride in ((16, 8), (16, 8), (4, 2), (4, 2)):
        up = nn.ConvTranspose1d(width, width // 2, k, stride, (k - stride) // 2)
        layers += [nn.LeakyReLU(0.1), up, Branches(width // 2)]
        width //= 2
    layers += [nn.LeakyReLU(0.1), nn.Conv1d(width, 1, 7, padding=3), nn.Tanh()]
    return nn.Sequential(*layers), (torch.randn(1, 80, 32),)


def cached() -> Made:
    """A step of a decoder behind 1,900 tokens; eight heads share the keys and values of two."""
    past = [torch.randn(1, 2, 1900, 64) for _ in range(2)]
    return Cached(512, 8, 2), (torch.randn(1, 1, 512), *past)


def beams() -> Made:
    """A step of five beams over 1,500 frames, whose heads have keys of their own."""
    past = [torch.randn(5, 6, 1500, 64) for _ in range(2)]
    return Cached(384, 6, 6), (torch.randn(5, 1, 384), *past)


MODELS: tuple[Callable[[], Made], ...] = (
    convnext, wavenet, conformer, swin, decoder, regnet,
    superresolution, dilated, diffusion, volumes, gru, lstm, vocoder, cached, beams,
)  # fmt: skip


def case(make: Callable[[], Made], *, graph: bool = False) -> Case:
    """Return a model as a row of the table, exported as a script or by `torch.export`."""
    torch.manual_seed(1)
    module, inputs = make()
    names = [f"x{i}" for i in range(len(inputs))]
    stream = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"input_names": names, "opset_version": 18 if graph else 17, "dynamo": graph}
        torch.onnx.export(module.eval(), tuple(inputs), stream, **settings)
    arrays = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
    return Case(
        make.__name__, lambda: onnx.load_from_string(stream.getvalue()), lambda: arrays, is_in_set=False
    )


def main() -> None:
    """Print a row for each network and number of threads."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[""], metavar="NAME", help="parts of names")
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each engine in a round")
    parser.add_argument("--graph", action="store_true", help="export by torch.export")
    given = parser.parse_args()
    given.peers, given.no_costs, given.accuracy = ["onnxruntime", "openvino"], True, 1e-4
    peak = peak_loop(host())
    print(heading(given.peers), flush=True)
    for make in MODELS:
        if any(part in make.__name__ for part in given.only):
            row = case(make, graph=given.graph)
            for threads in given.threads:
                print(line(measured(row, threads, peak, given)), flush=True)


if __name__ == "__main__":
    main()
