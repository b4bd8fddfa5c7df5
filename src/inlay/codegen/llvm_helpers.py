"""Functions that emitted code calls because they are loops: one text each, internal linkage."""

from __future__ import annotations

from collections.abc import Iterable

# The remainder by long division: subtract the largest y * 2^k that fits, which is exact because
# both have the same leading bit (Sterbenz). At most as many steps as there are quotient bits.
_FMOD = """\
define internal double @inlay.fmod(double %x, double %y) noinline nounwind "no-builtins" {
entry:
  %ax = call double @llvm.fabs.f64(double %x)
  %ay = call double @llvm.fabs.f64(double %y)
  %nan = fcmp uno double %x, %y
  %infinite = fcmp oeq double %ax, 0x7FF0000000000000
  %zero = fcmp oeq double %ay, 0.0
  %bad0 = or i1 %nan, %infinite
  %bad = or i1 %bad0, %zero
  br i1 %bad, label %invalid, label %valid
invalid:
  ret double 0x7FF8000000000000
valid:
  %yb = bitcast double %ay to i64
  %ye = lshr i64 %yb, 52
  %normal = icmp ne i64 %ye, 0
  %yz = call i64 @llvm.ctlz.i64(i64 %yb, i1 false)
  %ys = sub i64 %yz, 11
  %yshift = select i1 %normal, i64 0, i64 %ys
  %yfull = shl i64 %yb, %yshift
  %ymant = and i64 %yfull, 4503599627370495
  br label %head
head:
  %r = phi double [ %ax, %valid ], [ %less, %step ]
  %more = fcmp oge double %r, %ay
  br i1 %more, label %step, label %done
step:
  %rb = bitcast double %r to i64
  %re = lshr i64 %rb, 52
  %top = and i64 %rb, 9218868437227405312
  %aligned = or i64 %top, %ymant
  %rz = call i64 @llvm.ctlz.i64(i64 %rb, i1 false)
  %gap = sub i64 %yz, %rz
  %gapsafe = and i64 %gap, 63
  %moved = shl i64 %yb, %gapsafe
  %subnormal = icmp eq i64 %re, 0
  %mb = select i1 %subnormal, i64 %moved, i64 %aligned
  %m = bitcast i64 %mb to double
  %over = fcmp ogt double %m, %r
  %half = fmul double %m, 5.0e-1
  %fits = select i1 %over, double %half, double %m
  %less = fsub double %r, %fits
  br label %head
done:
  %result = call double @llvm.copysign.f64(double %r, double %x)
  ret double %result
}
"""

# The same of vectors. Where a quotient is below 2^52 it is rounded up to the next whole number at most, and
# what is left of x has no more bits than y: one multiply-add gives it exactly, and y is added where that was
# one too many.
_FMOD_LANES = """\
define internal {v} @inlay.fmod.{n}({v} %x, {v} %y) noinline nounwind "no-builtins" {{
entry:
  %ax = call {v} @llvm.fabs.v{n}f64({v} %x)
  %ay = call {v} @llvm.fabs.v{n}f64({v} %y)
  %quotient = fdiv {v} %ax, %ay
  %small = fcmp olt {v} %quotient, {limit}
  %finite = fcmp olt {v} %ay, {infinity}
  %plain = and <{n} x i1> %small, %finite
  %all = call i1 @llvm.vector.reduce.and.v{n}i1(<{n} x i1> %plain)
  br i1 %all, label %fast, label %slow
fast:
  %whole = call {v} @llvm.trunc.v{n}f64({v} %quotient)
  %less = fneg {v} %whole
  %left = call {v} @llvm.fma.v{n}f64({v} %less, {v} %ay, {v} %ax)
  %under = fcmp olt {v} %left, zeroinitializer
  %next = fadd {v} %left, %ay
  %rest = select <{n} x i1> %under, {v} %next, {v} %left
  %result = call {v} @llvm.copysign.v{n}f64({v} %rest, {v} %x)
  ret {v} %result
slow:
{lanes}
  ret {v} %r{n}
}}
"""
_FMOD_LANE = """\
  %x{i} = extractelement {v} %x, i32 {i}
  %y{i} = extractelement {v} %y, i32 {i}
  %m{i} = call double @inlay.fmod(double %x{i}, double %y{i})
  %r{j} = insertelement {v} {before}, double %m{i}, i32 {i}"""

# The first 1216 bits of 2/pi after the point, behind a word of zeros for small exponents.
_TWO_OVER_PI = (
    0x0000000000000000,
    0xA2F9836E4E441529,
    0xFC2757D1F534DDC0,
    0xDB6295993C439041,
    0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0,
    0x06492EEA09D1921C,
    0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484,
    0xE99C7026B45F7E41,
    0x3991D639835339F4,
    0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F,
    0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA,
    0x6BFB5FB11F8D5D08,
    0x56033046FC7B6BAB,
)

