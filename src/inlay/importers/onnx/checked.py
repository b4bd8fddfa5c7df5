"""What a node must not say, of operators that are expanded into bodies which pass over it.

A body of the specification reads the attributes that it needs. One that contradicts an input, or
means nothing, goes unread; these checks come before the body is expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inlay.importers.onnx.node import Node


def _attention(node: Node) -> None:
    """Heads are an attribute where they are no axis; where they are, both must agree."""
    for i, name in enumerate(("q_num_heads", "kv_num_heads")):
        shape, said = node.type(i).shape, node.int(name, 0)
        if len(shape) == 4 and said and shape[1].value not in (said, None):
            raise node.invalid(f"has {name} = {said} and {shape[1]} heads in input {i}")


CHECKS: Mapping[str, Callable[[Node], None]] = {"Attention": _attention}
"""By operator of the core domain; they raise `import.invalid-node`."""
