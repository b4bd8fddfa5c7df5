"""The driver of passes that go through blocks from top to bottom.

A pass in this style is a *step*: a function that is shown one value at a time, in program order,
with its operands already rewritten and its nested blocks already gone through, and that answers
what should be bound instead:

* ``None``: the value as it is;
* an atom: the variable is replaced by it wherever it is read;
* another operation: it is bound instead.

On the way it may bind further values in front (`BlockWriter.bind`, `BlockWriter.call`), look at what
operands are bound to (`BlockWriter.definition`), and move the rewritten arms of a branch into the block
(`BlockWriter.splice`).

**Types.** A new value may have a more exact type than the old one. Then the variable gets a new
type, and symbols that the old let opened (the `k` of a `some k. T`) are replaced by what they turn
out to be, in types, constants and functions further down. So it is where a let was declared with
less than its value says (`let v: some k. Tensor[k] = neg(x)` for an `x` of known size): behind any
pass of this style no let hides a size, and what takes lets out of their block need not look for its
`k`. An operation whose operands keep their types keeps its own; any other is made again by `ir.make`.
An answer of a less exact type would lose a check, and is declined.

**Spans and places.** What a step makes has the span and place of the value it stands for, unless it
says otherwise. What is unchanged stays the same object, up to whole functions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

from inlay.analysis.blocks import ATOMS, is_tail_form
from inlay.arith.bounds import Range, intersect
from inlay.arith.expr import Int, Sym, substitute
from inlay.arith.solve import Facts
from inlay.base.diagnostics import CompileError
from inlay.base.span import NO_SPAN, Span
from inlay.ir import make, walk
from inlay.ir.conform import Matching
from inlay.ir.context import Known, StrictContext
from inlay.ir.dims import LEAST_INT, free_symbols, same_type, substitute_type
from inlay.ir.existentials import hides, is_open, open_exists, opened_dims
from inlay.ir.expr import (
    Arm,
    Call,
    Const,
    ConstructorRef,
    Expr,
    Function,
    If,
    Let,
    Match,
    OpRef,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    Project,
    RefCreate,
    RefPut,
    RefRead,
    RefTake,
    RefWrite,
    Tuple,
    Var,
    pattern_vars,
)
from inlay.ir.module import Module
from inlay.ir.op import Op
from inlay.ir.place import Place
from inlay.ir.types import DimParam, FuncType, IntType, ShapeType, TensorType, TupleType, Type

Step = Callable[["BlockWriter", Expr], Expr | None]
"""Answers what to bind instead of a value; see the module docstring."""


def keep(_block: BlockWriter, _value: Expr) -> Expr | None:
    """The step that changes nothing."""
    return None


def is_call(value: Expr, name: str) -> TypeGuard[Call]:
    """Whether a value is a call of an operator, by the operator's name."""
    return isinstance(value, Call) and isinstance(value.callee, OpRef) and value.callee.op.name == name


def rewrite_module(module: Module, step: Step) -> Module:
    """Rewrite every function of a module but those that are kernels to be (`primitive`).

    Cost: linear, if the step takes constant time.
    """
    functions = {
        name: f if f.primitive is not None else rewrite_function(f, step)
        for name, f in module.functions.items()
    }
    if all(functions[name] is f for name, f in module.functions.items()):
        return module
    return module.with_functions(functions)


def rewrite_function(function: Function, step: Step) -> Function:
    """Rewrite the body of a global function. Its type stays what was declared."""
    body = _Rewriting(step, _dims_of(function)).block(function.body, None)
    return function if body is function.body else replace(function, body=body)


