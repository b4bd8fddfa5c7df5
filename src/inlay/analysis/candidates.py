"""A candidate: operations that a device would run as one.

Back ends offer them, and the planner chooses among them (`placement/choose/candidates.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from inlay.analysis.blocks import count_uses, nested
from inlay.arith.expr import Int
from inlay.ir.expr import Call, Const, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.walk import spine


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """Operations that a device runs as one.

    Attributes:
        calls: the operations; nodes of the module that was asked about, in program order, of one block.
            No way leads out of the set and back into it.
        device: that runs them.
        name: for people; an identifier.
        picoseconds: predicted, over the dims of the program; None leaves it to the costs of the board.
        note: what explanations say of it besides; may be empty.
    """

    calls: tuple[Call, ...]
    device: str
    name: str
    picoseconds: Int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Miss:
    """Why an operation is in no candidate of a device.

    Attributes:
        call: the operation.
        device: that does not take it.
        reason: of the pattern that is nearest.
        depth: how many operations of that pattern are here, itself among them; 0 where it is in none.
    """

    call: Call
    device: str
    reason: str
    depth: int = 0


def chains(
    module: Module,
    device: str,
    begins: Callable[[Call], bool],
    follows: Callable[[Call], bool],
    most: int = 8,
) -> Iterator[Candidate]:
    """Yield operations that begin a chain, each alone and with what follows it, step by step.

    What follows reads the operation before it and constants, and nothing else reads that operation.

    Args:
        module: in A-normal form.
        device: that runs them.
        begins: whether a call of an operator begins a chain.
        follows: whether one may stand behind others.
        most: operations in a chain.
    """
    for function in module.functions.values():
        uses, pending = count_uses(function.body), [function.body]
        while pending:
            lets, result = spine(pending.pop())
            pending += nested(result)
            calls: dict[Var, Call] = {}
            reader: dict[Var, Var] = {}
            for let in lets:
                pending += nested(let.value)
                if isinstance(let.value, Call) and isinstance(let.value.callee, OpRef):
                    calls[let.var] = let.value
                    read = (a for a in let.value.args if isinstance(a, Var) and uses[a] == 1)
                    reader.update((a, let.var) for a in read)
            for first in (var for var, call in calls.items() if begins(call)):
                chain, last = [calls[first]], first
                yield Candidate(tuple(chain), device, _name(chain))
                while last in reader and len(chain) < most:
                    call = calls[reader[last]]
                    if not follows(call) or not all(a is last or isinstance(a, Const) for a in call.args):
                        break
                    chain, last = [*chain, call], reader[last]
                    yield Candidate(tuple(chain), device, _name(chain))


def _name(calls: Sequence[Call]) -> str:
    return "_".join(c.callee.op.name.replace(".", "_") for c in calls if isinstance(c.callee, OpRef))
