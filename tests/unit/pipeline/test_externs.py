"""Operators of the user: the same results from each implementation, wherever a program runs, and what
happens when an implementation lies, fails or is absent."""

from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.api import compilation
from inlay.base.diagnostics import CompileError, RunError
from inlay.bytecode.writer import save
from inlay.interp.tensor import evaluate
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.pipeline.externs import rebind, with_externs
from inlay.runtime.extern import Extern, extern
from inlay.runtime.session import executable_of, load_executable
from tests.garbage import only_new_objects
from tests.system import needs

INCLUDE = Path(__file__).parents[3] / "runtime" / "include"
cc = needs("cc")
RULE = "(x: Tensor[n, k, f32], f: Tensor[n, f32]) -> Tensor[n, k, f32]"

SOURCE = """
#include <string.h>
#include "inlay_extern.h"
/* y = x * f * alpha, row by row; attributes follow the operands. */
int32_t scale_rows(const inlay_call_t *call)
{
    const float *x = call->inputs[0].data, *f = call->inputs[1].data;
    const float alpha = (float)*(const double *)call->inputs[2].data;
    float *y = call->outputs[0].data;
    int64_t rows = call->inputs[0].dims[0], columns = call->inputs[0].dims[1], i, k;
    for (i = 0; i < rows; i++)
        for (k = 0; k < columns; k++) {
            float scaled = x[i * columns + k] * f[i];
            y[i * columns + k] = scaled * alpha;
        }
    return 0;
}
int32_t failing(const inlay_call_t *call)
{
    if (*(const float *)call->inputs[0].data < 0) {
        strncpy(call->message, "negative", call->message_bytes);
        return 3;
    }
    memcpy(call->outputs[0].data, call->inputs[0].data, sizeof(float) * (size_t)call->inputs[0].dims[0]);
    return 0;
}
/* Attributes of every kind: their element types, ranks and contents, summed up. */
int32_t describe(const inlay_call_t *call)
{
    double total = 0;
    uint32_t i;
    for (i = 1; i < call->n_inputs; i++) {
        const inlay_tensor_t *a = &call->inputs[i];
        int64_t n = a->rank ? a->dims[0] : 1, j;
        total += 1000 * a->dtype + 100 * a->rank;
        for (j = 0; j < n; j++)
            total += a->dtype == INLAY_F64   ? ((const double *)a->data)[j]
                     : a->dtype == INLAY_I64 ? (double)((const int64_t *)a->data)[j]
                                             : ((const uint8_t *)a->data)[j];
    }
    *(double *)call->outputs[0].data = total;
    return 0;
}
"""


def library(folder: Path) -> str:
    (folder / "mine.c").write_text(SOURCE)
    subprocess.run(
        [
            "cc",
            "-std=c99",
            "-O2",
            "-ffp-contract=off",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            f"-I{INCLUDE}",
            str(folder / "mine.c"),
            "-o",
            str(folder / "libmine.so"),
        ],
        check=True,
    )
    return str(folder / "libmine.so")


@pytest.fixture(scope="module")
def mine(tmp_path_factory) -> str:
    return library(tmp_path_factory.mktemp("c"))


def python_scale(x, f, alpha):
    return x * f[:, None] * np.float32(alpha)


def scale(c: object = None) -> Extern:
    return extern(
        "my.scale_rows",
        RULE,
        attributes={"alpha": 0.5},
        c=c,
        python=python_scale,
        generated=lambda alpha: f"{{ mul(mul(x, reshape(f, shape(n, 1))), f32({alpha!r})) }}",
    )


def read(text: str, *externs: Extern) -> Module:
    return parse_module(text, with_externs(table(), externs))


