"""Instructions that add a few products of narrow numbers to a sum of 32 bits, by the features of a processor.

The one table that schedules, layouts of weights and code generators ask: schedules take the number of
products and the formats of the factors (`DotProduct`, in the order of preference), LLVM takes the
instruction (`Instruction`). They wrap, so that each gives what the plain sum gives: `pmaddwd` too,
whose one sum that is no i32 (-32768 * -32768, twice) becomes -2^31 there as here. Instructions that
saturate sums of pairs are there too (`saturates`), for who allows that.

Products of two bf16 are added to an f32, the second one first, each sum rounded to nearest: what is plainly
computed so has the same bits, but that the instruction takes numbers below 2^-126, factors and sums, for 0.
So it is for who allows products in bf16.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from inlay.arith.dtype import BF16, F32, I8, I16, I32, U8, DType


@dataclass(frozen=True, slots=True)
class DotProduct:
    """What dot-product instructions of one kind compute.

    Attributes:
        name: as boards call it, by the formats of the factors.
        width: how many products are added up.
        first, second: the formats of the factors. Narrower ones can be widened to them.
        saturates: whether sums of pairs of products become the nearest i16, so that they may be wrong.
    """

    name: str
    width: int
    first: DType
    second: DType
    saturates: bool = False

    def takes(self, a: DType, b: DType) -> bool:
        """Whether factors of two formats are of its formats, or become so by widening."""
        if self.first.is_float:
            return a is self.first and b is self.second
        return self.first.holds(a) and self.second.holds(b)

    @property
    def sums(self) -> DType:
        """The format that products are added in."""
        return F32 if self.first.is_float else I32


@dataclass(frozen=True, slots=True)
class Instruction:
    """A dot-product instruction as LLVM knows it.

    Attributes:
        kind: what it computes.
        arch: LLVM's name of the instruction set.
        features: that it needs, all of them.
        lanes: of the sum.
        intrinsic: LLVM's name.
        adds: whether it adds to a sum; otherwise an addition follows.
        operand: bits of the elements in LLVM's type of a factor.
        sums: LLVM's name of the instruction that multiplies what it gives, pairs in i16, by ones and adds
            them up; empty where it gives sums.
    """

    kind: DotProduct
    arch: str
    features: frozenset[str]
    lanes: int
    intrinsic: str
    adds: bool
    operand: int
    sums: str = ""


_U8I8 = DotProduct("u8i8", 4, U8, I8)
_I8 = DotProduct("i8", 4, I8, I8)
_U8 = DotProduct("u8", 4, U8, U8)
_U8I8_PAIRS = DotProduct("u8i8_pairs", 4, U8, I8, saturates=True)
_I16 = DotProduct("i16", 2, I16, I16)
_BF16 = DotProduct("bf16", 2, BF16, BF16)
KINDS = {k.name: k for k in (_U8I8, _I8, _U8, _U8I8_PAIRS, _I16, _BF16)}
"""By name, in the order of preference: the more products the better."""

_VNNI = ("avx512vnni avx512vl", "avxvnni")
_ROWS = (
    # kind, arch, lanes, LLVM's intrinsic, adds, operand, features of which one set is enough
    (_U8I8, "x86_64", 16, "x86.avx512.vpdpbusd.512", True, 32, ("avx512vnni",)),
    (_U8I8, "x86_64", 8, "x86.avx512.vpdpbusd.256", True, 32, _VNNI),
    (_U8I8, "x86_64", 4, "x86.avx512.vpdpbusd.128", True, 32, _VNNI),
    (_I16, "x86_64", 16, "x86.avx512.vpdpwssd.512", True, 32, ("avx512vnni",)),
    (_I16, "x86_64", 16, "x86.avx512.pmaddw.d.512", False, 16, ("avx512bw",)),
    (_I16, "x86_64", 8, "x86.avx512.vpdpwssd.256", True, 32, _VNNI),
    (_I16, "x86_64", 8, "x86.avx2.pmadd.wd", False, 16, ("avx2",)),
    (_I16, "x86_64", 4, "x86.avx512.vpdpwssd.128", True, 32, _VNNI),
    (_I16, "x86_64", 4, "x86.sse2.pmadd.wd", False, 16, ("",)),
    (_BF16, "x86_64", 16, "x86.avx512bf16.dpbf16ps.512", True, 32, ("avx512bf16",)),
    (_BF16, "x86_64", 8, "x86.avx512bf16.dpbf16ps.256", True, 32, ("avx512bf16 avx512vl",)),
    (_BF16, "x86_64", 4, "x86.avx512bf16.dpbf16ps.128", True, 32, ("avx512bf16 avx512vl",)),
    (_U8I8, "aarch64", 4, "aarch64.neon.usdot.v4i32.v16i8", True, 8, ("i8mm",)),
    (_I8, "aarch64", 4, "aarch64.neon.sdot.v4i32.v16i8", True, 8, ("dotprod",)),
    (_U8, "aarch64", 4, "aarch64.neon.udot.v4i32.v16i8", True, 8, ("dotprod",)),
)
_PAIRS = (
    # lanes, LLVM's intrinsics that multiply and that sum pairs, features
    (16, "x86.avx512.pmaddubs.w.512", "x86.avx512.pmaddw.d.512", "avx512bw"),
    (8, "x86.avx2.pmadd.ub.sw", "x86.avx2.pmadd.wd", "avx2"),
    (4, "x86.ssse3.pmadd.ub.sw.128", "x86.sse2.pmadd.wd", "ssse3"),
)
INSTRUCTIONS = (
    *(
        Instruction(kind, arch, frozenset(words.split()), lanes, intrinsic, adds, operand)
        for kind, arch, lanes, intrinsic, adds, operand, needed in _ROWS
        for words in needed
    ),
    *(
        Instruction(
            _U8I8_PAIRS, "x86_64", frozenset((feature,)), lanes, products, adds=False, operand=8, sums=sums
        )
        for lanes, products, sums, feature in _PAIRS
    ),
)
"""Of one kind, the widest first; of one width, those that add before those that do not."""


def instructions(arch: str, features: Collection[str]) -> tuple[Instruction, ...]:
    """Return the instructions of a processor."""
    have = set(features)
    return tuple(x for x in INSTRUCTIONS if x.arch == arch and x.features <= have)


def kinds(
    arch: str, features: Collection[str], said: Collection[str] = (), *, saturating: bool = False
) -> tuple[DotProduct, ...]:
    """Return the kinds that a processor has, by its features or because a board says so.

    Args:
        arch, features: of the processor, as LLVM calls them.
        said: names of kinds that a board says.
        saturating: whether those that saturate count.
    """
    found = {x.kind.name for x in instructions(arch, features)} | set(said)
    return tuple(k for name, k in KINDS.items() if name in found and (saturating or not k.saturates))
