"""Moves values out of memories that are too small for a program, and back before they are read.

    let _ = invoke(@kernel, x, y);              let _ = invoke(@kernel, x, y);
    ...                                         let _ = invoke(@copy, y, y.out);
                                        ->      ...
                                                let _ = invoke(@copy, y.out, y.back);
    let _ = invoke(@other, y, z);               let _ = invoke(@other, y.back, z);

Nothing is done while what there is fits. Where it does not, `spill` decides what leaves and comes back,
and `spill_spine` writes it: copies are kernels like those between devices, so they run on the engines of
the board beside the kernels of the device, and wait for what they copy and overwrite as any kernel does.
What is made from values that are elsewhere anyway may be made once more instead.

**What may leave.** Tensors that kernels of the spine of a function write and read, directly or through
views. What branches, loops, closures and results have stays where it is, and so do inputs. A recursive
function has no part of such a memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from inlay.analysis.call_graph import call_graph, recursive_functions
from inlay.analysis.local_functions import find_loops
from inlay.base.diagnostics import CompileError
from inlay.ir import make
from inlay.ir.expr import Function, GlobalVar
from inlay.ir.kernel import Kernel
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.memory.activations import Activation
from inlay.memory.choose_memories import HOST, Chooser, Known, MemoryOptions
from inlay.memory.constants import plan_constants
from inlay.memory.lifetimes import find_lifetimes
from inlay.memory.plan_memory import inputs_of, known_of
from inlay.memory.size_classes import ALIGNMENT, SEARCH_STEPS
from inlay.memory.spill import Pressure, Spill, Timeline, decide, profile, timeline
from inlay.memory.spill_spine import Group, Spine, Timer, Way
from inlay.passes.contract import Pass, PassContext, Property, Remark

_SHRINKS = (0, 64, 32, 16, 8, 4)
"""Which part of a memory is left alone, one after the other, for what packing loses between values."""


def _no_copy(name: str, t: TensorType, way: Way) -> Kernel:
    raise AssertionError(f"nobody said how {name} of {t} gets from {way.source} to {way.target}")


def _stated(kernel: Kernel, device: str) -> tuple[float, bool]:
    del device
    known = None if kernel.cost_ns is None else kernel.cost_ns.value
    return float(known or 0), False


@dataclass(frozen=True, slots=True)
class SpillOptions:
    """Options of this pass.

    Attributes:
        ways: out and back, by the name of the memory that values leave, the preferred ones first.
        copy: makes the kernel of a copy, of its name, the type of the tensor and the way.
        time: predicts kernels.
        watch: is told what was moved.
    """

    ways: Mapping[str, Sequence[tuple[Way, Way]]] = field(
        default_factory=dict[str, Sequence[tuple[Way, Way]]]
    )
    copy: Callable[[str, TensorType, Way], Kernel] = _no_copy
    time: Timer = _stated
    watch: Callable[[Sequence[SpillPlan]], None] | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """A value that is not in its memory for some time.

    Attributes:
        name: of the value.
        bytes: of it.
        to: where it is meanwhile; empty for one that is made once more.
        after: the kernel that uses it last before.
        before: the kernel that uses it next.
        fetch: the kernel before which it comes back.
        out_ns: predicted of the copy out; 0 where one for an earlier gap serves.
        back_ns: predicted of the way back.
        begins_ns: when `before` is predicted to begin.
    """

    name: str
    bytes: int
    to: str
    after: str
    before: str
    fetch: str
    out_ns: float
    back_ns: float
    begins_ns: float


@dataclass(frozen=True, slots=True)
class Event:
    """A kernel or a copy, as predicted.

    Attributes:
        what: the kernel, or the value.
        how: `runs`, `leaves`, `returns`, `again`.
        by: the device or engine.
        begin, end: nanoseconds from the beginning of the function.
    """

    what: str
    how: str
    by: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class SpillPlan:
    """What was moved in a function, and what is predicted of it.

    Attributes:
        function: its name.
        memories: that were too small, together.
        engine: that copies; empty where a device does.
        needed: bytes that would be needed there at once.
        room: bytes that there are.
        moved: in the order in which values come back.
        time: predicted of the function.
        events: kernels and copies, by when they begin.
    """

    function: str
    memories: tuple[str, ...]
    engine: str
    needed: int
    room: int
    moved: tuple[Moved, ...]
    time: Timeline
    events: tuple[Event, ...]

    @property
    def added_ns(self) -> float:
        """Nanoseconds by which the function is predicted to be longer than with memories that suffice."""
        return self.time.ns - self.time.steps_ns


def run(module: Module, context: PassContext) -> Module:
    """Move values where memories are too small."""
    options = context.options_for(SpillOptions)
    made, plans = spill_module(module, context.options_for(MemoryOptions), options)
    if options.watch is not None:
        options.watch(plans)
    for plan in plans:
        for m in plan.moved:
            how = f"goes to {m.to} behind" if m.to else "is made once more; it is not there from"
            text = f"{m.name} ({m.bytes} bytes) {how} {m.after}, and is back before {m.fetch}"
            context.remarks.add(Remark("spill-values", "moved", "no-room", text))
    return made


def spill_module(
    module: Module, memories: MemoryOptions, options: SpillOptions
) -> tuple[Module, tuple[SpillPlan, ...]]:
    """Return a module whose functions fit where moving values makes them, and what was moved.

    What does not fit all the same is left as it is: planning says why.

    Args:
        module: in explicit storage, with storages that have no places yet.
        memories: that there are.
        options: ways between them.
    """
    if not options.ways:
        return module, ()
    copies = _Copies(module, options)
    functions, plans = dict(module.functions), list[SpillPlan]()
    chooser = Chooser(memories, SEARCH_STEPS)
    recursive = recursive_functions(call_graph(module))
    try:
        for _ in plan_constants(module, memories, chooser):
            pass
    except CompileError:
        return module, ()
    for name, function in module.functions.items():
        trial = _Trial(name, module.with_kernels(copies.kernels), memories, chooser, recursive)
        left = trial.left_by(function)
        if left is None:
            found = _fitted(trial, function, options, copies)
            if found is None:
                return module, ()
            functions[name], left, moved = found
            plans.extend(moved)
        chooser = left
    if not plans:
        return module, ()
    return module.with_functions(functions).with_kernels(copies.kernels), tuple(plans)


def made_again(
    module: Module, name: str, memories: MemoryOptions, options: SpillOptions, room: int
) -> tuple[Module, SpillPlan] | None:
    """Return a module whose function needs no more than so many bytes of the first heap at once.

    Values are made once more in place of being kept, where that is cheap enough to be chosen (`spill`).

    Args:
        module: as `spill_module` has it.
        name: of the function.
        memories: that there are, the heap first.
        options: for predictions.
        room: bytes of a block.

    Returns:
        None where nothing is made again, or where that is not enough.
    """
    pools = memories.pools
    first = pools[0].name if pools else HOST
    recursive = recursive_functions(call_graph(module))
    trial = _Trial(name, module, memories, Chooser(memories, SEARCH_STEPS), recursive)
    activation, known = next(trial.activations(module.functions[name]))
    if known.is_recursive:
        return None
    nowhere = Way(first, "", "", True, "", "", inf, inf)  # noqa: FBT003
    group = Group((first,), room, ALIGNMENT, nowhere, nowhere, is_heap=True)
    spine = Spine(activation, known, module.kernels, first)
    pressure = spine.pressure(group, options.time)
    spills = None if pressure is None else decide(pressure, hold=False)
    if pressure is None or not spills:
        return None
    made = spine.written(spills, group, _Copies(module, options).of)
    functions = {**module.functions, name: made}
    return module.with_functions(functions), _plan(name, spine, pressure, spills, group)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What a function is tried with: what memories have left, and what else there is."""

    name: str
    module: Module
    memories: MemoryOptions
    chooser: Chooser
    recursive: Collection[str]

    def activations(self, function: Function) -> Iterator[tuple[Activation, Known]]:
        """Return what has code of its own, with what is known when it begins."""
        known: dict[Function, Known] = {}
        for activation in find_lifetimes(self.name, function, self.module, find_loops(function)):
            around = None if activation.outer is None else known[activation.outer]
            here = known_of(self.module, self.name, activation, around, self.recursive)
            known[activation.function] = here
            if here.is_entry:
                activation.storages[:0] = inputs_of(activation, self.memories)
            yield activation, here

    def left_by(self, function: Function) -> Chooser | None:
        """Return what is left behind a function; None where it does not fit."""
        left = self.chooser.copy()
        try:
            for activation, known in self.activations(function):
                left.choose(activation, known)
        except CompileError:
            return None
        return left


