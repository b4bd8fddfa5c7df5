"""The race detector sees what a wrong plan does: two live tensors that share bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.base.diagnostics import RunError
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, HostBody, Kernel
from inlay.bytecode.writer import save
from inlay.cli.main import main
from inlay.ir.expr import Call, Const, OpRef
from inlay.ir.parser import parse_module
from inlay.ir.walk import rewrite
from inlay.memory import plan_memory
from inlay.ops.memory import TENSOR_AT
from inlay.ops.table import table
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.unit.runtime.programs import spec

MODES = ["sequential", "parallel", "replay"]

CHAIN = """
fn main(x: Tensor[8, 8, f32]) -> Tensor[8, 8, f32] {
  let a = matmul(x, x);
  let b = matmul(a, x);
  let c = matmul(b, a);
  matmul(c, a)
}
entry main;
"""


def run(program, mode, *, races=True, **inputs):
    settings = Settings(mode=mode, threads=2, seed=3, races=races)
    return executable_of(program, settings=settings).run(inputs)


def plan(monkeypatch, forge):
    """Compile the chain with a plan in which offsets of tensors in blocks are changed by `forge`."""
    real = plan_memory.plan_module

    def forged(module, *args, **options):
        planned, plans = real(module, *args, **options)
        count = iter(range(1000))

        def change(e):
            match e:
                case Call(callee=OpRef(op=op), args=(block, Const() as at, shape)) if op is TENSOR_AT:
                    return replace(e, args=(block, replace(at, held=forge(next(count), at.value)), shape))
                case _:
                    return e

        functions = {n: replace(f, body=rewrite(f.body, change)) for n, f in planned.functions.items()}
        return planned.with_functions(functions), plans

    monkeypatch.setattr(plan_memory, "plan_module", forged)
    module = infer_types(parse_module(CHAIN, table()))
    found = compilation(module, cache="none").program
    monkeypatch.undo()
    return found


X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


@pytest.mark.parametrize("mode", MODES)
def test_two_live_tensors_in_the_same_bytes(monkeypatch, mode):
    right = run(plan(monkeypatch, lambda _, at: at), mode, x=X)
    wrong = plan(monkeypatch, lambda _, at: at * 0)
    with pytest.raises(
        RunError, match="overwritten while live: kernel '.*' in 'main' at .* reads a tensor"
    ) as caught:
        run(wrong, mode, x=X)
    assert caught.value.ids == ("run.race",)
    assert "bytes 0 to 256" in str(caught.value)
    (name,) = right
    assert (run(wrong, mode, races=False, x=X)[name] != right[name]).any()


def test_every_forged_plan_is_found_or_harmless(monkeypatch):
    offsets = []
    program = plan(monkeypatch, lambda _, at: offsets.append(at) or at)
    right = run(program, "sequential", x=X)
    found = 0
    for changed in range(len(offsets)):
        for other in dict.fromkeys(offsets):
            wrong = plan(monkeypatch, lambda n, at, c=changed, o=other: o if n == c else at)
            try:
                again = run(wrong, "sequential", x=X)
            except RunError:
                found += 1
            else:  # nobody reads there any more
                for name, value in right.items():
                    np.testing.assert_array_equal(again[name], value)
    assert found


def test_the_command_finds_it(monkeypatch, tmp_path, capsys):
    path = tmp_path / "forged.inlay"
    save(plan(monkeypatch, lambda _, at: at * 0), path)
    assert main(["run", str(path)]) == 0
    assert main(["run", str(path), "--races"]) == 3
    assert "overwritten while live" in capsys.readouterr().err


def two_tensors(second: int, ports: tuple[AccessCode, ...], uses: str):
    """Tensors a at 0 and b at `second` in one storage; kernels of `ports` on what `uses` names."""
    b = ProgramBuilder()
    fill = b.kernel(Kernel("fill", (AccessCode.WRITE,), 0, HostBody("fill")))
    kernel = b.kernel(Kernel("k", ports, 0, HostBody("k")))
    main = b.function("main", [], [Kind.TENSOR])
    main.emit("INT", 256), main.emit("STORAGE", 0, 64)
    for offset in (0, second):
        main.emit("COPY", 0), main.emit("INT", offset), main.emit("INT", 4), main.emit("TENSOR", "i64", 1)
    main.emit("COPY", 1), main.emit("INVOKE", fill)
    for name in uses:
        main.emit("COPY", 1 if name in "aA" else 2)
        if name == "A":  # a view of half of it
            main.emit("INT", 0), main.emit("INT", 2), main.emit("ROWS")
    main.emit("INVOKE", kernel)
    main.emit("COPY", 2), main.emit("OWN"), main.emit("RETURN")
    b.entry(Entry("main", main.index, (), (spec("y", "i64", "4", []),)))
    return b.finish()


def fill(tensors, integers):
    tensors[0][...] = 1


def other(tensors, integers):
    tensors[-1][...] = 3


@pytest.mark.parametrize(
    ("second", "ports", "uses", "is_found"),
    [
        (32, "rw", "ab", False),
        (0, "rw", "ab", False),  # in place
        (8, "rw", "ab", True),
        (0, "rw", "Ab", True),
        (0, "ww", "ab", True),
        (32, "rw", "Aa", False),  # one tensor: the kernel knows what it does
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_kernel_that_writes_over_its_own_operands(mode, second, ports, uses, is_found):
    access = {"r": AccessCode.READ, "w": AccessCode.WRITE}
    program = two_tensors(second, tuple(access[p] for p in ports), uses)
    settings = Settings(mode=mode, threads=2, races=True)
    callbacks = {"fill": fill, "k": other}
    if not is_found:
        executable_of(program, callbacks=callbacks, settings=settings).run({})
        return
    with pytest.raises(RunError, match="overwritten while live"):
        executable_of(program, callbacks=callbacks, settings=settings).run({})


GROWS = """
fn main(n: Tensor[i64], x: Tensor[2, f32]) -> Tensor[2, f32] {
  let limit: some int limit. int[limit] = to_control(n);
  let step = fn<i, k>(i: int[i], rows: Tensor[k, 2, f32]) -> Tensor[2, f32] {
    if (int_less(int(i), int(limit))) {
      let flat = reshape(rows, shape(2*k));
      let total = reduce_sum{axes=[0], keepdims=false}(flat);
      step(int(i + 1), push_row(rows, add(x, total)))
    } else { reduce_sum{axes=[0], keepdims=false}(rows) }
  };
  step(int(0), f32[1, 2](1, 2))
}
entry main;
"""


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_grow_in_place_are_one_tensor(mode):
    program = compilation(infer_types(parse_module(GROWS, table())), cache="none").program
    inputs = {"n": np.array(40), "x": np.array([0.5, 0.25], np.float32) / 1e9}
    plain = run(program, mode, races=False, **inputs)
    for name, value in run(program, mode, **inputs).items():
        np.testing.assert_array_equal(value, plain[name])
