"""The spine of a function as `spill` sees it: steps, what is in a memory meanwhile, gaps; and written anew.

Steps are the lets of the spine, by number. A tensor may leave where everything that is done with it is
seen here: kernels of the spine read it, or views of it, which are made again of what comes back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

from inlay.analysis.blocks import relet, spine
from inlay.arith.bounds import bounds
from inlay.ir import make
from inlay.ir.expr import Call, Expr, Function, GlobalVar, Let, OpRef, Var
from inlay.ir.kernel import Access, Kernel
from inlay.ir.place import Place
from inlay.ir.types import STORAGE, UNIT, TensorType
from inlay.ir.walk import free_vars, substitute_vars
from inlay.memory.activations import Activation, Storage
from inlay.memory.choose_memories import Known
from inlay.memory.spill import Gap, Pressure, Spill, Stay
from inlay.ops.memory import ALLOC_STORAGE, INVOKE, KILL, TENSOR_AT, InvokeAttrs, StorageAttrs
from inlay.packing.buffer import align

Binding: TypeAlias = tuple[Var, Expr]

Timer: TypeAlias = Callable[[Kernel, str], tuple[float, bool]]
"""From a kernel and the device that runs it to predicted nanoseconds, and whether an engine does it."""


@dataclass(frozen=True, slots=True)
class Way:
    """How values get from one memory to another.

    Attributes:
        source, target: names of the memories.
        engine: that copies.
        by_device: whether that is a device itself, which does nothing else meanwhile.
        origin: the device that a value in the source is said to be on.
        device: that one in the target is said to be on.
        latency_ns: before the first byte.
        ns_per_byte: after that.
    """

    source: str
    target: str
    engine: str
    by_device: bool
    origin: str
    device: str
    latency_ns: float
    ns_per_byte: float

    def ns(self, size: int) -> float:
        """Return what a copy takes."""
        return self.latency_ns + self.ns_per_byte * size


@dataclass(frozen=True, slots=True)
class Group:
    """Memories that storages choose among, and where values go from there.

    Attributes:
        memories: their names.
        room: bytes that are left of them.
        alignment: of everything in them.
        out, back: the ways.
        is_heap: whether it is a heap, where what outlives the function is elsewhere.
    """

    memories: tuple[str, ...]
    room: int
    alignment: int
    out: Way
    back: Way
    is_heap: bool = False


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor in a storage of the spine.

    Attributes:
        var: its variable.
        view: the call that makes it of its storage.
        storage: that it is in, perhaps one after others.
        allocation: of that storage, where this tensor was the first one to have it.
        made: the let that writes it; -1 before it is known.
        uses: the lets that read it.
        views: of it, with the lets that make them.
        stays: why it cannot leave; empty where it can.
    """

    var: Var
    view: Call
    storage: Storage
    allocation: Call
    made: int = -1
    uses: list[int] = field(default_factory=list[int])
    views: list[tuple[int, Let]] = field(default_factory=list[tuple[int, Let]])
    stays: str = ""


