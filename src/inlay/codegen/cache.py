"""Compiled objects on disk, by content.

An entry is found by its key alone, and the key names everything the entry depends on, so entries
are never stale. Each file starts with a digest of its contents: what was cut short or altered is
ignored and removed. Files are written beside their place and moved there, so that readers in other
processes see all or nothing. When the folder exceeds its bound the entries used longest ago go
first. A folder that cannot be written is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from inlay.base.files import writing

_MAGIC = b"inlay object 1\n"
_PRUNE_BYTES = 8 << 20
"""About so much is written between two walks over all entries: a full folder has 100,000, a second each."""


@dataclass(slots=True)
class ObjectCache:
    """A folder of entries.

    Attributes:
        folder: made when the first entry is written.
        max_bytes: bound that is restored now and then.
    """

    folder: Path
    max_bytes: int = 512 << 20

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        """Return an entry, or None where there is none that is whole."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        head = len(_MAGIC) + 32
        content = data[head:]
        if data[:head] != _MAGIC + hashlib.sha256(content).digest():
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store an entry; does nothing where the folder cannot be written."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with writing(path, mode=0o600) as out:
                out.write(_MAGIC + hashlib.sha256(content).digest() + content)
        except OSError:
            return
        # By chance, for keys are digests: other processes write as well.
        if int(key[-8:], 16) % _PRUNE_BYTES < len(content):
            self.prune()

    def prune(self) -> None:
        """Remove the entries used longest ago until the folder is within its bound."""
        found: list[tuple[float, int, Path]] = []
        with contextlib.suppress(OSError):
            for path in self.folder.glob("??/*"):
                with contextlib.suppress(OSError):
                    stat = path.stat()
                    found.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found, key=lambda f: (f[0], str(f[2]))):
            if total <= self.max_bytes:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size


def key_of(*parts: str) -> str:
    """Return the key of an entry that depends on these texts."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()
