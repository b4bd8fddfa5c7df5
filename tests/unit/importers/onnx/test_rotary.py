"""RotaryEmbedding: heads as an axis or side by side, all of their numbers or the first, given or tabled angles."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from inlay.base.diagnostics import CompileError
from tests.unit.importers.onnx.models import load, model, run, value

B, N, S, H = 2, 3, 5, 8
RNG = np.random.default_rng(5)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def turned(x: np.ndarray, angles: np.ndarray, places: np.ndarray | None, **attributes: int):
    """Return a model of one node, and its inputs."""
    inputs = {"x": x, "cos": np.cos(angles), "sin": np.sin(angles)}
    if places is not None:
        inputs["places"] = places
    node = helper.make_node("RotaryEmbedding", list(inputs), ["y"], **attributes)
    types = {"places": TensorProto.INT64}
    given = [value(n, a.shape, types.get(n, TensorProto.FLOAT)) for n, a in inputs.items()]
    return model([node], given, [value("y", x.shape)], opset=23), inputs


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("count", [H, H // 2], ids=["all", "first"])
@pytest.mark.parametrize("tabled", [False, True], ids=["given", "tables"])
@pytest.mark.parametrize("flat", [False, True], ids=["heads", "flat"])
def test_it_is_what_the_specification_says(*, flat: bool, tabled: bool, count: int, interleaved: int) -> None:
    x = real(B, S, N * H) if flat else real(B, N, S, H)
    attributes = {"interleaved": interleaved}
    if flat:
        attributes["num_heads"] = N
    if count != H:
        attributes["rotary_embedding_dim"] = count
    places = RNG.integers(0, 9, (B, S)) if tabled else None
    m, inputs = turned(x, real(9, count // 2) if tabled else real(B, S, count // 2), places, **attributes)
    [want] = ReferenceEvaluator(m).run(None, inputs)
    np.testing.assert_allclose(run(m, inputs)["y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "angles", "attributes", "message"),
    [
        ((B, S, N * H), (B, S, H // 2), {}, "has 0 heads for 24 numbers"),
        ((B, S, N * H), (B, S, H // 2), {"num_heads": 5}, "has 5 heads for 24 numbers"),
        ((B, S, N * H), (B, S, H // 2), {"num_heads": 2}, "turns 12 numbers by angles for 8"),
        ((B, N, S, H), (B, S, H // 2), {"rotary_embedding_dim": 4}, "turns 4 numbers by angles for 8"),
        ((B, N, S, H), (B, S, H // 2), {"num_heads": -1}, "num_heads = -1, needed at least 0"),
        ((B, N, S, H), (B, S, H // 2), {"num_heads": 2}, "num_heads = 2 and 3 heads"),
        ((B, N, S, H), (9, H // 2), {}, "angles of rank 2, needed 3"),
        ((S, H), (B, S, H // 2), {}, "input of rank 2, needed 3 or 4"),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_refused(
    shape: tuple[int, ...], angles: tuple[int, ...], attributes: dict[str, int], message: str
) -> None:
    m, _ = turned(real(*shape), real(*angles), None, **attributes)
    with pytest.raises(CompileError, match=message):
        load(m)
