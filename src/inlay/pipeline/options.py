"""Options of a compilation, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from inlay.analysis.winograd import SUMS_ERROR
from inlay.base.diagnostics import error
from inlay.base.options import option
from inlay.machine.board import Board
from inlay.memory.plan import Sharing


def default_cache() -> Path | None:
    """Return the folder of compiled objects of this user; None for who has no home."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ".cache" / "inlay" if home.is_absolute() else None


PRECISIONS = ("f32", "bf16")
"""What products of floats may be computed in."""
WORTH = 0.1
"""What a plan has to save, as a share of the time of the first device that can: predictions err."""


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """What decides where a program runs.

    Attributes:
        board: the machine: its name, a `.toml` file, or the board itself.
        pins: operations to put on devices of the board, `PATTERN=DEVICE`.
        dims: sizes that the program is compiled for, `NAME=SIZE`, of dims that its inputs leave open.
        typical: sizes to predict for, `NAME=SIZE`.
        calibration: file of measured costs of the board (`inlay bench --calibrate`).
        placement: `best` chooses devices by predicted time, `first` takes for each operation the
            board's default device, else the first that can run it.
        outputs: the outputs to compute, by name, in this order; all if none is named.
        plan: which values share bytes. `serial`: those that are not in use at once in the order of the
            program, so that a kernel may have to wait for another one's bytes; `parallel`: only those
            whose kernels data orders, so that a call in mode `parallel` can run independent kernels at
            once, which takes memory.
        budget: bytes that a call may take of memories at most, `MEMORY=SIZE`, constants included: a plan
            within it is made, or refused.
        exact_qdq: whether what stands between a dequantize and a quantize is computed in floats, as a
            model says it, and not in integers.
        precision: what products of floats are computed in: `f32`, or `bf16`, which rounds their operands
            and adds in f32. What a device runs keeps its own arithmetic.
        accuracy: max abs error over max abs result that a product in f32 may have, from 2e-5 on, which
            plain sums have. Convolutions of 3 x 3 take Winograd's F(2, 3) from 1e-4 on and F(4, 3) from 2e-4
            on, where these are faster. None for 1e-4, and for 2e-4 with `bf16`, which is less accurate.
        numerics: `exact` sums of integer products, or `saturating` ones: the sum of two neighboring
            products of bytes may become the nearest i16 where that is faster.
        tuned: file of measurements (`inlay tune`): choices of what rules else estimate, where they were
            measured on this processor, with these rules and as many threads. What it has not is estimated.
        batch: whether independent calls of a small kernel may run as one (trees, ragged data);
            costs a second body for each kernel.
    """

    board: str | Board = option("host", help="the machine (see `inlay targets`)")  # noqa: RUF009
    pins: tuple[str, ...] = option(
        (),
        flag="pin",
        metavar="PATTERN=DEVICE",
        help="put operations on a device: by operator (conv, Conv), name of a node, or @f for a "
        "function; * stands for anything; may be given again",
    )
    dims: tuple[str, ...] = option(
        (),
        flag="fix-dim",
        metavar="NAME=SIZE",
        help="size of a dim of the inputs, fixed while compiling; may be given again",
    )
    bounds: tuple[str, ...] = option(
        (),
        flag="bound-dim",
        metavar="NAME=SIZE",
        help="the largest size that a dim of the inputs may have, for which memory is planned and promised; "
        "may be given again",
    )
    typical: tuple[str, ...] = option(
        (), metavar="NAME=SIZE", help="size of a dim to predict for; may be given again"
    )
    calibration: str = option("", metavar="FILE", help="measured costs that `inlay bench --calibrate` wrote")
    placement: str = option(
        "best",
        choices=("best", "first"),
        help="devices by predicted time (best), or the first that can run an operation",
    )
    outputs: tuple[str, ...] = option(
        (), flag="only", metavar="OUTPUT", help="compute this output alone; may be given again"
    )
    plan: str = option(
        str(Sharing.SERIAL),
        choices=tuple(map(str, Sharing)),
        help="values share bytes in the order of the program (serial), or only where data orders their "
        "kernels, so that independent ones can run at once (parallel)",
    )
    budget: tuple[str, ...] = option(
        (),
        metavar="MEMORY=SIZE",
        help="bytes of a memory of the board that a program may take at most, as in host=300MB or "
        "sram0=64KiB; may be given again",
    )
    exact_qdq: bool = option(
        False,  # noqa: FBT003
        help="compute in floats between a dequantize and a quantize; by default in integers, which differs "
        "by rounding",
    )
    precision: str = option(
        PRECISIONS[0],
        choices=PRECISIONS,
        help="products of floats: f32, or bf16, where their operands are rounded to bf16 and added in f32",
    )
    accuracy: float | None = option(
        None,
        metavar="ERROR",
        least=SUMS_ERROR,
        help="max abs error over max abs result that a product in f32 may have: convolutions of 3 x 3 "
        "take Winograd's F(2, 3) from 1e-4 on, the default, and F(4, 3), which is faster, from 2e-4 on, "
        "the default with --precision bf16",
    )
    numerics: str = option(
        "exact",
        choices=("exact", "saturating"),
        help="sums of products of bytes: exact, or saturating, where two products may become the nearest "
        "16-bit integer if the processor is faster so",
    )
    tuned: str = option("", metavar="FILE", help="measured choices that `inlay tune` wrote")
    batch: bool = option(False, help="let independent small operations run as one")  # noqa: FBT003
    whole_batches: bool = option(
        False,  # noqa: FBT003
        help="compute a batch layer by layer; by default in parts that go through all layers, where a host "
        "runs all of it, without a budget of memory",
    )


@dataclass(frozen=True, slots=True)
class CompileOptions(PlaceOptions):
    """What a compilation may be told, besides.

    Attributes:
        cache: folder of compiled objects; None, `none` or empty for none.
        verify: whether the result of every pass is verified, and of every stage of loops.
        required: devices, by name; operations on others are an error.
    """

    cache: str | None = option("default", help="folder of compiled objects; `none` for no cache")
    verify: bool = option(False, help="verify the program after every pass")  # noqa: FBT003
    required: tuple[str, ...] = option(
        (),
        flag="require",
        metavar="DEVICE",
        help="end with an error if an operation is on another device; may be given again",
    )

    @property
    def cache_folder(self) -> Path | None:
        """The folder of compiled objects, None where nothing is kept.

        Raises:
            CompileError: `option.bad-value` where it is no folder.
        """
        if self.cache in (None, "", "none"):
            return None
        folder = default_cache() if self.cache == "default" else Path(self.cache)
        if folder is not None and folder.exists() and not folder.is_dir():
            raise error("option.bad-value", f"found cache={str(folder)!r}, which is a file, needed a folder")
        return folder
