"""Where the variables and symbols of one function are while its code is written.

**Dims.** An integer of the IR mentions symbols. A symbol gets its operand where the binder whose type
mentions it is met: from the dims of a tensor, or from a control value (`_bind_symbols`). Only symbols
that some constant of the function mentions are looked up.

**Forms.** A value is brought to the form that is asked for (`operand`, `fields`, `flatten`) when
somebody asks, so a tuple that nobody needs as an object is never built.

**Local functions** with code of their own take what they mention of the function around them as
leading parameters; a closure is made only where they escape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, assert_never

from inlay.arith.deferred import AnyArray
from inlay.arith.expr import Int, Sym, coefficient, lit, substitute, symbols
from inlay.base.diagnostics import InternalError
from inlay.bytecode.builder import FunctionBuilder
from inlay.bytecode.isa import Kind
from inlay.ir.expr import Function, Var
from inlay.ir.module import Module
from inlay.ir.place import Place
from inlay.ir.types import ExistsType, IntType, ShapeType, TensorType, TupleType, Type
from inlay.vm.code import Operand, Register
from inlay.vm.facts import Facts, integers, mentioned
from inlay.vm.values import (
    Constant,
    Fields,
    GlobalFunction,
    Lifted,
    LocalFunction,
    LoopFunction,
    VmValue,
    as_operand,
    is_spread,
    map_registers,
    registers_of,
)
from inlay.vm.writer import Writer


class Tables(Protocol):
    """What the code of one function may ask of the whole program."""

    module: Module

    def constant(self, array: AnyArray, memory: int) -> int:
        """Return the index of a tensor in the constant table, in a memory."""
        ...

    def kernel(self, name: str) -> int:
        """Return the index of a kernel."""
        ...

    def memory_at(self, place: Place | None) -> int:
        """Return the memory of what is at a place."""
        ...

    def function(self, name: str) -> FunctionBuilder:
        """Return the builder of a function of the module."""
        ...

    def boxed_function(self, name: str) -> FunctionBuilder:
        """Return code for closures of a function of the module."""
        ...

    def local_function(self, code: Lifted, around: Environment, *, boxed: bool) -> FunctionBuilder:
        """Add the code of a local function, which takes its captures first."""
        ...


class Environment:
    """Where things are in one function, and the block being written.

    Attributes:
        tables: of the whole program.
        name: of the function, for names of functions in it.
        facts: of the function.
        writer: of its code.
        variables: those met so far.
        symbols: those met so far.
    """

    def __init__(self, tables: Tables, name: str, facts: Facts) -> None:
        self.tables = tables
        self.name = name
        self.facts = facts
        self.writer = Writer()
        self.variables: dict[Var, VmValue] = {}
        self.symbols: dict[Sym, Operand] = {}

    # ------------------------------------------------------------------ binding

    def bind(self, var: Var, value: VmValue) -> None:
        """Give a variable its value, and the symbols of its type theirs."""
        self.variables[var] = value
        self._bind_symbols(var.type, value)

    def _bind_symbols(self, t: Type, value: VmValue) -> None:
        pending = [e for e in integers(t) if e.value is None and self._unknown(e)]
        if not pending:
            return
        sources = [pair for pair in self._sources(t, value) if pair[0].value is None]
        progress = True
        while progress and sources:
            progress = False
            rest: list[tuple[Int, VmValue, int]] = []
            for e, holder, axis in sources:
                unknown = self._unknown(e)
                if len(unknown) == 1 and (solved := self._solve(e, unknown[0], holder, axis)):
                    self.symbols[unknown[0]] = solved[0]
                    progress = True
                elif unknown:
                    rest.append((e, holder, axis))
            sources = rest

    def _unknown(self, e: Int) -> list[Sym]:
        return [s for s in symbols(e) if s not in self.symbols and s in self.facts.needed]

    def _solve(self, e: Int, sym: Sym, holder: VmValue, axis: int) -> tuple[Operand] | None:
        """Solve `e == found` for the symbol, where every other symbol has its operand."""
        c = coefficient(e, sym)
        others = substitute(e, {sym: lit(0)})
        if c is None or not c.value or any(s not in self.symbols for s in symbols(others)):
            return None
        if axis >= 0:
            found: Operand = self.writer.make("DIM", axis, args=(self.operand(holder),), kind=Kind.INT)
        else:
            found = as_operand(holder)
        rest = self.writer.integer(others, self.symbols)
        difference = self.writer.binary("SUB", found, rest)
        return (self.writer.binary("FLOORDIV", difference, c.value),)

    def _sources(self, t: Type, value: VmValue) -> Iterator[tuple[Int, VmValue, int]]:
        """Return integers of a type with where they are found: a tensor's axis, or (-1) itself."""
        match t:
            case ExistsType(body=body):
                yield from self._sources(body, value)
            case TensorType(shape=shape):
                yield from ((e, value, axis) for axis, e in enumerate(shape))
            case IntType(value=Int() as e):
                yield e, value, -1
            case ShapeType(values=dims) if any(e is not None for e in dims):
                parts = self.fields(value, len(dims))
                yield from ((e, p, -1) for e, p in zip(dims, parts, strict=True) if e is not None)
            case TupleType(fields=types) if any(True for _ in integers(t)):
                for part_type, part in zip(types, self.fields(value, len(types)), strict=True):
                    yield from self._sources(part_type, part)
            case _:
                pass

    # ------------------------------------------------------------------ forms of values

    def operand(self, value: VmValue) -> Operand:
        """Return the one register (or number) of a value in boxed form."""
        match value:
            case Register() | int():
                return value
            case Constant(array=array, memory=memory):
                index = self.tables.constant(array, memory or 0)
                return self.writer.make("CONST", index, kind=Kind.TENSOR)
            case Fields(items=items):
                parts = [self.operand(item) for item in items]
                return self.writer.make("TUPLE", len(parts), args=parts, kind=Kind.TUPLE)
            case GlobalFunction(name=name):
                code = self.tables.boxed_function(name)
                return self.writer.make("CLOSURE", code, 0, kind=Kind.CLOSURE)
            case LocalFunction(captures=captures):
                code = self.boxed_code(value)
                return self.writer.make("CLOSURE", code, len(captures), args=captures, kind=Kind.CLOSURE)
            case LoopFunction(var=var):
                raise InternalError(f"the loop '{var.name}' is used as a value")
            case _:
                assert_never(value)

    def fields(self, value: VmValue, count: int) -> tuple[VmValue, ...]:
        """Return the fields of a tuple, or the integers of a shape."""
        if isinstance(value, Fields):
            assert len(value.items) == count, "a tuple of another length"
            return value.items
        whole = self.operand(value)
        kinds = (Kind.ANY,) * count
        return self.writer.emit("UNPACK", count, args=(whole,), kinds=kinds)

    def flatten(self, value: VmValue, t: Type) -> list[Operand]:
        """Return a value in the flat form of a declared type."""
        match t:
            case ExistsType(body=body):
                return self.flatten(value, body)
            case ShapeType(values=dims):
                return [self.operand(part) for part in self.fields(value, len(dims))]
            case TupleType(fields=types) if is_spread(t):
                parts = self.fields(value, len(types))
                return [x for part, pt in zip(parts, types, strict=True) for x in self.flatten(part, pt)]
            case _:
                return [self.operand(value)]

    def integer(self, e: Int) -> Operand:
        """Return the operand of an integer over symbols in scope."""
        return self.writer.integer(e, self.symbols)

    # ------------------------------------------------------------------ functions with own code

    def lifted(self, var: Var, node: Function) -> LocalFunction:
        """Return a local function with code of its own, which captures what it mentions from here."""
        values: dict[Var, VmValue] = {}
        ints: dict[Sym, Operand] = {}
        pending = list(mentioned(node))
        for key in pending:
            if isinstance(key, Sym) and key in self.symbols:
                ints[key] = self.symbols[key]
            elif isinstance(key, Var) and key in self.variables and key not in values:
                found = values[key] = self.variables[key]
                if isinstance(found, LoopFunction):  # its body is written there
                    pending += mentioned(found.node)
        used = [*values.values(), *ints.values()]
        captures = tuple(dict.fromkeys(r for value in used for r in registers_of(value)))
        return LocalFunction(Lifted(var, node, values, ints, captures), captures)

    def direct_code(self, function: LocalFunction) -> FunctionBuilder:
        """Return code that takes captures and parameters in flat form."""
        code = function.code
        if code.direct is None:
            code.direct = self.tables.local_function(code, self, boxed=False)
        return code.direct

    def boxed_code(self, function: LocalFunction) -> FunctionBuilder:
        """Return code that takes captures, then what a closure is called with."""
        code = function.code
        if code.boxed is None:
            code.boxed = self.tables.local_function(code, self, boxed=True)
        return code.boxed

    def inside(self, code: Lifted, name: str) -> tuple[Environment, list[Register]]:
        """Return the environment in which a local function begins, and what holds its captures."""
        inner = {r: Register(r.kind) for r in code.captures}
        env = Environment(self.tables, name, self.facts)
        for sym, operand in code.ints.items():
            env.symbols[sym] = inner[operand] if isinstance(operand, Register) else operand
        for var, value in code.values.items():
            env.variables[var] = map_registers(value, inner.__getitem__)
        captures = tuple(inner.values())
        env.variables[code.var] = LocalFunction(code, captures)
        return env, list(captures)
