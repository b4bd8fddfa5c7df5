"""Lowered loop functions as OpenCL C, and which of them a device can take.

A phase becomes a kernel. Its work items are the parts: item p of n takes the iterations p, p + n,
p + 2n, ... of the outermost parallel loop, so that neighboring items touch neighboring memory and
any number of items is right. A phase that is not parallel has one item.

    __kernel void add_phase0(__global uchar *x_memory, long x_offset, ..., long n)

Every buffer is a memory object and a distance in bytes: planned blocks hold many tensors, and
sub-buffers of OpenCL begin only at coarse alignments. Then come the integers, then, for a phase with
assertions, a word in which the least number of a failed assertion is left; it begins as all ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inlay.arith.dtype import F64, STRING, DType
from inlay.arith.expr import Int, ceildiv, lit, minimum
from inlay.codegen.c import emit_source
from inlay.codegen.c_dialects import OPENCL_C
from inlay.codegen.c_unroll import with_short_loops
from inlay.codegen.interface import DeviceKernel
from inlay.codegen.phases import assertions_of, workspace_layout
from inlay.loop.func import LoopFunction
from inlay.loop.stmt import Alloc
from inlay.loop.walk import own_scalars, scalars_below, stmts_below
from inlay.machine.target import Target

OPENCL = Target(dialect=OPENCL_C)
"""What is known of a device before its board says more."""


MOST_PARTS = 256
"""Work items of a phase whose parts have workspaces of their own."""
GROUP = 64
"""Work items come in multiples of this where there are many, so that groups of them are full."""


@dataclass(frozen=True, slots=True)
class DeviceImage:
    """What a device's compiler is given when it is loaded."""

    text: str
    kernels: dict[str, DeviceKernel]


def make_image(
    functions: Sequence[LoopFunction], target: Target, in_place: Mapping[str, frozenset[int]] | None = None
) -> DeviceImage:
    """Return lowered functions as one program.

    Args:
        functions: lowered; their names are C identifiers, each used once.
        target: what they were lowered for.
        in_place: see `emit_source`.
    """
    functions = [with_short_loops(f) for f in functions]
    source = emit_source(tuple(functions), target, dict(in_place or {}))
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
        kernels[f.name] = DeviceKernel(
            f.name, tuple(items), f.dims, layout.block(MOST_PARTS), tuple(a.message for a in assertions_of(f))
        )
    return DeviceImage(source.text, kernels)


def _rounded(iterations: Int) -> Int:
    """Return at least so many items: those too many find nothing to do."""
    known = iterations.value
    if known is not None and known < GROUP * GROUP:
        return iterations
    return ceildiv(iterations, GROUP) * GROUP


def unsupported_reason(f: LoopFunction, target: Target) -> str:
    """Return why a device cannot run a lowered function; nothing if it can."""
    used = _formats(f)
    if STRING in used:
        return "strings are for the host"
    if F64 in used and not target.doubles:
        return "the device has no doubles (f64)"
    taken = 0
    for s in stmts_below(f.body):
        if isinstance(s, Alloc) and (size := _constant_bytes(s)) is not None:
            taken = max(taken, size)
    if taken > target.stack_bytes:
        return f"a temporary of {taken} bytes, a work item has {target.stack_bytes}"
    return ""


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
