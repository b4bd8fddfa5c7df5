"""Random programs for the laws of this package: all verify, most run to their end, and some fail.

A program has a few functions that call later ones, an entry that takes two tensors, branches,
loops in a frame and by tail calls, closures, aggregates, cells, views and callback kernels. Memory
is written before it is read, so that a program means one thing; now and then an operand is wrong
on purpose, so that failures are compared too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from inlay.bytecode.builder import FunctionBuilder, ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Constant, Entry, HostBody, Kernel, Program
from tests.unit.runtime.programs import spec

SIZES = {"i64": 8, "f32": 4, "u8": 1}
SHAPES = [(), (3,), (2, 3), (0, 2), (4,), (1, 3)]


@dataclass(frozen=True)
class Type:
    """What the generator knows of a value; `parts` are dims or types of fields."""

    kind: Kind
    name: object = None
    parts: tuple = ()


INT = Type(Kind.INT)


def tensor(dtype: str, *dims: int) -> Type:
    return Type(Kind.TENSOR, dtype, dims)


X, Y = tensor("i64", 3), tensor("f32", 2, 3)


def fill(tensors: list[np.ndarray], integers: list[int]) -> None:
    """Write values that depend on the integer and the position."""
    (out,) = tensors
    values = (np.arange(out.size, dtype=np.int64) * 7 + integers[0]) % 50
    out[...] = values.astype(out.dtype).reshape(out.shape)


def combine(tensors: list[np.ndarray], integers: list[int]) -> None:
    """Write a mixture of one tensor's sum into another."""
    source, out = tensors
    total = int(source.astype(np.int64).sum()) % 97
    out[...] = ((out.astype(np.int64) + total + integers[0]) % 50).astype(out.dtype)


CALLBACKS = {"fill": fill, "combine": combine}


class Generator:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.program = ProgramBuilder()
        self.fill = self.program.kernel(Kernel("fill", (AccessCode.WRITE,), 1, HostBody("fill")))
        self.combine = self.program.kernel(
            Kernel("combine", (AccessCode.READ, AccessCode.READ_WRITE), 1, HostBody("combine"))
        )
        self.constants = {
            X: self.program.constant(Constant("i64", (3,), np.array([4, 5, 6]))),
            Y: self.program.constant(Constant("f32", (2, 3), np.ones((2, 3), np.float32))),
        }
        self.signatures: list[tuple[FunctionBuilder, list[Type], list[Type]]] = []

    def program_of(self) -> Program:
        self.declare("main", [X, Y], [X, Y])
        for index in range(self.random.randint(1, 4)):
            params = [self.simple_type() for _ in range(self.random.randint(0, 3))]
            results = [self.simple_type() for _ in range(self.random.randint(0, 2))]
            self.declare(f"f{index}", params, results)
        for index, (f, params, results) in enumerate(self.signatures):
            Body(self, f, index, params).write(results)
        main = self.signatures[0][0]
        specs = (spec("x", "i64", "3", []), spec("y", "f32", "2, 3", []))
        self.program.entry(Entry("main", main.index, specs, specs))
        return self.program.finish()

    def declare(self, name: str, params: list[Type], results: list[Type]) -> None:
        f = self.program.function(name, [p.kind for p in params], [r.kind for r in results])
        self.signatures.append((f, params, results))

    def simple_type(self) -> Type:
        return self.random.choice(
            [
                INT,
                INT,
                X,
                Y,
                self.tensor_type(),
                Type(Kind.TUPLE, None, (INT, X)),
                Type(Kind.ADT, 2, (INT,)),
                Type(Kind.CELL, None, (INT,)),
            ]
        )

    def tensor_type(self) -> Type:
        return tensor(self.random.choice(list(SIZES)), *self.random.choice(SHAPES))


