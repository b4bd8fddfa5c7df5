"""One compiled kernel as bytes: what the object cache stores.

A unit is an object and the facts that go with it, independent of the kernel's name and of the
identity of its dims, so that equal kernels of different programs are one entry.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inlay.arith.expr import (
    Atom,
    FloorDiv,
    Int,
    Max,
    Min,
    Mod,
    Sym,
    floordiv,
    fresh,
    lit,
    maximum,
    minimum,
    mod,
    to_int,
)
from inlay.ir.kernel import Accesses, Workspace


@dataclass(frozen=True, slots=True)
class Unit:
    """A compiled kernel.

    Attributes:
        data: relocatable object.
        phases: symbol of each phase and whether parts share it.
        dims: symbols of `workspace`.
        workspace: scratch over `dims`, if any.
        assertions: messages, in order.
        stack: bytes of temporaries on the stack of one caller.
        accesses: when it touches its tensors.
    """

    data: bytes
    phases: tuple[tuple[str, bool], ...]
    dims: tuple[Sym, ...]
    workspace: Workspace | None
    assertions: tuple[str, ...]
    stack: int
    accesses: Accesses

    def to_bytes(self) -> bytes:
        """Return the stored form: a JSON head of known length, then the object."""
        w, a = self.workspace, self.accesses
        head = json.dumps(
            {
                "phases": self.phases,
                "dims": [d.name for d in self.dims],
                "workspace": w and [_dump(w.bytes, self.dims), w.alignment, w.per_part, w.memory],
                "assertions": self.assertions,
                "stack": self.stack,
                "accesses": [a.phases, a.used, a.overlays, [_dump(e, self.dims) for e in a.lies]],
            }
        ).encode()
        return len(head).to_bytes(4, "little") + head + self.data


def from_bytes(data: bytes) -> Unit:
    """Read the stored form; dims are fresh symbols."""
    size = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + size])
    dims = tuple(fresh(name) for name in head["dims"])
    workspace = head["workspace"]
    return Unit(
        data[4 + size :],
        tuple((symbol, parallel) for symbol, parallel in head["phases"]),
        dims,
        None if workspace is None else Workspace(_read(workspace[0], dims), *workspace[1:]),
        tuple(head["assertions"]),
        head["stack"],
        _accesses(dims, *head["accesses"]),
    )


def _accesses(
    dims: Sequence[Sym], phases: int, used: list[list[int]], overlays: list[list[int]], lies: list[Any]
) -> Accesses:
    first, second = (tuple((a, b) for a, b in found) for found in (used, overlays))
    return Accesses(phases, first, second, tuple(_read(e, dims) for e in lies))


def _dump(e: Int, dims: Sequence[Sym]) -> list[Any]:
    return [[c, [_dump_atom(a, dims) for a in monomial]] for monomial, c in e.terms]


def _dump_atom(atom: Atom, dims: Sequence[Sym]) -> Any:
    match atom:
        case Sym():
            return dims.index(atom)
        case FloorDiv(numerator=n, denominator=d):
            return ["div", _dump(n, dims), _dump(d, dims)]
        case Mod(numerator=n, denominator=d):
            return ["mod", _dump(n, dims), _dump(d, dims)]
        case Min(args=args):
            return ["min", *(_dump(a, dims) for a in args)]
        case Max(args=args):
            return ["max", *(_dump(a, dims) for a in args)]


def _read(terms: list[Any], dims: Sequence[Sym]) -> Int:
    total = lit(0)
    for c, atoms in terms:
        product = lit(c)
        for atom in atoms:
            product = product * _read_atom(atom, dims)
        total = total + product
    return total


def _read_atom(atom: Any, dims: Sequence[Sym]) -> Int:
    if isinstance(atom, int):
        return to_int(dims[atom])
    kind, *rest = atom
    args = [_read(a, dims) for a in rest]
    make = {"div": floordiv, "mod": mod, "min": minimum, "max": maximum}[kind]
    return make(*args)
