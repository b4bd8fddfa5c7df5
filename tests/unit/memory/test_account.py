"""What a program takes of memory: as the plan says it, and as the runtime counts it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings

import inlay
from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.arith.expr import Int, evaluate, symbols
from inlay.cli.main import main
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.machine.board_file import read_board
from inlay.machine.memory import Pool, PoolKind
from inlay.memory.account import Account, Around, accounts_of
from inlay.memory.constants import constants_in_file
from inlay.memory.plan import FunctionPlan, Sharing
from inlay.ops.table import table
from inlay.pipeline.explain.memory import memory_of
from inlay.runtime.session import Executable, executable_of
from inlay.viz.memory_svg import memory_svg
from tests.data import model_case
from tests.property.gen_ir import Features, Program, programs
from tests.python_kernels import callbacks_of, compile_with_python_kernels

HEAP = (Pool("host", PoolKind.HEAP),)


def account(plans: list[FunctionPlan], module: Module, env: dict) -> Account:
    def size(e: Int) -> int | None:
        return evaluate(e, env) if all(s in env for s in symbols(e)) else None

    return accounts_of(plans, module.entry, (), Around(HEAP, size))[0]


def measured(exe: Executable, *arrays: np.ndarray) -> int:
    """Return what a call takes, after one that made what stays; nothing but results is asked for again."""
    exe(*arrays)
    before = exe.usage()
    exe(*arrays)
    after = exe.usage()
    assert after.storages == before.storages
    return after.peak_bytes


@settings(max_examples=15)
@given(programs(Features(functions=False, data=False, cells=False)))
def test_what_the_plan_says_is_what_the_runtime_counts(p: Program):
    for sharing in Sharing:
        plans: list[FunctionPlan] = []
        program, planned = compile_with_python_kernels(p.module, sharing=sharing, plans=plans)
        exe = executable_of(program, threads=1, mode="sequential", callbacks=callbacks_of(planned))
        entry = planned.functions[planned.entry]
        env = {
            s: a.shape[axis]
            for param, a in zip(entry.params, p.args, strict=True)
            for axis, dim in enumerate(param.type.shape)
            if (s := dim.atom) is not None
        }
        found, peak = account(plans, planned, env), measured(exe, *p.args)
        if found.is_exact:
            assert found.peak == peak
            assert found.lower_bound <= peak
        elif not found.unknown:
            assert found.peak >= peak


MODELS = [
    "mnist8",
    "tflm_hello_int8",
    "mlperf_ad_int8",
    "mixed_ops_dynamic_batch",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("ultraface_rfb320", "deeploy_cct_16", "magika_v3_3", "mlperf_vww_int8", "micro_kws_qdq")
    ),
]


@pytest.mark.sample(4)
@pytest.mark.llvm
@pytest.mark.parametrize("plan", ["serial", "parallel"])
@pytest.mark.parametrize("name", MODELS)
def test_models_take_to_the_byte_what_the_report_says(name, plan):
    case = model_case(name)
    inputs = case.runs()[0].inputs
    made = compilation(case.model, threads=1, plan=plan)
    exe = executable_of(made.program, threads=1, mode="sequential")
    dims = {
        dim.atom.name: inputs[p.name].shape[axis]
        for p in made.module.functions[made.module.entry].params
        for axis, dim in enumerate(p.type.shape)
        if dim.atom is not None
    }
    typical = tuple(f"{n}={size}" for n, size in dims.items())
    (asked, *_) = inlay.explain(case.model, view="memory", threads=1, plan=plan, typical=typical).accounts
    assert asked.is_exact
    exe.run(inputs)
    before = exe.usage()
    exe.run(inputs)
    after = exe.usage()
    assert after.peak_bytes == asked.peak
    # In steady state a call asks the process for its results and for nothing else.
    assert after.allocations - before.allocations == len(exe.outputs)
    assert asked.constants == sum(-(-c.bytes().nbytes // 64) * 64 for c in made.program.constants)
    assert asked.inputs == sum(a.nbytes for a in inputs.values())
    assert asked.block == asked.live + asked.alignment + asked.unused
    assert asked.lower_bound <= asked.peak


TWO = """
fn main<n>(x: Tensor[n, 64, f32]) -> (Tensor[n, 64, f32], Tensor[n, 64, f32]) {
  let a = softmax(x);
  let b = softmax(a);
  let c = softmax(add(b, a));
  (softmax(c), softmax(b))
}
entry main("x") -> ("y", "z");
"""


def write(folder: Path, text: str = TWO) -> Path:
    path = folder / "p.inl"
    path.write_text(text)
    return path


def test_dims_without_a_size_are_named(tmp_path, capsys):
    path = write(tmp_path)
    assert main(["explain", str(path), "--view", "memory"]) == 0
    assert "n have no size here" in capsys.readouterr().out
    assert main(["explain", str(path), "--view", "memory", "--output", str(tmp_path / "m.svg")]) == 1
    assert "found the dim 'n' without a size" in capsys.readouterr().err
    assert not (tmp_path / "m.svg").exists()
    assert main(["explain", str(path), "--view", "memory", "--json", "--fix-dim", "n=16"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["unsized"] == []
    (host,) = record["takes"]
    assert (host["memory"], host["results"], host["is_exact"]) == ("host", 2 * 16 * 64 * 4, True)
    assert host["block"] == host["live"] + host["alignment"] + host["unused"]
    assert sum(h["bytes"] for h in host["held"]) + host["alignment"] == host["lower_bound"]
    assert {h["origin"] for h in host["held"]} <= {"block", "result"}


def test_the_picture_has_every_value_once(tmp_path, capsys):
    path, picture = write(tmp_path), tmp_path / "m.svg"
    words = ["explain", str(path), "--view", "memory", "--typical", "n=16", "--output", str(picture)]
    assert main(words) == 0
    assert f"drawn in {picture}" in capsys.readouterr().out
    found = inlay.explain(path, view="memory", typical=("n=16",))
    root = ElementTree.fromstring(picture.read_text())
    space = "{http://www.w3.org/2000/svg}"
    titles = [t.text for r in root.iter(f"{space}rect") for t in r.iter(f"{space}title")]
    planned = sum(part.planned for plan in found.plans for part in plan.parts)
    assert len(titles) == planned + sum(len(p.counted) + len(p.machine) for p in found.plans)
    assert picture.read_text() == memory_svg(found)
    assert main([*words[:-1], str(tmp_path / "m.png")]) == 1
    assert "needed a name that ends in .svg" in capsys.readouterr().err
    assert main(["explain", str(path), "--output", str(picture)]) == 2
    assert "does nothing with --view placement" in capsys.readouterr().err


def test_a_compilation_tells_the_same(tmp_path):
    path = write(tmp_path)
    made = compilation(path, threads=1, typical=("n=16",))
    asked = inlay.explain(path, view="memory", threads=1, typical=("n=16",))
    assert memory_of(made.run).to_json() == asked.to_json()
    assert constants_in_file(made.module) == 0


OUT_OF_BLOCKS = """
fn main(x: Tensor[8, 16, f32], w: Tensor[16, 32, f32]) -> (Tensor[8, 32, f32], Tensor[8, 32, f32]) {
  let a = matmul(x, w);
  (softmax{axis=1}(a), relu(tanh(a)))
}
entry main("x", "w") -> ("y", "z");
"""


SMALL_PART = """
fn main(x: Tensor[64, 64, f32]) -> Tensor[64, f32] {
  let a = softmax{axis=1}(x);
  reduce_max{axes=[1], keepdims=false}(softmax{axis=0}(add(a, x)))
}
entry main("x") -> ("y");
"""


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("source", "shapes", "copied"),
    [(OUT_OF_BLOCKS, [(8, 16), (16, 32)], 8 * 32 * 4), (SMALL_PART, [(64, 64)], 64 * 4)],
)
def test_results_in_a_memory_of_fixed_places_are_copied_out(source, shapes, copied):
    """The block goes with the last one that is no small part of it; others are the caller's, elsewhere."""
    text = 'summary = "s"\n[[memory]]\nname = "ram"\nkind = "static"\nbytes = "64KiB"\n'
    text += '[[device]]\nname = "cpu"\narch = "native"\nmemories = ["ram"]\n'
    board = read_board("static", text, place="static.toml")
    module = infer_types(parse_module(source, table()))
    (found,) = inlay.explain(module, board, view="memory", threads=1).accounts
    exe = inlay.compile(module, board=board, threads=1, cache="none")
    exe(*(np.ones(shape, np.float32) for shape in shapes))
    assert found.copies == exe.usage().copied_bytes == copied
    assert found.peak + found.copies == exe.usage().peak_bytes
