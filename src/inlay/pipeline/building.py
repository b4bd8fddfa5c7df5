"""What kernels are built with for a board: how groups become loops on each of its devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from inlay.analysis.choices import Choice
from inlay.base.diagnostics import InternalError
from inlay.codegen.backend_table import backend_of, unavailable
from inlay.codegen.cache import ObjectCache
from inlay.codegen.interface import Backend, DeviceCode, DeviceJob, Needs
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.machine.device import Arch
from inlay.machine.target import Target
from inlay.ops.table import OperatorTable
from inlay.pipeline.build_kernels import BuildOptions, by_estimates, host_requests
from inlay.pipeline.devices import apart, needs_of_devices, regions_of
from inlay.pipeline.generate import GenerateOptions
from inlay.pipeline.hooking import BoardHooks, before_schedule
from inlay.pipeline.lowering import Lowering
from inlay.pipeline.planning import check_code, meanings_of
from inlay.pipeline.version import lowering_version
from inlay.schedule.choose import RULES, Rule


def build_options(
    operators: OperatorTable,
    board: Board,
    targets: Callable[[str], Target],
    *,
    batch: bool = False,
    verify: bool = False,
    hooks: BoardHooks | None = None,
    choice: Callable[[str, str], Choice] = by_estimates,
) -> BuildOptions:
    """Return what kernels are built with for a board as programs run on it.

    Args:
        operators: that there are.
        board: as programs run on it.
        targets: gives what code of a device is made for, by its name.
        batch: whether several calls of a kernel may run as one.
        verify: whether loops are verified after each stage.
        hooks: of the board, if it has any.
        choice: gives what was measured for kernels, by their devices and keys.
    """
    backend = backend_of(board, board.host.name) or _Described()
    hooked = None if hooks is None or not hooks.loops else partial(before_schedule, hooks)
    here = Lowering(operators, board, backend, targets, verify=verify, before_schedule=hooked)
    others = {d: replace(here, backend=b, device=d) for d, b in apart(board).items()}
    made = partial(check_code, board=board)
    version = lowering_version() + ("" if hooks is None else hooks.digest)
    return BuildOptions(here, others, meanings_of(operators), version, batch, made, choice)


def explaining_options(
    operators: OperatorTable,
    board: Board,
    targets: Callable[[str], Target],
    cache: ObjectCache | None = None,
    hooks: BoardHooks | None = None,
    *,
    batch: bool = False,
    choice: Callable[[str, str], Choice] = by_estimates,
) -> tuple[BuildOptions, GenerateOptions]:
    """Return what kernels are built and lowered with for who makes no code of them, or only of some.

    Kernels of the host whose code is in a cache are not lowered for what the cache says.
    """
    options = build_options(operators, board, targets, batch=batch, hooks=hooks, choice=choice)
    building = replace(options, check=None)
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