class Spine:
    """A function that is read.

    Args:
        activation: of the function.
        known: when it begins.
        kernels: of the module.
        first: the name of the host's memory, where storages are of which nothing is said.
    """

    def __init__(
        self, activation: Activation, known: Known, kernels: Mapping[str, Kernel], first: str
    ) -> None:
        self.activation, self.known, self.kernels, self.first = activation, known, kernels, first
        self.lets, self.tail = spine(activation.function.body)
        self._positions = [activation.at[let.var] for let in self.lets]
        self._of = {v: s for s in activation.storages for v in s.vars}
        self.tensors: list[Tensor] = []
        self._tensor: dict[Var, Tensor] = {}
        self._read()

    # ------------------------------------------------------------------ reading

    def _read(self) -> None:
        allocations: dict[Var, Call] = {}
        for number, let in enumerate(self.lets):
            match let.value:
                case Call(callee=OpRef(op=op)) as call if op is ALLOC_STORAGE:
                    allocations[let.var] = call
                case Call(callee=OpRef(op=op), args=(Var() as storage, *_)) as call if op is TENSOR_AT:
                    if storage in allocations and storage in self._of:
                        made = Tensor(let.var, call, self._of[storage], allocations[storage])
                        self.tensors.append(made)
                        self._tensor[let.var] = made
                case Call(callee=OpRef(op=op, attrs=InvokeAttrs(writes=writes)), args=args) if op is INVOKE:
                    self._invoked(number, args[1:-1], writes)
                case Call(callee=OpRef(op=op), args=(Var() as tensor,)) if op is KILL:
                    if tensor in self._tensor:
                        self._tensor[tensor].uses.append(number)
                case Call(callee=OpRef(op=op), args=args) if op.alias is not None and not op.in_place:
                    source = args[op.alias]
                    shown = self._tensor.get(source) if isinstance(source, Var) else None
                    self._hold((a for a in args if a is not source), number)
                    if shown is not None:
                        self._tensor[let.var] = shown
                        shown.views.append((number, let))
                case value:
                    self._hold((value,), number)
        self._hold((self.tail,), len(self.lets))
        together = Counter(t.view.args[0] for t in self.tensors)
        for tensor in self.tensors:
            if together[tensor.view.args[0]] > 1:
                tensor.stays = "it is a part of another one, or has parts"

    def _invoked(self, number: int, tensors: Sequence[Expr], writes: int) -> None:
        reads = len(tensors) - writes
        for index, arg in enumerate(tensors):
            tensor = self._tensor.get(arg) if isinstance(arg, Var) else None
            if tensor is None:
                continue
            if index < reads:
                tensor.uses.append(number)
            elif tensor.made >= 0 or arg is not tensor.var:
                tensor.stays = "it is written more than once"
            else:
                tensor.made = number

    def _hold(self, values: Iterable[Expr], number: int) -> None:
        for value in values:
            for var in free_vars(value):
                if var in self._tensor:
                    self._tensor[var].uses.append(number)
                    self._tensor[var].stays = "what is no kernel reads it"

    # ------------------------------------------------------------------ what is where

    def size(self, storage: Storage, alignment: int) -> int | None:
        """Return the bytes of a storage at the bounds of dims."""
        size = bounds(storage.bytes, self.known.ranges).high
        return None if size is None else align(size, alignment)

    def step(self, position: int) -> int:
        """Return the let in which a position is."""
        return max(bisect_right(self._positions, position) - 1, 0)

    def kernel(self, number: int) -> str:
        """Return the name of the kernel that a let invokes; empty for none."""
        value = self.lets[number].value if 0 <= number < len(self.lets) else None
        match value:
            case Call(callee=OpRef(op=op), args=(GlobalVar(name=name), *_)) if op is INVOKE:
                return name
            case _:
                return ""

    def next_kernel(self, number: int) -> int:
        """Return the next let that invokes a kernel, from one on."""
        return next((n for n in range(number, len(self.lets)) if self.kernel(n)), len(self.lets))

    def device(self, number: int) -> str:
        """Return the device that runs a let; empty where nothing is said."""
        place = self.lets[number].value.place
        while place is not None and not place.device and place.fields:
            place = place.fields[0]
        return "" if place is None else place.device

    def home(self, tensor: Tensor) -> str:
        """Return the device that a tensor is on, which is not always the first with its memory."""
        place = tensor.var.place
        return self.device(tensor.made) if place is None or not place.device else place.device

    def pressure(self, group: Group, time: Timer) -> Pressure | None:
        """Return what is to be decided of a group of memories; None where a size has no bound."""
        stays: list[Stay] = []
        last = len(self.lets) - 1
        for storage in self.activation.storages:
            if not self._is_near(storage, group) or (group.is_heap and storage.escapes):
                continue
            size = self.size(storage, group.alignment)
            if size is None:
                return None
            end = last if storage.escapes else self.step(storage.end)
            stays.append(Stay(size, self.step(storage.start) if storage.start else 0, end))
        times = [0.0] * len(self.lets)
        copies: set[int] = set()
        for number in range(len(self.lets)):
            kernel = self.kernels.get(self.kernel(number))
            if kernel is not None:
                times[number], is_copy = time(kernel, self.device(number))
                copies.update([number] if is_copy else [])
        copied = frozenset(i for i, t in enumerate(self.tensors) if t.made in copies)
        gaps = tuple(self._gaps(group, times))
        engine = not group.out.by_device
        return Pressure(tuple(stays), gaps, group.room, times, engine, copied, frozenset(copies))

    def _gaps(self, group: Group, times: Sequence[float]) -> list[Gap]:
        found: list[Gap] = []
        near = {t.var: i for i, t in enumerate(self.tensors) if self._is_near(t.storage, group)}
        for value, t in enumerate(self.tensors):
            if t.var not in near or t.stays or t.storage.escapes or t.made < 0:
                continue
            size = self.size(t.storage, group.alignment)
            if not size:
                continue
            again, needs = self._again(t, near, times)
            points = sorted({t.made, *t.uses})
            for after, before in pairwise(points):
                if before - after > 1:
                    ok = again is not None and all(max(self.tensors[n].uses) >= before for n in needs)
                    found.append(
                        Gap(
                            value,
                            size,
                            t.made,
                            after,
                            before,
                            group.out.ns(size),
                            group.back.ns(size),
                            again if ok else None,
                            needs if ok else (),
                        )
                    )
        return found

    def _is_near(self, storage: Storage, group: Group) -> bool:
        return set(storage.memories or (self.first,)) <= set(group.memories)

    def _again(
        self, t: Tensor, near: Mapping[Var, int], times: Sequence[float]
    ) -> tuple[float | None, tuple[int, ...]]:
        """Return what making a tensor once more takes, and the values near that it reads."""
        call, kernel = self.lets[t.made].value, self.kernels.get(self.kernel(t.made))
        if kernel is None or kernel.resource is not None or not isinstance(call, Call):
            return None, ()
        if call.callee.attrs != InvokeAttrs(1) if isinstance(call.callee, OpRef) else True:
            return None, ()
        if any(p.access in (Access.UPDATE, Access.FILL) for p in kernel.ports):
            return None, ()
        needs: list[int] = []
        for arg in call.args[1:-2]:
            source = self._tensor.get(arg) if isinstance(arg, Var) else None
            if source is None:
                continue  # a constant, an input, or what is nowhere near: it is there
            if source.stays or source.made < 0 or source.var not in near:
                if source.var in near:
                    return None, ()
                continue
            needs.append(near[source.var])
        return times[t.made], tuple(needs)

    # ------------------------------------------------------------------ writing

    def written(
        self, spills: Sequence[Spill], group: Group, copy: Callable[[TensorType, Way], GlobalVar]
    ) -> Function:
        """Return the function with what spills say."""
        return _Writer(self, spills, group, copy).function()


