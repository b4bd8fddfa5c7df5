"""What a program allocates while it runs, beside its blocks: of which size, and how often.

Blocks are planned. What is not in one is listed here, with its reason: storage that has no place in a
block, scratch memory that the runtime gives kernels, tensors that the virtual machine makes by itself,
and results that are copied because their bytes are not theirs alone. Each is made once in a call, unless
it stands in a loop or a local function.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from inlay.analysis.blocks import count_uses, definitions, nested, operands, spine
from inlay.analysis.local_functions import find_loops
from inlay.base.span import NO_SPAN
from inlay.ir.expr import Call, Expr, Function, OpRef, Project, Tuple, Var
from inlay.ir.op import Op
from inlay.ir.types import ExistsType, TensorType, TupleType, Type
from inlay.memory.choose_memories import Chosen
from inlay.memory.explicit_alloc import size_of
from inlay.memory.lifetimes import IN_RESULT, Activation
from inlay.memory.plan import Counted, Origin
from inlay.ops.memory import ALLOC_STORAGE, INVOKE, KILL, TENSOR_AT

_MAKES_NONE = frozenset({ALLOC_STORAGE, TENSOR_AT, INVOKE, KILL})


def counted_of(activation: Activation, chosen: Chosen, *, is_entry: bool) -> tuple[Counted, ...]:
    """Return the storages and the scratch memory of a function that have no place in a block."""
    phases, calls = activation.phases(), activation.kernels
    lasts, end_of_all = [call.last for call in calls], len(phases)

    def moments(position: int) -> tuple[int, int]:
        """Return the first and the last moment of the kernel at a position, or of the next one."""
        at = bisect_left(lasts, position)
        if at == len(calls):
            return end_of_all + 1, end_of_all + 1
        return bisect_left(phases, calls[at].first) + 1, bisect_left(phases, calls[at].last) + 1

    where = {var: inside.name for var, _, inside in _bindings(activation.function.body)}
    found: list[Counted] = []
    for storage, (memory, why) in chosen.counted.items():
        origin = Origin.RESULT if is_entry and why == IN_RESULT else Origin.VALUE
        # It is there when its kernel begins, whichever phase writes it.
        (first, _), inside = moments(storage.start), where.get(storage.vars[0], "")
        size, end = storage.bytes, end_of_all + 1
        found.append(Counted(storage.name, storage.span, why, origin, memory, size, first, end, inside))
    for r in activation.requests:
        (first, last), name = moments(r.position), f"scratch of @{r.kernel}"
        found.append(
            Counted(name, NO_SPAN, r.why, Origin.SCRATCH, "", r.bytes, first, last, per_part=r.per_part)
        )
    return tuple(found)


def made_by_machine(function: Function, moments: int) -> tuple[Counted, ...]:
    """Return the tensors that the virtual machine makes for a function of the module, local ones included.

    Args:
        function: in explicit storage.
        moments: how many there are in it.
    """
    found: list[Counted] = []
    loops = find_loops(function)
    for var, value, inside in _bindings(function.body):
        if not (isinstance(value, Call) and isinstance(value.callee, OpRef)):
            continue
        op = value.callee.op
        if op.alias is not None or op in _MAKES_NONE:
            continue
        why, times = f"the virtual machine makes it ({op.name})", inside.name
        if inside.var in loops and _takes_over(value, op, inside):
            why, times = f"{why}, and changes it in place in later turns", inside.outer
        name, span = (op.name, value.span) if var is None else (var.name, var.span or value.span)
        found += [
            Counted(name, span, why, Origin.MACHINE, "", size_of(t), 0, moments + 1, times)
            for t in _tensors(value.type)
        ]
    return tuple(found)


def _takes_over(call: Call, op: Op, inside: _Inside) -> bool:
    """Whether an operator changes what a loop carries, and nothing else of a turn sees that.

    The first turn may copy what somebody outside still has; what it makes, only the next turn has.
    """
    if len(op.in_place) != 1 or inside.function is None:
        return False
    operand = call.args[op.in_place[0]]
    if not isinstance(operand, Var) or operand not in inside.function.params:
        return False
    return _mentions_beside(inside.function.body, call, operand) == 1


def _mentions_beside(block: Expr, target: Expr, var: Var) -> int | None:
    """Return how often a variable is mentioned where a value is computed, in whatever runs with it.

    Other arms of the branches around the value do not. None where the value is not in the block.
    """
    lets, tail = spine(block)
    every = [*(let.value for let in lets), tail]
    for value in every:
        found = None
        if value is target:
            found = sum(x is var for x in operands(value))
        for inner in nested(value):
            beside = _mentions_beside(inner, target, var)
            found = found if beside is None else beside + sum(x is var for x in operands(value))
        if found is not None:
            return found + sum(count_uses(v).get(var, 0) for v in every if v is not value)
    return None


def stored_results(function: Function) -> list[tuple[Expr, Var | None]]:
    """Return each result of a function with the storage that it shows as a whole, None where it is another's.

    Args:
        function: in explicit storage.
    """
    known = definitions(function.body)
    _, tail = spine(function.body)
    tail = _defined(tail, known)
    leaves: Sequence[Expr] = tail.fields if isinstance(tail, Tuple) else (tail,)
    return [(leaf, _storage(leaf, known)) for leaf in leaves]


def copies_of_results(function: Function, leave: Collection[Var], moments: int) -> tuple[Counted, ...]:
    """Return the results of an entry that are copied when it ends: they do not own their bytes.

    Where the results are those of a branch, which one leaves is not known, and all may be copied.

    Args:
        function: in explicit storage.
        leave: variables of storages that results may leave with.
        moments: how many there are in it.
    """
    taken: set[Var] = set()
    found: list[Counted] = []
    for leaf, storage in stored_results(function):
        if storage is not None and storage in leave and storage not in taken:
            taken.add(storage)
            continue
        name = leaf.name if isinstance(leaf, Var) else "a result"
        why = "a result is copied that is an input, a constant, beside another result or made in a branch"
        found += [
            Counted(name, leaf.span, why, Origin.COPY, "", size_of(t), moments + 1, moments + 1)
            for t in _tensors(leaf.type)
        ]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Inside:
    """The local function around a value: its variable, itself, its name, and that of the one around it."""

    var: Var | None = None
    function: Function | None = None
    name: str = ""
    outer: str = ""


def _bindings(body: Expr) -> Iterator[tuple[Var | None, Expr, _Inside]]:
    """Yield each value with its variable, and the local function around it; nested ones included."""
    pending: list[tuple[Expr, _Inside]] = [(body, _Inside())]
    while pending:
        block, inside = pending.pop()
        lets, tail = spine(block)
        for var, value in (*((let.var, let.value) for let in lets), (None, tail)):
            yield var, value, inside
            around = inside
            if isinstance(value, Function) and var is not None:
                around = _Inside(var, value, var.name, inside.name)
            pending += [(x, around) for x in nested(value)]


def _tensors(t: Type) -> Iterator[TensorType]:
    match t:
        case TensorType():
            yield t
        case ExistsType(body=body):
            yield from _tensors(body)
        case TupleType(fields=fields):
            for field in fields:
                yield from _tensors(field)
        case _:
            pass


def _defined(e: Expr, known: Mapping[Var, Expr]) -> Expr:
    while isinstance(e, Var) and isinstance(known.get(e), Var | Tuple):
        e = known[e]
    return e


def _storage(e: Expr, known: Mapping[Var, Expr]) -> Var | None:
    """Return the storage whose first tensor a value shows as a whole, perhaps in another shape."""
    while True:
        value = known.get(e) if isinstance(e, Var) else e
        match value:
            case Var():
                e = value
            case Project(value=whole, index=index) if isinstance(_defined(whole, known), Tuple):
                fields = _defined(whole, known)
                assert isinstance(fields, Tuple), "it is one"
                e = fields.fields[index]
            case Call(callee=OpRef(op=op), args=(Var() as storage, *_)) if op is TENSOR_AT:
                return storage
            case Call(callee=OpRef(op=op), args=args) if op.alias is not None:
                if [size_of(t) for t in _tensors(value.type)] != [
                    size_of(t) for t in _tensors(args[op.alias].type)
                ]:
                    return None
                e = args[op.alias]
            case _:
                return None
