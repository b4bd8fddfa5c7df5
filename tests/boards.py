"""Boards of which tests compile."""

from __future__ import annotations

from dataclasses import replace

from inlay.machine.board_file import find_board

_HOST = find_board("host")
PARTED = replace(_HOST, archs=tuple(replace(a, facts=(*a.facts, ("hand_off_ns", 0))) for a in _HOST.archs))
"""This machine, if handing a part of a kernel to a thread took no time: short kernels have parts too."""
