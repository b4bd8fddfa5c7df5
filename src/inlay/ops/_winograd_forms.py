"""Winograd's forms of a 3 x 3 convolution of floats: what a tile gives, and by which sums.

F(m x m, 3 x 3) takes `(m + 2)^2` products for a tile of `m x m` results:

    Y = A^T [(G w G^T) * (B^T x B)] A        * = element by element

A, B and G evaluate polynomials at `m + 1` points and at infinity. F(2, 3) has the points 0, 1 and -1: A and
B hold 0, 1 and -1, G holds halves. It takes 4 products for a result where the sums as written take 9.

F(4, 3) takes 2.25. Its points decide its rounding: 0, 1, -1, 2 and -2, as in Lavin and Gray, make elements
of very different sizes. Here they are 0, +-1/sqrt(2) and +-sqrt(2). They come in pairs of `p` and `-p`, so
both share an even and an odd part, and the product of the two sizes is 1, so that numbers in B are small and
those that matter exact: 1/2, 2 and 5/2. Drawn tensors of 256 channels (normal, max abs error over max
abs result, in f32): 2.5e-6, where 0, 1, -1, 2, -2 gives 1.1e-5 and plain sums 1.6e-6.

Sources: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2015); Barabasz and others, Error
Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks (2018), on points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from inlay.arith.dtype import F32
from inlay.arith.expr import Int
from inlay.loop import te
from inlay.ops._build import Array

Element = Callable[[int], te.ScalarValue]
"""An element of a line, by its position."""


@dataclass(frozen=True, slots=True, eq=False)
class WinogradForm:
    """F(tile x tile, 3 x 3).

    Attributes:
        tile: rows and columns of the result that a tile gives.
        weights: G, `[tile + 2, 3]`.
        input: B^T, `[tile + 2, tile + 2]`.
        result: A^T, `[tile, tile + 2]`.
        input_terms: the elements of a transformed line: the rows of B^T times it.
        result_terms: the elements of a line of the result: the rows of A^T times a transformed one.
    """

    tile: int
    weights: Array
    input: Array
    result: Array
    input_terms: Callable[[Element], Sequence[te.ScalarValue]]
    result_terms: Callable[[Element], Sequence[te.ScalarValue]]

    @property
    def side(self) -> int:
        """Rows and columns of the input that a tile reads."""
        return self.tile + 2

    def weight_line(self, which: Int, w: Element) -> te.ScalarValue:
        """Return an element of the line that three weights give."""
        return chosen(which, [_sum(row, w) for row in self.weights])

    def input_line(self, which: Int, d: Element) -> te.ScalarValue:
        """Return an element of a transformed line of the input."""
        return chosen(which, self.input_terms(d))

    def result_line(self, which: Int, m: Element) -> te.ScalarValue:
        """Return an element of the line of results that a transformed one gives."""
        return chosen(which, self.result_terms(m))


def chosen(which: Int, values: Sequence[te.ScalarValue]) -> te.ScalarValue:
    """Return one of several values; loops over `which` are written out, which settles the choice."""
    value = values[-1]
    for i in reversed(range(len(values) - 1)):
        value = te.select(te.index(which).equals(te.index(i)), values[i], value)
    return value


def _sum(row: Array, w: Element) -> te.ScalarValue:
    terms = [w(s) * te.const(float(c), F32) for s, c in enumerate(row) if c]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _two() -> WinogradForm:
    return WinogradForm(
        2,
        np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
        np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]),
        np.array([[1, 1, 1, 0], [0, 1, -1, -1]]),
        lambda d: (d(0) - d(2), d(1) + d(2), d(2) - d(1), d(1) - d(3)),
        lambda m: (m(0) + m(1) + m(2), m(1) - m(2) - m(3)),
    )


_P, _Q = 0.5**0.5, 2**0.5
"""The sizes of the points of F(4, 3); their product is 1, their squares are 1/2 and 2, which add to 5/2."""


def _four() -> WinogradForm:
    sizes = (0.0, _P, -_P, _Q, -_Q)
    points, others = np.array(sizes), [[q for q in sizes if q != p] for p in sizes]
    scales = np.array([prod(p - q for q in rest) for p, rest in zip(sizes, others, strict=True)])
    end = np.zeros((1, 3))
    end[0, 2] = 1
    rows = [np.append(np.poly(rest)[::-1], 0) for rest in others]
    return WinogradForm(
        4,
        np.vstack([np.vander(points, 3, increasing=True) / scales[:, None], end]),
        np.vstack([*rows, np.poly(points)[::-1]]),
        np.vstack([np.vander(points, 4, increasing=True), [0, 0, 0, 1]]).T,
        _four_inputs,
        _four_results,
    )


def _four_inputs(d: Element) -> tuple[te.ScalarValue, ...]:
    p, q, half, two, both = (te.const(c, F32) for c in (_P, _Q, _P * _P, _Q * _Q, _P * _P + _Q * _Q))
    even, odd = d(4) - d(2) * two, (d(3) - d(1) * two) * p
    far_even, far_odd = d(4) - d(2) * half, (d(3) - d(1) * half) * q
    return (
        d(0) + d(4) - d(2) * both,
        even + odd,
        even - odd,
        far_even + far_odd,
        far_even - far_odd,
        d(1) + d(5) - d(3) * both,
    )


def _four_results(m: Element) -> tuple[te.ScalarValue, ...]:
    near, far = m(1) + m(2), m(3) + m(4)
    near_odd, far_odd = m(1) - m(2), m(3) - m(4)
    one, two, three = ([te.const(c**k, F32) for c in (_P, _Q)] for k in (1, 2, 3))
    return (
        m(0) + near + far,
        near_odd * one[0] + far_odd * one[1],
        near * two[0] + far * two[1],
        near_odd * three[0] + far_odd * three[1] + m(5),
    )


FORMS = {form.tile: form for form in (_two(), _four())}
"""The forms, by the size of a tile."""
