"""Numbers in fewer bits than any element type here: integers of 2 and 4 bits, floats of 4 and 8.

ONNX has them to store numbers. A constant is read in the narrowest type that holds them, and a quantize to
integers of few bits gives that type, clamped. Either value keeps what it is stored as, which a few operators
may take: what turns it into numbers, what moves it. Anything else would compute in another type than the
model says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from inlay.base.diagnostics import unsupported
from inlay.importers.onnx import load
from inlay.importers.onnx.node import Node
from inlay.importers.onnx.values import OnnxValue
from inlay.ir import make

_MOVERS = frozenset(("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
_READERS = frozenset(("Cast", "DequantizeLinear", "QuantizeLinear", "Shape", "Size"))
_MICROSOFT = frozenset(("GatherBlockQuantized",))


def constant(array: np.ndarray, elem_type: int) -> OnnxValue:
    """Return a constant that a model stores as an element type of ONNX."""
    return OnnxValue(make.const(array), stored=elem_type if load.is_narrow(elem_type) else 0)


def check(node: Node) -> None:
    """Refuse operators that compute with such numbers.

    Raises:
        UnsupportedError: `import.dtype`.
    """
    name = node.proto.op_type
    stored = next((v.stored for v in node.inputs if v is not None and v.stored), 0)
    known = _MOVERS | _READERS if not node.proto.domain else _MICROSOFT
    if stored and name not in known:
        kind = load.elem_type_name(stored)
        what = f"an output has element type {kind}" if name == "outputs" else f"{name} takes {kind}"
        raise unsupported(
            "import.dtype",
            f"{what}, in which numbers are only stored",
            span=node.span,
            hint="turn them into other numbers with DequantizeLinear or Cast first",
        )


def moved(node: Node, results: Sequence[OnnxValue]) -> Sequence[OnnxValue]:
    """Return the outputs of a rule; those of an operator that moves such numbers are stored as before."""
    first = node.inputs[0] if node.inputs else None
    if first is None or not first.stored or node.proto.op_type not in _MOVERS:
        return results
    return tuple(replace(r, stored=first.stored) for r in results)
