"""Where registers die: the last use of each one on each path.

A register belongs to the block that defines it. Its last use there is the last node that uses it,
or holds a block that does. If that node is an instruction, the register is moved into it. If it is a
branch, the register *is handed to every arm*: each arm treats it as its own, and an arm that does
not use it drops it on entry, so that all arms leave the same registers behind. If it is a loop whose
body uses it, it must survive every iteration and is dropped behind the loop. `Shapes` leave what they
take from outside in place, and it is dropped behind them. So a value dies at its
last use on each path, and what the machine's verifier asks at joins holds by construction.

Cost: linear in uses times nesting depth; blocks are walked with loops, nesting recursively.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from inlay.vm.code import Branch, Code, CodeBlock, Instruction, Loop, Node, Operand, Register, Shapes


@dataclass(slots=True, eq=False)
class Deaths:
    """The result, keyed by node and block.

    Attributes:
        at: registers that die at a node, or at the end of a block: what it uses directly may be
            moved there.
        on_entry: registers that a block drops before anything else, in order.
        after: registers dropped behind a node: results nobody uses, invariants of a loop.
    """

    at: dict[Node | CodeBlock, frozenset[Register]] = field(
        default_factory=dict["Node | CodeBlock", frozenset[Register]]
    )
    on_entry: dict[CodeBlock, tuple[Register, ...]] = field(
        default_factory=dict["CodeBlock", tuple[Register, ...]]
    )
    after: dict[Node, tuple[Register, ...]] = field(default_factory=dict["Node", tuple[Register, ...]])


def find_deaths(code: Code) -> Deaths:
    """Find where each register of a function dies."""
    finder = _Finder()
    finder.collect(code.body)
    finder.block(code.body, dict.fromkeys(code.params))
    return finder.deaths


class _Finder:
    """The two visits: what nested blocks use, then who dies where."""

    def __init__(self) -> None:
        self.deaths = Deaths()
        self.inside: dict[Branch | Loop, dict[Register, None]] = {}

    def collect(self, block: CodeBlock) -> dict[Register, None]:
        """Return the registers used in a block and not defined in it; fill `inside`."""
        used: dict[Register, None] = {}
        defined: set[Register] = set()
        for node in block.nodes:
            used.update(dict.fromkeys(_registers(_direct(node))))
            match node:
                case Instruction() | Shapes():
                    defined.update(node.results)
                case Branch() | Loop():
                    inside: dict[Register, None] = {}
                    for inner in _blocks(node):
                        inside.update(self.collect(inner))
                    if isinstance(node, Loop):
                        for param in node.head.params:
                            inside.pop(param, None)
                    self.inside[node] = inside
                    used.update(inside)
                    if node.join is not None:
                        defined.update(node.join.results)
                case _:
                    assert_never(node)
        if block.end is not None:
            used.update(dict.fromkeys(_registers(block.end.values)))
        return {register: None for register in used if register not in defined}

    def block(self, block: CodeBlock, owned: dict[Register, None]) -> None:
        """Say where the registers that a block owns and those that it defines die."""
        mine = dict(owned)
        for node in block.nodes:
            mine.update(dict.fromkeys(_results(node)))
        dying: list[dict[Register, None]] = [{} for _ in block.nodes]
        if block.end is not None:
            last = {r: None for r in _registers(block.end.values) if r in mine}
            self.deaths.at[block] = frozenset(last)
            for register in last:
                del mine[register]
        for position in range(len(block.nodes) - 1, -1, -1):
            node = block.nodes[position]
            here = dying[position]
            for register in _registers(_direct(node)):
                if register in mine:
                    here[register] = None
                    del mine[register]
            if isinstance(node, Shapes):
                self._shapes(node, mine)
            elif not isinstance(node, Instruction):
                for register in self.inside[node]:
                    if register in mine:
                        here[register] = None
                        del mine[register]
        # What is left over is never used: dropped where it comes from.
        self.deaths.on_entry[block] = tuple(r for r in owned if r in mine)
        for node, here in zip(block.nodes, dying, strict=True):
            self._node(node, here, [r for r in _results(node) if r in mine])

    def _shapes(self, node: Shapes, mine: dict[Register, None]) -> None:
        """Say where what integer instructions define for themselves alone dies."""
        for inner in reversed(node.nodes):
            last = frozenset(r for r in _registers(inner.args) if r in mine)
            if last:
                self.deaths.at[inner] = last
            for register in last:
                del mine[register]

    def _node(self, node: Node, dying: dict[Register, None], unused: list[Register]) -> None:
        match node:
            case Instruction():
                if dying:
                    self.deaths.at[node] = frozenset(dying)
                if unused:
                    self.deaths.after[node] = tuple(unused)
            case Shapes():
                self.deaths.after[node] = (*dying, *unused)
            case Branch():
                inside = self.inside[node]
                self.deaths.at[node] = frozenset(r for r in dying if r not in inside)
                handed = {r: None for r in dying if r in inside}
                for arm in node.arms:
                    self.block(arm, handed)
                self.deaths.after[node] = tuple(unused)
            case Loop():
                inside = self.inside[node]
                self.deaths.at[node] = frozenset(r for r in dying if r not in inside)
                self.block(node.body, dict.fromkeys(node.head.params))
                kept = [r for r in dying if r in inside]
                self.deaths.after[node] = (*kept, *unused)
            case _:
                assert_never(node)


def _direct(node: Node) -> tuple[Operand, ...]:
    match node:
        case Instruction(args=args):
            return args
        case Shapes(inputs=inputs):
            return inputs
        case Branch(selector=selector):
            return (selector,)
        case Loop(init=init):
            return init
        case _:
            assert_never(node)


def _blocks(node: Branch | Loop) -> tuple[CodeBlock, ...]:
    return node.arms if isinstance(node, Branch) else (node.body,)


def _results(node: Node) -> tuple[Register, ...]:
    if isinstance(node, (Instruction, Shapes)):
        return node.results
    return node.join.results if node.join is not None else ()


def _registers(operands: Iterable[Operand]) -> list[Register]:
    return [operand for operand in operands if isinstance(operand, Register)]
