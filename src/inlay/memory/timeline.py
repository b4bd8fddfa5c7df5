"""What the heap has from moment to moment of a function, with the functions that it calls in their places.

A block is there from the beginning of its function to the last use of what is in it. What is allocated
beside it is there from its kernel to its last use; arms of a branch exclude each other, so of theirs the most
counts. A call takes, at its moment, the most that the callee takes; what the callee has left at its end is
what it gives, and stays as long as the caller mentions it. What a call takes over with its last mention, the
callee frees at *its* last mention: those bytes are the caller's up to there (`dying`).

A function that ends by calling itself has a frame no more when the next turn begins: a turn takes its own and
what it was given by the one before. If sizes are the same in all turns and nothing is kept but results, that
is a bound, however many turns there are. Of other functions that call themselves nothing is known.

That holds while kernels run one after the other. Where several may run at once a program goes on before what
it called has ended, so each call counts with all that it has, from the beginning to the end: then calls in
loops have no bound. A block counts to the end of its function too; where it would be less without that, the
sum is no more than a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from inlay.arith.expr import Int, Sym, from_atom, substitute, symbols
from inlay.memory.activations import IN_RESULT
from inlay.memory.called import GIVEN
from inlay.memory.plan import KEPT, Arms, Called, Counted, FunctionPlan, MemoryPart, Origin
from inlay.memory.size_classes import ALIGNMENT
from inlay.packing.buffer import align

Sizes = Callable[[Int], int | None]
"""Gives the number that a size stands for; None where there is none."""

_LONGEST = 80
"""Characters of a formula beyond which it is cut in a message."""


class Use(NamedTuple):
    """What a call of a function takes.

    Attributes:
        peak: the most at once, beside what was there before.
        bound: what no plan of its values in this order can do without.
        left: what is there when it has ended.
        is_exact: whether it takes just that.
    """

    peak: int
    bound: int
    left: int
    is_exact: bool


class Item(NamedTuple):
    """Bytes that are there from one moment to another one, if control comes into some arms."""

    first: int
    last: int
    bytes: int
    arms: Arms = ()


@dataclass(frozen=True, slots=True)
class Timeline:
    """A function from moment to moment, and behind the last one; all in bytes.

    Attributes:
        block: of it.
        alive: values in the block, rounded up to the alignment.
        steps: all that is there.
        needed: the same with what is alive in place of blocks.
        calls: what calls of functions have.
        kept: what those leave beside what they give.
        spare: of the last step, what is not there when the function has ended: of all that a result may show,
            it shows one.
        is_exact: whether a call takes just the most of `steps`.
    """

    block: int
    alive: Sequence[int]
    steps: Sequence[int]
    needed: Sequence[int]
    calls: Sequence[int]
    kept: int
    spare: int
    is_exact: bool


@dataclass(slots=True)
class Heap:
    """The functions of a program and one memory of kind heap.

    Attributes:
        plans: by name.
        memory: its name.
        first: the name of the memory that is meant where none is said.
        sizes: numbers for sizes over the dims of the entry.
        threads: that kernels run on.
        unknown: what has no bound, found so far.
    """

    plans: Mapping[str, FunctionPlan]
    memory: str
    first: str
    sizes: Sizes
    threads: int = 1
    unknown: list[str] = field(default_factory=list[str])
    _known: dict[object, Use] = field(default_factory=dict[object, Use])
    _active: list[str] = field(default_factory=list[str])

    def timeline(
        self,
        plan: FunctionPlan,
        dims: Mapping[Sym, Int] | None = None,
        dying: Mapping[int, int] | None = None,
        tails: Collection[int] = (),
    ) -> Timeline:
        """Return a function from moment to moment.

        Args:
            plan: of it.
            dims: its dims over those of the entry; None for the entry.
            dying: bytes of operands that nobody else has, by their numbers.
            tails: numbers of calls that are looked at elsewhere.
        """
        part = next((p for p in plan.parts if (p.memory or self.first) == self.memory), None)
        counted = [c for c in (*plan.counted, *plan.machine) if self._is_here(c) and c.giver not in tails]
        block, members = self._block(plan, part, dims)
        sized = [(c, self.size_of(c, plan, dims)) for c in counted]
        items, given = self._items(plan, sized)
        called, left, is_exact = self._calls(plan, dims, dying or {}, given, tails)
        calls = steps_of(called, plan)
        items += left + [
            Item(plan.params[j].until + 1, plan.moments + 1, -n) for j, n in (dying or {}).items()
        ]
        beside = steps_of(items, plan)
        beside = [a + b for a, b in zip(beside, calls, strict=True)]
        alive = steps_of(members, plan)
        ends = max((m.last for m in members), default=0)
        begin = members[0].first if part and part.is_tensor and self.threads == 1 else 1

        def with_block(end: int) -> list[int]:
            whole = steps_of([Item(begin, min(end, plan.moments), block)] if part else (), plan)
            whole[-1] += alive[-1]
            return [a + b for a, b in zip(whole, beside, strict=True)]

        steps = with_block(plan.moments if self.threads > 1 else ends)
        if part and not plan.moments:
            steps[0] = max(steps[0], block)
        exact = is_exact and all(self._is_exact(c, plan) for c, _ in sized)
        certain = beside if exact else [0] * len(beside)
        needed = [a + b for a, b in zip(alive, certain, strict=True)]
        # Of what excludes each other only the most is in the last step, so nothing of that is taken off.
        shown = sorted((n for c, n in sized if c.is_result and not c.arms), reverse=True)
        spare = 0 if plan.results is None or self.threads > 1 else sum(shown[plan.results :])
        # What several threads run may have ended where the block is needed no more, or not.
        exact &= max(with_block(ends)) == max(steps)
        return Timeline(block, alive, steps, needed, calls, sum(x.bytes for x in left), spare, exact)

    def last_of(self, c: Counted, plan: FunctionPlan) -> tuple[int, tuple[int, int] | None]:
        """Return the last moment of what is allocated, and the call that frees it with which operand."""
        if not c.until or self.threads > 1 or self._is_taken(c, plan):
            return c.last, None
        ends = [(k, j) for k, j in c.takers if plan.calls[k].moment == c.until]
        return c.until, ends[0] if len(ends) == 1 else None

    def use(self, name: str, dims: Mapping[Sym, Int], dying: Mapping[int, int]) -> Use:
        """Return what a call of a function takes."""
        key = (name, tuple(sorted(dims.items(), key=lambda x: x[0].uid)), tuple(sorted(dying.items())))
        if key not in self._known:
            if name in self._active:
                circle = [*self._active[self._active.index(name) :], name]
                self._say(f"{name}: it calls itself ({' -> '.join(circle)}), how often is not known")
                return Use(0, 0, 0, is_exact=False)
            self._active.append(name)
            self._known[key] = self._used(self.plans[name], dims, dying)
            self._active.pop()
        return self._known[key]

    def _used(self, plan: FunctionPlan, dims: Mapping[Sym, Int], dying: Mapping[int, int]) -> Use:
        own = [k for k, c in enumerate(plan.calls) if c.is_tail and c.is_named and c.callees == (plan.name,)]
        tails = own if self.threads == 1 and self._is_steady(plan, own) else []
        found = self.timeline(plan, dims, dying, tails)
        most, needed = max(found.steps), max(found.needed)
        left = found.steps[-1] + sum(dying.values()) - found.spare
        if not tails:
            return Use(most, needed, left, found.is_exact)
        # A turn takes what it is given by the one before, which has ended, beside its own.
        sized = [(c, self.size_of(c, plan, dims)) for c in plan.counted if self._is_here(c)]
        carried = [
            max(self._number(p.bytes, plan.name, dims), *(n for c, n in sized if _is_given(c, tails, j)), 0)
            for j, p in enumerate(plan.params)
            if p.bytes is not None and not _is_passed_on(plan, tails, j)
        ]
        later = self.timeline(plan, dims, {}, tails)
        if later.kept:
            self._say(f"{plan.name}: it calls itself, how often is not known, and what it calls keeps memory")
        most = max(most, sum(carried) + max(later.steps))
        shown = sorted(
            [*carried, *(n for c, n in sized if c.is_result and c.giver not in tails)], reverse=True
        )
        return Use(most, needed, sum(shown[: plan.results]), is_exact=False)

    def _is_steady(self, plan: FunctionPlan, tails: Sequence[int]) -> bool:
        """Whether a function that ends by calling itself takes the same in each turn, and keeps nothing."""
        here = [c for c in plan.counted if self._is_here(c) and c.giver not in tails]
        if plan.results is None or plan.machine or not tails:
            return False
        if not all(x.is_frame for x in (*here, *plan.params)):
            return False
        others = [(k, j) for c in here for k, j in c.takers if k not in tails]
        if any(self._keeps(plan, k, j, ()) for k, j in others):
            return False
        sizes = [p.block for p in plan.parts] + [c.bytes for c in here if c.bytes is not None]
        sizes += [p.bytes for p in plan.params if p.bytes is not None]
        calls = [call for k, call in enumerate(plan.calls) if k not in tails]
        sizes += [size for call in calls for own in call.dims for size in own.values()]
        mentioned = {s for size in sizes for s in symbols(size)}
        return all(plan.calls[k].dims[0].get(s) == from_atom(s) for k in tails for s in mentioned)

    def _is_here(self, c: Counted) -> bool:
        return (c.memory or self.first) == self.memory

    def size_of(self, c: Counted, plan: FunctionPlan, dims: Mapping[Sym, Int] | None) -> int:
        """Return the bytes of what is allocated while a function runs; note where it is unbounded."""
        last, _ = self.last_of(c, plan)
        copies = 1
        if c.inside and c.origin is not Origin.SCRATCH and (not c.until or last != c.until):
            copies = c.copies if self.threads == 1 and not self._is_taken(c, plan) else 0
        if not copies:
            self._say(f"{c.name}: made anew in every turn of '{c.inside}', for {c.why}")
        if c.bytes is None:
            self._say(f"{c.name}: of a size that is known when it is made, for {c.why}")
            return 0
        size = self._number(c.bytes, c.name, dims) * max(copies, 1)
        return align(size, ALIGNMENT) * self.threads if c.per_part and self.threads > 1 else size

    # ------------------------------------------------------------------------ parts of it

    def _block(
        self, plan: FunctionPlan, part: MemoryPart | None, dims: Mapping[Sym, Int] | None
    ) -> tuple[int, list[Item]]:
        if part is None:
            return 0, []
        # An empty block has room for one empty tensor.
        size = self._number(part.block, f"the block of {plan.name}", dims) or ALIGNMENT
        sized = [(m, self.sizes(_over(m.bytes, dims)) or 0) for m in part.members]
        return size, [Item(m.first, m.last, align(n, ALIGNMENT)) for m, n in sized]

    def _items(
        self, plan: FunctionPlan, sized: Sequence[tuple[Counted, int]]
    ) -> tuple[list[Item], dict[int, list[tuple[int, int]]]]:
        """Return what is beside the block, and by calls the operands that those free, with their bytes."""
        items, given = list[Item](), dict[int, list[tuple[int, int]]]()
        for c, size in sized:
            last, freed = self.last_of(c, plan)
            if self.threads > 1 and c.giver >= 0:
                continue  # it is in what the call has
            always = self.threads > 1 and c.origin is Origin.SCRATCH
            items.append(Item(1 if always else c.first, plan.moments if always else last, size, c.arms))
            if freed is not None:
                given.setdefault(freed[0], []).append((freed[1], size))
        return items, given

    def _calls(
        self,
        plan: FunctionPlan,
        dims: Mapping[Sym, Int] | None,
        dying: Mapping[int, int],
        given: Mapping[int, Sequence[tuple[int, int]]],
        tails: Collection[int],
    ) -> tuple[list[Item], list[Item], bool]:
        """Return what calls have, what they leave beside what they give, and whether that is exact."""
        called, left, is_exact = list[Item](), list[Item](), True
        gives = dict.fromkeys(range(len(plan.calls)), 0)
        for c in plan.counted:
            if c.giver >= 0 and c.bytes is not None:
                gives[c.giver] += self.sizes(_over(c.bytes, dims)) or 0
        for k, call in enumerate(plan.calls):
            if k in tails:
                continue
            freed = dict(given.get(k, ()))
            freed |= {
                j: n for p, n in dying.items() for i, j in plan.params[p].takers if self._dies(plan, p, i, k)
            }
            uses = self._uses(call, dims, freed)
            if all(u.peak == u.left == 0 for u in uses):
                continue
            peak, over = max(u.peak for u in uses), max(u.left for u in uses) - gives[k]
            is_exact &= len(uses) == 1 and uses[0].is_exact and not over and not call.arms and not call.inside
            if self.threads > 1:
                if call.inside:
                    where = f"in every turn of '{call.inside}' in {plan.name}"
                    self._say(f"{_who(call)}: called {where}, and on several threads calls overlap")
                called.append(Item(1, plan.moments + 1, peak, call.arms))
                continue
            called.append(Item(call.moment, call.moment, peak, call.arms))
            if over > 0:
                left.append(Item(call.moment + 1, plan.moments + 1, over, call.arms))
                if call.inside:
                    self._say(f"{_who(call)}: called in every turn of '{call.inside}', and keeps memory")
        return called, left, is_exact

    def _dies(self, plan: FunctionPlan, param: int, taker: int, call: int) -> bool:
        """Whether a call is the last mention of a parameter, once."""
        found = plan.params[param]
        ends = [k for k, _ in found.takers if plan.calls[k].moment == found.until]
        return taker == call and ends == [call]

    def _uses(self, call: Called, dims: Mapping[Sym, Int] | None, freed: Mapping[int, int]) -> list[Use]:
        """Return what each function takes that a call may be one of."""
        names = call.callees
        if not names:
            self._say("a function that is a value, and none of the program may be it")
        found = list[Use]()
        for name, own in zip(names, call.dims, strict=True):
            inner = {sym: _over(size, dims) for sym, size in own.items()}
            # A local function sees the dims of the activation that calls it by its name. Who made a value,
            # and with which dims, is not known.
            outer = dims if dims is not None and call.is_named else dict[Sym, Int]()
            mortal = {j: n for j, n in freed.items() if self.plans[name].params[j].until != KEPT}
            found.append(self.use(name, {**outer, **inner}, mortal))
        return found or [Use(0, 0, 0, is_exact=False)]

    def _is_taken(self, c: Counted, plan: FunctionPlan) -> bool:
        """Whether a function that takes it may keep or return it."""
        return any(self._keeps(plan, k, j, ()) for k, j in c.takers)

    def _keeps(self, plan: FunctionPlan, call: int, operand: int, inside: tuple[str, ...]) -> bool:
        """Whether a call may keep or return what it is given."""
        return any(self._is_kept(name, operand, inside) for name in plan.calls[call].callees or ("",))

    def _is_kept(self, name: str, operand: int, inside: tuple[str, ...]) -> bool:
        plan = self.plans.get(name)
        if plan is None or name in inside or plan.params[operand].until == KEPT:
            return True
        return any(self._keeps(plan, k, j, (*inside, name)) for k, j in plan.params[operand].takers)

    def _is_exact(self, c: Counted, plan: FunctionPlan) -> bool:
        """Whether something is allocated in every call, and its end is known."""
        if not c.is_sure or c.arms or c.inside:
            return False
        if c.origin is Origin.SCRATCH:
            return self.threads == 1
        ended = bool(c.until) and self.last_of(c, plan)[0] == c.until
        return ended or c.origin in (Origin.RESULT, Origin.COPY) or c.why in (IN_RESULT, GIVEN)

    def _number(self, size: Int, what: str, dims: Mapping[Sym, Int] | None) -> int:
        size = _over(size, dims)
        found = self.sizes(size)
        if found is None:
            formula = str(size)
            formula = formula if len(formula) <= _LONGEST else f"{formula[:_LONGEST]}..."
            self._say(f"{what}: {formula} bytes, over dims without a size")
        return found or 0

    def _say(self, what: str) -> None:
        if what not in self.unknown:
            self.unknown.append(what)


def _is_given(c: Counted, calls: Collection[int], operand: int) -> bool:
    """Whether one of some calls takes something as an operand."""
    return any(k in calls and j == operand for k, j in c.takers)


def _is_passed_on(plan: FunctionPlan, calls: Collection[int], operand: int) -> bool:
    """Whether all of some calls are given a parameter of their caller in its place, and it alone."""
    takers = [p.takers for p in plan.params] + [c.takers for c in plan.counted]
    return all([i for i, found in enumerate(takers) if (k, operand) in found] == [operand] for k in calls)


def _who(call: Called) -> str:
    return " or ".join(call.callees)


def _over(size: Int, dims: Mapping[Sym, Int] | None) -> Int:
    """Return a size of a function over the dims of the entry."""
    return size if dims is None else substitute(size, dims)


def steps_of(items: Iterable[Item], plan: FunctionPlan) -> list[int]:
    """Return the bytes at each moment, and at the end; of arms that exclude each other the most."""
    every = [x._replace(first=max(x.first, 1)) for x in items if max(x.first, 1) <= x.last]
    change = [0] * (plan.moments + 3)
    for x in every:
        if not x.arms:
            change[x.first] += x.bytes
            change[min(x.last, plan.moments + 1) + 1] -= x.bytes
    found = list(accumulate(change))[1 : plan.moments + 2]
    _add_arms(found, [x for x in every if x.arms], plan)
    return found


def _add_arms(found: list[int], items: Sequence[Item], plan: FunctionPlan) -> None:
    """Add to each moment what arms of branches have."""
    begins = dict[int, list[Item]]()
    for x in items:
        begins.setdefault(x.first, []).append(x)
    active, where = list[Item](), iter(plan.kernels)
    kernel = next(where, None)
    for moment in range(1, len(found) + 1):
        active = [x for x in active if x.last >= moment] + begins.get(moment, [])
        while kernel is not None and kernel.last < moment:
            kernel = next(where, None)
        if active:
            found[moment - 1] += _most(active, 0, () if kernel is None else kernel.arms)


def _most(items: Sequence[Item], depth: int, here: Arms) -> int:
    """Return the most bytes that items have together, if control is in the arms `here`.

    Args:
        items: that agree on the first `depth` arms, as `here` does or may.
        depth: how many those are.
        here: the arms of the moment.
    """
    total, branches = 0, dict[int, dict[int, list[Item]]]()
    for x in items:
        if len(x.arms) == depth:
            total += x.bytes
        else:
            branch, arm = x.arms[depth]
            branches.setdefault(branch, {}).setdefault(arm, []).append(x)
    for branch, arms in branches.items():
        taken = here[depth] if len(here) > depth and here[depth][0] == branch else None
        if taken is not None:
            total += _most(arms.get(taken[1], []), depth + 1, here)
        else:
            total += max(_most(xs, depth + 1, ()) for xs in arms.values())
    return total