def engines(module: Module, externs: Sequence[Extern] = (), file: Path | None = None):
    """Yield (name, callable) for every way to run a program."""
    bound = rebind(module, externs)
    yield "evaluator", lambda *a: evaluate(bound, a)
    made = compilation(module, externs=externs, cache="none", verify=True)
    for engine in ("python", "native"):
        exe = executable_of(made.program, engine=engine, threads=1, externs=made.externs)
        yield engine, exe
    yield "parallel", executable_of(made.program, threads=2, mode="parallel", externs=made.externs)
    for seed in range(3):
        other = executable_of(made.program, mode="replay", seed=seed, externs=made.externs)
        yield f"replay {seed}", other
    if file is not None:
        exe.save(file)
        yield "file", load_executable(file, threads=1, externs=made.externs)


# A loop whose count is data, branches of different sizes, the operator in each, on dynamic dims.
PROGRAM = """
fn main<n>(x: Tensor[n, 6, f32], f: Tensor[n, f32], steps: Tensor[i64]) -> some m. Tensor[m, 6, f32] {
  let limit: some int limit. int[limit] = to_control(steps);
  let loop = fn<i>(i: int[i], h: Tensor[n, 6, f32]) -> Tensor[n, 6, f32] {
    if (int_less(int(i), int(limit))) {
      let a = my.scale_rows{alpha=0.25}(add(h, x), f);
      loop(int(i + 1), relu(sub(a, my.scale_rows(h, f))))
    } else { h }
  };
  let y = loop(int(0), x);
  if (int_less(int(n), int(4))) {
    let two = concat{axis=0}(y, y);
    my.scale_rows{alpha=2.0}(two, concat{axis=0}(f, f))
  } else { my.scale_rows(y, f) }
}
"""


@cc
@pytest.mark.cc
@pytest.mark.parametrize("implementation", ["generated", "c", "python"])
def test_every_implementation_gives_the_same_bits(mine, tmp_path, implementation):
    operator = scale((mine, "scale_rows"))
    module = read(PROGRAM, operator)
    random = np.random.default_rng(0)
    runs = list(engines(module, [operator.using(implementation)], tmp_path / "a.inlay"))
    for rows, steps in ((0, 1), (1, 3), (3, 0), (4, 2), (9, 5)):
        x = random.normal(size=(rows, 6)).astype(np.float32)
        f = random.normal(size=rows).astype(np.float32)
        given = (x, f, np.array(steps))
        needed = evaluate(rebind(module, [operator.using("python")]), given)
        assert needed.shape[0] == (2 * rows if rows < 4 else rows)
        for name, run in runs:
            np.testing.assert_array_equal(run(*given), needed, err_msg=f"{name} {rows}")


def test_generated_code_is_fused():
    operator = scale()
    module = read(f"fn main<n, k>{RULE.replace('k,', 'k,')} {{ relu(my.scale_rows(x, f)) }}", operator)
    report = compilation(module, cache="none").report
    assert len(report.kernels) == 1
    assert "relu" in report.kernels[0].origin
    report = compilation(module, externs=[operator.using("python")], cache="none").report
    assert {k.origin for k in report.kernels} == {"my.scale_rows", "relu"}


# ------------------------------------------------------------------------ operands, results


def test_tuples_repeated_operands_and_constants():
    both = extern(
        "both",
        "(x: Tensor[n, f32], y: Tensor[n, f32], w: Tensor[f32]) -> (Tensor[n, f32], Tensor[2*n + 1, i64])",
        python=lambda x, y, w: (x + y * w, np.arange(2 * len(x) + 1)),
    )
    module = read(
        """fn main<n>(x: Tensor[n, f32]) -> (Tensor[n, f32], Tensor[2*n + 1, i64], Tensor[n, f32]) {
             let a = both(x, x, f32(3.0)); let b = both(x, a.0, f32(3.0)); (a.0, b.1, b.0) }""",
        both,
    )
    x = np.arange(4, dtype=np.float32)
    for name, run in engines(module):
        a, numbers, b = run(x)
        np.testing.assert_array_equal(a, 4 * x, err_msg=name)
        np.testing.assert_array_equal(b, 13 * x, err_msg=name)
        np.testing.assert_array_equal(numbers, np.arange(9), err_msg=name)


