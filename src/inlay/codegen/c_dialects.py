"""The dialects of C by name; a target names its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlay.arith.dtype import DType
from inlay.codegen.c_dialect import C99, CALLED, INDENT, Arguments, Dialect
from inlay.codegen.c_vector import WORDS as VECTOR_WORDS

OPENCL_C = "OpenCL C"


class _OpenClC(Dialect):
    """OpenCL C 1.2, which every later version accepts."""

    name = OPENCL_C
    space = "__global "
    has_vectors = True
    reserved = (
        CALLED
        | VECTOR_WORDS
        | frozenset(
            """
        part parts workspace failure kernel global local constant private half uchar ushort uint
        ulong event_t image2d_t sampler_t bool2 vec_step pipe uniform INFINITY NAN
        atomic_min get_global_id get_global_size as_float as_double as_uint as_ulong
        """.split()
        )
    )
    head = """\
#pragma OPENCL FP_CONTRACT OFF
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#define int8_t char
#define uint8_t uchar
#define int16_t short
#define uint16_t ushort
#define int32_t int
#define uint32_t uint
#define int64_t long
#define uint64_t ulong
#define INT32_MIN INT_MIN
#define INT64_MIN LONG_MIN
#define INT64_C(x) x##L
#define UINT64_C(x) x##UL
"""

    def function(self, stem: str, dtype: DType) -> str:  # noqa: ARG002
        return stem

    def bit_cast(self, name: str, target: str, source: str) -> str:
        seen = {"uint32_t": "uint", "uint64_t": "ulong"}.get(target, target)
        return f"""\
static inline {target} {name}({source} x)
{{
    return as_{seen}(x);
}}
"""

    def begin(self, symbol: str, arguments: Arguments) -> list[str]:
        takes: list[str] = []
        bound: list[str] = []
        for p in arguments.pointers:
            takes += [f"__global uint8_t *{p.name}_memory", f"const int64_t {p.name}_offset"]
            if p.name in arguments.used:
                kind = f"__global {'const ' * p.read_only}{p.element} *"
                restrict = "restrict " * p.alone
                start = f"({p.name}_memory + {p.name}_offset)"
                bound.append(f"{INDENT}{kind}{restrict}{p.name} = ({kind}){start};")
        takes += [f"const int64_t {name}" for name in arguments.dims]
        if arguments.asserts:
            takes.append("__global volatile uint32_t *failure")
        if "part" in arguments.used:
            bound.append(f"{INDENT}const int64_t part = (int64_t)get_global_id(0);")
        if "parts" in arguments.used:
            bound.append(f"{INDENT}const int64_t parts = (int64_t)get_global_size(0);")
        signature = f"__kernel void {symbol}({', '.join(takes)})"
        return [signature, "{", *bound]

    def end(self) -> list[str]:
        return ["}"]

    def fail(self, number: int) -> str:
        return f"{{ atomic_min(failure, {number}u); return; }}"

    def share(self, var: str, lo: str, extent: str) -> list[str]:
        start = "" if lo == "0" else f"{lo} + "
        head = f"int64_t {var} = {start}part; {var} < {start}{extent}; {var} += parts"
        return [f"for ({head}) {{"]

    def before_unrolled(self) -> Sequence[str]:
        return ("#pragma unroll",)


DIALECTS: Mapping[str, Dialect] = {d.name: d for d in (C99, _OpenClC())}
"""By `Target.dialect`."""
