"""How large a model may be: what is beyond is damage, or an attack, and is refused at once.

The limits are far above any model that exists and far below what would harm the machine. They are
options, so that a service that takes models from strangers can draw them closer:

    inlay.load("model.onnx", max_nodes=10_000, max_file_bytes=1 << 28)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from inlay.base.diagnostics import InlayError, error
from inlay.base.options import option
from inlay.base.span import NO_SPAN, Span

MAX_DIM = 2**47
"""A dimension beyond this is damage, not a tensor: no machine addresses its bytes."""

MAX_RANK = 16
"""More axes than the runtime has are damage too."""


@dataclass(frozen=True, slots=True)
class ImportLimits:
    """Limits of import; `docs/reference/limits.md` says why each is what it is."""

    max_file_bytes: int = option(1 << 31, least=0, help="bytes of a model file, without external data")
    max_tensor_bytes: int = option(1 << 38, least=0, help="bytes of one stored tensor")
    max_nodes: int = option(1_000_000, least=0, help="nodes of a model, with those of its subgraphs")
    max_expanded: int = option(100_000, least=0, help="nodes that expanding functions may add")
    max_depth: int = option(64, least=0, help="subgraphs and local functions inside each other")


DEFAULT_LIMITS = ImportLimits()
"""What holds where nobody says otherwise."""


def too_large(what: str, most: int, unit: str, name: str, span: Span = NO_SPAN) -> InlayError:
    """Return the error `import.too-large` for what is beyond a limit."""
    return error(
        "import.too-large",
        f"{what} more than {most} {unit}",
        span=span,
        hint=f"if you trust the model, raise the limit {name}",
    )


def read_bytes(path: Path, limits: ImportLimits) -> bytes:
    """Return the bytes of a model file.

    Raises:
        CompileError: `import.unreadable`, `import.too-large`.
    """
    try:
        with path.open("rb") as stream:
            # Python reserves what it is asked to read, so ask for what is there.
            size = min(os.fstat(stream.fileno()).st_size, limits.max_file_bytes)
            data = stream.read(size + 1)
    except OSError as failure:
        raise error(
            "import.unreadable",
            f"cannot read '{path}': {failure.strerror or failure}",
            hint="check the path and its permissions",
        ) from None
    if len(data) > limits.max_file_bytes:
        raise too_large(f"'{path}' has", limits.max_file_bytes, "bytes", "max_file_bytes")
    return data
