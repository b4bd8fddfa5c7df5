"""Fuzzes for a time: `python -m tests.fuzz.run --seconds 60 [--seed 0] [target ...]`.

Inputs are named by seeds and are checked in a child process with a limit of memory, so that a crash
of native code, a hang or a claim of all memory ends the child and not the search. What is found is
written beside the report, and `python -m tests.fuzz.run --file PATH` checks it again; `make fuzz`
runs all targets. CONTRIBUTING.md says what to do with a finding.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.data import REPOSITORY
from tests.fuzz.targets import SECONDS, Finding, Target, targets
from tests.runtime_c.build import NoSanitizerError, build

ROUND = 200
"""Inputs that one child checks, if the time allows."""
LEAST = 120
"""Inputs that one child checks however long that takes."""


def fuzz(name: str, target: Target, *, seed: int, seconds: float, driver: Path | None) -> Counter:
    """Check inputs until the time is over; return how often each outcome was seen.

    Raises:
        Finding: with the input's path and how to see it again.
    """
    seen: Counter[str] = Counter()
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        current = Path(folder) / "current"
        while time.monotonic() < end:
            left = max(end - time.monotonic(), 0.1)
            command = [
                sys.executable,
                "-m",
                "tests.fuzz.run",
                "--child",
                str(current),
                "--seed",
                str(seed),
                "--seconds",
                str(left),
                name,
            ]
            if driver is not None:
                command += ["--driver", str(driver)]
            try:
                done = subprocess.run(
                    command,
                    check=False,
                    capture_output=True,
                    text=True,
                    cwd=REPOSITORY,
                    timeout=left + 2 * SECONDS + 30,
                )
                failed, said = done.returncode != 0, done.stderr[-3000:]
            except subprocess.TimeoutExpired:
                failed, said = True, "the process hangs"
            if failed:
                raise Finding(_kept(current, target, said))
            seen.update(done.stdout.split())
            seed += ROUND
    return seen


def _kept(current: Path, target: Target, said: str) -> str:
    kept = Path(tempfile.mkdtemp(prefix="inlay-fuzz-"))
    lines = [said]
    for path in sorted(current.parent.glob(f"current*{target.suffix}")):
        copy = kept / path.name
        copy.write_bytes(path.read_bytes())
        lines.append(f"check it again: python -m tests.fuzz.run --file {copy}")
    return "\n".join(lines[:4])


def _child(current: Path, target: Target, seed: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    for first in range(seed, seed + ROUND, target.batch):
        datas = [target.make(s) for s in range(first, first + target.batch)]
        for i, data in enumerate(datas):
            current.with_name(f"current{i}{target.suffix}").write_bytes(data)
        print(*target.check(datas), flush=True)
        if time.monotonic() > end and first >= seed + LEAST:
            return


def _files(paths: Sequence[Path], driver: Path | None) -> None:
    for path in paths:
        for name, target in targets(driver).items():
            if path.name.endswith(target.suffix):
                print(path, name, *target.check([path.read_bytes()]))


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="fuzz what reads files")
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file", type=Path, action="append", default=[])
    parser.add_argument("--driver", type=Path)
    parser.add_argument("--child", type=Path)
    arguments = parser.parse_args()
    if arguments.child:
        target = targets(arguments.driver)[arguments.targets[0]]
        _child(arguments.child, target, arguments.seed, arguments.seconds)
        return 0
    driver: Path | None = None
    try:
        driver = build("address,undefined")
    except (NoSanitizerError, FileNotFoundError):
        print("without sanitizers: executables are left out", file=sys.stderr)
    if arguments.file:
        _files(arguments.file, driver)
        return 0
    known = targets(driver)
    names = arguments.targets or list(known)
    for name in names:
        share = arguments.seconds / len(names)
        try:
            seen = fuzz(name, known[name], seed=arguments.seed, seconds=share, driver=driver)
        except Finding as finding:
            print(f"{name}: {finding}")
            return 1
        print(f"{name}: {dict(seen.most_common())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
