"""Elementary functions as vector code."""

from __future__ import annotations

from inlay.base.diagnostics import InternalError
from inlay.codegen.llvm_ops import Operations
from inlay.codegen.llvm_types import Value
from inlay.loop.scalar import IntrinsicOp


class Math:
    """Writes elementary functions through `Operations`."""

    def __init__(self, ops: Operations) -> None:
        self.ops = ops

    def apply(self, op: IntrinsicOp, args: list[Value]) -> Value:
        """Return a function of values."""
        raise InternalError(f"no code for {op} of {len(args)}", where="codegen.llvm_math")
