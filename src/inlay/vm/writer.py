"""Appends nodes to blocks of register code, and writes integer arithmetic.

Operands that are numbers are folded, so that shape arithmetic over known dims costs nothing. What was
computed before is not computed again: sizes and offsets of a block of kernels are sums of the same few
products, and an operation on integers is found again where the block it stands in encloses this one.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import assert_never

from inlay.arith.expr import Atom, FloorDiv, Int, Max, Min, Mod, Sym
from inlay.base.diagnostics import InternalError
from inlay.bytecode.builder import OperandValue
from inlay.bytecode.isa import Kind
from inlay.vm.code import CodeBlock, End, Instruction, Node, Operand, Register

_Operation = tuple[str, Operand, Operand]


class Writer:
    """The block being filled, and the span of what is being lowered."""

    def __init__(self) -> None:
        self.block = CodeBlock()
        self.span = ""
        # Results of integer operations, of the current block and those around it.
        self._computed: ChainMap[_Operation, Register] = ChainMap()

    @contextmanager
    def nested(self) -> Generator[CodeBlock, None, None]:
        """Fill a new block inside the current one: an arm, or the body of a loop."""
        outer, self.block = self.block, CodeBlock()
        computed, self._computed = self._computed, self._computed.new_child()
        yield self.block
        self.block, self._computed = outer, computed

    def append(self, node: Node) -> None:
        """Add a node; nothing may follow an end."""
        assert self.block.end is None, "code after the end of a block"
        self.block.nodes.append(node)

    def end(self, end: End) -> None:
        """End the block."""
        assert self.block.end is None, "a block ends once"
        self.block.end = end

    def emit(
        self, name: str, *operands: OperandValue, args: Sequence[Operand] = (), kinds: Sequence[Kind] = ()
    ) -> tuple[Register, ...]:
        """Add an instruction; return a register for each result."""
        results = tuple(Register(kind) for kind in kinds)
        self.append(Instruction(name, operands, tuple(args), results, self.span))
        return results

    def make(self, name: str, *operands: OperandValue, args: Sequence[Operand] = (), kind: Kind) -> Register:
        """Add an instruction with one result."""
        return self.emit(name, *operands, args=args, kinds=(kind,))[0]

    def binary(self, name: str, a: Operand, b: Operand) -> Operand:
        """Write an integer operation, or fold it."""
        if isinstance(a, int) and isinstance(b, int):
            folded = _fold(name, a, b)
            if folded is not None:
                return folded
        if (name, b) in _RIGHT_UNITS:
            return a
        if (name, a) in _LEFT_UNITS:
            return b
        found = self._computed.get((name, a, b))
        if found is None:
            found = self.make(name, args=(a, b), kind=Kind.INT)
            self._computed[name, a, b] = found
        return found

    def integer(self, e: Int, symbols: Mapping[Sym, Operand]) -> Operand:
        """Write a symbolic integer over symbols with known operands."""
        number = e.value
        if number is not None:
            return number
        total: Operand | None = None
        constant = 0
        for monomial, c in e.terms:
            if not monomial:
                constant = c
                continue
            factors = [self._atom(atom, symbols) for atom in monomial]
            term = factors[0]
            for factor in factors[1:]:
                term = self.binary("MUL", term, factor)
            if c < 0 and total is not None:
                total = self.binary("SUB", total, self.binary("MUL", term, -c))
            else:
                term = self.binary("MUL", term, c)
                total = term if total is None else self.binary("ADD", total, term)
        assert total is not None, "an integer that is not a number has a monomial"
        return self.binary("ADD", total, constant)

    def _atom(self, atom: Atom, symbols: Mapping[Sym, Operand]) -> Operand:
        match atom:
            case Sym():
                found = symbols.get(atom)
                if found is None:
                    raise InternalError(f"nothing here determines the dim '{atom.name}'", where=self.span)
                return found
            case FloorDiv(numerator=a, denominator=b):
                return self.binary("FLOORDIV", self.integer(a, symbols), self.integer(b, symbols))
            case Mod(numerator=a, denominator=b):
                return self.binary("MOD", self.integer(a, symbols), self.integer(b, symbols))
            case Min(args=args) | Max(args=args):
                name = "MIN" if isinstance(atom, Min) else "MAX"
                result = self.integer(args[0], symbols)
                for arg in args[1:]:
                    result = self.binary(name, result, self.integer(arg, symbols))
                return result
            case _:
                assert_never(atom)


_RIGHT_UNITS: set[tuple[str, Operand]] = {("ADD", 0), ("SUB", 0), ("MUL", 1), ("FLOORDIV", 1)}
_LEFT_UNITS: set[tuple[str, Operand]] = {("ADD", 0), ("MUL", 1)}


def _fold(name: str, a: int, b: int) -> int | None:
    """Compute with numbers; None where the machine would fail, which it then does."""
    match name:
        case "ADD":
            value = a + b
        case "SUB":
            value = a - b
        case "MUL":
            value = a * b
        case "FLOORDIV" if b:
            value = a // b
        case "MOD" if b:
            value = a % b
        case "MIN":
            value = min(a, b)
        case "MAX":
            value = max(a, b)
        case "EQ":
            value = int(a == b)
        case "NE":
            value = int(a != b)
        case "LT":
            value = int(a < b)
        case "LE":
            value = int(a <= b)
        case "AND":
            value = int(a != 0 and b != 0)
        case "OR":
            value = int(a != 0 or b != 0)
        case _:
            return None
    return value if -(1 << 63) <= value < 1 << 63 else None
