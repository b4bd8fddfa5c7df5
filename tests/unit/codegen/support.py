"""Compiling loop functions in text form, and comparing them with the evaluator."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from inlay.arith.expr import evaluate
from inlay.codegen.image import link
from inlay.codegen.llvm_generator import compile_function
from inlay.codegen.phases import phases_of
from inlay.interp.loop import run
from inlay.loop.func import LoopFunction
from inlay.loop.parser import parse_function
from inlay.loop.verify import verify
from inlay.machine.target import Target, host
from tests.mapped_image import MappedImage


@functools.cache
def parsed(text: str) -> LoopFunction:
    function = parse_function(text)
    assert verify(function) == ()
    return function


def run_native(
    f: LoopFunction,
    inputs: Sequence[np.ndarray],
    dims: Mapping[str, int] | None = None,
    parts: int = 1,
    target: Target | None = None,
) -> tuple[np.ndarray, ...]:
    """Run compiled code; outputs and workspaces start as bytes that stand out."""
    unit = compile_function(f, target or host())
    mapped = MappedImage(link([("f", unit.data)]))
    env = {d: (dims or {})[d.name] for d in f.dims}
    outputs = []
    for b in f.params[f.n_reads :]:
        shape = tuple(evaluate(e, env) for e in b.shape)
        raw = np.full(int(np.prod(shape)) * b.dtype.itemsize, 0xAB, np.uint8)
        outputs.append(raw.view(b.dtype.numpy).reshape(shape))
    size = evaluate(unit.workspace.bytes, env) if unit.workspace else 0
    buffers = [np.ascontiguousarray(x) for x in inputs] + outputs
    if size:
        buffers.append(np.full(size * parts, 0xCD, np.uint8))
    for (symbol, parallel), _ in zip(unit.phases, phases_of(f), strict=True):
        for part in range(parts if parallel else 1):
            args = (buffers, list(env.values()), part, parts if parallel else 1)
            assert mapped.call(f"f.{symbol}", *args) == 0
    return tuple(outputs)


def check(
    text: str,
    inputs: Sequence[np.ndarray],
    dims: Mapping[str, int] | None = None,
    *,
    parts: int = 1,
    rtol: float = 0.0,
    atol: float = 0.0,
    target: Target | None = None,
) -> tuple[np.ndarray, ...]:
    """Compare compiled code with the evaluator; exact unless a tolerance is given."""
    f = parsed(text)
    expected = run(f, inputs, {d: (dims or {})[d.name] for d in f.dims})
    found = run_native(f, inputs, dims, parts, target)
    for a, b in zip(found, expected, strict=True):
        if a.dtype.name == "bfloat16":
            a, b = a.astype(np.float32), b.astype(np.float32)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    return found
