"""Is a loop function well formed? All findings, not the first.

Checked: names; scopes of symbols and buffers; ranks and dtypes; which statements a stage has; the
rules of loop kinds; that stores of parallel and vector loops depend on the loop. Not checked, because
it needs values: bounds of indices, reads before writes, and races through equal indices. The
evaluator (`interp.loop`) checks those on the runs it makes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from inlay.arith.dtype import BOOL, I64, DType, Kind
from inlay.arith.expr import Int, Sym, symbols
from inlay.base.diagnostics import Collector, Diagnostic
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.dots import are_factors
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.printer import print_scalar, print_stmt
from inlay.loop.scalar import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Bind,
    Cast,
    Dot,
    Index,
    Intrinsic,
    IntrinsicOp,
    Lit,
    Load,
    Name,
    Reduce,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from inlay.loop.stmt import Alloc, Assert, Block, For, If, IterKind, Let, LoopKind, Seq, Stmt, Store, While

_FLOAT_UNARY = {UnaryOp.SQRT, UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.TRUNC, UnaryOp.ROUND_EVEN}
_BITS = {BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR}
_SHIFTS = {BinaryOp.SHL, BinaryOp.SHR}
_ARITY = {IntrinsicOp.FMA: 3, IntrinsicOp.POW: 2, IntrinsicOp.MUL_HIGH: 2}
_TESTS = {IntrinsicOp.IS_NAN, IntrinsicOp.IS_INF}


def verify(f: LoopFunction) -> tuple[Diagnostic, ...]:
    """Return what is wrong with a function, nothing if it is well formed."""
    checker = _Checker(f)
    checker.function()
    return checker.found.diagnostics


def check(f: LoopFunction) -> None:
    """Raise what `verify` finds.

    Raises:
        CompileError: `loop.*`.
    """
    checker = _Checker(f)
    checker.function()
    checker.found.raise_if_fatal()


class _Checker:
    """One walk with the scope; `_independent` are the variables of parallel and vector loops."""

    def __init__(self, f: LoopFunction) -> None:
        self._f = f
        self._read_only = set(f.params[: f.n_reads])
        self._buffers: dict[Buffer, int] = {}  # to the number of loops outside its allocation
        self._syms: dict[Sym, DType] = {}
        self._loops: list[For] = []
        self._blocks: set[str] = set()
        self._in_block = False
        self._where = ""
        self.found = Collector()

    def _report(self, kind: str, message: str, hint: str = "") -> None:
        notes = [f"in: {self._where}"] if self._where else []
        notes.append(f"function {self._f.name}")
        self.found.error(f"loop.{kind}", message, notes=notes, hint=hint)

    # ---------------------------------------------------------------- the function

    def function(self) -> None:
        f = self._f
        names: set[str] = set()
        for b in (*f.params, *f.workspaces):
            if b.name in names:
                self._report("name", f"found two buffers named {b.name}")
            names.add(b.name)
        if not f.name.isidentifier():
            self._report("name", f"found the name {f.name!r}, needed an identifier")
        for b in f.params:
            if b.scope != Scope.PARAM:
                self._report("buffer", f"found parameter {b.name} of scope {b.scope}")
        for b in f.workspaces:
            if not b.scope.is_scratch:
                self._report("buffer", f"found workspace {b.name} of scope {b.scope}")
        self._syms.update(dict.fromkeys(f.dims, I64))
        for b in (*f.params, *f.workspaces):
            self._buffers[b] = 0
            self._ints(b.shape)
            self._ints((*(b.strides or ()), b.first))
        self._stmt(f.body)

    # ---------------------------------------------------------------- statements

    def _stmt(self, s: Stmt) -> None:
        self._where = ""
        match s:
            case Seq(stmts=stmts):
                for inner in stmts:
                    self._stmt(inner)
            case For():
                self._for(s)
            case Block():
                self._block(s)
            case Store():
                self._store(s)
            case Let(sym=sym, value=value, body=body):
                self._where = f"let {sym.name} = {print_scalar(value)[:80]}"
                self._scalar(value)
                self._syms[sym] = value.dtype
                self._stmt(body)
                del self._syms[sym]
            case Alloc(buffer=buffer, body=body):
                self._alloc(buffer)
                self._stmt(body)
                del self._buffers[buffer]
            case If(condition=condition, then=then, otherwise=otherwise):
                self._condition(condition, "if")
                self._stmt(then)
                if otherwise is not None:
                    self._stmt(otherwise)
            case While(condition=condition, body=body):
                if self._f.stage is Stage.SCHEDULABLE:
                    self._report("stage", "found a while loop in a schedulable function")
                self._vector_body("while loop")
                self._condition(condition, "while")
                self._stmt(body)
            case Assert(condition=condition):
                self._vector_body("assertion")
                self._condition(condition, "assert")
            case _:
                assert_never(s)

    def _for(self, s: For) -> None:
        self._where = f"for {s.var.name}"
        self._ints((s.lo, s.extent))
        constant = s.extent.value
        if s.kind in (LoopKind.VECTOR, LoopKind.UNROLL, LoopKind.MATRIX) and constant is None:
            self._report("kind", f"found a {s.kind} loop of extent {s.extent}, needed a number")
        if s.kind is LoopKind.PARALLEL and self._loops:
            self._report("kind", f"found parallel loop {s.var.name} inside another loop")
        if s.kind is LoopKind.MATRIX:
            inner = isinstance(s.body, For) and s.body.kind is LoopKind.MATRIX
            if not inner and not isinstance(s.body, Store | Block):
                self._report("kind", f"found matrix loop {s.var.name} around more than one store")
        self._vector_body("loop")
        if s.var in self._syms:
            self._report("name", f"found loop variable {s.var.name} bound twice")
        self._syms[s.var] = I64
        self._loops.append(s)
        self._stmt(s.body)
        self._loops.pop()
        del self._syms[s.var]

    def _vector_body(self, what: str) -> None:
        if self._loops and self._loops[-1].kind is LoopKind.VECTOR:
            self._report(
                "kind",
                f"found a {what} inside vector loop {self._loops[-1].var.name}",
                hint="reorder so that the vector loop is innermost",
            )

    def _alloc(self, b: Buffer) -> None:
        self._where = f"alloc {b.name}"
        self._vector_body("allocation")
        if b.scope == Scope.PARAM:
            self._report("buffer", f"found an allocation of {b.name} with scope param")
        small = b.scope in (Scope.STACK, Scope.REGISTER, Scope.MATRIX) and self._f.stage is Stage.LOWERED
        if small and any(e.value is None for e in b.shape):
            shape = ", ".join(map(str, b.shape))
            self._report("buffer", f"found {b.scope} buffer {b.name} of shape [{shape}]")
        self._ints(b.shape)
        self._buffers[b] = len(self._loops)

    def _block(self, s: Block) -> None:
        self._where = f"block {s.name}"
        if self._f.stage is Stage.LOWERED:
            self._report("stage", "found a block in a lowered function")
        if s.name in self._blocks or not s.name.isidentifier():
            self._report("name", f"found block name {s.name!r}, needed an identifier used once")
        self._blocks.add(s.name)
        if len(s.iters) != len(s.bindings):
            self._report("block", f"found {len(s.iters)} iters and {len(s.bindings)} bindings")
        self._ints(s.bindings)
        if s.predicate is not None:
            self._condition(s.predicate, "where")
        if s.init is not None and all(i.kind is IterKind.SPATIAL for i in s.iters):
            self._report("block", "found an init in a block that does not reduce")
        outer = self._syms
        self._syms = dict.fromkeys(self._f.dims, I64) | {i.sym: I64 for i in s.iters}
        outer_in, self._in_block = self._in_block, True
        if s.init is not None:
            self._stmt(s.init)
        self._stmt(s.body)
        self._in_block, self._syms = outer_in, outer

    def _store(self, s: Store) -> None:
        self._where = print_stmt(s)[:120]
        self._access(s.buffer, s.indices)
        if s.buffer in self._read_only:
            self._report("write", f"found a store to {s.buffer.name}, which is only read")
        self._scalar(s.value)
        if s.value.dtype != s.buffer.dtype:
            self._report("dtype", f"found a value of {s.value.dtype}, {s.buffer.name} holds {s.buffer.dtype}")
        if not self._in_block:
            self._independent_store(s)

    def _independent_store(self, s: Store) -> None:
        """A store that does not depend on a parallel or vector loop is made by every iteration."""
        for depth, loop in enumerate(self._loops):
            if loop.kind not in (LoopKind.PARALLEL, LoopKind.VECTOR) or loop.extent == 1:
                continue
            if self._buffers.get(s.buffer, 0) > depth or s.buffer.per_part:
                continue
            used = {x for e in s.indices for x in symbols(e)}
            # A let may depend on the loop in any way: the evaluator looks at its values.
            lets = used.difference(self._f.dims, (x.var for x in self._loops))
            if loop.var not in used and not lets:
                self._report(
                    "race",
                    f"found a store to {s.buffer.name} that all iterations of {loop.kind} loop "
                    f"{loop.var.name} make to the same element",
                )

    def _condition(self, x: Scalar, what: str) -> None:
        self._where = f"{what} {print_scalar(x)[:80]}"
        self._scalar(x)
        if x.dtype != BOOL:
            self._report("dtype", f"found a condition of {x.dtype}, needed bool")

    # ---------------------------------------------------------------- integers and accesses

    def _ints(self, es: Iterable[Int]) -> None:
        for e in es:
            for sym in symbols(e):
                found = self._syms.get(sym)
                if found is None:
                    self._report("scope", f"found {sym.name} in {e}, which is not in scope")
                elif found != I64:
                    self._report("dtype", f"found {sym.name} of {found} in an integer, needed i64")

    def _access(self, b: Buffer, indices: tuple[Int, ...]) -> None:
        if b not in self._buffers:
            self._report("scope", f"found buffer {b.name}, which is not in scope")
        if len(indices) != len(b.shape):
            self._report("rank", f"found {len(indices)} indices, {b.name} has {len(b.shape)} axes")
        self._ints(indices)

    # ---------------------------------------------------------------- scalars

    def _scalar(self, x: Scalar) -> None:
        match x:
            case Lit():
                self._literal(x)
            case Index(value=value):
                self._ints((value,))
                self._need(x.dtype.is_integer, "dtype", f"found an index as {x.dtype}")
            case Name(sym=sym, dtype=dtype):
                found = self._syms.get(sym)
                self._need(found is not None, "scope", f"found {sym.name}, which is not bound")
                self._need(found in (None, dtype), "dtype", f"found {sym.name} as {dtype}, it is {found}")
            case Load(buffer=buffer, indices=indices):
                self._access(buffer, indices)
            case Unary():
                self._scalar(x.operand)
                self._unary(x)
            case Binary():
                self._scalar(x.lhs)
                self._scalar(x.rhs)
                self._binary(x)
            case Select(condition=condition, then=then, otherwise=otherwise):
                for part in (condition, then, otherwise):
                    self._scalar(part)
                self._need(condition.dtype == BOOL, "dtype", "found a select on a number")
                self._need(
                    then.dtype == otherwise.dtype == x.dtype,
                    "dtype",
                    f"found a select of {then.dtype} and {otherwise.dtype}",
                )
            case Cast(operand=operand):
                self._scalar(operand)
            case Intrinsic():
                for arg in x.args:
                    self._scalar(arg)
                self._intrinsic(x)
            case Bind(sym=sym, value=value, body=body):
                self._need(self._in_block, "stage", "found a bind outside a block")
                self._scalar(value)
                self._need(value.dtype == I64, "dtype", f"found a bind of {value.dtype}")
                self._syms[sym] = I64
                self._scalar(body)
            case Dot():
                self._dot(x)
            case Reduce():
                self._report("stage", "found a reduce, which only tensor expressions have")
            case _:
                assert_never(x)

    def _dot(self, x: Dot) -> None:
        self._scalar(x.acc)
        outer = self._syms.get(x.sym)
        self._syms[x.sym] = I64
        self._scalar(x.a)
        self._scalar(x.b)
        if outer is None:
            del self._syms[x.sym]
        self._need(outer is None, "scope", f"found {x.sym.name} of a dot bound outside")
        self._need(x.width >= 1, "dtype", f"found a dot of {x.width} products")
        if x.saturates:
            self._need(x.width % 2 == 0, "dtype", f"found {x.width} products, needed pairs that saturate")
        found = f"found a dot of {x.a.dtype} and {x.b.dtype} added to {x.acc.dtype}"
        needed = "needed i8, u8 or i16 added to i32, or bf16 to f32"
        self._need(are_factors(x.a.dtype, x.b.dtype, x.acc.dtype), "dtype", f"{found}, {needed}")

    def _need(self, condition: bool, kind: str, message: str) -> None:  # noqa: FBT001
        if not condition:
            self._report(kind, message)

    def _literal(self, x: Lit) -> None:
        if x.dtype.is_integer:
            self._need(isinstance(x.value, int), "dtype", f"found {x.value!r} as {x.dtype}")
        elif x.dtype == BOOL:
            self._need(x.value in (False, True), "dtype", f"found {x.value!r} as bool")

    def _unary(self, x: Unary) -> None:
        operand = x.operand.dtype
        allowed = (
            operand == BOOL
            if x.op is UnaryOp.NOT
            else operand.is_integer
            if x.op is UnaryOp.BITNOT
            else operand.is_float
            if x.op in _FLOAT_UNARY
            else operand.kind is not Kind.BOOL
        )
        self._need(allowed and x.dtype == operand, "dtype", f"found {x.op} of {operand}")

    def _binary(self, x: Binary) -> None:
        lhs, rhs = x.lhs.dtype, x.rhs.dtype
        self._need(lhs == rhs, "dtype", f"found {x.op} of {lhs} and {rhs}")
        result = BOOL if x.op in COMPARISONS else lhs
        self._need(x.dtype == result, "dtype", f"found {x.op} with result {x.dtype}")
        if x.op in _BITS:
            self._need(not lhs.is_float, "dtype", f"found {x.op} of {lhs}")
        elif x.op in _SHIFTS:
            self._need(lhs.is_integer, "dtype", f"found {x.op} of {lhs}")
        elif x.op not in COMPARISONS:
            self._need(lhs != BOOL, "dtype", f"found {x.op} of bool")

    def _intrinsic(self, x: Intrinsic) -> None:
        needed = _ARITY.get(x.op, 1)
        if len(x.args) != needed:
            self._report("dtype", f"found {x.op} of {len(x.args)} arguments, needed {needed}")
            return
        first = x.args[0].dtype
        if x.op is IntrinsicOp.BITCAST:
            self._need(first.bits == x.dtype.bits, "dtype", f"found {first} seen as {x.dtype}")
            return
        result = BOOL if x.op in _TESTS else first
        kind_fits = first.is_integer if x.op is IntrinsicOp.MUL_HIGH else first.is_float
        kind_fits = kind_fits or (x.op is IntrinsicOp.POW and first.is_integer)
        same = all(a.dtype == first for a in x.args)
        self._need(
            kind_fits and same and x.dtype == result,
            "dtype",
            f"found {x.op} of {', '.join(str(a.dtype) for a in x.args)} giving {x.dtype}",
        )
