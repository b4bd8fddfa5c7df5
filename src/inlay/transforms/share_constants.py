"""Makes equal constants one: what is laid out and packed for one of them is then for all, and kept once.

Weights that several layers share come once from most exporters and once for each use from others, and what a
pass computes of them for each use is equal as well. Small constants are compared where a program is linked.

To compare contents takes time, so arrays of one type and shape are told apart by a few of their elements
first; those that have these in common are compared as a whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace

import numpy as np

from inlay.ir.expr import Const, Expr
from inlay.ir.module import Module
from inlay.ir.walk import postorder, rewrite
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._same import SMALL_BYTES

_SAMPLED = 8
"""Elements that are compared first, at either end and in the middle."""
_STEP = 1 << 20
"""Bytes that are compared at a time."""


def run(module: Module, _context: PassContext) -> Module:
    """Share them. Cost: linear in the program, and in the bytes of arrays that are equal."""
    functions = {n: f for n, f in module.functions.items() if f.primitive is None}
    alike: dict[Hashable, list[np.ndarray]] = {}
    instead: dict[int, np.ndarray] = {}
    for array in _arrays(list(functions.values())):
        others = alike.setdefault(_sample(array), [])
        same = next((x for x in others if _is_equal(x, array)), None)
        if same is None:
            others.append(array)
        else:
            instead[id(array)] = same
    if not instead:
        return module

    def share(e: Expr) -> Expr:
        same = instead.get(id(e.held)) if isinstance(e, Const) else None
        return e if same is None else replace(e, held=same)

    memo: dict[int, Expr] = {}
    shared = {n: replace(f, body=rewrite(f.body, share, memo)) for n, f in functions.items()}
    return module.with_functions({**module.functions, **shared})


def _arrays(roots: list[Expr]) -> Iterator[np.ndarray]:
    """Yield the arrays that are looked at, each once."""
    seen: set[int] = set()
    for e in postorder(roots):
        if not isinstance(e, Const) or not isinstance(e.held, np.ndarray) or id(e.held) in seen:
            continue
        seen.add(id(e.held))
        is_plain = e.held.flags.c_contiguous and e.held.dtype != object
        if is_plain and e.held.nbytes > SMALL_BYTES:
            yield e.held


def _sample(array: np.ndarray) -> Hashable:
    flat = array.reshape(-1)
    middle = flat.size // 2
    parts = (flat[:_SAMPLED], flat[middle : middle + _SAMPLED], flat[-_SAMPLED:])
    return (array.dtype.str, array.shape, *(part.tobytes() for part in parts))


def _is_equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether arrays of one type and shape have the same bits."""
    a, b = one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8)
    steps = range(0, a.size, _STEP)
    return all(np.array_equal(a[i : i + _STEP], b[i : i + _STEP]) for i in steps)


PASS = Pass(__name__, run, "make equal constants one", requires=(Property.ANF,))
