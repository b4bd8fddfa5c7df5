"""When Winograd's form of a 3 x 3 convolution is faster than the sums as they are written.

It multiplies 16 times for a tile of four results instead of 36 times, and has to transform tiles before
and after. Transforming an element costs about as much as `TRANSFORM` multiplications of the products
(measured on Zen 3 with products in pairs of i16: 0.29 ns for an element beside 12 ps for a product), so few
channels do not pay. Transformed tiles of the input and of the result go through memory: they are to
stay in the last cache.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2015), section 4.
"""

from __future__ import annotations

TRANSFORM = 24
_TILE = 2
_DIRECT = 36
_TRANSFORMED = 16


def pays(rows: int, columns: int, c: int, oc: int, *, images: int, cache_bytes: int) -> bool:
    """Whether to take Winograd's form.

    Args:
        rows, columns: of the result.
        c, oc: channels of the input and of the result.
        images: how many.
        cache_bytes: size of the last cache of a core; 0 where there is none.
    """
    tiles = images * -(-rows // _TILE) * -(-columns // _TILE)
    transformed = _TRANSFORMED * tiles * (c * oc + TRANSFORM * (c + oc))
    direct = _DIRECT // _TILE**2 * images * rows * columns * c * oc
    held = _TRANSFORMED * tiles * (2 * c + 4 * oc)
    return transformed < direct and held <= cache_bytes
