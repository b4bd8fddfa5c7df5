"""Which calls become tasks, seen in the bytecode of small programs, which mean the same in all modes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, HostBody, Kernel
from inlay.bytecode.verify import instructions
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from inlay.vm.code import Code, CodeBlock, Instruction, Register, Return
from inlay.vm.tasks import mark_tasks
from tests.python_kernels import compile_with_python_kernels, run_program

LOOP = """
  let NAME = fn(a: Tensor[4, f32], n: Tensor[i64]) -> Tensor[4, f32] {
    let b = add(a, x);
    let m = sub(n, step);
    let k: some int k. int[k] = to_control(m);
    if (int_less(int(0), int(k))) { NAME(b, m) } else { b }
  };
"""
HEAD = "fn main(x: Tensor[4, f32], steps: Tensor[i64], step: Tensor[i64])"
X = (np.arange(4, dtype=np.float32), np.array(5), np.array(1))


def compile_text(text: str):
    module = infer_types(parse_module(text, table()))
    program, lowered = compile_with_python_kernels(module)
    names = {f.name: [row.name for _, row, _ in instructions(f.code)] for f in program.functions}
    return program, lowered, names


def loop(name: str) -> str:
    return LOOP.replace("NAME", name)


def test_a_loop_that_another_one_follows():
    program, lowered, names = compile_text(
        f"{HEAD} -> (Tensor[4, f32], Tensor[4, f32]) {{ {loop('one')} {loop('two')} "
        "let p = one(x, steps); let q = two(x, steps); (p, q) }"
    )
    assert names["main"].count("SPAWN") == 1
    assert "main.one" in names
    assert "main.two" not in names, "the last one is waited for anyway: it stays in its frame"
    for found in run_program(program, lowered, X):
        assert (found == X[0] * 6).all()


def test_a_loop_whose_result_the_next_one_takes():
    _, _, names = compile_text(
        f"{HEAD} -> Tensor[4, f32] {{ {loop('one')} {loop('two')} let p = one(x, steps); two(p, steps) }}"
    )
    assert not any("SPAWN" in code for code in names.values())
    assert "main.one" not in names


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ((), "SPAWN"),
        ((("CELL_READ", ()),), "SPAWN"),
        ((("CALL_CLOSURE", (0, 1)),), "SPAWN"),
        ((("INVOKE", (0,)),), "SPAWN"),
        ((("INVOKE", (1,)),), "CALL"),
    ],
)
def test_a_function_whose_effects_can_be_seen(extra, expected):
    b = ProgramBuilder()
    f, main = (b.function(name, [Kind.TENSOR], [Kind.INT]) for name in ("f", "main"))
    x, k = Register(Kind.TENSOR), Register(Kind.INT)
    nodes = [Instruction(name, operands, (x,), ()) for name, operands in extra]
    inner = CodeBlock([*nodes, Instruction("TO_INT", (), (x,), (k,))], Return((k,)))
    y, r = Register(Kind.TENSOR), Register(Kind.INT)
    call = Instruction("CALL", (f,), (y,), (r,))
    outer = CodeBlock([call, Instruction("INVOKE", (0,), (y,), ())], Return((r,)))
    plain = Kernel("k", (AccessCode.READ,), 0, HostBody("k"))
    kernels = [plain, replace(plain, ordered=True)]
    mark_tasks([Code(f, (x,), inner), Code(main, (y,), outer)], kernels)
    assert outer.nodes[0].name == expected


TREE = """
data Tree { Leaf(Tensor[4, f32]), Node(Tree, Tree) }

fn total(t: Tree, step: Tensor[i64]) -> Tensor[4, f32] {
  match t {
    Leaf(x) => {
      let k: some int k. int[k] = to_control(step);
      if (int_less(int(0), int(k))) { add(x, x) } else { x }
    },
    Node(a, b) => {
      let p = @total(a, step);
      let q = @total(b, step);
      add(p, q)
    },
  }
}

