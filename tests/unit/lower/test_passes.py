"""Lowering passes on small programs: before, after, and the law."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.expr import evaluate
from inlay.base.diagnostics import CompileError
from inlay.codegen.phases import workspace_layout
from inlay.interp import loop as interp
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.loop.verify import check
from inlay.lower.compact_buffers import compact_buffers
from inlay.lower.drop_guards import drop_guards
from inlay.lower.flatten_blocks import flatten_blocks
from inlay.lower.lower import Hook, lower
from inlay.lower.lower_binds import lower_binds
from inlay.lower.partition_loops import partition_loops
from inlay.lower.place_buffers import place_buffers
from inlay.lower.simplify import simplify
from inlay.lower.trim_vectors import trim_vectors
from inlay.machine.target import Target
from tests.loop_equal import equal


def with_body(f: LoopFunction, body, workspaces=()) -> LoopFunction:
    return LoopFunction(f.name, f.params, f.n_reads, f.dims, body, Stage.LOWERED, workspaces)


def hold(before: str, run, after: str, *sizes: int) -> None:
    f = parse_function(before)
    made = run(f)
    check(made)
    expected = parse_function(after)
    assert equal(made, expected), print_function(made)
    for n in sizes:
        env = dict.fromkeys(f.dims, n)
        inputs = [
            np.arange(np.prod([evaluate(e, env) for e in b.shape]), dtype=b.dtype.numpy).reshape(
                [evaluate(e, env) for e in b.shape]
            )
            for b in f.params[: f.n_reads]
        ]
        want = interp.run(f, inputs, env)
        got = interp.run(made, inputs, dict.fromkeys(made.dims, n))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


HEAD = "lowered func f(x: f32[n]) -> (y: f32[n]) over (n)"
MASKED = "if [8*o + i] < [n] { y[8*o + i] = x[8*o + i] }"


def test_flatten_puts_inits_in_front_and_predicates_around() -> None:
    hold(
        """schedulable func f(x: f32[n, 5]) -> (y: f32[n]) over (n) {
          for i in 0..n { for k in 0..2 { for l in 0..4 {
            block b(v: spatial n = i, r: reduce 5 = 4*k + l) where [4*k + l] < [5] {
              init { y[v] = 0.0:f32 } y[v] = y[v] + x[v, r] } } } } }""",
        lambda f: with_body(f, flatten_blocks(f.body)),
        """lowered func f(x: f32[n, 5]) -> (y: f32[n]) over (n) {
          for i in 0..n { y[i] = 0.0:f32
            for k in 0..2 { for l in 0..4 { if [4*k + l] < [5] {
              y[i] = y[i] + x[i, 4*k + l] } } } } }""",
        3,
        0,
    )


def test_partition_separates_the_last_tile() -> None:
    hold(
        HEAD + "{ for o in 0..(n + 7) / 8 { for i in 0..8 vector {" + MASKED + "} } }",
        lambda f: with_body(f, partition_loops(f.body)),
        HEAD
        + """{ for o in 0..n / 8 { for i in 0..8 vector { y[8*o + i] = x[8*o + i] } }
               for o in n / 8..(n + 7) / 8 { for i in 0..8 vector {"""
        + MASKED
        + "} } }",
        16,
        19,
        3,
        0,
    )


def test_partition_branches_inside_parallel_loops() -> None:
    hold(
        HEAD + "{ for o in 0..(n + 7) / 8 parallel { for i in 0..8 vector {" + MASKED + "} } }",
        lambda f: with_body(f, partition_loops(f.body)),
        HEAD
        + """{ for o in 0..(n + 7) / 8 parallel { if [o] < [n / 8] {
                 for i in 0..8 vector { y[8*o + i] = x[8*o + i] } } else {
                 for i in 0..8 vector {"""
        + MASKED
        + "} } } }",
        16,
        19,
        3,
    )


def test_partition_cuts_loops_in_the_last_iteration_of_a_parallel_loop() -> None:
    """Of chunks of two vectors, the last has a whole one and a part of one."""
    inside = "if [16*o + 8*t + i] < [28] { y[16*o + 8*t + i] = x[16*o + 8*t + i] }"
    whole = "y[16*o + 8*t + i] = x[16*o + 8*t + i]"
    head = "lowered func f(x: f32[28]) -> (y: f32[28]) "
    hold(
        head + "{ for o in 0..2 parallel { for t in 0..2 { for i in 0..8 vector {" + inside + "} } } }",
        lambda f: with_body(f, partition_loops(f.body)),
        head
        + "{ for o in 0..2 parallel { if [o] < [1] { for t in 0..2 { for i in 0..8 vector {"
        + whole
        + "} } } else { for t in 0..1 { for i in 0..8 vector {"
        + whole
        + "} } for t in 1..2 { for i in 0..8 vector {"
        + inside.replace("8*t", "8")
        + "} } } } }",
    )


def test_partition_knows_which_one_the_last_iteration_is() -> None:
    """Of two loops that threads share as one, the inner is left with one iteration."""
    hold(
        """lowered func f(x: f32[3, 29]) -> (y: f32[3, 29]) {
             for p in 0..6 parallel { for o in (p % 2)..(p % 2) + 1 { for i in 0..16 vector {
               if [16*o + i] < [29] { y[p / 2, 16*o + i] = x[p / 2, 16*o + i] } } } } }""",
        lambda f: with_body(f, partition_loops(f.body)),
        """lowered func f(x: f32[3, 29]) -> (y: f32[3, 29]) {
             for p in 0..6 parallel {
               for o in (p % 2)..1 { for i in 0..16 vector {
                 y[p / 2, 16*o + i] = x[p / 2, 16*o + i] } }
               for o in 1..(p % 2) + 1 { for i in 0..16 vector {
                 if [16 + i] < [29] { y[p / 2, 16 + i] = x[p / 2, 16 + i] } } } } }""",
    )


@pytest.mark.parametrize(("vector_bytes", "extent"), [(4, 5), (16, 8), (32, 8), (64, 16)])
def test_vectors_behind_the_last_element_are_left_out(vector_bytes: int, extent: int) -> None:
    before = """lowered func f(x: f32[29]) -> (y: f32[29]) {
      for o in 0..2 parallel { if [o] < [1] {
        for i in 0..24 vector { y[24*o + i] = x[24*o + i] } } else {
        for i in 0..24 vector { if [24*o + i] < [29] { y[24*o + i] = x[24*o + i] } } } } }"""
    after = before.replace("0..24 vector { if", f"0..{extent} vector {{ if")
    target = Target(vector_bytes=vector_bytes)
    hold(before, lambda f: with_body(f, trim_vectors(f.body, target)), after, 0)


@pytest.mark.parametrize(
    "body",
    [
        "if [i] < [3] { y[i] = x[i] } else { y[i] = 0.0:f32 }",
        "if [i] < [3] { y[i] = x[i] } y[i] = x[i]",
        "if [3] < [i] { y[i] = x[i] }",
        "if [i] < [7] { y[i] = x[i] }",
        "if [i] < [x_size] { y[i] = x[i] }",
        "if ([i] < [9]) & (x[i] < 0.0:f32) { y[i] = x[i] } else { if [i] < [7] { y[i] = x[i] } }",
    ],
)
def test_vectors_that_do_something_stay(body: str) -> None:
    text = f"lowered func f(x: f32[8]) -> (y: f32[8]) over (x_size) {{ for i in 0..8 vector {{ {body} }} }}"
    hold(text, lambda f: with_body(f, trim_vectors(f.body, Target(vector_bytes=8))), text)


def test_loops_over_one_buffer_keep_as_many_elements() -> None:
    """Sums of 32 bits that become bytes: whole vectors of bytes would be more than whole vectors of sums."""
    before = """lowered func f(x: i32[29]) -> (y: u8[29]) { alloc acc: i32[24] @register
      for i in 0..24 vector { if [i + 16] < [29] { acc[i] = x[i + 16] } }
      for j in 0..24 vector { if [j + 16] < [29] { y[j + 16] = u8(acc[j]) } } }"""
    after = before.replace("0..24", "0..16")
    hold(before, lambda f: with_body(f, trim_vectors(f.body, Target(vector_bytes=32))), after)


def test_simplify_uses_ranges() -> None:
    hold(
        HEAD
        + """{ for o in 0..n / 4 { for i in 0..4 {
                 if [4*o + i] < [n] { y[(4*o + i) / 4 * 4 + (4*o + i) % 4] = x[4*o + i] }
                 if [i] < [0] { y[0] = 0.0:f32 } } }
               for z in 4*(n / 4)..4*(n / 4) + 1 { if [z] < [n] {
                 for u in 0..n - 4*(n / 4) { y[z + u] = x[z + u] } } } }""",
        lambda f: with_body(f, simplify(f.body)),
        HEAD
        + """{ for o in 0..n / 4 { for i in 0..4 { y[4*o + i] = x[4*o + i] } }
               if [4*(n / 4)] < [n] { for u in 0..n - 4*(n / 4) {
                 y[4*(n / 4) + u] = x[4*(n / 4) + u] } } }""",
        8,
        11,
        2,
    )


def test_compact_shrinks_to_what_lives() -> None:
    hold(
        HEAD
        + """{ for i in 0..n { alloc t: f32[n, 8] @stack
                 for j in 0..4 { t[i, j + 2] = x[i] }
                 y[i] = t[i, 2] + t[i, 5] } }""",
        lambda f: with_body(f, compact_buffers(f.body)),
        HEAD
        + """{ for i in 0..n { alloc t: f32[1, 4] @stack
                 for j in 0..4 { t[0, j] = x[i] }
                 y[i] = t[0, 0] + t[0, 3] } }""",
        3,
    )


def placed(f: LoopFunction, stack_bytes: int = 32 << 10) -> LoopFunction:
    return with_body(f, *place_buffers(f.body, Target(stack_bytes=stack_bytes)))


def test_buffers_between_phases_are_workspaces() -> None:
    hold(
        HEAD
        + """{ alloc t: f32[n] @stack
               for i in 0..n parallel { t[i] = x[i] }
               for j in 0..n parallel { y[j] = t[j] } }""",
        placed,
        HEAD
        + """uses (t: f32[n] @workspace) {
               for i in 0..n parallel { t[i] = x[i] }
               for j in 0..n parallel { y[j] = t[j] } }""",
        3,
    )


@pytest.mark.parametrize(
    ("size", "inside", "uses"),
    [("4", "alloc t: f32[4] @stack", ""), ("n", "", "uses (t: f32[n] @workspace per_part)")],
)
def test_temporaries_of_an_iteration(size: str, inside: str, uses: str) -> None:
    rest = "for j in 0..1 { t[j] = x[i] } y[i] = t[0]"
    hold(
        f"{HEAD} {{ for i in 0..n parallel {{ alloc t: f32[{size}] @workspace {rest} }} }}",
        placed,
        f"{HEAD} {uses} {{ for i in 0..n parallel {{ {inside} {rest} }} }}",
        3,
    )


@pytest.mark.parametrize(("stack_bytes", "on_stack"), [(0, ""), (15, ""), (16, "a"), (47, "a"), (48, "ab")])
def test_temporaries_share_the_stack_that_there_is(stack_bytes: int, on_stack: str) -> None:
    sizes = {"a": 4, "b": 8}
    allocs = "".join(f"alloc {b}: f32[{n}] @stack " for b, n in sizes.items())
    stay = "".join(f"alloc {b}: f32[{sizes[b]}] @stack " for b in on_stack)
    uses = ", ".join(f"{b}: f32[{sizes[b]}] @workspace per_part" for b in sizes if b not in on_stack)
    rest = "a[0] = x[i] b[0] = a[0] y[i] = b[0]"
    hold(
        f"{HEAD} {{ for i in 0..n parallel {{ {allocs} {rest} }} }}",
        lambda f: placed(f, stack_bytes),
        f"{HEAD} {f'uses ({uses})' if uses else ''} {{ for i in 0..n parallel {{ {stay} {rest} }} }}",
        3,
    )


def test_registers_need_no_stack() -> None:
    text = f"{HEAD} {{ for i in 0..n {{ alloc t: f32[8] @register t[0] = x[i] y[i] = t[0] }} }}"
    hold(text, lambda f: placed(f, 0), text, 3)


def test_a_hook_runs_behind_its_pass() -> None:
    f = parse_function(
        "schedulable func f(x: f32[n]) -> (y: f32[n]) over (n) "
        "{ for i in 0..n { block b(v: spatial n = i) { y[v] = x[v] } } }"
    )
    target, seen = Target(), []

    def hook(name: str) -> Hook:
        return Hook(name, lambda s, given: (seen.append((name, given is target)), s)[1])

    hooks = [hook("compact_buffers"), hook("flatten_blocks")]
    assert equal(lower(f, target, hooks), lower(f, target))
    assert seen == [("flatten_blocks", True), ("compact_buffers", True)]
    with pytest.raises(CompileError, match="did you mean flatten_blocks"):
        lower(f, target, [hook("flatten_block")])


def test_registers_stay_around_the_statements_that_use_them() -> None:
    hold(
        HEAD
        + """{ alloc a: f32[1] @register alloc b: f32[1] @register
               for j in 0..n parallel { y[j] = x[j] }
               a[0] = 1.0:f32
               for i in 0..n { y[i] = x[i] + a[0] }
               b[0] = 2.0:f32
               for k in 0..n { y[k] = y[k] + b[0] } }""",
        placed,
        HEAD
        + """{ for j in 0..n parallel { y[j] = x[j] }
               { alloc a: f32[1] @register a[0] = 1.0:f32 for i in 0..n { y[i] = x[i] + a[0] } }
               { alloc b: f32[1] @register b[0] = 2.0:f32 for k in 0..n { y[k] = y[k] + b[0] } } }""",
        3,
    )


def test_binds_become_lets_with_their_guards() -> None:
    text = """lowered func f(x: f32[4], k: i64[2]) -> (y: f32[4]) {
      for i in 0..4 { y[i] = GATHER } }"""
    f = parse_function(text.replace("GATHER", "x[i]"))
    gather = "select([i] < [2], bind(p = k[i], x[p]), 0.0:f32)"
    g = parse_function(text.replace("GATHER", gather))
    lowered = with_body(g, lower_binds(g.body))
    check(lowered)
    assert "let p = select([i] < [2], k[i], 0:i64)" in print_function(lowered)
    x, k = np.arange(4, dtype=np.float32), np.array([3, 1])
    (y,) = interp.run(lowered, [x, k])
    np.testing.assert_array_equal(y, [3, 1, 0, 0])
    assert lower_binds(f.body) is f.body


BOARD = Target(stack_bytes=64, stacks=("cpu.stack",), memories=("sram0", "sram1"))


@pytest.mark.parametrize(
    ("scope", "inside", "uses"),
    [("cpu.stack", "alloc t: f32[4] @stack", ""), ("sram1", "", "uses (t: f32[4] @sram1 per_part)")],
)
def test_a_named_memory_is_obeyed(scope: str, inside: str, uses: str) -> None:
    rest = "for j in 0..1 { t[j] = x[i] } y[i] = t[0]"
    hold(
        f"{HEAD} {{ for i in 0..n parallel {{ alloc t: f32[4] @{scope} {rest} }} }}",
        lambda f: with_body(f, *place_buffers(f.body, BOARD)),
        f"{HEAD} {uses} {{ for i in 0..n parallel {{ {inside} {rest} }} }}",
        3,
    )


ONE = "for i in 0..n parallel { alloc t: f32[SIZE] @SCOPE t[0] = x[i] y[i] = t[0] }"
MORE = {
    "what its device has not": (ONE, "sram2", "4", "its device has sram0, sram1, cpu.stack"),
    "a full stack": (ONE, "cpu.stack", "17", "it needs 68 bytes, and 64 are left there"),
    "a size that is not known": (ONE, "cpu.stack", "n", "bytes, and 64 are left there"),
    "phases": (
        "alloc t: f32[SIZE] @SCOPE for i in 0..4 parallel { t[i] = x[i] } for j in 0..4 parallel { y[j] = t[j] }",
        "cpu.stack",
        "4",
        "a stack is of one thread",
    ),
    "two memories": (
        "alloc t: f32[SIZE] @SCOPE alloc u: f32[n] @sram1 for i in 0..4 { t[i] = x[i] u[i] = t[i] y[i] = u[i] }",
        "sram0",
        "n",
        "'t' is in sram0, and workspaces of a function are one block",
    ),
}


@pytest.mark.parametrize("name", MORE)
def test_a_named_memory_that_cannot_be_obeyed_is_refused(name: str) -> None:
    body, scope, size, why = MORE[name]
    f = parse_function(f"{HEAD} {{ {body.replace('SCOPE', scope).replace('SIZE', size)} }}")
    check(f)
    with pytest.raises(CompileError) as failure:
        place_buffers(f.body, BOARD)
    assert failure.value.ids == ("loop.no-memory",)
    assert why in str(failure.value)


def test_registers_with_addresses_need_the_stack() -> None:
    text = "for i in 0..n { alloc t: f32[8] @register for j in 0..8 { t[j] = x[i] } y[i] = t[0] }"
    for stack, there in ((0, False), (32, True)):
        f = placed(parse_function(f"{HEAD} {{ {text} }}"), stack)
        assert bool(f.workspaces) is not there


def test_the_memory_of_workspaces_is_that_of_their_block() -> None:
    f = parse_function(f"{HEAD} uses (t: f32[n] @sram1 per_part, u: f32[4] @workspace) {{ y[0] = x[0] }}")
    check(f)
    block = workspace_layout(f).block()
    assert block is not None
    assert (block.memory, block.per_part) == ("sram1", True)
    assert print_function(f).count("@sram1") == 1


GUARDED = """lowered func f(x: f32[2, n], b: f32[n]) -> (y: f32[n]) over (n) {
  for o in 0..(n + 3) / 4 { alloc a: f32[1, 4] @register
    for i in 0..4 vector { if [4*o + i] < [n] { a[0, i] = FIRST } }
    for k in 0..2 { for j in 0..4 vector { if [4*o + j] < [n] { a[0, j] = a[0, j] + x[k, 0] } } }
    for l in 0..4 vector { if [4*o + l] < [n] { y[4*o + l] = a[0, l] } } } }"""
OPEN = """lowered func f(x: f32[2, n], b: f32[n]) -> (y: f32[n]) over (n) {
  for o in 0..(n + 3) / 4 { alloc a: f32[1, 4] @register
    for i in 0..4 vector { a[0, i] = FIRST }
    for k in 0..2 { for j in 0..4 vector { a[0, j] = a[0, j] + x[k, 0] } }
    for l in 0..4 vector { if [4*o + l] < [n] { y[4*o + l] = a[0, l] } } } }"""


def test_lanes_that_nothing_reads_are_computed() -> None:
    two, three = GUARDED.replace("x[k, 0]", "b[0]"), OPEN.replace("x[k, 0]", "b[0]")
    two, three = (t.replace("b: f32[n]", "b: f32[3]") for t in (two, three))
    hold(two.replace("FIRST", "0.0:f32"), _dropped, three.replace("FIRST", "0.0:f32"), 1, 4, 7)


@pytest.mark.parametrize(("end", "is_dropped"), [("9", True), ("5", False)])
def test_what_lanes_read_in_common_is_there_as_soon_as_the_first_lane_is(end: str, is_dropped: bool) -> None:
    """Where no lane is there, the common element need not be either."""
    guarded, opened = (
        text.replace("FIRST", "0.0:f32")
        .replace("(n + 3) / 4", "3")
        .replace("x[k, 0]", "x[p + k, 0]")
        .replace("for k in 0..2", "for k in max(0, 3*o - 4)..2")
        .replace("for o in", "for p in 0..5 { for o in").replace("} } } }", "} } } } }")
        .replace("x: f32[2, n]", "x: f32[6, 2]")
        .replace("b: f32[n]) -> (y: f32[n]) over (n)", "b: f32[9]) -> (y: f32[9])")
        .replace("< [n]", f"< [{end}]")
        for text in (GUARDED, OPEN)
    )  # fmt: skip
    hold(guarded, _dropped, opened if is_dropped else guarded)


@pytest.mark.parametrize(
    "text",
    [
        GUARDED.replace("FIRST", "b[4*o + i]").replace("x[k, 0]", "1.0:f32"),  # b ends before
        GUARDED.replace("FIRST", "0.0:f32").replace("x[k, 0]", "x[k, 4*o + j]"),
        GUARDED.replace("FIRST", "0.0:f32").replace("[4*o + i] < [n]", "[4*o + i] < [n + 1]"),
        GUARDED.replace("FIRST", "0.0:f32").replace("a[0, l] }", "a[0, 0] }"),
    ],
)
def test_guards_that_something_needs_stay(text: str) -> None:
    hold(text, _dropped, text, 1, 4, 7)


def _dropped(f: LoopFunction) -> LoopFunction:
    return with_body(f, drop_guards(f.body))
