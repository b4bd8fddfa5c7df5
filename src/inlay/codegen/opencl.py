"""Lowered loop functions as OpenCL C, and which of them a device can take.

A phase becomes a kernel. Its work items are the parts: item p of n takes the iterations p, p + n,
p + 2n, ... of the outermost parallel loop, so that neighboring items touch neighboring memory and
any number of items is right. A phase that is not parallel has one item.

    __kernel void add_phase0(__global uchar *x_memory, long x_offset, ..., long n)

Every buffer is a memory object and a distance in bytes: planned blocks hold many tensors, and
sub-buffers of OpenCL begin only at coarse alignments. Then come the integers, then, for a phase with
assertions, a word in which the least number of a failed assertion is left; it begins as `NO_FAILURE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inlay.arith.dtype import F64, STRING, DType
from inlay.arith.expr import Int, Sym, ceildiv, lit, minimum
from inlay.codegen.c import emit_source
from inlay.codegen.c_dialect import CALLED, INDENT, Arguments, Dialect
from inlay.codegen.c_unroll import with_short_loops
from inlay.codegen.c_vector import WORDS as VECTOR_WORDS
from inlay.codegen.phases import assertions_of, workspace_layout
from inlay.loop.func import LoopFunction
from inlay.loop.stmt import Alloc
from inlay.loop.walk import own_scalars, scalars_below, stmts_below

NO_FAILURE = 0xFFFFFFFF
"""What the word of a phase with assertions holds when all of them hold."""


MOST_PARTS = 256
"""Work items of a phase whose parts have workspaces of their own."""
GROUP = 64
"""Work items come in multiples of this where there are many, so that groups of them are full."""


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A kernel in an image.

    Attributes:
        name: as the driver finds it.
        items: work items of each phase, over `dims`.
        dims: symbols that stand for the integer arguments, in order.
        workspace: bytes of the block behind the other buffers, over `dims`; 0 for none.
        assertions: messages; a launch answers the number of one that fails, from 1.
    """

    name: str
    items: tuple[Int, ...]
    dims: tuple[Sym, ...]
    workspace: Int
    assertions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceImage:
    """What a device's compiler is given when it is loaded."""

    text: str
    kernels: dict[str, DeviceKernel]


def make_image(
    functions: Sequence[LoopFunction],
    in_place: Mapping[str, frozenset[int]] | None = None,
) -> DeviceImage:
    """Return lowered functions as one program.

    Args:
        functions: lowered; their names are C identifiers, each used once.
        in_place: see `emit_source`.
    """
    functions = [with_short_loops(f) for f in functions]
    source = emit_source(tuple(functions), OPENCL_C, dict(in_place or {}))
    kernels: dict[str, DeviceKernel] = {}
    for f in functions:
        layout = workspace_layout(f)
        items: list[Int] = []
        for phase in source.phases[f.name]:
            if not phase.parallel:
                items.append(lit(1))
            elif layout.is_per_part:
                items.append(minimum(phase.iterations, lit(MOST_PARTS)))
            else:
                items.append(_rounded(phase.iterations))
        size = layout.shared_bytes
        if layout.is_per_part:
            size = size + layout.per_part_bytes * MOST_PARTS
        kernels[f.name] = DeviceKernel(
            f.name, tuple(items), f.dims, size, tuple(a.message for a in assertions_of(f))
        )
    return DeviceImage(source.text, kernels)


def _rounded(iterations: Int) -> Int:
    """Return at least so many items: those too many find nothing to do."""
    known = iterations.value
    if known is not None and known < GROUP * GROUP:
        return iterations
    return ceildiv(iterations, GROUP) * GROUP


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What an OpenCL device can do, as far as code depends on it.

    Attributes:
        has_f64: whether there are doubles.
        private_bytes: what one work item may keep for itself.
    """

    has_f64: bool = False
    private_bytes: int = 16 << 10


def unsupported_reason(f: LoopFunction, facts: DeviceFacts) -> str | None:
    """Return why a device cannot run a function; None if it can.

    Args:
        f: schedulable or lowered.
        facts: about the device.
    """
    used = _formats(f)
    if STRING in used:
        return "strings are for the host"
    if F64 in used and not facts.has_f64:
        return "the device has no doubles (f64)"
    taken = 0
    for s in stmts_below(f.body):
        if isinstance(s, Alloc) and (size := _constant_bytes(s)) is not None:
            taken = max(taken, size)
    if taken > facts.private_bytes:
        return f"a temporary of {taken} bytes, a work item has {facts.private_bytes}"
    return None


def _constant_bytes(s: Alloc) -> int | None:
    size = s.buffer.dtype.itemsize
    for extent in s.buffer.shape:
        if extent.value is None:
            return None
        size *= extent.value
    return size


def _formats(f: LoopFunction) -> frozenset[DType]:
    found = {b.dtype for b in (*f.params, *f.workspaces)}
    for s in stmts_below(f.body):
        if isinstance(s, Alloc):
            found.add(s.buffer.dtype)
        for value in own_scalars(s):
            found.update(x.dtype for x in scalars_below(value))
    return frozenset(found)


class _OpenClC(Dialect):
    """OpenCL C 1.2, which every later version accepts."""

    name = "OpenCL C"
    space = "__global "
    has_vectors = True
    reserved = CALLED | VECTOR_WORDS | frozenset(
        """
        part parts workspace failure kernel global local constant private half uchar ushort uint
        ulong event_t image2d_t sampler_t bool2 vec_step pipe uniform INFINITY NAN
        atomic_min get_global_id get_global_size as_float as_double as_uint as_ulong
        """.split()
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


OPENCL_C: Dialect = _OpenClC()
