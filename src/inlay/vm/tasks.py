"""Which calls become tasks: `CALL` where a caller must have the results, `SPAWN` where it may go on.

A call is a task when

* the function may wait: it, or what it calls, reads an integer from a tensor;
* nobody can tell when it runs: in it and in what it calls no cell is read or written, no kernel runs
  that keeps its place, and no closure, of which nothing is known, is called;
* something follows before the first use of its results that takes time: a kernel or another call.

The first two are facts of functions, found over all of them; the third is looked for a short way
ahead. A `SPAWN` is right wherever the second holds; the others say where it gains something.

Cost: linear in the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import cast

from inlay.bytecode.builder import FunctionBuilder
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
_ORDERED = frozenset({"CELL_READ", "CELL_WRITE", "CALL_CLOSURE"})
_WORK = frozenset({"INVOKE", "CALL", "SPAWN", "CALL_CLOSURE"})


@dataclass(slots=True)
class _Facts:
    """What is known of a function alone, and which functions it calls."""

    waits: bool = False
    ordered: bool = False
    calls: list[FunctionBuilder] = field(default_factory=list[FunctionBuilder])


def mark_tasks(codes: Sequence[Code], kernels: Sequence[Kernel]) -> None:
    """Turn calls into tasks, in all functions of a program with these kernels."""
    facts = {code.builder: _facts(code.body, kernels) for code in codes}
    waits = _closure(facts, {f for f, known in facts.items() if known.waits})
    ordered = _closure(facts, {f for f, known in facts.items() if known.ordered})
    wanted = waits - ordered
    if not wanted:
        return
    for code in codes:
        for block in _blocks(code.body):
            _mark(block, wanted)


def _closure(facts: Mapping[FunctionBuilder, _Facts], found: set[FunctionBuilder]) -> set[FunctionBuilder]:
    """Add whoever calls one of the functions found, directly or not."""
    callers: dict[FunctionBuilder, list[FunctionBuilder]] = {}
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


def _facts(body: CodeBlock, kernels: Sequence[Kernel]) -> _Facts:
    facts = _Facts()
    for block in _blocks(body):
        for node in block.nodes:
            if isinstance(node, Instruction):
                facts.waits |= node.name in _WAITS
                facts.ordered |= node.name in _ORDERED or (
                    node.name == "INVOKE" and kernels[cast("int", node.operands[0])].ordered
                )
                facts.calls += [x for x in node.operands if isinstance(x, FunctionBuilder)]
        if isinstance(block.end, TailCall):
            facts.calls.append(block.end.function)
        facts.ordered |= isinstance(block.end, TailCallClosure)
    return facts


def _mark(block: CodeBlock, wanted: set[FunctionBuilder]) -> None:
    for index, node in enumerate(block.nodes):
        if (
            isinstance(node, Instruction)
            and node.name == "CALL"
            and node.operands[0] in wanted
            and _is_followed(block.nodes[index + 1 : index + 1 + _AHEAD], node.results)
        ):
            block.nodes[index] = replace(node, name="SPAWN")


def _is_followed(nodes: Sequence[Node], results: tuple[Register, ...]) -> bool:
    """Whether there is work before the first use of the results."""
    ours = frozenset(results)
    for part in islice(_parts(nodes), _AHEAD):
        if not ours.isdisjoint(_used(part)):
            return False
        if isinstance(part, Instruction) and part.name in _WORK:
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