@cc
@pytest.mark.cc
def test_attributes_of_every_kind(mine):
    given: list[dict[str, object]] = []

    def python(x, **attributes):
        given.append(attributes)
        return np.array(0.0)

    operator = extern(
        "describe",
        "(x: Tensor[f32]) -> Tensor[f64]",
        python=python,
        c=(mine, "describe"),
        attributes={
            "n": int,
            "flag": False,
            "w": 0.5,
            "axes": (1, 2),
            "scales": tuple[float, ...],
            "mode": "ab",
        },
    )
    module = read(
        'fn main(x: Tensor[f32]) { describe{n=7, scales=[1.5, 2.0], mode="c", flag=true}(x) }', operator
    )
    x = np.float32(1)
    for _, run in engines(module, [operator.using("python")]):
        run(x)
        needed = {"n": 7, "flag": True, "w": 0.5, "axes": (1, 2), "scales": (1.5, 2.0), "mode": "c"}
        assert given[-1] == needed
        assert [type(v) for v in given[-1].values()] == [int, bool, float, tuple, tuple, str]
    dtypes = 4 + 0 + 12 + 4 + 12 + 5  # i64, bool, f64, i64, f64, u8, as inlay_dtype_t numbers them
    total = 1000 * dtypes + 300 + 7 + 1 + 0.5 + 3 + 3.5 + ord("c")
    for name, run in engines(module, [operator.using("c")]):
        assert float(run(x)) == total, name


def test_attributes_in_rules():
    repeat = extern(
        "repeat",
        "(x: Tensor[n, f32]) -> Tensor[count * n, f32]",
        attributes={"count": 2},
        python=lambda x, count: np.tile(x, count),
    )
    module = read("fn main<n>(x: Tensor[n, f32]) -> Tensor[3*n, f32] { repeat{count=3}(x) }", repeat)
    for _, run in engines(module):
        np.testing.assert_array_equal(run(np.ones(2, np.float32)), np.ones(6))


def test_rules_in_python():
    def rule(*types, axis):
        first = types[0]
        if any(t.dtype is not first.dtype for t in types):
            raise ValueError("all operands must have one element type")
        return inlay.tensor_type((len(types), *first.shape), first.dtype)

    pile = extern("pile", rule, python=lambda *xs, axis: np.stack(xs, axis), attributes={"axis": 0})
    module = read("fn main<n>(x: Tensor[n, f32]) -> Tensor[3, n, f32] { pile(x, neg(x), x) }", pile)
    for _, run in engines(module):
        np.testing.assert_array_equal(run(np.ones(2, np.float32)), [[1, 1], [-1, -1], [1, 1]])
    with pytest.raises(CompileError, match="one element type") as caught:
        read("fn main(x: Tensor[2, f32], y: Tensor[2, i64]) { pile(x, y) }", pile)
    assert caught.value.ids == ("type.op-argument",)


def test_rules_in_python_relate_sizes():
    def rule(x, y, *, ctx):
        return inlay.tensor_type((ctx.equal(x.shape[0], y.shape[0], "rows"),), "f64")

    dot = extern("dot", rule, python=lambda x, y: (x * y).astype(np.float64))
    text = "fn main<n, m>(x: Tensor[n, f32], y: Tensor[m, f32]) { dot(x, y) }"
    for _, run in engines(read(text, dot)):
        np.testing.assert_array_equal(run(np.ones(2, np.float32), np.ones(2, np.float32)), [1, 1])
        with pytest.raises(RunError) as caught:
            run(np.ones(2, np.float32), np.ones(3, np.float32))
        assert caught.value.ids in {("run.check-failed",), ("run.dim-mismatch",)}
    with pytest.raises(CompileError) as caught:
        read("fn main(x: Tensor[2, f32], y: Tensor[3, f32]) { dot(x, y) }", dot)
    assert caught.value.ids == ("type.dim-mismatch",)


