"""Tensor IR in A-normal form, with explicit storage, to register code: one function at a time.

Expressions are lowered either *for a value*, which the code after them uses, or *at an ending*: what
is to be done with the result (return it, or bring it to a join). Branches and calls at an ending need
no join and no frame: that is what makes tail calls of tail calls, and jumps of loops.

Loops, which are local functions (`analysis.local_functions`), are written where they are called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from inlay.arith.deferred import DeferredArray
from inlay.arith.expr import Int
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
    Project,
    RefCreate,
    RefPut,
    RefRead,
    RefTake,
    RefWrite,
    Tuple,
    Var,
)
from inlay.ir.types import ExistsType, FuncType, TensorType, Type
from inlay.ops.memory import TENSOR_AT
from inlay.vm.code import (
    Branch,
    Code,
    CodeBlock,
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
from inlay.vm.environment import Environment
from inlay.vm.intrinsics import INTRINSICS
from inlay.vm.patterns import Row, Test, inside, named_tags, next_test, rows_of, rows_with
from inlay.vm.values import (
    UNIT,
    Constant,
    Fields,
    GlobalFunction,
    LocalFunction,
    LoopFunction,
    VmValue,
    as_operand,
    flat_kinds,
    kind_of,
    layout_of,
    param_kinds,
    spread,
    spread_over,
)


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


class Lowering:
    """Writes the code of one function.

    Args:
        env: where what it mentions from outside is.
        builder: of the code.
        node: the function.
        captures: leading parameters.
        boxed: whether parameters and result are boxed, as for closures, or in flat form.
    """

    def __init__(
        self,
        env: Environment,
        builder: FunctionBuilder,
        node: Function,
        captures: Sequence[Register] = (),
        *,
        boxed: bool,
    ) -> None:
        self._env = env
        self._writer = env.writer
        self._builder = builder
        self._node = node
        self._captures = captures
        self._boxed = boxed
        self._heads: dict[Var, Head] = {}

    def finish(self) -> Code:
        """Write the body; return the code."""
        root = self._writer.block
        registers = [Register(kind) for kind in param_kinds(self._node, boxed=self._boxed)]
        if self._boxed:
            for param, register in zip(self._node.params, registers, strict=True):
                self._env.bind(param, register)
        else:
            self._bind_flat(self._node.params, registers)
        self._at_ending(self._node.body, ReturnTo(self._node.type.result, self._boxed))
        return Code(self._builder, (*self._captures, *registers), root)

    # ------------------------------------------------------------------ expressions

    def _at_ending(self, e: Expr, ending: Ending) -> None:
        """Lower a block; its result goes to the ending. Let spines are walked, not recursed."""
        while isinstance(e, Let):
            self._let(e)
            e = e.body
        self._at(e)
        match e:
            case If():
                condition = as_operand(self._value(e.condition))
                if isinstance(condition, int):
                    self._at_ending(e.then if condition else e.otherwise, ending)
                else:
                    arms = [self._arm(e.then, ending), self._arm(e.otherwise, ending)]
                    self._branch(condition, arms, None)
            case Match():
                self._match([self._value(e.scrutinee)], rows_of(e), ending)
            case Call(callee=Var() as callee) if callee in self._heads:
                self._continue(callee, e)
            case Call(callee=Function() as function):
                self._bind_args(function, e)
                self._at_ending(function.body, ending)
            case Call(callee=Var() as var):
                function = self._env.variables[var]
                if isinstance(function, LoopFunction):
                    self._loop(function, e, ending, None)
                else:
                    self._call_at(function, e, ending)
            case Call(callee=GlobalVar(name=name)) if name in self._functions:
                self._call_at(GlobalFunction(name), e, ending)
            case _:
                self._deliver(self._value(e), ending)

    def _deliver(self, value: VmValue, ending: Ending) -> None:
        """End the block with a value."""
        match ending:
            case ReturnTo(boxed=True):
                self._writer.end(Return((self._env.operand(value),)))
            case ReturnTo(type=t):
                self._writer.end(Return(tuple(self._env.flatten(value, t))))
            case YieldTo(join=join, type=t):
                self._writer.end(Yield(join, tuple(self._env.flatten(value, t))))
            case _:
                assert_never(ending)

    def _let(self, e: Let) -> None:
        value = e.value
        if e.var in self._env.facts.alone:
            pass  # made with the tensor in it
        elif not isinstance(value, Function):
            self._env.bind(e.var, self._value(value))
        elif e.var in self._env.facts.loops:
            self._env.variables[e.var] = LoopFunction(e.var, value)
        else:
            self._env.variables[e.var] = self._env.lifted(e.var, value)

    def _value(self, e: Expr) -> VmValue:
        """Lower an expression for its value."""
        match e:
            case Var():
                return self._env.variables[e]
            case Const():
                return self._constant(e)
            case GlobalVar(name=name):
                if name not in self._functions:
                    raise InternalError(f"kernel '{name}' is used as a value", where=str(e.span))
                return GlobalFunction(name)
            case Function():
                return self._env.lifted(Var("fn", e.type), e)
            case Tuple(fields=parts):
                return Fields(tuple(self._value(part) for part in parts))
            case Project(value=whole, index=index):
                found = self._value(whole)
                if isinstance(found, Fields):
                    return found.items[index]
                self._at(e)
                return self._writer.make(
                    "PROJECT", index, args=(self._env.operand(found),), kind=kind_of(e.type)
                )
            case RefCreate(value=content):
                boxed = self._operand(content)
                return self._writer.make("CELL_NEW", args=(boxed,), kind=Kind.CELL)
            case RefRead(ref=ref):
                cell = self._operand(ref)
                return self._writer.make("CELL_READ", args=(cell,), kind=Kind.ANY)
            case RefTake(ref=ref):
                return self._taken(self._operand(ref))
            case RefWrite(ref=ref, value=content) | RefPut(ref=ref, value=content):
                cell = self._operand(ref)
                boxed = self._operand(content)
                self._writer.emit("CELL_WRITE", args=(cell, boxed))
                return UNIT
            case Call():
                return self._call(e)
            case If() | Match() | Let():
                return self._joined(e)
            case OpRef() | ConstructorRef():
                raise InternalError("eta-expand comes before lowering", where=str(e.span))
            case _:
                assert_never(e)

    def _taken(self, cell: Operand) -> Register:
        """Move the content of a cell out, so that nothing but the result refers to it.

        What stands there until something is put back is unit: no value that a program could mistake for it.
        """
        content = self._writer.make("CELL_READ", args=(cell,), kind=Kind.ANY)
        self._writer.emit("CELL_WRITE", args=(cell, self._env.operand(UNIT)))
        return content

    def _operand(self, e: Expr) -> Operand:
        return self._env.operand(self._value(e))

    def _joined(self, e: If | Match | Let) -> VmValue:
        """Lower control flow whose result the code after it uses."""
        if isinstance(e, If):
            condition = as_operand(self._value(e.condition))
            self._at(e)
            if isinstance(condition, int):
                return self._value(e.then if condition else e.otherwise)
            join = _join(e.type)
            ending = YieldTo(join, e.type)
            arms = [self._arm(e.then, ending), self._arm(e.otherwise, ending)]
            self._branch(condition, arms, join)
            return spread_over(e.type, join.results)
        while isinstance(e, Let):
            self._let(e)
            e = e.body  # type: ignore[assignment]
        if not isinstance(e, Match):
            return self._value(e)
        return self._match_value([self._value(e.scrutinee)], rows_of(e), e.type)

    def _constant(self, e: Const) -> VmValue:
        match e.held:
            case np.ndarray() | DeferredArray():
                known = e.place is not None
                return Constant(e.held, self._env.tables.memory_at(e.place) if known else None)
            case bool():
                return int(e.held)
            case Int():
                return self._env.integer(e.held)
            case tuple():
                return Fields(tuple(self._env.integer(part) for part in e.held))
            case _:
                assert_never(e.held)

    # ------------------------------------------------------------------ control

    def _arm(self, e: Expr, ending: Ending) -> CodeBlock:
        with self._writer.nested() as block:
            self._at_ending(e, ending)
        return block

    def _branch(
        self,
        selector: Operand,
        arms: list[CodeBlock],
        join: Join | None,
        targets: tuple[int, ...] | None = None,
    ) -> None:
        self._writer.append(Branch(selector, tuple(arms), join, targets, self._writer.span))

    def _match(self, looked_at: list[VmValue], rows: list[Row], ending: Ending) -> None:
        """Test patterns from left to right; the first row whose patterns all match is taken.

        A row that stays possible behind several tags is written once for each of them.
        """
        test = next_test(self._env, looked_at, rows)
        if isinstance(test, Row):
            self._at_ending(test.body, ending)
        else:
            self._switch(test, ending, None)

    def _match_value(self, looked_at: list[VmValue], rows: list[Row], t: Type) -> VmValue:
        """The same for a value that the code after it uses: all arms meet at one join."""
        test = next_test(self._env, looked_at, rows)
        if isinstance(test, Row):
            return self._value(test.body)
        join = _join(t)
        self._switch(test, YieldTo(join, t), join)
        return spread_over(t, join.results)

    def _switch(self, test: Test, ending: Ending, join: Join | None) -> None:
        arms: list[CodeBlock] = []
        targets: list[int] = []
        tag = self._writer.make("TAG", args=(test.subject,), kind=Kind.INT)
        named = named_tags(test)
        others: int | None = None
        for i in range(len(test.widths)):
            if i not in named and others is not None:
                targets.append(others)
                continue
            known = i if i in named else None
            left = rows_with(test, known)
            targets.append(len(arms) if left else -1)
            if known is None:
                others = targets[-1]
            if left:
                with self._writer.nested() as block:
                    self._match(inside(self._env, test, known, left), left, ending)
                arms.append(block)
        # A tag that no row accepts cannot occur; it may share any arm.
        reached = tuple(t if t >= 0 else len(arms) - 1 for t in targets)
        self._branch(tag, arms, join, reached)

    # ------------------------------------------------------------------ calls

    @property
    def _functions(self) -> dict[str, Function]:
        return self._env.tables.module.functions  # type: ignore[return-value]

    def _call(self, e: Call) -> VmValue:
        match e.callee:
            case OpRef(op=op, attrs=attrs):
                intrinsic = INTRINSICS.get(op.name)
                if intrinsic is None and op.alias is None:
                    raise InternalError(
                        f"operator {op.name} has no instruction and no kernel", where=str(e.span)
                    )
                if op is TENSOR_AT and e.args[0] in self._env.facts.alone:
                    return self._allocated(e)
                args = [self._argument(arg, e) for arg in e.args]
                self._at(e)
                if intrinsic is None:
                    return self._view(e, args[op.alias or 0])
                return intrinsic(self._env, e, attrs, args)
            case ConstructorRef(tag=tag):
                parts = [self._operand(arg) for arg in e.args]
                self._at(e)
                return self._writer.make("CONSTRUCT", tag, len(parts), args=parts, kind=Kind.ADT)
            case GlobalVar(name=name) if name in self._functions:
                return self._call_known(GlobalFunction(name), e)
            case Function() as function:
                self._bind_args(function, e)
                return self._value(function.body)
            case Var() as var:
                callee = self._env.variables[var]
                if isinstance(callee, LoopFunction):
                    join = _join(callee.node.type.result)
                    self._loop(callee, e, YieldTo(join, callee.node.type.result), join)
                    return spread_over(callee.node.type.result, join.results)
                return self._call_known(callee, e)
            case _:
                raise InternalError("a kernel is called without storage", where=str(e.span))

    def _allocated(self, e: Call) -> VmValue:
        """Make a tensor in a storage of its own."""
        t = e.type
        assert isinstance(t, TensorType), "tensor_at makes a tensor"
        dims = [self._env.integer(d) for d in t.shape]
        self._at(e)
        return self._writer.make("ALLOCATE", 0, t.dtype.name, len(dims), args=dims, kind=Kind.TENSOR)

    def _view(self, e: Call, source: VmValue) -> VmValue:
        """Return the same elements with the shape of the result."""
        t = e.type.body if isinstance(e.type, ExistsType) else e.type
        if not isinstance(t, TensorType):
            return source
        dims = [self._env.integer(d) for d in t.shape]
        args = (self._env.operand(source), *dims)
        return self._writer.make("RESHAPE", len(dims), args=args, kind=Kind.TENSOR)

    def _argument(self, e: Expr, call: Call) -> VmValue:
        # Kernels are named by the operator that runs them; their name is not a value.
        if isinstance(e, GlobalVar) and e.name not in self._functions:
            return UNIT
        value = self._value(e)
        if isinstance(value, Constant) and value.memory is None:  # it is where the operation runs
            return Constant(value.array, self._env.tables.memory_at(call.place))
        return value

    def _call_known(self, callee: VmValue, e: Call) -> VmValue:
        if not isinstance(callee, (GlobalFunction, LocalFunction)):
            args = [self._env.operand(callee), *map(self._operand, e.args)]
            self._at(e)
            count = len(e.args)
            return self._writer.emit("CALL_CLOSURE", count, 1, args=args, kinds=(Kind.ANY,))[0]
        code, args, declared = self._direct(callee, e.args)
        self._at(e)
        results = self._writer.emit("CALL", code, args=args, kinds=flat_kinds(declared))
        return spread_over(declared, results)

    def _call_at(self, callee: VmValue, e: Call, ending: Ending) -> None:
        """Call at an ending: a tail call where the result needs no change of form."""
        if not isinstance(callee, (GlobalFunction, LocalFunction)):
            is_one = isinstance(ending, ReturnTo) and (ending.boxed or layout_of(ending.type) == 1)
            if not is_one:
                self._deliver(self._call_known(callee, e), ending)
                return
            boxed = [self._env.operand(callee), *map(self._operand, e.args)]
            self._at(e)
            self._writer.end(TailCallClosure(tuple(boxed)))
            return
        declared = self._declared(callee)
        wanted = 1 if isinstance(ending, ReturnTo) and ending.boxed else layout_of(ending.type)
        if not isinstance(ending, ReturnTo) or layout_of(declared.result) != wanted:
            self._deliver(self._call_known(callee, e), ending)
            return
        code, operands, _ = self._direct(callee, e.args)
        self._at(e)
        self._writer.end(TailCall(code, tuple(operands)))

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
            code = self._env.tables.function(callee.name)
        else:
            code = self._env.direct_code(callee)
            operands.extend(callee.captures)
        for arg, t in zip(args, declared.params, strict=True):
            operands.extend(self._env.flatten(self._value(arg), t))
        return code, operands, declared.result

    def _bind_args(self, function: Function, e: Call) -> None:
        for param, arg in zip(function.params, e.args, strict=True):
            self._env.bind(param, self._value(arg))

    # ------------------------------------------------------------------ loops

    def _loop(self, callee: LoopFunction, e: Call, ending: Ending, join: Join | None) -> None:
        function = callee.node
        init = self._flat_args(function, e)
        head = Head(tuple(Register(kind) for kind in param_kinds(function, boxed=False)))
        self._heads[callee.var] = head
        with self._writer.nested() as block:
            self._bind_flat(function.params, head.params)
            self._at_ending(function.body, ending)
        del self._heads[callee.var]
        self._at(e)
        self._writer.append(Loop(head, tuple(init), block, join, self._writer.span))

    def _bind_flat(self, params: Sequence[Var], registers: Sequence[Register]) -> None:
        supply = iter(registers)
        for param in params:
            self._env.bind(param, spread(param.type, lambda: next(supply)))

    def _flat_args(self, function: Function, e: Call) -> list[Operand]:
        pairs = zip(function.params, e.args, strict=True)
        return [x for p, arg in pairs for x in self._env.flatten(self._value(arg), p.type)]

    def _continue(self, var: Var, e: Call) -> None:
        callee = self._env.variables[var]
        assert isinstance(callee, LoopFunction), "only loops have heads"
        values = self._flat_args(callee.node, e)
        self._writer.end(Continue(self._heads[var], tuple(values)))

    def _at(self, e: Expr) -> None:
        if e.span:
            self._writer.span = str(e.span)


def _join(t: Type) -> Join:
    return Join(tuple(Register(kind) for kind in flat_kinds(t)))