def _fitted(
    trial: _Trial, function: Function, options: SpillOptions, copies: _Copies
) -> tuple[Function, Chooser, list[SpillPlan]] | None:
    """Return a function that fits, what it leaves, and what was moved; None where none was found."""
    for part, hold in ((part, hold) for part in _SHRINKS for hold in (True, False)):
        made, plans = function, list[SpillPlan]()
        while True:
            here = replace(trial, module=trial.module.with_kernels(copies.kernels))
            found = _moved(here, made, options, copies, part, hold=hold)
            if found is None:
                break
            made, plan = found
            plans.append(plan)
        here = replace(trial, module=trial.module.with_kernels(copies.kernels))
        left = here.left_by(made) if plans else None
        if left is not None:
            return made, left, plans
    return None


def _moved(
    trial: _Trial, function: Function, options: SpillOptions, copies: _Copies, part: int, *, hold: bool
) -> tuple[Function, SpillPlan] | None:
    """Return a function with copies for the first memories that are too small; None for none."""
    activation, known = next(trial.activations(function))
    if known.is_recursive:
        return None
    first = trial.memories.pools[0].name
    spine = Spine(activation, known, trial.module.kernels, first)
    for group in _groups(trial, activation, options, first):
        room = group.room - (group.room // part if part else 0)
        pressure = spine.pressure(replace(group, room=room), options.time)
        if pressure is None or profile(pressure).max(initial=0) <= room:
            continue
        spills = decide(pressure, hold=hold)
        if spills:
            made = spine.written(spills, group, copies.of)
            return made, _plan(trial.name, spine, pressure, spills, group)
    return None


def _groups(trial: _Trial, activation: Activation, options: SpillOptions, first: str) -> Iterator[Group]:
    """Return the memories of fixed size that storages have to share, with ways out of them and back."""
    sets = dict.fromkeys(s.memories or (first,) for s in activation.storages)
    pools = {p.name: p for p in trial.memories.pools}
    for memories in sorted(sets, key=len, reverse=True):
        rooms = [trial.chooser.room(m) for m in memories]
        bounded = [room for room in rooms if room is not None]
        if len(bounded) < len(rooms):
            continue
        for out, back in options.ways.get(memories[0], ()):
            others = [w for m in memories[1:] for w in options.ways.get(m, ())]
            reached = {o.source for o, _ in others if o.target == out.target}
            if out.target not in memories and reached >= set(memories[1:]):
                step = max(pools[m].alignment for m in memories)
                yield Group(memories, sum(bounded), step, out, back)
                break


def _plan(name: str, spine: Spine, pressure: Pressure, spills: Sequence[Spill], group: Group) -> SpillPlan:
    time = timeline(pressure, spills)
    seen: set[int] = set()
    moved: list[Moved] = []
    for s in spills:
        gap, tensor = s.gap, spine.tensors[s.gap.value]
        first = not s.again and gap.value not in seen
        seen.update([gap.value] if first else [])
        moved.append(
            Moved(
                tensor.var.name,
                gap.size,
                "" if s.again else group.out.target,
                spine.kernel(gap.after),
                spine.kernel(gap.before),
                spine.kernel(spine.next_kernel(s.fetch)),
                gap.out_ns if first else 0.0,
                (gap.again_ns or 0.0) if s.again else gap.back_ns,
                time.begins[gap.before],
            )
        )
    needed = int(profile(pressure).max())
    events = _events(spine, pressure, time, group.out.engine)
    return SpillPlan(name, group.memories, group.out.engine, needed, group.room, tuple(moved), time, events)


def _events(spine: Spine, pressure: Pressure, time: Timeline, engine: str) -> tuple[Event, ...]:
    found: list[Event] = []
    for number, (begin, ns) in enumerate(zip(time.begins, pressure.times, strict=True)):
        if spine.kernel(number):
            by = engine if number in pressure.copies else spine.device(number)
            found.append(Event(spine.kernel(number), "runs", by, begin, begin + ns))
    for m in time.moves:
        tensor = spine.tensors[m.value]
        by = spine.device(tensor.made) if m.again and m.value not in pressure.copied else engine
        how = "leaves" if m.out else "again" if m.again else "returns"
        found.append(Event(tensor.var.name, how, by, m.begin, m.end))
    return tuple(sorted(found, key=lambda e: (e.begin, e.end)))


class _Copies:
    """The kernels of a module, with those of copies as they are asked for."""

    def __init__(self, module: Module, options: SpillOptions) -> None:
        self.kernels = dict(module.kernels)
        self._names = {*module.kernels, *module.functions}
        self._options = options
        self._made: dict[tuple[TensorType, Way], GlobalVar] = {}

    def of(self, t: TensorType, way: Way) -> GlobalVar:
        """Return the kernel that copies tensors of a type on a way."""
        found = self._made.get((t, way))
        if found is None:
            number = len(self._made)
            while f"move_{number}" in self._names:
                number += 1
            name = f"move_{number}"
            self._names.add(name)
            kernel = self.kernels[name] = self._options.copy(name, t, way)
            found = self._made[t, way] = make.global_var(name, kernel.type)
        return found


PASS = Pass(
    __name__,
    run,
    "move values for a time out of memories that are too small for all at once",
    requires=(Property.EXPLICIT_STORAGE,),
    options=SpillOptions,
)
