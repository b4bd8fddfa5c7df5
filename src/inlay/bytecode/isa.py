"""The instruction set: the one table behind encoder, verifier, listing, interpreters and docs.

**The machine.** A program is a list of functions. A function runs in a frame of consecutive
*slots*; slot 0 is the first parameter, and every instruction that produces a value pushes it as
the next slot, so a slot number is a stack position relative to the base of the frame. A slot holds
an unboxed integer (booleans are 0 and 1) or a counted reference to an object: a tensor (a view of
a storage: byte offset, element type, dims; row-major and contiguous), a storage (bytes in a
memory), a tuple, an ADT value (tag and fields), a closure (function and captured values), or a
cell. A slot whose value was moved out is *empty*; which slots are empty is known statically.
Control values of type `shape` are flattened into integers by the compiler: the machine has none.

**Code** is a sequence of 32-bit words: an opcode word, then one word for each operand (`SWITCH`
has a counted list of targets). Jump targets are word positions in the same function. Integers
that do not fit a word live in the pool of the program.

**Kinds.** The verifier knows a `Kind` for each slot at each instruction, where `ANY` stands for
"one of the others, not empty" (what comes out of tuples, ADT values, cells and closures). A
definite conflict is refused before running; what is left open is tested as the instruction
executes, so neither interpreter can misread a slot.

**Stack effects** are written `popped -> pushed`, the top of the stack on the right. An item is a
kind, optionally repeated: `int*rank` repeats by the value of the operand `rank`;
`params(function)`, `results(function)`, `tensor*tensors(kernel)` and `int*ints(kernel)` follow
from what the operand names. Instructions whose effect depends on more than that (`COPY`, `SLIDE`,
...) have `?` and a case of their own in the verifier.

An addition is a row here, a case in `runtime/interp.py` or the tables beside it, and a case in
`runtime/src/vm.c`; a test fails while one is missing. Numbers are part of the container format: rows
are appended, never reordered, and a change of meaning raises `container.VERSION`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Literal


class Kind(IntEnum):
    """What a slot holds. The numbers are those of the container and of the C runtime."""

    EMPTY = 0
    INT = 1
    TENSOR = 2
    STORAGE = 3
    TUPLE = 4
    ADT = 5
    CLOSURE = 6
    CELL = 7
    FUTURE = 8  # of a running machine only: a result of a call that has not returned
    ANY = 15


class OperandKind(StrEnum):
    """What an operand word means, hence what the verifier holds it to."""

    IMMEDIATE = "immediate"  # a signed 32-bit integer
    POOL = "pool"  # index into the integer pool
    COUNT = "count"  # 0 .. MAX_COUNT
    INDEX = "index"  # 0 .. MAX_COUNT, a position in a tuple, ADT value or list of dims
    TAG = "tag"  # 0 .. 2**31-1, a constructor
    SLOT = "slot"  # a slot of the frame below the current depth
    CONSTANT = "constant"
    FUNCTION = "function"
    KERNEL = "kernel"
    MESSAGE = "message"  # index into the string table
    MEMORY = "memory"
    DTYPE = "dtype"
    RANK = "rank"  # 0 .. MAX_RANK
    ALIGN = "align"  # a power of two, at most MAX_ALIGN
    SHAPE = "shape"  # index into the table of native shape code
    TARGET = "target"  # word position of an instruction of the same function
    TARGETS = "targets"  # a count >= 1, then so many targets


MAX_COUNT = 0xFFFF
MAX_RANK = 16
MAX_ALIGN = 1 << 21
MAX_SHAPE_INPUTS = 64
MAX_FRAME = 1 << 24
"""Slots of one frame, at most: programs of 100,000 bindings are ordinary."""

DTYPES: tuple[tuple[str, int], ...] = (
    ("bool", 1),
    ("i8", 1),
    ("i16", 2),
    ("i32", 4),
    ("i64", 8),
    ("u8", 1),
    ("u16", 2),
    ("u32", 4),
    ("u64", 8),
    ("f16", 2),
    ("bf16", 2),
    ("f32", 4),
    ("f64", 8),
    ("string", 8),
)
"""Element types: the position is the code in containers; then the bytes of one element.

