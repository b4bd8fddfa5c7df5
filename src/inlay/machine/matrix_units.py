"""Instructions that multiply small matrices of narrow integers, by the features of a processor.

A matrix unit has registers of its own, each a small matrix, and its instructions add the product of two
of them to a third one. What one computes is a nest of loops over rows, columns and steps of a sum,

    for r < rows { for l < columns { for k < steps {
      c[r, l] = dot(j < width, c[r, l], a[r, k, j], b[k, l, j]) } } }

whose extents may be smaller than the unit's. Sums wrap as i32 do, so the order does not matter and every
machine gives the same integers. One table, as of dot products (`dot_products.py`): layouts of weights and
schedules take the extents and the formats (`MatrixProduct`), LLVM takes the instruction.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from inlay.arith.dtype import I8, U8, DType


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """What matrix instructions of one kind compute.

    Attributes:
        name: as targets call it, by the formats of the factors.
        rows, columns: of the sums, at most.
        steps: of a sum, at most.
        width: neighboring terms that are one step.
        first, second: the formats of the factors.
        registers: matrices that the unit holds at once.
    """

    name: str
    rows: int
    columns: int
    steps: int
    width: int
    first: DType
    second: DType
    registers: int


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """A matrix instruction as LLVM knows it.

    Attributes:
        kind: what it computes.
        arch: LLVM's name of the instruction set.
        features: that it needs, all of them.
        intrinsic: LLVM's name.
    """

    kind: MatrixProduct
    arch: str
    features: frozenset[str]
    intrinsic: str


TILE_FEATURES = frozenset({"amx-tile", "amx-int8"})
"""Features of processors with tiles; an operating system has to let a process use them."""

_FORMATS = (("u8i8", U8, I8), ("i8", I8, I8), ("u8", U8, U8), ("i8u8", I8, U8))
MATRIX_PRODUCTS = {name: MatrixProduct(name, 16, 16, 16, 4, a, b, 8) for name, a, b in _FORMATS}
"""By name."""

_INTRINSICS = {"u8i8": "tdpbusd", "i8": "tdpbssd", "u8": "tdpbuud", "i8u8": "tdpbsud"}
MATRIX_INSTRUCTIONS = tuple(
    MatrixInstruction(kind, "x86_64", TILE_FEATURES, f"x86.{_INTRINSICS[name]}")
    for name, kind in MATRIX_PRODUCTS.items()
)


def matrix_instructions(arch: str, features: Collection[str]) -> tuple[MatrixInstruction, ...]:
    """Return the matrix instructions of a processor."""
    have = set(features)
    return tuple(x for x in MATRIX_INSTRUCTIONS if x.arch == arch and x.features <= have)


def matrix_products(
    arch: str, features: Collection[str], said: Collection[str] = ()
) -> tuple[MatrixProduct, ...]:
    """Return the kinds that a processor has, by its features or because it is said so."""
    found = {x.kind.name for x in matrix_instructions(arch, features)} | set(said)
    return tuple(kind for name, kind in MATRIX_PRODUCTS.items() if name in found)
