"""Shape arithmetic as native code: straight-line functions over 64-bit integers.

A function does what a run of integer instructions of the machine does, and stands beside them: where
one of them would fail, the function answers 1, and the machine executes the instructions instead, of
which one then fails with its message and its place. So the code has no branch. Whatever may go wrong
(a result that leaves 64 bits, a division by zero, a check that does not hold) sets one flag, values
behind it mean nothing, and the flag is the answer. Divisors that the processor would refuse are
replaced by 1.

All functions of a program are one object: equal ones are in it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlay.base.diagnostics import InternalError


@dataclass(frozen=True, slots=True)
class Number:
    """A value of a function: its inputs are counted first, then what its steps give."""

    index: int


Operand = Number | int


@dataclass(frozen=True, slots=True)
class Step:
    """`name` is that of an instruction over integers; `CHECK` takes its condition alone."""

    name: str
    args: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class ShapeFunction:
    """Integers to integers.

    Attributes:
        inputs: how many it takes.
        steps: in order; each counts as a value, also a check, which is never used.
        results: what it gives.
    """

    inputs: int
    steps: tuple[Step, ...]
    results: tuple[Number, ...]


def emit_shapes(functions: Sequence[ShapeFunction]) -> str:
    """Return a module with function `shape<i>` for each of these.

    `i64 shape<i>(ptr in, ptr out)` reads input k from in[k] and writes result k to out[2*k]: the
    integers of slots of the machine.

    Raises:
        InternalError: a step is no integer instruction.
    """
    texts = [_Writer(function).text(f"shape{i}") for i, function in enumerate(functions)]
    return "\n".join(texts) + _DECLARED


_CHECKED = {"ADD": "sadd", "SUB": "ssub", "MUL": "smul"}
_COMPARED = {"EQ": "eq", "NE": "ne", "LT": "slt", "LE": "sle"}
_PICKED = {"MIN": "slt", "MAX": "sgt"}
_DECLARED = "".join(
    f"declare {{i64, i1}} @llvm.{name}.with.overflow.i64(i64, i64)\n" for name in _CHECKED.values()
)
_LEAST = -(1 << 63)


class _Writer:
    """One function."""

    def __init__(self, function: ShapeFunction) -> None:
        self.function = function
        self.lines: list[str] = []
        self.values: list[str] = []
        self.failed = "false"

    def text(self, name: str) -> str:
        """Return the definition."""
        for i in range(self.function.inputs):
            place = self.line(f"getelementptr i8, ptr %in, i64 {8 * i}")
            self.values.append(self.line(f"load i64, ptr {place}, align 8"))
        for step in self.function.steps:
            args = [self.values[a.index] if isinstance(a, Number) else str(a) for a in step.args]
            self.values.append(self.step(step.name, args))
        for i, result in enumerate(self.function.results):
            place = self.line(f"getelementptr i8, ptr %out, i64 {16 * i}")
            self.lines.append(f"store i64 {self.values[result.index]}, ptr {place}, align 8")
        answer = self.line(f"zext i1 {self.failed} to i64")
        body = "\n".join(self.lines)
        return (
            f'define i64 @"{name}"(ptr noalias %in, ptr noalias %out) nounwind "no-builtins" '
            f"{{\n{body}\nret i64 {answer}\n}}\n"
        )

    def line(self, text: str) -> str:
        """Add a line that gives a value; return its name."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def fails_if(self, condition: str) -> None:
        """Note what must not hold."""
        self.failed = self.line(f"or i1 {self.failed}, {condition}")

    def step(self, name: str, args: list[str]) -> str:
        """Write a step; return its value."""
        match name, args:
            case (("ADD" | "SUB" | "MUL"), [a, b]):
                return self.checked(_CHECKED[name], a, b)
            case "NEG", [a]:
                return self.checked("ssub", "0", a)
            case (("FLOORDIV" | "MOD"), [a, b]):
                return self.divided(name, a, b)
            case (("MIN" | "MAX"), [a, b]):
                first = self.line(f"icmp {_PICKED[name]} i64 {a}, {b}")
                return self.line(f"select i1 {first}, i64 {a}, i64 {b}")
            case (("EQ" | "NE" | "LT" | "LE"), [a, b]):
                return self.number(self.line(f"icmp {_COMPARED[name]} i64 {a}, {b}"))
            case (("AND" | "OR"), [a, b]):
                both = self.line(f"{name.lower()} i1 {self.truth(a)}, {self.truth(b)}")
                return self.number(both)
            case "NOT", [a]:
                return self.number(self.line(f"icmp eq i64 {a}, 0"))
            case "SELECT", [c, a, b]:
                return self.line(f"select i1 {self.truth(c)}, i64 {a}, i64 {b}")
            case "CHECK", [condition]:
                self.fails_if(self.line(f"icmp eq i64 {condition}, 0"))
                return "0"
            case _:
                raise InternalError(f"{name} of {len(args)} is no step of shape code")

    def checked(self, name: str, a: str, b: str) -> str:
        """Write an operation that may leave 64 bits."""
        pair = self.line(f"call {{i64, i1}} @llvm.{name}.with.overflow.i64(i64 {a}, i64 {b})")
        self.fails_if(self.line(f"extractvalue {{i64, i1}} {pair}, 1"))
        return self.line(f"extractvalue {{i64, i1}} {pair}, 0")

    def divided(self, name: str, a: str, b: str) -> str:
        """Write a division toward minus infinity, or its rest.

        The least integer divided by -1 has no quotient, and the rest 0, which it also has by 1.
        """
        if b.startswith("%") or int(b) in (0, -1):
            zero = self.line(f"icmp eq i64 {b}, 0")
            self.fails_if(zero)
            least = self.line(f"icmp eq i64 {a}, {_LEAST}")
            minus = self.line(f"icmp eq i64 {b}, -1")
            leaves = self.line(f"and i1 {least}, {minus}")
            if name == "FLOORDIV":
                self.fails_if(leaves)
            refused = self.line(f"or i1 {zero}, {leaves}")
            b = self.line(f"select i1 {refused}, i64 1, i64 {b}")
        quotient = self.line(f"sdiv i64 {a}, {b}")
        back = self.line(f"mul i64 {quotient}, {b}")
        rest = self.line(f"sub i64 {a}, {back}")
        other = self.line(f"xor i64 {rest}, {b}")
        differs = self.line(f"icmp slt i64 {other}, 0")
        some = self.line(f"icmp ne i64 {rest}, 0")
        down = self.line(f"and i1 {differs}, {some}")
        if name == "FLOORDIV":
            less = self.line(f"sext i1 {down} to i64")
            return self.line(f"add i64 {quotient}, {less}")
        more = self.line(f"select i1 {down}, i64 {b}, i64 0")
        return self.line(f"add i64 {rest}, {more}")

    def truth(self, value: str) -> str:
        """Return whether a value is not 0."""
        return self.line(f"icmp ne i64 {value}, 0")

    def number(self, truth: str) -> str:
        """Return a truth as 0 or 1."""
        return self.line(f"zext i1 {truth} to i64")