class Body:
    """Writes the code of one function; `types` are those of its slots, None where empty."""

    def __init__(self, g: Generator, f: FunctionBuilder, index: int, params: list[Type]) -> None:
        self.g, self.f, self.index = g, f, index
        self.random = g.random
        self.types: list[Type | None] = list(params)
        self.nesting = 0
        # Slots below are finished values; those above are operands of the current statement.
        self.floor = len(params)

    def write(self, results: list[Type]) -> None:
        self.f.at(f"function {self.index}")
        self.statements(self.random.randint(2, 12))
        for result in results:
            self.make(result)
        self.f.emit("RETURN")

    def emit(self, name: str, *operands, pops: int = 0, pushes: tuple[Type, ...] = ()) -> None:
        self.f.emit(name, *operands)
        if pops:
            del self.types[-pops:]
        self.types += pushes
        assert not self.f.reachable or self.f.depth == len(self.types), name

    # ------------------------------------------------------------------ values

    def find(self, kind: Kind | None = None, type: Type | None = None) -> int | None:
        slots = [
            i
            for i, t in enumerate(self.types)
            if t is not None and kind in (None, t.kind) and type in (None, t)
        ]
        return self.random.choice(slots) if slots else None

    def get(self, slot: int) -> Type:
        """Push a slot, by copy or by move."""
        type = self.types[slot]
        assert type is not None
        if self.nesting == 0 and slot < self.floor and self.random.random() < 0.2:
            self.emit("MOVE", slot, pushes=(type,))
            self.types[slot] = None
        else:
            self.emit("COPY", slot, pushes=(type,))
        return type

    def integer(self) -> None:
        slot = self.find(Kind.INT)
        if slot is not None and self.random.random() < 0.6:
            self.get(slot)
        else:
            value = self.random.choice([0, 1, 2, 3, -1, 5, 1 << 40, self.random.randint(-9, 9)])
            self.emit("INT", value, pushes=(INT,))

    def small(self, value: int) -> None:
        """Push an integer that is right, or now and then wrong."""
        if self.random.random() < 0.02:
            value += self.random.choice([-1, 1, 100])
        self.emit("INT", value, pushes=(INT,))

    def make(self, type: Type) -> None:
        """Push a value of a type."""
        slot = self.find(type=type)
        if slot is not None and self.random.random() < 0.8:
            self.get(slot)
            return
        match type.kind:
            case Kind.INT:
                self.integer()
            case Kind.TENSOR:
                if type in self.g.constants and self.random.random() < 0.3:
                    self.emit("CONST", self.g.constants[type], pushes=(type,))
                else:
                    self.allocate(type)
            case Kind.TUPLE | Kind.ADT | Kind.CELL:
                for part in type.parts:
                    self.make(part)
                n = len(type.parts)
                if type.kind is Kind.TUPLE:
                    self.emit("TUPLE", n, pops=n, pushes=(type,))
                elif type.kind is Kind.ADT:
                    self.emit("CONSTRUCT", type.name, n, pops=n, pushes=(type,))
                else:
                    self.emit("CELL_NEW", pops=1, pushes=(type,))
            case _:
                raise AssertionError(type)

    def allocate(self, type: Type) -> None:
        rank = len(type.parts)
        if self.random.random() < 0.5:
            for dim in type.parts:
                self.small(dim)
            self.emit("ALLOCATE", 0, type.name, rank, pops=rank, pushes=(type,))
        else:
            size = SIZES[type.name]
            for dim in type.parts:
                size *= dim
            self.small(size + 16)
            self.emit("STORAGE", 0, 64, pops=1, pushes=(Type(Kind.STORAGE),))
            self.small(self.random.choice([0, 8, 16]))
            for dim in type.parts:
                self.small(dim)
            self.emit("TENSOR", type.name, rank, pops=rank + 2, pushes=(type,))
        self.emit("COPY", len(self.types) - 1, pushes=(type,))
        self.integer()
        self.emit("INVOKE", self.g.fill, pops=2)

    # ------------------------------------------------------------------ statements

    def statements(self, count: int) -> None:
        choices = [
            self.arithmetic,
            self.arithmetic,
            self.aggregate,
            self.look,
            self.cells,
            self.view,
            self.append,
            self.in_place,
            self.combine,
            self.ints_and_tensors,
            self.call,
            self.closure,
            self.branch,
            self.loop,
            self.check,
            self.drop,
        ]
        for _ in range(count):
            self.random.choice(choices)()
            self.floor = len(self.types)

    def arithmetic(self) -> None:
        name = self.random.choice(
            [
                "ADD",
                "SUB",
                "MUL",
                "FLOORDIV",
                "MOD",
                "MIN",
                "MAX",
                "EQ",
                "NE",
                "LT",
                "LE",
                "AND",
                "OR",
                "NEG",
                "NOT",
                "SELECT",
            ]
        )
        count = {"NEG": 1, "NOT": 1, "SELECT": 3}.get(name, 2)
        for _ in range(count):
            self.integer()
        if name in ("FLOORDIV", "MOD") and self.random.random() < 0.9:
            self.emit("POP", 1, pops=1)
            self.emit("INT", self.random.choice([-3, -1, 2, 7]), pushes=(INT,))
        if name in ("ADD", "SUB", "MUL", "NEG") and self.random.random() < 0.9:
            # Keep values small, so that overflow is the exception.
            self.emit("INT", 1000, pushes=(INT,))
            self.emit("MOD", pops=2, pushes=(INT,))
        self.emit(name, pops=count, pushes=(INT,))

    def aggregate(self) -> None:
        slots = [i for i, t in enumerate(self.types) if t is not None]
        chosen = [self.random.choice(slots) for _ in range(self.random.randint(0, 3)) if slots]
        # Copied, because a slot may be chosen twice.
        parts = tuple(self.types[i] for i in chosen)
        for slot in chosen:
            self.emit("COPY", slot, pushes=(self.types[slot],))
        n = len(parts)
        if self.random.random() < 0.5:
            self.emit("TUPLE", n, pops=n, pushes=(Type(Kind.TUPLE, None, parts),))
        else:
            tag = self.random.randint(0, 3)
            self.emit("CONSTRUCT", tag, n, pops=n, pushes=(Type(Kind.ADT, tag, parts),))

    def look(self) -> None:
        slot = self.find(self.random.choice([Kind.TUPLE, Kind.ADT]))
        if slot is None:
            return
        type = self.get(slot)
        if type.kind is Kind.ADT and self.random.random() < 0.3:
            self.emit("TAG", pops=1, pushes=(INT,))
            return
        n = len(type.parts)
        if self.random.random() < 0.4:
            wrong = self.random.random() < 0.03
            self.emit("UNPACK", n + wrong, pops=1, pushes=(*type.parts, *[INT] * wrong))
        elif n:
            index = self.random.randrange(n)
            past = 9 if self.random.random() < 0.03 else 0
            name = "PROJECT" if type.kind is Kind.TUPLE else "FIELD"
            self.emit(name, index + past, pops=1, pushes=(type.parts[index],))
        else:
            self.emit("POP", 1, pops=1)

    def cells(self) -> None:
        slot = self.find(Kind.CELL)
        if slot is None:
            inner = self.find()
            if inner is not None:
                type = self.get(inner)
                self.emit("CELL_NEW", pops=1, pushes=(Type(Kind.CELL, None, (type,)),))
            return
        type = self.get(slot)
        if self.random.random() < 0.5:
            self.emit("CELL_READ", pops=1, pushes=type.parts)
        else:
            self.make(type.parts[0])
            self.emit("CELL_WRITE", pops=2)

    def view(self) -> None:
        slot = self.find(Kind.TENSOR)
        if slot is None:
            return
        type = self.get(slot)
        dims = type.parts
        what = self.random.choice(["ROW", "ROWS", "RESHAPE", "DIM", "DIMS", "ELEMENTS", "CHECK"])
        if what in ("ROW", "ROWS") and dims and dims[0]:
            start = self.random.randrange(dims[0])
            self.small(start)
            if what == "ROW":
                self.emit("ROW", pops=2, pushes=(tensor(type.name, *dims[1:]),))
            else:
                count = self.random.randint(0, dims[0] - start)
                self.small(count)
                self.emit("ROWS", pops=3, pushes=(tensor(type.name, count, *dims[1:]),))
        elif what == "RESHAPE":
            size = int(np.prod(dims, dtype=np.int64))
            self.small(1)
            self.small(size)
            self.emit("RESHAPE", 2, pops=3, pushes=(tensor(type.name, 1, size),))
        elif what == "DIM" and dims:
            axis = self.random.randrange(len(dims) + (self.random.random() < 0.05))
            self.emit("DIM", axis, pops=1, pushes=(INT,))
        elif what == "DIMS":
            self.emit("DIMS", len(dims), pops=1, pushes=(INT,) * len(dims))
        elif what == "ELEMENTS":
            self.emit("ELEMENTS", pops=1, pushes=(INT,))
        elif what == "CHECK":
            dtype = type.name if self.random.random() < 0.95 else "bf16"
            self.emit("CHECK_TENSOR", dtype, len(dims), "a tensor of another type", pops=1, pushes=(type,))

    def append(self) -> None:
        slots = [i for i, t in enumerate(self.types) if t is not None and t.kind is Kind.TENSOR and t.parts]
        if not slots:
            return
        type = self.get(self.random.choice(slots))
        for _ in range(self.random.randint(1, 3)):
            if self.random.random() < 0.4:
                count = self.random.randint(0, 3)
                rows = tensor(type.name, count, *type.parts[1:])
                self.make(rows if self.random.random() < 0.97 else self.g.tensor_type())
                axis = 0 if self.random.random() < 0.97 else 1
                type = tensor(type.name, type.parts[0] + count, *type.parts[1:])
                self.emit("EXTEND", axis, pops=2, pushes=(type,))
                continue
            row = tensor(type.name, *type.parts[1:])
            self.make(row if self.random.random() < 0.97 else self.g.tensor_type())
            type = tensor(type.name, type.parts[0] + 1, *type.parts[1:])
            self.emit("APPEND", pops=2, pushes=(type,))

    def in_place(self) -> None:
        slot = self.find(Kind.TENSOR)
        if slot is None:
            return
        type = self.get(slot)
        # Only the first function writes tensors that others see: no task does.
        if self.index or self.random.random() < 0.7:
            self.emit("OWN", pops=1, pushes=(type,))
        if self.random.random() < 0.5:
            self.make(type if self.random.random() < 0.95 else self.g.tensor_type())
            self.emit("ASSIGN", pops=2)
        else:
            self.emit("COPY", len(self.types) - 1, pushes=(type,))
            self.integer()
            self.emit("INVOKE", self.g.fill, pops=2)

    def combine(self) -> None:
        source = self.find(Kind.TENSOR)
        if source is None:
            return
        self.get(source)
        self.make(self.g.tensor_type())
        target = len(self.types) - 1
        self.emit("COPY", target, pushes=(self.types[target],))
        # source target copy -> target, source copy k
        self.emit("COPY", target - 1, pushes=(self.types[target - 1],))
        self.emit("COPY", target, pushes=(self.types[target],))
        self.integer()
        self.emit("INVOKE", self.g.combine, pops=3)
        self.emit("SLIDE", 1, 2, pops=3, pushes=(self.types[target],))

    def ints_and_tensors(self) -> None:
        slots = [
            i
            for i, t in enumerate(self.types)
            if t is not None and t.kind is Kind.TENSOR and (t.name != "f32" or self.random.random() < 0.1)
        ]
        if slots and self.random.random() < 0.5:
            type = self.get(self.random.choice(slots))
            count = int(np.prod(type.parts, dtype=np.int64))
            if count == 1 and self.random.random() < 0.5:
                self.emit("TO_INT", pops=1, pushes=(INT,))
            else:
                self.emit("READ_INTS", count, pops=1, pushes=(INT,) * count)
        elif self.random.random() < 0.5:
            self.integer()
            dtype = self.random.choice(["i64", "i64", "u8", "f32", "f16", "bf16", "f64", "i32"])
            # Other types go no further than this, so that shapes stay what `Type` says.
            self.emit("TO_TENSOR", dtype, pops=1, pushes=(tensor(dtype),))
            if dtype not in SIZES:
                self.emit("ELEMENTS", pops=1, pushes=(INT,))
        else:
            for _ in range(3):
                self.integer()
            self.emit("MAKE_INTS", "i64", 3, pops=3, pushes=(X,))

    def call(self) -> None:
        later = self.g.signatures[self.index + 1 :]
        if not later:
            return
        f, params, results = self.random.choice(later)
        for param in params:
            self.make(param)
        self.emit(self.how(params, "CALL"), f, pops=len(params), pushes=tuple(results))

    def closure(self) -> None:
        later = self.g.signatures[self.index + 1 :]
        if not later:
            return
        f, params, results = self.random.choice(later)
        captures = self.random.randint(0, len(params))
        for param in params[:captures]:
            self.make(param)
        self.emit("CLOSURE", f, captures, pops=captures, pushes=(Type(Kind.CLOSURE),))
        extra = self.random.random() < 0.03
        for param in [*params[captures:], *[INT] * extra]:
            self.make(param)
        n = len(params) - captures + extra
        # Results are of unknown kind to the verifier; the types here know better.
        self.emit(self.how(params, "CALL_CLOSURE"), n, len(results), pops=n + 1, pushes=tuple(results))

    def how(self, params: list[Type], name: str) -> str:
        """Return a call or a task, which must reach no data whose tensors others write."""
        is_free = not any(param.kind is Kind.TUPLE for param in params)
        return name.replace("CALL", "SPAWN") if is_free and self.random.random() < 0.6 else name

    def arm(self, type: Type) -> None:
        """Write statements and leave one value of a type in their place."""
        depth = len(self.types)
        self.nesting += 1
        self.statements(self.random.randint(0, 3))
        self.make(type)
        self.nesting -= 1
        extra = len(self.types) - depth - 1
        self.emit("SLIDE", 1, extra, pops=extra + 1, pushes=(type,))

    def branch(self) -> None:
        if self.nesting > 2:
            return
        type = self.random.choice([INT, X, Y])
        count = self.random.choice([2, 2, 3])
        labels = [self.f.label() for _ in range(count)]
        end = self.f.label()
        self.integer()
        if count == 2:
            self.emit("JUMP_IF_FALSE", labels[1], pops=1)
        else:
            self.emit("SWITCH", labels, pops=1)
        before = list(self.types)
        for number, label in enumerate(labels):
            if number or count > 2:
                self.f.place(label)
            self.types = list(before)
            self.arm(type)
            if number < count - 1:
                self.f.emit("JUMP", end)
        self.f.place(end)

    def loop(self) -> None:
        """total = make; for i in k .. 1: total = arm."""
        if self.nesting > 1:
            return
        type = self.random.choice([INT, X])
        self.make(type)
        self.emit("INT", self.random.randint(0, 4), pushes=(INT,))
        head, done = self.f.label(), self.f.label()
        i = len(self.types) - 1
        self.f.place(head)
        self.emit("COPY", i, pushes=(INT,))
        self.emit("JUMP_IF_FALSE", done, pops=1)
        before = list(self.types)
        self.arm(type)
        self.emit("COPY", i, pushes=(INT,))
        self.emit("INT", 1, pushes=(INT,))
        self.emit("SUB", pops=2, pushes=(INT,))
        self.emit("SLIDE", 2, 2, pops=4, pushes=(type, INT))
        self.f.emit("JUMP", head)
        self.f.place(done)
        self.types = before

    def check(self) -> None:
        self.integer()
        self.integer()
        self.integer()
        if self.random.random() < 0.9:
            self.emit("POP", 1, pops=1)
            self.emit("INT", 1, pushes=(INT,))
        self.emit("CHECK", 2, "found {1}, needed {2} or {3}", pops=3)

    def drop(self) -> None:
        slot = self.find()
        if slot is not None and self.nesting == 0:
            self.emit("DROP", slot)
            self.types[slot] = None
