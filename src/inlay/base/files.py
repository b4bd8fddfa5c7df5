"""Files that we write: whole or not at all, and never over what we read; and texts that we read.

A file is written beside its place under a name of its own and moved there when it is whole, so that
readers see the old file or the new one, and what fails or is interrupted leaves the old one and
nothing else. A link is followed: the file that it names is replaced, and keeps its mode. What is no
regular file (a pipe, a terminal, `/dev/null`) has no old content to lose and is written as it is.

    with writing(path, inputs=[model]) as stream:
        stream.write(data)

What a command reads it must not destroy. Files are compared by what they are and not by their names,
so a link to an input is that input.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import re
import stat
import sys
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import BinaryIO

from inlay.base.diagnostics import error

_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}


def text_of(path: Path) -> str:
    """Return the text of a file, without a byte-order mark.

    Raises:
        CompileError: `load.missing`, `load.not-text`.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as failure:
        raise error("load.not-text", f"found byte {failure.start} of {path} to be no UTF-8") from None
    except OSError as failure:
        raise error("load.missing", f"could not read {path}: {failure.strerror}") from None


def check_output(path: Path, inputs: Iterable[Path | str] = ()) -> None:
    """Say early that a file cannot be written, before work is done whose result it would hold.

    Raises:
        CompileError: `save.over-input` where it is one of the inputs.
        OSError: it is a folder, or is in none, or may not be written.
    """
    found = _status(path)
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EISDIR, "this is a folder, needed the name of a file", str(path))
    if found is not None and not os.access(path, os.W_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if (found is not None and not stat.S_ISREG(found.st_mode)) or _descriptor(path) is not None:
        return
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise OSError(errno.ENOENT, f"there is no folder {folder} to write it to", str(path))
    if not os.access(folder, os.W_OK):
        raise OSError(errno.EACCES, f"nothing can be written to folder {folder}", str(path))
    if found is None:
        return
    for read in inputs:
        status = _status(Path(read))
        if status is not None and os.path.samestat(found, status):
            alias = "" if str(path) == str(read) else f", which is the input {read}"
            raise error(
                "save.over-input",
                f"found the output {path}{alias or ', which is an input too'}: "
                "writing it would destroy what was read",
                hint="give the output another name",
            )


@contextlib.contextmanager
def writing(
    path: Path, *, inputs: Iterable[Path | str] = (), mode: int = 0o666
) -> Generator[BinaryIO, None, None]:
    """Yield a stream whose content is the file's when the body ends; after a failure nothing is.

    Args:
        path: the file; what is there is replaced at once.
        inputs: files that were read for this, and must not be written over.
        mode: of a file that is new; the mask of the process takes from it.

    Raises:
        CompileError: `save.over-input`.
        OSError: the file cannot be written.
    """
    check_output(path, inputs)
    descriptor = _descriptor(path)
    if descriptor is not None:  # opened anew, it would write over what the process said before
        sys.stdout.flush()
        with _Forward(os.fdopen(os.dup(descriptor), "wb", buffering=0)) as stream:
            yield stream
        return
    found = _status(path)
    if found is not None and not stat.S_ISREG(found.st_mode):
        with _Forward(path.open("wb", buffering=0)) as stream:
            yield stream
        return
    with _naming(path):
        target = Path(os.path.realpath(path))
        partial, handle = _beside(target, mode)
        try:
            with os.fdopen(handle, "wb") as stream:
                if found is not None:
                    os.fchmod(handle, stat.S_IMODE(found.st_mode))
                yield stream
            partial.replace(target)
            partial = target
        finally:
            if partial is not target:
                partial.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, inputs: Iterable[Path | str] = ()) -> None:
    """Write a file of text in UTF-8; see `writing`."""
    with writing(path, inputs=inputs) as stream:
        stream.write(text.encode())


class _Forward(io.BufferedWriter):
    """A stream in one direction: a device may say that it has places and have none."""

    def seekable(self) -> bool:
        """Say that there are no places to go to."""
        return False

    def tell(self) -> int:
        """Refuse.

        Raises:
            UnsupportedOperation: always.
        """
        raise io.UnsupportedOperation("this stream has no places")


def _status(path: Path) -> os.stat_result | None:
    """Return what a path leads to; None where there is nothing."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last for a zero in a name
        return None


def _descriptor(path: Path) -> int | None:
    """Return the descriptor of this process that a path stands for."""
    found = _DESCRIPTOR.fullmatch(str(path))
    return int(found[1]) if found else _STREAMS.get(str(path))


def _beside(target: Path, mode: int) -> tuple[Path, int]:
    """Make a file of a new name in the folder of another."""
    for count in itertools.count():
        partial = target.with_name(f".{target.name[:100]}.{os.getpid()}-{count}.partial")
        with contextlib.suppress(FileExistsError):
            return partial, os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    raise AssertionError("numbers do not end")


@contextlib.contextmanager
def _naming(path: Path) -> Generator[None, None, None]:
    """Let failures of the system name the file that was asked for, not the one beside it."""
    try:
        yield
    except OSError as failure:
        if failure.filename is None or str(failure.filename).endswith(".partial"):
            failure.filename, failure.filename2 = str(path), None
        raise
