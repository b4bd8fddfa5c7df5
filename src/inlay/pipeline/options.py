"""Options of a compilation, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from inlay.base.options import option


def default_cache() -> Path:
    """Return the folder of compiled objects of this user."""
    return Path.home() / ".cache" / "inlay"


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What a compilation may be told.

    Attributes:
        board: name of the machine to compile for.
        cache: folder of compiled objects; empty for none.
        pins: operations to put on devices of the board, `PATTERN=DEVICE`.
        batch: whether independent calls of a small kernel may run as one (trees, ragged data);
            costs a second body for each kernel.
        verify: whether the result of every pass is verified.
    """

    board: str = option("host", help="machine to compile for (see `inlay targets`)")
    cache: str = option("default", help="folder of compiled objects; `none` for no cache")
    pins: tuple[str, ...] = option((), help="operations to put on devices, PATTERN=DEVICE")
    batch: bool = option(False, help="let independent small operations run as one")  # noqa: FBT003
    verify: bool = option(False, help="verify the program after every pass")  # noqa: FBT003

    @property
    def cache_folder(self) -> Path | None:
        """The folder of compiled objects, None where nothing is kept."""
        if self.cache in ("", "none"):
            return None
        return default_cache() if self.cache == "default" else Path(self.cache)
