"""The meaning of an instruction: its body is run once with symbols, and what it stores is a loop nest.

    for i, j, k in nest(c.shape, a.shape[1]):        for i in 0..m { for j in 0..n { for k in 0..t {
        c[i, j] += i32(a[i, k]) * i32(b[k, j])         c[i, j] = c[i, j] + i32(a[i, k]) * i32(b[k, j]) } } }

`nest` yields once: a symbol for each extent. Elements are the scalars of tensor expressions (`loop.te`), so
what a body may say is what the loop IR can: there is no `if` on values (`where` chooses), and no Python
runs for an element. The function that comes out is plain lowered loops: the interpreter of loops
evaluates it, which is what commands are tested against.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping
from contextvars import ContextVar

from inlay.accel.declare import Access, Format, Instruction, Operand, Size
from inlay.arith.dtype import DType
from inlay.arith.expr import Int, Sym, fresh, lit, substitute, symbols, to_int
from inlay.base.diagnostics import error
from inlay.loop import te
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.stmt import Alloc, For, LoopKind, Stmt, Store
from inlay.loop.te import ScalarValue, ValueLike
from inlay.loop.walk import seq

_OPEN: ContextVar[list[_Level]] = ContextVar("open loops of the body that is run")


class _Level:
    """Statements inside of the same loops, and the numbers that are local to them."""

    def __init__(self) -> None:
        self.stmts: list[Stmt] = []
        self.locals: list[Buffer] = []

    def body(self) -> Stmt:
        """Return all of it."""
        made = seq(*self.stmts)
        for b in reversed(self.locals):
            made = Alloc(b, made)
        return made


def nest(*extents: Size | tuple[Size, ...]) -> Iterator[tuple[Int, ...]]:
    """Yield once a symbolic index for each extent; what is stored meanwhile is inside loops over them."""
    flat: list[Size] = []
    for extent in extents:
        flat += extent if isinstance(extent, tuple) else (extent,)
    indices = [fresh(f"i{n}") for n in range(len(flat))]
    inner = _Level()
    _OPEN.get().append(inner)
    yield tuple(map(to_int, indices))
    _OPEN.get().pop()
    body = inner.body()
    for sym, extent in zip(reversed(indices), reversed(flat), strict=True):
        body = For(sym, lit(0), to_int(extent), LoopKind.SERIAL, body)
    _OPEN.get()[-1].stmts.append(body)


class Local:
    """A number that only the instruction has, a register of it: what is summed before it is written.

        total = Local(i32, b[k])
        for c, r, s in nest(w.shape[1:]):
            total.value += i32(x[c, r, s]) * i32(w[k, c, r, s])
        y[k] = i8(requantize(total.value, mul[k], shift[k], zero, low, high, rounding="tflite"))

    Args:
        format: of the number.
        start: what it is first.
    """

    def __init__(self, format: Format, start: ValueLike) -> None:
        level = _OPEN.get()[-1]
        buffer = Buffer(f"local{sum(len(x.locals) for x in _OPEN.get())}", (), format.dtype, Scope.REGISTER)
        level.locals.append(buffer)
        self._cell = Elements(buffer.name, buffer, Access.UPDATE)
        self.value = start

    @property
    def value(self) -> ScalarValue:
        """What it is now."""
        return self._cell[()]

    @value.setter
    def value(self, x: ValueLike) -> None:
        self._cell[()] = x


class Elements:
    """An operand while a body is run: its elements can be read and stored.

    Attributes:
        shape: extents, over dims.
    """

    def __init__(self, name: str, buffer: Buffer, access: Access) -> None:
        self.shape: tuple[Size, ...] = buffer.shape
        self._name, self._buffer, self._access = name, buffer, access
        self._tensor = te.Tensor(buffer)

    def __getitem__(self, at: Int | int | tuple[Int | int, ...]) -> ScalarValue:
        """Return an element.

        Raises:
            CompileError: `accel.declaration` for a place that data says.
        """
        indices: tuple[object, ...] = at if isinstance(at, tuple) else (at,)
        if any(isinstance(x, ScalarValue) for x in indices):
            raise error(
                "accel.declaration",
                f"found an index of '{self._name}' that is an element of data, needed one over those of "
                "`nest`: no instruction reads a table, which stays with the host",
            )
        return self._tensor[at]

    def __setitem__(self, at: Int | int | tuple[Int | int, ...], value: ValueLike) -> None:
        """Store an element.

        Raises:
            CompileError: `accel.declaration` for an operand that is only read.
        """
        if self._access is Access.READ:
            raise error(
                "accel.declaration",
                f"found a store to '{self._name}', which is declared In",
                hint="declare it Out",
            )
        indices = at if isinstance(at, tuple) else (at,)
        scalar = _wrapped(value, self._buffer.dtype)
        _OPEN.get()[-1].stmts.append(Store(self._buffer, tuple(map(to_int, indices)), scalar.scalar))

    def at(self, *indices: Int | int, outside: ValueLike) -> ScalarValue:
        """Return an element, or a value where an index is outside of its axis."""
        inside = te.all_of(
            *(
                condition
                for index, extent in zip(indices, self._buffer.shape, strict=True)
                for condition in (te.index(index) >= te.index(0), te.index(index) < te.index(extent))
            )
        )
        return te.guarded(inside, self._tensor[indices], outside)


def _wrapped(value: ValueLike, dtype: DType) -> ScalarValue:
    match value:
        case ScalarValue():
            return value
        case Int():
            return te.index(value, dtype)
        case _:
            return te.const(value, dtype)


class Fields:
    """A record while a body is run: `t.bias[o]` is an element of a field."""

    def __init__(self, fields: Mapping[str, Elements]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Elements:
        if name.startswith("_") or name not in self._fields:
            raise AttributeError(f"the record has no '{name}', but {', '.join(self._fields)}")
        return self._fields[name]


@contextlib.contextmanager
def _recording() -> Generator[_Level]:
    outer = _Level()
    token = _OPEN.set([outer])
    try:
        yield outer
    finally:
        _OPEN.reset(token)


def meaning_of(i: Instruction, device: object, sizes: Mapping[Sym, Int]) -> LoopFunction:
    """Return the meaning of an instruction as lowered loops: operands that are read before those written.

    Args:
        i: the instruction.
        device: whose parameters its body may read.
        sizes: of dims and immediates; those that are missing are integer arguments.

    Raises:
        CompileError: `accel.declaration`.
    """
    buffers = {
        name: {key: Buffer(_dotted(name, key), _shape(x, sizes), dtype) for key, dtype in formats(x).items()}
        for name, x in i.operands.items()
    }
    given = {name: _given(name, i.operands[name], found) for name, found in buffers.items()}
    numbers = {name: sizes.get(x.sym, to_int(x.sym)) for name, x in i.immediates.items()}
    with _recording() as outer:
        i.meaning(device, **given, **numbers)
    of = {
        kind: [n for n, x in i.operands.items() if (x.access is Access.READ) is kind]
        for kind in (True, False)
    }
    reads = [b for name in of[True] for b in buffers[name].values()]
    writes = [b for name in of[False] for b in buffers[name].values()]
    dims = dict.fromkeys(s for b in (*reads, *writes) for e in b.shape for s in symbols(e))
    dims |= dict.fromkeys(x.sym for x in i.immediates.values() if x.sym not in sizes)
    return LoopFunction(i.name, (*reads, *writes), len(reads), tuple(dims), outer.body(), Stage.LOWERED)


def formats(x: Operand) -> dict[str, DType]:
    """Return the formats of an operand's fields, by name; of what is no record, under the empty name."""
    return x.record or {"": x.dtype}


def _dotted(name: str, key: str) -> str:
    return f"{name}.{key}" if key else name


def _shape(x: Operand, sizes: Mapping[Sym, Int]) -> tuple[Int, ...]:
    return tuple(substitute(to_int(e), sizes) for e in x.shape)


def _given(name: str, x: Operand, found: Mapping[str, Buffer]) -> Elements | Fields:
    made = {key: Elements(_dotted(name, key), b, x.access) for key, b in found.items()}
    return Fields(made) if x.record else made[""]
