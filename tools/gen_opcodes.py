"""Write runtime/src/opcodes.inc and docs/language/bytecode_table.md from the opcode table.

Run without arguments to write, with `--check` to say whether the files are up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from inlay.bytecode.document import c_table, markdown_table  # noqa: E402

FILES = {
    ROOT / "runtime" / "src" / "opcodes.inc": c_table,
    ROOT / "docs" / "language" / "bytecode_table.md": markdown_table,
}


def main() -> int:
    """Write or check the files; return the exit code."""
    stale = [path for path, make in FILES.items() if not path.exists() or path.read_text() != make()]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale; run tools/gen_opcodes.py")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES[path]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
