"""Scratch memory of kernels is in the plan: of a size that is known, or counted with the reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlay.api import compilation, explain
from inlay.arith.expr import fresh, lit, substitute
from inlay.base.diagnostics import CompileError
from inlay.codegen.interface import Needs
from inlay.ir.kernel import Batch, Workspace
from inlay.ir.parser import parse_module
from inlay.machine.board_file import find_board
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.pipeline import generate
from inlay.pipeline.explain import views
from inlay.pipeline.generate import GenerateOptions
from inlay.pipeline.lowering import Lowering
from inlay.runtime.session import executable_of
from tests.boards import PARTED

FIXED = 'fn main(x: Tensor[9000, f32]) { let a = sort(x); a.0 } entry main("x") -> ("y");'
SYMBOLIC = 'fn main<n>(x: Tensor[n, f32]) { let a = sort(x); a.0 } entry main("x") -> ("y");'
# No result holds the row between its two passes.
ROWS = """
fn main<m, n>(x: Tensor[m, n, f32]) { reduce_max{axes=[1], keepdims=false}(softmax(x)) }
entry main("x") -> ("y");
"""
TWICE = """
fn main(x: Tensor[9000, f32]) {
  let a = sort(x);
  let b = sort(neg(a.0));
  b.0
}
entry main("x") -> ("y");
"""


def program(text: str):
    return parse_module(text, table())


def scratch(plans) -> dict[str, tuple[str, object, object]]:
    """Return the memory, offset and size of what is scratch memory, by name."""
    return {
        name: (part.memory, s.offset, s.bytes)
        for plan in plans
        for part in plan.parts
        for s in part.members
        for name in s.names
        if name.endswith(".scratch")
    }


def made_of(compiled, origin: str):
    (found,) = (k for k in compiled.program.kernels if origin in k.name)
    return found


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize("text", [FIXED, SYMBOLIC], ids=["fixed", "symbolic"])
def test_a_kernel_gets_its_scratch_from_the_plan(text, mode):
    compiled = compilation(program(text), cache="none", verify=True)
    (kernel,) = (k for k in compiled.module.kernels.values() if k.workspaces)
    (workspace,) = kernel.workspaces
    ((memory, _, size),) = scratch(compiled.report.plans).values()
    assert memory == ""
    at = {d.sym: lit(9000) for d in kernel.type.dims}
    assert substitute(workspace.bytes, at) == lit(2 * 72000)
    assert size.value in (None, 2 * 72000)
    made = made_of(compiled, "sort")
    assert (len(made.ports), len(made.sizes), made.workspace) == (4, 4, None)
    x = np.random.default_rng(0).standard_normal(9000).astype(np.float32)
    found = executable_of(compiled.program, mode=mode).run({"x": x})["y"]
    np.testing.assert_array_equal(found, np.sort(x))


def test_two_runs_share_the_bytes_of_their_scratch():
    compiled = compilation(program(TWICE), cache="none")
    (plan,) = compiled.report.plans
    first, second = scratch([plan]).values()
    assert first == second
    assert plan.block.value < plan.total.value
    x = np.random.default_rng(0).standard_normal(9000).astype(np.float32)
    found = executable_of(compiled.program).run({"x": x})["y"]
    np.testing.assert_array_equal(found, np.sort(-np.sort(x)))


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_scratch_for_each_thread_is_in_the_plan_and_more_threads_get_theirs_from_the_runtime(mode):
    text = ROWS.replace("<m, n>", "").replace("m, n", "8, 20000")
    compiled = compilation(program(text), board=PARTED, cache="none", threads=2)
    (kernel,) = (k for k in compiled.module.kernels.values() if k.workspaces)
    (workspace,) = kernel.workspaces
    assert (workspace.per_part, workspace.parts, workspace.requested) == (True, 2, "")
    assert [(memory, offset) for memory, offset, _ in scratch(compiled.report.plans).values()] == [
        ("", lit(0))
    ]
    assert made_of(compiled, "softmax").workspace_in_port
    x = np.random.default_rng(0).standard_normal((8, 20000)).astype(np.float32)
    each, asked = workspace.planned(1).value, {}
    for threads in (1, 2, 3):
        made = executable_of(compiled.program, mode=mode, threads=threads)
        e = np.exp(x - x.max(axis=1, keepdims=True))
        np.testing.assert_allclose(made.run({"x": x})["y"], (e / e.sum(1, keepdims=True)).max(1), rtol=1e-5)
        asked[threads] = made.usage().peak_bytes
    assert asked[1] == asked[2] == 2 * each + 8 * 4
    assert asked[3] == asked[2] + 3 * each


def test_several_calls_as_one_bring_their_scratch_along():
    module = compilation(program(FIXED), cache="none").module
    (kernel,) = module.kernels.values()
    many = replace(kernel, batch=Batch("many", fresh("n"), frozenset()), workspaces=())
    options = GenerateOptions(lambda *_: {kernel.name: Needs((), Workspace(lit(128)))})
    context = PassContext(table()).with_options(options)
    (found,) = generate.run(module.with_kernels({kernel.name: many}), context).kernels.values()
    assert [w.requested for w in found.workspaces] == ["several calls may run as one"]


@pytest.mark.parametrize("text", [FIXED, SYMBOLIC, ROWS, TWICE])
def test_who_explains_lowers_to_the_same_plan(text):
    made = compilation(program(text), cache="none").report.plans
    found = explain(program(text), board="host", view="memory").plans
    assert [str(p) for p in found] == [str(p) for p in made]


def test_a_device_has_its_scratch_in_its_memory():
    board = find_board("host_two")
    device = board.devices[1].name
    compiled = compilation(program(FIXED), board=board, pins=(f"sort={device}",), cache="none")
    ((memory, _, size),) = scratch(compiled.report.plans).values()
    assert memory in board.devices[1].memories
    assert size == lit(2 * 72000)
    made = made_of(compiled, "sort")
    assert (len(made.ports), made.workspace) == (4, None)
    found = explain(program(FIXED), board=board, pins=(f"sort={device}",), view="memory").plans
    assert scratch(found) == scratch(compiled.report.plans)
    x = np.random.default_rng(0).standard_normal(9000).astype(np.float32)
    np.testing.assert_array_equal(executable_of(compiled.program).run({"x": x})["y"], np.sort(x))


def test_scratch_that_does_not_fit_is_refused():
    small = FIXED.replace("9000", "4000")
    assert scratch(explain(program(small), board="mcu_dma", view="memory").plans) == {
        "a.scratch": ("sram0", lit(0), lit(64000))
    }
    with pytest.raises(CompileError, match=r"'a\.scratch', needed 144000 bytes"):
        explain(program(FIXED), board="mcu_dma", view="memory")


def test_what_is_in_the_cache_is_not_lowered_for_who_explains(tmp_path, monkeypatch):
    text = FIXED
    monkeypatch.setattr(views, "default_cache", lambda: tmp_path)
    before = explain(program(text), board="host", view="memory", threads=1).to_json()
    compilation(program(text), board="host", threads=1, cache=str(tmp_path))

    def lowered(*arguments):
        raise AssertionError(f"it was lowered: {arguments}")

    monkeypatch.setattr(Lowering, "__call__", lowered)
    assert explain(program(text), board="host", view="memory", threads=1).to_json() == before