class BlockWriter:
    """The block that is being written.

    Attributes:
        parent: the block around it.
        notes: whatever a pass wants to remember of this block; see `note`.
        current: the value that the step is being shown.
        variable: what it is bound to in the old program; None at the end of a block.
        remembered: the key under which its variable is to be noted; None for no key.
    """

    __slots__ = ("_lets", "_rewriting", "current", "notes", "parent", "remembered", "variable")

    def __init__(self, rewriting: _Rewriting, parent: BlockWriter | None) -> None:
        self.parent = parent
        self.notes: dict[Hashable, object] = {}
        self.current: Expr | None = None
        self.variable: Var | None = None
        self.remembered: Hashable = None
        self._rewriting = rewriting
        self._lets: list[tuple[Var, Expr, Let | None]] = []

    def definition(self, atom: Expr) -> Expr:
        """Return what a variable is bound to by a let above; any other atom itself."""
        if isinstance(atom, Var):
            return self._rewriting.values.get(atom, atom)
        return atom

    def note(self, key: Hashable) -> object | None:
        """Return what this block or the nearest block around it noted under a key."""
        block: BlockWriter | None = self
        while block is not None:
            found = block.notes.get(key)
            if found is not None:
                return found
            block = block.parent
        return None

    def remember(self, key: Hashable) -> None:
        """Note under this key, once it is bound, the variable of the value that is shown now."""
        self.remembered = key

    @property
    def known(self) -> Known:
        """What is known of the symbols in scope, for `ir.make`."""
        return self._rewriting.known

    def make(self, callee: Op | Expr, args: Sequence[Expr], attrs: object = None) -> Expr:
        """Return a call with the span and place of the current value, its checks bound in front."""
        span, place = self._origin()
        return self.flatten(make.call(callee, args, attrs, span=span, place=place, known=self.known))

    def call(self, callee: Op | Expr, args: Sequence[Expr], attrs: object = None, name: str = "") -> Expr:
        """Bind such a call to a new variable and return the variable."""
        made = self.make(callee, args, attrs)
        return self.bind(made, name or (callee.name if isinstance(callee, Op) else "t"))

    def bind(self, value: Expr, name: str = "t") -> Expr:
        """Bind a value to a new variable and return that; an atom is returned as it is."""
        if isinstance(value, ATOMS):
            return value
        value = self.flatten(value)
        if isinstance(value, ATOMS):
            return value
        type, dims = open_exists(value.type)
        return self.add(Var(name.rpartition(".")[2], type, value.span, value.place), value, dims)

    def splice(self, block: Expr) -> Expr:
        """Move the lets of a rewritten block to here and return its tail."""
        lets, tail = walk.spine(block)
        for let in lets:
            self.add(let.var, let.value, opened_dims(let.value.type, let.var.type), let)
        return tail

    def inline(self, function: Function, args: Sequence[Expr]) -> Expr | None:
        """Put a copy of a function's body here and return its tail.

        None, with nothing done, where the types of the arguments do not provably fit.
        """
        matching = Matching(StrictContext())
        matching.bind(_without_bounds(function.dims), function.type.type_vars)
        try:
            for param, declared, arg in zip(function.params, function.type.params, args, strict=True):
                matching.bind(_without_bounds(opened_dims(declared, param.type)))
                matching.match(param.type, arg.type, "argument")
            matching.finish()
        except CompileError:
            return None
        vars = dict(zip(function.params, args, strict=True))
        return self.splice(walk.copy(function.body, vars, matching.ints, matching.types))

    def _origin(self) -> tuple[Span, Place | None]:
        value = self.current
        return (NO_SPAN, None) if value is None else (value.span, value.place)

    def add(self, var: Var, value: Expr, dims: Iterable[DimParam], let: Let | None = None) -> Var:
        """Bind a variable that is there already: what the driver does where a pass uses `bind`."""
        self._rewriting.define(self, var, value, dims)
        self._lets.append((var, value, let))
        return var

    def flatten(self, value: Expr) -> Expr:
        """Bind operands that `ir.make` wrapped in checks, and lets that it put around the call."""
        while isinstance(value, Let):
            self.add(value.var, self.flatten(value.value), opened_dims(value.value.type, value.var.type))
            value = value.body
        if isinstance(value, Call) and not all(isinstance(a, ATOMS) for a in value.args):
            args = tuple([self.bind(a, "checked") for a in value.args])
            return Call(value.callee, args, value.type, value.span, value.place)
        return value

    def finish(self, tail: Expr) -> Expr:
        """Return the finished block."""
        result = tail
        for var, value, let in reversed(self._lets):
            if let is None:
                result = make.let(var, value, result)
            elif let.body is result and let.value is value and let.var is var:
                result = let
            else:
                result = make.let(var, value, result, span=let.span, place=let.place)
        return result