def test_faults_of_rules_in_python():
    bad = extern("bad", lambda x: 1 // 0, python=lambda x: x)
    with pytest.raises(CompileError, match="ZeroDivisionError") as caught:
        read("fn main(x: Tensor[2, f32]) { bad(x) }", bad)
    assert caught.value.ids == ("extern.rule",)
    odd = extern("odd", lambda x: x.shape[0], python=lambda x: x)
    with pytest.raises(CompileError, match="returned Int, needed a type"):
        read("fn main(x: Tensor[2, f32]) { odd(x) }", odd)


def test_types_are_inferred_through_externs():
    operator = scale()
    text = "fn f(x, w) { my.scale_rows(relu(x), w) } fn main(x: Tensor[3, 2, f32], w: Tensor[3, f32]) { @f(x, w) }"
    module = read(text, operator)
    exe = inlay.compile(module, cache="none", threads=1)
    x = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(exe(x, np.ones(3, np.float32)), x * 0.5)
    with pytest.raises(CompileError) as caught:
        read("fn main(x: Tensor[3, 2, f32], w: Tensor[4, f32]) { my.scale_rows(x, w) }", operator)
    assert caught.value.ids == ("type.dim-mismatch",)


# ------------------------------------------------------------------------ sizes from data


def positive() -> Extern:
    return extern(
        "positive",
        "(x: Tensor[n, f32]) -> some k <= n. (Tensor[k, f32], Tensor[k, i64])",
        python=lambda x: (x[x > 0], np.flatnonzero(x > 0)),
    )


def test_sizes_that_the_function_decides():
    text = """
    fn main<n>(x: Tensor[n, f32]) -> some k. Tensor[k, f32] {
      let loop = fn<i, m>(i: int[i], h: Tensor[m, f32]) -> some j. Tensor[j, f32] {
        if (int_less(int(i), int(3))) {
          let found: some k. (Tensor[k, f32], Tensor[k, i64]) = positive(sub(h, f32(1.0)));
          loop(int(i + 1), mul(found.0, add(gather{axis=0}(h, found.1), f32(1.0))))
        } else { h }
      };
      loop(int(0), x)
    }"""
    module = read(text, positive())

    def needed(x):
        for _ in range(3):
            h = x - np.float32(1)
            x = h[h > 0] * (x[h > 0] + np.float32(1))
        return x

    for name, run in engines(module):
        for size in (0, 1, 7, 100):
            x = (np.random.default_rng(size).normal(size=size) * 3).astype(np.float32)
            np.testing.assert_array_equal(run(x), needed(x), err_msg=name)


def test_promised_bounds_of_sizes_are_checked():
    text = "fn main<n>(x: Tensor[n, f32]) -> some k <= n. Tensor[k, f32] { grow(x) }"
    grow = extern(
        "grow", "(x: Tensor[n, f32]) -> some k <= n. Tensor[k, f32]", python=lambda x: np.append(x, x)
    )
    module = read(text, grow)
    for name, run in engines(module):
        assert run(np.ones(0, np.float32)).size == 0
        with pytest.raises(RunError) as caught:
            run(np.ones(2, np.float32))
        assert caught.value.ids == ("run.check-failed",), name


def test_results_of_several_sizes_must_be_as_promised():
    text = "fn main<n>(x: Tensor[n, f32]) -> some k. (Tensor[k, f32], Tensor[k, 2, f32]) { pair(x) }"
    for python, said in (
        (lambda x: (x, np.ones((len(x) + 1, 2), np.float32)), r"promises f32\[3, 2\]"),
        (lambda x: (x, x), "promises (3|f32)"),
        (lambda x: (x, np.ones((len(x), 2))), r"float64\[3, 2\]"),
    ):
        pair = extern(
            "pair", "(x: Tensor[n, f32]) -> some k. (Tensor[k, f32], Tensor[k, 2, f32])", python=python
        )
        for _, run in engines(read(text, pair)):
            with pytest.raises(RunError, match=said) as caught:
                run(np.ones(3, np.float32))
            assert caught.value.ids == ("run.bad-result",)


# ------------------------------------------------------------------------ faults

IDENTITY = "(x: Tensor[n, f32]) -> Tensor[n, f32]"
ONE_CALL = "fn main<n>(x: Tensor[n, f32]) { relu(op(neg(x))) }"


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (lambda x: x[:-1], r"float32\[2\], its type rule promises f32\[3\]"),
        (lambda x: x.astype(np.float64), "float64"),
        (lambda x: x[None], r"float32\[1, 3\]"),
        (lambda x: (x, x), "returned 2 arrays, its type rule promises 1"),
        (lambda x: None, "returned NoneType"),
        (lambda x: [1.0, 2.0, 3.0], "returned list"),
    ],
)
def test_lies_are_found(result, said):
    def python(x):
        return result(x) if (x > 0).any() else x

    for name, run in engines(read(ONE_CALL, extern("op", IDENTITY, python=python))):
        with pytest.raises(RunError, match=said) as caught:
            run(np.full(3, -1, np.float32))
        assert caught.value.ids == ("run.bad-result",), name
        np.testing.assert_array_equal(run(np.ones(3, np.float32)), np.zeros(3))


