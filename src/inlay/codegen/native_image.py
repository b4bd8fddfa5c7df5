"""Native code as an image for the driver `native`, which treats a processor as a device.

The code is what executables for that processor hold; the frame around it says what it needs and
where kernels begin. `runtime/src/platform/native.c` defines the form and checks it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from inlay.codegen.interface import Artifact

_MAGIC = b"INLAYNC1"


def make_native_image(artifact: Artifact, buffers: Mapping[str, int]) -> bytes:
    """Return compiled kernels as one image.

    Args:
        artifact: what a generator of native code made.
        buffers: how many buffers each kernel takes, its workspace included.
    """
    image = artifact.image
    parts = [
        _MAGIC,
        _text(" ".join((image.arch, *image.features))),
        struct.pack("<QI", len(image.data), len(artifact.kernels)),
    ]
    for name, kernel in artifact.kernels.items():
        counts = (buffers[name], len(kernel.dims), len(kernel.phases))
        parts += [_text(name), struct.pack("<3I", *counts)]
        parts += [struct.pack("<Q", phase.offset) for phase in kernel.phases]
    return b"".join([*parts, image.data])


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data
