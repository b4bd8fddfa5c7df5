"""Gathering integer work keeps results and failures, whoever executes it, and moves checks up."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.bytecode import container, writer
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import MAX_SHAPE_INPUTS, Kind
from inlay.bytecode.program import AccessCode, Entry, HostBody, ImageBody, Kernel, Phase, ShapeCode
from inlay.bytecode.spec import Dim, TensorSpec
from inlay.codegen.image import Image
from inlay.codegen.llvm_generator import LlvmGenerator
from inlay.machine.target import host
from inlay.runtime.session import executable_of
from inlay.vm.code import Branch, Code, CodeBlock, Instruction, Join, Register, Return, Shapes, Yield
from inlay.vm.emit import ShapeSite, emit
from inlay.vm.shapes import LEAST, MOST_NATIVE, gather_shapes
from tests.unit.runtime.programs import spec

EDGES = [0, 1, -1, 2, 7, -3, 1 << 31, (1 << 62) + 5, (1 << 63) - 1, -(1 << 63)]
BINARY = ["ADD", "SUB", "MUL", "FLOORDIV", "MOD", "MIN", "MAX", "EQ", "NE", "LT", "LE", "AND", "OR"]
GIVEN = 4
QUIET = Kernel("quiet", (AccessCode.READ,), 0, ImageBody((Phase(0),)))
LOUD = Kernel("loud", (AccessCode.READ,), 0, ImageBody((Phase(0),)), assertions=("it is loud",))
OUTSIDE = Kernel("outside", (AccessCode.READ,), 0, HostBody("outside"))


class Writer:
    """Appends instructions to a block; each has a place of its own."""

    def __init__(self) -> None:
        self.nodes: list = []

    def __call__(self, name, *operands, args=(), kinds=()):
        results = tuple(Register(kind) for kind in kinds)
        span = f"place {len(self.nodes)}"
        self.nodes.append(Instruction(name, operands, tuple(args), results, span))
        return results

    def int(self, name, *args):
        return self(name, args=args, kinds=(Kind.INT,))[0]


def random_code(seed: int):
    """Return what fills a function of a tensor [n, m] and a tensor of integers, both i64."""
    r = random.Random(seed)
    edges = r.random() < 0.4

    def build(params):
        x, numbers = params
        w = Writer()
        ints = list(w("READ_INTS", GIVEN, args=(numbers,), kinds=(Kind.INT,) * GIVEN))

        def operand():
            if r.random() < 0.25:
                return r.choice(EDGES) if edges else r.randint(-4, 9)
            return r.choice(ints[-12:])

        for _ in range(r.randint(3, 60)):
            match r.randrange(12):
                case 0:
                    ints.append(w("DIM", r.randrange(2), args=(x,), kinds=(Kind.INT,))[0])
                case 1:
                    condition = w.int("LT", operand(), r.choice([50, 1 << 40, (1 << 63) - 1]))
                    w("CHECK", 1, "found {1}", args=(operand(), condition))
                case 2:
                    w("ALLOCATE", 0, "f32", 1, args=(3,), kinds=(Kind.TENSOR,))
                case 3:
                    ints.append(
                        w(
                            "TO_INT",
                            args=(w("ROW", args=(numbers, r.randrange(GIVEN)), kinds=(Kind.TENSOR,))[0],),
                            kinds=(Kind.INT,),
                        )[0]
                    )
                case 4:
                    ints.append(w.int("SELECT", operand(), operand(), operand()))
                case 5:
                    ints.append(w.int(r.choice(["NEG", "NOT"]), operand()))
                case _:
                    ints.append(w.int(r.choice(BINARY), operand(), operand()))
        (made,) = w("MAKE_INTS", "i64", len(ints), args=ints, kinds=(Kind.TENSOR,))
        return CodeBlock(w.nodes, Return((made,)))

    return build


def program_of(build, *, gather: bool, native: bool):
    """Return a program of one function, and how many groups it has."""
    generator = LlvmGenerator(host())
    b = ProgramBuilder()
    f = b.function("main", [Kind.TENSOR, Kind.TENSOR], [Kind.TENSOR])
    params = (Register(Kind.TENSOR), Register(Kind.TENSOR))
    code = Code(f, params, build(params))
    sites: list[ShapeSite] = []
    if gather:
        gather_shapes(code, [], native=MOST_NATIVE if native else 0)
    emit(code, sites)
    if sites:
        functions = [site.function for site in sites]
        b.image, offsets = generator.add_shapes(Image(b"", {}, host().arch, ()), functions)
        b.shapes = [
            ShapeCode(at, s.inputs, len(s.function.results)) for at, s in zip(offsets, sites, strict=True)
        ]
    inputs = (spec("x", "i64", "3, 5", []), spec("numbers", "i64", str(GIVEN), []))
    b.entry(Entry("main", f.index, inputs, (TensorSpec("y", "i64", (Dim("k", None),)),)))
    return b.finish(), len(sites)


def outcome(program, numbers, **engine):
    """What a call gives: the integers, or the failure with its text and place."""
    exe = executable_of(program, **engine)
    try:
        return list(exe(np.zeros((3, 5), np.int64), np.array(numbers)))
    except RunError as caught:
        (found,) = caught.diagnostics
        return (found.id, found.message, found.notes)


def compare(seed: int) -> tuple[bool, int]:
    """Compare one program on a few inputs; return whether it failed, and its groups."""
    r = random.Random(seed)
    plain, _ = program_of(random_code(seed), gather=False, native=False)
    moved, none = program_of(random_code(seed), gather=True, native=False)
    fast, groups = program_of(random_code(seed), gather=True, native=True)
    assert none == 0
    failed = False
    for values in (EDGES, range(1, 9)):
        numbers = [r.choice(values) for _ in range(GIVEN)]
        wanted = outcome(plain, numbers, engine="python")
        failed |= isinstance(wanted, tuple)
        for program in (plain, moved, fast):
            assert outcome(program, numbers) == wanted, (seed, numbers)
        for program in (moved, fast):
            assert outcome(program, numbers, engine="python") == wanted, (seed, numbers)
    data = writer.to_bytes(fast)
    assert writer.to_bytes(container.read(data)) == data
    assert writer.to_bytes(program_of(random_code(seed), gather=True, native=True)[0]) == data
    return failed, groups


def test_all_ways_of_execution_agree():
    seen = [compare(seed) for seed in range(30)]
    assert sum(failed for failed, _ in seen) > 5, "failures are compared too"
    assert sum(not failed for failed, _ in seen) > 5
    assert sum(groups for _, groups in seen) > 30


def test_native_code_is_what_runs():
    def build(params):
        w = Writer()
        values = []
        for axis, name in enumerate(("ADD", "MUL")):
            (n,) = w("DIM", axis, args=params[:1], kinds=(Kind.INT,))
            for k in range(2, 2 + LEAST):
                n = w.int(name, n, k)
            values.append(n)
            w("READ_INTS", GIVEN, args=params[1:], kinds=(Kind.INT,) * GIVEN)
        (made,) = w("MAKE_INTS", "i64", 2, args=values, kinds=(Kind.TENSOR,))
        return CodeBlock(w.nodes, Return((made,)))

    program, groups = program_of(build, gather=True, native=True)
    assert groups == 2
    factors = range(2, 2 + LEAST)
    right = [3 + sum(factors), 5 * prod(factors)]
    assert outcome(program, [0] * GIVEN) == right
    add, mul = program.shapes
    swapped = (replace(add, offset=mul.offset), replace(mul, offset=add.offset))
    program = replace(program, shapes=swapped)
    assert outcome(program, [0] * GIVEN) == [3 * prod(factors), 5 + sum(factors)]
    assert outcome(program, [0] * GIVEN, engine="python") == right


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_all_ways_of_execution_agree_on_many(block):
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        compare(seed)


# ------------------------------------------------------------------------------- what moves


def gathered(fill, *, native: int = 99, kernels=(QUIET, LOUD, OUTSIDE)):
    """Return the nodes that a block becomes, where `fill` writes it from a tensor."""
    b = ProgramBuilder()
    f = b.function("main", [Kind.TENSOR], [])
    x = Register(Kind.TENSOR)
    w = Writer()
    fill(w, x)
    code = Code(f, (x,), CodeBlock(w.nodes, Return(())))
    gather_shapes(code, kernels, native=native)
    return code.body.nodes


def names(nodes) -> list:
    return [[inner.name for inner in n.nodes] if isinstance(n, Shapes) else n.name for n in nodes]


def check_between(kernel: int):
    """Work before and behind a kernel, with a check in the middle."""

    def fill(w, x):
        (n,) = w("DIM", 0, args=(x,), kinds=(Kind.INT,))
        w("STORAGE", 0, 64, args=(w.int("MUL", n, 4),), kinds=(Kind.STORAGE,))
        w("INVOKE", kernel, args=(x,))
        (m,) = w("DIM", 1, args=(x,), kinds=(Kind.INT,))
        w("CHECK", 2, "found {1} and {2}", args=(n, m, w.int("EQ", n, m)))
        w.int("ADD", w.int("ADD", w.int("ADD", n, m), 1), m)

    return fill


def test_a_check_of_dims_comes_before_the_work():
    group, *rest = names(gathered(check_between(0)))
    assert group == ["DIM", "MUL", "DIM", "EQ", "CHECK", "ADD", "ADD", "ADD"]
    assert rest == ["STORAGE", "INVOKE"]


@pytest.mark.parametrize("kernel", [1, 2])
def test_nothing_overtakes_a_kernel_that_may_fail(kernel):
    found = names(gathered(check_between(kernel)))
    assert found == ["DIM", "MUL", "STORAGE", "INVOKE", ["DIM", "EQ", "CHECK", "ADD", "ADD", "ADD"]]


def test_without_native_code_only_what_goes_with_a_check_moves():
    assert names(gathered(check_between(0), native=0))[:5] == ["DIM", "MUL", "DIM", "EQ", "CHECK"]

    def no_check(w, x):
        (n,) = w("DIM", 0, args=(x,), kinds=(Kind.INT,))
        w("STORAGE", 0, 64, args=(n,), kinds=(Kind.STORAGE,))
        for _ in range(LEAST):
            n = w.int("ADD", n, 1)

    assert names(gathered(no_check, native=0))[:3] == ["DIM", "STORAGE", "ADD"]
    assert names(gathered(no_check, native=LEAST))[:3] == ["DIM", "STORAGE", "ADD"]
    assert names(gathered(no_check)) == [["DIM", *["ADD"] * LEAST], "STORAGE"]


def test_little_work_stays_where_it_is():
    def fill(w, x):
        (n,) = w("DIM", 0, args=(x,), kinds=(Kind.INT,))
        w("STORAGE", 0, 64, args=(n,), kinds=(Kind.STORAGE,))
        w.int("ADD", n, 1)

    assert names(gathered(fill)) == ["DIM", "STORAGE", "ADD"]


def test_work_in_an_arm_stays_in_it():
    arm_work = Writer()
    x = Register(Kind.TENSOR)
    n = Register(Kind.INT)
    value = n
    for _ in range(LEAST):
        value = arm_work.int("ADD", value, 1)
    join = Join((Register(Kind.INT),))
    arms = (CodeBlock(arm_work.nodes, Yield(join, (value,))), CodeBlock([], Yield(join, (n,))))
    outer = Writer()
    outer("CHECK", 0, "it is positive", args=(outer.int("LT", 0, n),))
    behind = Writer()
    behind("CHECK", 0, "it is small", args=(behind.int("LT", join.results[0], 9),))
    nodes = [*outer.nodes, Branch(n, arms, join), *behind.nodes]
    b = ProgramBuilder()
    f = b.function("main", [Kind.TENSOR, Kind.INT], [])
    code = Code(f, (x, n), CodeBlock(nodes, Return(())))
    assert gather_shapes(code, [], native=9) == 9 - LEAST
    assert [type(node).__name__ for node in code.body.nodes] == [
        "Instruction",
        "Instruction",
        "Branch",
        "Instruction",
        "Instruction",
    ]
    assert names(arms[0].nodes) == [["ADD"] * LEAST]


def test_a_group_takes_so_many_inputs_and_no_more():
    count = 2 * MAX_SHAPE_INPUTS

    def build(params):
        w = Writer()
        kinds = (Kind.INT,) * count
        (many,) = w("MAKE_INTS", "i64", count, args=tuple(range(count)), kinds=(Kind.TENSOR,))
        total = 0
        for number in w("READ_INTS", count, args=(many,), kinds=kinds):
            total = w.int("ADD", total, number)
        (made,) = w("MAKE_INTS", "i64", 1, args=(total,), kinds=(Kind.TENSOR,))
        return CodeBlock(w.nodes, Return((made,)))

    program, groups = program_of(build, gather=True, native=True)
    assert groups == 2, "what is left over is too little"
    assert outcome(program, [0] * GIVEN) == [count * (count - 1) // 2]
