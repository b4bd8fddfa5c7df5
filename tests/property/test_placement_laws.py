"""Laws of planning over generated programs, with random annotations on random boards."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.analysis.blocks import nested, operands
from inlay.base.diagnostics import CompileError
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, Function, GlobalVar, If, Match, OpRef, Tuple, Var
from inlay.ir.module import Module
from inlay.ir.place import Origin, Place
from inlay.ir.printer import print_module
from inlay.ir.types import TensorType
from inlay.ir.verify import check
from inlay.ir.walk import rewrite, spine
from inlay.machine.board import Board
from inlay.machine.board_file import find_board, read_board
from inlay.ops.device import DEVICE_COPY, ON_DEVICE, CopyAttrs, OnDeviceAttrs
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.placement import plan_places
from inlay.placement.infer.capability import capability_of
from inlay.placement.plan_places import Choice, plan
from inlay.transforms import eliminate_common, eliminate_dead, fold_constants, fuse_ops, simplify_algebra
from tests.device_of import place_of
from tests.differential.machines import draw_board
from tests.differential.onnx_draw import Draw
from tests.examples import examples
from tests.property.gen_ir import Program, assert_same, programs, run
from tests.unit.placement.cases import B2, B2X, M2, N, assert_alike, everything, normal

BOARDS = {"B2": B2, "B2x": B2X, "M2": M2, "N": N}


def annotated(module: Module, rng: random.Random, board: Board) -> Module:
    """Ask for some results of operators, and some parameters of entries, to be somewhere."""
    devices = [d.name for d in board.devices]

    def ask(e: Expr) -> Expr:
        if not isinstance(e, Call) or not isinstance(e.callee, OpRef):
            return e
        if not isinstance(e.type, TensorType) or rng.random() > 0.25:
            return e
        attrs = OnDeviceAttrs(rng.choice(devices), result=False)
        return make.call(ON_DEVICE, (e,), attrs, span=e.span)

    functions = {n: rewrite(f, ask) for n, f in module.functions.items()}
    result = module.with_functions(functions)  # type: ignore[arg-type]
    return normal(result)


def blocks(function: Function):
    """Yield every block of a function with the path of branches that leads to it."""
    pending: list[tuple[Expr, tuple[int, ...]]] = [(function.body, ())]
    count = 0
    while pending:
        block, path = pending.pop()
        yield block, path
        lets, tail = spine(block)
        for value in (*(x.value for x in lets), tail):
            for inner in nested(value):
                count += 1
                pending.append((inner, (*path, count)))


def assert_reachable(module: Module, board: Board) -> None:
    """Every operand of every operation can be read by its device, and copies go over links."""
    for function in module.functions.values():
        for block, _ in blocks(function):
            lets, tail = spine(block)
            for value in (*(x.value for x in lets), tail):
                if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
                    continue
                attrs = value.callee.attrs
                if value.callee.op is DEVICE_COPY:
                    assert isinstance(attrs, CopyAttrs)
                    assert any(
                        x.source in (board.device(attrs.src).memories)
                        and x.target in board.device(attrs.dst).memories
                        and x.engine == attrs.engine
                        for x in board.links
                    ), attrs
                    device = attrs.src
                elif value.place is not None:
                    device = value.place.device
                else:
                    device = board.host.name
                if value.callee.op.name.startswith("check_"):
                    continue  # reads the description alone
                for operand in operands(value)[1:]:
                    place = place_of(operand, module)
                    if isinstance(operand, Const) or not isinstance(operand.type, TensorType):
                        continue
                    assert place is not None, f"{operand} has no place"
                    shared = set(board.shared_memories(place.device, device))
                    allowed = set(place.memories or board.device(place.device).memories)
                    assert shared & allowed, (
                        f"{value.callee.op.name} on {device} reads {operand} in {allowed} on "
                        f"{place.device}\n{print_module(module)}"
                    )


def assert_copied_once(module: Module) -> None:
    """On no path is a value copied twice to one place."""
    for function in module.functions.values():
        seen: dict[tuple[Expr, str, str], list[tuple[int, ...]]] = {}
        for block, path in blocks(function):
            for let in spine(block)[0]:
                v = let.value
                if isinstance(v, Call) and isinstance(v.callee, OpRef) and v.callee.op is DEVICE_COPY:
                    attrs = v.callee.attrs
                    assert isinstance(attrs, CopyAttrs)
                    key = (v.args[0], attrs.dst, attrs.dst_memory)
                    for other in seen.setdefault(key, []):
                        short = min(len(other), len(path))
                        assert other[:short] != path[:short], print_module(module)
                    seen[key].append(path)


def assert_nothing_asked(module: Module) -> None:
    """No annotation is left, and every operation on tensors says where it runs."""
    for function in module.functions.values():
        for block, _ in blocks(function):
            lets, tail = spine(block)
            for value in (*(x.value for x in lets), tail):
                if isinstance(value, Call) and isinstance(value.callee, OpRef):
                    assert value.callee.op is not ON_DEVICE
                    if isinstance(value.type, TensorType):
                        assert value.place is not None
                elif isinstance(value, If | Match | Tuple | Var | GlobalVar):
                    pass


def holds(p: Program, board: Board, seed: int) -> None:
    module = annotated(p.module, random.Random(seed), board)
    check(module)
    placed = plan(module, board, everything)
    check(placed)
    assert_same(p, placed)
    assert_nothing_asked(placed)
    assert_reachable(placed, board)
    assert_copied_once(placed)
    again = plan(placed, board, everything)
    assert_alike(again, placed)
    assert_alike(placed, again)
    turned = module.with_functions(dict(reversed(module.functions.items())))
    assert_alike(plan(turned, board, everything), placed)


@settings(max_examples=examples(10))
@given(programs(), st.sampled_from(sorted(BOARDS)), st.integers(0, 10_000))
def test_planning_keeps_the_laws(p, name, seed):
    holds(p, BOARDS[name], seed)


@pytest.mark.slow
@settings(max_examples=400)
@given(programs(), st.sampled_from(sorted(BOARDS)), st.integers(0, 10_000))
def test_planning_keeps_the_laws_long(p, name, seed):
    holds(p, BOARDS[name], seed)


def ask_anywhere(module: Module, rng: random.Random, board: Board) -> Module:
    """Ask for operands, arguments, fields and branches to be somewhere, each use by itself."""
    devices, share = [d.name for d in board.devices], rng.choice([0.05, 0.2, 0.5])

    def annotation(e: Expr) -> Expr:
        if not isinstance(e.type, TensorType) or rng.random() > share:
            return e
        attrs = OnDeviceAttrs(rng.choice(devices), result=rng.random() < 0.05)
        return make.call(ON_DEVICE, (e,), attrs, span=e.span)

    def ask(e: Expr) -> Expr:
        match e:
            case Tuple(fields=fields):
                return replace(e, fields=tuple(map(annotation, fields)))
            case Call(args=args):
                return replace(e, args=tuple(map(annotation, args)))
            case If(then=Var() as then, otherwise=Var() as otherwise):
                return replace(e, then=annotation(then), otherwise=annotation(otherwise))
            case _:
                return e

    functions = {n: rewrite(f, ask) for n, f in module.functions.items()}
    return normal(module.with_functions(functions))  # type: ignore[arg-type]


def plans_to_itself(p: Program, seed: int) -> None:
    """Planned again, as it is and with its operators in kernels, a program is the same text."""
    d = Draw(seed)
    name = d.one(*BOARDS, "drawn", "drawn", "drawn")
    board = read_board("drawn", draw_board(d), place="x.toml") if name == "drawn" else BOARDS[name]
    rng = random.Random(seed)
    module = (annotated if d.chance(0.3) else ask_anywhere)(p.module, rng, board)
    capability = everything if d.chance(0.5) else capability_of(board, table())
    try:
        placed = plan(module, board, capability)
    except CompileError as failure:
        allowed = {"placement.unsupported-op", "device.no-path", "placement.contradiction"}
        assert set(failure.ids) <= allowed  # noqa: PT017
        return
    for again in (placed, fuse_ops.PASS.run(placed, PassContext(table()))):
        check(again)
        assert print_module(plan(again, board, capability)) == print_module(again), seed


@settings(max_examples=examples(10))
@given(programs(), st.integers(0, 10**6))
def test_planned_programs_plan_to_themselves(p, seed):
    plans_to_itself(p, seed)


@pytest.mark.slow
@settings(max_examples=1000)
@given(programs(), st.integers(0, 10**6))
def test_planned_programs_plan_to_themselves_long(p, seed):
    plans_to_itself(p, seed)


@settings(max_examples=examples(6))
@given(programs(), st.sampled_from(["B2", "M2"]), st.integers(0, 10_000))
def test_choosing_keeps_the_meaning(p, name, seed):
    board = BOARDS[name]
    module = plan_places.with_host_ends(
        annotated(p.module, random.Random(seed), board), Place(board.host.name)
    )
    choice = Choice(table(), search=True)
    capability = capability_of(board, table())
    try:
        placed = plan(module, board, capability, choice)
    except CompileError as failure:  # an annotation for what the virtual machine runs
        assert set(failure.ids) == {"placement.unsupported-op"}  # noqa: PT017
        return
    check(placed)
    assert_same(p, placed)
    assert_reachable(placed, board)


@settings(max_examples=examples(8))
@given(programs(), st.integers(0, 10_000))
def test_passes_behind_the_planner_keep_places(p, seed):
    rng = random.Random(seed)

    def put(e: Expr) -> Expr:
        if isinstance(e, Call) and isinstance(e.callee, OpRef) and isinstance(e.type, TensorType):
            place = Place(rng.choice(["cpu", "gpu"]), origin=Origin.USER)
            return Call(e.callee, e.args, e.type, e.span, place)
        return e

    ready = normal(p.module)
    functions = {n: rewrite(f, put) for n, f in ready.functions.items()}
    module = ready.with_functions(functions)  # type: ignore[arg-type]
    context = PassContext(table())
    for step in (fold_constants, simplify_algebra, eliminate_common, eliminate_dead):
        module = step.PASS.run(module, context)
        for function in module.functions.values():
            for block, _ in blocks(function):
                lets, tail = spine(block)
                for value in (*(x.value for x in lets), tail):
                    if isinstance(value, Call) and isinstance(value.callee, OpRef):
                        if isinstance(value.type, TensorType):
                            assert value.place is not None, f"{step.__name__}: {value.callee}"


@pytest.mark.slow
@pytest.mark.llvm
@settings(max_examples=40)
@given(programs(), st.integers(0, 10_000))
def test_programs_compiled_for_two_devices_give_what_the_evaluator_gives(p, seed):
    board = find_board("host_two")
    module = annotated(p.module, random.Random(seed), board)
    try:
        executable = inlay.compile(module, board="host_two", threads=1, verify=True)
    except CompileError as failure:  # an annotation for what the virtual machine runs
        assert set(failure.ids) == {"placement.unsupported-op"}  # noqa: PT017
        return
    inputs = {s.name: a for s, a in zip(executable.entries[0].inputs, p.args, strict=True)}
    expected, found = run(p), tuple(executable.run(inputs).values())
    # One output that is a tuple of one stays a tuple; several outputs are the tuple.
    pairs = zip(
        found[0] if len(found) == 1 and isinstance(expected, tuple) else found,
        expected if isinstance(expected, tuple) else (expected,),
        strict=True,
    )
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-6)
