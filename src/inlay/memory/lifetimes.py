"""When storage is in use: one interval of positions for each storage of an activation.

An *activation* is one run of a function with code of its own; loops written in place belong to the
activation around them. Its lets and tails are numbered in the order in which they are written, arms
of a branch one behind the other, so that storage used only inside one arm never overlaps storage
used only inside the other.

A variable *refers to* the storages whose bytes its value may show: a tensor in a storage to that one,
a view to what its operand refers to, a tuple or branch to what its parts refer to. A storage is in
use from the first position that needs its tensor to the last position that mentions a variable that
refers to it; what a loop uses from outside is in use from the beginning of the loop until its end.

A call of a kernel has a position for each of its phases (`Kernel.accesses`): a result that is written in
later phases than an operand is read in may have the bytes of that, and so may scratch memory.

A storage *escapes* when something may hold its bytes beyond the interval we see: it is returned,
passed to a function, made in a turn of a loop and carried into the next one, captured, put into a data
type or a cell, or is the operand of an operator that takes it over (`op.in_place`). Such storage is
counted at run time and gets an allocation of its own. What is made before a loop and carried round it,
as the two buffers of `carry_buffers` are, is seen: a parameter refers to all that turns may give it
(`memory/carried.py`), and the result of the loop to what its ends refer to.

Kernels may write a result over an operand that dies there (`Accesses.overlays`; `Port.may_alias` where
no code was made): both storages become one *group* and share their bytes.

Tensors that a function is given, and those that calls give it, are followed likewise, though others made
them: *foreign* storages have no place in the plan, but say when such a tensor is used last, and whether it is
kept. So who is called, what with, and how long that stays is known for the sums of `account`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from inlay.analysis.blocks import nested, operands, spine
from inlay.arith.expr import Int, Sym, substitute, symbols
from inlay.base.diagnostics import InternalError
from inlay.ir import make
from inlay.ir.expr import (
    Call,
    Const,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    If,
    Match,
    OpRef,
    Project,
    Tuple,
    Var,
    pattern_vars,
)
from inlay.ir.kernel import Access, Kernel
from inlay.ir.module import Module
from inlay.ir.types import TensorType, TupleType, Type
from inlay.memory.activations import (
    CARRIED,
    IN_RESULT,
    LEAVES,
    TAKEN,
    Activation,
    Invocation,
    Request,
    Site,
    Storage,
)
from inlay.memory.aliases import NOTHING
from inlay.memory.carried import carried_by, results_of
from inlay.memory.chains import Chains
from inlay.memory.explicit_alloc import size_of
from inlay.memory.plan import Arms
from inlay.ops.memory import ALLOC_STORAGE, INVOKE, STORAGE, TENSOR_AT, InvokeAttrs, StorageAttrs

_TURNS = 10
"""How often the body of a loop is thought to run."""
_MOST_TURNS = 100
"""The same for a loop in loops."""


def find_lifetimes(
    name: str, function: Function, module: Module, loops: frozenset[Var], threads: int | None = None
) -> list[Activation]:
    """Return the activations of a function of the module: its own, then those of local functions.

    Args:
        name: of the function.
        function: in explicit storage.
        module: for kernels.
        loops: local functions that are written in place (`analysis.local_functions`).
        threads: that have scratch memory of their own, where it is not to be as many as the program says.
    """
    found: list[Activation] = []
    pending: deque[tuple[str, Function, Function | None, Var | None]] = deque([(name, function, None, None)])
    while pending:
        label, node, outer, own = pending.popleft()
        walker = _Walker(module.kernels, loops, threads)
        found.append(replace(walker.run(label, node, outer), var=own))
        names = Counter(var.name for var, _ in walker.lifted)
        for number, (var, inner) in enumerate(walker.lifted):
            several = f"#{number + 1}" if names[var.name] > 1 else ""
            pending.append((f"{label}.{var.name}{several}", inner, node, var))
    return found


def _updates(kernel: Kernel) -> bool:
    return any(p.access is Access.UPDATE for p in kernel.ports)


def _overlays(kernel: Kernel) -> Iterator[tuple[int, int]]:
    """Yield write ports with read ports that they may be written over."""
    if any(p.access in (Access.UPDATE, Access.FILL) for p in kernel.ports):
        return
    if kernel.accesses is not None:
        yield from kernel.accesses.overlays
        return
    for index, port in enumerate(kernel.ports):
        if port.may_alias is not None:
            yield index, port.may_alias


def _fills(tensor: Expr, storage: Storage) -> bool:
    """Whether a tensor is all of its storage, no part of it that might begin behind its first byte."""
    return isinstance(tensor.type, TensorType) and size_of(tensor.type) == storage.bytes


def _common(a: Storage, b: Storage) -> tuple[str, ...] | None:
    """Return the memories that both may be in, as the first prefers them; None for none."""
    if a.memories == b.memories:
        return a.memories
    return tuple(m for m in a.memories if m in b.memories) or None


def at_call(size: Int, kernel: Kernel, ints: Expr) -> Int | None:
    """Return a size over the dims of a kernel at a call with these integers, if they say it."""
    given = ints.value if isinstance(ints, Const) and isinstance(ints.value, tuple) else ()
    known: dict[Sym, Int] = {}
    for own, value in zip(kernel.ints, given, strict=False):
        if isinstance(own.atom, Sym):
            known[own.atom] = value
    return substitute(size, known) if all(s in known for s in symbols(size)) else None


def _name(callee: Expr) -> str:
    """Return what is called, for reports."""
    return callee.name if isinstance(callee, GlobalVar | Var) else "a function"


def tensors_of(t: Type) -> Sequence[TensorType] | None:
    """Return the tensors that a result is: one, or those of a tuple; None where it is something else."""
    fields = t.fields if isinstance(t, TupleType) else (t,)
    found = [f for f in fields if isinstance(f, TensorType)]
    return found if len(found) == len(fields) else None


class _Walker:
    """Walks one activation in order and numbers it."""

    def __init__(self, kernels: Mapping[str, Kernel], loops: frozenset[Var], threads: int | None) -> None:
        self.kernels = kernels
        self.loops = loops
        self.threads = threads
        self.lifted: list[tuple[Var, Function]] = []
        self._position = 0
        self._invoked: list[Invocation] = []
        self._at: dict[Var, int] = {}
        self._reads: dict[Var, list[int]] = {}
        self._chains = Chains()
        self._refers: dict[Var, frozenset[Var]] = {}
        self._storage: dict[Var, Storage] = {}
        # Where storages are made, and those that nothing has used yet.
        self._made: dict[Storage, int] = {}
        self._fresh: set[Storage] = set()
        self._loop_bodies: dict[Var, Function] = {}
        # For each loop being walked: where it began, what it uses from outside, and its name.
        self._open_loops: list[tuple[int, dict[Storage, None], str]] = []
        # For each loop that was entered: where, and what its parameters refer to.
        self._entered: dict[Var, tuple[int, Sequence[frozenset[Var]]]] = {}
        # What the fields of tuples refer to.
        self._fields: dict[Var, Sequence[frozenset[Var]]] = {}
        self._requests: list[Request] = []
        # What might be written over what, and where.
        self._overwrites: list[tuple[Storage, Storage, Invocation]] = []
        self._arms: Arms = ()
        self._sites: list[Site] = []

    def run(self, name: str, function: Function, outer: Function | None) -> Activation:
        """Number the function and find its storages."""
        params = [self._given(p, p.type) if isinstance(p.type, TensorType) else None for p in function.params]
        result = self._block(function.body)
        self._escape(result, IN_RESULT)
        self._share()
        distinct = dict.fromkeys(s for s in self._storage.values() if not s.is_foreign)
        ordered = sorted(distinct, key=lambda s: (s.start, s.end))
        return Activation(
            function,
            name,
            outer,
            ordered,
            self._position,
            tuple(self._requests),
            self._invoked,
            self._at,
            self._reads,
            params,
            self._sites,
        )

    def _given(self, var: Var, t: TensorType) -> Storage:
        """Return the foreign storage of a tensor that a function is given, or a call gives."""
        at = self._position
        made = Storage([var], size_of(t), 1, (), at, at, name=var.name, arms=self._arms, is_foreign=True)
        self._storage[var], self._made[made] = made, at
        self._refers[var] = frozenset((var,))
        return made

    # ------------------------------------------------------------------ walking

    def _block(self, block: Expr) -> frozenset[Var]:
        """Number a block; return what its result refers to."""
        lets, tail = spine(block)
        for let in lets:
            self._at[let.var] = self._position + 1
            if isinstance(let.value, Function):
                self._local(let.var, let.value)
                continue
            refers = self._value(let.value, let.var)
            if refers:
                self._refers[let.var] = refers
        return self._value(tail, None)

    def _arm(self, block: Expr, arm: tuple[int, int] | None = None) -> frozenset[Var]:
        """The same for a block that control reaches in its own way, perhaps an arm of a branch."""
        self._chains.join()
        around = self._arms
        self._arms = around if arm is None else (*around, arm)
        result = self._block(block)
        self._arms = around
        self._chains.join()
        return result

    def _local(self, var: Var, function: Function) -> None:
        if var in self.loops:
            self._loop_bodies[var] = function
            return
        self.lifted.append((var, function))
        self._position += 1
        self._escape(self._captured(function), "a local function captures it")

    def _value(self, value: Expr, var: Var | None) -> frozenset[Var]:
        """Number one value; return what it refers to."""
        self._position += 1
        match value:
            case Var():
                return self._use((value,))
            case If(condition=condition, then=then, otherwise=otherwise):
                self._use((condition,))
                here = self._position
                return self._arm(then, (here, 0)) | self._arm(otherwise, (here, 1))
            case Match(scrutinee=scrutinee, arms=arms):
                refers, here = self._use((scrutinee,)), self._position
                result = NOTHING
                for number, arm in enumerate(arms):
                    for bound in pattern_vars(arm.pattern):
                        self._refers[bound] = refers
                    result |= self._arm(arm.body, (here, number))
                return result
            case Tuple(fields=fields):
                if var is not None:
                    self._fields[var] = [self._refers_of((x,)) for x in fields]
                return self._use(fields)
            case Project(value=whole, index=index):
                parts = self._fields.get(whole) if isinstance(whole, Var) else None
                return self._use((whole,)) if parts is None else self._use_all(parts[index])
            case Call():
                return self._call(value, var)
            case _:
                self._escape(self._use(operands(value)), "a cell holds it")
                return NOTHING

    def _call(self, call: Call, var: Var | None) -> frozenset[Var]:
        match call.callee:
            case OpRef(op=op, attrs=attrs):
                if op is ALLOC_STORAGE:
                    assert isinstance(attrs, StorageAttrs), "alloc_storage has its attributes"
                    self._make(call, attrs, var)
                    return NOTHING
                if op is TENSOR_AT:
                    return self._tensor(call)
                if op is INVOKE:
                    self._invoke(call)
                    return NOTHING
                used = [self._use((arg,)) for arg in call.args]
                for index in op.in_place:
                    self._escape(used[index], f"{op.name} may take it over")
                shared = NOTHING if op.alias is None else used[op.alias]
                return shared.union(*(used[index] for index in op.in_place))
            case Var() as callee if callee in self._loop_bodies:
                return self._loop(callee, call.args, var)
            case Var() as callee if callee in self._entered:
                self._jump(callee, call.args)
                return NOTHING
            case ConstructorRef():
                self._escape(self._use(call.args), "a constructed value holds it")
                return NOTHING
            case Function() as function:
                used = [self._use((arg,)) for arg in call.args]
                for param, refers in zip(function.params, used, strict=True):
                    self._refers[param] = refers
                return self._block(function.body)
            case _:
                return self._function(call, var)

    def _function(self, call: Call, var: Var | None) -> frozenset[Var]:
        """Note a call of a function; return what it gives."""
        self._escape(self._use((call.callee,)), TAKEN)
        for index, arg in enumerate(call.args):
            refers = self._use((arg,))
            self._escape(
                refers, TAKEN if isinstance(arg.type, TensorType) else "it is in what a function takes"
            )
            for storage in map(self._storage.__getitem__, refers):
                storage.takers.append((len(self._sites), index))
        here = self._position
        self._invoked.append(Invocation(f"call of {_name(call.callee)}", here, here, self._arms))
        name, types = "" if var is None else var.name, tensors_of(call.type)
        made = None if types is None else [make.var(name or _name(call.callee), STORAGE) for _ in types]
        given = [self._given(v, t) for v, t in zip(made or (), types or (), strict=True)]
        inside = self._open_loops[-1][2] if self._open_loops else ""
        self._sites.append(Site(call, here, self._arms, inside, None if types is None else given))
        if var is not None and made is not None and isinstance(call.type, TupleType):
            self._fields[var] = [frozenset((v,)) for v in made]
        return frozenset(made or ())

    def _loop(self, callee: Var, args: Sequence[Expr], var: Var | None) -> frozenset[Var]:
        """Walk the body of a loop where it is written; what it uses from outside lives through it."""
        body, begin = self._loop_bodies.pop(callee), self._position
        carried = carried_by(callee, body, [self._use((x,)) for x in args], self._refers)
        self._refers.update(zip(body.params, carried, strict=True))
        self._entered[callee] = begin, carried
        self._open_loops.append((begin, {}, callee.name))
        result = self._arm(body.body)
        _, outside, _ = self._open_loops.pop()
        for storage in outside:
            self._touch(storage, self._position, self._position)
        # What one turn makes may be the result of the loop, but not of two turns at once: it leaves
        # the turn, so it cannot be planned as if each turn had it to itself.
        self._escape(self._made_behind(begin, result), LEAVES)
        fields = results_of(callee, body, self._fields)
        if var is not None and fields is not None:
            self._fields[var] = fields
        return result

    def _jump(self, callee: Var, args: Sequence[Expr]) -> None:
        """Carry values into the next turn of a loop that is being walked."""
        begin, carried = self._entered[callee]
        for arg, known in zip(args, carried, strict=True):
            refers = self._use((arg,))
            self._escape(self._made_behind(begin, refers) | (refers - known), CARRIED)

    def _made_behind(self, begin: int, refers: frozenset[Var]) -> frozenset[Var]:
        """Return the storages that are made behind a position."""
        return frozenset(v for v in refers if self._made[self._storage[v]] > begin)

    # ------------------------------------------------------------------ storages

    def _make(self, call: Call, attrs: StorageAttrs, var: Var | None) -> None:
        size = call.args[0]
        if not isinstance(size, Const) or not isinstance(size.value, Int) or var is None:
            raise InternalError("storage of a size that is no constant", where=str(call.span))
        at, name = self._position, var.name.removesuffix(".s")
        made = Storage([var], size.value, attrs.alignment, attrs.memories, at, at, name=name, span=call.span)
        made.arms = self._arms
        self._storage[var] = made
        self._made[made] = at
        self._fresh.add(made)

    def _tensor(self, call: Call) -> frozenset[Var]:
        storage = call.args[0]
        if not isinstance(storage, Var):
            raise InternalError("a tensor is not in named storage", where=str(call.span))
        if storage not in self._storage:
            return NOTHING  # storage of another activation, which escapes there
        return frozenset((storage,))

    def _invoke(self, call: Call) -> None:
        callee, attrs = call.callee, None
        if isinstance(callee, OpRef):
            attrs = callee.attrs
        assert isinstance(attrs, InvokeAttrs), "invoke has its attributes"
        kernel_ref, tensors = call.args[0], call.args[1:-1]
        reads = len(tensors) - attrs.writes
        used = [self._own(self._refers_of((t,))) for t in tensors]
        kernel = self.kernels[kernel_ref.name] if isinstance(kernel_ref, GlobalVar) else None
        self._use_in_phases(kernel, tensors, used)
        self._place(used, reads)
        if kernel is None:
            return
        self._requests += [
            Request(
                kernel.name, w.requested, self._position, at_call(w.bytes, kernel, call.args[-1]), w.per_part
            )
            for w in kernel.workspaces
            if w.requested
        ]
        for w in kernel.workspaces:
            size = at_call(w.planned(self.threads), kernel, call.args[-1])
            if self.threads is not None and w.per_part and not w.requested and size is not None:
                self._only(used[-1]).bytes = size
        for w, r in _overlays(kernel):
            written, read = used[w], used[r]
            others = [u for i, u in enumerate(used) if i not in (w, r)]
            if len(written) != 1 or len(read) != 1 or any(read & other for other in others):
                continue  # read a second time, through another port
            out, into = self._only(written), self._only(read)
            if _fills(tensors[w], out) and _fills(tensors[r], into):
                self._overwrites.append((out, into, self._invoked[-1]))

    def _use_in_phases(
        self, kernel: Kernel | None, tensors: Sequence[Expr], used: Sequence[frozenset[Var]]
    ) -> None:
        """Note what a kernel accesses, and in which of its phases."""
        here = self._position
        accesses = None if kernel is None or _updates(kernel) else kernel.accesses
        last = 0 if accesses is None else accesses.phases - 1
        self._position += last
        times = min(_TURNS ** len(self._open_loops), _MOST_TURNS)
        for index, (tensor, refers) in enumerate(zip(tensors, used, strict=True)):
            begin, end = (0, last) if accesses is None else accesses.used[index]
            if not refers and isinstance(tensor, Var):
                self._reads.setdefault(tensor, []).extend([here + begin] * times)
            for storage in map(self._storage.__getitem__, self._refers_of((tensor,))):
                self._touch(storage, here + begin, here + end)
                storage.accesses.extend([here + begin] * times)
        if kernel is not None:
            self._invoked.append(Invocation(kernel.name, here, self._position, self._arms))

    def _place(self, used: Sequence[frozenset[Var]], reads: int) -> None:
        """Give a kernel its chain, and the storages that it writes."""
        chain, clock = self._chains.place(self._storage[var].clock for refers in used for var in refers)
        for refers in used[reads:]:
            for storage in map(self._storage.__getitem__, refers):
                if not storage.clock:
                    storage.chain = chain
                storage.clock = clock

    def _only(self, refers: frozenset[Var]) -> Storage:
        (var,) = refers
        return self._storage[var]

    def _share(self) -> None:
        """Join storages of results with those of operands that die where the result is written."""
        joined: dict[Storage, Storage] = {}
        for out, read, call in self._overwrites:
            into = read
            while into in joined:
                into = joined[into]
            if (
                out not in joined
                and into is not out
                and into.start < out.start <= into.end <= call.last
                and call.first <= out.start
                and into.bytes == out.bytes
                and _common(into, out) is not None
                and not into.escapes
                and not out.escapes
            ):
                joined[out] = into
                into.memories = _common(into, out) or ()
                into.vars.extend(out.vars)
                into.accesses.extend(out.accesses)
                into.end = out.end
                into.alignment = max(into.alignment, out.alignment)
                for var in out.vars:
                    self._storage[var] = into

    # ------------------------------------------------------------------ references

    def _use(self, exprs: Iterable[Expr]) -> frozenset[Var]:
        """Note a use of everything that these refer to, here; return it."""
        return self._use_all(self._refers_of(exprs))

    def _use_all(self, found: frozenset[Var]) -> frozenset[Var]:
        for var in found:
            self._touch(self._storage[var], self._position, self._position)
        return found

    def _refers_of(self, exprs: Iterable[Expr]) -> frozenset[Var]:
        found = NOTHING
        for e in exprs:
            if isinstance(e, Var):
                found |= self._refers.get(e, NOTHING)
        return found

    def _touch(self, storage: Storage, first: int, last: int) -> None:
        """Note that a storage is in use from one position to another one."""
        around = [loop for loop in self._open_loops if self._made[storage] <= loop[0]]
        if storage in self._fresh:
            self._fresh.remove(storage)
            storage.start = around[0][0] if around else first
        storage.end = max(storage.end, last)
        if around and around[-1] is self._open_loops[-1]:
            around[-1][1][storage] = None

    def _own(self, refers: frozenset[Var]) -> frozenset[Var]:
        """Return the storages that this function makes."""
        return frozenset(var for var in refers if not self._storage[var].is_foreign)

    def _escape(self, refers: frozenset[Var], why: str) -> None:
        for var in refers:
            storage = self._storage[var]
            storage.escapes = storage.escapes or why
            storage.reasons[why] = None

    def _captured(self, function: Function) -> frozenset[Var]:
        found = NOTHING
        pending: list[Expr] = [function.body]
        while pending:
            lets, tail = spine(pending.pop())
            for value in [*(let.value for let in lets), tail]:
                for e in (value, *operands(value)):
                    if isinstance(e, Var):
                        found |= self._refers.get(e, NOTHING)
                pending.extend(nested(value))
        return found
