"""Functions that emitted C calls for what the language has no operator for.

Each is a few lines, `static inline`, and written only into files that use it. `Helpers.use` takes
the stem and a format, `add` of i32, and gives the name `inlay_add_i32`. A helper may use others.
"""

from __future__ import annotations

from inlay.arith.dtype import BF16, F16, F32, F64, U32, U64, DType
from inlay.base.diagnostics import InternalError
from inlay.codegen.c_dialect import Dialect

# {T} is the C type of a value, {U} the unsigned type of its width, {B} its bits, {f[x]} a function
# of <math.h> for it, {h[x]} another helper for it.
_INTEGER = {
    # Signed arithmetic wraps, which C has only for unsigned types.
    "add": "{T} a, {T} b|return ({T})(({U})a + ({U})b);",
    "sub": "{T} a, {T} b|return ({T})(({U})a - ({U})b);",
    "mul": "{T} a, {T} b|return ({T})(({U})a * ({U})b);",
    "neg": "{T} a|return ({T})(0u - ({U})a);",
    "abs": "{T} a|return a < 0 ? ({T})(0u - ({U})a) : a;",
    "min": "{T} a, {T} b|return a < b ? a : b;",
    "max": "{T} a, {T} b|return a < b ? b : a;",
    "max_number": "{T} a, {T} b|return a < b ? b : a;",
    # Rounded toward minus infinity, where C rounds toward zero.
    "floordiv": """{T} a, {T} b|const {T} quotient = ({T})(a / b), remainder = ({T})(a % b);
return ({T})(quotient - (remainder != 0 && (remainder < 0) != (b < 0)));""",
    "floormod": """{T} a, {T} b|const {T} remainder = ({T})(a % b);
return ({T})(remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder);""",
    # All bits may be shifted out.
    "shl": "{T} a, {T} b|return ({U})b < {B}u ? ({T})(({W})a << ({U})b) : ({T})0;",
    "shr": "{T} a, {T} b|return ({T})(a >> (({U})b < {B}u ? ({U})b : {B}u - 1u));",
    "ushr": "{T} a, {T} b|return b < {B}u ? ({T})(a >> b) : ({T})0;",
}
_FLOAT = {
    # A NaN on either side is the result.
    "min": "{T} a, {T} b|return a != a || a < b ? a : b;",
    "max": "{T} a, {T} b|return a != a || a > b ? a : b;",
    "max_number": "{T} a, {T} b|return a < b ? b : a;",
    "sigmoid": """{T} x|const {T} e = {f[exp]}(-{f[fabs]}(x));
return (x < {zero} ? e : {one}) / ({one} + e);""",
    "rsqrt": "{T} x|return {one} / {f[sqrt]}(x);",
    # The remainder has the sign of the divisor, zero too.
    "floormod": """{T} a, {T} b|const {T} remainder = {f[fmod]}(a, b);
if (remainder == {zero}) return {f[copysign]}({zero}, b);
return (remainder < {zero}) != (b < {zero}) ? remainder + b : remainder;""",
}
_F16_TO_F32 = """\
static inline float inlay_f16_to_f32(uint16_t x)
{
    /* Rebase the exponent by a multiplication, which also makes subnormals normal. */
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    const uint32_t rest = x & 0x7FFFu;
    const float scaled = inlay_bits_to_f32(rest << 13) * 0x1p112f;
    const uint32_t special = rest >= 0x7C00u ? 0x7F800000u : 0u;
    return inlay_bits_to_f32(inlay_f32_to_bits(scaled) | special | sign);
}
"""
_F32_TO_F16 = """\
static inline uint16_t inlay_f32_to_f16(float x)
{
    /* To nearest even; a NaN stays a quiet NaN. */
    const uint32_t bits = inlay_f32_to_bits(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t rest = bits & 0x7FFFFFFFu;
    uint32_t found;
    if (rest > 0x7F800000u) {
        found = 0x7E00u;
    } else if (rest >= 0x47800000u) {
        found = 0x7C00u;
    } else if (rest >= 0x38800000u) {
        /* Rebase the exponent and add just under half a unit. */
        found = (rest + 0xC8000FFFu + ((rest >> 13) & 1u)) >> 13;
    } else {
        /* Adding a float whose unit is the smallest f16 rounds. */
        found = inlay_f32_to_bits(inlay_bits_to_f32(rest) + 0.5f) - 0x3F000000u;
    }
    return (uint16_t)(sign | found);
}
"""
_BF16_TO_F32 = """\
static inline float inlay_bf16_to_f32(uint16_t x)
{
    return inlay_bits_to_f32((uint32_t)x << 16);
}
"""
_F32_TO_BF16 = """\
static inline uint16_t inlay_f32_to_bf16(float x)
{
    /* To nearest even; a NaN stays a quiet NaN. */
    const uint32_t bits = inlay_f32_to_bits(x);
    if (x != x) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
"""
_ODD = """\
static inline float inlay_f64_to_odd(double x)
{
    /* To f32 such that rounding again to 16 bits is as rounding once (Boldo 2008). */
    const float near = (float)x;
    const double back = (double)near;
    const uint32_t bits = inlay_f32_to_bits(near);
    if (back == x || x != x || (bits & 1u) != 0u) return near;
    return inlay_bits_to_f32(fabs(back) < fabs(x) ? bits + 1u : bits - 1u);
}
"""
_MUL_HIGH_U64 = """\
static inline uint64_t inlay_mul_high_u64(uint64_t a, uint64_t b)
{
    const uint64_t a_low = a & 0xFFFFFFFFu, a_high = a >> 32;
    const uint64_t b_low = b & 0xFFFFFFFFu, b_high = b >> 32;
    const uint64_t middle = a_high * b_low + ((a_low * b_low) >> 32);
    const uint64_t carried = a_low * b_high + (middle & 0xFFFFFFFFu);
    return a_high * b_high + (middle >> 32) + (carried >> 32);
}
"""
_MUL_HIGH_I64 = """\
static inline int64_t inlay_mul_high_i64(int64_t a, int64_t b)
{
    uint64_t high = inlay_mul_high_u64((uint64_t)a, (uint64_t)b);
    if (a < 0) high -= (uint64_t)b;
    if (b < 0) high -= (uint64_t)a;
    return (int64_t)high;
}
"""
_FIXED: dict[str, tuple[str, tuple[str, ...]]] = {
    "f16_to_f32": (_F16_TO_F32, ("bits_to_f32", "f32_to_bits")),
    "f32_to_f16": (_F32_TO_F16, ("bits_to_f32", "f32_to_bits")),
    "bf16_to_f32": (_BF16_TO_F32, ("bits_to_f32",)),
    "f32_to_bf16": (_F32_TO_BF16, ("f32_to_bits",)),
    "f64_to_odd": (_ODD, ("bits_to_f32", "f32_to_bits")),
    "mul_high_u64": (_MUL_HIGH_U64, ()),
    "mul_high_i64": (_MUL_HIGH_I64, ("mul_high_u64",)),
}
_BIT_CASTS = {
    "bits_to_f32": (F32, U32),
    "f32_to_bits": (U32, F32),
    "bits_to_f64": (F64, U64),
    "f64_to_bits": (U64, F64),
}


