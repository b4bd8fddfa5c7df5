"""Small integer formulas in postfix form: the dims of a signature, workspace sizes, costs.

A formula is a tuple of steps run on a stack: an `int` pushes itself, an `Arg` pushes an argument
(the meaning of its index belongs to whoever holds the formula: symbols of a signature, integers of
a kernel), a name of `OPERATORS` replaces operands by a result. Integers are 64 bits; a result that
does not fit, or a division by zero, makes the whole formula undefined.

    parse("2*n + 1", ["n"])  ==  (2, Arg(0), "mul", 1, "add")
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
MAX_STEPS = 1024
MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Arg:
    """An argument of a formula, by position."""

    index: int


Formula: TypeAlias = tuple["int | Arg | str", ...]


_BINARY_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "and": lambda a, b: int(a != 0 and b != 0),
    "or": lambda a, b: int(a != 0 or b != 0),
}
_UNARY_FUNCTIONS: dict[str, Callable[[int], int]] = {"neg": lambda a: -a, "not": lambda a: int(a == 0)}
OPERATORS: dict[str, int] = dict.fromkeys(_BINARY_FUNCTIONS, 2) | {"neg": 1, "not": 1}
"""How many operands each operator takes. The position is the code in containers."""
OPERATOR_NAMES: tuple[str, ...] = tuple(OPERATORS)

_INFIX = {
    "add": ("+", 4),
    "sub": ("-", 4),
    "mul": ("*", 5),
    "floordiv": ("//", 5),
    "mod": ("%", 5),
    "eq": ("==", 3),
    "ne": ("!=", 3),
    "lt": ("<", 3),
    "le": ("<=", 3),
    "and": ("and", 1),
    "or": ("or", 0),
}


def check(formula: Formula, arity: int) -> str | None:
    """Say what is wrong with a formula over ``arity`` arguments, or return None."""
    depth = 0
    if len(formula) > MAX_STEPS:
        return f"has {len(formula)} steps; at most {MAX_STEPS} are allowed"
    for step in formula:
        if isinstance(step, Arg):
            if not 0 <= step.index < arity:
                return f"names argument {step.index} of {arity}"
            depth += 1
        elif isinstance(step, str):
            count = OPERATORS.get(step)
            if count is None:
                return f"has the unknown operator {step!r}"
            if depth < count:
                return f"lacks operands for {step}"
            depth -= count - 1
        else:
            if not INT_MIN <= step <= INT_MAX:
                return f"has the constant {step}, which does not fit 64 bits"
            depth += 1
        if depth > MAX_DEPTH:
            return f"needs more than {MAX_DEPTH} intermediate values"
    return None if depth == 1 else f"leaves {depth} values instead of one"


def evaluate(formula: Formula, arguments: Sequence[int]) -> int | None:
    """Return the value of a checked formula, or None where it is undefined."""
    stack: list[int] = []
    for step in formula:
        if isinstance(step, Arg):
            stack.append(arguments[step.index])
        elif isinstance(step, str):
            right = stack.pop()
            if step in _UNARY_FUNCTIONS:
                value = _UNARY_FUNCTIONS[step](right)
            elif step in ("floordiv", "mod") and right == 0:
                return None
            else:
                value = _BINARY_FUNCTIONS[step](stack.pop(), right)
            if not INT_MIN <= value <= INT_MAX:
                return None
            stack.append(value)
        else:
            stack.append(step)
    return stack[0]


def text(formula: Formula, names: Sequence[str]) -> str:
    """Write a checked formula in infix form, with as few parentheses as its meaning needs."""
    stack: list[tuple[str, int]] = []
    for step in formula:
        if isinstance(step, Arg):
            stack.append((names[step.index], 9))
        elif isinstance(step, int):
            stack.append((str(step), 9 if step >= 0 else 6))
        elif step in _INFIX:
            sign, level = _INFIX[step]
            right, left = stack.pop(), stack.pop()
            bare = left[1] > level or (left[1] == level and level != 3)
            lhs = left[0] if bare else f"({left[0]})"
            rhs = right[0] if right[1] > level else f"({right[0]})"
            stack.append((f"{lhs} {sign} {rhs}" if level < 5 else f"{lhs}{sign}{rhs}", level))
        elif step in ("neg", "not"):
            operand = stack.pop()
            inner = operand[0] if operand[1] > 6 else f"({operand[0]})"
            stack.append((f"-{inner}", 6) if step == "neg" else (f"not {inner}", 2))
        else:
            right, left = stack.pop(), stack.pop()
            stack.append((f"{step}({left[0]}, {right[0]})", 9))
    return stack[0][0]


_QUOTED = re.compile(r"`((?:[^`]|``)*)`")
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
}
_COMPARE: dict[type[ast.cmpop], tuple[str, bool]] = {
    ast.Eq: ("eq", False),
    ast.NotEq: ("ne", False),
    ast.Lt: ("lt", False),
    ast.LtE: ("le", False),
    ast.Gt: ("lt", True),
    ast.GtE: ("le", True),
}


def quoted(name: str) -> str:
    """Return how a formula spells a name: between backquotes where it is none of the language."""
    is_plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return name if is_plain else "`" + name.replace("`", "``") + "`"


def parse(source: str, names: Sequence[str]) -> Formula:
    """Read an infix formula over named arguments; the inverse of `text` with `quoted` names.

    Python's operators ``+ - * // %``, comparisons, ``and or not``, and ``min``, ``max``,
    ``ceildiv``, ``mod``, ``floordiv`` as functions of two operands; the first two take more.

    Raises:
        ValueError: the text is none of that, or names an unknown argument.
    """
    spelled: dict[str, str] = {}

    def stand_in(found: re.Match[str]) -> str:
        """Return a name of the language for one that is not."""
        return spelled.setdefault(found[1].replace("``", "`"), f"_quoted_{len(spelled)}")

    try:
        tree = ast.parse(_QUOTED.sub(stand_in, source), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{source!r} is not a formula: {error.msg}") from error
    positions = {spelled.get(name, name): index for index, name in enumerate(names)}
    return tuple(_steps(tree, positions, source))


def _steps(node: ast.expr, names: dict[str, int], source: str) -> list[int | Arg | str]:
    def steps(inner: ast.expr) -> list[int | Arg | str]:
        return _steps(inner, names, source)

    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() as value):
            return [value]
        case ast.Name(id=name) if name in names:
            return [Arg(names[name])]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return [-value]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return [*steps(operand), "neg"]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [*steps(operand), "not"]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return [*steps(left), *steps(right), _BINARY[type(op)]]
        case ast.BoolOp(op=op, values=[first, *rest]):
            found = steps(first)
            for value in rest:
                found += [*steps(value), "and" if isinstance(op, ast.And) else "or"]
            return found
        case ast.Compare(left=left, ops=ops, comparators=values):
            found: list[int | Arg | str] = []
            for op, (a, b) in zip(ops, pairwise([left, *values]), strict=True):
                if type(op) not in _COMPARE:
                    raise ValueError(f"{source!r} has an operator that formulas do not have")
                name, swapped = _COMPARE[type(op)]
                pair = [*steps(b), *steps(a)] if swapped else [*steps(a), *steps(b)]
                found += [*pair, name] if not found else [*pair, name, "and"]
            return found
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[a, b, *rest], keywords=[]):
            found = [*steps(a), *steps(b), name]
            for value in rest:
                found += [*steps(value), name]
            return found
        case ast.Call(func=ast.Name(id=name), args=[a, b], keywords=[]):
            if name in ("mod", "floordiv"):
                return [*steps(a), *steps(b), name]
            if name == "ceildiv":
                return [*steps(a), "neg", *steps(b), "floordiv", "neg"]
        case _:
            pass
    raise ValueError(f"{source!r} has a part that formulas do not have: {ast.unparse(node)}")
