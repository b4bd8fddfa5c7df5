"""Hooks of descriptions: what they get, their order, and what becomes of those that fail."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.api import compilation
from inlay.base.diagnostics import CompileError
from inlay.cli.main import main
from inlay.ir.parser import parse_module
from inlay.machine.board_file import read_board
from inlay.ops.table import table
from inlay.pipeline.build_kernels import LoopBody
from inlay.schedule.state import Schedule

HEAD = """
import json
from inlay.accel.api import Accelerator, Mock, Shared, hook

class {title}(Accelerator):
    ram = Shared()
    drivers = (Mock(),)
"""
SINE = """
    @hook("tensor", when="before_partition"{order})
    def turn(self, module, ctx):
        return ctx.rewrite(module, lambda name, call: ctx.call("{to}", *call.args) if name == "{of}" else None)
"""
PROGRAM = "fn main<n>(x: Tensor[n, f32]) { let y = exp(x); let z = mul(y, y); add(z, x) } entry main;"
X = np.linspace(-1, 1, 7, dtype=np.float32)


def board_of(folder: Path, **bodies: str):
    """Return a board with a device for each description, whose class has this body."""
    parts = ['[[memory]]\nname = "ram"\n[[device]]\nname = "cpu"\narch = "native"\nmemories = ["ram"]\n']
    for name, body in bodies.items():
        path = folder / f"{name}.py"
        path.write_text(HEAD.format(title=name.capitalize()) + body, encoding="utf-8")
        parts += [
            f'[[arch]]\nname = "{name}"\ngenerator = "{name}"\nloader = "{path}"\n',
            f'[[device]]\nname = "{name}0"\narch = "{name}"\nmemories = ["ram"]\n',
            f'[[coherent]]\nmemory = "ram"\nparties = ["cpu", "{name}0"]\n',
        ]
    return read_board("own", "".join(parts), place="own.toml")


def compiled(board, **options) -> inlay.Executable:
    return inlay.compile(
        parse_module(PROGRAM, table()),
        board=board,
        cache=options.pop("cache", "none"),
        verify=True,
        **options,
    )


def turn(of: str, to: str, order: str = "") -> str:
    return SINE.format(of=of, to=to, order=order)


# ---------------------------------------------------------------------------- order


@pytest.mark.sample(3)
@pytest.mark.llvm
@pytest.mark.parametrize(
    ("first", "second", "function"),
    [
        ("", "", np.cos),
        (', after=("second.turn",)', "", np.sin),
        ("", ', before=("first.turn",)', np.sin),
        (', before=("second.turn",)', "", np.cos),
        (', before=("simplify-algebra",)', ', after=("simplify-algebra",)', np.cos),
        (', after=("simplify-algebra",)', ', before=("simplify-algebra",)', np.sin),
    ],
)
def test_two_vendors_swap_order_and_the_result_changes(tmp_path, first, second, function) -> None:
    board = board_of(tmp_path, first=turn("exp", "sin", first), second=turn("sin", "cos", second))
    y = function(X)
    np.testing.assert_allclose(compiled(board)(X), y * y + X, rtol=1e-5)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (', after=("second.turn",)', ', after=("first.turn",)', "hooks that wait for each other"),
        (', after=("plan-places",)', "", "hooks that wait for each other: first.turn after plan-places"),
        (', after=("third.turn",)', "", "'third.turn' in the order of the hook 'first.turn'"),
        (', before=("simplify_algebra",)', "", "did you mean simplify-algebra"),
        (', after=("first.turn",)', "", "hooks that wait for each other: first.turn after first.turn"),
    ],
)
def test_orders_that_cannot_be_are_refused(tmp_path, first, second, said) -> None:
    board = board_of(tmp_path, first=turn("exp", "sin", first), second=turn("sin", "cos", second))
    with pytest.raises(CompileError) as refused:
        compiled(board)
    assert refused.value.ids == ("accel.hook-order",)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('@hook("loops")', "found the level 'loops' of the hook 'f'"),
        ('@hook("tensor")', "needed before_partition or after_partition"),
        ('@hook("tensor", when="later")', "needed before_partition or after_partition"),
        ('@hook("lowered", when="after_partition")', "of level lowered, needed none"),
    ],
)
def test_declarations_that_cannot_be_are_refused(tmp_path, line, said) -> None:
    board = board_of(tmp_path, own=f"    {line}\n    def f(self, x, ctx):\n        return x\n")
    with pytest.raises(CompileError) as refused:
        compiled(board)
    assert refused.value.ids == ("accel.declaration",)
    assert said in str(refused.value)
    assert "own.py" in str(refused.value)


# ---------------------------------------------------------------------------- levels

FUSES = """
    @hook("schedulable")
    def fuse(self, f, ctx):
        if ctx.operators != "softmax" or ctx.runs_on != "cpu":
            return None
        loops = ctx.loops(f)
        loops.inline("c_exponentials")
        return loops.function
