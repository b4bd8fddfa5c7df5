"""Files of the state of a session: whole or not at all, and refused where a byte differs.

    magic           8 bytes
    version         u32
    bytes of head   u32
    digest of head  32 bytes, SHA-256
    head            JSON: the types of the inputs that the state is for, and for each tensor its name, element
                    type, dims, where its first axis belongs, offset, bytes, and digest
    tensors         each at a multiple of 64

Little-endian. Digests find damage, not malice; what a file says of sizes is held against how long it is
before memory is taken. Whether the sizes fit is for the next run to say, as it is for any inputs.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from inlay.arith.dtype import BY_NAME, STRING, from_numpy
from inlay.base.diagnostics import InlayError, error, unsupported
from inlay.base.files import writing
from inlay.runtime.kept import Kept
from inlay.runtime.structure import Structure

MAGIC, VERSION = b"\x89INLYST\n", 1
_HEAD = struct.Struct("<8sII32s")
_ALIGN = 64
_MOST_HEAD = 1 << 24


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor in the file."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    axis: int
    offset: int
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file of state.

    Attributes:
        path: where it is.
        signature: the types that its tensors are to have, as text, by name.
        digest: of its head, where it is known; any other content is refused then.
    """

    path: Path
    signature: Mapping[str, str]
    digest: bytes | None = None

    @staticmethod
    def at(path: Path, signature: Mapping[str, str]) -> StateFile:
        """Return the file of a path, whatever it holds."""
        return StateFile(path, dict(signature))

    @staticmethod
    def write(path: Path, state: Mapping[str, Structure | Kept], signature: Mapping[str, str]) -> StateFile:
        """Write a state.

        Raises:
            UnsupportedError: `entry.state-structure`.
            OSError: the file cannot be written; what was there is still there.
        """
        arrays = {name: _plain(name, value) for name, value in state.items()}
        tensors: list[_Tensor] = []
        offset = 0
        for name, (array, dtype, axis) in arrays.items():
            digest = hashlib.sha256(_bytes(array)).hexdigest()
            tensors.append(_Tensor(name, dtype, array.shape, axis, offset, array.nbytes, digest))
            offset = _aligned(offset + array.nbytes)
        head = json.dumps({"signature": dict(signature), "tensors": [_to_json(t) for t in tensors]}).encode()
        digest = hashlib.sha256(head).digest()
        with writing(path) as stream:
            stream.write(_HEAD.pack(MAGIC, VERSION, len(head), digest))
            stream.write(head)
            at = _HEAD.size + len(head)
            for array, _, _ in arrays.values():
                stream.write(bytes(_aligned(at) - at))
                stream.write(_bytes(array))
                at = _aligned(at) + array.nbytes
        return StateFile(path, dict(signature), digest)

    def read(self) -> dict[str, Structure | Kept]:
        """Return the state.

        Raises:
            RunError: `run.bad-state`.
            OSError: the file cannot be read.
        """
        with self.path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            try:
                tensors, begin = self._head(stream, size)
                return {t.name: _read(stream, t, begin) for t in tensors}
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as fault:
                raise self._bad(f"its head is not of the form ({type(fault).__name__})") from fault
            except _Damaged as fault:
                raise self._bad(str(fault)) from None

    def _head(self, stream: BinaryIO, size: int) -> tuple[list[_Tensor], int]:
        fixed = stream.read(_HEAD.size)
        if len(fixed) < _HEAD.size or not fixed.startswith(MAGIC):
            raise _Damaged("it is no file of state")
        _, version, head_bytes, digest = _HEAD.unpack(fixed)
        if version != VERSION:
            raise _Damaged(f"it has version {version} of the format, needed {VERSION}")
        if head_bytes > min(size - _HEAD.size, _MOST_HEAD):
            raise _Damaged("it is not all there")
        head = stream.read(head_bytes)
        if hashlib.sha256(head).digest() != digest:
            raise _Damaged("its head is damaged")
        if self.digest not in (None, digest):
            raise _Damaged("it is not what was written")
        said: Any = json.loads(head)
        signature = {str(n): str(t) for n, t in said["signature"].items()}
        if signature != dict(self.signature):
            found, needed = (_listed(s) for s in (signature, self.signature))
            raise _Damaged(f"it has the state {found}, needed {needed}")
        tensors = [_of_json(x) for x in said["tensors"]]
        begin = _aligned(_HEAD.size + head_bytes)
        if {t.name for t in tensors} != set(signature) or len(tensors) != len(signature):
            raise _Damaged("its tensors are not those of its signature")
        if any(begin + t.offset + t.bytes > size for t in tensors):
            raise _Damaged("it is not all there")
        return tensors, begin

    def _bad(self, what: str) -> InlayError:
        return error("run.bad-state", f"found {self.path}, of which {what}")


class _Damaged(Exception):
    """What is wrong with a file."""


def _plain(name: str, value: Structure | Kept) -> tuple[np.ndarray, str, int]:
    """Return a tensor of the state as it lies in memory, its type, and where its first axis belongs."""
    if isinstance(value, Kept):
        return np.asarray(value.value), from_numpy(value.dtype).name, value.axis
    is_array = isinstance(value, (np.ndarray, np.generic, int, float))
    found = np.asarray(value if is_array else None)
    try:
        dtype = from_numpy(found.dtype)
    except KeyError:
        dtype = STRING
    if dtype.is_host_only:
        raise unsupported("entry.state-structure", f"found the state '{name}' to be no tensor of numbers")
    return np.ascontiguousarray(found).reshape(found.shape), dtype.name, 0


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


def _listed(signature: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {t}" for name, t in signature.items()) or "of nothing"


def _to_json(t: _Tensor) -> list[Any]:
    return [t.name, t.dtype, list(t.dims), t.axis, t.offset, t.bytes, t.digest]


def _of_json(said: Sequence[Any]) -> _Tensor:
    name, dtype, dims, axis, offset, n_bytes, digest = said
    t = _Tensor(
        str(name), str(dtype), tuple(int(d) for d in dims), int(axis), int(offset), int(n_bytes), str(digest)
    )
    if min(t.offset, t.bytes, *t.dims, 0) < 0 or not 0 <= t.axis < max(len(t.dims), 1) or len(t.dims) > 16:
        raise _Damaged("a tensor in it cannot be")
    if t.bytes != math.prod(t.dims) * BY_NAME[t.dtype].itemsize:
        raise _Damaged("a tensor in it has other bytes than its dims")
    return t


def _read(stream: BinaryIO, t: _Tensor, begin: int) -> Structure | Kept:
    dtype = BY_NAME[t.dtype].numpy
    array = np.empty(t.dims, dtype)
    view = _bytes(array)
    stream.seek(begin + t.offset)
    while view:
        count = stream.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise _Damaged("it is not all there")
        view = view[count:]
    if hashlib.sha256(_bytes(array)).hexdigest() != t.digest:
        raise _Damaged(f"the tensor '{t.name}' in it is damaged")
    return np.moveaxis(array, 0, t.axis) if t.axis else array
