"""List what is beyond the sizes at which to ask whether one room has become two.

A report and not a gate: some long files are long for a reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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


def main() -> None:
    """Print the report for the package, and the long files of the C runtime."""
    rows = [row for path in sorted((ROOT / "src").rglob("*.py")) for row in beyond(path)]
    for path in sorted([*ROOT.glob("runtime/**/*.c"), *ROOT.glob("src/**/*.c")]):
        count = path.read_text(encoding="utf-8").count("\n")
        if count > LONG_FILE:
            rows.append(f"{path.relative_to(ROOT).as_posix()}: {count} lines")
    print(f"sizes: {len(rows)} beyond {LONG_FILE} lines a file or {LONG_FUNCTION} a function")
    for row in rows:
        print(f"  {row}")


if __name__ == "__main__":
    main()
