"""How far a pattern goes from an operation towards its result: why what it begins with is not all of it.

Patterns are laid from results. An operation that none reaches from there may stand where one begins: a
product whose sum is not added to. So it is followed to what reads it, as far as the pattern has that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inlay.accel.overlay import Block
from inlay.accel.pattern import Applied, Node, below
from inlay.ir.expr import Call, OpRef, Var


@dataclass(slots=True)
class Above:
    """What reads the values of a block."""

    block: Block
    _readers: dict[Var, list[tuple[Var, Call]]] = field(default_factory=dict[Var, list[tuple[Var, Call]]])
    _values: dict[int, Var] = field(default_factory=dict[int, Var])

    def __post_init__(self) -> None:
        for var, call in self.block.calls.items():
            self._values[id(call)] = var
            for arg in dict.fromkeys(a for a in call.args if isinstance(a, Var)):
                self._readers.setdefault(arg, []).append((var, call))

    def nearest(self, call: Call, result: Applied) -> tuple[int, str, Call]:
        """Return how many operators of a pattern are there from one on, what ends them, and the last.

        Nothing ends them where the last is what the result of the pattern would be.

        Args:
            call: of an operator that is in the pattern, and not its result.
            result: of the pattern.
        """
        nodes = list(below(result))
        over = {operand: node for node in nodes for operand in node.operands}
        begins = (node for node in nodes if node is not result and _name(call) in node.operators)
        return max((self._follow(call, node, result, over) for node in begins), key=lambda x: x[0])

    def _follow(
        self, call: Call, node: Applied, result: Applied, over: dict[Node, Applied]
    ) -> tuple[int, str, Call]:
        depth = 0
        while node is not result:
            var, depth = self._values[id(call)], depth + 1
            readers = self._readers.get(var, [])
            if len(readers) != 1 or self.block.uses.get(var, 0) != 1:
                names = dict.fromkeys(_name(c) for _, c in readers)
                read = f"by {' and '.join(names) or 'no operator'}"
                if len(names) == 1:
                    read = f"{self.block.uses.get(var, 0)} times"
                return depth, f"{_name(call)} is read {read}", call
            ((_, reader),) = readers
            node = over[node]
            while _name(reader) not in node.operators and node.otherwise is not None and node is not result:
                node = over[node]
            if _name(reader) not in node.operators:
                wanted = " or ".join(node.operators)
                return depth, f"{_name(reader)} is behind {_name(call)}, not {wanted}", call
            call = reader
        return depth + 1, "", call


def _name(call: Call) -> str:
    assert isinstance(call.callee, OpRef), "operators are called"
    return call.callee.op.name
