"""Code of kernels, and with it the scratch memory that each needs: before storage is planned.

A compilation makes the code here; what is in the cache is neither lowered nor compiled for it. Who only
explains makes no code: of what is in the cache that says it, of other kernels the loops say the same.

**Who gives scratch memory.** A kernel gets it as one more tensor behind its ports, which has its place in
the plan like any result and lives while the kernel runs. Where each thread has its own, the plan has a place
for as many threads as the program is compiled for; a run on more of them gets all from the runtime. Where
there is no place in the program, the runtime gives it for each run of the kernel, and the plan counts it
(`Workspace.requested`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inlay.arith.expr import Int, Sym, substitute
from inlay.bytecode.verify_tables import MAX_PORTS
from inlay.codegen.accesses import accesses_of
from inlay.codegen.interface import Artifact, Needs
from inlay.codegen.phases import workspace_layout
from inlay.ir.kernel import Access, Accesses, Kernel
from inlay.ir.module import Module
from inlay.lower.place_buffers import stack_taken
from inlay.machine.target import Target
from inlay.passes.contract import Pass, PassContext, Property
from inlay.pipeline.build_kernels import LoopBody
from inlay.placement.plan_places import PlanOptions


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """Options of this pass.

    Attributes:
        make: makes code, and returns what kernels need; None where there is to be none.
        known: where no code is made, gives what kernels of the host need whose code there is, by name.
        target: gives what loops of a device are lowered for, by its name; empty for the host.
        stays: gives what kernels of devices have as long as the program is loaded, by name: bytes, and where.
        commands: where no code is made, gives what commands of devices need, by the names of kernels.
        parts: by device, how many parts of a kernel have scratch memory of their own. Where nothing is
            said that is known when the program runs; off the host, there are no loops then.
    """

    make: Callable[[Module, PassContext], Mapping[str, Needs]] | None = None
    known: Callable[[Module], Mapping[str, Needs]] | None = None
    target: Callable[[str], Target] | None = None
    commands: Callable[[Module, Mapping[str, Needs], PassContext], Mapping[str, Needs]] | None = None
    parts: Mapping[str, int] = field(default_factory=dict[str, int])
    stays: Callable[[Module], Mapping[str, tuple[int, str]]] | None = None


def run(module: Module, context: PassContext) -> Module:
    """Make code, or lower kernels, and note what each needs and when it touches its tensors."""
    options = context.options_for(GenerateOptions)
    if options.make is not None:
        found = options.make(module, context)
    else:
        found = lowered_needs(module, options)
        if options.commands is not None:
            found |= options.commands(module, found, context)
    module = with_needs(module, found, scratch_threads(context))
    return module if options.stays is None else with_stays(module, options.stays(module))


def needs_of(module: Module, artifact: Artifact) -> dict[str, Needs]:
    """Return what native code of kernels needs."""
    return {
        name: Needs(code.dims, code.workspace, code.stack, code.accesses)
        for name, code in artifact.kernels.items()
        if name in module.kernels
    }


def with_stays(module: Module, stays: Mapping[str, tuple[int, str]]) -> Module:
    """Return a module whose kernels have what is theirs as long as the program is loaded, by name."""
    kernels = {name: replace(module.kernels[name], stays=what) for name, what in stays.items()}
    return module.with_kernels({**module.kernels, **kernels})


def scratch_threads(context: PassContext) -> int:
    """Return on how many threads the kernels of this process run, as the program is compiled."""
    return max((context.options_for(PlanOptions).threads or {}).values(), default=1)


def with_needs(module: Module, found: Mapping[str, Needs], threads: int) -> Module:
    """Return a module whose kernels have what they need, given by name.

    Args:
        module: with kernels.
        found: what they need.
        threads: for so many the program has a place for scratch memory that each has of its own.
    """
    kernels = dict(module.kernels)
    for name, needs in found.items():
        kernel = replace(kernels[name], stack=needs.stack, accesses=None, note=needs.note)
        # Several calls as one are other code, which has phases of its own.
        if needs.accesses is not None and kernel.batch is None:
            lies = tuple(_over_dims(e, needs.dims, kernel) for e in needs.accesses.lies)
            kernel = replace(kernel, accesses=_with_wholes(kernel, replace(needs.accesses, lies=lies)))
        if needs.workspace is not None:
            size = _over_dims(needs.workspace.bytes, needs.dims, kernel)
            workspace = replace(needs.workspace, bytes=size)
            stated = replace(workspace, requested=_requested(kernel), parts=threads)
            kernel = replace(kernel, workspaces=(stated,))
        kernels[name] = kernel
    return module.with_kernels(kernels)


def _with_wholes(kernel: Kernel, accesses: Accesses) -> Accesses:
    """Return accesses where what is filled is touched when its part is: code has no use for the operand.

    It lies over nothing else: it has other bytes than those that are written here.
    """
    used = list(accesses.used)
    for write, port in enumerate(kernel.ports):
        if port.access is Access.FILL and port.may_alias is not None:
            used[port.may_alias] = used[write]
    if any(port.access is Access.FILL for port in kernel.ports):
        return replace(accesses, used=tuple(used), overlays=(), lies=())
    return accesses


def _requested(kernel: Kernel) -> str:
    """Return why the runtime gives a workspace; nothing where the program does."""
    if kernel.batch is not None:
        return "several calls may run as one"
    return f"a kernel takes at most {MAX_PORTS} tensors" if len(kernel.ports) >= MAX_PORTS else ""


def lowered_needs(module: Module, options: GenerateOptions) -> dict[str, Needs]:
    """Return what the cache says of kernels of the host, and what the loops of others say."""
    found: dict[str, Needs] = {}
    parts = options.parts
    known: Mapping[str, Needs] = {}
    if options.known is not None:
        known = options.known(module)
    for name, kernel in module.kernels.items():
        body = kernel.body
        if not isinstance(body, LoopBody):
            continue
        device = "" if body.function.place is None else body.function.place.device
        if body.of_device is not None and (body.of_device.is_copy or device not in parts):
            continue
        if body.of_device is None and name in known and device not in parts:
            found[name] = known[name]
            continue
        loops = body.lower()
        stack = None if options.target is None else stack_taken(loops.body, options.target(device))
        accesses = None if body.of_device is not None else accesses_of(loops)
        found[name] = Needs(loops.dims, workspace_layout(loops).block(parts.get(device)), stack, accesses)
    return found


def _over_dims(size: Int, dims: Sequence[Sym], kernel: Kernel) -> Int:
    """Return an integer over the dims of a kernel, given over those of its code."""
    return substitute(size, dict(zip(dims, kernel.ints, strict=True)))


PASS = Pass(
    __name__,
    run,
    "make code of kernels, and note the scratch memory that each needs",
    requires=(Property.LOWERED,),
    options=GenerateOptions,
)
