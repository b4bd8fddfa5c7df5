"""Explains decisions: a compilation up to where they are made, and what it decided.

There is one run, that of compiling (`running.py`), and views of it. Each view is made of what the run
kept: the plan of places, the record of fusion, the kernels with their schedules, the plan of memory. None
of them decides anything again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeAlias

from inlay.base.diagnostics import CompileError, RunError, error
from inlay.base.registry import unknown_name
from inlay.codegen.backend_table import target_of
from inlay.codegen.cache import ObjectCache
from inlay.codegen.interface import described
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.machine.target import Target
from inlay.passes.contract import Pass
from inlay.pipeline import place_parts
from inlay.pipeline.build_kernels import BuildOptions
from inlay.pipeline.building import explaining_options
from inlay.pipeline.explain.fusion import FusionExplanation, fusion_of
from inlay.pipeline.explain.loops import LoopsExplanation, loops_of
from inlay.pipeline.explain.memory import MemoryExplanation, memory_of
from inlay.pipeline.explain.numerics import NumericsExplanation, numerics_of
from inlay.pipeline.explain.story import Story, story_of
from inlay.pipeline.generate import GenerateOptions
from inlay.pipeline.options import PlaceOptions, default_cache
from inlay.pipeline.planning import Setting, setting_of, threads_of
from inlay.pipeline.route import ROUTE
from inlay.pipeline.running import Run, run_passes
from inlay.placement import plan_places
from inlay.placement.explain.reasons import Explanation, explanation_of
from inlay.transforms import pack_weights, split_batch

Explained: TypeAlias = (
    Explanation | FusionExplanation | LoopsExplanation | MemoryExplanation | NumericsExplanation | Story
)


_Kernels: TypeAlias = tuple[BuildOptions, GenerateOptions]


class View(StrEnum):
    """What may be asked about a whole program."""

    PLACEMENT = "placement"
    FUSION = "fusion"
    LOOPS = "loops"
    MEMORY = "memory"
    NUMERICS = "numerics"


_UNTIL: Mapping[View, Pass] = {
    View.PLACEMENT: plan_places.PASS,
    View.FUSION: place_parts.PASS,  # which knows what is not copied
    View.LOOPS: place_parts.PASS,
    View.MEMORY: ROUTE[-1],
    View.NUMERICS: pack_weights.PASS,  # which knows what is stored in 16 bits
}
"""The pass that decides what a view shows."""


def explained(
    module: Module, options: PlaceOptions, view: str, at: str = "", threads: int | None = None
) -> Explained:
    """Return what a compilation would decide, and why.

    Args:
        module: the program as it was loaded.
        options: as for a compilation; the board need not be one that can be compiled for.
        view: one of `View`.
        at: asks for all about the operations of this name, instead of a view.
        threads: on how many the host's kernels run; all processors by default.

    Raises:
        CompileError, RunError: of passes and of planning; `option.no-effect`; `name.unknown` for a view
            that is none, and for a name that no operation has.
    """
    if view not in (*View,):
        raise unknown_name("view", view, View)
    setting = setting_of(options, threads=threads, target=_target)
    _check_threads(setting, threads)
    kernels = _kernels(setting, batch=options.batch)
    if at:
        return _story(module, setting, kernels, at)
    return view_of(_run(module, setting, kernels, _UNTIL[View(view)]), View(view))


def view_of(run: Run, view: View) -> Explained:
    """Return a view of what passes decided."""
    match view:
        case View.PLACEMENT:
            return placement_of(run)
        case View.FUSION:
            return fusion_of(run)
        case View.LOOPS:
            return loops_of(run)
        case View.MEMORY:
            return memory_of(run)
        case View.NUMERICS:
            return numerics_of(run)


def placement_of(run: Run) -> Explanation:
    """Return where operations run, and why."""
    assert run.planned is not None, "who asks about places has run the pass that plans them"
    batches = tuple(r.message for r in run.setting.context.remarks.of(split_batch.PASS.name))
    found = explanation_of(run.planned)
    return replace(found, without_code=run.without_code, threads=run.threads, batches=batches)


def _story(module: Module, setting: Setting, kernels: _Kernels, at: str) -> Story:
    """Return all about operations; where the plan of memory is refused, all but that, and why."""
    try:
        return story_of(_run(module, setting, kernels, ROUTE[-1]), at)
    except CompileError as refusal:
        if "name.unknown" in [d.id for d in refusal.diagnostics]:
            raise
        run = _run(module, setting, kernels, place_parts.PASS)
        return story_of(run, at, refusal.diagnostics[0].message)


def _kernels(setting: Setting, *, batch: bool) -> _Kernels:
    """Return how kernels are lowered; of those in the cache, the cache says what they need."""
    folder = default_cache()
    cache = None if folder is None or not folder.is_dir() else ObjectCache(folder)
    return explaining_options(setting, cache, batch=batch)


def _run(module: Module, setting: Setting, kernels: _Kernels, until: Pass) -> Run:
    return run_passes(module, setting, kernels, until=until, asks=True)


def _check_threads(setting: Setting, threads: int | None) -> None:
    board = setting.board
    if threads is not None and board.host.name not in threads_of(board, threads):
        raise error(
            "option.no-effect",
            f"found threads = {threads}, which does nothing on board '{board.name}': "
            "its host is not this processor",
        )


def _target(board: Board, device: str) -> Target:
    """Return what code of a device is made for; what the board says of it where it does not answer."""
    try:
        return target_of(board, device)
    except RunError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        return described(Target(), board, device)
