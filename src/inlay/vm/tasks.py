"""Which calls become tasks: `CALL` where a caller must have the results, `SPAWN` where it may go on.

A call is a task when

* what is called may wait: it, or what it calls, reads an integer from a tensor. A closure may be any
  that the program makes for so many arguments and results. Or it is a function that runs kernels, and
  another such call follows that does not need its results: threads then run whole calls;
* it may be that nobody can tell when it runs: it is not given a cell, and no kernel runs in it that
  keeps its place. Whether a cell or such a kernel is in what it is given, the machine sees then;
* something follows before the first use of its results that takes time: a kernel or another call.

The first is a fact of functions, found over all of them; the last is looked for a short way ahead. A
`SPAWN` is right everywhere; these say where it gains something.

Cost: linear in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import cast

from inlay.base.graph import on_cycles
from inlay.bytecode.builder import FunctionBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import Kernel
from inlay.vm.code import (
    Branch,
    Code,
    CodeBlock,
    Instruction,
    Loop,
    Node,
    Operand,
    Register,
    Shapes,
    TailCall,
    TailCallClosure,
)

_AHEAD = 200
"""Nodes and blocks that are looked at behind a call."""

_WAITS = frozenset({"TO_INT", "READ_INTS"})
_WORK = frozenset({"INVOKE", "CALL", "SPAWN", "CALL_CLOSURE", "SPAWN_CLOSURE"})


@dataclass(frozen=True, slots=True)
class _Closures:
    """All closures that the program makes for so many arguments and results: who one of them may be."""

    arguments: int
    results: int


_Callee = FunctionBuilder | _Closures


@dataclass(slots=True)
class _Facts:
    """What is known of a function alone, or of some closures, and whom it calls."""

    waits: bool = False
    runs: bool = False
    ordered: bool = False
    calls: list[_Callee] = field(default_factory=list["_Callee"])


def mark_tasks(codes: Sequence[Code], kernels: Sequence[Kernel]) -> None:
    """Turn calls into tasks, in all functions of a program with these kernels."""
    facts: dict[_Callee, _Facts] = {}
    for code in codes:
        facts[code.builder] = _facts(code, kernels, facts)
    wanted = _closure(facts, {f for f, known in facts.items() if known.waits})
    whole = _whole(facts) - wanted
    if not wanted and not whole:
        return
    for closures in [f for f in facts if isinstance(f, _Closures)]:
        facts[closures].calls.clear()  # what one of them does, the others need not
    ordered = _closure(facts, {f for f, known in facts.items() if known.ordered})
    wanted, whole = wanted - ordered, whole - ordered
    for code in codes:
        for block in _blocks(code.body):
            _mark(block, wanted, whole)


def _whole(facts: Mapping[_Callee, _Facts]) -> set[_Callee]:
    """Return the functions that run kernels, themselves or through others, and do not call themselves."""
    runs = _closure(facts, {f for f, known in facts.items() if known.runs})
    repeated = on_cycles(facts, lambda f: facts[f].calls if f in facts else ())
    return {f for f in runs - repeated if isinstance(f, FunctionBuilder)}


def _closure(facts: Mapping[_Callee, _Facts], found: set[_Callee]) -> set[_Callee]:
    """Add whoever calls one of those found, directly or not."""
    callers: dict[_Callee, list[_Callee]] = {}
    for f, known in facts.items():
        for callee in known.calls:
            callers.setdefault(callee, []).append(f)
    pending = list(found)
    while pending:
        for caller in callers.get(pending.pop(), ()):
            if caller not in found:
                found.add(caller)
                pending.append(caller)
    return found


def _facts(code: Code, kernels: Sequence[Kernel], closures: dict[_Callee, _Facts]) -> _Facts:
    """Return the facts of a function, and add it to those of the closures that it makes."""
    facts = _Facts()
    for block in _blocks(code.body):
        for node in block.nodes:
            if not isinstance(node, Instruction):
                continue
            facts.waits |= node.name in _WAITS
            facts.runs |= node.name == "INVOKE"
            facts.ordered |= node.name == "INVOKE" and kernels[cast("int", node.operands[0])].ordered
            callee = _callee(node)
            if callee is not None:
                facts.calls.append(callee)
            elif node.name == "CLOSURE":
                function = cast("FunctionBuilder", node.operands[0])
                arguments = len(function.params) - cast("int", node.operands[1])
                made = _Closures(arguments, len(function.results))
                closures.setdefault(made, _Facts()).calls.append(function)
        match block.end:
            case TailCall(function=function):
                facts.calls.append(function)
            case TailCallClosure(values=values):
                facts.calls.append(_Closures(len(values) - 1, len(code.builder.results)))
            case _:
                pass
    return facts


def _callee(node: Instruction) -> _Callee | None:
    """Return whom an instruction calls."""
    match node:
        case Instruction(name="CALL", operands=(FunctionBuilder() as function, *_)):
            return function
        case Instruction(name="CALL_CLOSURE", operands=(int(arguments), int(results))):
            return _Closures(arguments, results)
        case _:
            return None


def _mark(block: CodeBlock, wanted: Collection[_Callee], whole: Collection[_Callee]) -> None:
    for index, node in enumerate(block.nodes):
        if not isinstance(node, Instruction) or any(
            isinstance(x, Register) and x.kind is Kind.CELL for x in node.args
        ):
            continue
        callee, behind = _callee(node), block.nodes[index + 1 : index + 1 + _AHEAD]
        if (callee in wanted and _is_followed(behind, node.results, _is_work)) or (
            callee in whole and _is_followed(behind, node.results, lambda x: _callee(x) in whole)
        ):
            block.nodes[index] = replace(node, name=node.name.replace("CALL", "SPAWN"))


def _is_work(node: Instruction) -> bool:
    return node.name in _WORK


def _is_followed(
    nodes: Sequence[Node], results: tuple[Register, ...], by: Callable[[Instruction], bool]
) -> bool:
    """Whether there is an instruction of some kind before the first use of the results."""
    ours = frozenset(results)
    for part in islice(_parts(nodes), _AHEAD):
        if not ours.isdisjoint(_used(part)):
            return False
        if isinstance(part, Instruction) and by(part):
            return True
    return False


def _parts(nodes: Sequence[Node]) -> Iterator[Node | CodeBlock]:
    """Yield nodes in order, and after each one the blocks that it holds, with theirs."""
    pending: list[Iterator[Node | CodeBlock]] = [iter(nodes)]
    while pending:
        part = next(pending[-1], None)
        if part is None:
            pending.pop()
            continue
        yield part
        match part:
            case CodeBlock(nodes=inner):
                pending.append(iter(inner))
            case Branch() | Loop():
                pending.append(iter(_inner(part)))
            case _:
                pass


def _used(part: Node | CodeBlock) -> tuple[Operand, ...]:
    match part:
        case Instruction(args=used) | Loop(init=used) | Shapes(inputs=used):
            return used
        case Branch(selector=selector):
            return (selector,)
        case _:
            return part.end.values if part.end is not None else ()


def _inner(node: Branch | Loop) -> tuple[CodeBlock, ...]:
    return node.arms if isinstance(node, Branch) else (node.body,)


def _blocks(body: CodeBlock) -> Iterator[CodeBlock]:
    """Yield a block and all blocks in it."""
    pending = [body]
    while pending:
        block = pending.pop()
        yield block
        for node in block.nodes:
            if isinstance(node, (Branch, Loop)):
                pending.extend(_inner(node))