fn main(x: Tensor[4, f32], step: Tensor[i64]) -> Tensor[4, f32] {
  let leaf = Leaf(x);
  let two = Node(leaf, leaf);
  let four = Node(two, two);
  let five = Node(four, leaf);
  @total(five, step)
}
"""


def test_a_recursion_over_trees():
    program, lowered, names = compile_text(TREE)
    assert names["total"].count("SPAWN") == 1
    assert names["total"].count("CALL") == 1
    (found,) = run_program(program, lowered, (X[0], np.array(1)))
    assert (found == X[0] * 10).all()


@pytest.mark.llvm
def test_compiled_loops_in_all_modes():
    text = (
        f"{HEAD} -> (Tensor[4, f32], Tensor[4, f32]) {{ {loop('one')} {loop('two')} "
        "let p = one(x, steps); let q = two(x, steps); (p, q) }"
    )
    program = compilation(infer_types(parse_module(text, table())), cache="none").program
    for settings in (
        Settings(),
        Settings(threads=2, mode="parallel", hand_off_ns=0),
        *(Settings(mode="replay", seed=seed) for seed in range(4)),
    ):
        exe = executable_of(program, settings=settings)
        for found in exe(*X):
            assert (found == X[0] * 6).all(), settings
        assert exe.live_objects() == 0


MAP = """
fn twice(f: fn(Tensor[4, f32]) -> Tensor[4, f32], x: Tensor[4, f32]) -> (Tensor[4, f32], Tensor[4, f32]) {
  let p = f(x);
  let q = f(neg(x));
  (p, q)
}

fn main(x: Tensor[4, f32], steps: Tensor[i64], step: Tensor[i64]) -> (Tensor[4, f32], Tensor[4, f32]) {
  STATE
  let cell = fn(a: Tensor[4, f32]) -> Tensor[4, f32] {
    OWN
    let go = fn(n: Tensor[i64]) -> Tensor[4, f32] {
      write(state, add(read(state), a));
      let m = sub(n, step);
      let k: some int k. int[k] = to_control(m);
      if (int_less(int(0), int(k))) { go(m) } else { read(state) }
    };
    go(steps)
  };
  let other = fn(a: Tensor[4, f32]) -> Tensor[4, f32] { cell(neg(a)) };
  @twice(if (to_control(less(i64(0), steps))) { cell } else { other }, x)
}
"""


@pytest.mark.llvm
@pytest.mark.parametrize("is_shared", [False, True])
def test_functions_that_are_values_in_all_modes(is_shared):
    """With a cell of its own, the second call goes on beside the first; with a shared one, behind it."""
    text = MAP.replace("STATE" if is_shared else "OWN", "let state = ref(x);")
    text = text.replace("OWN" if is_shared else "STATE", "")
    program = compilation(infer_types(parse_module(text, table())), cache="none").program
    code = {f.name: [row.name for _, row, _ in instructions(f.code)] for f in program.functions}
    assert any("SPAWN_CLOSURE" in names for names in code.values())
    first, second = (6, 1) if is_shared else (6, -4)
    for settings in (
        Settings(),
        Settings(threads=2, mode="parallel", hand_off_ns=0, races=True),
        *(Settings(mode="replay", seed=seed, races=True) for seed in range(4)),
    ):
        exe = executable_of(program, settings=settings)
        for found, times in zip(exe(*X), (first, second), strict=True):
            assert (found == X[0] * times).all(), settings
        assert exe.live_objects() == 0


def test_a_function_written_in_a_task_captures_what_it_mentions():
    """`inner` is called once, in a loop that has code of its own because another one follows."""
    loops = loop("one").replace("add(a, x)", "inner(a)") + loop("two")
    text = (
        f"{HEAD} -> (Tensor[4, f32], Tensor[4, f32]) {{ let more = add(x, neg(neg(x))); "
        f"let inner = fn(a: Tensor[4, f32]) -> Tensor[4, f32] {{ add(a, more) }}; {loops} "
        "let p = one(x, steps); let q = two(x, steps); (p, q) }"
    )
    program, lowered, names = compile_text(text)
    assert names["main"].count("SPAWN") == 1
    first, second = run_program(program, lowered, X)
    assert (first == X[0] * 11).all()
    assert (second == X[0] * 6).all()


LAYERS = """
fn layers(x: Tensor[4, f32]) -> Tensor[4, f32] {
  exp(sub(x, reduce_max{axes=[0]}(x)))
}
"""


def test_a_function_of_kernels_that_is_called_twice():
    program, lowered, names = compile_text(
        LAYERS + "fn main(x: Tensor[4, f32], y: Tensor[4, f32]) -> Tensor[4, f32] {"
        "  let a = @layers(x);"
        "  let b = @layers(y);"
        "  let c = @layers(b);"
        "  add(a, c) }"
    )
    calls = [name for name in names["main"] if name in ("CALL", "SPAWN")]
    assert calls == ["SPAWN", "CALL", "CALL"], "the second and the third have nothing beside them"
    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32) / 8
    f = lambda v: np.exp(v - v.max())  # noqa: E731
    for found in run_program(program, lowered, (x, y)):
        np.testing.assert_allclose(found, f(x) + f(f(y)), rtol=1e-5)
