"""Compiling loop functions in text form, and comparing them with the evaluator."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from unittest.mock import patch

import numpy as np

from inlay.arith.expr import Sym, evaluate
from inlay.codegen import llvm_generator
from inlay.codegen.image import link
from inlay.codegen.llvm_compile import compile_text
from inlay.codegen.llvm_generator import compile_function
from inlay.codegen.phases import phases_of
from inlay.codegen.unit import Unit
from inlay.interp.loop import run
from inlay.loop.func import LoopFunction
from inlay.loop.parser import parse_function
from inlay.loop.verify import verify
from inlay.machine.target import Target, host
from tests.emulated_image import EmulatedImage
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
    """Compile for a target, this machine by default, and run."""
    env = {d: (dims or {})[d.name] for d in f.dims}
    return run_unit(f, unit_for(f, target or host()), inputs, env, parts)


def with_features(base: Target, *more: str) -> Target:
    """Return a target that has more features."""
    return replace(base, features=tuple(sorted({*base.features, *more})))


def unit_for(f: LoopFunction, target: Target) -> Unit:
    """Compile, in this process for other machines too, where a fault of LLVM would end the tests."""
    with patch.object(llvm_generator, "make_object", compile_text):
        return compile_function(f, target)


def run_unit(
    f: LoopFunction,
    unit: Unit,
    inputs: Sequence[np.ndarray],
    env: Mapping[Sym, int],
    parts: int = 1,
    updates: Sequence[int | None] = (),
) -> tuple[np.ndarray, ...]:
    """Run compiled code, emulated where it is for Arm.

    Outputs and workspaces start as bytes that stand out, or as the input that `updates` says an output changes.
    """
    image = link([("f", unit.data)])
    mapped = MappedImage(image) if image.arch == host().arch else EmulatedImage(image)
    outputs = []
    for b in f.params[f.n_reads :]:
        shape = tuple(evaluate(e, env) for e in b.shape)
        raw = np.full(int(np.prod(shape)) * b.dtype.itemsize, 0xAB, np.uint8)
        outputs.append(raw.view(b.dtype.numpy).reshape(shape))
    for output, changed in zip(outputs, updates, strict=False):
        if changed is not None:
            output[...] = inputs[changed].reshape(output.shape)
    size = evaluate(unit.workspace.bytes, env) if unit.workspace else 0
    buffers = [np.ascontiguousarray(x) for x in inputs] + outputs
    if size:
        buffers.append(np.full(size * parts, 0xCD, np.uint8))
    for (symbol, parallel), _ in zip(unit.phases, phases_of(f), strict=True):
        for part in range(parts if parallel else 1):
            args = (buffers, [env[d] for d in f.dims], part, parts if parallel else 1)
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
