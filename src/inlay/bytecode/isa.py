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
...) have `None` and a case of their own in the verifier.

An addition is a row here, a case in `runtime/interp.py` or the tables beside it, and a case in
`runtime/src/vm.c`; a test fails while one is missing. Numbers are part of the container format: rows
are appended, never reordered, and a change of meaning raises `container.VERSION`.
"""

from __future__ import annotations

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


def _row(name: str, operands: str, effect: str | None, meaning: str, flags: str = "") -> Instruction:
    """Read a row: operands `name:kind`, an effect, and flags out of `fails waits ends`."""
    pairs = [word.partition(":")[::2] for word in operands.split()]
    popped_pushed = None
    if effect is not None:
        popped, _, pushed = effect.partition("->")
        popped_pushed = (_items(popped), _items(pushed))
    words = flags.split()
    return Instruction(
        name,
        tuple((label, OperandKind(kind)) for label, kind in pairs),
        popped_pushed,
        meaning,
        can_fail="fails" in words,
        can_wait="waits" in words,
        ends="ends" in words,
    )


_BINARY = "int int -> int"

INSTRUCTIONS: tuple[Instruction, ...] = (
    # Stack and locals.
    _row("INT", "value:immediate", "-> int", "push value"),
    _row("INT_WIDE", "value:pool", "-> int", "push pool[value]"),
    _row("CONST", "constant:constant", "-> tensor", "push constants[constant]"),
    _row("COPY", "slot:slot", None, "push slot"),
    _row("MOVE", "slot:slot", None, "push slot, and leave slot empty: its last use"),
    _row("DROP", "slot:slot", None, "release what slot holds, and leave it empty"),
    _row("POP", "count:count", None, "release the top count slots"),
    _row(
        "SLIDE",
        "keep:count count:count",
        None,
        "release the count slots below the top keep slots, which take their place",
    ),
    # Integers: 64 bits, checked.
    _row("ADD", "", _BINARY, "a b -> a + b", "fails"),
    _row("SUB", "", _BINARY, "a b -> a - b", "fails"),
    _row("MUL", "", _BINARY, "a b -> a * b", "fails"),
    _row("FLOORDIV", "", _BINARY, "a b -> floor(a / b); b = 0 fails", "fails"),
    _row("MOD", "", _BINARY, "a b -> a - b * floor(a / b); b = 0 fails", "fails"),
    _row("MIN", "", _BINARY, "a b -> min(a, b)"),
    _row("MAX", "", _BINARY, "a b -> max(a, b)"),
    _row("NEG", "", "int -> int", "a -> -a", "fails"),
    _row("EQ", "", _BINARY, "a b -> 1 if a = b else 0"),
    _row("NE", "", _BINARY, "a b -> 1 if a != b else 0"),
    _row("LT", "", _BINARY, "a b -> 1 if a < b else 0"),
    _row("LE", "", _BINARY, "a b -> 1 if a <= b else 0"),
    _row("AND", "", _BINARY, "a b -> 1 if a != 0 and b != 0 else 0"),
    _row("OR", "", _BINARY, "a b -> 1 if a != 0 or b != 0 else 0"),
    _row("NOT", "", "int -> int", "a -> 1 if a = 0 else 0"),
    _row("SELECT", "", "int int int -> int", "c a b -> a if c != 0 else b"),
    # Control.
    _row(
        "CHECK",
        "count:count message:message",
        "int*count int ->",
        "v1 .. vn c -> if c = 0, fail with message, where {1} .. {n} stand for v1 .. vn",
        "fails",
    ),
    _row(
        "FAIL",
        "count:count message:message",
        "int*count ->",
        "v1 .. vn -> fail with message, where {1} .. {n} stand for v1 .. vn",
        "fails ends",
    ),
    _row("JUMP", "target:target", "->", "continue at target", "ends"),
    _row("JUMP_IF_FALSE", "target:target", "int ->", "c -> if c = 0, continue at target"),
    _row(
        "SWITCH",
        "targets:targets",
        "int ->",
        "k -> continue at targets[k], or at the last one where k is not an index",
        "ends",
    ),
    # Calls. Arguments become the first slots of the new frame, results the top of the old one.
    _row(
        "CALL",
        "function:function",
        "params(function) -> results(function)",
        "x1 .. xn -> function(x1 .. xn)",
        "fails",
    ),
    _row(
        "TAIL_CALL",
        "function:function",
        None,
        "return function(x1 .. xn), in the frame of the caller",
        "fails ends",
    ),
    _row(
        "CALL_CLOSURE",
        "count:count results:count",
        "closure any*count -> any*results",
        "f x1 .. xn -> code(f)(captures(f) .. x1 .. xn), which has so many results",
        "fails",
    ),
    _row(
        "TAIL_CALL_CLOSURE",
        "count:count",
        None,
        "return code(f)(captures(f) .. x1 .. xn), in the frame of the caller",
        "fails ends",
    ),
    _row("RETURN", "", None, "return the top slots, as many as the function has results", "ends"),
    # Aggregates.
    _row(
        "CLOSURE",
        "function:function count:count",
        "any*count -> closure",
        "x1 .. xn -> a closure of function over x1 .. xn",
    ),
    _row("TUPLE", "count:count", "any*count -> tuple", "x1 .. xn -> (x1, .., xn)"),
    _row("PROJECT", "index:index", "tuple -> any", "t -> t[index]", "fails"),
    _row(
        "CONSTRUCT",
        "tag:tag count:count",
        "any*count -> adt",
        "x1 .. xn -> the ADT value of constructor tag with fields x1 .. xn",
    ),
    _row("TAG", "", "adt -> int", "v -> tag(v)"),
    _row("FIELD", "index:index", "adt -> any", "v -> fields(v)[index]", "fails"),
    _row(
        "UNPACK",
        "count:count",
        "any -> any*count",
        "v -> the fields of the tuple or ADT value v, which has exactly count",
        "fails",
    ),
    _row("CELL_NEW", "", "any -> cell", "x -> a new cell that holds x"),
    _row("CELL_READ", "", "cell -> any", "r -> contents(r)"),
    _row("CELL_WRITE", "", "cell any ->", "r x -> contents(r) := x"),
    # Tensors.
    _row(
        "STORAGE",
        "memory:memory align:align",
        "int -> storage",
        "n -> a new storage of n bytes in memory, its address a multiple of align",
        "fails",
    ),
    _row(
        "TENSOR",
        "dtype:dtype rank:rank",
        "storage int int*rank -> tensor",
        "s o d1 .. dr -> the tensor [d1, .., dr] whose first element is at byte o of s",
        "fails",
    ),
    _row(
        "ALLOCATE",
        "memory:memory dtype:dtype rank:rank",
        "int*rank -> tensor",
        "d1 .. dr -> a new tensor [d1, .., dr] in a storage of its own",
        "fails",
    ),
    _row(
        "CHECK_TENSOR",
        "dtype:dtype rank:rank message:message",
        "tensor -> tensor",
        "t -> t; fail with message unless t has this dtype and rank",
        "fails",
    ),
    _row("DIM", "axis:index", "tensor -> int", "t -> dims(t)[axis]", "fails"),
    _row("DIMS", "rank:rank", "tensor -> int*rank", "t -> dims(t), which are rank", "fails"),
    _row("ELEMENTS", "", "tensor -> int", "t -> the number of elements of t"),
    _row(
        "RESHAPE",
        "rank:rank",
        "tensor int*rank -> tensor",
        "t d1 .. dr -> the same elements as [d1, .., dr]",
        "fails",
    ),
    _row("ROW", "", "tensor int -> tensor", "t i -> t[i], a view", "fails"),
    _row("ROWS", "", "tensor int int -> tensor", "t i n -> t[i : i + n], a view", "fails"),
    _row(
        "APPEND",
        "",
        "tensor tensor -> tensor",
        "t r -> t with the row r added at the end; amortised over calls when t is not shared",
        "fails waits",
    ),
    _row(
        "OWN",
        "",
        "tensor -> tensor",
        "t -> a tensor equal to t that nothing else refers to: t itself, or a copy",
        "fails waits",
    ),
    _row(
        "ASSIGN",
        "",
        "tensor tensor ->",
        "t s -> the elements of t, in place, := those of s (same dtype and dims)",
        "fails waits",
    ),
    _row(
        "INVOKE",
        "kernel:kernel",
        "tensor*tensors(kernel) int*ints(kernel) ->",
        "t1 .. tn k1 .. km -> run kernel, which writes the tensors that are its outputs",
        "fails",
    ),
    # Between tensors and control values.
    _row(
        "TO_INT",
        "",
        "tensor -> int",
        "t -> the only element of the integer or boolean tensor t",
        "fails waits",
    ),
    _row(
        "TO_TENSOR",
        "dtype:dtype",
        "int -> tensor",
        "a -> a new tensor [] of value a, which dtype must hold exactly",
        "fails",
    ),
    _row(
        "READ_INTS",
        "count:count",
        "tensor -> int*count",
        "t -> the elements of the integer or boolean tensor t, which has exactly count",
        "fails waits",
    ),
    _row(
        "MAKE_INTS",
        "dtype:dtype count:count",
        "int*count -> tensor",
        "a1 .. an -> a new tensor [n] of those values, which dtype must hold exactly",
        "fails",
    ),
    _row(
        "EXTEND",
        "axis:index",
        "tensor tensor -> tensor",
        "t s -> t with s joined to its end along axis, before which all dims are 1; amortised over "
        "calls when t is not shared",
        "fails waits",
    ),
    # A call that need not have returned: its results may be futures, which any instruction takes.
    _row(
        "SPAWN",
        "function:function",
        "params(function) -> results(function)",
        "x1 .. xn -> function(x1 .. xn); what follows may go on before it returns",
        "fails",
    ),
    # Shape arithmetic in one step: what the instructions up to the target would do.
    _row(
        "EVAL",
        "target:target shape:shape",
        None,
        "push the results of the native code of shape and continue at target; or, where it gives "
        "none, continue with the instructions in between, which push the same or fail",
    ),
)
"""All instructions; the position is the number in containers."""

BY_NAME: dict[str, Instruction] = {row.name: row for row in INSTRUCTIONS}
CODES: dict[str, int] = {row.name: code for code, row in enumerate(INSTRUCTIONS)}
