"""The board that programs are compiled for: checked, and in agreement with the devices that are here.

The file of a board that many machines have, such as `opencl`, can only guess: one machine has a GPU
of a hundred compute units behind that name, another its own processor. An architecture with
`detect = true` says that its figures are such guesses. Where its back end finds the device, they are
replaced by what the device says of itself; where it does not, they serve for planning.
"""

from __future__ import annotations

from inlay.codegen.backend_table import backend_of, no_host, passed_over
from inlay.codegen.interface import Detection
from inlay.machine.board import Board
from inlay.machine.board_check import Use
from inlay.machine.board_file import find_board
from inlay.ops.table import table
from inlay.pipeline.devices import runnable


def find_usable(name: str | Board) -> Board:
    """Return a board (`find_board`) that programs can use: one check for all who compile or ask.

    Raises:
        CompileError: `name.unknown`, `load.missing`, `board.invalid`.
    """
    return find_board(name, Use({d.name for d in table()}, runnable, no_host, passed_over))


def find_detected(name: str | Board) -> Board:
    """Return a board that programs can use with what its devices say of themselves.

    Raises:
        CompileError: as `find_usable`.
    """
    return detected(find_usable(name))[0]


def detected(board: Board) -> tuple[Board, tuple[Detection, ...]]:
    """Return a board with figures of the devices that are here, and those devices."""
    found: list[Detection] = []
    for arch in board.archs:
        device = next((d.name for d in board.devices if d.arch == arch.name), None)
        if not arch.detect or device is None:
            continue
        backend = backend_of(board, device)
        here = None if backend is None else backend.detect(board, arch)
        if here is not None:
            board = here[0]
            found.append(here[1])
    return board, tuple(found)
