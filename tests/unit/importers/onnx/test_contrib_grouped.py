"""Attention of decoders, against onnxruntime, over sizes that are not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import inlay
from inlay.base.diagnostics import CompileError, RunError
from tests.unit.importers.onnx.models import load, model, run, value

RNG = np.random.default_rng(7)
B, N, K, H = 2, 6, 2, 16
PLACES = 40


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def inputs(steps: int, before: int, *, packed: bool = False, batch: int = B) -> dict[str, np.ndarray]:
    """Return queries, keys, values and a cache."""
    own = {"q": real(batch, steps, N * H), "k": real(batch, steps, K * H), "v": real(batch, steps, K * H)}
    if packed:
        own = {"q": real(batch, steps, (N + 2 * K) * H)}
    return {
        **own,
        "past_k": real(batch, K, before, H),
        "past_v": real(batch, K, before, H),
        "ends": np.full(batch, before + steps - 1, np.int32),
        "total": np.array(before + steps, np.int32),
    }


NAMES = ("q", "k", "v", "past_k", "past_v", "ends", "total", "cos", "sin", "places", "bias")
TURNED = {"do_rotary": 1}
CASES: dict[str, tuple[dict[str, np.ndarray], dict[str, Any]]] = {
    "text": (inputs(5, 0), {}),
    "step": (inputs(1, 9), {}),
    "several": (inputs(3, 70, batch=1), {"scale": 0.2}),
    "packed": (inputs(1, 6, packed=True), {}),
    "turned": (inputs(4, 0), TURNED),
    "turned step": (inputs(1, 11), TURNED),
    "turned pairs": (inputs(1, 3), {**TURNED, "rotary_interleaved": 1}),
    "turned packed": (inputs(4, 0, packed=True), TURNED),
    "window": (inputs(7, 0), {"local_window_size": 3}),
    "window step": (inputs(1, 9), {"local_window_size": 4}),
    "cap": (inputs(1, 9), {"softcap": 2.0}),
    "bias": ({**inputs(1, 9), "bias": real(B, N, 1, 10)}, {}),
    "one bias": ({**inputs(3, 4, batch=1), "bias": real(1, 1, 3, 7)}, {}),
}


def made(case: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the model of a case and its inputs."""
    given, attrs = CASES[case]
    fixed = {n: real(PLACES, H // 2) for n in ("cos", "sin")} if attrs.get("do_rotary") else {}
    last = max(i for i, n in enumerate(NAMES) if n in given or n in fixed)
    names = [n if n in given or n in fixed else "" for n in NAMES[: last + 1]]
    outputs = ["y", "present_k", "present_v"]
    node = helper.make_node(
        "GroupQueryAttention", names, outputs, domain="com.microsoft", num_heads=N, kv_num_heads=K, **attrs
    )
    dims: dict[tuple[str, int], str] = {(n, 0): "batch" for n in ("q", "k", "v", "past_k", "past_v", "ends")}
    dims |= {(n, 1): "steps" for n in "qkv"} | {(n, 2): "past" for n in ("past_k", "past_v")}
    declared = [
        value(
            n, [dims.get((n, i), d) for i, d in enumerate(a.shape)], helper.np_dtype_to_tensor_dtype(a.dtype)
        )
        for n, a in given.items()
    ]
    ends = [helper.make_empty_tensor_value_info(n) for n in outputs]
    m = model([node], declared, ends, fixed, ir_version=9)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return m, given


def reference(m: Any, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, given
    )


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", CASES)
def test_as_onnxruntime(case: str) -> None:
    m, given = made(case)
    for got, want in zip(run(load(m), given).values(), reference(m, given), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.llvm
@pytest.mark.sample(1)
@pytest.mark.parametrize("case", ["text", "step"])
def test_compiled(case: str) -> None:
    m, given = made(case)
    found = inlay.compile(load(m), cache="none").run(given)
    for got, want in zip(found.values(), reference(m, given), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_text_may_end_early() -> None:
    m, given = made("turned")
    given = {**given, "ends": np.array([3, 1], np.int32)}
    found, want = run(load(m), given), reference(m, given)
    for row, end in enumerate((4, 2)):
        np.testing.assert_allclose(found["y"][row, :end], want[0][row, :end], atol=1e-5)


def test_a_window_of_no_keys_is_refused() -> None:
    m, _ = made("step")
    m.graph.node[0].attribute.append(helper.make_attribute("local_window_size", 0))
    with pytest.raises(CompileError, match="window of 0 keys"):
        load(m)


def test_caches_of_several_lengths_are_refused() -> None:
    m, given = made("step")
    with pytest.raises(RunError, match="missing in a sequence"):
        run(load(m), {**given, "ends": np.array([9, 8], np.int32)})
    with pytest.raises(RunError, match="neither before nor here"):
        run(load(m), {**given, "total": np.array(9, np.int32)})
