"""Writes the corpus: small files of many kinds, right and wrong, that fuzzing starts from.

    python -m tests.fuzz.make_corpus

A file's name begins with what must happen when it is read: `ok-`, or `no-` for a refusal. Files that
are not written here are findings of the past; both are checked by `test_corpus.py`. Executables hold
no native code, so they are the same on every machine.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import onnx
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from inlay.bytecode import container, writer
from inlay.bytecode.program import HostBody, Program
from tests.fuzz.mutate_inlay import grown, resealed
from tests.unit.runtime.generate import Generator

FOLDER = Path(__file__).parent / "corpus"
N = helper.make_node


def vi(name: str, shape: list | None, elem: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem, shape)


def init(name: str, value: object) -> TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)


X, Y, C = vi("x", ["n", 4]), vi("y", None), vi("c", [], TensorProto.BOOL)


def model(
    nodes: list,
    inits: tuple = (),
    inputs: tuple = (X,),
    outputs: tuple = (Y,),
    opset: int = 17,
    **more: object,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, inits)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **more)


def stored(dims: list[int], elem: int = TensorProto.FLOAT, **entries: str) -> TensorProto:
    tensor = TensorProto(name="w", data_type=elem, dims=dims)
    if entries:
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in entries.items():
            tensor.external_data.add(key=key, value=text)
    return tensor


ADD_W = [N("Add", ["x", "w"], ["y"])]


def branch(depth: int) -> onnx.GraphProto:
    graph = leaf = helper.make_graph([N("Neg", ["x"], ["r"])], "leaf", [], [vi("r", None)])
    for _ in range(depth):
        node = N("If", ["c"], ["r"], then_branch=graph, else_branch=leaf)
        graph = helper.make_graph([node], "b", [], [vi("r", None)])
    return graph


def looped(*, nodes: list, go: str = "go") -> onnx.ModelProto:
    body = helper.make_graph(
        [N("Identity", [go], ["on"]), *nodes],
        "body",
        [vi("i", [], TensorProto.INT64), vi("go", [], TensorProto.BOOL), vi("v", None)],
        [vi("on", [], TensorProto.BOOL), vi("u", None)],
    )
    return model([N("Loop", ["m", "", "x"], ["y"], body=body)], (init("m", np.int64(3)),))


def functions(*, recursive: bool) -> onnx.ModelProto:
    name = "f" if recursive else "g"
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    inner = N(name, ["a"], ["b"], domain="own") if recursive else N("Relu", ["a"], ["b"])
    f = helper.make_function("own", "f", ["a"], ["b"], [inner], opsets)
    return model([N("f", ["x"], ["y"], domain="own")], functions=[f])


def models() -> dict[str, onnx.ModelProto]:
    """Return the models by name."""
    relu = [N("Relu", ["x"], ["y"])]
    w = init("w", np.ones((4, 4), np.float32))
    scale, zero = init("s", np.float32(0.1)), init("z", np.uint8(3))
    quantised = [N("QuantizeLinear", ["x", "s", "z"], ["q"]), N("DequantizeLinear", ["q", "s", "z"], ["y"])]
    sequence = [N("SequenceConstruct", ["x", "x"], ["q"]), N("ConcatFromSequence", ["q"], ["y"], axis=0)]
    big = np.array([1 << 40], np.int64)
    made = {f"ok-relu-{v}": model(relu, opset=v) for v in (7, 9, 11, 13, 15, 17, 19, 21)}
    made |= {
        "ok-matmul": model([N("MatMul", ["x", "w"], ["y"])], (w,)),
        "ok-if": model(list(branch(3).node), inputs=(X, C), outputs=(vi("r", None),)),
        "ok-loop": looped(nodes=[N("Add", ["v", "v"], ["u"])]),
        "ok-function": functions(recursive=False),
        "ok-sequence": model(sequence),
        "ok-quantised": model(quantised, (scale, zero)),
        "ok-gather": model([N("Gather", ["x", "i"], ["y"])], (init("i", np.array([0, -1])),)),
        "ok-gather-outside": model([N("Gather", ["x", "i"], ["y"], axis=1)], (init("i", np.array([99])),)),
        "ok-shapes": model([N("Shape", ["x"], ["s"]), N("Reshape", ["x", "s"], ["y"])]),
        "ok-fill-2-40": model(
            [N("Expand", ["w", "b"], ["y"])], (init("w", np.float32([1])), init("b", big)), ()
        ),
        "ok-fold-doubling": model(
            [N("Concat", [f"c{i}"] * 2, [f"c{i + 1}"], axis=0) for i in range(24)]
            + [N("ReduceSum", ["c24"], ["y"], keepdims=0)],
            (init("c0", np.ones(9, np.float32)),),
            (),
        ),
        "ok-conv": model(
            [N("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
            (init("w", np.ones((2, 1, 3, 3), np.float32)),),
            (vi("x", [1, 1, "h", 5]),),
        ),
        "ok-lstm": model(
            [N("LSTM", ["x", "w", "r"], ["y"], hidden_size=2)],
            (init("w", np.ones((1, 8, 3), np.float32)), init("r", np.ones((1, 8, 2), np.float32))),
            (vi("x", ["t", 1, 3]),),
        ),
        "ok-shuffled": model([N("Neg", ["a"], ["y"]), N("Relu", ["x"], ["a"])]),
        "no-cycle": model([N("Add", ["x", "y"], ["a"]), N("Add", ["a", "x"], ["y"])]),
        "no-self-cycle": model([N("Add", ["x", "y"], ["y"])]),
        "no-twice": model([*relu, N("Neg", ["x"], ["y"])]),
        "no-input-twice": model(relu, inputs=(X, X)),
        "no-output-twice": model(relu, outputs=(Y, Y)),
        "no-unknown": model(
            [N("Nothing", ["x"], ["a"], domain="own"), N("Relu", ["a"], ["y"]), N("Neither", ["x"], ["z"])]
        ),
        "no-opset": model(relu, opset=10_000),
        "no-recursion": functions(recursive=True),
        "ok-nesting": model(list(branch(20).node), inputs=(X, C), outputs=(vi("r", None),)),
        "no-negative-dim": model(ADD_W, (stored([-1, 4]),)),
        "no-huge-dims": model(ADD_W, (stored([1 << 62, 1 << 62]),)),
        "no-large-empty": model(ADD_W, (stored([1 << 40]),)),
        "no-short-tensor": model(ADD_W, (stored([4, 4]),)),
        "no-element-type": model(ADD_W, (stored([4], 77),)),
        "no-rank": model(relu, inputs=(vi("x", [1] * 40),)),
        "no-input-dims": model(relu, inputs=(vi("x", [1 << 40, 1 << 40]),)),
        "no-outside-folder": model(ADD_W, (stored([4], location="../../etc/passwd"),)),
        "no-absolute": model(ADD_W, (stored([4], location="/etc/passwd"),)),
        "no-nul": model(ADD_W, (stored([4], location="a\0b"),)),
        "no-offset": model(ADD_W, (stored([4], location="d", offset="-9", length="1e9"),)),
        "no-pads": model([N("Pad", ["x", "p"], ["y"])], (init("p", np.full(4, 1 << 62)),)),
        "no-attribute": model([N("Softmax", ["x"], ["y"], axis="first")]),
        "no-loop-body": looped(nodes=[N("Add", ["v", "nowhere"], ["u"])]),
        "no-loop-cycle": looped(nodes=[N("Neg", ["v"], ["u"])], go="on"),
        "no-escape": model([N("\x1b[2J", ["x"], ["y"], name="a\nb")]),
    }
    made["no-large-empty"].graph.initializer[0].raw_data = b"\0" * 8
    sparse = model(ADD_W)
    sparse.graph.sparse_initializer.append(
        SparseTensorProto(values=init("w", np.ones(1, np.float32)), indices=init("i", [9]), dims=[4])
    )
    training = model(relu)
    training.training_info.add().algorithm.node.append(N("Bad", ["q"], ["z"]))
    return made | {"no-sparse": sparse, "ok-training": training}


def executables() -> dict[str, bytes]:
    """Return executables by name: some right, and each section forged in its own way."""
    made = {f"ok-generated-{s}": writer.to_bytes(Generator(s).program_of()) for s in range(6)}
    made |= {f"ok-grown-{s}": writer.to_bytes(grown(Random(s))) for s in range(10)}
    base = made["ok-generated-3"]
    for name, section in container.Container(base).sections.items():
        if section.size < 4:
            continue
        for what, word in (("count", 0xFFFFFFFF), ("large", 0x7FFFFFFF)):
            data = bytearray(base)
            struct.pack_into("<I", data, section.offset, word)
            # Bytes of constants may be any; the first word of a pool may be any integer.
            kind = "ok" if name in ("CDAT", "POOL") else "no"
            made[f"{kind}-{name.lower()}-{what}"] = resealed(data)
    made["ok-host-names"] = _with_other_names(Generator(3).program_of())
    made["no-digest"] = base[:-1] + bytes([base[-1] ^ 1])
    made["no-cut"] = base[:-100]
    made["no-version"] = base[:8] + b"\xff" + base[9:]
    made["no-magic"] = b"\0" + base[1:]
    return made


def _with_other_names(program: Program) -> bytes:
    """Return an executable whose kernels ask the host for functions by names of their own."""
    kernels = [
        replace(k, body=HostBody("fillcomb" if k.body.name == "fill" else "ine"))
        for k in program.kernels
        if isinstance(k.body, HostBody)
    ]
    assert len(kernels) == len(program.kernels) == 2
    return writer.to_bytes(replace(program, kernels=tuple(kernels)))


def texts() -> dict[str, str]:
    """Return programs in text form by name."""
    head = "fn main(x: Tensor[2, f32]) -> Tensor[2, f32] { "
    return {
        "ok-small": head + "neg(x) }",
        "no-brackets": head + "(" * 5000 + "x" + ")" * 5000 + " }",
        "no-one-line": "fn " * 2000,
        "no-digits": "fn main() -> Tensor[i64] { i64(" + "9" * 5000 + ") }",
        "no-elements": "fn main() -> Tensor[f32] { f32[99999999999]() }",
        "no-zero": "fn main<n>(x: Tensor[n % 0, f32]) -> Tensor[n / 0, f32] { x }",
        "no-itself": "fn main(x: Tensor[2, f32]) -> Tensor[3, f32] { main(x) }",
        "no-types": "fn main(x: " + "(" * 500 + "Tensor[2, f32]" + ",)" * 500 + ") { x }",
        "no-control": head + "\x1b[2J(x) }",
    }


def main() -> None:
    """Write all of them."""
    written = {("onnx", n): m.SerializeToString() for n, m in models().items()}
    written |= {("inlay", n): data for n, data in executables().items()}
    written |= {("inl", n): text.encode() for n, text in texts().items()}
    for (kind, name), data in written.items():
        path = FOLDER / kind / f"{name}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    print(f"{len(written)} files, {sum(map(len, written.values()))} bytes")


if __name__ == "__main__":
    main()
