"""Arrays by name in files: the inputs that a run is given, and the outputs that it writes."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from inlay.base.diagnostics import InlayError, error, unsupported
from inlay.base.files import writing
from inlay.base.span import Span

_ARRAY, _ARCHIVES = b"\x93NUMPY", (b"PK\x03\x04", b"PK\x05\x06")
"""How files of one array and archives begin."""


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz archive by name.

    Raises:
        CompileError: `load.missing`, `load.bad-inputs`.
    """
    if not path.is_file():
        what = "the folder" if path.is_dir() else "no file"
        raise error("load.missing", f"found {what} {path}, needed an .npz archive of inputs")
    try:
        with path.open("rb") as stream:
            head = stream.read(len(_ARRAY))
            if head == _ARRAY:
                raise _bad(path, "found one array without a name, needed an archive of arrays by name")
            if not head.startswith(_ARCHIVES):
                raise _bad(path, "found no .npz archive of arrays")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as archive:
                found = {name: archive[name] for name in archive.files}
    except (
        OSError,
        ValueError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        SyntaxError,
        NotImplementedError,
        RuntimeError,
    ) as failure:
        raise _bad(path, f"found what cannot be read: {failure}") from failure
    for name, array in found.items():
        if not isinstance(array, np.ndarray):
            raise _bad(path, f"found '{name}', which is no array")
    return found


def _bad(path: Path, why: str) -> InlayError:
    hint = "write it with numpy.savez(path, name=array, ...)"
    return error("load.bad-inputs", why, span=Span.named(str(path)), hint=hint)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], inputs: Sequence[str] = ()) -> None:
    """Write an .npz archive, but not over inputs.

    Any name will do, also those that `numpy.savez` keeps for itself.
    """
    with writing(path, inputs=inputs) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, _plain(name, array), allow_pickle=False)


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    """Return an array that a file can hold: strings with a width, which cuts zeros at their ends."""
    if array.dtype != object:
        return array
    wide = array.astype(np.str_)
    if not np.array_equal(wide.astype(object), array):
        raise unsupported(
            "entry.structure",
            f"strings of output '{name}' end in a zero character, which no .npz file keeps",
            hint="call the program from Python",
        )
    return wide