def test_exceptions_of_functions_have_a_place_and_a_cause():
    def python(x):
        if (x > 0).any():
            raise KeyError("no such thing")
        return x

    for name, run in engines(read(ONE_CALL, extern("op", IDENTITY, python=python))):
        with pytest.raises(RunError) as caught:
            run(np.full(3, -1, np.float32))
        (finding,) = caught.value.diagnostics
        assert finding.id == "run.kernel-failed"
        assert finding.message == "operator 'op' raised KeyError: 'no such thing'"
        assert isinstance(caught.value.__cause__, KeyError), name
        assert "1:" in str(finding.span) or any("1:" in note for note in finding.notes), name
        np.testing.assert_array_equal(run(np.ones(3, np.float32)), np.zeros(3))


def test_interrupts_pass_through():
    def python(x):
        raise KeyboardInterrupt

    exe = inlay.compile(read(ONE_CALL, extern("op", IDENTITY, python=python)), cache="none")
    with pytest.raises(KeyboardInterrupt):
        exe(np.ones(1, np.float32))


@cc
@pytest.mark.cc
def test_failures_of_c_functions(mine):
    operator = extern("op", IDENTITY, c=(mine, "failing"))
    for name, run in engines(read(ONE_CALL, operator)):
        with pytest.raises(RunError) as caught:
            run(np.ones(3, np.float32))
        (finding,) = caught.value.diagnostics
        assert finding.id == "run.kernel-failed"
        assert finding.message == "operator 'op' failed with status 3: negative", name
        np.testing.assert_array_equal(run(np.full(2, -1, np.float32)), np.ones(2))


def test_functions_may_keep_and_change_what_they_get():
    kept: list[np.ndarray] = []

    def python(x):
        kept.append(x)
        x += 1
        return x

    module = read(
        "fn main<n>(x: Tensor[n, f32]) { let y = neg(x); (op(y), y) }", extern("op", IDENTITY, python=python)
    )
    for name, run in engines(module):
        changed, same = run(np.ones(3, np.float32))
        np.testing.assert_array_equal(changed, np.zeros(3), err_msg=name)
        np.testing.assert_array_equal(same, -np.ones(3), err_msg=name)
    assert all((k == 0).all() for k in kept)


# ------------------------------------------------------------------------ effects, threads


