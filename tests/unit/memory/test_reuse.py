"""Reuse edges: the kernels that share bytes and that no data orders; the runtime waits for no others."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.analysis.blocks import spine
from inlay.analysis.infer_types import infer_types
from inlay.ir.expr import Call, OpRef
from inlay.ir.parser import parse_module
from inlay.memory.plan import FunctionPlan, Sharing
from inlay.memory.reuse import find_reuse
from inlay.ops.memory import INVOKE
from inlay.ops.table import table
from inlay.runtime.native import MODES, Settings
from inlay.runtime.session import executable_of
from inlay.runtime.trace import EventKind
from tests.python_kernels import callbacks_of, compile_with_python_kernels

SIZE = 4

Steps = list[tuple[int, int]]
"""For each product, which earlier ones it multiplies; -1 is the input."""


@st.composite
def graphs(draw) -> Steps:
    return [
        (draw(st.integers(-1, k - 1)), draw(st.integers(max(-1, k - 4), k - 1)))
        for k in range(draw(st.integers(2, 14)))
    ]


def text_of(steps: Steps) -> str:
    def name(k: int) -> str:
        return "x" if k < 0 else f"t{k}"

    square = f"Tensor[{SIZE}, {SIZE}, f32]"
    lets = "\n".join(f"  let t{k} = matmul({name(a)}, {name(b)});" for k, (a, b) in enumerate(steps))
    used = {k for step in steps for k in step}
    ends = [k for k in range(len(steps)) if k not in used]
    total = f"t{ends[0]}"
    for k in ends[1:]:
        lets += f"\n  let s{k} = matmul({total}, t{k});"
        total = f"s{k}"
    return f'fn main(x: {square}) -> {square} {{\n{lets}\n  {total}\n}}\nentry main("x") -> ("y");'


def recomputed(steps: Steps, plan: FunctionPlan) -> set[tuple[int, int]]:
    """Return the pairs by comparing everything with everything, from the text and the offsets alone."""
    used = {k for step in steps for k in step}
    ends = [k for k in range(len(steps)) if k not in used]
    reads: list[set[str]] = [{f"t{k}" for k in step if k >= 0} for step in steps]
    writes = [f"t{k}" for k in range(len(steps))]
    total = f"t{ends[0]}"
    for k in ends[1:]:
        reads.append({total, f"t{k}"})
        total = f"s{k}"
        writes.append(total)
    before: list[set[int]] = []
    for mine in reads:
        direct = {writes.index(r) for r in mine}
        before.append(direct.union(*(before[i] for i in direct)))
    places = {
        n: (m.offset.value, m.offset.value + m.bytes.value)
        for part in plan.parts
        for m in part.members
        for n in m.names
    }
    found: set[tuple[int, int]] = set()
    for j in range(len(writes)):
        for i in range(j):
            for a in {writes[i], *reads[i]} & places.keys():
                for b in {writes[j], *reads[j]} & places.keys():
                    overlap = a != b and places[a][0] < places[b][1] and places[b][0] < places[a][1]
                    if overlap and (a == writes[i] or b == writes[j]) and i not in before[j]:
                        found.add((i + 1, j + 1))
    return found


@settings(max_examples=25)
@given(graphs(), st.sampled_from(list(Sharing)))
def test_edges_are_the_pairs_that_share_bytes_and_that_data_does_not_order(steps: Steps, sharing: Sharing):
    text, plans = text_of(steps), list[FunctionPlan]()
    module = infer_types(parse_module(text, table()))
    program, planned = compile_with_python_kernels(module, sharing=sharing, plans=plans)
    reuse = find_reuse(planned, "main", lambda size: size.value)
    assert reuse is not None
    assert set(reuse.edges) == recomputed(steps, plans[-1]), text
    x = np.eye(SIZE, dtype=np.float32)
    results = []
    for mode in MODES:
        chosen = Settings(mode=mode, threads=2, hand_off_ns=0, races=True, trace=True, seed=len(steps))
        exe = executable_of(program, settings=chosen, callbacks=callbacks_of(planned))
        results.append(exe(x).tobytes())
        assert_waits_are_edges(exe.events(), reuse.edges, planned, text)
    assert len(set(results)) == 1


def assert_waits_are_edges(events, edges, planned, text) -> None:
    """Check that what the runtime waited for is data or a reuse edge, and nothing else."""
    first = min(e.number for e in events if e.kind is EventKind.RUN)
    needs = [(e.other - first + 1, e.number - first + 1) for e in events if e.kind is EventKind.NEEDS]
    by_data = reads_of(planned)
    for pair in needs:
        assert pair in edges or pair in by_data, f"{pair} of\n{text}"


def reads_of(planned) -> set[tuple[int, int]]:
    """Return the pairs of kernels of which the second needs the first, through others too."""
    lets, _ = spine(planned.functions["main"].body)
    calls = [v for let in lets if isinstance(v := let.value, Call)]
    invokes = [v for v in calls if isinstance(v.callee, OpRef) and v.callee.op is INVOKE]
    written = [v.args[-2] for v in invokes]
    found: set[tuple[int, int]] = set()
    for j, v in enumerate(invokes, 1):
        direct = {i for i, w in enumerate(written, 1) if any(a is w for a in v.args[1:-2])}
        found |= {(i, j) for i in direct} | {(a, j) for a, b in found if b in direct}
    return found


# Wide and narrow in turns, so that no result has the size of its operand and is written over it.
HALVES = """
fn main(x: Tensor[8, 8, f32], y: Tensor[8, 8, f32], v: Tensor[8, 32, f32], w: Tensor[32, 8, f32])
    -> Tensor[8, 8, f32] {
  let a1 = matmul(x, v);   let b1 = matmul(y, v);
  let a2 = matmul(a1, w);  let b2 = matmul(b1, w);
  let a3 = matmul(a2, v);  let b3 = matmul(b2, v);
  let a4 = matmul(a3, w);  let b4 = matmul(b3, w);
  matmul(a4, b4)
}
entry main("x", "y", "v", "w") -> ("z");
"""


@pytest.mark.llvm
def test_serial_and_parallel_differ_in_peak_and_overlap_as_the_report_says():
    found = inlay.explain(io.StringIO(HALVES), view="memory", threads=1)
    serial, parallel = found.chosen, found.other
    assert (serial.sharing, parallel.sharing) == (Sharing.SERIAL, Sharing.PARALLEL)
    assert serial.peak < parallel.peak
    assert serial.reuse.edges
    assert not parallel.reuse.edges
    assert serial.reuse.overlap < parallel.reuse.overlap
    plans = found.to_json()["plans"]
    for planned in (serial, parallel):
        said = plans[str(planned.sharing)]
        exe = inlay.compile(io.StringIO(HALVES), threads=1, mode="sequential", plan=str(planned.sharing))
        exe(*(np.eye(*shape, dtype=np.float32) for shape in ((8, 8), (8, 8), (8, 32), (32, 8))))
        assert exe.usage().peak_bytes == said["peaks"]["host"]
        assert said["edges"] == len(planned.reuse.edges)
    assert found.to_json()["reuse"]["edges"] == [list(e) for e in serial.reuse.edges]
