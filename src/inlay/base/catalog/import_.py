"""Errors of foreign models: files that cannot be read, and constructs that cannot be imported."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="import.unreadable",
        title="the model file cannot be read",
        explanation="The operating system refused to open or read the file.",
        remedy="Check the path and its permissions.",
    ),
    Entry(
        id="import.not-onnx",
        title="the file is not an ONNX model",
        explanation=(
            "The bytes are not a protobuf message of an ONNX model, or the message has no graph or "
            "names no operator set, without which no node has a meaning."
        ),
        remedy="Check that the file is complete and was written by an ONNX exporter.",
    ),
    Entry(
        id="import.opset",
        title="the operator set is not known",
        explanation=(
            "A model says for which versions of the operator sets it is written. The meaning of its "
            "nodes depends on them, so a version that the installed `onnx` does not know is refused."
        ),
        remedy="Export the model for an older version, or install a newer onnx.",
    ),
    Entry(
        id="import.external-data",
        title="the external data of a tensor cannot be used",
        explanation=(
            "A model may keep large tensors in files beside it. Such a file must lie in the folder "
            "of the model or below, exist, and have the bytes that the model says it has. Paths "
            "that leave the folder are refused: a model is data and must not choose what is read. "
            "Links in the folder are followed inside it, and where the model is itself a link into "
            "a store of files, as in caches of downloads, into that store."
        ),
        remedy="Put the data files beside the model and load the model by its path.",
    ),
    Entry(
        id="import.bad-tensor",
        title="a stored tensor is damaged",
        explanation="Its bytes do not fit its shape and element type, or the shape is impossible.",
        remedy="Export the model again.",
    ),
    Entry(
        id="import.bad-dim",
        title="an axis has an impossible size",
        explanation="No machine can address a tensor of that size, so the model is damaged.",
        remedy="Export the model again.",
    ),
    Entry(
        id="import.dtype",
        title="an element type is not supported",
        explanation="There is no format with this element type here.",
        remedy="Convert the model to an element type that `inlay targets` lists.",
    ),
    Entry(
        id="import.input-type",
        title="an input is a map or of no type",
        explanation="Tensors, sequences and optionals can be given to a program; maps cannot.",
        remedy="Split the input into tensors.",
    ),
    Entry(
        id="import.rank-unknown",
        title="an input has no shape",
        explanation=(
            "Ranks are static: sizes of axes may be unknown, their number may not. The model does "
            "not say how many axes this input has."
        ),
        remedy="Export the model with named dynamic axes.",
    ),
    Entry(
        id="import.undefined-name",
        title="a value is used that nothing produces",
        explanation=(
            "Nodes must come in topological order: every input is an input of the graph, an "
            "initializer, or an output of an earlier node. A cycle shows itself in the same way."
        ),
        remedy="Export the model again; it was damaged or written by a faulty tool.",
    ),
    Entry(
        id="import.invalid-graph",
        title="a graph breaks the rules of ONNX",
        explanation="Its inputs or outputs do not fit the node it belongs to, or it has none.",
        remedy="Export the model again.",
    ),
    Entry(
        id="import.invalid-node",
        title="a node breaks the rules of its operator",
        explanation="Its attributes or inputs are not what the ONNX specification allows.",
        remedy="Export the model again; `onnx.checker` may say more.",
    ),
    Entry(
        id="import.unsupported",
        title="a legal use of an operator that is not supported",
        explanation="The operator is known, and this way of using it cannot be imported.",
        remedy="Follow the hint, or export the model with a simpler form of the operator.",
    ),
    Entry(
        id="import.unknown-operator",
        title="an operator that is not known",
        explanation="No import rule and no local function of the model has this name and domain.",
        remedy="Export without it, or give an implementation with `inlay.extern`.",
    ),
    Entry(
        id="import.duplicate-name",
        title="two values of a graph have one name",
        explanation=(
            "Nodes name what they read, so a name must mean one value. Only an input may share its "
            "name with the initializer that is its default."
        ),
        remedy="Export the model again; it was damaged or written by a faulty tool.",
    ),
    Entry(
        id="import.too-large",
        title="a model beyond a limit",
        explanation=(
            "Files, tensors, nodes and axes have limits, so that a damaged or hostile model cannot "
            "take all memory or time. docs/reference/limits.md lists them."
        ),
        remedy="If you trust the model, raise the limit that the message names.",
    ),
    Entry(
        id="import.too-deep",
        title="subgraphs are nested too deep",
        explanation=(
            "Bodies of branches, loops and local functions are expanded where they are used. A "
            "function that calls itself would never end."
        ),
        remedy="Flatten the model.",
    ),
)
