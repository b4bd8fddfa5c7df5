"""`python -m tests.text --update [FILE ...]`: write again what passes make of the cases of text tests."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.text_cases import is_cases, update


def main() -> None:
    """Update the files that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.text", description=__doc__)
    parser.add_argument("--update", action="store_true", required=True, help="write the files again")
    parser.add_argument("files", nargs="*", type=Path, help="files of cases; by default, all")
    arguments = parser.parse_args()
    for path in arguments.files or sorted(Path(__file__).parent.rglob("*.inl")):
        if is_cases(path):
            print(f"{'changed' if update(path) else 'same'}: {path}")


if __name__ == "__main__":
    main()