"""
SOFTMAX = "fn main<n>(x: Tensor[n, 16, f32]) { softmax(x) } entry main;"


def kernel_of(board, text: str) -> LoopBody:
    found = compilation(parse_module(text, table()), board=board, cache="none", verify=True)
    (kernel,) = found.module.kernels.values()
    assert isinstance(kernel.body, LoopBody)
    return kernel.body


@pytest.mark.llvm
def test_a_fused_loop_nest_comes_back_and_is_scheduled(tmp_path) -> None:
    """Exponentials are computed where they are read, in the sum and behind it, and not kept between."""
    plain, fused = (kernel_of(b, SOFTMAX).schedule() for b in ("host", board_of(tmp_path, own=FUSES)))
    assert plain.rule == fused.rule == "rows"
    assert "c_exponentials" in Schedule(plain.function).block_names()
    assert "c_exponentials" not in Schedule(fused.function).block_names()
    assert [s.primitive for s in fused.steps].count("vectorize") >= 3
    module = parse_module(SOFTMAX, table())
    x = np.linspace(-3, 3, 48, dtype=np.float32).reshape(3, 16)
    got = inlay.compile(module, board=board_of(tmp_path, own=FUSES), cache="none")(x)
    np.testing.assert_allclose(got, inlay.compile(module, cache="none")(x), rtol=1e-5)


SEES = """
    @hook("lowered")
    def see(self, kernels, ctx):
        with open({path!r}, "w") as file:
            json.dump({{name: [f.stage, len(f.params)] for name, f in kernels.items()}}, file)
        return {result}
"""
SEVERAL = """
fn main(x: Tensor[8, 8, f32], w: Tensor[8, 8, f32]) {
  let y = matmul(x, w); let z = softmax(y); let r = reduce_sum{axes=[1]}(z); (exp(r), matmul(z, w))
}
entry main;
"""


@pytest.mark.llvm
def test_a_hook_reads_the_lowered_loops_of_all_kernels(tmp_path) -> None:
    path = tmp_path / "seen.json"
    board = board_of(tmp_path, own=SEES.format(path=str(path), result="None"))
    found = compilation(parse_module(SEVERAL, table()), board=board, cache=str(tmp_path / "cache"))
    seen = json.loads(path.read_text())
    assert seen == {n: ["lowered", len(k.ports)] for n, k in found.module.kernels.items()}
    assert len(seen) >= 3
    # From a cache, nothing is lowered, but for hooks that see it.
    path.unlink()
    compilation(parse_module(SEVERAL, table()), board=board, cache=str(tmp_path / "cache"))
    assert json.loads(path.read_text()) == seen


@pytest.mark.llvm
def test_what_a_hook_of_lowered_loops_gives_is_what_runs(tmp_path) -> None:
    body = """
    @hook("lowered")
    def empty(self, kernels, ctx):
        from dataclasses import replace
        from inlay.loop.walk import seq
        return {name: replace(f, body=seq()) for name, f in kernels.items()}
