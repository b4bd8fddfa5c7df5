"""Tensor IR in A-normal form, with explicit storage, to register code: one function at a time.

Expressions are lowered either *for a value*, which the code after them uses, or *at an ending*: what
is to be done with the result (return it, or bring it to a join). Branches and calls at an ending need
no join and no frame: that is what makes tail calls of tail calls, and jumps of loops.

**Dims.** An integer of the IR mentions symbols. A symbol gets its operand where the binder whose type
mentions it is met: from the dims of a tensor, or from a control value (`_bind_symbols`). Only symbols
that some constant of the function mentions are looked up.

**Local functions.** Loops are written where they are called (`local_functions`). Others get code of
their own with their captures as leading parameters, and a closure only where they escape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

import numpy as np

from inlay.analysis.blocks import count_uses, definitions, operands, values
from inlay.analysis.local_functions import find_loops
from inlay.arith.expr import Int, Sym, coefficient, lit, substitute, symbols
from inlay.base.diagnostics import InternalError
from inlay.bytecode.builder import FunctionBuilder
from inlay.bytecode.isa import Kind
from inlay.ir.expr import (
    Call,
    Const,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    OpRef,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Project,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    Var,
)
from inlay.ir.module import Module
from inlay.ir.types import (
    ExistsType,
    FuncType,
    IntType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
)
from inlay.memory.explicit_alloc import size_of
from inlay.ops.memory import TENSOR_AT, StorageAttrs
from inlay.vm.code import (
    Block,
    Branch,
    Code,
    Continue,
    Head,
    Join,
    Loop,
    Operand,
    Register,
    Return,
    TailCall,
    TailCallClosure,
    Yield,
)
from inlay.vm.values import (
    UNIT,
    Constant,
    Fields,
    GlobalFunction,
    Lifted,
    LocalFunction,
    LoopFunction,
    Value,
    as_operand,
    flat_kinds,
    is_spread,
    kind_of,
    layout_of,
    map_registers,
    registers_of,
    spread_over,
)
from inlay.vm.writer import Writer

ALIGNMENT = 64
"""Bytes: every storage of the machine begins at a multiple of it."""


class Tables(Protocol):
    """What the code of one function may ask of the whole program."""

    module: Module

    def constant(self, array: np.ndarray) -> int:
        """Return the index of a tensor in the constant table."""
        ...

    def kernel(self, name: str) -> int:
        """Return the index of a kernel."""
        ...

    def resident(self, constant: int, kernel: str) -> int:
        """Return the index of a constant where a kernel can read it."""
        ...

    def function(self, name: str) -> FunctionBuilder:
        """Return the builder of a function of the module."""
        ...

    def boxed_function(self, name: str) -> FunctionBuilder:
        """Return code for closures of a function of the module."""
        ...

    def new_function(
        self, name: str, params: Sequence[Kind], results: Sequence[Kind]
    ) -> FunctionBuilder:
        """Add a function."""
        ...

    def later(self, lowering: Lowering) -> None:
        """Finish a lowering that was prepared, after the one in progress."""
        ...

    def intrinsic(self, name: str) -> Intrinsic | None:
        """Return how calls of an operator are written as instructions, if they are."""
        ...


class Intrinsic(Protocol):
    """Writes the call of an operator."""

    def __call__(self, lower: Lowering, call: Call, attrs: object, args: list[Value]) -> Value:
        """Append instructions; return the result."""
        ...


@dataclass(frozen=True, slots=True)
class ReturnTo:
    """Give the result to the caller, in the form of the declared type, or boxed."""

    type: Type
    boxed: bool = False


@dataclass(frozen=True, slots=True)
class YieldTo:
    """Bring the result to a join, in flat form."""

    join: Join
    type: Type


Ending = ReturnTo | YieldTo


@dataclass(frozen=True, slots=True)
class _Row:
    """An arm while its pattern is being tested: one pattern for each value looked at."""

    patterns: tuple[Pattern, ...]
    bound: tuple[tuple[Var, Value], ...]
    body: Expr


@dataclass(frozen=True, slots=True)
class _Test:
    """A tag to be looked at: of which value, and what is decided by it.

    Attributes:
        subject: the constructed value.
        column: where its patterns stand in the rows.
        widths: number of fields of each constructor.
        others: the values of the other columns.
        rows: what may match so far.
    """

    subject: Operand
    column: int
    widths: list[int]
    others: list[Value]
    rows: list[_Row]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a function of the module before its code is written.

    Attributes:
        loops: local functions that are written where they are called.
        needed: symbols that integers of the code mention.
        alone: storages that one tensor has to itself, which fills them: both are made at once.
    """

    loops: frozenset[Var]
    needed: frozenset[Sym]
    alone: frozenset[Var]