def test_calls_on_a_resource_stay_and_keep_their_order():
    said: list[int] = []

    def python(x):
        said.append(int(x[0]))
        return np.array([len(said)], np.float32)

    rule = "(x: Tensor[1, f32]) -> Tensor[1, f32]"
    text = """
    fn main(x: Tensor[1, f32]) {
      let a = op(add(x, f32(1.0)));
      let unused = op(add(x, f32(2.0)));
      let again = op(add(x, f32(1.0)));
      if (int_less(int(0), int(1))) { (again, op(add(x, f32(3.0))), a) } else { (a, a, a) }
    }"""
    module = read(text, extern("op", rule, python=python, resource="the log"))
    for name, run in engines(module):
        said.clear()
        counts = [float(v[0]) for v in run(np.zeros(1, np.float32))]
        assert said == [1, 2, 1, 3], name
        assert counts == [3, 4, 1], name
    pure = read(text, extern("op", rule, python=python))
    exe = inlay.compile(pure, cache="none")
    said.clear()
    exe(np.zeros(1, np.float32))
    assert sorted(said) == [1, 3], "what is not used is left out, and what is the same is joined"


def test_nothing_the_outside_sees_happens_behind_a_failure():
    said: list[float] = []

    def python(x):
        said.append(float(x[0]))
        return x

    logged = extern("logged", IDENTITY, python=python, resource="the log")
    text = """
    fn main(x: Tensor[2, f32], i: Tensor[1, i64]) {
      let a = logged(x);
      let b = neg(gather{axis=0}(x, i));
      (a, b, logged(add(x, f32(1.0))))
    }"""
    for name, run in engines(read(text, logged)):
        said.clear()
        run(np.zeros(2, np.float32), np.array([1]))
        assert said == [0, 1], name
        said.clear()
        with pytest.raises(RunError) as caught:
            run(np.zeros(2, np.float32), np.array([2]))
        assert caught.value.ids == ("run.check-failed",), name
        assert said == [0], name


def test_pure_code_is_not_run_while_compiling():
    def python(x):
        raise AssertionError("not now")

    module = read("fn main() { op(f32[2](1.0, 2.0)) }", extern("op", IDENTITY, python=python))
    inlay.compile(module, cache="none")


def test_calls_from_several_threads():
    operator = positive()
    text = "fn main<n>(x: Tensor[n, f32]) -> some k. (Tensor[k, f32], Tensor[k, i64]) { positive(x) }"
    exe = inlay.compile(read(text, operator), cache="none", threads=2)
    wrong: list[int] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(30):
            x = random.normal(size=random.integers(0, 50)).astype(np.float32)
            values, places = exe(x)
            if not (np.array_equal(values, x[x > 0]) and np.array_equal(places, np.flatnonzero(x > 0))):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ------------------------------------------------------------------------ files


def test_files_say_what_they_need(tmp_path):
    path = tmp_path / "a.inlay"
    operator = extern("op", IDENTITY, python=lambda x: x * 2)
    inlay.compile(read(ONE_CALL, operator), cache="none").save(path)
    with pytest.raises(CompileError, match="the Python function of 'op'") as caught:
        inlay.load_executable(path)
    assert caught.value.ids == ("container.symbol",)
    assert "externs=" in caught.value.diagnostics[0].hint
    exe = inlay.load_executable(path, externs=[operator])
    np.testing.assert_array_equal(exe(-np.ones(2, np.float32)), 2 * np.ones(2))


@cc
@pytest.mark.cc
def test_files_record_libraries(tmp_path):
    here = library(tmp_path)
    operator = extern("op", IDENTITY, c=(here, "failing"))
    # Not loaded here: the system remembers libraries by their paths.
    save(compilation(read(ONE_CALL, operator), cache="none").program, tmp_path / "a.inlay")
    x = -np.ones(2, np.float32)
    moved = Path(here).rename(tmp_path / "other.so")
    with pytest.raises(CompileError, match=r"'failing' of .*libmine.so") as caught:
        inlay.load_executable(tmp_path / "a.inlay")
    assert caught.value.ids == ("extern.library",)
    again = inlay.load_executable(
        tmp_path / "a.inlay", externs=[extern("op", IDENTITY, c=(moved, "failing"))]
    )
    np.testing.assert_array_equal(again(x), np.ones(2))
    shutil.copy(moved, here)
    np.testing.assert_array_equal(inlay.load_executable(tmp_path / "a.inlay")(x), np.ones(2))
    pointer = ctypes.CDLL(str(moved)).failing
    direct = inlay.compile(read(ONE_CALL, extern("op", IDENTITY, c=pointer)), cache="none")
    np.testing.assert_array_equal(direct(x), np.ones(2))
    direct.save(tmp_path / "b.inlay")
    with pytest.raises(CompileError, match="the C function of 'op'"):
        inlay.load_executable(tmp_path / "b.inlay")


