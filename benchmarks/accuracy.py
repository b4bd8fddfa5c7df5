"""Errors of the networks of `networks.py` against the same networks in f64.

    python benchmarks/accuracy.py [--only NAME ...] [--asked ERROR ...] [--threads N]

The reference is ONNX's own evaluator, in NumPy, of the model with each float32 made a float64. An error is
the largest of an output over that output's largest element, infinite where integers (words that were chosen)
are others. Columns are what `--accuracy` is: at 2e-5 no product has Winograd's form, from 1e-4, the default,
3 x 3 have F(2, 3), and from 2e-4 F(4, 3). Ends with 1 where an error is larger than what was asked.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

import inlay
import peers
from measure import difference
from network_cases import CASES, Arrays, Case

USUAL = (
    "resnet50 mobilenet_v2 mobilenet_v3 efficientnet_b0 shufflenet_v2 ssd unet yolo densenet squeezenet "
    "vit_small bert_128 minilm_128 bert_dyn@2x77 gpt2_step greedy_32 lstm mlp softmax layernorm eltchain "
    "normmix gemm_1024"
).split()


def widen(graph: GraphProto) -> None:
    """Make each float32 in a graph and what it holds a float64."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type
        if kind.elem_type == TensorProto.FLOAT:
            kind.elem_type = TensorProto.DOUBLE
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                widen(attribute.g)
            elif attribute.type == AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        wide = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))


def reference(model: onnx.ModelProto, inputs: Arrays) -> list[np.ndarray]:
    """Return the outputs of a model in f64, as lines: what a Loop stacks has other axes here than in ONNX.

    The model is changed.
    """
    widen(model.graph)
    given = {k: x.astype(np.float64) if x.dtype == np.float32 else x for k, x in inputs.items()}
    return lines(ReferenceEvaluator(model).run(None, given))


def lines(outputs: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Return the elements of outputs, without their axes."""
    return [np.reshape(y, -1) for y in outputs]


def errors(case: Case, given: argparse.Namespace) -> tuple[list[float], str]:
    """Return our errors, one for each accuracy that is asked, and that of onnxruntime."""
    model, inputs = case.make(), case.inputs()
    found = list[float]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        expected = reference(model, inputs)
        for asked in given.asked:
            executable = inlay.compile(path, threads=given.threads, cache="none", accuracy=asked)
            found.append(difference(lines(executable.run(inputs).values()), expected))
        call = peers.onnxruntime(path, inputs, given.threads)
        theirs = call if isinstance(call, str) else f"{difference(lines(call()), expected):.1e}"
    return found, theirs


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", default=USUAL)
    parser.add_argument("--asked", nargs="+", type=float, default=[2e-5, 1e-4, 2e-4])
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    columns = ["network", *(f"{x:.0e}" for x in given.asked), "onnxruntime"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    wrong = 0
    for case in CASES:
        if case.name in given.only:
            ours, theirs = errors(case, given)
            print("| " + " | ".join([case.name, *(f"{x:.1e}" for x in ours), theirs]) + " |", flush=True)
            wrong += sum(x > asked for x, asked in zip(ours, given.asked, strict=True))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
