"""ONNX models whose control flow depends on data, for `dynamic.py`: loops, scans, caches that grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(bool): TensorProto.BOOL,
}


def _value(name: str, dims: Sequence[int | str] | None, dtype: type = np.float32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _TYPES[np.dtype(dtype)], dims)


def _constant(name: str, array: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def loop_scan(width: int = 16) -> onnx.ModelProto:
    """A recurrence of five small operations written as a Loop that stacks a row in every turn.

    h' = tanh(h * a + x[i]); y[i] = h' * b. Inputs `n` (int64), `x` [n, width], `h` [width].
    """
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "i"], ["row"], axis=0),
            helper.make_node("Mul", ["h", "a"], ["scaled"]),
            helper.make_node("Add", ["scaled", "row"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["next"]),
            helper.make_node("Mul", ["next", "b"], ["y"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "turn",
        [_value("i", [], np.int64), _value("go", [], bool), _value("h", [width])],
        [_value("on", [], bool), _value("next", [width]), _value("y", [width])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "go_in", "h_in"], ["h_out", "ys"], body=body)],
        "loop_scan",
        [_value("n", [], np.int64), _value("x", ["t", width]), _value("h_in", [width])],
        [_value("h_out", [width]), _value("ys", ["n_1", width])],
        [
            _constant("go_in", np.ones((), bool)),
            _constant("a", np.linspace(0.1, 0.9, width, dtype=np.float32)),
            _constant("b", np.linspace(-1, 1, width, dtype=np.float32)),
        ],
    )
    return _model(graph)


def scan(width: int = 16) -> onnx.ModelProto:
    """The same recurrence as a Scan. Inputs `x` [t, width], `h_in` [width]."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["h", "a"], ["scaled"]),
            helper.make_node("Add", ["scaled", "row"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["next"]),
            helper.make_node("Mul", ["next", "b"], ["y"]),
        ],
        "turn",
        [_value("h", [width]), _value("row", [width])],
        [_value("next", [width]), _value("y", [width])],
    )
    graph = helper.make_graph(
        [helper.make_node("Scan", ["h_in", "x"], ["h_out", "ys"], body=body, num_scan_inputs=1)],
        "scan",
        [_value("x", ["t", width]), _value("h_in", [width])],
        [_value("h_out", [width]), _value("ys", ["t", width])],
        [
            _constant("a", np.linspace(0.1, 0.9, width, dtype=np.float32)),
            _constant("b", np.linspace(-1, 1, width, dtype=np.float32)),
        ],
    )
    return _model(graph)


def lstm_scan(inputs: int = 32, hidden: int = 64) -> onnx.ModelProto:
    """An LSTM cell written out, in a Scan. Inputs `x` [t, 1, inputs], `h_in`, `c_in` [1, hidden]."""
    rng = np.random.default_rng(5)
    weights = (0.3 * rng.standard_normal((inputs + hidden, 4 * hidden))).astype(np.float32)
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["row", "h"], ["both"], axis=1),
            helper.make_node("Gemm", ["both", "w", "bias"], ["gates"]),
            helper.make_node("Split", ["gates"], ["i_", "f_", "g_", "o_"], axis=1),
            helper.make_node("Sigmoid", ["i_"], ["i"]),
            helper.make_node("Sigmoid", ["f_"], ["f"]),
            helper.make_node("Tanh", ["g_"], ["g"]),
            helper.make_node("Sigmoid", ["o_"], ["o"]),
            helper.make_node("Mul", ["f", "c"], ["kept"]),
            helper.make_node("Mul", ["i", "g"], ["added"]),
            helper.make_node("Add", ["kept", "added"], ["c_next"]),
            helper.make_node("Tanh", ["c_next"], ["shown"]),
            helper.make_node("Mul", ["o", "shown"], ["h_next"]),
            helper.make_node("Identity", ["h_next"], ["y"]),
        ],
        "cell",
        [_value("h", [1, hidden]), _value("c", [1, hidden]), _value("row", [1, inputs])],
        [_value("h_next", [1, hidden]), _value("c_next", [1, hidden]), _value("y", [1, hidden])],
    )
    graph = helper.make_graph(
        [helper.make_node("Scan", ["h_in", "c_in", "x"], ["h", "c", "ys"], body=body, num_scan_inputs=1)],
        "lstm_scan",
        [_value("x", ["t", 1, inputs]), _value("h_in", [1, hidden]), _value("c_in", [1, hidden])],
        [_value("h", [1, hidden]), _value("c", [1, hidden]), _value("ys", ["t", 1, hidden])],
        [_constant("w", weights), _constant("bias", rng.standard_normal(4 * hidden).astype(np.float32))],
    )
    return _model(graph)


