"""The conformance kit in a process of its own: code of others may crash or hang.

    python -m inlay.accel.apart FILE.py|NAME TRIALS SEED FRAMES

It prints a line of JSON before each step and behind it. `checked` reads these; where it crashes or hangs, the
file FRAMES says in which line. What a description or the
library of its driver prints goes to standard error.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from inlay.accel.backend import AcceleratorBackend, backend_in_file
from inlay.accel.kit import Checked, checks
from inlay.base.diagnostics import InlayError
from inlay.codegen.backend_table import accelerators
from inlay.machine.device import DESCRIPTION

_NAP = 0.2
"""Seconds that a process has to say where it hangs."""


def checked(name: str, trials: int, seed: int, seconds: float) -> Iterator[Checked]:
    """Yield what became of each check; the last one says so where the process crashed or hung.

    Args:
        name: of a file, or of a description that is here.
        trials: programs for each pattern.
        seed: of what is drawn.
        seconds: after which it is ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        frames = Path(folder) / "frames"
        command = [sys.executable, "-m", "inlay.accel.apart", name, str(trials), str(seed), str(frames)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            hung = threading.Event()
            timer = threading.Timer(seconds, lambda: (hung.set(), _end(child)))
            timer.start()
            step = "declarations"
            assert child.stdout is not None, "its output is a pipe"
            for line in child.stdout:
                said = json.loads(line)
                if "step" in said:
                    step = said["step"]
                else:
                    yield Checked(**said)
            status = child.wait()
            timer.cancel()
        at = _last_line(frames, name)
    if hung.is_set():
        yield Checked(step, "how long it takes", 1, f"it had not ended after {seconds:g} s", at=at)
    elif status < 0:
        yield Checked(step, "the process", 1, f"it was ended by {signal.Signals(-status).name}", at=at)
    elif status:
        yield Checked(step, "the process", 1, f"it ended with status {status}; what it printed is above")


def _end(child: subprocess.Popen[str]) -> None:
    """End a process that hangs, once it has said where it is."""
    if hasattr(signal, "SIGUSR1"):
        child.send_signal(signal.SIGUSR1)
        time.sleep(_NAP)
    child.kill()


def _last_line(frames: Path, name: str) -> str:
    """Return the line of a description that a process was at when it crashed or hung; empty for none."""
    text = frames.read_text(encoding="utf-8", errors="replace") if frames.is_file() else ""
    mine = Path(name).stem.replace("-", "_")
    lines = re.findall(r'File "(.*)", line (\d+)', text)
    return next((f"{Path(file).name}:{line}" for file, line in lines if Path(file).stem == mine), "")


def _watched(frames: str) -> None:
    """Let this process write to a file where it is when it crashes, or is asked."""
    file = Path(frames).open("w", encoding="utf-8")  # noqa: SIM115 (as long as the process)
    faulthandler.enable(file, all_threads=False)
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, file, all_threads=False)


def _main(name: str, trials: int, seed: int, answers: TextIO) -> int:
    try:
        found = backend_in_file(name) if name.endswith(DESCRIPTION) else accelerators()[name]
    except InlayError as failure:
        _say(answers, asdict(Checked("the file", name, 1, "; ".join(d.message for d in failure.diagnostics))))
        return 0
    assert isinstance(found, AcceleratorBackend), "descriptions become back ends"
    for step in checks(found, trials, seed):
        _say(answers, {"step": step} if isinstance(step, str) else asdict(step))
    return 0


def _say(answers: TextIO, record: dict[str, object]) -> None:
    answers.write(json.dumps(record) + "\n")
    answers.flush()


def _taken_output() -> TextIO:
    """Return what standard output was; it is standard error from here on, for code in C, too."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    _watched(sys.argv[4])
    sys.exit(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), _taken_output()))