An element of a tensor of strings is a position in the table of strings of the program, or beyond it
one that the host gave out during the call; equal strings have equal numbers."""
DTYPE_CODES: dict[str, int] = {name: code for code, (name, _) in enumerate(DTYPES)}


@dataclass(frozen=True, slots=True)
class Item:
    """A run of slots of one kind in a stack effect.

    Attributes:
        kind: what each slot holds; None for the declared kinds of a function.
        times: 1, or the name of the operand that counts or that names a function or kernel.
        of: which property of that operand counts.
    """

    kind: Kind | None
    times: int | str = 1
    of: Literal["value", "params", "results", "tensors", "ints"] = "value"


@dataclass(frozen=True, slots=True)
class Instruction:
    """A row of the table.

    Attributes:
        name: the mnemonic.
        operands: names and kinds, in order.
        effect: what is popped and pushed; None where the verifier has a case of its own.
        meaning: one sentence, as an equation where that says it best.
        can_fail: whether a status other than success may come out (beyond kind mismatches).
        can_wait: whether it needs the *contents* of a tensor, hence waits for a pending one.
        ends: whether control never falls through to the next instruction.
    """

    name: str
    operands: tuple[tuple[str, OperandKind], ...]
    effect: tuple[tuple[Item, ...], tuple[Item, ...]] | None
    meaning: str
    can_fail: bool = False
    can_wait: bool = False
    ends: bool = False


_KINDS = {kind.name.lower(): kind for kind in Kind}


def _items(text: str) -> tuple[Item, ...]:
    found: list[Item] = []
    for word in text.split():
        name, star, times = word.partition("*")
        if not star and name.endswith(")"):
            of, _, operand = name[:-1].partition("(")
            assert of in ("params", "results"), f"unknown effect {word!r}"
            found.append(Item(None, operand, of))
        elif times.endswith(")"):
            of, _, operand = times[:-1].partition("(")
            assert of in ("tensors", "ints"), f"unknown effect {word!r}"
            found.append(Item(_KINDS[name], operand, of))
        else:
            found.append(Item(_KINDS[name], times if star else 1))
    return tuple(found)


_TABLE = """\
# Stack and locals.
INT value:immediate | -> int | | push value
INT_WIDE value:pool | -> int | | push pool[value]
CONST constant:constant | -> tensor | | push constants[constant]
COPY slot:slot | ? | | push slot
MOVE slot:slot | ? | | push slot, and leave slot empty: its last use
DROP slot:slot | ? | | release what slot holds, and leave it empty
POP count:count | ? | | release the top count slots
SLIDE keep:count count:count | ? | | release the count slots below the top keep slots, which take their
    place
# Integers: 64 bits, checked.
ADD | int int -> int | fails | a b -> a + b
SUB | int int -> int | fails | a b -> a - b
MUL | int int -> int | fails | a b -> a * b
FLOORDIV | int int -> int | fails | a b -> floor(a / b); b = 0 fails
MOD | int int -> int | fails | a b -> a - b * floor(a / b); b = 0 fails
MIN | int int -> int | | a b -> min(a, b)
MAX | int int -> int | | a b -> max(a, b)
NEG | int -> int | fails | a -> -a
EQ | int int -> int | | a b -> 1 if a = b else 0
NE | int int -> int | | a b -> 1 if a != b else 0
LT | int int -> int | | a b -> 1 if a < b else 0
LE | int int -> int | | a b -> 1 if a <= b else 0
AND | int int -> int | | a b -> 1 if a != 0 and b != 0 else 0
OR | int int -> int | | a b -> 1 if a != 0 or b != 0 else 0
NOT | int -> int | | a -> 1 if a = 0 else 0
SELECT | int int int -> int | | c a b -> a if c != 0 else b
# Control.
CHECK count:count message:message | int*count int -> | fails | v1 .. vn c -> if c = 0, fail with message,
    where {1} .. {n} stand for v1 .. vn
FAIL count:count message:message | int*count -> | fails ends | v1 .. vn -> fail with message, where {1} ..
    {n} stand for v1 .. vn
JUMP target:target | -> | ends | continue at target
JUMP_IF_FALSE target:target | int -> | | c -> if c = 0, continue at target
SWITCH targets:targets | int -> | ends | k -> continue at targets[k], or at the last one where k is not an
    index
# Calls. Arguments become the first slots of the new frame, results the top of the old one.
CALL function:function | params(function) -> results(function) | fails | x1 .. xn -> function(x1 .. xn)
TAIL_CALL function:function | ? | fails ends | return function(x1 .. xn), in the frame of the caller
CALL_CLOSURE count:count results:count | closure any*count -> any*results | fails | f x1 .. xn ->
    code(f)(captures(f) .. x1 .. xn), which has so many results
TAIL_CALL_CLOSURE count:count | ? | fails ends | return code(f)(captures(f) .. x1 .. xn), in the frame of
    the caller
RETURN | ? | ends | return the top slots, as many as the function has results
# Aggregates.
CLOSURE function:function count:count | any*count -> closure | | x1 .. xn -> a closure of function over x1
    .. xn
TUPLE count:count | any*count -> tuple | | x1 .. xn -> (x1, .., xn)
PROJECT index:index | tuple -> any | fails | t -> t[index]
CONSTRUCT tag:tag count:count | any*count -> adt | | x1 .. xn -> the ADT value of constructor tag with
    fields x1 .. xn
