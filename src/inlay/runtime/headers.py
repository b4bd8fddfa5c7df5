"""Where the headers of the C runtime are: for operators in C and for programs that embed Inlay."""

from __future__ import annotations

from pathlib import Path


def get_include() -> str:
    """Return the folder of the C headers, for the compiler's `-I`.

    Beside it is `src`, with the C runtime itself, and `CMakeLists.txt`, which builds it: a program
    that runs `.inlay` files without Python compiles these. An installed package carries them; in a
    checkout they are in `runtime/`.
    """
    here = Path(__file__).resolve().parent
    installed = here / "c" / "include"
    return str(installed if installed.is_dir() else here.parents[2] / "runtime" / "include")