def test_function_pointers_live_as_long_as_the_executable():
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
    with only_new_objects():
        exe = inlay.compile(read(ONE_CALL, extern("op", IDENTITY, c=kind(lambda _call: 5))), cache="none")
        gc.collect()
        with pytest.raises(RunError, match="failed with status 5"):
            exe(np.ones(1, np.float32))


# ------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("make", "id", "said"),
    [
        (lambda: extern("1x", IDENTITY, python=abs), "extern.name", "needed a name"),
        (lambda: extern("op", IDENTITY), "extern.implementation", "given: none"),
        (lambda: extern("op", IDENTITY, python=abs).using("c"), "extern.implementation", "given: python"),
        (
            lambda: extern("op", IDENTITY, generated="{ x }", resource="log"),
            "extern.implementation",
            "which uses none",
        ),
        (lambda: extern("op", IDENTITY, c=3.5), "extern.library", "library"),
        (lambda: extern("op", IDENTITY, python=abs, attributes={"a": {}}), "extern.attribute", "'a'"),
        (lambda: extern("op", IDENTITY, python=abs, attributes={"a": ()}), "extern.attribute", "'a'"),
        (lambda: extern("relu", IDENTITY, python=abs), "extern.name", "Inlay has itself"),
        (lambda: extern("op", "Tensor[n]", python=abs), "extern.rule", "needed '"),
        (lambda: extern("op", "(x: Tensor[n, f33]) -> Tensor[n, f32]", python=abs), "extern.rule", "f33"),
        (lambda: extern("op", "(x: int) -> Tensor[f32]", python=abs), "extern.rule", "operand 1 is int"),
        (lambda: extern("op", "(x: Tensor[f32]) -> int", python=abs), "extern.rule", "gives int"),
        (
            lambda: extern("op", "(x: Tensor[f32]) -> some k. Tensor[k, f32]", c=("x.so", "f")),
            "extern.rule",
            "cannot decide sizes",
        ),
        (lambda: extern("op", IDENTITY, generated="{ neg(y) }"), "name.unknown", "y"),
        (
            lambda: extern("op", IDENTITY, generated="fn main<n>(x: Tensor[n, f32]) { cast{dtype=i32}(x) }"),
            "extern.body",
            "i32",
        ),
        (lambda: extern("op", lambda x: x, generated="{ x }"), "extern.body", "rule of text"),
    ],
)
def test_refusals(make, id, said):
    with pytest.raises(CompileError, match=said) as caught:
        with_externs(table(), [make()])
    assert id in caught.value.ids


def test_refusals_come_together():
    op = extern("op", IDENTITY, python=abs)
    with pytest.raises(CompileError) as caught:
        with_externs(table(), [op, extern("relu", IDENTITY, python=abs), op])
    assert caught.value.ids == ("extern.name", "extern.duplicate")


def test_modules_keep_the_rule_they_were_loaded_with():
    module = read(ONE_CALL, extern("op", IDENTITY, python=abs))
    with pytest.raises(CompileError) as caught:
        inlay.compile(module, externs=[extern("op", "(x: Tensor[n, f32]) -> Tensor[n, f64]", python=abs)])
    assert caught.value.ids == ("extern.rule",)


def test_an_unknown_operator_in_text_is_one():
    with pytest.raises(CompileError) as caught:
        read("fn main<n>(x: Tensor[n, f32]) { op(x) }")
    assert caught.value.ids == ("name.unknown",)
