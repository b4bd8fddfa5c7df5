"""What a program allocates while it runs, beside its blocks: of which size, and how often.

Blocks are planned. What is not in one is listed here, with its reason: storage that has no place in a
block, scratch memory that the runtime gives kernels, tensors that the virtual machine makes by itself,
and results that are copied because their bytes are not theirs alone. Each is made once in a call, unless
it stands in a loop or a local function.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from inlay.analysis.blocks import count_uses, definitions, nested, operands, spine
from inlay.analysis.local_functions import find_loops
from inlay.base.span import NO_SPAN
from inlay.ir.expr import Call, Expr, Function, GlobalVar, If, Match, OpRef, Project, Tuple, Var
from inlay.ir.module import Module
from inlay.ir.op import Op
from inlay.ir.types import ExistsType, TensorType, TupleType, Type
from inlay.memory.activations import CARRIED, IN_RESULT, LEAVES, TAKEN, Activation
from inlay.memory.called import given_by_calls, takers_of
from inlay.memory.choose_memories import Chosen
from inlay.memory.explicit_alloc import size_of
from inlay.memory.plan import Counted, Origin
from inlay.ops.memory import ALLOC_STORAGE, INVOKE, KILL, TENSOR_AT

_ROUND = frozenset({CARRIED, LEAVES, IN_RESULT, TAKEN})
"""Why storages escape that only go round a loop, and out of it."""
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
    carried = _carried(activation.function)
    found: list[Counted] = []
    for storage, (memory, why) in chosen.counted.items():
        origin = Origin.RESULT if is_entry and storage.is_result else Origin.VALUE
        # It is there when its kernel begins, whichever phase writes it.
        (first, _), inside = moments(storage.start), where.get(storage.vars[0], "")
        size, end, until = storage.bytes, end_of_all + 1, bisect_right(phases, storage.end)
        made = Counted(storage.name, storage.span, why, origin, memory, size, first, end, inside)
        only = storage.reasons.keys() == {IN_RESULT}
        copies = carried if inside and storage.reasons.keys() <= _ROUND else 0
        more = takers_of(storage, until)
        found.append(replace(made, arms=storage.arms, copies=copies, is_result=only, **more))
    found += given_by_calls(activation, is_entry=is_entry)
    for r in activation.requests:
        (first, last), name = moments(r.position), f"scratch of @{r.kernel}"
        found.append(
            Counted(name, NO_SPAN, r.why, Origin.SCRATCH, "", r.bytes, first, last, per_part=r.per_part)
        )
    return tuple(found)


def _carried(function: Function) -> int:
    """Return how many tensors of one allocation in a loop there may be: a new one, and what loops carry."""
    loops = (value for _, value, _ in _bindings(function.body) if isinstance(value, Function))
    return 1 + sum(len(loop.params) for loop in loops)


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
    return [(leaf, _storage(leaf, known)) for leaf in _leaves(function, known)]


def copies_of_results(
    function: Function, leave: Collection[Var], moments: int, module: Module
) -> tuple[Counted, ...]:
    """Return the results of an entry that are copied when it ends: they do not own their bytes.

    Where the results are those of a branch, which one leaves is not known, and it is copied if one would be.

    Args:
        function: in explicit storage.
        leave: variables of storages that results may leave with.
        moments: how many there are in it.
        module: with the functions that it calls.
    """
    known, taken, found = definitions(function.body), set[Var](), list[Counted]()
    for leaf in _leaves(function, known):
        ends = [(end, _storage(end, known)) for end in _ends(leaf, known)]
        storages = {s for _, s in ends if s is not None}
        own = storages <= set(leave) and storages.isdisjoint(taken)
        if own and all(s is not None or _is_made(end, module, known, ()) for end, s in ends):
            taken |= storages
            continue
        name = leaf.name if isinstance(leaf, Var) else "a result"
        why = "a result is copied that is an input, a constant, beside another result or made in a branch"
        sure = len(ends) == 1 and not _is_unseen(ends[0][0], known)
        found += [
            Counted(name, leaf.span, why, Origin.COPY, "", size_of(t), moments + 1, moments + 1, is_sure=sure)
            for t in _tensors(leaf.type)
        ]
    return tuple(found)


def _leaves(function: Function, known: Mapping[Var, Expr]) -> Sequence[Expr]:
    """Return the results of a function, those of a tuple one by one."""
    tail = _defined(spine(function.body)[1], known)
    return tail.fields if isinstance(tail, Tuple) else (tail,)


def _ends(e: Expr, known: Mapping[Var, Expr]) -> Iterator[Expr]:
    """Yield the values that one may be: itself, or those of the arms of a branch."""
    pending = [e]
    while pending:
        e = pending.pop()
        value = _defined(e, known)
        value = known.get(value, value) if isinstance(value, Var) else value
        if isinstance(value, If | Match):
            pending += [spine(arm)[1] for arm in nested(value)]
        else:
            yield e


def _is_unseen(e: Expr, known: Mapping[Var, Expr]) -> bool:
    """Whether a value is what a function, a loop or a branch gives: nobody sees whether it is shared."""
    value = known.get(e) if isinstance(e, Var) else e
    if isinstance(value, Project):
        return _is_unseen(value.value, known)
    return isinstance(value, If | Match) or (isinstance(value, Call) and not isinstance(value.callee, OpRef))


def _is_made(e: Expr, module: Module, known: Mapping[Var, Expr], inside: Sequence[str]) -> bool:
    """Whether a value is what a function of the module gives that makes it in storage of its own."""
    value = known.get(e) if isinstance(e, Var) else e
    index = 0
    if isinstance(value, Project):
        index, whole = value.index, value.value
        value = known.get(whole) if isinstance(whole, Var) else whole
    if not (isinstance(value, Call) and isinstance(value.callee, GlobalVar)):
        return False
    name = value.callee.name
    callee = module.functions.get(name)
    if callee is None or name in inside:
        return False
    theirs = definitions(callee.body)
    leaves = _leaves(callee, theirs)
    storages = [{_storage(end, theirs) for end in _ends(leaf, theirs)} for leaf in leaves]
    if index >= len(leaves) or any(
        storages[index] & s - {None} for i, s in enumerate(storages) if i != index
    ):
        return False
    return all(
        _storage(end, theirs) is not None or _is_made(end, module, theirs, (*inside, name))
        for end in _ends(leaves[index], theirs)
    )


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
