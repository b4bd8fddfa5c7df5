"""List what is beyond the sizes at which to ask whether one room has become two.

Some long files are long for a reason, so their number is held, not each: it is under the ceiling in
``tools/sizes_ceiling.txt``, which may only fall. More than that fail; fewer print a reminder.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CEILING = ROOT / "tools" / "sizes_ceiling.txt"
LONG_FILE = 600
LONG_FUNCTION = 60


def beyond(path: Path) -> Iterator[str]:
    """Yield a line of report for a file and for each of its functions that is long."""
    text = path.read_text(encoding="utf-8")
    place = path.relative_to(ROOT).as_posix()
    count = text.count("\n")
    if count > LONG_FILE:
        yield f"{place}: {count} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONG_FUNCTION:
                yield f"{place}:{node.lineno}: {node.name} has {length} lines"


def main() -> int:
    """Print the report for the package, and the long files in C; return the exit status."""
    rows = [row for path in sorted((ROOT / "src").rglob("*.py")) for row in beyond(path)]
    for path in sorted([*ROOT.glob("runtime/**/*.c"), *ROOT.glob("src/**/*.c")]):
        count = path.read_text(encoding="utf-8").count("\n")
        if count > LONG_FILE:
            rows.append(f"{path.relative_to(ROOT).as_posix()}: {count} lines")
    ceiling = int(CEILING.read_text(encoding="utf-8"))
    limits = f"{LONG_FILE} lines a file or {LONG_FUNCTION} a function"
    print(f"sizes: {len(rows)} beyond {limits}, ceiling {ceiling}")
    for row in rows:
        print(f"  {row}")
    if len(rows) < ceiling:
        print(f"sizes: lower the ceiling in {CEILING.relative_to(ROOT)} to {len(rows)}")
    return int(len(rows) > ceiling)


if __name__ == "__main__":
    sys.exit(main())
