"""What a code generator is: lowered loop functions in, one image and a kernel table out.

    artifact = generator.compile([Request("k0", lambda: function, key), ...])
    artifact.image.data          # position-independent bytes for the program
    artifact.kernels["k0"]       # its phases, workspace and assertions

A request gives its function as a callable, because with a *key* of what the function is made from
(structural hash of the primitive function, names and versions of rules) a cached kernel is found
without lowering anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inlay.arith.expr import Int, Sym
from inlay.codegen.image import Image
from inlay.loop.func import LoopFunction


@dataclass(frozen=True, slots=True)
class Request:
    """A kernel to compile.

    Attributes:
        name: of the kernel, unique among the requests.
        lower: makes the lowered function; called only if the kernel is not cached by `key`.
        key: text that determines what `lower` returns, or empty.
        in_place: positions of parameters that may share bytes with another parameter.
    """

    name: str
    lower: Callable[[], LoopFunction]
    key: str = ""
    in_place: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PhaseCode:
    """A phase in an image.

    Attributes:
        offset: of its first instruction, in bytes.
        parallel: whether every part calls it (else one caller, as part 0 of 1).
    """

    offset: int
    parallel: bool


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A kernel in an image.

    Attributes:
        name: as requested.
        phases: in order; all parts of one end before the next begins.
        dims: symbols that stand for the integer arguments, in order.
        workspace: bytes of scratch over `dims`, 0 for none; its address follows the parameters'.
        workspace_per_part: whether a caller with p parts gives p times as many bytes.
        assertions: messages; a phase returns the number of the one that failed, from 1, else 0.
        cached: whether it came from the cache.
    """

    name: str
    phases: tuple[PhaseCode, ...]
    dims: tuple[Sym, ...]
    workspace: Int
    workspace_per_part: bool
    assertions: tuple[str, ...]
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Artifact:
    """What compiling gives."""

    image: Image
    kernels: dict[str, KernelCode]