TAG | adt -> int | | v -> tag(v)
FIELD index:index | adt -> any | fails | v -> fields(v)[index]
UNPACK count:count | any -> any*count | fails | v -> the fields of the tuple or ADT value v, which has
    exactly count
CELL_NEW | any -> cell | | x -> a new cell that holds x
CELL_READ | cell -> any | | r -> contents(r)
CELL_WRITE | cell any -> | | r x -> contents(r) := x
# Tensors.
STORAGE memory:memory align:align | int -> storage | fails | n -> a new storage of n bytes in memory, its
    address a multiple of align
TENSOR dtype:dtype rank:rank | storage int int*rank -> tensor | fails | s o d1 .. dr -> the tensor [d1,
    .., dr] whose first element is at byte o of s
ALLOCATE memory:memory dtype:dtype rank:rank | int*rank -> tensor | fails | d1 .. dr -> a new tensor [d1,
    .., dr] in a storage of its own
CHECK_TENSOR dtype:dtype rank:rank message:message | tensor -> tensor | fails | t -> t; fail with message
    unless t has this dtype and rank
DIM axis:index | tensor -> int | fails | t -> dims(t)[axis]
DIMS rank:rank | tensor -> int*rank | fails | t -> dims(t), which are rank
ELEMENTS | tensor -> int | | t -> the number of elements of t
RESHAPE rank:rank | tensor int*rank -> tensor | fails | t d1 .. dr -> the same elements as [d1, .., dr]
ROW | tensor int -> tensor | fails | t i -> t[i], a view
ROWS | tensor int int -> tensor | fails | t i n -> t[i : i + n], a view
APPEND | tensor tensor -> tensor | fails waits | t r -> t with the row r added at the end; amortised over
    calls when t is not shared
OWN | tensor -> tensor | fails waits | t -> a tensor equal to t that nothing else refers to: t itself, or
    a copy
ASSIGN | tensor tensor -> | fails waits | t s -> the elements of t, in place, := those of s (same dtype
    and dims)
INVOKE kernel:kernel | tensor*tensors(kernel) int*ints(kernel) -> | fails | t1 .. tn k1 .. km -> run
    kernel, which writes the tensors that are its outputs
# Between tensors and control values.
TO_INT | tensor -> int | fails waits | t -> the only element of the integer or boolean tensor t
TO_TENSOR dtype:dtype | int -> tensor | fails | a -> a new tensor [] of value a, which dtype must hold
    exactly
READ_INTS count:count | tensor -> int*count | fails waits | t -> the elements of the integer or boolean
    tensor t, which has exactly count
MAKE_INTS dtype:dtype count:count | int*count -> tensor | fails | a1 .. an -> a new tensor [n] of those
    values, which dtype must hold exactly
EXTEND axis:index | tensor tensor -> tensor | fails waits | t s -> t with s joined to its end along axis,
    before which all dims are 1; amortised over calls when t is not shared
# A call that need not have returned: its results may be futures, which any instruction takes.
SPAWN function:function | params(function) -> results(function) | fails | x1 .. xn -> function(x1 .. xn);
    what follows may go on before it returns, where no effect of the call can be seen from there
# Shape arithmetic in one step: what the instructions up to the target would do.
EVAL target:target shape:shape | ? | | push the results of the native code of shape and continue at
    target; or, where it gives none, continue with the instructions in between, which push the same or
    fail
SPAWN_CLOSURE count:count results:count | closure any*count -> any*results | fails | f x1 .. xn ->
    code(f)(captures(f) .. x1 .. xn), which has so many results; what follows may go on as behind SPAWN
"""
"""A row: name and operands `name:kind`; stack effect, `?` where the verifier has a case of its own; flags out
of `fails waits ends`; meaning. What is indented continues a row."""


def _read() -> Iterator[Instruction]:
    lines = [line for line in _TABLE.splitlines() if not line.startswith("#")]
    for row in re.split(r"\n(?! )", "\n".join(lines)):
        head, effect, flags, meaning = (" ".join(part.split()) for part in row.split("|"))
        name, *operands = head.split()
        pairs = [word.partition(":")[::2] for word in operands]
        popped, _, pushed = effect.partition("->")
        yield Instruction(
            name,
            tuple((label, OperandKind(kind)) for label, kind in pairs),
            None if effect == "?" else (_items(popped), _items(pushed)),
            meaning,
            can_fail="fails" in flags,
            can_wait="waits" in flags,
            ends="ends" in flags,
        )


INSTRUCTIONS: tuple[Instruction, ...] = tuple(_read())
"""All instructions; the position is the number in containers."""

BY_NAME: dict[str, Instruction] = {row.name: row for row in INSTRUCTIONS}
CODES: dict[str, int] = {row.name: code for code, row in enumerate(INSTRUCTIONS)}
