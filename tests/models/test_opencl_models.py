"""Whole models whose kernels run on an OpenCL device and on the host in turn, kernel by kernel.

The program is the one that `inlay.compile` makes kernels of; the evaluator of tensor IR calls them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest

import inlay
from inlay.arith.expr import Sym, evaluate
from inlay.base.diagnostics import RunError
from inlay.bytecode.program import DeviceBody
from inlay.codegen.opencl import OPENCL, DeviceImage, DeviceKernel, make_image
from inlay.interp.tensor import evaluate_entry, evaluate_expr
from inlay.ir.kernel import KernelBody
from inlay.ir.module import Module
from inlay.loop.func import LoopFunction
from inlay.lower.lower import lower
from inlay.lower.ops_to_loops import ops_to_loops
from inlay.machine.board_file import board_text
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.passes.manager import run_pipeline
from inlay.pipeline import build_kernels
from inlay.pipeline.build_kernels import BuildOptions, host_requests
from inlay.pipeline.lowering import Lowered
from inlay.pipeline.planning import meanings_of
from inlay.pipeline.route import route
from inlay.runtime.device import DeviceProgram, OpenDevice
from inlay.schedule.choose import FEW_ITEM_RULES, ITEM_RULES, decide
from tests.data import model_case
from tests.differential.onnx_graphs import draw_graph


@pytest.fixture(scope="module")
def device() -> Iterator[OpenDevice]:
    try:
        opened = OpenDevice("opencl")
    except RunError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        pytest.skip(str(failure))
    with opened:
        yield opened


@dataclasses.dataclass(frozen=True)
class OnDevice:
    """A kernel's body, run on a device: operands go there, results come back."""

    body: KernelBody
    function: LoopFunction
    kernel: DeviceKernel
    device: OpenDevice
    program: DeviceProgram
    ran: list[str]

    kind = "device"

    def text(self) -> str:
        return self.body.text()

    def digest(self) -> str:
        return self.body.digest()

    def evaluate(self, inputs: Sequence[np.ndarray], dims: Mapping[Sym, int]) -> tuple[np.ndarray, ...]:
        # The evaluator knows shapes of results; the loops only their number of elements.
        expected = self.body.evaluate(inputs, dims)
        f, device = self.function, self.device
        env = {d: dims[d] for d in f.dims}
        outputs = [np.zeros(x.shape, x.dtype) for x in expected]
        for b, x in zip(f.params[f.n_reads :], outputs, strict=True):
            assert math.prod(evaluate(e, env) for e in b.shape) == x.size
        arrays = [*(np.ascontiguousarray(x) for x in inputs), *outputs]
        memories = [device.allocate(a.nbytes) for a in arrays]
        for m, a in zip(memories, arrays, strict=True):
            last = device.copy(m, a)
        if f.workspaces:
            memories.append(device.allocate(evaluate(self.kernel.workspace.bytes, env)))
        items = [evaluate(e, env) for e in self.kernel.items]
        ints = list(env.values())
        last = device.launch(self.program, self.kernel.name, memories, ints, items, after=[last])
        for a, m in zip(outputs, memories[len(inputs) :], strict=False):
            device.copy(a, m, after=[last]).wait()
        for m in memories:
            m.release()
        self.ran.append(self.kernel.name)
        return tuple(outputs)


def kernels_of(module: Module, rules: tuple) -> tuple[Module, dict[str, LoopFunction]]:
    operators = table()
    meanings = meanings_of(operators)

    def lowered(function, name, *_: object) -> Lowered:
        loops = ops_to_loops(function, operators.definition, name)
        schedule = decide(loops, OPENCL, rules)
        return Lowered(lower(schedule.function, OPENCL), schedule)

    context = PassContext(
        operators,
        lambda e: evaluate_expr(e, meanings),
        options={BuildOptions: BuildOptions(lowered, meanings=meanings)},
    )
    made = run_pipeline(route(build_kernels.PASS), module, context)
    return made, {r.name: r.lower() for r in host_requests(made)}


