"""The meaning of loop functions: element by element, with checks.

Both stages are evaluated. Integers are Python integers wrapped to their width after each operation,
floats are NumPy scalars of their own format, so that f32 arithmetic is done in f32. Functions such as
`exp` are computed in f64 and rounded once.

What compiled code leaves undefined is an error here:

* an index outside its buffer, and a block's iter outside its domain (`loop.out-of-bounds`);
* a read of an element that nobody wrote, and an output that was not written (`loop.undefined`);
* an integer division by zero (`loop.undefined`);
* two iterations of a parallel or vector loop that touch one element, one of them writing
  (`loop.race`). Buffers allocated inside the loop, and workspaces that each part has for itself,
  cannot race; the latter lose their contents between iterations.

Statements and scalars are turned into closures once and then run; `env` maps symbols to values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

import numpy as np

from inlay.arith.dtype import DType, Kind
from inlay.arith.expr import Atom, FloorDiv, Int, Max, Min, Mod, Sym
from inlay.base.diagnostics import InlayError, error
from inlay.interp.loop_scalars import binary, convert, intrinsic, unary, wrapper
from inlay.loop.buffer import Buffer
from inlay.loop.dots import plain_sum
from inlay.loop.func import LoopFunction
from inlay.loop.inits import hoist_inits
from inlay.loop.printer import print_scalar, print_stmt
from inlay.loop.scalar import (
    Binary,
    BinaryOp,
    Bind,
    Cast,
    Dot,
    Index,
    Intrinsic,
    Lit,
    Load,
    Name,
    Reduce,
    Scalar,
    Select,
    Unary,
)
from inlay.loop.stmt import Alloc, Assert, Block, For, If, Let, LoopKind, Seq, Stmt, Store, While

Env = dict[int, Any]
"""Values of symbols, by what identifies them: Python integers, and NumPy scalars for lets of floats."""
Code = Callable[[Env], Any]


def run(
    f: LoopFunction, inputs: Sequence[np.ndarray], dims: Mapping[Sym, int] | None = None
) -> tuple[np.ndarray, ...]:
    """Evaluate a function and return what it writes.

    Args:
        f: schedulable or lowered, well formed.
        inputs: one array for each read parameter, or one of another shape with as many elements:
            a kernel sees bytes, in row-major order.
        dims: values of `f.dims`.

    Raises:
        CompileError: `loop.argument`, `loop.out-of-bounds`, `loop.undefined`, `loop.race`,
            `loop.assert`.
    """
    env: Env = {sym.uid: value for sym, value in (dims or {}).items()}
    machine = _Machine(f, env)
    reads, writes = f.params[: f.n_reads], f.params[f.n_reads :]
    if len(inputs) != len(reads):
        raise error("loop.argument", f"found {len(inputs)} inputs, {f.name} takes {len(reads)}")
    for b, array in zip(reads, inputs, strict=True):
        machine.give(b, array)
    for b in (*writes, *f.workspaces):
        machine.allocate(b)
    with np.errstate(all="ignore"):
        machine.stmt(hoist_inits(f.body))(env)
    for b in writes:
        if (missing := machine.memory[b].missing()) is not None:
            raise _fault("undefined", f"found output {b.name} without a value at {missing}", f)
    return tuple(machine.memory[b].array() for b in writes)


def _fault(kind: str, message: str, f: LoopFunction, where: str = "") -> InlayError:
    notes = [f"in: {where}"] if where else []
    return error(f"loop.{kind}", message, notes=[*notes, f"function {f.name}"])


_NOTHING = object()
"""What is in an element that nobody wrote."""


class _Memory:
    """The contents of a buffer, row by row, as values of scalars or `_NOTHING`.

    Attributes:
        shape: of the buffer.
        values: of its elements.
        depth: number of racing loops (parallel or vector) outside its allocation.
        kind: of the values: Python integers and booleans, NumPy floats.
    """

    __slots__ = ("depth", "dtype", "kind", "shape", "values")

    def __init__(self, shape: tuple[int, ...], values: list[Any], depth: int, dtype: DType) -> None:
        self.shape = shape
        self.values = values
        self.depth = depth
        self.dtype = dtype
        self.kind: Any = dtype.numpy.type
        if dtype.is_integer or dtype.kind is Kind.BOOL:
            self.kind = bool if dtype.kind is Kind.BOOL else int

    def array(self) -> np.ndarray:
        """Return the contents, all of which have been written."""
        return np.array(self.values, self.dtype.numpy).reshape(self.shape)

    def missing(self) -> list[int] | None:
        """Return the indices of the first element that nobody wrote, None if there is none."""
        found = next((n for n, value in enumerate(self.values) if value is _NOTHING), None)
        return None if found is None else _indices(found, self)


class _Race:
    """Who touched what in one run of a parallel or vector loop.

    `touched` maps an element to the iteration that did and whether it wrote; iteration -1 stands
    for several readers.
    """

    __slots__ = ("iteration", "loop", "touched")

    def __init__(self, loop: For) -> None:
        self.loop = loop
        self.iteration = 0
        self.touched: dict[tuple[Buffer, int], tuple[int, bool]] = {}

    def clashes(self, key: tuple[Buffer, int], *, writes: bool) -> bool:
        before = self.touched.get(key)
        if before is None:
            self.touched[key] = (self.iteration, writes)
            return False
        who, wrote = before
        if who == self.iteration:
            self.touched[key] = (who, wrote or writes)
            return False
        if writes or wrote:
            return True
        self.touched[key] = (-1, False)
        return False


class _Machine:
    """Turns nodes into closures over one set of memories."""

    def __init__(self, f: LoopFunction, env: Env) -> None:
        self._f = f
        self._env = env
        self._races: list[_Race] = []
        self._index_code: dict[Int, Callable[[Env], int]] = {}
        self._indices_code: dict[tuple[Int, ...], Callable[[Env], tuple[int, ...]]] = {}
        self._address_code: dict[tuple[Int, ...], Callable[[Env, _Memory], int | None]] = {}
        self._never_written = set(f.params[: f.n_reads])
        self.memory: dict[Buffer, _Memory] = {}

    # ---------------------------------------------------------------- memory

    def give(self, b: Buffer, array: np.ndarray) -> None:
        """Bind a read parameter."""
        shape = self._shape(b)
        if array.size == math.prod(shape):
            array = array.reshape(shape)
        if array.shape != shape or array.dtype != b.dtype.numpy:
            raise error(
                "loop.argument",
                f"found {array.dtype}{list(array.shape)} for {b.name}, needed {b.dtype}{list(shape)}",
            )
        is_boxed = b.dtype.is_integer or b.dtype.kind is Kind.BOOL
        values = array.reshape(-1)
        self.memory[b] = _Memory(shape, values.tolist() if is_boxed else list(values), 0, b.dtype)

    def allocate(self, b: Buffer) -> None:
        """Make a buffer without contents."""
        shape = self._shape(b)
        self.memory[b] = _Memory(shape, [_NOTHING] * math.prod(shape), len(self._races), b.dtype)

    def _shape(self, b: Buffer) -> tuple[int, ...]:
        return self.ints(b.shape)(self._env)

    def _touch(self, b: Buffer, at: int, memory: _Memory, *, writes: bool) -> None:
        if b.per_part or b in self._never_written:
            return
        for race in self._races[memory.depth :] if memory.depth else self._races:
            if race.clashes((b, at), writes=writes):
                raise _fault(
                    "race",
                    f"found element {_indices(at, memory)} of {b.name} touched by iterations "
                    f"{race.touched[b, at][0]} and {race.iteration} of {race.loop.kind} loop "
                    f"{race.loop.var.name}",
                    self._f,
                )

    def _outside(self, b: Buffer, at: tuple[int, ...], where: str) -> InlayError:
        message = f"found index {list(at)} into {b.name} of shape {list(self.memory[b].shape)}"
        return _fault("out-of-bounds", message, self._f, where)

    # ---------------------------------------------------------------- integers

    def int(self, e: Int) -> Callable[[Env], int]:
        """Return code for an integer expression."""
        code = self._index_code.get(e)
        if code is None:
            code = self._index_code[e] = _int_code(e)
        return code

    def ints(self, expressions: tuple[Int, ...]) -> Callable[[Env], tuple[int, ...]]:
        """Return code for several, which gives all of them at once."""
        code = self._indices_code.get(expressions)
        if code is None:
            code = self._indices_code[expressions] = _ints_code(expressions)
        return code

    def address(self, b: Buffer, indices: tuple[Int, ...]) -> Callable[[Env, _Memory], int | None]:
        """Return code for the place of an element, which gives None where an index is outside."""
        assert len(indices) == len(b.shape), "a buffer is read and written by all its axes"
        code = self._address_code.get(indices)
        if code is None:
            code = self._address_code[indices] = _address_code(indices)
        return code

    # ---------------------------------------------------------------- statements

    def stmt(self, s: Stmt) -> Code:
        """Return code that runs a statement."""
        match s:
            case Store():
                return self._store(s)
            case For():
                return self._for(s)
            case Seq(stmts=stmts):
                return self._sequence(stmts)
            case Block():
                return self._block(s)
            case Let(sym=sym, value=value, body=body):
                return self._let(sym, self.scalar(value), self.stmt(body))
            case Alloc(buffer=buffer, body=body):
                return self._alloc(buffer, body)
            case If(condition=condition, then=then, otherwise=otherwise):
                other = None if otherwise is None else self.stmt(otherwise)
                return self._if(self.scalar(condition), self.stmt(then), other)
            case While(condition=condition, body=body):
                return self._while(self.scalar(condition), self.stmt(body))
            case Assert():
                return self._assert(s)
            case _:
                assert_never(s)

    def _sequence(self, stmts: tuple[Stmt, ...]) -> Code:
        codes = [self.stmt(x) for x in stmts]

        def run_all(env: Env) -> None:
            for code in codes:
                code(env)

        return run_all

    def _store(self, s: Store) -> Code:
        value, address, indices = (
            self.scalar(s.value),
            self.address(s.buffer, s.indices),
            self.ints(s.indices),
        )
        b = s.buffer

        def store(env: Env) -> None:
            result = value(env)
            memory = self.memory[b]
            at = address(env, memory)
            if at is None:
                raise self._outside(b, indices(env), print_stmt(s))
            if self._races:
                self._touch(b, at, memory, writes=True)
            memory.values[at] = result if type(result) is memory.kind else memory.kind(result)

        return store

    def _for(self, s: For) -> Code:
        lo, extent, body, var = self.int(s.lo), self.int(s.extent), self.stmt(s.body), s.var.uid
        if s.kind in (LoopKind.PARALLEL, LoopKind.VECTOR):
            return self._racing_for(s, body)

        def loop(env: Env) -> None:
            first = lo(env)
            for i in range(first, first + extent(env)):
                env[var] = i
                body(env)

        return loop

    def _racing_for(self, s: For, body: Code) -> Code:
        lo, extent, var = self.int(s.lo), self.int(s.extent), s.var.uid

        def loop(env: Env) -> None:
            race = _Race(s)
            self._races.append(race)
            first = lo(env)
            for i in range(first, first + extent(env)):
                race.iteration = env[var] = i
                if s.kind is LoopKind.PARALLEL:
                    self._forget_parts()
                body(env)
            self._races.pop()

        return loop

    def _forget_parts(self) -> None:
        for b, memory in self.memory.items():
            if b.per_part:
                memory.values[:] = [_NOTHING] * len(memory.values)

    def _block(self, s: Block) -> Code:
        bind = _bindings_code([(i.sym, b, i.extent) for i, b in zip(s.iters, s.bindings, strict=True)])
        predicate = None if s.predicate is None else self.scalar(s.predicate)
        body = self.stmt(s.body)

        def block(env: Env) -> None:
            if predicate is not None and not predicate(env):
                return
            if (outside := bind(env)) is not None:
                name, at, extent = s.iters[outside].sym.name, *self._at(env, s, outside)
                message = f"found {name} = {at} in a domain of {extent}"
                raise _fault("out-of-bounds", message, self._f, f"block {s.name}")
            body(env)

        return block

    def _at(self, env: Env, s: Block, number: int) -> tuple[int, int]:
        """Return where an iter of a block is, and its extent."""
        return self.int(s.bindings[number])(env), self.int(s.iters[number].extent)(env)

    def _let(self, sym: Sym, value: Code, body: Code) -> Code:
        def let(env: Env) -> None:
            env[sym.uid] = value(env)
            body(env)

        return let

    def _alloc(self, b: Buffer, body: Stmt) -> Code:
        code = self.stmt(body)

        def alloc(env: Env) -> None:
            self.allocate(b)
            code(env)

        return alloc

    def _if(self, condition: Code, then: Code, otherwise: Code | None) -> Code:
        def branch(env: Env) -> None:
            if condition(env):
                then(env)
            elif otherwise is not None:
                otherwise(env)

        return branch

    def _while(self, condition: Code, body: Code) -> Code:
        def loop(env: Env) -> None:
            while condition(env):
                body(env)

        return loop

    def _assert(self, s: Assert) -> Code:
        condition = self.scalar(s.condition)

        def check(env: Env) -> None:
            if not condition(env):
                raise _fault("assert", s.message, self._f, print_scalar(s.condition))

        return check

    # ---------------------------------------------------------------- scalars

    def scalar(self, x: Scalar) -> Code:
        """Return code for a scalar: a Python integer or bool, or a NumPy float."""
        match x:
            case Lit(value=value, dtype=dtype):
                constant = dtype.numpy.type(value) if dtype.is_float else value
                return lambda env: constant
            case Index(value=value, dtype=dtype):
                code, wrapped = self.int(value), wrapper(dtype)
                return lambda env: wrapped(code(env))
            case Name(sym=sym):
                return lambda env: env[sym.uid]
            case Load():
                return self._load(x)
            case Unary(op=op, operand=operand):
                return _apply1(unary(op, x.dtype), self.scalar(operand))
            case Binary(op=op, lhs=lhs, rhs=rhs):
                return self._binary(op, lhs, rhs)
            case Select(condition=condition, then=then, otherwise=otherwise):
                c, a, b = self.scalar(condition), self.scalar(then), self.scalar(otherwise)
                return lambda env: a(env) if c(env) else b(env)
            case Cast(operand=operand, dtype=dtype):
                return _apply1(lambda v: convert(v, dtype), self.scalar(operand))
            case Intrinsic(op=op, args=args, dtype=dtype):
                function = intrinsic(op, args[0].dtype, dtype)
                codes = [self.scalar(a) for a in args]
                return lambda env: function(*[code(env) for code in codes])
            case Bind(sym=sym, value=value, body=body):
                return self._bind(sym, self.scalar(value), self.scalar(body))
            case Dot():
                return self.scalar(plain_sum(x))
            case Reduce():
                raise _fault("stage", "found a reduce in a statement", self._f)
            case _:
                assert_never(x)

    def _load(self, x: Load) -> Code:
        b, address, indices = x.buffer, self.address(x.buffer, x.indices), self.ints(x.indices)

        def load(env: Env) -> Any:
            memory = self.memory[b]
            at = address(env, memory)
            if at is None:
                raise self._outside(b, indices(env), print_scalar(x))
            value = memory.values[at]
            if value is _NOTHING:
                raise _fault("undefined", f"found {b.name}{_indices(at, memory)} without a value", self._f)
            if self._races:
                self._touch(b, at, memory, writes=False)
            return value

        return load

    def _binary(self, op: BinaryOp, lhs: Scalar, rhs: Scalar) -> Code:
        function, a, b = binary(op, lhs.dtype), self.scalar(lhs), self.scalar(rhs)
        where = print_scalar

        def apply(env: Env) -> Any:
            try:
                return function(a(env), b(env))
            except ZeroDivisionError:
                message = "found an integer division by zero"
                raise _fault("undefined", message, self._f, where(rhs)) from None

        return apply

    def _bind(self, sym: Sym, value: Code, body: Code) -> Code:
        def bind(env: Env) -> Any:
            env[sym.uid] = value(env)
            return body(env)

        return bind


def _apply1(function: Callable[[Any], Any], operand: Code) -> Code:
    return lambda env: function(operand(env))


# --------------------------------------------------------------------------- integer expressions


def _int_code(e: Int) -> Callable[[Env], int]:
    """Compile an integer expression through Python's own compiler: indices are most of the work."""
    return eval(f"lambda env: {_text(e)}")


