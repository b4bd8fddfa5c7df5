"""Broadcasting along axes that the model does not name.

In the IR a dim that is a symbol never broadcasts silently: it must equal its partner, which the
program checks. That fits axes with names. An input axis without one may have a single element that
is meant to be repeated, so where such an axis meets a known size it is stretched: read at
`min(i, n - 1)`, which is the same element over and over if n is 1 and changes nothing if n fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inlay.arith.expr import Int, Sym
from inlay.ir.expr import Const, Expr
from inlay.ir.types import ShapeType, TensorType

Stretch = Callable[[Expr, int, int], Expr]
"""Stretch an axis of a tensor, counted from the end, to a size."""


def stretched(args: Sequence[Expr], unnamed: frozenset[Sym], stretch: Stretch) -> list[Expr]:
    """Return operands of a broadcasting operator that fit each other along unnamed axes."""
    sizes = _known_sizes(args)
    out: list[Expr] = []
    for e in args:
        if isinstance(e.type, TensorType):
            for back, dim in enumerate(reversed(e.type.shape), 1):
                size = sizes.get(back)
                if size is not None and _is_unnamed(dim, unnamed):
                    e = stretch(e, back, size)
        out.append(e)
    return out


def _known_sizes(args: Sequence[Expr]) -> dict[int, int]:
    """Return the sizes other than 1 that are numbers, by axis counted from the end."""
    sizes: dict[int, int] = {}
    for e in args:
        dims: Sequence[Int | None] = ()
        if isinstance(e.type, TensorType):
            dims = e.type.shape
        elif isinstance(e.type, ShapeType) and isinstance(e, Const):
            dims = e.type.values
        for back, dim in enumerate(reversed(dims), 1):
            if dim is not None and dim.value is not None and dim.value != 1:
                sizes.setdefault(back, dim.value)
    return sizes


def _is_unnamed(dim: Int, unnamed: frozenset[Sym]) -> bool:
    return isinstance(dim.atom, Sym) and dim.atom in unnamed