@pytest.mark.data
@pytest.mark.parametrize(
    ("id", "rules"),
    [
        pytest.param("mnist8", ITEM_RULES, id="mnist8-items"),
        pytest.param("mnist8", FEW_ITEM_RULES, id="mnist8-few", marks=pytest.mark.slow),
        pytest.param("micro_kws_fp32", ITEM_RULES, id="micro_kws-items", marks=pytest.mark.slow),
        pytest.param("gen_scan_rnn_onnx", FEW_ITEM_RULES, id="rnn-few", marks=pytest.mark.slow),
    ],
)
def test_models_on_host_and_device(device, id, rules):
    case = model_case(id)
    module, functions = kernels_of(inlay.load(case.model), rules)
    chosen = list(functions)[::2]
    named = [dataclasses.replace(functions[n], name=f"k{i}") for i, n in enumerate(chosen)]
    image: DeviceImage = make_image(named, OPENCL)
    program = device.load(image.text)
    ran: list[str] = []
    kernels = dict(module.kernels)
    for i, (name, f) in enumerate(zip(chosen, named, strict=True)):
        old = kernels[name]
        body = OnDevice(old.body, f, image.kernels[f"k{i}"], device, program, ran)
        kernels[name] = dataclasses.replace(old, body=body)
    for run in list(case.runs())[:1]:
        found = evaluate_entry(module.with_kernels(kernels), run.inputs)
        case.check(found, run.outputs)
    assert len(set(ran)) == len(chosen)


@pytest.mark.sample(1)
@pytest.mark.data
@pytest.mark.llvm
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize(
    ("id", "typical"),
    [
        ("micro_kws_fp32", ()),
        # The guess for a batch does not fit the memory that the file states.
        pytest.param("super_resolution", ("batch_size=1",), marks=pytest.mark.slow),
        pytest.param("ultraface_rfb320", (), marks=pytest.mark.slow),
    ],
)
def test_executables_split_by_predicted_time(device, id, typical, mode, tmp_path):
    """Saved and loaded again; the planner finds a device of those figures worth it for some of each."""
    case = model_case(id)
    path, board = tmp_path / "model.inlay", tmp_path / "as_said.toml"
    board.write_text(board_text("opencl").replace("detect = true", "detect = false"))
    options = {"board": str(board), "typical": typical, "cache": "none", "threads": 1}
    inlay.compile(case.model, **options).save(path)
    exe = inlay.load_executable(path, threads=2, mode=mode)
    bodies = [k.body for k in exe.program.kernels]
    assert any(isinstance(b, DeviceBody) for b in bodies)
    for run in case.runs():
        case.check(exe.run(run.inputs), run.outputs)
    assert exe.live_objects() == 0


@pytest.mark.slow
@pytest.mark.llvm
@pytest.mark.parametrize("schedule", ["items", "few"])
@pytest.mark.parametrize("seed", range(3000, 3006))
def test_drawn_graphs(device, seed, schedule, tmp_path):
    """Everything that the device can compute is on it; either family gives what the host gives."""
    case = draw_graph(seed)
    path, board = tmp_path / "graph.onnx", tmp_path / "board.toml"
    path.write_bytes(case.model.SerializeToString())
    parameters = f'detect = true\nparameters = {{ schedule = "{schedule}" }}'
    text = board_text("opencl").replace("detect = true", parameters)
    board.write_text(f'default = "cl0"\n{text}')
    host = inlay.compile(path, cache="none").run(case.inputs)
    exe = inlay.compile(path, board=str(board), placement="first", cache="none")
    assert any(isinstance(k.body, DeviceBody) for k in exe.program.kernels)
    found = exe.run(case.inputs)
    for name, expected in host.items():
        np.testing.assert_allclose(found[name], expected, rtol=2e-4, atol=1e-5)
