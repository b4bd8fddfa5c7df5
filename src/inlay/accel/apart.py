"""The conformance kit in a process of its own: code of others may crash or hang.

    python -m inlay.accel.apart FILE.py|NAME TRIALS SEED

It prints a line of JSON before each step and behind it. `checked` reads these. What a description or the
library of its driver prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import TextIO

from inlay.accel.backend import AcceleratorBackend, backend_in_file
from inlay.accel.kit import Checked, checks
from inlay.base.diagnostics import InlayError
from inlay.codegen.backend_table import accelerators
from inlay.machine.device import DESCRIPTION


def checked(name: str, trials: int, seed: int, seconds: float) -> Iterator[Checked]:
    """Yield what became of each check; the last one says so where the process crashed or hung.

    Args:
        name: of a file, or of a description that is here.
        trials: programs for each pattern.
        seed: of what is drawn.
        seconds: after which it is ended.
    """
    command = [sys.executable, "-m", "inlay.accel.apart", name, str(trials), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        hung = threading.Event()
        timer = threading.Timer(seconds, lambda: (hung.set(), child.kill()))
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
    if hung.is_set():
        yield Checked(step, "how long it takes", 1, f"it had not ended after {seconds:g} s")
    elif status < 0:
        yield Checked(step, "the process", 1, f"it was ended by {signal.Signals(-status).name}")
    elif status:
        yield Checked(step, "the process", 1, f"it ended with status {status}; what it printed is above")


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
    sys.exit(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), _taken_output()))
