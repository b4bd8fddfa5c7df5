"""Run pyright and hold the number of its errors under a ceiling that may only fall.

The ceiling is the one number in ``tools/types_ceiling.txt``. More errors than that fail; fewer
print a reminder to lower it.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CEILING = ROOT / "tools" / "types_ceiling.txt"
YOUNG = "--max-semi-space-size=64"
"""Pyright makes many objects and drops most of them: with more room for young ones it takes a twentieth less
time."""


def main() -> int:
    """Print the count by package and return the exit status."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    env = os.environ | {"NODE_OPTIONS": f"{YOUNG} {os.environ.get('NODE_OPTIONS', '')}".strip()}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        print(f"types: pyright did not run\n{done.stdout}{done.stderr}".rstrip())
        return 1
    errors = [d for d in report["generalDiagnostics"] if d["severity"] == "error"]
    for found in errors if "-v" in sys.argv else []:
        line = found["range"]["start"]["line"] + 1
        print(f"{Path(found['file']).relative_to(ROOT)}:{line}: {found['message'].splitlines()[0]}")
    by_package = collections.Counter(
        Path(d["file"]).relative_to(ROOT / "src" / "inlay").parts[0] for d in errors
    )
    ceiling = int(CEILING.read_text())
    where = ", ".join(f"{name} {count}" for name, count in sorted(by_package.items()))
    print(f"types: {len(errors)} errors, ceiling {ceiling}" + (f" ({where})" if where else ""))
    if len(errors) < ceiling:
        print(f"types: lower the ceiling in {CEILING.relative_to(ROOT)} to {len(errors)}")
    return int(len(errors) > ceiling)


if __name__ == "__main__":
    sys.exit(main())
