"""What a linked kernel says beside its code."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.bytecode.program import MOST_PIECES, ImageBody
from inlay.ir.parser import parse_module
from inlay.ops.table import table

pytestmark = pytest.mark.llvm


def pieces(rows: int, terms: int, columns: int) -> set[int]:
    """Return in how many pieces phases of a product of computed rows with weights are run."""
    x, w = f"Tensor[{rows}, {terms}, f32]", f"Tensor[{terms}, {columns}, f32]"
    text = f'fn main(x: {x}, w: {w}) -> Tensor[{rows}, {columns}, f32] {{\n  tanh(matmul(x, w))\n}}\nentry main("x", "w") -> ("y");\n'
    kernels = compilation(infer_types(parse_module(text, table()))).program.kernels
    bodies = [k.body for k in kernels if isinstance(k.body, ImageBody)]
    return {phase.pieces for body in bodies for phase in body.phases if phase.parallel}


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "expected"),
    [(1, 256, 1024, MOST_PIECES), (1, 256, 512, 8), (1, 64, 64, 1), (32, 256, 1024, 1), (1, 1024, 2048, 1)],
)
def test_few_rows_pass_their_weights_in_pieces(rows, terms, columns, expected):
    assert max(pieces(rows, terms, columns), default=1) == expected


def test_a_call_that_may_run_with_others_passes_them_in_pieces_too():
    weights = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
    text = (
        "fn main(x: Tensor[1, 256, f32]) -> Tensor[1, 512, f32] {\n"
        '  tanh(matmul(x, f32[256, 512](#"w")))\n}\nentry main("x") -> ("y");\n'
    )
    module = infer_types(parse_module(text, table(), resources={"w": weights}))
    alone, together = sorted(compilation(module, batch=True).program.kernels, key=lambda k: k.batch is None)
    assert together.name.endswith(".batch")
    assert isinstance(alone.body, ImageBody)
    assert max(p.pieces for p in alone.body.phases) == 8
