"""When Winograd's form of a 3 x 3 convolution is faster than the sums as they are written.

It multiplies 16 times for a tile of four results instead of 36 times, and has to transform tiles before
and after. Transforming an element costs about as much as `TRANSFORM` multiplications of the products
(measured on Zen 3 with products in pairs of i16: 0.29 ns for an element beside 12 ps for a product), so few
channels do not pay. Transformed tiles of the input and of the result go through memory: they are to
stay in the last cache.

Floats are done block by block, and a block's temporaries stay in the second cache: `float_lines` says how
many lines of tiles make one. There, an element costs about as much to transform as `FLOAT_TRANSFORM`
multiply-adds (13 with AVX-512 at 190 GFLOP/s, less where the plain sums have few channels to run over), and
a weight that is not in the second cache about as much to load as `LOAD` of them. There are 16 weights for
9, and with tiles of 4 x 4 results 36, which read 36 elements of the input where four tiles of 2 x 2 read 64.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2015), section 4.
"""

from __future__ import annotations

SUMS_ERROR = 2e-5
"""Max abs error over max abs result that plain sums of floats have at most."""
FLOAT_ERROR = {2: 1e-4, 4: 2e-4}
"""The same of Winograd's forms of floats, by rows of a tile's results: see `ops/_winograd_forms.py`."""
ACCURACY = FLOAT_ERROR[2]
"""What is allowed where nobody says."""


def float_tiles(accuracy: float) -> tuple[int, ...]:
    """Return the tiles of Winograd's forms of floats that are as accurate as asked, by their rows."""
    return tuple(tile for tile, error in FLOAT_ERROR.items() if error <= accuracy)


TRANSFORM = 24
FLOAT_TRANSFORM = {2: 10, 4: 16}
"""By rows of a tile's results."""
LOAD = 12
RELOAD = {2: 12, 4: 1}
"""As `LOAD`, for all blocks but the first one of an image. Where blocks are of few tiles, the last cache
keeps up with products: 79 GB/s for 9 MB of weights and 5 tiles (Zen 5)."""
NEAR_TILES, FAR_TILES = {2: 10, 4: 4}, {2: 40, 4: 4}
"""In a block, at least, by rows of a tile's results: each weight is loaded once for so many, from the second
cache or from beyond. Larger tiles take more memory for each, which is to stay in the second cache:
20 x 20 x 256 takes 596 us with 5 tiles of 4 x 4 in a block and 795 with all 25 in one."""
FEWEST_BLOCKS = 4
"""That threads share; with fewer, an image is one block, and threads share each step."""
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
    held = integer_scratch(rows, columns, c, oc, images=images)
    return integer_gain(rows, columns, c, oc, images=images) > 0 and held <= cache_bytes