def register_type(dtype: DType) -> str:
    """Return the C type of a value: narrow floats are computed in f32, booleans are `bool`."""
    if dtype in (F16, BF16):
        return "float"
    return "bool" if dtype.name == "bool" else dtype.c


class Helpers:
    """The helpers that a file needs, in the order of their first use."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._texts: dict[str, str] = {}

    def use(self, stem: str, dtype: DType | None = None) -> str:
        """Return the name of a helper, which the file will define."""
        name = f"{stem}_{register_name(dtype)}" if dtype is not None else stem
        if name not in self._texts:
            self._texts[name] = self._definition(name, stem, dtype)
        return f"inlay_{name}"

    def use_vector(self, stem: str, width: int) -> str:
        """Return the name of a minimum or maximum of vectors of f32, of OpenCL C."""
        name = f"{stem}_f32x{width}"
        sign = {"min": "<", "max": ">"}[stem]
        kind = f"float{width}"
        self._texts[name] = f"""\
static inline {kind} inlay_{name}({kind} a, {kind} b)
{{
    return select(b, a, (a != a) | (a {sign} b));
}}
"""
        return f"inlay_{name}"

    def use_vector_type(self, element: str, dtype: DType, width: int) -> str:
        """Return the name of a vector of OpenCL C that is aligned like its elements."""
        name = f"{dtype.name}x{width}"
        aligned = f"__attribute__((aligned({dtype.itemsize})))"
        self._texts[name] = f"typedef {element}{width} inlay_{name} {aligned};\n"
        return f"inlay_{name}"

    def text(self) -> str:
        """Return the definitions."""
        return "\n".join(self._texts.values())

    def _definition(self, name: str, stem: str, dtype: DType | None) -> str:
        if name in _FIXED:
            text, needed = _FIXED[name]
            for other in needed:
                self.use(other)
            return text
        if name in _BIT_CASTS:
            target, source = _BIT_CASTS[name]
            return self._dialect.bit_cast(f"inlay_{name}", target.c, source.c)
        table = {} if dtype is None else _FLOAT if dtype.is_float else _INTEGER
        if dtype is None or stem not in table:
            raise InternalError(f"no helper {name}", where="codegen.c")
        parameters, body = table[stem].format(**self._words(dtype)).split("|", 1)
        kind = register_type(dtype)
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        return f"static inline {kind} inlay_{name}({parameters})\n{{\n{lines}\n}}\n"

    def _words(self, dtype: DType) -> dict[str, object]:
        functions = ("exp", "fabs", "sqrt", "fmod", "copysign")
        double = dtype == F64
        return {
            "T": register_type(dtype),
            "U": f"uint{dtype.bits}_t",
            # What shifts left in as many bits as needed without being promoted to a signed type.
            "W": f"uint{max(dtype.bits, 32)}_t",
            "B": dtype.bits,
            "f": {n: self._dialect.function(n, dtype) for n in functions},
            "zero": "0.0" if double else "0.0f",
            "one": "1.0" if double else "1.0f",
        }


def register_name(dtype: DType) -> str:
    """Return how helpers are named for a format: narrow floats share those of f32."""
    return "f32" if dtype in (F16, BF16) else dtype.name
