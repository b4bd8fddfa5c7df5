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

_HELPERS = {"fmod": _FMOD}


def helper_text(names: Iterable[str]) -> str:
    """Return the definitions of helpers, sorted by name."""
    return "".join(_HELPERS[name] for name in sorted(names))
