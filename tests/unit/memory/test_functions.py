"""Functions with memory of their own: what the report says is what the runtime counts, and budgets hold."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.api import compilation
from inlay.arith.expr import Int, evaluate, symbols
from inlay.base.diagnostics import CompileError
from inlay.ir.module import Module
from inlay.memory.account import Account, Around, accounts_of
from inlay.memory.plan import FunctionPlan, Sharing
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable, executable_of
from tests.boards import PARTED
from tests.examples import examples
from tests.property.gen_ir import Program, programs
from tests.python_kernels import callbacks_of, compile_with_python_kernels
from tests.unit.memory.test_account import HEAP, measured

ROWS = """
fn leaf<n>(x: Tensor[n, 64, f32], w: Tensor[64, 64, f32]) -> (Tensor[n, 64, f32], Tensor[64, n, f32]) {
  let a = softmax(matmul(x, w));
  let b = softmax(matmul(a, w));
  let c = softmax(matmul(add(b, a), w));
  let d = softmax(matmul(c, w));
  (add(d, matmul(a, w)), transpose{perm=[1, 0]}(d))
}
fn middle<m>(x: Tensor[m, 64, f32], w: Tensor[64, 64, f32]) -> Tensor[m, 64, f32] {
  let p = @leaf(x, w);
  let q = @leaf(softmax(p.0), w);
  let t = tanh(matmul(q.0, matmul(p.1, x)));
  let u = @leaf(t, w);
  u.0
}
fn apply<n>(g: fn(Tensor[n, 64, f32]) -> Tensor[n, 64, f32], x: Tensor[n, 64, f32]) -> Tensor[n, 64, f32] {
  let a = g(softmax(x));
  let b = g(tanh(a));
  let c = g(softmax(add(a, b)));
  let d = g(add(softmax(c), a));
  tanh(softmax(g(softmax(g(tanh(d))))))
}
"""
X, Y = "Tensor[16, 64, f32]", "Tensor[48, 64, f32]"
HEAD = f"fn main(x: {X}, y: {Y}, w: Tensor[64, 64, f32]) -> ({X}, {Y})"
BODIES = {
    "called once each": "(@middle(x, w), @middle(y, w))",
    "between kernels": "let a = softmax(@middle(x, w)); let b = @middle(tanh(y), w); (@middle(a, w), softmax(b))",
    "given what dies": "let a = @leaf(softmax(x), w); let b = @leaf(softmax(y), w); (matmul(a.0, w), @middle(b.0, w))",
    "given what stays": (
        "let a = softmax(x); let b = @middle(a, w); let c = @leaf(tanh(y), w); (add(a, b), softmax(c.0))"
    ),
    "a function that is a value": (
        f"let h = fn(t: {X}) -> {X} {{ @middle(t, w) }}; let a = @apply(h, x); (@apply(h, a), @middle(y, w))"
    ),
}


def program(body: str) -> io.StringIO:
    return io.StringIO(f'{ROWS}{HEAD} {{ {body} }}\nentry main("x", "y", "w") -> ("p", "q");')


def inputs_of(exe: Executable, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {t.name: (random.standard_normal(t.shape) / 8).astype(np.float32) for t in exe.inputs}


@pytest.mark.sample(2)
@pytest.mark.llvm
@pytest.mark.parametrize("name", BODIES)
def test_the_report_says_to_the_byte_what_calls_take(name):
    made = compilation(program(BODIES[name]), threads=1)
    (host, *_) = inlay.explain(program(BODIES[name]), view="memory", threads=1).accounts
    assert (host.is_exact, host.unknown) == (True, ())
    assert host.functions
    exe = executable_of(made.program, threads=1, mode="sequential")
    exe.run(inputs_of(exe))
    before = exe.usage()
    exe.run(inputs_of(exe))
    after = exe.usage()
    assert after.peak_bytes == host.peak
    assert after.allocations - before.allocations == len(exe.outputs)  # results, and nothing else


@pytest.mark.llvm
def test_a_budget_of_a_program_with_functions_is_kept_to_its_last_byte():
    text = BODIES["between kernels"]
    (host, *_) = inlay.explain(program(text), view="memory", threads=1).accounts
    exe = inlay.compile(program(text), threads=1, budget={"host": host.total})
    exe.run(inputs_of(exe))
    assert exe.usage().peak_bytes == host.peak
    with pytest.raises(CompileError) as found:
        inlay.compile(program(text), threads=1, budget={"host": host.total - 1})
    assert found.value.ids == ("memory.over-budget",)
    assert "what a call of middle has" in str(found.value)


def sizes_of(module: Module, p: Program) -> Mapping:
    """Return the dims of the entry in a call."""
    pairs = zip(module.functions[module.entry].params, p.args, strict=True)
    return {
        sym: array.shape[axis]
        for param, array in pairs
        for axis, dim in enumerate(getattr(param.type, "shape", ()))
        if (sym := dim.atom) is not None
    }


def drawn(p: Program, sharing: Sharing, threads: int) -> tuple[Account, Executable]:
    """Return the account of a drawn program in a call, and its executable."""
    plans: list[FunctionPlan] = []
    made, planned = compile_with_python_kernels(p.module, sharing=sharing, plans=plans)
    dims, used = sizes_of(planned, p), {k.name for k in made.kernels}
    callbacks = {name: f for name, f in callbacks_of(planned).items() if name in used}

    def size(e: Int) -> int | None:
        return evaluate(e, dims) if all(s in dims for s in symbols(e)) else None

    account = accounts_of(plans, planned.entry, (), Around(HEAP, size, threads))[0]
    mode = "sequential" if threads == 1 else "parallel"
    return account, executable_of(made, settings=Settings(mode=mode, threads=threads), callbacks=callbacks)


@settings(max_examples=examples(5))
@given(programs())
def test_what_is_said_of_drawn_programs_is_what_the_runtime_counts(p: Program):
    for sharing in Sharing:
        account, exe = drawn(p, sharing, threads=1)
        if account.is_exact:
            assert account.peak == measured(exe, *p.args)
        elif not account.unknown:
            assert account.peak >= measured(exe, *p.args)


@settings(max_examples=examples(5))
@given(programs(), st.integers(2, 3))
def test_what_is_said_for_several_threads_is_enough(p: Program, threads: int):
    account, exe = drawn(p, Sharing.SERIAL, threads)
    for _ in range(2):
        exe(*p.args)
        assert account.unknown or account.peak >= exe.usage().peak_bytes


ROW = "Tensor[1, 32, f32]"
WORK = f"""
fn work(x: {ROW}, w: Tensor[32, 32, f32], k: Tensor[f32]) -> {ROW} {{
  let go = fn(h: {ROW}, c: Tensor[f32]) -> {ROW} {{
    if (to_control(less(f32(0.0), c))) {{ go(tanh(matmul(h, w)), sub(c, f32(1.0))) }} else {{ h }}
  }};
  go(x, k)
}}
"""


@st.composite
def overlapping(draw) -> str:
    """Return a program whose calls end when data says so, so that others may run meanwhile."""
    names, lets = ["x", "y"], list[str]()
    for i in range(draw(st.integers(2, 6))):
        a, b = (draw(st.sampled_from(names)) for _ in range(2))
        made = draw(st.sampled_from([f"@work({a}, w, k)", f"@work(add({a}, {b}), w, k)", f"softmax({a})"]))
        lets.append(f"let v{i} = {made};")
        names.append(f"v{i}")
    last = names[-1]
    for name in names[2:-1]:
        last = f"add({last}, {name})"
    text = " ".join(lets)
    return (
        f"{WORK}fn main(x: {ROW}, y: {ROW}, w: Tensor[32, 32, f32], k: Tensor[f32]) -> {ROW} "
        f'{{ {text} {last} }}\nentry main("x", "y", "w", "k") -> ("z");'
    )


@pytest.mark.llvm
@settings(max_examples=examples(3))
@given(overlapping(), st.integers(2, 3))
def test_a_budget_bounds_calls_that_other_threads_run(text: str, threads: int):
    made = compilation(io.StringIO(text), threads=threads, budget={"host": "1MB"}, board=PARTED, cache="none")
    promise = made.run.promise
    for mode in ("sequential", "parallel", "replay"):
        exe = executable_of(made.program, settings=Settings(mode=mode, threads=threads))
        inputs = {**inputs_of(exe), "k": np.float32(40)}
        for _ in range(6):
            exe.run(inputs)
            assert exe.usage().peak_bytes <= promise.takes["host"], f"{mode}, {threads}\n{text}"


AGAIN = f"""
fn walk<i>(i: int[i], x: {ROW}) -> {ROW} {{
  if (int_less(int(i), int(3))) {{ softmax(@walk(int(i + 1), tanh(x))) }} else {{ x }}
}}
fn main(x: {ROW}) -> {ROW} {{ @walk(int(0), x) }}
entry main("x") -> ("y");
"""


@pytest.mark.llvm
def test_a_function_that_calls_itself_is_named_with_its_circle():
    with pytest.raises(CompileError) as found:
        inlay.compile(io.StringIO(AGAIN), threads=1, budget={"host": "1GB"})
    assert found.value.ids == ("memory.no-bound",)
    assert "walk: it calls itself (walk -> walk), how often is not known" in str(found.value)


IN_LOOP = f"""
{WORK.replace("go(x, k)", "tanh(softmax(go(x, k)))")}
fn main(x: {ROW}, w: Tensor[32, 32, f32], k: Tensor[f32]) -> {ROW} {{
  let loop = fn<i>(i: int[i], h: {ROW}) -> {ROW} {{
    if (int_less(int(i), int(4))) {{
      let a = @work(h, w, k);
      let b = @work(softmax(h), w, k);
      loop(int(i + 1), softmax(add(a, b)))
    }} else {{ h }}
  }};
  loop(int(0), x)
}}
entry main("x", "w", "k") -> ("y");
"""


@pytest.mark.llvm
def test_calls_in_loops_are_bounded_on_one_thread_alone():
    made = compilation(io.StringIO(IN_LOOP), threads=1, budget={"host": "1MB"}, cache="none")
    exe = executable_of(made.program, threads=1)
    exe.run({**inputs_of(exe), "k": np.float32(5)})
    assert exe.usage().peak_bytes <= made.run.promise.takes["host"]
    with pytest.raises(CompileError) as found:
        inlay.compile(io.StringIO(IN_LOOP), threads=2, budget={"host": "1MB"}, cache="none")
    assert "called in every turn of 'loop' in main, and on several threads calls overlap" in str(found.value)


SQUARE = "Tensor[32, 32, f32]"
TURNS = f"""
fn go<i>(i: int[i], n: int, x: {SQUARE}, w: {SQUARE}) -> {SQUARE} {{
  if (int_less(int(i), n)) {{
    let y = softmax(matmul(x, w));
    @go(int(i + 1), n, tanh(matmul(y, add(w, y))), NEXT)
  }} else {{ x }}
}}
fn main(x: {SQUARE}, w: {SQUARE}, k: Tensor[i64]) -> ({SQUARE}, {SQUARE}) {{
  let n = to_control(k);
  let a = @go(int(0), n, softmax(x), w);
  let b = @go(int(0), n, tanh(a), w);
  (softmax(a), softmax(b))
}}
entry main("x", "w", "k") -> ("y", "z");
"""


@pytest.mark.llvm
@pytest.mark.parametrize("passed", ["w", "softmax(y)"])
def test_a_function_that_ends_by_calling_itself_is_bounded(passed):
    text = TURNS.replace("NEXT", passed)
    made = compilation(io.StringIO(text), threads=1, budget={"host": "1MB"}, cache="none")
    exe = executable_of(made.program, threads=1)
    seen = set()
    for k in (0, 1, 2, 9):
        exe.run({**inputs_of(exe), "k": np.int64(k)})
        assert exe.usage().peak_bytes <= made.run.promise.takes["host"]
        seen.add(exe.usage().peak_bytes)
    assert len(seen) < 4  # more turns take no more


KEEPING = f"""
fn keep<i>(i: int[i], x: {ROW}, all: List[{ROW}]) -> {ROW} {{
  if (int_less(int(i), int(3))) {{ @keep(int(i + 1), softmax(x), Cons(x, all)) }} else {{ @last(all, x) }}
}}
fn last(all: List[{ROW}], x: {ROW}) -> {ROW} {{
  match all {{ Nil() => x, Cons(y, _) => add(softmax(y), x) }}
}}
fn main(x: {ROW}) -> {ROW} {{ @keep(int(0), tanh(x), Nil()) }}
entry main("x") -> ("y");
"""
WIDER = """
fn wide<n>(i: int, x: Tensor[n, f32]) -> Tensor[f32] {
  if (int_less(int(n), i)) { @wide(i, softmax(concat{axis=0}(x, x))) }
  else { reduce_sum{axes=[0], keepdims=false}(x) }
}
fn main(x: Tensor[4, f32], k: Tensor[i64]) -> Tensor[f32] { @wide(to_control(k), tanh(x)) }
entry main("x", "k") -> ("y");
"""


@pytest.mark.llvm
@pytest.mark.parametrize(("text", "name"), [(KEEPING, "keep"), (WIDER, "wide")])
def test_a_function_that_takes_more_from_turn_to_turn_is_named(text, name):
    with pytest.raises(CompileError) as found:
        inlay.compile(io.StringIO(text), threads=1, budget={"host": "1GB"}, cache="none")
    assert f"{name}: it calls itself ({name} -> {name})" in str(found.value)
