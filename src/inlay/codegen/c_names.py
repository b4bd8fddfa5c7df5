"""Names in emitted C: readable, never shadowing, never a word of the language."""

from __future__ import annotations

import re
from collections.abc import Iterable

from inlay.base.names import to_c

_NUMBERS = re.compile(r"(_t?[0-9]+)+$")


class Names:
    """Names that are visible at a place; blocks nest.

    A name ends with its block and may be given again behind it, so that neighboring loops over the
    same thing have the same variable. What a function has as a whole (buffers, dims) is asked for
    first.
    """

    def __init__(self, reserved: Iterable[str]) -> None:
        self._blocks: list[set[str]] = [set(reserved)]
        self._ended: list[set[str]] = [set()]  # names of blocks that ended inside each

    @property
    def depth(self) -> int:
        """How many blocks are open."""
        return len(self._blocks)

    def fresh(self, hint: str, depth: int = 0) -> str:
        """Return a name like the hint that means nothing else here, and keep it.

        Args:
            hint: what to call it.
            depth: of the block that it belongs to, 0 for the innermost.
        """
        word = to_c(_NUMBERS.sub("", hint) or hint)
        name, count = word, 1
        # What belongs further out is declared in front of blocks that have ended since.
        taken = [*self._blocks, *self._ended[depth - 1 :]] if depth else self._blocks
        while any(name in block for block in taken):
            count += 1
            name = f"{word}_{count}"
        self._blocks[depth - 1].add(name)
        return name

    def release(self, name: str) -> None:
        """Give a name back that nothing was called by."""
        for block in self._blocks:
            block.discard(name)

    def open(self) -> None:
        """Begin a block."""
        self._blocks.append(set())
        self._ended.append(set())

    def close(self) -> None:
        """End a block and forget its names."""
        ended = self._blocks.pop() | self._ended.pop()
        self._ended[-1] |= ended
