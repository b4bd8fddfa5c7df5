"""The compile route: every pass and stage, in order. This is the only place that knows the order.

load          importers, parser                    file -> module
STEPS
  ROUTE       passes over tensor IR:
    TENSOR                                          types, names, identities, constants, places;
                                                    then, within devices, layouts, packing, groups
    plan-again                                      places, where kernels say more of memories
    build-kernels                                   groups -> kernels
    place-parts                                     parts of concatenations and slices without copies
    generate                                        schedules, loops, LLVM: kernels -> image (through
                                                    the cache), and scratch memory of each
    MEMORY                                          storage, what leaves small memories, then blocks
  link        vm                                    module, images -> program

`pipeline/running.py` runs the passes for compiling and, up to where what is asked about is decided, for
explaining; `pipeline/compile.py` runs the stage behind them.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.passes.contract import Pass
from inlay.passes.manager import Pipeline, make_pipeline
from inlay.pipeline import build_kernels, generate, place_parts, plan_again
from inlay.pipeline.hooking import BoardHooks, with_hooks
from inlay.pipeline.leases import MEMORY
from inlay.placement import mark_annotations, plan_places
from inlay.transforms import (
    call_foreign,
    check_cells,
    check_indices,
    convert_layout,
    decompose_ops,
    eliminate_common,
    eliminate_dead,
    eta_expand,
    expand_externs,
    fold_constants,
    fold_quantization,
    forward_cells,
    fuse_ops,
    grow_in_place,
    grow_state,
    infer_types,
    inline_functions,
    keep_weights,
    outline_regions,
    pack_regions,
    pack_weights,
    prepare_rounding,
    round_operands,
    share_constants,
    simplify_algebra,
    split_batch,
    split_matches,
    split_queries,
    to_anf,
    unify_dims,
    unroll_loops,
    update_state,
    widen_products,
)

TENSOR = (
    infer_types.PASS,
    mark_annotations.PASS,
    to_anf.PASS,
    eta_expand.PASS,
    check_cells.PASS,
    expand_externs.PASS,
    decompose_ops.PASS,
    inline_functions.PASS,
    forward_cells.PASS,
    split_matches.PASS,
    fold_quantization.PASS,
    keep_weights.PASS,
    eliminate_dead.PASS,  # what floats were computed for integers is not to be folded
    share_constants.PASS,
    fold_constants.PASS,
    eliminate_common.PASS,
    simplify_algebra.PASS,
    grow_in_place.PASS,
    grow_state.PASS,
    update_state.PASS,
    unify_dims.PASS,
    simplify_algebra.PASS,
    fold_constants.PASS,
    unroll_loops.PASS,
    eliminate_dead.PASS,  # weights that were folded into others are not to be converted and packed
    split_batch.PASS,
    check_indices.PASS,
    plan_places.PASS,
    outline_regions.PASS,
    pack_regions.PASS,
    convert_layout.PASS,
    split_queries.PASS,
    simplify_algebra.PASS,
    fold_constants.PASS,
    share_constants.PASS,
    prepare_rounding.PASS,
    widen_products.PASS,
    round_operands.PASS,
    pack_weights.PASS,
    eliminate_common.PASS,
    eliminate_dead.PASS,
    call_foreign.PASS,
    fuse_ops.PASS,
)

ROUTE = (*TENSOR, plan_again.PASS, build_kernels.PASS, place_parts.PASS, generate.PASS, *MEMORY)
"""From a module as it was loaded to one that only needs linking."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A step behind the passes, which makes something else of the last module.

    Attributes:
        name: of the step, as times of compilations have it.
        summary: one line for lists.
    """

    name: str
    summary: str


LINK = Stage("link", "make a program of the last module and its images")

STEPS: tuple[Pass | Stage, ...] = (*ROUTE, LINK)
"""All that a compilation does with a module, in order."""


def route(until: Pass | None = None, hooks: BoardHooks | None = None) -> Pipeline:
    """Return the passes of a compilation in order, up to one of them or all; hooks among them.

    Raises:
        CompileError: `accel.hook-order`.
    """
    whole = ROUTE if hooks is None else with_hooks(ROUTE, hooks)
    return make_pipeline(whole if until is None else whole[: whole.index(until) + 1])