class Lowering:
    """The state of one function: where variables and symbols are, and the block being written."""

    def __init__(self, tables: Tables, builder: FunctionBuilder, facts: Facts) -> None:
        self.tables = tables
        self.writer = Writer()
        self.variables: dict[Var, Value] = {}
        self.symbols: dict[Sym, Operand] = {}
        self._builder = builder
        self._facts = facts
        self._heads: dict[Var, Head] = {}
        self._params: tuple[Register, ...] = ()
        self._rest: tuple[Expr, Ending] | None = None

    # ------------------------------------------------------------------ whole functions

    def prepare(
        self, params: Sequence[Register], bound: Sequence[tuple[Var, Value]], body: Expr,
        ending: ReturnTo,
    ) -> None:  # fmt: skip
        """Say what the function takes, what its parameters are, and what it computes."""
        self._params = tuple(params)
        for var, value in bound:
            self.bind(var, value)
        self._rest = (body, ending)

    def finish(self) -> Code:
        """Write the body; return the code."""
        assert self._rest is not None, "a lowering is prepared first"
        root = self.writer.block
        self.at_ending(*self._rest)
        return Code(self._builder, self._params, root)

    # ------------------------------------------------------------------ binding

    def bind(self, var: Var, value: Value) -> None:
        """Give a variable its value, and the symbols of its type theirs."""
        self.variables[var] = value
        self._bind_symbols(var.type, value)

    def _bind_symbols(self, t: Type, value: Value) -> None:
        pending = [e for e in _integers(t) if e.value is None and self._unknown(e)]
        if not pending:
            return
        sources = [pair for pair in self._sources(t, value) if pair[0].value is None]
        progress = True
        while progress and sources:
            progress = False
            rest: list[tuple[Int, Value, int]] = []
            for e, holder, axis in sources:
                unknown = self._unknown(e)
                if len(unknown) == 1 and (solved := self._solve(e, unknown[0], holder, axis)):
                    self.symbols[unknown[0]] = solved[0]
                    progress = True
                elif unknown:
                    rest.append((e, holder, axis))
            sources = rest

    def _unknown(self, e: Int) -> list[Sym]:
        return [s for s in symbols(e) if s not in self.symbols and s in self._facts.needed]

    def _solve(self, e: Int, sym: Sym, holder: Value, axis: int) -> tuple[Operand] | None:
        """Solve `e == found` for the symbol, where every other symbol has its operand."""
        c = coefficient(e, sym)
        others = substitute(e, {sym: lit(0)})
        if c is None or not c.value or any(s not in self.symbols for s in symbols(others)):
            return None
        if axis >= 0:
            found: Operand = self.writer.make(
                "DIM", axis, args=(self.operand(holder),), kind=Kind.INT
            )
        else:
            found = as_operand(holder)
        rest = self.writer.integer(others, self.symbols)
        difference = self.writer.binary("SUB", found, rest)
        return (self.writer.binary("FLOORDIV", difference, c.value),)

    def _sources(self, t: Type, value: Value) -> Iterator[tuple[Int, Value, int]]:
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
            case TupleType(fields=types) if any(True for _ in _integers(t)):
                for part_type, part in zip(types, self.fields(value, len(types)), strict=True):
                    yield from self._sources(part_type, part)
            case _:
                pass

    # ------------------------------------------------------------------ forms of values

    def operand(self, value: Value) -> Operand:
        """Return the one register (or number) of a value in boxed form."""
        match value:
            case Register() | int():
                return value
            case Constant(index=index):
                return self.writer.make("CONST", index, kind=Kind.TENSOR)
            case Fields(items=items):
                parts = [self.operand(item) for item in items]
                return self.writer.make("TUPLE", len(parts), args=parts, kind=Kind.TUPLE)
            case GlobalFunction(name=name):
                code = self.tables.boxed_function(name)
                return self.writer.make("CLOSURE", code, 0, kind=Kind.CLOSURE)
            case LocalFunction(captures=captures):
                code = self._boxed_code(value)
                return self.writer.make(
                    "CLOSURE", code, len(captures), args=captures, kind=Kind.CLOSURE
                )
            case LoopFunction(var=var):
                raise InternalError(f"the loop '{var.name}' is used as a value")
            case _:
                assert_never(value)

    def fields(self, value: Value, count: int) -> tuple[Value, ...]:
        """Return the fields of a tuple, or the integers of a shape."""
        if isinstance(value, Fields):
            assert len(value.items) == count, "a tuple of another length"
            return value.items
        whole = self.operand(value)
        kinds = (Kind.ANY,) * count
        return self.writer.emit("UNPACK", count, args=(whole,), kinds=kinds)

    def flatten(self, value: Value, t: Type) -> list[Operand]:
        """Return a value in the flat form of a declared type."""
        match t:
            case ExistsType(body=body):
                return self.flatten(value, body)
            case ShapeType(values=dims):
                return [self.operand(part) for part in self.fields(value, len(dims))]
            case TupleType(fields=types) if is_spread(t):
                parts = self.fields(value, len(types))
                return [
                    x for part, pt in zip(parts, types, strict=True) for x in self.flatten(part, pt)
                ]
            case _:
                return [self.operand(value)]

    def integer(self, e: Int) -> Operand:
        """Return the operand of an integer over symbols in scope."""
        return self.writer.integer(e, self.symbols)

    # ------------------------------------------------------------------ expressions

    def at_ending(self, e: Expr, ending: Ending) -> None:
        """Lower a block; its result goes to the ending. Let spines are walked, not recursed."""
        while isinstance(e, Let):
            self._let(e)
            e = e.body
        self._at(e)
        match e:
            case If():
                condition = as_operand(self.value(e.condition))
                if isinstance(condition, int):
                    self.at_ending(e.then if condition else e.otherwise, ending)
                else:
                    arms = [self._arm(e.then, ending), self._arm(e.otherwise, ending)]
                    self._branch(condition, arms, None)
            case Match():
                rows = [_Row((arm.pattern,), (), arm.body) for arm in e.arms]
                self._match([self.value(e.scrutinee)], rows, ending)
            case Call(callee=Var() as callee) if callee in self._heads:
                self._continue(callee, e)
            case Call(callee=Function() as function):
                self._bind_args(function, e)
                self.at_ending(function.body, ending)
            case Call(callee=Var() as var, args=args):
                function = self.variables[var]
                if isinstance(function, LoopFunction):
                    self._loop(function, e, ending, None)
                else:
                    self._call_at(function, args, e, ending)
            case Call(callee=GlobalVar(name=name), args=args) if name in self._functions:
                self._call_at(GlobalFunction(name), args, e, ending)
            case _:
                self.deliver(self.value(e), ending)

    def deliver(self, value: Value, ending: Ending) -> None:
        """End the block with a value."""
        match ending:
            case ReturnTo(boxed=True):
                self.writer.end(Return((self.operand(value),)))
            case ReturnTo(type=t):
                self.writer.end(Return(tuple(self.flatten(value, t))))
            case YieldTo(join=join, type=t):
                self.writer.end(Yield(join, tuple(self.flatten(value, t))))
            case _:
                assert_never(ending)

    def _let(self, e: Let) -> None:
        value = e.value
        if e.var in self._facts.alone:
            pass  # made with the tensor in it
        elif not isinstance(value, Function):
            self.bind(e.var, self.value(value))
        elif e.var in self._facts.loops:
            self.variables[e.var] = LoopFunction(e.var, value)
        else:
            self.variables[e.var] = self._lifted(e.var, value)

    def value(self, e: Expr) -> Value:
        """Lower an expression for its value."""
        match e:
            case Var():
                return self.variables[e]
            case Const():
                return self._constant(e)
            case GlobalVar(name=name):
                if name not in self._functions:
                    raise InternalError(f"kernel '{name}' is used as a value", where=str(e.span))
                return GlobalFunction(name)
            case Function():
                return self._lifted(Var("fn", e.type), e)
            case Tuple(fields=parts):
                return Fields(tuple(self.value(part) for part in parts))
            case Project(value=whole, index=index):
                found = self.value(whole)
                if isinstance(found, Fields):
                    return found.items[index]
                self._at(e)
                return self.writer.make(
                    "PROJECT", index, args=(self.operand(found),), kind=kind_of(e.type)
                )
            case RefCreate(value=content):
                boxed = self.operand(self.value(content))
                return self.writer.make("CELL_NEW", args=(boxed,), kind=Kind.CELL)
            case RefRead(ref=ref):
                cell = self.operand(self.value(ref))
                return self.writer.make("CELL_READ", args=(cell,), kind=Kind.ANY)
            case RefWrite(ref=ref, value=content):
                cell, boxed = self.operand(self.value(ref)), self.operand(self.value(content))
                self.writer.emit("CELL_WRITE", args=(cell, boxed))
                return UNIT
            case Call():
                return self._call(e)
            case If() | Match() | Let():
                return self._joined(e)
            case OpRef() | ConstructorRef():
                raise InternalError("eta-expand comes before lowering", where=str(e.span))
            case _:
                assert_never(e)

    def _joined(self, e: If | Match | Let) -> Value:
        """Lower control flow whose result the code after it uses."""
        if isinstance(e, If):
            condition = as_operand(self.value(e.condition))
            self._at(e)
            if isinstance(condition, int):
                return self.value(e.then if condition else e.otherwise)
            join = _join(e.type)
            ending = YieldTo(join, e.type)
            arms = [self._arm(e.then, ending), self._arm(e.otherwise, ending)]
            self._branch(condition, arms, join)
            return spread_over(e.type, join.results)
        while isinstance(e, Let):
            self._let(e)
            e = e.body  # type: ignore[assignment]
        if not isinstance(e, Match):
            return self.value(e)
        rows = [_Row((arm.pattern,), (), arm.body) for arm in e.arms]
        return self._match_value([self.value(e.scrutinee)], rows, e.type)

    def _constant(self, e: Const) -> Value:
        match e.value:
            case np.ndarray():
                return Constant(self.tables.constant(e.value))
            case bool():
                return int(e.value)
            case Int():
                return self.integer(e.value)
            case tuple():
                return Fields(tuple(self.integer(part) for part in e.value))
            case _:
                assert_never(e.value)

    # ------------------------------------------------------------------ control

    def _arm(self, e: Expr, ending: Ending) -> Block:
        with self.writer.nested() as block:
            self.at_ending(e, ending)
        return block

    def _branch(
        self, selector: Operand, arms: list[Block], join: Join | None,
        targets: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        self.writer.append(Branch(selector, tuple(arms), join, targets, self.writer.span))

    def _match(self, looked_at: list[Value], rows: list[_Row], ending: Ending) -> None:
        """Test patterns from left to right; the first row whose patterns all match is taken.

        A row that stays possible behind several tags is written once for each of them.
        """
        test = self._next_test(looked_at, rows)
        if isinstance(test, _Row):
            self.at_ending(test.body, ending)
        else:
            self._switch(test, ending, None)

    def _match_value(self, looked_at: list[Value], rows: list[_Row], t: Type) -> Value:
        """The same for a value that the code after it uses: all arms meet at one join."""
        test = self._next_test(looked_at, rows)
        if isinstance(test, _Row):
            return self.value(test.body)
        join = _join(t)
        self._switch(test, YieldTo(join, t), join)
        return spread_over(t, join.results)

    def _next_test(self, looked_at: list[Value], rows: list[_Row]) -> _Row | _Test:
        """Take apart what needs no test; return the first test, or the row that matches."""
        while True:
            assert rows, "the verifier found that arms cover every value"
            first = rows[0]
            column = next((i for i, p in enumerate(first.patterns) if _is_test(p)), None)
            if column is None:
                for pattern, value in zip(first.patterns, looked_at, strict=True):
                    if isinstance(pattern, PatternVar):
                        self.bind(pattern.var, value)
                for var, value in first.bound:
                    self.bind(var, value)
                return first
            pattern, subject = first.patterns[column], looked_at[column]
            others = looked_at[:column] + looked_at[column + 1 :]
            if isinstance(pattern, PatternConstructor):
                constructors = self.tables.module.adts[pattern.adt].constructors
                widths = [len(c.fields) for c in constructors]
                whole = self.operand(subject)
                if len(widths) > 1:
                    return _Test(whole, column, widths, others, rows)
                rows = _expand_all(rows, column, whole, 0, widths[0])
                looked_at = self._parts(whole, rows, widths[0]) + others
            else:
                assert isinstance(pattern, PatternTuple), "tests are constructors and tuples"
                width = len(pattern.fields)
                rows = _expand_all(rows, column, subject, None, width)
                looked_at = list(self.fields(subject, width)) + others

    def _switch(self, test: _Test, ending: Ending, join: Join | None) -> None:
        arms: list[Block] = []
        targets: list[int] = []
        tag = self.writer.make("TAG", args=(test.subject,), kind=Kind.INT)
        for index, width in enumerate(test.widths):
            left = _expand_all(test.rows, test.column, test.subject, index, width)
            targets.append(len(arms) if left else -1)
            if left:
                with self.writer.nested() as block:
                    parts = self._parts(test.subject, left, width)
                    self._match(parts + test.others, left, ending)
                arms.append(block)
        # A tag that no row accepts cannot occur; it may share any arm.
        known = tuple(t if t >= 0 else len(arms) - 1 for t in targets)
        self._branch(tag, arms, join, known)

    def _parts(self, whole: Operand, rows: list[_Row], width: int) -> list[Value]:
        """Take the fields that some row looks at out of a constructed value."""
        used = [any(not isinstance(r.patterns[i], PatternWildcard) for r in rows)
                for i in range(width)]  # fmt: skip
        if width and all(used):
            return list(self.writer.emit("UNPACK", width, args=(whole,), kinds=(Kind.ANY,) * width))
        return [
            self.writer.make("FIELD", i, args=(whole,), kind=Kind.ANY) if u else 0
            for i, u in enumerate(used)
        ]

    # ------------------------------------------------------------------ calls

    @property
    def _functions(self) -> dict[str, Function]:
        return self.tables.module.functions  # type: ignore[return-value]

    def _call(self, e: Call) -> Value:
        match e.callee:
            case OpRef(op=op, attrs=attrs):
                intrinsic = self.tables.intrinsic(op.name)
                if intrinsic is None and op.alias is None:
                    raise InternalError(
                        f"operator {op.name} has no instruction and no kernel", where=str(e.span)
                    )
                if op is TENSOR_AT and e.args[0] in self._facts.alone:
                    return self._allocated(e)
                args = [self._argument(arg) for arg in e.args]
                self._at(e)
                if intrinsic is None:
                    return self.view(e, args[op.alias or 0])
                return intrinsic(self, e, attrs, args)
            case ConstructorRef(tag=tag):
                parts = [self.operand(self.value(arg)) for arg in e.args]
                self._at(e)
                return self.writer.make("CONSTRUCT", tag, len(parts), args=parts, kind=Kind.ADT)
            case GlobalVar(name=name) if name in self._functions:
                return self._call_known(GlobalFunction(name), e)
            case Function() as function:
                self._bind_args(function, e)
                return self.value(function.body)
            case Var() as var:
                callee = self.variables[var]
                if isinstance(callee, LoopFunction):
                    join = _join(callee.node.type.result)
                    self._loop(callee, e, YieldTo(join, callee.node.type.result), join)
                    return spread_over(callee.node.type.result, join.results)
                return self._call_known(callee, e)
            case _:
                raise InternalError("a kernel is called without storage", where=str(e.span))

    def _allocated(self, e: Call) -> Value:
        """Make a tensor in a storage of its own."""
        t = e.type
        assert isinstance(t, TensorType), "tensor_at makes a tensor"
        dims = [self.integer(d) for d in t.shape]
        self._at(e)
        return self.writer.make(
            "ALLOCATE", 0, t.dtype.name, len(dims), args=dims, kind=Kind.TENSOR
        )

    def view(self, e: Call, source: Value) -> Value:
        """Return the same elements with the shape of the result."""
        t = e.type.body if isinstance(e.type, ExistsType) else e.type
        if not isinstance(t, TensorType):
            return source
        dims = [self.integer(d) for d in t.shape]
        args = (self.operand(source), *dims)
        return self.writer.make("RESHAPE", len(dims), args=args, kind=Kind.TENSOR)

    def _argument(self, e: Expr) -> Value:
        # Kernels are named by the operator that runs them; their name is not a value.
        if isinstance(e, GlobalVar) and e.name not in self._functions:
            return UNIT
        return self.value(e)

    def _call_known(self, callee: Value, e: Call) -> Value:
        if not isinstance(callee, (GlobalFunction, LocalFunction)):
            args = [self.operand(callee), *(self.operand(self.value(arg)) for arg in e.args)]
            self._at(e)
            count = len(e.args)
            return self.writer.emit("CALL_CLOSURE", count, 1, args=args, kinds=(Kind.ANY,))[0]
        code, args, declared = self._direct(callee, e.args)
        self._at(e)
        results = self.writer.emit("CALL", code, args=args, kinds=flat_kinds(declared))
        return spread_over(declared, results)

    def _call_at(
        self, callee: Value, args: tuple[Expr, ...], e: Call, ending: Ending
    ) -> None:  # fmt: skip
        """Call at an ending: a tail call where the result needs no change of form."""
        if not isinstance(callee, (GlobalFunction, LocalFunction)):
            whole = ending.type
            single = isinstance(ending, ReturnTo) and (ending.boxed or layout_of(whole) == 1)
            if not single:
                self.deliver(self._call_known(callee, e), ending)
                return
            boxed = [self.operand(callee), *(self.operand(self.value(arg)) for arg in args)]
            self._at(e)
            self.writer.end(TailCallClosure(tuple(boxed)))
            return
        declared = self._declared(callee)
        wanted = 1 if isinstance(ending, ReturnTo) and ending.boxed else layout_of(ending.type)
        if not isinstance(ending, ReturnTo) or layout_of(declared.result) != wanted:
            self.deliver(self._call_known(callee, e), ending)
            return
        code, operands, _ = self._direct(callee, args)
        self._at(e)
        self.writer.end(TailCall(code, tuple(operands)))

    def _declared(self, callee: GlobalFunction | LocalFunction) -> FuncType:
        if isinstance(callee, GlobalFunction):
            return self._functions[callee.name].type
        return callee.code.node.type

    def _direct(
        self, callee: GlobalFunction | LocalFunction, args: tuple[Expr, ...]
    ) -> tuple[FunctionBuilder, list[Operand], Type]:
        """Return the code of a known function, its operands, and its declared result."""
        declared = self._declared(callee)
        operands: list[Operand] = []
        if isinstance(callee, GlobalFunction):
            code = self.tables.function(callee.name)
        else:
            code = self._direct_code(callee)
            operands.extend(callee.captures)
        for arg, t in zip(args, declared.params, strict=True):
            operands.extend(self.flatten(self.value(arg), t))
        return code, operands, declared.result

    def _bind_args(self, function: Function, e: Call) -> None:
        for param, arg in zip(function.params, e.args, strict=True):
            self.bind(param, self.value(arg))

    # ------------------------------------------------------------------ loops

    def _loop(self, callee: LoopFunction, e: Call, ending: Ending, join: Join | None) -> None:
        function = callee.node
        init = [
            x
            for param, arg in zip(function.params, e.args, strict=True)
            for x in self.flatten(self.value(arg), param.type)
        ]
        kinds = [k for param in function.params for k in flat_kinds(param.type)]
        head = Head(tuple(Register(kind) for kind in kinds))
        self._heads[callee.var] = head
        with self.writer.nested() as block:
            self._bind_params(function, head.params)
            self.at_ending(function.body, ending)
        del self._heads[callee.var]
        self._at(e)
        self.writer.append(Loop(head, tuple(init), block, join, self.writer.span))

    def _bind_params(self, function: Function, registers: Sequence[Register]) -> None:
        supply = iter(registers)
        for param in function.params:
            count = len(flat_kinds(param.type))
            self.bind(param, spread_over(param.type, [next(supply) for _ in range(count)]))

    def _continue(self, var: Var, e: Call) -> None:
        callee = self.variables[var]
        assert isinstance(callee, LoopFunction), "only loops have heads"
        values = [
            x
            for param, arg in zip(callee.node.params, e.args, strict=True)
            for x in self.flatten(self.value(arg), param.type)
        ]
        self.writer.end(Continue(self._heads[var], tuple(values)))

    # ------------------------------------------------------------------ functions with own code

    def _lifted(self, var: Var, node: Function) -> LocalFunction:
        """Return a local function with code of its own, which captures what it mentions from here."""
        values: dict[Var, Value] = {}
        ints: dict[Sym, Operand] = {}
        for key in _mentioned(node):
            if isinstance(key, Sym) and key in self.symbols:
                ints[key] = self.symbols[key]
            elif isinstance(key, Var) and key in self.variables:
                values[key] = self.variables[key]
        used = [*values.values(), *ints.values()]
        captures = tuple(dict.fromkeys(r for value in used for r in registers_of(value)))
        return LocalFunction(Lifted(var, node, values, ints, captures), captures)

    def _direct_code(self, function: LocalFunction) -> FunctionBuilder:
        code = function.code
        if code.direct is None:
            node = code.node
            flat = [k for p in node.params for k in flat_kinds(p.type)]
            code.direct = self._own_code(code, flat, node.type.result, boxed=False)
        return code.direct

    def _boxed_code(self, function: LocalFunction) -> FunctionBuilder:
        code = function.code
        if code.boxed is None:
            kinds = [kind_of(p.type) for p in code.node.params]
            code.boxed = self._own_code(code, kinds, code.node.type.result, boxed=True)
        return code.boxed

    def _own_code(
        self, code: Lifted, kinds: list[Kind], result: Type, *, boxed: bool
    ) -> FunctionBuilder:
        node = code.node
        inner = {r: Register(r.kind) for r in code.captures}
        params = [*inner.values(), *(Register(kind) for kind in kinds)]
        results = (kind_of(result),) if boxed else flat_kinds(result)
        builder = self.tables.new_function(
            f"{self._builder.name}.{code.var.name}", [r.kind for r in params], results
        )
        lowering = Lowering(self.tables, builder, self._facts)
        for sym, operand in code.ints.items():
            lowering.symbols[sym] = inner[operand] if isinstance(operand, Register) else operand
        for var, value in code.values.items():
            lowering.variables[var] = map_registers(value, inner.__getitem__)
        lowering.variables[code.var] = LocalFunction(code, tuple(inner.values()))
        own = params[len(inner) :]
        bound: list[tuple[Var, Value]] = []
        for param in node.params:
            count = 1 if boxed else len(flat_kinds(param.type))
            taken, own = own[:count], own[count:]
            bound.append((param, taken[0] if boxed else spread_over(param.type, taken)))
        lowering.prepare(params, bound, node.body, ReturnTo(result, boxed))
        self.tables.later(lowering)
        return builder

    def _at(self, e: Expr) -> None:
        if e.span:
            self.writer.span = str(e.span)


def facts_of(function: Function) -> Facts:
    """Return what the code of a function, and of those in it, is written with."""
    needed = frozenset(key for key in _mentioned(function) if isinstance(key, Sym))
    return Facts(find_loops(function), needed, _storages_of_one(function))


def _storages_of_one(function: Function) -> frozenset[Var]:
    """Return the storages of the host that exactly one tensor is in, and just fits."""
    made = definitions(function.body)
    uses = count_uses(function.body)
    found: set[Var] = set()
    for value in made.values():
        match value:
            case Call(callee=OpRef(op=op), args=(Var() as storage, Const() as at, _)) if (
                op is TENSOR_AT and uses[storage] == 1 and at.value == 0
            ):
                alloc = made.get(storage)
                if isinstance(alloc, Call) and isinstance(value.type, TensorType):
                    assert isinstance(alloc.callee, OpRef), "storage is made by an operator"
                    attrs, size = alloc.callee.attrs, alloc.args[0]
                    assert isinstance(attrs, StorageAttrs), "alloc_storage has its attributes"
                    fits = isinstance(size, Const) and size.value == size_of(value.type)
                    if fits and not attrs.memory and attrs.alignment <= ALIGNMENT:
                        found.add(storage)
            case _:
                pass
    return frozenset(found)


def _mentioned(function: Function) -> dict[Var | Sym, None]:
    """Return the variables and symbols read in a function, in order; bound ones included."""
    found: dict[Var | Sym, None] = {}

    def read(e: Expr) -> None:
        if isinstance(e, Var):
            found[e] = None
        elif isinstance(e, Const):
            found.update(dict.fromkeys(_const_symbols(e)))

    for value in values(function.body):
        read(value)
        for operand in operands(value):
            read(operand)
        if isinstance(value, Call) and isinstance(value.callee, OpRef):
            # Views and allocations take their dims from the type of the result.
            for e in _integers(value.type):
                found.update(dict.fromkeys(symbols(e)))
    return found


def _const_symbols(e: Const) -> Iterator[Sym]:
    if isinstance(e.value, Int):
        yield from symbols(e.value)
    elif isinstance(e.value, tuple):
        for part in e.value:
            yield from symbols(part)


def _integers(t: Type) -> Iterator[Int]:
    match t:
        case TensorType(shape=shape):
            yield from shape
        case IntType(value=Int() as e):
            yield e
        case ShapeType(values=dims):
            yield from (e for e in dims if e is not None)
        case TupleType(fields=fields):
            for f in fields:
                yield from _integers(f)
        case ExistsType(body=body):
            yield from _integers(body)
        case _:
            pass


def _join(t: Type) -> Join:
    return Join(tuple(Register(kind) for kind in flat_kinds(t)))


def _is_test(pattern: Pattern) -> bool:
    return isinstance(pattern, (PatternConstructor, PatternTuple))


def _expand_all(
    rows: list[_Row], column: int, subject: Value, tag: int | None, width: int
) -> list[_Row]:
    """Return the rows that can still match, with one column replaced by columns for its fields."""
    return [r for row in rows if (r := _expand(row, column, subject, tag, width)) is not None]


def _expand(row: _Row, column: int, subject: Value, tag: int | None, width: int) -> _Row | None:
    """Return a row with one column replaced by columns for its fields; None if it cannot match."""
    pattern = row.patterns[column]
    bound = row.bound
    match pattern:
        case PatternWildcard():
            inner: tuple[Pattern, ...] = (PatternWildcard(),) * width
        case PatternVar(var=var):
            inner, bound = (PatternWildcard(),) * width, (*bound, (var, subject))
        case PatternTuple(fields=inner):
            pass
        case PatternConstructor(tag=found, fields=inner):
            if found != tag:
                return None
        case _:
            assert_never(pattern)
    rest = row.patterns[:column] + row.patterns[column + 1 :]
    return _Row(inner + rest, bound, row.body)