"""
    exe = compiled(board_of(tmp_path, own=body))
    assert not np.allclose(exe(X), np.exp(X) ** 2 + X)


# ---------------------------------------------------------------------------- faults

WRONG = [
    ('"tensor", when="after_partition"', "return 1 // 0", "ZeroDivisionError at own.py:10"),
    ('"tensor", when="before_partition"', "return 5", "it gave int, needed a module"),
    (
        '"tensor", when="before_partition"',
        'return ctx.rewrite(x, lambda n, c: ctx.call("cast_to_int", *c.args))',
        "own.py:10",
    ),
    ('"tensor", when="before_partition"', "return x.with_functions({})", "it made nothing of 'main'"),
    ('"schedulable"', 'return ctx.loops(x).inline("nothing")', "own.py:10"),
    ('"schedulable"', "return ctx.loops(x).inlined()", "there is no primitive 'inlined'"),
    ('"schedulable"', "return x.body", "needed a loop function"),
    (
        '"schedulable"',
        "import dataclasses; return dataclasses.replace(x, params=x.params[::-1])",
        "other parameters",
    ),
    ('"lowered"', "return list(x.values())", "it gave list, needed loops by name"),
    ('"lowered"', 'return {"other": None}', "loops for 'other', which is no kernel"),
    ('"lowered"', "return {n: f.body for n, f in x.items()}", "needed a loop function"),
]


@pytest.mark.sample(5)
@pytest.mark.llvm
@pytest.mark.parametrize(("level", "line", "said"), WRONG)
def test_a_hook_that_fails_is_left_out_and_says_where(tmp_path, level, line, said) -> None:
    board = board_of(tmp_path, own=f"    @hook({level})\n    def f(self, x, ctx):\n        {line}\n")
    found = compilation(parse_module(PROGRAM, table()), board=board, cache="none")
    (fault, *_) = found.report.to_json()["faults"]
    assert fault.startswith("the hook own.f of 'own0' is left out")
    assert said in fault
    np.testing.assert_allclose(compiled(board)(X), np.exp(X) ** 2 + X, rtol=1e-5)


@pytest.mark.llvm
def test_who_requires_the_device_gets_an_error(tmp_path) -> None:
    body = '    @hook("lowered")\n    def f(self, x, ctx):\n        return 1 // 0\n'
    with pytest.raises(CompileError) as refused:
        compiled(board_of(tmp_path, own=body), required=("own0", "cpu"))
    assert refused.value.ids == ("accel.hook-fault",)
    compiled(board_of(tmp_path, own=body), required=("cpu",))


@pytest.mark.llvm
def test_people_are_told(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.inl").write_text(PROGRAM.replace("<n>", "").replace("n, f32", "8, f32"))
    body = '    @hook("schedulable")\n    def f(self, x, ctx):\n        return 1 // 0\n'
    board_of(tmp_path, own=body)
    text = """
[[arch]]
name = "own"
generator = "own"
loader = "own.py"
[[memory]]
name = "ram"
[[device]]
name = "cpu"
arch = "native"
memories = ["ram"]
[[device]]
name = "own0"
arch = "own"
memories = ["ram"]
[[coherent]]
memory = "ram"
parties = ["cpu", "own0"]
"""
    Path("own.toml").write_text(text)
    assert main(["run", "p.inl", "--board", "own.toml", "--cache", "none"]) == 0
    assert "the hook own.f of 'own0' is left out in " in capsys.readouterr().out


@pytest.mark.llvm
def test_a_cache_knows_the_text_of_hooks(tmp_path) -> None:
    cache = str(tmp_path / "cache")
    body = '    @hook("schedulable")\n    def f(self, x, ctx):\n        {0}\n'
    empties = (
        "from dataclasses import replace; from inlay.loop.walk import seq; return replace(x, body=seq())"
    )
    right = compiled(board_of(tmp_path, own=body.format("return None")), cache=cache)
    np.testing.assert_allclose(right(X), np.exp(X) ** 2 + X, rtol=1e-5)
    wrong = compiled(board_of(tmp_path, own=body.format(empties)), cache=cache)
    assert not np.allclose(wrong(X), np.exp(X) ** 2 + X)
