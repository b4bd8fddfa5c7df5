"""A-normal form and its vocabulary: blocks, bindings, atoms, operands.

    block   ::=  let x = value; block  |  tail
    value   ::=  atom  |  operation
    tail    ::=  atom  |  call of a function  |  if  |  match
    operation ::=  atom(atom, ...)  |  fn<dims>(x: T, ...) { block }
              |  if (atom) { block } else { block }  |  match atom { p => block, ... }
              |  (atom, ...)  |  atom.0  |  ref(atom)  |  read(atom)  |  write(atom, atom)
              |  take(atom)  |  put(atom, atom)
    atom    ::=  x  |  c  |  @f  |  op  |  C

In *A-normal form* every function body is a block, every variable is bound once, and no operation is
reached twice: each has one place in the program and a name. Calls of functions, and branches, stand
unnamed in tail position, so that a tail call is one; results of operators are always named.

A *block* is the spine of lets down to its tail. The blocks inside a value (bodies of functions,
arms) are its *nested* blocks. Spines are walked with loops; only nesting recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import assert_never

from inlay.arith.expr import Sym
from inlay.ir import make
from inlay.ir.dims import free_symbols
from inlay.ir.expr import (
    Arm,
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
    pattern_vars,
)
from inlay.ir.module import Module
from inlay.ir.walk import free_vars, postorder, spine

Atom = Var | Const | GlobalVar | OpRef | ConstructorRef
ATOMS = (Var, Const, GlobalVar, OpRef, ConstructorRef)


def operands(value: Expr) -> tuple[Expr, ...]:
    """Return what a value reads itself, in order of evaluation; its nested blocks not counted."""
    match value:
        case Call(callee=callee, args=args):
            return (callee, *args)
        case Tuple(fields=fields):
            return fields
        case Project(value=inner) | RefCreate(value=inner) | RefRead(ref=inner) | RefTake(ref=inner):
            return (inner,)
        case RefWrite(ref=ref, value=inner) | RefPut(ref=ref, value=inner):
            return (ref, inner)
        case If(condition=condition):
            return (condition,)
        case Match(scrutinee=scrutinee):
            return (scrutinee,)
        case Var() | Const() | GlobalVar() | OpRef() | ConstructorRef() | Function() | Let():
            return ()
        case _:
            assert_never(value)


def nested(value: Expr) -> tuple[Expr, ...]:
    """Return the blocks inside a value: a function's body, the arms of a branch."""
    match value:
        case Function(body=body):
            return (body,)
        case If(then=then, otherwise=otherwise):
            return (then, otherwise)
        case Match(arms=arms):
            return tuple(arm.body for arm in arms)
        case _:
            return ()


def with_blocks(value: Expr, rewrite: Callable[[Expr], Expr]) -> Expr:
    """Return a value with each of its nested blocks rewritten, in order; itself where none changes."""
    old = nested(value)
    new = [rewrite(block) for block in old]
    if all(a is b for a, b in zip(old, new, strict=True)):
        return value
    match value:
        case Function():
            return replace(value, body=new[0])
        case If():
            return replace(value, then=new[0], otherwise=new[1])
        case Match(arms=arms):
            return replace(value, arms=tuple([Arm(a.pattern, b) for a, b in zip(arms, new, strict=True)]))
        case _:
            raise AssertionError(f"no blocks in {type(value).__name__}")


def relet(let: Let, value: Expr, body: Expr) -> Let:
    """Return a let with another value of the same type, and another body; itself where none changes.

    Its own type follows from these: lets that change places open dims at other places.
    """
    if value is let.value and body is let.body:
        return let
    return make.let(let.var, value, body, span=let.span, place=let.place)


def binders(value: Expr) -> tuple[Var, ...]:
    """Return the variables that a value binds in its nested blocks: parameters, patterns."""
    match value:
        case Function(params=params):
            return params
        case Match(arms=arms):
            return tuple(v for arm in arms for v in pattern_vars(arm.pattern))
        case _:
            return ()


def values(root: Expr) -> Iterator[Expr]:
    """Return every value and every tail under a block, nested ones included, each once.

    In order of evaluation along each spine; a value comes before what is nested in it.
    Cost: linear.
    """
    pending = [root]
    while pending:
        block = pending.pop()
        inner: list[Expr] = []
        while True:
            value = block.value if isinstance(block, Let) else block
            yield value
            inner.extend(nested(value))
            if not isinstance(block, Let):
                break
            block = block.body
        pending.extend(reversed(inner))


def count_uses(root: Expr) -> dict[Var, int]:
    """Return how often each variable is read under a block, for those read at all."""
    uses: dict[Var, int] = {}
    for value in values(root):
        if isinstance(value, Var):
            uses[value] = uses.get(value, 0) + 1
        for operand in operands(value):
            if isinstance(operand, Var):
                uses[operand] = uses.get(operand, 0) + 1
    return uses


def mentioned(value: Expr) -> Iterator[Var | Sym]:
    """Yield the variables that a value reads, its nested blocks included, and the sizes that it mentions."""
    yield from free_vars(value)
    for e in postorder(value):
        yield from free_symbols(e.type)


def definitions(root: Expr) -> dict[Var, Expr]:
    """Return the value of every let-bound variable under a block, nested blocks included."""
    found: dict[Var, Expr] = {}
    pending = [root]
    while pending:
        block = pending.pop()
        while isinstance(block, Let):
            found[block.var] = block.value
            pending.extend(nested(block.value))
            block = block.body
        pending.extend(nested(block))
    return found


def is_tail_form(value: Expr) -> bool:
    """Whether a value may stand unnamed at the end of a block."""
    match value:
        case Call(callee=callee):
            return not isinstance(callee, OpRef | ConstructorRef)
        case If() | Match():
            return True
        case _:
            return isinstance(value, ATOMS)


def anf_faults(module: Module) -> list[tuple[str, Expr]]:
    """Return where a module is not in A-normal form: a sentence and the expression, for each."""
    faults: list[tuple[str, Expr]] = []
    for function in module.functions.values():
        _check_blocks(function, faults)
    return faults


def is_anf(module: Module) -> bool:
    """Whether every function of a module is in A-normal form."""
    return not anf_faults(module)


def _check_blocks(function: Function, faults: list[tuple[str, Expr]]) -> None:
    bound: set[Var] = set()
    seen: set[Expr] = set()
    pending: list[Expr] = [function]

    def bind(var: Var) -> None:
        if var in bound:
            faults.append((f"'{var.name}' is bound twice", var))
        bound.add(var)

    def check(value: Expr) -> None:
        if isinstance(value, ATOMS):
            return
        if value in seen:
            faults.append(("an operation is reached twice", value))
            return
        seen.add(value)
        if isinstance(value, Let):
            faults.append(("a let stands where a value is needed", value))
        faults.extend(("an operand has no name", x) for x in operands(value) if not isinstance(x, ATOMS))
        for var in binders(value):
            bind(var)
        pending.extend(nested(value))

    check(pending.pop())
    while pending:
        lets, tail = spine(pending.pop())
        for let in lets:
            bind(let.var)
            check(let.value)
        if not is_tail_form(tail):
            faults.append(("the result of an operation has no name", tail))
        check(tail)
