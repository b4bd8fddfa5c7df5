"""Numbers of bytes as people write them: 65536, "64KiB", "1.5MiB", "300MB"."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_FORM = re.compile(r"(\d{1,30})(\.\d{1,15})?\s*([kKMGT]i?B|B|)")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
MOST_BYTES = 1 << 62


def bytes_in(value: Any) -> int:
    """Return bytes, given as a number or as text: kB, MB, GB and TB by 1000, KiB to TiB by 1024.

    Parts of a byte are dropped.

    Raises:
        ValueError: says what was needed.
    """
    found = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
    count: Any = value
    if found is not None:
        unit = found[3].removesuffix("B")
        step = 1024 if unit.endswith("i") else 1000
        count = int(Decimal(found[1] + (found[2] or "")) * step ** _POWERS[unit.removesuffix("i")])
    if type(count) is not int or not 0 < count <= MOST_BYTES:
        raise ValueError('bytes, as a positive number or as in "64KiB" (B, kB, KiB, MB, MiB, GB, GiB)')
    return count


def bytes_in_option(text: str) -> int:
    """Return bytes, given in a command line: as `bytes_in`, and digits alone are a number.

    Raises:
        ValueError: says what was needed.
    """
    return bytes_in(int(text) if text.strip().isdecimal() and text.isascii() else text)
