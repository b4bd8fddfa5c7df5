"""Results over operands and scratch memory over what is read no more, in networks that are run.

Networks are drawn, compiled with both plans, and run in all modes under the race detector, after a call
whose values are all NaN: those stay in blocks, so that what is read before it was written shows. Numbers are
small integers, and sums exact in any order.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.interp.tensor import evaluate
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.boards import PARTED
from tests.examples import examples

pytestmark = pytest.mark.llvm

RUNS = (
    Settings(threads=1, mode="sequential", races=True),
    Settings(threads=2, mode="parallel", races=True),
    Settings(threads=2, mode="replay", races=True, seed=3),
)


@st.composite
def networks(draw) -> tuple[str, list[tuple[int, ...]]]:
    """Return a program over pictures, and the shapes of its inputs: one picture, then weights."""
    side, lines = draw(st.integers(3, 9)), list[str]()
    shapes: list[tuple[int, ...]] = [(1, draw(st.sampled_from((4, 8, 16))), side, side)]
    values: list[tuple[str, int]] = [("x", shapes[0][1])]

    def weight(*shape: int) -> str:
        shapes.append(shape)
        return f"w{len(shapes) - 1}"

    for k in range(draw(st.integers(3, 7))):
        name, channels = draw(st.sampled_from(values[-3:]))
        kind = draw(st.sampled_from(("wide", "deep", "point", "add", "tanh", "pool", "turn", "join")))
        alike = [n for n, c in values if c == channels and n != name]
        if kind == "wide":
            text = f"conv{{pads=[1, 1, 1, 1]}}({name}, {weight(channels, channels, 3, 3)})"
        elif kind == "deep":
            w = weight(channels, 1, 3, 3)
            text = f"conv{{pads=[1, 1, 1, 1], groups={channels}}}({name}, {w})"
        elif kind == "point":
            other = draw(st.sampled_from((4, 8, 16)))
            text = f"conv({name}, {weight(other, channels, 1, 1)})"
            channels = other
        elif kind == "add":
            text = f"add({name}, {draw(st.sampled_from(alike)) if alike else name})"
        elif kind == "pool":
            text = f"max_pool{{kernel=[3, 3], pads=[1, 1, 1, 1]}}({name})"
        elif kind == "turn":
            text = f"transpose{{perm=[0, 1, 3, 2]}}({name})"
        elif kind == "join":
            other, more = draw(st.sampled_from(values[-3:]))
            text, channels = f"concat{{axis=1}}({name}, {other})", channels + more
        else:
            text = f"neg({name})"
        lines.append(f"  let v{k} = clip{{low=-4.0, high=4.0}}({text});")
        values.append((f"v{k}", channels))
    params = ", ".join(
        f"{'w' if i else 'x'}{i or ''}: Tensor[{', '.join(map(str, s))}, f32]" for i, s in enumerate(shapes)
    )
    names = ", ".join(f'"{"w" if i else "x"}{i or ""}"' for i in range(len(shapes)))
    body = "\n".join(lines)
    text = f'fn main({params}) {{\n{body}\n  {values[-1][0]}\n}}\nentry main({names}) -> ("y");\n'
    return text, shapes


@settings(max_examples=examples(3))
@given(networks(), st.integers(0, 99))
def test_sharing_bytes_changes_nothing(network: tuple[str, list[tuple[int, ...]]], seed: int):
    text, shapes = network
    random = np.random.default_rng(seed)
    arrays = [random.integers(-2, 3, s).astype(np.float32) for s in shapes]
    module = infer_types(parse_module(text, table()))
    expected = np.asarray(evaluate(module, arrays))
    for plan in ("serial", "parallel"):
        program = compilation(module, board=PARTED, plan=plan, cache="none", threads=2).program
        for run in RUNS:
            exe = executable_of(program, settings=run)
            exe(*(np.full(s, np.nan, np.float32) for s in shapes))
            for _ in range(2):
                np.testing.assert_array_equal(exe(*arrays), expected, err_msg=f"{plan}, {run.mode}\n{text}")
