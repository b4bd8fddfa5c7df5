"""Positions of tokens as angles: pairs of numbers of each head are turned by them.

Terms of the shapes: B sequences of S tokens; N heads of H numbers, of which R are turned, in R/2 pairs.

Source: RotaryEmbedding of ONNX; Su et al., "RoFormer" (2021).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlay.arith.expr import lit
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, concat, term
from inlay.importers.onnx.values import OnnxValue


def split_heads(x: Term, count: int) -> Term:
    """Turn `[B, S, N*H]` into `[B, S, N, H]`."""
    width = x.shape[2].value
    if width is None or count < 1 or width % count:
        raise x.node.invalid(f"has {count} heads for {x.shape[2]} numbers")
    return x.reshape(x.shape[0], x.shape[1], count, width // count)


def rotated(x: Term, cos: Term, sin: Term, *, interleaved: bool) -> Term:
    """Turn the first numbers of each head by the angles of its position, in pairs.

    Args:
        x: `[..., H]`.
        cos: cosines that broadcast with `[..., R/2]`.
        sin: sines of that shape.
        interleaved: whether pairs are neighbors; else they are number i and number i + R/2.
    """
    *dims, size = x.shape
    last, half = x.rank - 1, cos.shape[-1]
    count = half * 2
    first = x if size == count else x.part(last, 0, count)
    if interleaved:
        pairs = first.reshape(*dims, half, 2)
        a, b = pairs.at(last + 1, 0), pairs.at(last + 1, 1)
        both = [t.reshape(*dims, half, 1) for t in (a * cos - b * sin, a * sin + b * cos)]
        y = concat(both, last + 1).reshape(*dims, count)
    else:
        a, b = first.part(last, 0, half), first.part(last, half, count)
        y = concat([a * cos - b * sin, a * sin + b * cos], last)
    return y if size == count else concat([y, x.part(last, count, size)], last)


def rotated_heads(x: Term, cos: Term, sin: Term, *, steps: int, interleaved: bool) -> Term:
    """Turn heads, of which `steps` is the axis of the tokens, by angles `[B or 1, S, R/2]`."""
    dims = list(cos.shape)
    dims.insert(3 - steps, lit(1))
    return rotated(x, cos.reshape(*dims), sin.reshape(*dims), interleaved=interleaved)


def _rotary(node: Node) -> OnnxValue:
    """Inputs: x `[B, N, S, H]` or `[B, S, N*H]`; cosines and sines.

    These are `[B, S, R/2]`, or `[positions, R/2]` where there are positions `[B, S]`.
    """
    x, tables = term(node, 0), [term(node, i) for i in (1, 2)]
    _check(node, x, tables)
    if node.has(3):
        tables = [table.gather(term(node, 3)) for table in tables]
    y, steps = (split_heads(x, node.int("num_heads", 0)), 1) if x.rank == 3 else (x, 2)
    said, half = node.int("rotary_embedding_dim", 0), tables[0].shape[-1]
    turned = lit(said) if said else y.shape[3]
    if (turned - half * 2).value not in (0, None):
        raise node.invalid(f"turns {turned} numbers by angles for {half * 2}")
    y = rotated_heads(y, *tables, steps=steps, interleaved=node.flag("interleaved"))
    return y.reshape(*x.shape).value


def _check(node: Node, x: Term, tables: Sequence[Term]) -> None:
    for name in ("num_heads", "rotary_embedding_dim"):
        if node.int(name, 0) < 0:
            raise node.invalid(f"has {name} = {node.int(name, 0)}, needed at least 0")
    if x.rank not in (3, 4):
        raise node.invalid(f"has an input of rank {x.rank}, needed 3 or 4")
    count = node.int("num_heads", 0)
    if x.rank == 4 and count and x.shape[1].value not in (count, None):
        raise node.invalid(f"has num_heads = {count} and {x.shape[1]} heads in input 0")
    needed = 2 if node.has(3) else 3
    for table in tables:
        if table.rank != needed:
            raise node.invalid(f"has angles of rank {table.rank}, needed {needed}")


RULES: Mapping[str, Rule] = {"RotaryEmbedding": _rotary}