class _Writer:
    """Writes a function with copies."""

    def __init__(
        self, read: Spine, spills: Sequence[Spill], group: Group, copy: Callable[[TensorType, Way], GlobalVar]
    ) -> None:
        self.read, self.group, self.copy = read, group, copy
        self.back: dict[int, list[Spill]] = {}
        self.out: dict[int, list[Tensor]] = {}
        self.freed: dict[int, list[Tensor]] = {}
        for s in spills:
            self.back.setdefault(s.fetch, []).append(s)
            tensor = read.tensors[s.gap.value]
            if s.held:
                self.freed.setdefault(s.free, []).append(tensor)
            if not s.again and tensor not in self.out.setdefault(s.gap.made, []):
                self.out[s.gap.made].append(tensor)
        self.outside: dict[Tensor, Var] = {}
        self.now: dict[Var, Expr] = {}
        self.later: dict[int, list[tuple[Tensor, Var]]] = {}
        self.count = 0

    def function(self) -> Function:
        """Return the function."""
        bindings: list[tuple[Let | None, Var, Expr]] = []

        def put(found: Iterable[Binding]) -> None:
            bindings.extend((None, var, value) for var, value in found)

        for number, let in enumerate(self.read.lets):
            for tensor in self.freed.get(number, ()):
                gone = make.call(KILL, (self.now.get(tensor.var, tensor.var),))
                put([(make.var("_", UNIT), gone)])
            for spill in self.back.get(number, ()):
                put(self._fetched(spill))
            for tensor, var in self.later.pop(number, ()):
                put(self._taken_up(tensor, var, number))
            value = substitute_vars(let.value, self.now) if self.now else let.value
            bindings.append((let, let.var, value))
            for tensor in self.out.get(number, ()):
                put(self._sent(tensor))
        body = substitute_vars(self.read.tail, self.now) if self.now else self.read.tail
        for let, var, value in reversed(bindings):
            body = make.let(var, value, body) if let is None else relet(let, value, body)
        return replace(self.read.activation.function, body=body)

    def _sent(self, tensor: Tensor) -> list[Binding]:
        """Copy a tensor out, right behind the kernel that made it."""
        way = self.group.out
        way = replace(way, origin=self.read.home(tensor) or way.origin)
        made, bindings = self._store(tensor, "out", (way.target,), Place(way.device))
        self.outside[tensor] = made
        return [*bindings, self._copied(way, tensor.var, made)]

    def _fetched(self, spill: Spill) -> list[Binding]:
        """Make a tensor be there again; it is taken up where it is used."""
        tensor = self.read.tensors[spill.gap.value]
        made_by = self.read.lets[tensor.made].value
        memories = tensor.storage.memories
        way = self.group.back
        way = replace(way, device=self.read.home(tensor) or way.device)
        place = Place(way.device)
        made, bindings = self._store(tensor, "again" if spill.again else "back", memories, place)
        self.later.setdefault(spill.gap.before, []).append((tensor, made))
        if not spill.again:
            return [*bindings, self._copied(way, self.outside[tensor], made)]
        assert isinstance(made_by, Call), "a kernel makes it"
        once_more = substitute_vars(made_by, {**self.now, tensor.var: made})
        return [*bindings, (make.var("_", UNIT), once_more)]

    def _taken_up(self, tensor: Tensor, made: Var, number: int) -> list[Binding]:
        """Have what follows use a tensor that came back, and views of that."""
        self.now[tensor.var] = made
        found: list[Binding] = []
        for at, let in tensor.views:
            if at < number:
                shown = make.var(let.var.name, let.var.type, let.span, let.var.place)
                found.append((shown, substitute_vars(let.value, self.now)))
                self.now[let.var] = shown
        return found

    def _store(
        self, tensor: Tensor, what: str, memories: tuple[str, ...], place: Place
    ) -> tuple[Var, list[Binding]]:
        self.count += 1
        name = f"{tensor.var.name}.{what}"
        span = tensor.var.span
        storage = make.var(f"{name}.s", STORAGE, span)
        attrs = StorageAttrs(memories)
        allocation = make.call(ALLOC_STORAGE, tensor.allocation.args, attrs, span=span)
        made = make.var(name, tensor.var.type, span, place)
        view = replace(tensor.view, args=(storage, make.int_const(0), tensor.view.args[2]), place=place)
        return made, [(storage, allocation), (made, view)]

    def _copied(self, way: Way, source: Var, target: Var) -> Binding:
        assert isinstance(source.type, TensorType), "tensors are copied"
        kernel = self.copy(source.type, way)
        args = (kernel, source, target, make.shape_const(()))
        call = make.call(INVOKE, args, InvokeAttrs(1), span=source.span, place=Place(way.device))
        return make.var("_", UNIT), call