def _ints_code(expressions: Sequence[Int]) -> Callable[[Env], tuple[int, ...]]:
    """Compile several."""
    return eval(f"lambda env: ({''.join(f'{_text(e)}, ' for e in expressions)})")


def _bindings_code(bindings: Sequence[tuple[Sym, Int, Int]]) -> Callable[[Env], int | None]:
    """Compile what gives symbols values below extents; it returns which is outside, if any."""
    lines = [
        f"    env[{sym.uid}] = at = {_text(value)}\n    if not 0 <= at < {_text(extent)}: return {n}\n"
        for n, (sym, value, extent) in enumerate(bindings)
    ]
    found: dict[str, Callable[[Env], int | None]] = {}
    exec(f"def bind(env):\n{''.join(lines)}    return None\n", found)
    return found["bind"]


def _address_code(indices: Sequence[Int]) -> Callable[[Env, _Memory], int | None]:
    """Compile the place of an element in its buffer, row by row, with checks of its indices."""
    if not indices:
        return lambda _env, _memory: 0
    shapes = ["(shape := memory.shape)", *["shape"] * (len(indices) - 1)]
    inside = [f"0 <= (i{n} := {_text(e)}) < {shapes[n]}[{n}]" for n, e in enumerate(indices)]
    place = "i0"
    for n in range(1, len(indices)):
        place = f"({place}) * shape[{n}] + i{n}"
    return eval(f"lambda env, memory: {place} if {' and '.join(inside)} else None")


def _indices(place: int, memory: _Memory) -> list[int]:
    """Return the indices of an element."""
    return [int(i) for i in np.unravel_index(place, memory.shape)] if memory.shape else []


def _text(e: Int) -> str:
    terms = ["*".join([str(c), *map(_atom_text, monomial)]) for monomial, c in e.terms]
    return f"({' + '.join(terms)})" if terms else "0"


def _atom_text(a: Atom) -> str:
    match a:
        case Sym():
            return f"env[{a.uid}]"
        case FloorDiv(numerator=x, denominator=y):
            return f"({_text(x)} // {_text(y)})"
        case Mod(numerator=x, denominator=y):
            return f"({_text(x)} % {_text(y)})"
        case Min(args=args):
            return f"min({', '.join(map(_text, args))})"
        case Max(args=args):
            return f"max({', '.join(map(_text, args))})"
        case _:
            assert_never(a)
