"""Explaining is compiling, stopped early: what it says is what was built; and it says all of it."""

from __future__ import annotations

import json

import pytest

import inlay
from inlay.api import compilation
from inlay.base.diagnostics import CompileError
from inlay.base.instrument import Instrument, ListSink
from inlay.cli.main import main
from inlay.ir.parser import parse_module
from inlay.machine.board_file import board_names
from inlay.ops.table import table
from inlay.pipeline.build_kernels import LoopBody
from inlay.pipeline.explain.views import View, view_of
from inlay.pipeline.route import STEPS
from tests.data import model_case

PROGRAM = """
fn main<n <= 16>(x: Tensor[n, 64, f32], w: Tensor[64, 64, f32], v: Tensor[64, 8, f32]) {
  let a = relu(matmul(tanh(x), w));
  let b = softmax(a);
  (matmul(add(a, b), v), reshape(b, shape(n, 8, 8)))
}
entry main("x", "w", "v") -> ("y", "z");
"""


def program():
    return parse_module(PROGRAM, table())


@pytest.mark.sample(2)
@pytest.mark.llvm
@pytest.mark.parametrize("board", ["host", "host_two"])
@pytest.mark.parametrize(
    "name",
    [
        "",
        "mnist8",
        pytest.param("micro_kws_fp32", marks=pytest.mark.slow),
        pytest.param("gen_greedy_decode_onnx", marks=pytest.mark.slow),
        pytest.param("ultraface_rfb320", marks=pytest.mark.slow),
    ],
)
def test_what_is_explained_is_what_is_compiled(name, board):
    source = model_case(name).model if name else program()
    made = compilation(source, board=board, cache="none", threads=2)
    kernels = made.module.kernels
    asked = {v: inlay.explain(source, board, view=v, threads=2) for v in View}
    # The views of the compilation itself are those of who only asks.
    for view in View if made.run.planned is not None else [v for v in View if v is not View.PLACEMENT]:
        own = view_of(made.run, view).to_json()
        assert {**own, "depends": {}} == {**asked[view].to_json(), "depends": {}}
    # Which kernels there are, and where: in the program, as the linker made it.
    calls = asked[View.FUSION].calls
    grouped, linked = {(c.kernel, c.device) for c in calls}, {(k.name, k.device) for k in made.report.kernels}
    assert linked <= grouped
    for name, _ in grouped - linked:  # a copy that storage made superfluous
        accesses = kernels[name].accesses
        assert accesses is not None
        assert accesses.lies
    # Their schedules: of the loops that the code generator got.
    for k in asked[View.LOOPS].kernels:
        body = kernels[k.kernel].body
        assert isinstance(body, LoopBody)
        if k.decision is not None:
            assert [str(s) for s in k.decision.steps] == [str(s) for s in body.schedule().steps]
            assert k.decision.rule == body.schedule().rule
    # Where values live.
    for plan in asked[View.MEMORY].to_json()["memory"]:
        del plan["buffers"]
        assert plan in made.report.to_json()["memory"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("board", board_names())
def test_every_board_has_every_view(board):
    for view in View:
        json.dumps(inlay.explain(program(), board, view=view).to_json())
    json.dumps(inlay.explain(program(), board, at="matmul").to_json())


def test_a_story_goes_on_where_memory_is_refused():
    found = inlay.explain(parse_module(PROGRAM.replace("<n <= 16>", "<n>"), table()), "mcu_dma", at="relu")
    assert "'x', needed 256*n bytes" in found.no_memory
    assert found.told[0].parts[0].schedule.decision.rule == "contraction"


def test_borders_have_reasons():
    found = inlay.explain(program(), view="fusion")
    reasons = {(b.producer.operator, b.reader.operator): str(b.reason) for b in found.borders}
    assert reasons["tanh", "matmul"] == "repeated-work"
    assert reasons["softmax", "reshape"] == "view"
    inside = [[m.operator for m in c.members] for c in found.calls]
    assert ["matmul", "relu"] in inside
    assert [m.operator for m, _ in found.outside] == ["reshape"]


def test_schedules_have_reasons():
    kernels = {k.origin: k for k in inlay.explain(program(), view="loops").kernels}
    product = kernels["matmul+relu"]
    assert product.decision.rule == "contraction"
    ((rule, why),) = product.decision.refused
    assert (rule, why.id) == ("injective", "schedule.class")
    assert product.decision.facts["vector_registers"] >= 16
    assert any(kind == "vector" for nest in product.nests for _, _, kind in nest.loops)
    refused = [rule for rule, _ in kernels["softmax"].decision.refused]
    assert refused == ["injective", "contraction", "attention"]


def test_the_story_of_an_operation():
    found = inlay.explain(program(), "host_two", at="SoftMax", threads=1)
    (told,) = found.told
    assert [p.operator for p in told.placed] == ["softmax"]
    assert {*told.placed[0].others, told.placed[0].device} == {"cpu0", "cpu1"}
    (part,) = told.parts
    assert part.call.kernel == part.schedule.kernel == "softmax"
    assert "reshape" in [b.reader.operator for b in part.borders]
    assert part.schedule.decision.rule == "rows"
    assert [r.value for r in part.results] == ["b"]
    record = found.to_json()["operations"][0]
    assert record["kernels"][0]["schedule"]["rule"] == "rows"


def test_a_name_of_several_operations_tells_all():
    assert len(inlay.explain(program(), at="matmul").told) == 2
    assert len(inlay.explain(program(), at="*").told) == 7


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"view": "fusoin"}, "did you mean fusion"),
        ({"at": "sofmax"}, "did you mean softmax"),
        ({"at": "Node_7"}, "found no operation named 'Node_7'"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(words, said):
    with pytest.raises(CompileError, match=said):
        inlay.explain(program(), **words)


def test_a_node_that_was_folded_is_said_to_be():
    case = model_case("mnist8")
    with pytest.raises(CompileError, match="no operation is left"):
        inlay.explain(case.model, at="Times212_reshape1")


@pytest.mark.llvm
def test_the_route_is_what_a_compilation_does():
    kept = ListSink()
    made = compilation(program(), cache="none", instrument=Instrument(kept))
    names = list(kept.durations())
    assert names == list(dict.fromkeys(s.name for s in STEPS))
    assert {r.pass_name for r in made.report.remarks} >= {"fuse-ops", "plan-memory"}
    assert made.report.to_json()["decisions"]["fuse-ops"]["not-fused: view"] == 1


def test_views_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "p.inl"
    path.write_text(PROGRAM)
    said: dict[str, str] = {}
    for words in ("--view fusion", "--view loops", "--view memory", "--view fusion --all", "--at relu"):
        assert main(["explain", str(path), *words.split()]) == 0
        said[words] = capsys.readouterr().out
        assert main(["explain", str(path), *words.split(), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["board"] == "host"
    assert "1 x softmax" in said["--view fusion"]
    assert "not with reshape" in said["--view fusion --all"]
    assert "not contraction: found" in said["--view loops"]
    for title in ("place", "kernel", "loops", "memory"):
        assert f"\n  {title:10}" in said["--at relu"]
    assert main(["explain", str(path), "--at", "relu", "--all"]) == 2
