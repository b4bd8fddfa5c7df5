"""Scalar expressions of the loop IR.

    s ::= 1.5:f32            Lit       a number
        | i*4 + j            Index     an integer expression over loop variables and dims, as i64
        | A[i, j]            Load
        | x                  Name      a scalar bound by `let`
        | -s, sqrt(s), ...   Unary
        | s + s, s < s, ...  Binary
        | select(c, s, s)    Select    both sides are evaluated; the loads in them must be in bounds
                                       only on the side that is chosen (a load guarded by its own
                                       select is legal: code generators mask or branch)
        | f32(s)             Cast
        | fma(a, b, c), ...  Intrinsic
        | dot(j < 4, s, s, s) Dot      a sum of products of narrow numbers added to an i32 or f32
        | dot_saturating(..)           the same, sums of pairs of products as the nearest i16
        | let x = s in s     Bind      an i64 scalar that indices of the body may use (gather)
        | sum(k < n) s       Reduce    only in tensor expressions, at the top of a compute

Integer arithmetic wraps. Integer division and remainder truncate toward zero (`DIV`, `REM`);
`FLOORDIV` and `FLOORMOD` round toward minus infinity; all are undefined for a zero divisor. Shifts
by the width or more give 0 (or the sign). Float operations are IEEE, round to nearest; `MIN`/`MAX`
propagate NaN. Float to integer casts truncate; out of range is undefined and must be clamped first.
Reassociation is never done behind the schedule's back: the order of a sum is the order of its loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inlay.arith.dtype import I64, DType
from inlay.arith.expr import Int, Sym
from inlay.loop.buffer import Buffer


class UnaryOp(StrEnum):
    """Operations on one value; the result has the operand's dtype, for `NOT` bool."""

    NEG = "neg"
    ABS = "abs"
    NOT = "not"
    BITNOT = "bitnot"
    SQRT = "sqrt"
    FLOOR = "floor"
    CEIL = "ceil"
    TRUNC = "trunc"
    ROUND_EVEN = "round_even"


class BinaryOp(StrEnum):
    """Operations on two values of one dtype; comparisons give bool."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    REM = "rem"
    FLOORDIV = "floordiv"
    FLOORMOD = "floormod"
    MIN = "min"
    MAX = "max"
    MAX_NUMBER = "max_number"  # the greater one; the first where either is NaN
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHL = "shl"
    SHR = "shr"
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"


COMPARISONS = frozenset({BinaryOp.EQ, BinaryOp.NE, BinaryOp.LT, BinaryOp.LE})
DIVISIONS = frozenset({BinaryOp.DIV, BinaryOp.REM, BinaryOp.FLOORDIV, BinaryOp.FLOORMOD})


class IntrinsicOp(StrEnum):
    """Functions that a code generator expands into vector code; accuracy in the tolerance table."""

    FMA = "fma"
    EXP = "exp"
    EXP_RAISED = "exp_raised"  # 2^32 exp(x) of what is at most 0, or no number; undefined for others
    LOG = "log"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    SIGMOID = "sigmoid"
    RSQRT = "rsqrt"
    POW = "pow"
    IS_NAN = "is_nan"
    IS_INF = "is_inf"
    BITCAST = "bitcast"
    MUL_HIGH = "mul_high"


EXP_RAISED = 2.0**32
"""The factor of `IntrinsicOp.EXP_RAISED`: with it, the least result in f32 is no subnormal number."""


class ReduceOp(StrEnum):
    """How a reduction combines; each has an identity element for every dtype it allows."""

    SUM = "sum"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    MAX_NUMBER = "max_number"  # as if there were no NaN
    AND = "and"
    OR = "or"


@dataclass(frozen=True, slots=True, eq=False)
class Lit:
    """A number; `inf`, `-inf` and `nan` are allowed for floats."""

    value: int | float | bool
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """An integer expression over loop variables, dims and integer lets, as a scalar."""

    value: Int
    dtype: DType = I64


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """A scalar bound by a `Let` statement. (An i64 let also binds a `Sym` usable in indices.)"""

    sym: Sym
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """One element of a buffer."""

    buffer: Buffer
    indices: tuple[Int, ...]

    @property
    def dtype(self) -> DType:
        """The element format."""
        return self.buffer.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Unary:
    """An operation on one value."""

    op: UnaryOp
    operand: Scalar
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Binary:
    """An operation on two values of one dtype."""

    op: BinaryOp
    lhs: Scalar
    rhs: Scalar
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Select:
    """One of two values."""

    condition: Scalar
    then: Scalar
    otherwise: Scalar
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Cast:
    """A conversion of value; bool to number gives 0 or 1, number to bool compares with 0."""

    operand: Scalar
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Intrinsic:
    """A named function of scalars."""

    op: IntrinsicOp
    args: tuple[Scalar, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class ReduceAxis:
    """A reduction variable with extent; it runs from 0."""

    sym: Sym
    extent: Int


@dataclass(frozen=True, slots=True, eq=False)
class Reduce:
    """A reduction over axes, outermost first. Only as the whole body of a `te.compute`.

    Attributes:
        init: starting value; None = the identity of `op`.
    """

    op: ReduceOp
    axes: tuple[ReduceAxis, ...]
    body: Scalar
    dtype: DType
    init: Scalar | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Bind:
    """Bind an i64 scalar to a symbol for use in the indices of `body`.

    In tensor expressions and blocks; lowering turns it into `Let` statements.
    """

    sym: Sym
    value: Scalar
    body: Scalar

    @property
    def dtype(self) -> DType:
        """The dtype of the body."""
        return self.body.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Dot:
    """A few products of narrow numbers, added to a sum: what dot-product instructions compute.

    `acc + a(0) * b(0) + ... + a(width - 1) * b(width - 1)` in i32, wrapping. The formats of `a` and `b`,
    which may differ, say how each is widened. Of bf16 in f32, the last product is added first; a number below
    2^-126, a factor or a sum, may count as 0. One that saturates brings the sum of each pair of neighboring
    products (0 and 1, 2 and 3, ...) to the nearest i16 before it is added.

    Attributes:
        sym: the number of a product, from 0; only `a` and `b` mention it.
        width: how many products; even where it saturates.
        acc: an i32; an f32 for `bf16`.
        a, b: of `i8`, `u8` or `i16`, or both of `bf16`, whose products are exact.
        saturates: whether sums of pairs do.
    """

    sym: Sym
    width: int
    acc: Scalar
    a: Scalar
    b: Scalar
    saturates: bool = False

    @property
    def dtype(self) -> DType:
        """The format of the sum."""
        return self.acc.dtype


Scalar = Lit | Index | Name | Load | Unary | Binary | Select | Cast | Intrinsic | Bind | Dot | Reduce
