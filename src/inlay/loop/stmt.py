"""Statements of the loop IR: the closed sum, and which forms are legal in which stage.

One package, two stages:

* **Schedulable**: nests of `For` around named `Block`s. A block has an iteration domain (its
  `iters`), a binding of each iter to the loops around it, and reads and writes that follow from its
  body. Schedule primitives transform only this stage.
* **Lowered**: the same nests without blocks: `For`, `While`, `Let`, `Store`, `If`, `Alloc`, ...
  Passes in `lower/` transform it and code generators consume it.

    s ::= for i in lo .. lo+n [kind] { s }   For
        | block name(iters = bindings) where p { init? s }   Block    (schedulable only)
        | while c { s }                      While    (lowered only)
        | let x = s; s                       Let      x is usable as a scalar, and if i64 in indices
        | A[i, j] = s                        Store
        | alloc A; s                         Alloc    contents undefined at first
        | if p { s } else { s }              If
        | s; s                               Seq
        | assert p, "message"                Assert

**Kinds of loops.** `SERIAL`: in order. `PARALLEL`: iterations are independent and may run on
different threads; only outermost. `UNROLL`: serial, written out by the code generator (the extent is
a number). `VECTOR`: iterations are independent, the extent is a number, and the code generator runs
them as one SIMD operation per statement; the body holds `Store`, `Let`, `If` and nothing else. In a
vector loop an index is either free of the loop's variable, has stride 1 in it, or becomes a gather.
`MATRIX`: serial, one of two or three loops of constant extents directly inside one another around one
store, which together are an instruction of a matrix unit: sums in a buffer of scope `MATRIX` are set to
zero, products are added to them, or they are copied to memory.
The meaning of every kind is that of the serial loop; the verifier checks independence where it can.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inlay.arith.expr import Int, Sym
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import Scalar


class LoopKind(StrEnum):
    """How the iterations of a loop are run."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    UNROLL = "unroll"
    VECTOR = "vector"
    MATRIX = "matrix"


class IterKind(StrEnum):
    """What an iter of a block does to the values it writes."""

    SPATIAL = "spatial"
    REDUCE = "reduce"


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """`for var in lo .. lo + extent`, step 1.

    Attributes:
        note: hints for the code generator and for readers, as (key, value) pairs.
    """

    var: Sym
    lo: Int
    extent: Int
    kind: LoopKind
    body: Stmt
    note: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class BlockIter:
    """An iteration variable of a block and its domain `0 .. extent`."""

    sym: Sym
    extent: Int
    kind: IterKind


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A named piece of computation: one write per point of its domain.

    Attributes:
        name: unique in the function; schedules refer to it.
        iters: iteration variables, spatial and reduce.
        bindings: value of each iter at the present point of the surrounding loops.
        predicate: the point belongs to the domain only if this holds (splits that do not divide);
            None = always.
        init: run once for each point of the spatial iters, before the outermost loop over which the
            block reduces, so also when the reduction is empty (see `inits`).
        body: what is done at a point; it mentions iters, never outer loops.
    """

    name: str
    iters: tuple[BlockIter, ...]
    bindings: tuple[Int, ...]
    body: Stmt
    init: Stmt | None = None
    predicate: Scalar | None = None


@dataclass(frozen=True, slots=True, eq=False)
class While:
    """Repeat `body` while `condition` holds, tested first."""

    condition: Scalar
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    """Bind a scalar for the rest of `body`."""

    sym: Sym
    value: Scalar
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Write one element."""

    buffer: Buffer
    indices: tuple[Int, ...]
    value: Scalar


@dataclass(frozen=True, slots=True, eq=False)
class Alloc:
    """A temporary buffer (STACK, REGISTER or WORKSPACE) for the extent of `body`."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """A branch."""

    condition: Scalar
    then: Stmt
    otherwise: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Seq:
    """Statements in order."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Assert:
    """Stop with an error when the condition does not hold."""

    condition: Scalar
    message: str


Stmt = For | Block | While | Let | Store | Alloc | If | Seq | Assert
