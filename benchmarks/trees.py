"""Binary Tree-LSTMs over parse trees, for `dynamic.py`: recursion in the text language and in PyTorch.

A leaf looks its word up; an inner node of one child takes zeros for the other. The weights are
constants of the program. The answer is the state of the root.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inlay.analysis.infer_types import infer_types
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ops.table import table

WORDS = 997

_NODE = """
  let words = f32[{words}, {d}](#"words");
  let node = fn(i: some int i. int[i]) -> (Tensor[1, {h}, f32], Tensor[1, {h}, f32]) {{
    let l: some int l. int[l] = to_control(get_row(left, int(i)));
    let r: some int r. int[r] = to_control(get_row(right, int(i)));
    if (int_less(int(l), int(0))) {{
      let word: some int t. int[t] = to_control(get_row(tokens, int(i)));
      let x = reshape(get_row(words, int(t)), shape(1, {d}));
      let gates = add(matmul(x, f32[{d}, {h3}](#"leaf")), f32[{h3}](#"leaf_bias"));
      let parts = split{{axis=1}}(gates, shape({h}, {h}, {h}));
      let c = mul(sigmoid(parts.0), tanh(parts.2));
      (mul(sigmoid(parts.1), tanh(c)), c)
    }} else {{
      let a = node(int(l));
      let b = if (int_less(int(r), int(0))) {{
        (zeros(shape(1, {h})), zeros(shape(1, {h})))
      }} else {{
        node(int(r))
      }};
      let both = concat{{axis=1}}(a.0, b.0);
      let gates = add(matmul(both, f32[{h2}, {h5}](#"inner")), f32[{h5}](#"inner_bias"));
      let parts = split{{axis=1}}(gates, shape({h}, {h}, {h}, {h}, {h}));
      let kept = add(mul(sigmoid(parts.1), a.1), mul(sigmoid(parts.2), b.1));
      let c = add(mul(sigmoid(parts.0), tanh(parts.4)), kept);
      (mul(sigmoid(parts.3), tanh(c)), c)
    }}
  }};
"""

_TREE = (
    """
fn main<n>(tokens: Tensor[n, i64], left: Tensor[n, i64], right: Tensor[n, i64])
    -> (Tensor[1, {h}, f32], Tensor[1, {h}, f32]) {{"""
    + _NODE
    + """  node(int(n - 1))
}}

entry main("tokens", "left", "right") -> ("h", "c");
"""
)

_FOREST = (
    """
fn main<n, m>(tokens: Tensor[n, i64], left: Tensor[n, i64], right: Tensor[n, i64],
              roots: Tensor[m, i64]) -> Tensor[m, 1, {h}, f32] {{"""
    + _NODE
    + """  let grow = fn<i>(i: int[i], done: Tensor[m, 1, {h}, f32]) -> Tensor[m, 1, {h}, f32] {{
    if (int_less(int(i), int(m))) {{
      let root: some int r. int[r] = to_control(get_row(roots, int(i)));
      let state = node(int(r));
      grow(int(i + 1), set_row(done, int(i), state.0))
    }} else {{ done }}
  }};
  grow(int(0), zeros(shape(m, 1, {h})))
}}

entry main("tokens", "left", "right", "roots") -> ("h");
"""
)


@dataclass(frozen=True)
class Weights:
    """Of one Tree-LSTM: `words` [WORDS, d], `leaf` [d, 3h], `inner` [2h, 5h], and biases."""

    words: np.ndarray
    leaf: np.ndarray
    leaf_bias: np.ndarray
    inner: np.ndarray
    inner_bias: np.ndarray


def weights(d: int, h: int) -> Weights:
    """Return random weights of these widths."""
    rng = np.random.default_rng(11)

    def noise(*dims: int) -> np.ndarray:
        return (rng.standard_normal(dims) / np.sqrt(dims[0])).astype(np.float32)

    return Weights(noise(WORDS, d), noise(d, 3 * h), noise(3 * h), noise(2 * h, 5 * h), noise(5 * h))


def program(w: Weights, *, forest: bool = False) -> Module:
    """Return the program of a Tree-LSTM, over one tree or over many laid out behind each other."""
    d, h = w.words.shape[1], w.leaf.shape[1] // 3
    text = (_FOREST if forest else _TREE).format(words=WORDS, d=d, h=h, h2=2 * h, h3=3 * h, h5=5 * h)
    resources = {name: getattr(w, name) for name in w.__dataclass_fields__}
    return infer_types(parse_module(text, table(), resources=resources))


def load(folder: Path, count: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return tokens, left and right children of real parse trees, children before parents.

    A token that is not there is word 0: inner nodes have none, and some leaves are empty.
    """
    found = [t for path in sorted(folder.glob("*.json")) for t in json.loads(path.read_text())["trees"]]
    return [(np.maximum(t["token"], 0), np.array(t["left"]), np.array(t["right"])) for t in found[:count]]


def joined(
    trees: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the nodes of all trees behind each other, and where the roots are."""
    ends = np.cumsum([len(tree[0]) for tree in trees])
    starts = ends - [len(tree[0]) for tree in trees]
    moved = [
        (tokens, *(np.where(child < 0, child, child + start) for child in children))
        for (tokens, *children), start in zip(trees, starts, strict=True)
    ]
    tokens, left, right = (np.concatenate(parts) for parts in zip(*moved, strict=True))
    return tokens, left, right, ends - 1


def torch_call(
    trees: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], w: Weights
) -> Callable[[], Sequence[np.ndarray]] | str:
    """Return a call that runs the trees in eager PyTorch, on one thread."""
    if importlib.util.find_spec("torch") is None:
        return "not installed"
    import torch

    torch.set_num_threads(1)
    words, leaf, leaf_bias, inner, inner_bias = (
        torch.from_numpy(getattr(w, name)) for name in w.__dataclass_fields__
    )
    nothing = torch.zeros(1, leaf.shape[1] // 3)
    lists = [tuple(part.tolist() for part in tree) for tree in trees]

    def node(tree: tuple[list[int], ...], i: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, left, right = tree
        if left[i] < 0:
            x = words[tokens[i]].unsqueeze(0)
            up, out, new = torch.addmm(leaf_bias, x, leaf).chunk(3, 1)
            c = torch.sigmoid(up) * torch.tanh(new)
            return torch.sigmoid(out) * torch.tanh(c), c
        a_h, a_c = node(tree, left[i])
        b_h, b_c = (nothing, nothing) if right[i] < 0 else node(tree, right[i])
        gates = torch.addmm(inner_bias, torch.cat((a_h, b_h), 1), inner)
        up, first, second, out, new = gates.chunk(5, 1)
        kept = torch.sigmoid(first) * a_c + torch.sigmoid(second) * b_c
        c = torch.sigmoid(up) * torch.tanh(new) + kept
        return torch.sigmoid(out) * torch.tanh(c), c

    def call() -> Sequence[np.ndarray]:
        with torch.no_grad():
            return [x.numpy() for tree in lists for x in node(tree, len(tree[0]) - 1)]

    return call


def _levels(left: Sequence[int], right: Sequence[int]) -> list[list[int]]:
    """Return the nodes of each height, leaves first; children come before parents."""
    heights: list[int] = []
    for a, b in zip(left, right, strict=True):
        below = [heights[child] for child in (a, b) if child >= 0]
        heights.append(1 + max(below, default=-1))
    return [[i for i, height in enumerate(heights) if height == k] for k in range(max(heights) + 1)]


def torch_levels_call(
    forest: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], w: Weights
) -> Callable[[], Sequence[np.ndarray]] | str:
    """Return a call that runs all nodes of a height as one batch in PyTorch, on one thread.

    Which nodes those are is worked out before anything is timed.
    """
    if importlib.util.find_spec("torch") is None:
        return "not installed"
    import torch

    torch.set_num_threads(1)
    words, leaf, leaf_bias, inner, inner_bias = (
        torch.from_numpy(getattr(w, name)) for name in w.__dataclass_fields__
    )
    tokens, left, right, roots = forest
    nothing, width = len(tokens), leaf.shape[1] // 3
    leaves, *above = [torch.tensor(x) for x in _levels(left.tolist(), right.tolist())]
    kinds = torch.from_numpy(tokens)[leaves]
    children = [
        (level, *(torch.from_numpy(np.where(x < 0, nothing, x))[level] for x in (left, right)))
        for level in above
    ]
    ends = torch.from_numpy(roots)

    def call() -> Sequence[np.ndarray]:
        with torch.no_grad():
            h, c = torch.zeros(nothing + 1, width), torch.zeros(nothing + 1, width)
            up, out, new = torch.addmm(leaf_bias, words[kinds], leaf).chunk(3, 1)
            state = torch.sigmoid(up) * torch.tanh(new)
            c[leaves], h[leaves] = state, torch.sigmoid(out) * torch.tanh(state)
            for level, a, b in children:
                gates = torch.addmm(inner_bias, torch.cat((h[a], h[b]), 1), inner)
                up, first, second, out, new = gates.chunk(5, 1)
                kept = torch.sigmoid(first) * c[a] + torch.sigmoid(second) * c[b]
                state = torch.sigmoid(up) * torch.tanh(new) + kept
                c[level], h[level] = state, torch.sigmoid(out) * torch.tanh(state)
            return [h[ends].unsqueeze(1).numpy()]

    return call