# What is left of a large number after its multiples of pi/2 (Payne and Hanek): with x = m * 2^e,
# the bits of 2/pi whose product with x is a multiple of 4 are skipped and the next 192 are
# multiplied by m. The product has the quadrant in bits 191 and 190 and the fraction below.
_REDUCE = f"""\
@inlay.two_over_pi = private unnamed_addr constant [20 x i64] \
[{", ".join(f"i64 {w}" for w in _TWO_OVER_PI)}], align 8
define internal {{ double, i64 }} @inlay.reduce(double %x) noinline nounwind "no-builtins" {{
entry:
  %bits = bitcast double %x to i64
  %field = lshr i64 %bits, 52
  %exponent = and i64 %field, 2047
  %finite = icmp ne i64 %exponent, 2047
  br i1 %finite, label %reduce, label %invalid
invalid:
  ret {{ double, i64 }} {{ double 0x7FF8000000000000, i64 0 }}
reduce:
  %low52 = and i64 %bits, 4503599627370495
  %m = or i64 %low52, 4503599627370496
  %start = add i64 %exponent, -1013
  %word = lshr i64 %start, 6
  %shift = and i64 %start, 63
  %p0 = getelementptr i64, ptr @inlay.two_over_pi, i64 %word
  %p1 = getelementptr i8, ptr %p0, i64 8
  %p2 = getelementptr i8, ptr %p0, i64 16
  %p3 = getelementptr i8, ptr %p0, i64 24
  %t0 = load i64, ptr %p0, align 8
  %t1 = load i64, ptr %p1, align 8
  %t2 = load i64, ptr %p2, align 8
  %t3 = load i64, ptr %p3, align 8
  %w2 = call i64 @llvm.fshl.i64(i64 %t0, i64 %t1, i64 %shift)
  %w1 = call i64 @llvm.fshl.i64(i64 %t1, i64 %t2, i64 %shift)
  %w0 = call i64 @llvm.fshl.i64(i64 %t2, i64 %t3, i64 %shift)
  %mw = zext i64 %m to i128
  %w0w = zext i64 %w0 to i128
  %w1w = zext i64 %w1 to i128
  %a0 = mul i128 %mw, %w0w
  %a1 = mul i128 %mw, %w1w
  %a2 = mul i64 %m, %w2
  %a0h = lshr i128 %a0, 64
  %mid = add i128 %a1, %a0h
  %l1 = trunc i128 %mid to i64
  %midh = lshr i128 %mid, 64
  %carry = trunc i128 %midh to i64
  %l2 = add i64 %a2, %carry
  %q = lshr i64 %l2, 62
  %l2w = zext i64 %l2 to i128
  %l1w = zext i64 %l1 to i128
  %l2s = shl i128 %l2w, 66
  %l1s = shl i128 %l1w, 2
  %f = or i128 %l2s, %l1s
  %negative = icmp slt i128 %f, 0
  %up = zext i1 %negative to i64
  %quadrant = add i64 %q, %up
  %fneg = sub i128 0, %f
  %size = select i1 %negative, i128 %fneg, i128 %f
  %zeros = call i128 @llvm.ctlz.i128(i128 %size, i1 false)
  %safe = and i128 %zeros, 127
  %normal = shl i128 %size, %safe
  %top = lshr i128 %normal, 64
  %topw = trunc i128 %top to i64
  %value = uitofp i64 %topw to double
  %zeros64 = trunc i128 %zeros to i64
  %scale0 = sub i64 959, %zeros64
  %scale1 = shl i64 %scale0, 52
  %scale = bitcast i64 %scale1 to double
  %fraction = fmul double %value, %scale
  %r0 = fmul double %fraction, 0x3FF921FB54442D18
  %sign = select i1 %negative, double -1.0, double 1.0
  %r1 = fmul double %r0, %sign
  %below = icmp slt i64 %bits, 0
  %rneg = fneg double %r1
  %qneg = sub i64 0, %quadrant
  %r = select i1 %below, double %rneg, double %r1
  %n = select i1 %below, i64 %qneg, i64 %quadrant
  %out0 = insertvalue {{ double, i64 }} poison, double %r, 0
  %out = insertvalue {{ double, i64 }} %out0, i64 %n, 1
  ret {{ double, i64 }} %out
}}
"""

# Squares and products by the bits of the exponent; both operands modulo 2^64.
_IPOW = """\
define internal i64 @inlay.ipow(i64 %x, i64 %y) noinline nounwind "no-builtins" {
entry:
  br label %head
head:
  %square = phi i64 [ %x, %entry ], [ %next_square, %step ]
  %left = phi i64 [ %y, %entry ], [ %next_left, %step ]
  %power = phi i64 [ 1, %entry ], [ %next_power, %step ]
  %done = icmp eq i64 %left, 0
  br i1 %done, label %end, label %step
step:
  %bit = trunc i64 %left to i1
  %product = mul i64 %power, %square
  %next_power = select i1 %bit, i64 %product, i64 %power
  %next_square = mul i64 %square, %square
  %next_left = lshr i64 %left, 1
  br label %head
end:
  ret i64 %power
}
"""


def _fmod_lanes(n: int) -> str:
    """Return the definition of the remainder of n lanes, which calls that of one."""
    v = f"<{n} x double>"

    def all_of(number: str) -> str:
        return f"<{', '.join([f'double {number}'] * n)}>"

    lanes = "\n".join(
        _FMOD_LANE.format(v=v, i=i, j=i + 1, before=f"%r{i}" if i else "poison") for i in range(n)
    )
    limit, infinity = all_of("0x4330000000000000"), all_of("0x7FF0000000000000")
    return _FMOD_LANES.format(n=n, v=v, limit=limit, infinity=infinity, lanes=lanes)


FMOD_LANES = 8
"""Most lanes of one call of the remainder."""
HELPERS = {
    "fmod": _FMOD,
    "ipow": _IPOW,
    "reduce": _REDUCE,
    **{f"fmod.{n}": _fmod_lanes(n) for n in (2, 4, FMOD_LANES)},
}


def helper_text(names: Iterable[str]) -> str:
    """Return the definitions of helpers, sorted by name."""
    return "".join(HELPERS[name] for name in sorted(names))
