"""What kernels are built with for a board: how groups become loops on each of its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from inlay.base.diagnostics import InternalError
from inlay.codegen.backend_table import backend_of, unavailable
from inlay.codegen.cache import ObjectCache
from inlay.codegen.interface import Backend, DeviceCode, DeviceJob, Needs
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.machine.device import Arch
from inlay.machine.target import Target
from inlay.pipeline.build_kernels import BuildOptions, host_requests
from inlay.pipeline.devices import apart, needs_of_devices, regions_of
from inlay.pipeline.generate import GenerateOptions
from inlay.pipeline.hooking import before_schedule
from inlay.pipeline.lowering import Lowering
from inlay.pipeline.planning import Setting, check_code, meanings_of
from inlay.pipeline.version import lowering_version
from inlay.schedule.choose import RULES, Rule


def build_options(setting: Setting, *, batch: bool = False, verify: bool = False) -> BuildOptions:
    """Return what kernels are built with for a board as programs run on it.

    Args:
        setting: the board, operators, targets, hooks, and what was measured.
        batch: whether several calls of a kernel may run as one.
        verify: whether loops are verified after each stage.
    """
    operators, board, hooks = setting.operators, setting.board, setting.hooks
    backend = backend_of(board, board.host.name) or _Described()
    hooked = partial(before_schedule, hooks) if hooks.loops else None
    here = Lowering(operators, board, backend, setting.targets, verify=verify, before_schedule=hooked)
    others = {d: replace(here, backend=b, device=d) for d, b in apart(board).items()}
    made = partial(check_code, board=board)
    version = lowering_version() + hooks.digest
    return BuildOptions(here, others, meanings_of(operators), version, batch, made, setting.choice)


def explaining_options(
    setting: Setting, cache: ObjectCache | None = None, *, batch: bool = False
) -> tuple[BuildOptions, GenerateOptions]:
    """Return what kernels are built and lowered with for who makes no code of them, or only of some.

    Kernels of the host whose code is in a cache are not lowered for what the cache says.
    """
    building = replace(build_options(setting, batch=batch), check=None)
    board, targets = setting.board, setting.targets
    host = board.host.name
    backend, stays = backend_of(board, host), partial(regions_of, board)

    def target(device: str) -> Target:
        return targets(device or host)

    commands = partial(needs_of_devices, board, targets)
    without = GenerateOptions(target=target, commands=commands, parts=parts_of(board), stays=stays)
    if cache is None or backend is None or unavailable(board, host):
        return building, without

    def known(module: Module) -> Mapping[str, Needs]:
        generator = backend.generator(backend.target(board, host), cache)
        return {} if generator is None else generator.known(host_requests(module))

    return building, replace(without, known=known)


def parts_of(board: Board) -> dict[str, int]:
    """Return how many parts of a kernel have scratch memory of their own, by device.

    Devices are left out whose kernels have no loops, and those of this process, whose caller says it.
    """
    found: dict[str, int] = {}
    off = apart(board)
    for d in board.devices:
        arch, backend = board.arch_of(d.name), backend_of(board, d.name)
        if backend is None:
            found[d.name] = int(arch.parameter("threads", "1"))
        elif d.name in off and type(backend).rules is not Backend.rules:
            found[d.name] = backend.parts(arch)
    return found


class _Described(Backend):
    """Stands for the back end of a host of which no code is made here."""

    def rules(self, arch: Arch) -> Sequence[Rule]:
        """Return the rules for processors."""
        del arch
        return RULES

    def emit(self, job: DeviceJob) -> DeviceCode:
        """Make no code: a compilation is refused before."""
        raise InternalError("no code is made of a device that is only described", where=job.devices[0])
