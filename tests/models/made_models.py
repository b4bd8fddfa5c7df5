"""Whole models that tests make: control flow and quantisation that no stored model has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.data import Case

BEAMS, WORDS, WIDTH, MOST = 3, 11, 8, 6


def beam_search() -> onnx.ModelProto:
    """Return a recurrent decoder with a beam: states are put in order anew in each turn, tokens grow.

    A turn reads rows of a table, takes the best of all beams by value and place, and ends early where
    the best beam says the last word.
    """
    rng = np.random.default_rng(3)

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32) * 0.7

    fixed = {
        "table": weights(WORDS, WIDTH),
        "into": weights(WIDTH, WIDTH),
        "on": weights(WIDTH, WIDTH),
        "out": weights(WIDTH, WORDS),
        "words": np.array(WORDS, np.int64),
        "beams": np.array([BEAMS], np.int64),
        "all": np.array([-1], np.int64),
        "column": np.array([BEAMS, 1], np.int64),
        "end": np.array(0, np.int64),
        "zero": np.array(0, np.int64),
        "first": np.zeros((BEAMS, 1), np.int64) + 1,
        "scores": np.array([[0.0], [-1e3], [-1e3]], np.float32),
        "most": np.array(MOST, np.int64),
    }
    node = helper.make_node
    turn = [
        node("Slice", ["tokens_in", "all", "past", "one_axis"], ["last_column"]),
        node("Reshape", ["last_column", "all"], ["last"]),
        node("Gather", ["table", "last"], ["word"]),
        node("MatMul", ["word", "into"], ["from_word"]),
        node("MatMul", ["state_in", "on"], ["from_state"]),
        node("Add", ["from_word", "from_state"], ["sum"]),
        node("Tanh", ["sum"], ["state"]),
        node("MatMul", ["state", "out"], ["logits"]),
        node("LogSoftmax", ["logits"], ["each"], axis=-1),
        node("Add", ["each", "scores_in"], ["together"]),
        node("Reshape", ["together", "all"], ["flat"]),
        node("TopK", ["flat", "beams"], ["best", "at"], axis=-1),
        node("Div", ["at", "words"], ["beam"]),
        node("Mod", ["at", "words"], ["token"]),
        node("Gather", ["state", "beam"], ["state_out"]),
        node("Gather", ["tokens_in", "beam"], ["kept"]),
        node("Reshape", ["token", "column"], ["new"]),
        node("Concat", ["kept", "new"], ["tokens_out"], axis=1),
        node("Reshape", ["best", "column"], ["scores_out"]),
        node("Gather", ["token", "zero"], ["leader"]),
        node("Equal", ["leader", "end"], ["ended"]),
        node("Not", ["ended"], ["go_out"]),
    ]
    fixed |= {"past": np.array([2**31], np.int64), "one_axis": np.array([1], np.int64)}

    def info(name: str, kind: int, shape: list[int | str | None] | None):
        return helper.make_tensor_value_info(name, kind, shape)

    i64, f32, flag = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
    carried = [("state", f32, [BEAMS, WIDTH]), ("tokens", i64, [BEAMS, None]), ("scores", f32, [BEAMS, 1])]
    body = helper.make_graph(
        turn,
        "turn",
        [info("turn", i64, []), info("go_in", flag, []), *(info(f"{n}_in", k, s) for n, k, s in carried)],
        [
            info("go_out", flag, []),
            *(info(f"{n}_out", k, s) for n, k, s in carried),
            info("best", f32, [BEAMS]),
        ],
    )
    names = ["last_state", "tokens", "total", "history"]
    start = node("Tanh", ["x"], ["start"])
    loop = node("Loop", ["most", "", "start", "first", "scores"], names, body=body)
    graph = helper.make_graph(
        [start, loop],
        "beam_search",
        [info("x", f32, [BEAMS, WIDTH])],
        [info("tokens", i64, None), info("total", f32, None), info("history", f32, None)],
        [numpy_helper.from_array(v, n) for n, v in fixed.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def made_case(name: str, model: onnx.ModelProto, folder: Path, count: int = 2) -> Case:
    """Store a model with drawn inputs; dims that are no numbers are 5."""
    onnx.save(model, folder / f"{name}.onnx")
    rng = np.random.default_rng(5)
    arrays: dict[str, np.ndarray] = {}
    for run in range(count):
        for info in model.graph.input:
            shape = [d.dim_value or 5 for d in info.type.tensor_type.shape.dim]
            arrays[f"run{run}/in/{info.name}"] = rng.standard_normal(shape).astype(np.float32)
    np.savez(folder / f"{name}.npz", **arrays)
    return Case(name, "onnx", folder / f"{name}.onnx", folder / f"{name}.npz", 1e-5, 1e-5, (), {})
