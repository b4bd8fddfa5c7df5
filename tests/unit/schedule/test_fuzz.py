"""Random sequences of primitives: what is not refused keeps the meaning, and replays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, maximum, minimum
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.scalar import ReduceOp
from inlay.schedule.state import Illegal, Schedule, illegal
from tests.examples import examples
from tests.unit.schedule.programs import dim, elementwise, find_primitive, gemm, hold_law, stencil
from tests.unit.schedule.test_rules import broadcast, pool, reduction, transpose


def chain() -> LoopFunction:
    """Two reductions and maps between them, over rows of unknown length."""
    m, n = dim("m"), dim("n")
    x = te.placeholder((m, n), F32, "x")
    k, r = te.reduce_axis("k", n), te.reduce_axis("r", n)
    a = te.compute((m,), lambda i: te.max_over(k, x[i, k]), name="a", tag="top")
    b = te.compute((m, n), lambda i, j: (x[i, j] - a[i]) * (x[i, j] - a[i]) * 2.0, name="b", tag="sq")
    c = te.compute((m,), lambda i: te.sum_over(r, b[i, r]), name="c", tag="sum")
    y = te.compute((m, n), lambda i, j: b[i, j] + c[i], name="y", tag="out")
    return from_te("chain", [x], [y])


def mirrored() -> LoopFunction:
    """Lines of unknown length with mirrored ends, added to others."""
    m, n = dim("m"), dim("n")
    x, z = te.placeholder((m, n), F32, "x"), te.placeholder((m, n + 5), F32, "z")

    def body(i: Int, j: Int) -> te.ScalarValue:
        near, inside = j - 3, te.index(j) >= 3
        ends = te.select(te.index(near) < 0, x[i, minimum(-near, n - 1)], x[i, maximum(2 * n - 2 - near, 0)])
        return te.select(inside & (te.index(near) < te.index(n)), x[i, near], ends) * 2.0 + z[i, j]

    return from_te("mirrored", [x, z], [te.compute((m, n + 5), body, name="y", tag="y")])


PROGRAMS: dict[str, tuple[Callable[[], LoopFunction], list[tuple[int, ...]]]] = {
    "gemm": (lambda: gemm(dim("m"), 6, dim("k"), bias=True), [(3, 2), (5, 0), (0, 1)]),
    "chain": (chain, [(2, 5), (1, 1)]),
    "stencil": (lambda: stencil(dim("n")), [(2,)]),
    "elementwise": (lambda: elementwise(dim("n"), 5), [(3,), (0,)]),
    "broadcast": (lambda: broadcast(2, 3, 2), [()]),
    "transpose": (lambda: transpose(1, 5, 3, 2), [()]),
    "pool": (lambda: pool(1, 3, channels_last=True, mean=True), [()]),
    "mirrored": (mirrored, [(2, 4), (3, 3), (0, 5)]),
    "reduction": (lambda: reduction((3, 4, 5), (1,), ReduceOp.SUM, then=True), [()]),
}
STEPS = [
    "split",
    "split",
    "split_cascade",
    "split_cases",
    "reorder",
    "reorder",
    "fuse",
    "merge",
    "merge",
    "decompose_reduction",
    "rfactor",
    "vectorize",
    "unroll",
    "parallel",
    "set_scope",
    "set_scope",
    "cache_write",
    "cache_write",
    "cache_read",
    "cache_factor",
    "cache_inplace",
    "compute_at",
    "compute_at",
    "inline",
    "inline",
    "reuse_output",
    "merge_axes",
    "distribute",
]


def apply_one(s: Schedule, name: str, draw: Callable[[int], int]) -> None:
    """Call a primitive with arguments that exist, whether or not they make sense."""

    def pick(items: list[str]) -> str:
        if not items:
            raise illegal("name", "found nothing to pick from")
        return items[draw(len(items))]

    loops = list(s._indexed().loops)
    blocks = list(s.block_names())
    temporaries = [n for n in s._indexed().buffers if n not in {b.name for b in s.params}]
    number = [1, 2, 3, 4, 8][draw(5)]
    keywords: dict[str, bool] = {}
    match name:
        case "split":
            args: tuple = (pick(loops), number)
        case "split_cascade":
            args = (pick(loops), ((4, 1), (3, 2, 1), (2, 1))[draw(3)])
        case "reorder":
            around = list(s.loops_of(pick(blocks)))
            args = ([pick(around), pick(around)],)
        case "fuse" | "merge":
            args = (pick(loops), pick(loops))
        case "decompose_reduction" | "split_cases":
            args = (pick(blocks), pick(loops))
        case "rfactor":
            block = pick(blocks)
            args = (block, [pick(list(s.loops_of(block)))])
            keywords = {"first": draw(2) == 1}
        case "set_scope":
            args = (pick(temporaries), ["stack", "register", "workspace"][draw(3)], pick(loops))
        case "cache_write":
            args = (pick(blocks), "register")
        case "cache_read":
            args = (pick(blocks), pick(list(s._indexed().buffers)), number)
        case "cache_factor":
            args = (pick(blocks), pick(list(s._indexed().buffers)))
        case "cache_inplace":
            args = (pick(blocks), pick(loops), ["stack", "register"][draw(2)])
        case "compute_at":
            args = (pick(blocks), pick(loops), ["stack", "workspace"][draw(2)])
        case "reuse_output":
            args = (pick(temporaries), pick([b.name for b in s.outputs]))
        case "inline":
            args = (pick(blocks),)
        case "merge_axes":
            args = ()
        case _:
            args = (pick(loops),)
    find_primitive(name)(s, *args, **keywords)


@pytest.mark.sample(3)
@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=examples(10))
@given(st.data())
def test_random_schedules(program: str, data: st.DataObject) -> None:
    make, sizes = PROGRAMS[program]
    f = make()
    s = Schedule(f)
    steps = data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=14))
    for name in steps:
        try:
            apply_one(s, name, lambda n: data.draw(st.integers(0, n - 1)))
        except Illegal:
            continue
    hold_law(f, s, *sizes)
