"""Hooks of back ends in a compilation: where they stand, and what becomes of what they give.

A hook of tensor IR and one of lowered loops is a pass of the route; one of schedulable loops is a step of the
lowering of each kernel. What a hook gives is verified. Where its code fails, or what it gives is not well
formed or has another interface, the program goes on without it: a remark says so, with file and line, and who
requires its device gets an error.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from inlay.analysis.blocks import anf_faults
from inlay.base.diagnostics import Collector, CompileError
from inlay.codegen.backend_table import backend_of, unavailable
from inlay.codegen.program_hooks import HookSite, Level, ProgramHook, When, in_order
from inlay.ir.expr import Function
from inlay.ir.module import Module
from inlay.ir.type_printer import type_text
from inlay.ir.verify import check as check_module
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.verify import check as check_loops
from inlay.machine.board import Board
from inlay.machine.target import Target
from inlay.passes.contract import Pass, PassContext, Remark, Remarks
from inlay.pipeline.build_kernels import LoopBody, origin_of

DROPPED = "dropped"
"""The decision of remarks about hooks that the program goes on without."""
HOOKS = "hooks"
"""Who makes these remarks."""


@dataclass(frozen=True, slots=True)
class BoardHooks:
    """The hooks of a board.

    Attributes:
        board: as programs run on it.
        hooks: in order of devices, each once.
        loops: those of schedulable loops, in their order.
        remarks: where faults go.
    """

    board: Board
    hooks: tuple[ProgramHook, ...]
    loops: tuple[ProgramHook, ...]
    remarks: Remarks

    @property
    def digest(self) -> str:
        """A text that changes when one of those does that kernels depend on; empty where there are none."""
        said = "\n".join(f"{h.name} {h.digest}" for h in self.loops)
        return hashlib.blake2b(said.encode(), digest_size=16).hexdigest() if said else ""


def hooks_of(board: Board, remarks: Remarks) -> BoardHooks:
    """Return the hooks of the devices of a board for which code is made.

    Raises:
        CompileError: `accel.hook-order`, `accel.declaration`.
    """
    found: dict[str, ProgramHook] = {}
    for d in board.devices:
        backend = backend_of(board, d.name)
        if backend is not None and not unavailable(board, d.name):
            for hook in backend.program_hooks(board, d.name):
                found.setdefault(hook.name, hook)
    loops = [h for h in found.values() if h.level is Level.SCHEDULABLE]
    steps = ("ops-to-loops", "schedule")
    order = in_order(loops, steps, {h.name: (0, 1) for h in loops})
    sorted_loops = tuple(loops[i - len(steps)] for i in order if i >= len(steps))
    return BoardHooks(board, tuple(found.values()), sorted_loops, remarks)


def with_hooks(route: Sequence[Pass], hooks: BoardHooks) -> tuple[Pass, ...]:
    """Return the passes of a compilation with those that are hooks.

    Raises:
        CompileError: `accel.hook-order`.
    """
    mine = [h for h in hooks.hooks if h.level is not Level.SCHEDULABLE]
    if not mine:
        return tuple(route)
    names = [p.name for p in route]
    where = {
        When.BEFORE: (names.index("to-anf"), names.index("plan-places")),
        When.AFTER: (names.index("pack-regions"), names.index("convert-layout")),
        None: (names.index("build-kernels"), names.index("generate")),
    }
    order = in_order(mine, names, {h.name: where[h.when] for h in mine})
    return tuple(route[i] if i < len(names) else _pass(mine[i - len(names)], hooks.board) for i in order)


def _pass(hook: ProgramHook, board: Board) -> Pass:
    site, step = HookSite(board, hook.device), _tensor if hook.level is Level.TENSOR else _lowered

    def run(module: Module, context: PassContext) -> Module:
        return step(hook, site, module, context.remarks)

    return Pass(f"{HOOKS}.{hook.name.replace('.', ':')}", run, f"the hook {hook.name}")


def _tried(
    hook: ProgramHook, found: Any, site: HookSite, fits: Callable[[Any], str], remarks: Remarks
) -> Any:
    """Return what a hook gives, or None where that is what it got or nothing that can be used."""
    try:
        made = hook.run(found, site)
        wrong = "" if made is None else fits(made)
    except Exception as failure:  # noqa: BLE001 (code of others: the program goes on without it, with the reason)
        made, wrong = None, hook.fault(failure)
    if wrong:
        where = f" in {site.kernel}" if site.kernel else ""
        text = f"the hook {hook.name} of '{hook.device}' is left out{where}: {wrong}"
        if all(r.message != text for r in remarks.of(HOOKS)):
            remarks.add(Remark(HOOKS, DROPPED, hook.device, text, hook.span))
        return None
    return made


# ---------------------------------------------------------------------------- modules


def _tensor(hook: ProgramHook, site: HookSite, module: Module, remarks: Remarks) -> Module:
    made = _tried(hook, module, site, functools.partial(_module_fault, module), remarks)
    return module if made is None else made


def _module_fault(before: Module, after: Any) -> str:
    """Return why a module cannot take the place of another one, or nothing."""
    if not isinstance(after, Module):
        return f"it gave {type(after).__name__}, needed a module"
    entries = {*before.entries, before.entry} & {*before.functions}
    for name in sorted(entries):
        want = type_text(before.functions[name].type)
        got = type_text(after.functions[name].type) if name in after.functions else "nothing"
        if want != got:
            return f"it made {got} of '{name}', which is {want}"
    if (before.entries, before.entry) != (after.entries, after.entry):
        return "it changed the entries"
    for name, function in before.functions.items():
        if function.primitive is not None and after.functions.get(name) is not function:
            return f"it changed '{name}', which a device runs as it was planned"
    try:
        check_module(after)
    except CompileError as failure:
        return f"what it gave is not well formed: {failure.diagnostics[0].message}"
    faults = anf_faults(after)
    return f"what it gave is not in A-normal form: {faults[0][0]}" if faults else ""


# ---------------------------------------------------------------------------- loops


def before_schedule(
    hooks: BoardHooks, loops: LoopFunction, function: Function, device: str, target: Target
) -> LoopFunction:
    """Return the loops of a kernel as hooks of schedulable loops leave them; schedulable, or lowered.

    Args:
        hooks: of the board.
        loops: that were made of the kernel.
        function: the operations in it.
        device: that it is lowered for.
        target: what the device is.
    """
    for hook in hooks.loops:
        if loops.stage is Stage.LOWERED:
            break
        site = HookSite(hooks.board, hook.device, loops.name, origin_of(function), device, target)
        made = _tried(hook, loops, site, functools.partial(_loops_fault, loops, None), hooks.remarks)
        loops = loops if made is None else made
    return loops


def _loops_fault(before: LoopFunction, stage: Stage | None, after: Any) -> str:
    """Return why loops cannot take the place of others, or nothing."""
    if not isinstance(after, LoopFunction):
        return f"it gave {type(after).__name__}, needed a loop function"
    want = [(b.name, b.shape, b.dtype) for b in before.params]
    got = [(b.name, b.shape, b.dtype) for b in after.params]
    if (before.name, want, before.n_reads) != (after.name, got, after.n_reads):
        return f"it gave {after.name} with other parameters than {before.name} has"
    if not set(after.dims) <= set(before.dims):
        return f"it gave {after.name} with dims that {before.name} does not have"
    if stage is not None and after.stage is not stage:
        return f"it gave {after.stage} loops, needed {stage} ones"
    try:
        check_loops(after)
    except CompileError as failure:
        return f"what it gave is not well formed: {failure.diagnostics[0].message}"
    return ""


def _lowered(hook: ProgramHook, site: HookSite, module: Module, remarks: Remarks) -> Module:
    """Give a hook the lowered loops of all kernels of a module, by name."""
    makers = {
        r.name: r.lower
        for k in module.kernels.values()
        if isinstance(k.body, LoopBody) and _has_loops(k.body, site.board)
        for r in (*k.body.requests, *((k.body.of_device,) if k.body.of_device is not None else ()))
    }
    found = {name: lower() for name, lower in makers.items()}

    made = _tried(hook, found, site, functools.partial(_kernels_fault, found), remarks)
    given: Mapping[str, LoopFunction] = {} if made is None else made
    changed = {n: f for n, f in given.items() if f is not found[n]}
    if not changed:
        return module
    kernels = {
        n: replace(k, body=_relowered(k.body, n, changed)) if isinstance(k.body, LoopBody) else k
        for n, k in module.kernels.items()
    }
    return module.with_kernels(kernels)


def _kernels_fault(before: Mapping[str, LoopFunction], after: Any) -> str:
    """Return why loops of kernels cannot take the place of others, or nothing."""
    if not isinstance(after, Mapping):
        return f"it gave {type(after).__name__}, needed loops by name of their kernel"
    for name, loops in cast("Mapping[str, Any]", after).items():
        if name not in before:
            return f"it gave loops for '{name}', which is no kernel"
        if fault := _loops_fault(before[name], Stage.LOWERED, loops):
            return fault
    return ""


def _has_loops(body: LoopBody, board: Board) -> bool:
    """Whether code is made of the loops of a kernel: not of copies, nor where a device runs operations."""
    if body.of_device is None:
        return bool(body.requests)
    device = body.of_device.device
    backend = backend_of(board, device)
    return not body.of_device.is_copy and backend is not None and bool(backend.rules(board.arch_of(device)))


def _relowered(body: LoopBody, name: str, changed: Mapping[str, LoopFunction]) -> LoopBody:
    """Return the body of a kernel with other loops; what is made of them is in no cache."""
    if not any(r.name in changed for r in body.requests) and name not in changed:
        return body
    requests = tuple(
        replace(r, lower=functools.partial(_same, changed[r.name]), key="") if r.name in changed else r
        for r in body.requests
    )
    loops = changed.get(name)
    lower = body.lower if loops is None else functools.partial(_same, loops)
    of_device = body.of_device if body.of_device is None else replace(body.of_device, lower=lower)
    return replace(body, lower=lower, requests=requests, of_device=of_device)


def _same(loops: LoopFunction) -> LoopFunction:
    return loops


# ---------------------------------------------------------------------------- faults


def check_hooks(remarks: Remarks, required: Sequence[str]) -> None:
    """Refuse to go on without hooks of devices that are required.

    Raises:
        CompileError: all `accel.hook-fault` at once.
    """
    findings = Collector()
    for remark in remarks.of(HOOKS):
        if remark.decision == DROPPED and remark.reason in required:
            findings.error(
                "accel.hook-fault", remark.message, span=remark.span, hint="mend it, or require less"
            )
    findings.raise_if_fatal()


def faults(remarks: Sequence[Remark]) -> tuple[str, ...]:
    """Return which hooks were left out, and why."""
    return tuple(r.message for r in remarks if (r.pass_name, r.decision) == (HOOKS, DROPPED))