def integer_gain(rows: int, columns: int, c: int, oc: int, *, images: int) -> int:
    """Return how many multiply-adds Winograd's form of integers saves, less what transforms cost."""
    tiles = images * -(-rows // _TILE) * -(-columns // _TILE)
    transformed = _TRANSFORMED * tiles * (c * oc + TRANSFORM * (c + oc))
    return _DIRECT // _TILE**2 * images * rows * columns * c * oc - transformed


def integer_scratch(rows: int, columns: int, c: int, oc: int, *, images: int) -> int:
    """Return the bytes of transformed tiles: of the input in 16 bits, of the result in 32."""
    tiles = images * -(-rows // _TILE) * -(-columns // _TILE)
    return _TRANSFORMED * tiles * (2 * c + 4 * oc)


def float_lines(
    rows: int,
    columns: int,
    c: int,
    oc: int,
    *,
    images: int | None,
    l2_bytes: int,
    cache_bytes: int,
    tile: int = 2,
) -> int | None:
    """Return how many lines of tiles make a block of floats; None where the plain sums are faster.

    An open number of images may be one: where its parts would load weights too often, it is one block.

    Args:
        rows, columns: of the result.
        c, oc: channels of the input and of the result.
        images: how many; None where that is not known.
        l2_bytes: size of the second cache.
        cache_bytes: size of the last cache; 0 where there is none.
        tile: rows and columns of the result that a tile gives.
    """
    sizes = (rows, columns, c, oc)
    found = _lines(*sizes, images=images, l2_bytes=l2_bytes, cache_bytes=cache_bytes, tile=tile)
    if images is not None:
        return found
    alone = _lines(*sizes, images=1, l2_bytes=l2_bytes, cache_bytes=cache_bytes, tile=tile)
    whole = [alone] if alone == -(-rows // tile) else []
    options = [n for n in (found, *whole) if n is not None]
    return max(
        options, key=lambda n: float_gain(*sizes, n, images=1, l2_bytes=l2_bytes, tile=tile), default=None
    )


FEWEST_CHANNELS = 16
"""With fewer, transforms take longer than products by far."""


def float_options(
    rows: int,
    columns: int,
    c: int,
    oc: int,
    *,
    images: int | None,
    l2_bytes: int,
    cache_bytes: int,
    tile: int = 2,
) -> list[int]:
    """Return how many lines of tiles blocks of floats may have, whatever is faster; arguments as above."""
    if min(c, oc) < FEWEST_CHANNELS:
        return []
    usual = _usual_lines(rows, columns, c, oc, images=images, l2_bytes=l2_bytes, tile=tile)
    high = -(-rows // tile)
    found = dict.fromkeys((usual, -(-usual // 2), min(2 * usual, high), high))
    return [n for n in found if float_scratch(columns, c, oc, n, tile) <= max(cache_bytes, l2_bytes)]


def _lines(
    rows: int,
    columns: int,
    c: int,
    oc: int,
    *,
    images: int | None,
    l2_bytes: int,
    cache_bytes: int,
    tile: int,
) -> int | None:
    lines = _usual_lines(rows, columns, c, oc, images=images, l2_bytes=l2_bytes, tile=tile)
    pays_off = float_gain(rows, columns, c, oc, lines, images=images, l2_bytes=l2_bytes, tile=tile) > 0
    held = float_scratch(columns, c, oc, lines, tile)
    return lines if pays_off and held <= max(cache_bytes, l2_bytes) else None


def _usual_lines(
    rows: int, columns: int, c: int, oc: int, *, images: int | None, l2_bytes: int, tile: int
) -> int:
    """Return how many lines of tiles a block has such that weights are loaded often enough."""
    high, wide = -(-rows // tile), -(-columns // tile)
    is_far = 4 * (tile + 2) ** 2 * c * oc > l2_bytes
    least = -(-(FAR_TILES if is_far else NEAR_TILES)[tile] // wide)
    if images is None:
        least = min(least, -(-high // FEWEST_BLOCKS))
    least = min(least, high)
    # Lines behind the image cost as much as others.
    lines = min(range(least, min(2 * least, high) + 1), key=lambda n: (-(-high // n) * n, n))
    if images is not None and images * -(-high // lines) < FEWEST_BLOCKS:
        lines = high
    return lines


def float_gain(
    rows: int, columns: int, c: int, oc: int, lines: int, *, images: int | None, l2_bytes: int, tile: int = 2
) -> int:
    """Return how many multiply-adds Winograd's form of floats saves by blocks of so many lines of tiles.

    Loads of weights and transforms are counted as multiply-adds that take as long.
    """
    high, wide = -(-rows // tile), -(-columns // tile)
    blocks, terms = -(-high // lines), (tile + 2) ** 2
    count = images or 1
    is_far = 4 * terms * c * oc > l2_bytes
    transformed = terms * count * blocks * lines * wide * (c * oc + FLOAT_TRANSFORM[tile] * (c + oc))
    direct = _DIRECT // _TILE**2 * c * oc * (count * rows * columns + LOAD * is_far)
    # Each block loads all weights anew.
    loads = (LOAD + RELOAD[tile] * (count * blocks - 1)) * is_far
    return direct - transformed - terms * c * oc * loads


PAIRS_TRANSFORM = 12
"""As `FLOAT_TRANSFORM` of tiles of 4 x 4 results, beside an instruction that adds two products of bf16."""
FAR_BYTES = 1 << 20
"""Transformed weights that no second cache holds, about."""


def beats_pairs(rows: int, columns: int, c: int, oc: int, *, images: int = 1) -> bool:
    """Whether F(4, 3) of floats is faster than plain sums by an instruction that adds two products of bf16.

    It depends on no processor, as what is rounded to bf16 does not. Microseconds on a Zen 5, F(4, 3) and
    plain: 128 x 128 x 32 to 32 496, 631; 64 x 64 x 64 to 64 425, 590; 32 x 32 x 128 to 128 430, 590; 28 x 28
    x 128 to 128 420, 444; 16 x 16 x 256 to 256 686, 557; 7 x 7 x 512 to 512 770, 470.

    Args:
        rows, columns: of the result.
        c, oc: channels of the input and of the result.
        images: how many.
    """
    if min(c, oc) < FEWEST_CHANNELS:
        return False
    tile = max(FLOAT_TRANSFORM)
    terms, tiles = (tile + 2) ** 2, images * -(-rows // tile) * -(-columns // tile)
    loads = LOAD * terms * c * oc if 4 * terms * c * oc > FAR_BYTES else 0
    transformed = terms * tiles * (c * oc + PAIRS_TRANSFORM * (c + oc))
    in_pairs = _DIRECT // _TILE**2 * images * rows * columns * c * oc // 2
    return 8 * (transformed + loads) <= 7 * in_pairs


def float_scratch(columns: int, c: int, oc: int, lines: int, tile: int = 2) -> int:
    """Return the bytes of a block: of transformed tiles, of the input and of the result, and of the lines
    that they are made of, as they are and transformed once.
    """
    wide = -(-columns // tile)
    read = (tile * lines + 2 + lines * (tile + 2)) * (tile * wide + 2) * c
    return 4 * ((tile + 2) ** 2 * lines * wide * (c + oc) + read)
