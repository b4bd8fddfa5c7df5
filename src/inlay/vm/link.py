"""A planned module and the code of its kernels to one program.

Each kernel of the module becomes an entry of the program's kernel table: what happens to its ports,
where its phases are in the image, how much scratch it needs and how long it is predicted to take, as
formulas over its integer arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import assert_never

from inlay.arith.expr import Int, from_atom
from inlay.base.diagnostics import InternalError
from inlay.bytecode import program as bc
from inlay.bytecode.formula import Formula, check
from inlay.bytecode.of_integers import formula
from inlay.codegen.interface import Artifact, KernelCode
from inlay.ir.kernel import Access, Batch, ForeignBody, Kernel, Port
from inlay.ir.module import Module
from inlay.vm.compile import ShapeCompiler, compile_module
from inlay.vm.signature import port_sizes, positions_of


def _access(port: Port) -> bc.AccessCode:
    match port.access:
        case Access.READ:
            return bc.AccessCode.READ
        case Access.WRITE:
            return bc.AccessCode.WRITE
        case Access.UPDATE:
            return bc.AccessCode.READ_WRITE
        case Access.FILL:
            return bc.AccessCode.WRITE if port.may_alias is None else bc.AccessCode.READ_WRITE
        case _:
            assert_never(port.access)


def link(
    module: Module,
    artifact: Artifact,
    triple: str,
    *,
    memories: Sequence[bc.Memory] = (bc.HOST_MEMORY,),
    devices: Sequence[bc.DeviceRecord] = (),
    spaces: Mapping[str, str] | None = None,
    of_devices: Mapping[str, bc.Kernel] | None = None,
    properties: Mapping[str, str] | None = None,
    shapes: ShapeCompiler | None = None,
) -> bc.Program:
    """Return the program of a module in explicit storage whose native kernels are compiled.

    Args:
        module: what `vm.compile` takes.
        artifact: image and kernel codes; a kernel with a `python` body needs none.
        triple: of the target, as LLVM writes it.
        memories: of the board, the host's first.
        devices: besides the host.
        spaces: the memory space of each device that is not the host, by their names.
        of_devices: kernels that run on them, and copies.
        properties: facts for people.
        shapes: adds native code of shape arithmetic to the image.
    """
    kernels: dict[str, bc.Kernel] = {}
    for name, kernel in module.kernels.items():
        if of_devices and name in of_devices:
            kernels[name] = of_devices[name]
            continue
        code = artifact.kernels.get(name)
        if kernel.batch is not None:
            kernels[kernel.batch.code] = _batch(kernel, kernel.batch, artifact)
        kernels[name] = _native(kernel, code) if code is not None else _foreign(kernel)
    kernels |= {n: _with_scratch(kernels[n], k) for n, k in module.kernels.items() if k.workspaces}
    return compile_module(
        module,
        kernels,
        target=bc.ImageTarget(triple, tuple(sorted(artifact.image.features))),
        image=artifact.image.data,
        memories=memories,
        devices=devices,
        spaces=spaces,
        properties=properties,
        shapes=shapes,
    )


def _batch(kernel: Kernel, batch: Batch, artifact: Artifact) -> bc.Kernel:
    """Return the kernel that does the work of several calls."""
    count = from_atom(batch.count)
    cost = None if kernel.cost_ns is None else kernel.cost_ns * count
    many = replace(kernel, name=batch.code, ints=(*kernel.ints, count), cost_ns=cost, batch=None)
    code = artifact.kernels[batch.code]
    made = replace(_native(many, code), sizes=(), spans=())
    if code.workspace is None:
        return made
    positions = {sym: index for index, sym in enumerate(code.dims)}
    size = formula(code.workspace.bytes, positions)
    return replace(made, workspace=size, workspace_per_part=code.workspace.per_part)


def _native(kernel: Kernel, code: KernelCode) -> bc.Kernel:
    if len(code.dims) != len(kernel.ints):
        raise InternalError(
            f"its code takes {len(code.dims)} integers, its calls give {len(kernel.ints)}", where=kernel.name
        )
    pieces = _pieces(kernel, code)
    phases = tuple(
        bc.Phase(p.offset, p.parallel, pieces.get(i, 1) if p.parallel else 1)
        for i, p in enumerate(code.phases)
    )
    return bc.Kernel(
        kernel.name,
        tuple(_access(p) for p in kernel.ports),
        len(kernel.ints),
        bc.ImageBody(phases),
        cost=cost_of(kernel),
        sizes=port_sizes(kernel),
        spans=() if kernel.accesses is None else kernel.accesses.used[: len(kernel.ports)],
    )


_MOST_BYTES = 4 << 20
"""Of more, a second cache holds too little: layers of GPT-2, of 7 to 9 MB, took 1.5 percent longer."""
_NS_PER_ELEMENT = 0.5
"""A product of five rows is predicted to take so long for each weight. With 8 to 32 rows pieces make no
difference (Zen 4)."""


def _pieces(kernel: Kernel, code: KernelCode) -> dict[int, int]:
    """Return how many pieces phases are run in that read many bytes and do little with each.

    These are products of few rows with weights that fill a good part of a cache: see `bc.Phase.pieces`.
    Kernels with scratch for each part may prepare there what all of a part reads, and stay whole.
    """
    cost = None if kernel.cost_ns is None else kernel.cost_ns.value
    if cost is None or code.accesses is None or any(w.per_part for w in kernel.workspaces):
        return {}
    found: dict[int, int] = {}
    for port, (first, last) in zip(kernel.ports, code.accesses.used, strict=False):
        elements = prod(d.value or 0 for d in port.type.shape)
        size = elements * port.type.dtype.itemsize
        count = min(size // bc.PIECE_BYTES, bc.MOST_PIECES)
        is_held = size <= _MOST_BYTES and port.access is Access.READ
        if is_held and count > 1 and cost < _NS_PER_ELEMENT * elements:
            found |= {phase: max(count, found.get(phase, 1)) for phase in range(first, last + 1)}
    return found


def _with_scratch(made: bc.Kernel, kernel: Kernel) -> bc.Kernel:
    """Return a kernel with its scratch memory: one more tensor that it writes, or what it is given."""
    for w in kernel.workspaces:
        size = _over_ints(w.bytes, kernel)
        if w.requested or w.per_part:
            made = replace(made, workspace=size, workspace_per_part=w.per_part)
        if not w.requested:
            ports = (*made.ports, bc.AccessCode.WRITE)
            # Of functions nobody says what they touch.
            sizes = (*made.sizes, _over_ints(w.planned(), kernel)) if made.sizes else ()
            spans = () if kernel.accesses is None else kernel.accesses.used
            made = replace(made, ports=ports, sizes=sizes, spans=spans, workspace_in_port=w.per_part)
    return made


def _over_ints(size: Int, kernel: Kernel) -> bc.Formula:
    """Return a size over the dims of a kernel as a formula over its integers."""
    found = formula(size, positions_of(kernel))
    if found is None or check(found, len(kernel.ints)) is not None:
        raise InternalError(f"{size} bytes are no formula over its integers", where=kernel.name)
    return found


def _foreign(kernel: Kernel) -> bc.Kernel:
    body: bc.Body
    match kernel.body:
        case ForeignBody(language="c", name=name, library=library, symbol=symbol):
            body = bc.FunctionBody(name, library, symbol)
        case ForeignBody(name=name):
            body = bc.HostBody(name)
        case other if other.kind == "python":
            body = bc.HostBody(kernel.name)
        case other:
            raise InternalError(f"a kernel of kind {other.kind} has no code", where=kernel.name)
    ports = tuple(_access(p) for p in kernel.ports)
    ordered = kernel.resource is not None
    return bc.Kernel(kernel.name, ports, len(kernel.ints), body, cost=cost_of(kernel), ordered=ordered)


def cost_of(kernel: Kernel) -> Formula:
    """Return the predicted time over the integers; unknown and unwieldy costs count as long."""
    found = None if kernel.cost_ns is None else formula(kernel.cost_ns, positions_of(kernel))
    if found is None or check(found, len(kernel.ints)) is not None:
        return bc.UNKNOWN_COST
    return found