class _Rewriting:
    """One run of the driver over a function.

    Attributes:
        step: the pass.
        replaced: atoms for variables of the old program.
        ints: integers for symbols of the old program.
        values: what each variable of the new program is bound to by a let.
    """

    def __init__(self, step: Step, dims: Iterable[DimParam]) -> None:
        self.step = step
        self.replaced: dict[Var, Expr] = {}
        self.ints: dict[Sym, Int] = {}
        self.values: dict[Var, Expr] = {}
        # Grows as symbols come into scope; the facts below look at this very table.
        self._ranges: dict[Sym, Range] = {}
        self._homes: dict[Sym, BlockWriter] = {}
        # Of `values` and not of `self`: a cycle would keep all that is rewritten, constants included,
        # until Python's collector comes by.
        values = self.values
        self.known = Known(
            Facts(ranges=self._ranges), lambda node: values.get(node) if isinstance(node, Var) else None
        )
        self._learn(dims)

    def _learn(self, dims: Iterable[DimParam]) -> None:
        for d in dims:
            if d.sym in self._ranges or (d.low, d.high, d.multiple_of) != (0, None, 1):
                low = None if d.low == LEAST_INT else d.low
                high = None if d.high is None else self.known.facts.range_of(d.high).high
                known = Range(low, high, d.multiple_of, 0)
                old = self._ranges.get(d.sym)
                self._ranges[d.sym] = known if old is None else intersect(old, known)

    def define(self, block: BlockWriter, var: Var, value: Expr, dims: Iterable[DimParam]) -> None:
        """Note what a variable of the new program is bound to, and the symbols it opens where."""
        self.values[var] = value
        for d in dims:
            self._learn([d])
            self._homes[d.sym] = block

    # ------------------------------------------------------------------------ blocks

    def block(self, old: Expr, parent: BlockWriter | None) -> Expr:
        """Rewrite a block; the same object if nothing in it changes."""
        lets, tail = walk.spine(old)
        block = BlockWriter(self, parent)
        for let in lets:
            self._let(block, let)
        return block.finish(self._tail(block, tail))

    def _let(self, block: BlockWriter, let: Let) -> None:
        value = let.value
        if isinstance(value, Function):  # it may mention its own name
            self._recursive_let(block, let, value)
            return
        rewritten = self._value(block, value)
        block.current, block.variable = rewritten, let.var
        block.remembered = None
        answer = self.step(block, rewritten)
        if answer is not None and answer is not rewritten and self._bind(block, let, answer):
            return
        if not self._bind(block, let, rewritten):
            self._bind_checked(block, let, rewritten)
        if block.remembered is not None:
            block.notes[block.remembered] = self.replaced.get(let.var, let.var)

    def _recursive_let(self, block: BlockWriter, let: Let, function: Function) -> None:
        type = self.type(let.var.type)
        var = let.var
        if type is not var.type:
            var = Var(var.name, type, var.span, var.place)
            self.replaced[let.var] = var
        # A call inside the function is not to see through its own definition.
        value = self._function(block, function)
        block.current, block.variable = value, let.var
        answer = self.step(block, value)
        if isinstance(answer, Function):
            value = answer
        block.add(var, value, (), let)  # two halves of one driver

    def _bind(self, block: BlockWriter, let: Let, value: Expr) -> bool:
        """Bind what stands for a let; False, with nothing done, if the value is not exact enough."""
        value = block.flatten(value)
        old = let.var
        if isinstance(value, ATOMS) and self._solve(block, let, value.type):
            self.replaced[old] = value
            return True
        is_same = value is let.value or self._same(value.type, let.value.type)
        if is_same and not hides(value.type, self.type(old.type)):
            type = self.type(old.type)
            var = old
            if type is not old.type:
                var = self._rename(old, type)
            dims = () if old.type is value.type else opened_dims(value.type, type)
            block.add(var, value, dims, let)
            return True
        type, dims = open_exists(value.type, old.name)
        if not self._solve(block, let, type):
            return False
        block.add(self._rename(old, type), value, dims, let)
        return True

    def _bind_checked(self, block: BlockWriter, let: Let, value: Expr) -> None:
        """Bind a value that is not as exact as its variable was, with a check of its shape.

        What was proved of sizes may no longer be: a size that a let named with a bound is now a
        formula of others, of which less is known.
        """
        type = self.type(let.var.type)
        shapes = isinstance(type, TensorType) and not opened_dims(let.value.type, let.var.type)
        if not isinstance(type, TensorType) or not shapes:
            raise AssertionError(f"'{let.var.name}' lost its type {let.var.type}")
        found = block.bind(value, let.var.name)
        checked = make.assume_shape(found, type.shape, f"the size of '{let.var.name}'")
        if not self._bind(block, let, checked):
            raise AssertionError(f"'{let.var.name}' lost its type {let.var.type}")

    def _same(self, new: Type, old: Type) -> bool:
        return new is old or same_type(new, self.type(old))

    def _rename(self, old: Var, type: Type) -> Var:
        var = Var(old.name, type, old.span, old.place)
        self.replaced[old] = var
        return var

    def _solve(self, block: BlockWriter, let: Let, type: Type) -> bool:
        """Match the type of a let's variable with the more exact one of what replaces it.

        False where it is not as exact: an int of unknown value cannot stand for one whose value has
        a name.
        """
        wanted = self.type(let.var.type)
        if wanted is type or wanted == type:
            return True
        opened = opened_dims(let.value.type, let.var.type)
        if opened and not is_open(type):
            return False
        matching = Matching(StrictContext())
        matching.bind(_without_bounds(opened))
        try:
            matching.match(wanted, type, "")
            matching.finish()
        except CompileError:
            return False
        self.ints.update(matching.ints)
        self._keep_bounds(block, opened)
        return True

    def _keep_bounds(self, block: BlockWriter, dims: Iterable[DimParam]) -> None:
        """Know of a size of this block what was known of that which it replaces here."""
        for d in dims:
            value = self.ints.get(d.sym)
            sym = None if value is None else value.atom
            if isinstance(sym, Sym) and self._homes.get(sym) is block:
                self._learn([replace(d, sym=sym)])

    def _tail(self, block: BlockWriter, tail: Expr) -> Expr:
        rewritten = self._value(block, tail)
        block.current, block.variable = rewritten, None
        answer = self.step(block, rewritten)
        result = rewritten if answer is None else block.flatten(answer)
        return result if is_tail_form(result) else block.bind(result, "result")

    # ------------------------------------------------------------------------ values

    def type(self, t: Type) -> Type:
        """Return a type of the old program as one of the new."""
        return substitute_type(t, self.ints) if self.ints else t

    def atom(self, old: Expr) -> Expr:
        """Return an operand of the old program as one of the new."""
        if isinstance(old, Var):
            return self.replaced.get(old, old)
        if self.ints and isinstance(old, Const) and not isinstance(old.type, TensorType):
            return self._control_const(old)
        if self.ints and isinstance(old, ConstructorRef):  # of data with elements of these sizes
            new = self.type(old.type)
            return old if new is old.type or new == old.type else replace(old, type=new)
        if isinstance(old, ATOMS):
            return old
        raise AssertionError(f"an operand without a name: {type(old).__name__}")

    def _control_const(self, old: Const) -> Const:
        value = old.value
        if isinstance(value, Int):
            new: Int | tuple[Int, ...] = substitute(value, self.ints)
        elif isinstance(value, tuple):
            new = tuple([substitute(v, self.ints) for v in value])
        else:
            return old
        if new == value:
            return old
        t = IntType(new) if isinstance(new, Int) else ShapeType(new)
        return Const(new, t, old.span, old.place)

    def _value(self, block: BlockWriter, value: Expr) -> Expr:
        """Return a value over the new program's operands, its nested blocks rewritten."""
        if isinstance(value, Call):
            return self._call(block, value)
        if isinstance(value, ATOMS):
            return self.atom(value)
        span, place = value.span, value.place
        match value:
            case Tuple(fields=fields):
                new = tuple([self.atom(f) for f in fields])
                return value if _all_same(new, fields) else make.tuple_(new, span=span, place=place)
            case Project(value=inner, index=index):
                new = self.atom(inner)
                if new is inner:
                    return value
                return make.project(new, index, span=span, place=place)
            case RefCreate(value=inner):
                new = self.atom(inner)
                if new is inner:
                    return value
                return RefCreate(new, self.type(value.type), span, place)
            case RefRead(ref=inner):
                new = self.atom(inner)
                return value if new is inner else make.ref_read(new, span=span, place=place)
            case RefWrite(ref=ref, value=inner):
                new_ref, new = self.atom(ref), self.atom(inner)
                if new_ref is ref and new is inner:
                    return value
                return make.ref_write(new_ref, new, span=span, place=place, known=self.known)
            case RefTake(ref=inner):
                new = self.atom(inner)
                return value if new is inner else make.ref_take(new, span=span, place=place)
            case RefPut(ref=ref, value=inner):
                new_ref, new = self.atom(ref), self.atom(inner)
                if new_ref is ref and new is inner:
                    return value
                return make.ref_put(new_ref, new, span=span, place=place, known=self.known)
            case If():
                return self._if(block, value)
            case Match():
                return self._match(block, value)
            case Function():
                return self._function(block, value)
            case _:
                raise AssertionError(f"not in A-normal form: {type(value).__name__}")

    def _call(self, block: BlockWriter, value: Call) -> Expr:
        old = (value.callee, *value.args)
        new = tuple([self.atom(a) for a in old])
        if _all_same(new, old):
            return value
        callee, args = new[0], new[1:]
        if all(a.type is b.type or a.type == b.type for a, b in zip(new, old, strict=True)):
            return Call(callee, args, self.type(value.type), value.span, value.place)
        made = make.call(callee, args, span=value.span, place=value.place, known=self.known)
        return block.flatten(made)

    def _if(self, block: BlockWriter, value: If) -> Expr:
        condition = self.atom(value.condition)
        then = self.block(value.then, block)
        otherwise = self.block(value.otherwise, block)
        if condition is value.condition and then is value.then and otherwise is value.otherwise:
            return value
        pairs = ((then.type, value.then.type), (otherwise.type, value.otherwise.type))
        if not self.ints and all(self._same(new, old) for new, old in pairs):
            return If(condition, then, otherwise, value.type, value.span, value.place)
        return make.if_(condition, then, otherwise, span=value.span, place=value.place, known=self.known)

    def _match(self, block: BlockWriter, value: Match) -> Expr:
        scrutinee = self.atom(value.scrutinee)
        outer = set(free_symbols(value.scrutinee.type))
        for arm in value.arms:
            self._learn(d for v in pattern_vars(arm.pattern) for d in _ints_of(v.type, outer))
        arms = tuple([self._arm(block, arm) for arm in value.arms])
        if scrutinee is value.scrutinee and _all_same(arms, value.arms):
            return value
        pairs = zip(arms, value.arms, strict=True)
        if not self.ints and all(self._same(new.body.type, old.body.type) for new, old in pairs):
            return Match(scrutinee, arms, value.type, value.span, value.place)
        return make.match(scrutinee, arms, span=value.span, place=value.place, known=self.known)

    def _arm(self, block: BlockWriter, arm: Arm) -> Arm:
        pattern = self._pattern(arm.pattern)
        body = self.block(arm.body, block)
        return arm if pattern is arm.pattern and body is arm.body else Arm(pattern, body)

    def _pattern(self, pattern: Pattern) -> Pattern:
        match pattern:
            case PatternVar(var=var):
                new = self._parameter(var)
                return pattern if new is var else PatternVar(new)
            case PatternConstructor(fields=fields) | PatternTuple(fields=fields):
                inner = tuple([self._pattern(f) for f in fields])
                return pattern if _all_same(inner, fields) else replace(pattern, fields=inner)
            case _:
                return pattern

    def _parameter(self, var: Var) -> Var:
        type = self.type(var.type)
        return var if type is var.type else self._rename(var, type)

    def _function(self, block: BlockWriter, value: Function) -> Function:
        type = value.type
        self._learn(_dims_of(value))
        params = tuple([self._parameter(p) for p in value.params])
        body = self.block(value.body, block)
        if self.ints:
            type = FuncType(
                tuple([self.type(p) for p in type.params]), self.type(type.result), type.dims, type.type_vars
            )
        if body is value.body and _all_same(params, value.params) and type == value.type:
            return value
        return Function(params, body, type, value.span, value.place, value.primitive)


def _dims_of(function: Function) -> list[DimParam]:
    """Return the symbols that a function binds: its dims, and those that its parameters open."""
    pairs = zip(function.type.params, function.params, strict=True)
    return [*function.dims, *(d for t, p in pairs for d in opened_dims(t, p.type))]


def _ints_of(t: Type, outer: set[Sym]) -> Iterator[DimParam]:
    """Yield the values of control integers that a pattern opens: they may be negative."""
    match t:
        case IntType(value=Int(atom=Sym() as s)) if s not in outer:
            yield DimParam(s, LEAST_INT)
        case ShapeType(values=values):
            for v in values:
                yield from _ints_of(IntType(v), outer)
        case TupleType(fields=fields):
            for f in fields:
                yield from _ints_of(f, outer)
        case _:
            pass


def _without_bounds(dims: Iterable[DimParam]) -> tuple[DimParam, ...]:
    """Return dims to be solved for a value that is known to fit them."""
    return tuple([DimParam(d.sym, LEAST_INT) for d in dims])


def _all_same(new: Iterable[object], old: Iterable[object]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))