def growing_cache(width: int = 32) -> onnx.ModelProto:
    """Attention of one query over a cache that each turn makes longer by Concat.

    Inputs `n` (int64), `q` [1, width]. The cache begins empty.
    """
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["past", "query"], ["present"], axis=0),
            helper.make_node("MatMul", ["present", "column"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["weights"], axis=0),
            helper.make_node("Mul", ["present", "weights"], ["weighted"]),
            helper.make_node("ReduceSum", ["weighted", "axes"], ["next"], keepdims=1),
            helper.make_node("Reshape", ["next", "as_column"], ["column_next"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "turn",
        [
            _value("i", [], np.int64),
            _value("go", [], bool),
            _value("past", ["p", width]),
            _value("query", [1, width]),
            _value("column", [width, 1]),
        ],
        [
            _value("on", [], bool),
            _value("present", ["p1", width]),
            _value("next", [1, width]),
            _value("column_next", [width, 1]),
        ],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["q", "as_column"], ["column_in"]),
            helper.make_node(
                "Loop", ["n", "go_in", "empty", "q", "column_in"], ["cache", "out", "last"], body=body
            ),
        ],
        "growing_cache",
        [_value("n", [], np.int64), _value("q", [1, width])],
        [_value("cache", ["t", width]), _value("out", [1, width])],
        [
            _constant("go_in", np.ones((), bool)),
            _constant("empty", np.zeros((0, width), np.float32)),
            _constant("axes", np.array([0])),
            _constant("as_column", np.array([width, 1])),
        ],
    )
    return _model(graph)


def written_cache(length: int, width: int = 32) -> onnx.ModelProto:
    """A cache [length, width] made before the loop, one row of which each turn writes by ScatterND.

    Inputs `n` (int64), `q` [1, width]. Only the row that was written is read in a turn.
    """
    body = helper.make_graph(
        [
            helper.make_node("Reshape", ["i", "one_one"], ["at"]),
            helper.make_node("ScatterND", ["past", "at", "query"], ["present"]),
            helper.make_node("Tanh", ["query"], ["bent"]),
            helper.make_node("Add", ["bent", "q"], ["next"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "turn",
        [
            _value("i", [], np.int64),
            _value("go", [], bool),
            _value("past", [length, width]),
            _value("query", [1, width]),
        ],
        [_value("on", [], bool), _value("present", [length, width]), _value("next", [1, width])],
    )
    graph = helper.make_graph(
        [
            helper.make_node(
                "ConstantOfShape",
                ["shape"],
                ["zeros"],
                value=numpy_helper.from_array(np.zeros(1, np.float32)),
            ),
            helper.make_node("Loop", ["n", "go_in", "zeros", "q"], ["cache", "out"], body=body),
        ],
        "written_cache",
        [_value("n", [], np.int64), _value("q", [1, width])],
        [_value("cache", [length, width]), _value("out", [1, width])],
        [
            _constant("go_in", np.ones((), bool)),
            _constant("shape", np.array([length, width])),
            _constant("one_one", np.array([1, 1])),
        ],
    )
    return _model(graph)
