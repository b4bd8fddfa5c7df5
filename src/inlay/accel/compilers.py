"""A compiler or an assembler of a vendor: the text of a program as what the device runs."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

_SOURCE, _RESULT = "{source}", "{result}"


class Compiler:
    """A command that makes of a text what a device runs: a cross compiler, an assembler.

    An encoding calls it with the text of a command, and hands what it gives to `program`. Equal texts are
    compiled once in a process. Where it fails, the operation runs elsewhere, and what it said is the reason.

        assembler = Compiler("vendor-as", "-o", "{result}", "{source}", suffix=".s")
        return call("vendor_run", program(self.assembler(text), open="vendor_load"), c.x, c.y)

    Args:
        command: its words, among them `{source}` and `{result}`, the names of files.
        suffix: of the file with the text.
        seconds: after which it is ended.
    """

    def __init__(self, *command: str, suffix: str = ".c", seconds: float = 60.0) -> None:
        if missing := [x for x in (_SOURCE, _RESULT) if not any(x in word for word in command)]:
            raise ValueError(f"found a Compiler whose command has no {' and no '.join(missing)}")
        self._command, self._suffix, self._seconds = command, suffix, seconds

    def __call__(self, text: str) -> bytes:
        """Return what the command makes of a text.

        Raises:
            RuntimeError: it is not there, it fails, it takes too long, or it makes nothing.
        """
        return _made(self._command, self._suffix, self._seconds, text)


@lru_cache(maxsize=1024)
def _made(command: Sequence[str], suffix: str, seconds: float, text: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / f"command{suffix}", Path(folder) / "result"
        source.write_text(text, encoding="utf-8")
        words = [w.replace(_SOURCE, str(source)).replace(_RESULT, str(result)) for w in command]
        try:
            done = subprocess.run(words, capture_output=True, timeout=seconds, check=False)
        except OSError as failure:
            raise RuntimeError(f"{command[0]} cannot be run: {failure}") from failure
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{command[0]} was ended after {seconds:g} seconds") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()[:1]
            raise RuntimeError(f"{command[0]} ended with {done.returncode}: {''.join(said)}")
        if not result.is_file():
            raise RuntimeError(f"{command[0]} made no {_RESULT}")
        return result.read_bytes()
