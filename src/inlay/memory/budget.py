"""Budgets: bytes of a memory that a plan may take, kept or refused with what stands in the way.

A budget is a promise for every call: blocks, results, scratch memory and constants together, with dims at
their bounds. In memories of a fixed size the plan itself has no more bytes than the budget; a heap gives
whatever is asked for, so there the sum is held against it when everything is planned. A program whose
memory has no bound has no promise, and is told what it is that has none.

Where a plan has more, values are made again in place of being kept (`Shrink`), and kernels take forms that
need less (`Variant`): of what keeps to the budget, alone or together, the program that is predicted to be
fastest is taken. What is refused says what is alive where most is, whether any plan of these values in this
order could fit, and the *prices* of what would make it fit: bytes saved, and predicted time added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from inlay.arith.expr import Sym
from inlay.base.diagnostics import CompileError, InlayError, error
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.machine.memory import Pool, PoolKind
from inlay.memory.account import Account, Around, Held, accounts_of
from inlay.memory.choose_memories import MemoryOptions
from inlay.memory.constants import constants_in_file
from inlay.memory.dim_sizes import DimSizes, dim_sizes
from inlay.memory.explicit_alloc import size_of
from inlay.memory.plan import FunctionPlan, Origin, Sharing
from inlay.memory.reuse import find_reuse

_TAKEN_BACK = 4
"""Parts of a program that are tried in their faster form again, when enough others take less."""
_SHOWN = 12
"""Values of the critical moment that a refusal lists."""

PlannedModule: TypeAlias = tuple[Module, tuple[FunctionPlan, ...]]
Planner: TypeAlias = Callable[[MemoryOptions, Sharing], PlannedModule]
"""Plans a program, given the memories and which values share bytes."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes that a program may take.

    Attributes:
        bytes: of memories, by name; what is not named is not bounded.
        threads: that the program is to run on.
        pools: the memories with all bytes that they have; those that are planned with where empty.
    """

    bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    threads: int = 1
    pools: tuple[Pool, ...] = ()


@dataclass(frozen=True, slots=True)
class Keeping:
    """How a plan keeps to a budget.

    Attributes:
        takes: what a call takes at most of the memories that have budgets, constants included.
        is_for_threads: whether it would take more on more threads.
    """

    takes: Mapping[str, int] = field(default_factory=dict[str, int])
    is_for_threads: bool = False


@dataclass(frozen=True, slots=True)
class Less:
    """A program that makes values once more in place of keeping them.

    Attributes:
        planned: it.
        adds_ns: predicted time that it takes longer.
        take: called if that is the program.
    """

    planned: PlannedModule
    adds_ns: float
    take: Callable[[], None]


Shrink: TypeAlias = Callable[[str, int], Less | None]
"""Gives a program whose entry needs at most so many bytes of the first heap at once, where there is one."""


def nothing_less(entry: str, room: int) -> Less | None:
    """Return nothing: values are not made again."""
    del entry, room
    return None


@dataclass(frozen=True, slots=True)
class Variant:
    """The same program with kernels that take less and are predicted to be slower.

    Attributes:
        plan: plans it.
        shrink: of it.
        change: what is different.
        adds_ns: predicted time that it takes longer.
        take: called if that is the program.
    """

    plan: Planner
    shrink: Shrink
    change: str
    adds_ns: float
    take: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Variants:
    """Parts of a program that can take less, each by itself.

    Attributes:
        count: how many there are; those that cost the least time for a byte come first.
        make: gives the program in which some of them, by their numbers, take less.
    """

    count: int
    make: Callable[[frozenset[int]], Variant]


def no_variants() -> Variants | None:
    """Return no variants."""
    return None


@dataclass(frozen=True, slots=True)
class Price:
    """A change that makes a program take less.

    Attributes:
        change: what to do.
        saves: bytes.
        adds_ns: predicted time that it adds to a call; None where nothing predicts it.
        fits: whether it alone is enough.
    """

    change: str
    saves: int
    adds_ns: int | None
    fits: bool

    def __str__(self) -> str:
        """Return it as a sentence."""
        time = "" if self.adds_ns is None else f", adds {self.adds_ns / 1000:,.1f} us (predicted)"
        return f"{self.change}: saves {self.saves:,} bytes{time}{'' if self.fits else ', not enough alone'}"


def around_of(module: Module, entry: str, options: MemoryOptions, sizes: DimSizes, threads: int) -> Around:
    """Return what plans do not say of what a program takes."""
    # Where constants and inputs have places in the plan, they are not counted again.
    constants = 0 if "" in options.constants else constants_in_file(module)
    params = module.functions[entry].params
    tensors = (size_of(p.type) for p in params if isinstance(p.type, TensorType))
    inputs = 0 if options.inputs else sum(sizes.number(size) or 0 for size in tensors)
    return Around(options.pools, sizes.number, threads, constants, inputs)


def plan_within(
    plan: Planner,
    options: MemoryOptions,
    sharing: Sharing,
    budget: Budget,
    shrink: Shrink = nothing_less,
    variants: Callable[[], Variants | None] = no_variants,
) -> tuple[PlannedModule, Keeping]:
    """Return a plan that keeps to a budget, and what it takes.

    Args:
        plan: plans the program.
        options: the memories, those of a fixed size with no more bytes than their budgets (`limited_by`).
        sharing: which values share bytes.
        budget: of memories.
        shrink: what is tried where a heap has more than its budget.
        variants: gives what else is tried then.

    Raises:
        CompileError: `memory.over-budget`, `memory.no-bound`; `memory.no-room` where the memories
            themselves are too small.
    """
    whole = replace(options, pools=budget.pools or options.pools)
    case = _Case(plan, whole, sharing, budget, shrink, options, variants)
    try:
        found = plan(options, sharing)
    except CompileError as refusal:
        if whole.pools == options.pools or refusal.ids != ("memory.no-room",):
            raise
        smaller = case.variant()
        if smaller is not None and smaller.fits:
            return case.taken(smaller)
        # The board has room, or says itself that it has none: what does the program take there?
        case.refuse(plan(whole, sharing), must=True, reason=refusal.diagnostics[0].message)
        raise
    if not budget.bytes:
        return found, Keeping()
    if not case.keeps(found):
        less, smaller = case.again(found), case.variant()
        best = min(
            (c for c in (less, smaller) if c is not None and c.fits), key=lambda c: c.adds_ns, default=None
        )
        if best is not None:
            return case.taken(best)
    return found, case.refuse(found)


def limited_by(options: MemoryOptions, budget: Mapping[str, int]) -> MemoryOptions:
    """Return memories of fixed sizes with no more bytes than their budgets.

    A promise holds wherever a program runs, so it does not count on pages that leave.
    """
    pools = tuple(_limited(p, budget.get(p.name)) for p in options.pools)
    return replace(options, pools=pools, lifts=options.lifts and not budget)


def _limited(pool: Pool, budget: int | None) -> Pool:
    if budget is None or pool.bytes is None or pool.kind is PoolKind.HEAP:
        return pool
    return replace(pool, bytes=min(pool.bytes, budget))


@dataclass(frozen=True, slots=True)
class _Change:
    """A program that takes less, the predicted time that it adds, and whether it keeps to the budget."""

    planned: PlannedModule
    change: str
    adds_ns: float
    fits: bool
    takes: tuple[Callable[[], None], ...]


@dataclass(frozen=True, slots=True)
class _Case:
    """A program and its budget.

    `options` are the memories as they are, `limited` with no more bytes than their budgets.
    """

    plan: Planner
    options: MemoryOptions
    sharing: Sharing
    budget: Budget
    shrink: Shrink
    limited: MemoryOptions
    variants: Callable[[], Variants | None]

    def taken(self, change: _Change) -> tuple[PlannedModule, Keeping]:
        """Return a changed program as the one that is taken."""
        for take in change.takes:
            take()
        return change.planned, self.refuse(change.planned)

    def keeps(self, planned: PlannedModule) -> bool:
        """Whether all entries keep to the budgets of all memories."""
        module, _ = planned
        for entry in tuple(module.entries) or (module.entry,):
            for a in self.accounts(planned, entry, dim_sizes(module.functions[entry], {})):
                if a.memory in self.budget.bytes and (a.unknown or a.total > self.budget.bytes[a.memory]):
                    return False
        return True

    def again(self, planned: PlannedModule) -> _Change | None:
        """Return the program with values made again, where that takes less."""
        less = self.less(planned)
        if less is None:
            return None
        change = "making values again"
        return _Change(less.planned, change, less.adds_ns, self.keeps(less.planned), (less.take,))

    def variant(self) -> _Change | None:
        """Return the fastest variant found that keeps to the budget, else the smallest one.

        Values are made again in it where that is needed, too. How many parts have to take less is looked
        for by halves; then those that cost most are taken back where the rest is enough.
        """
        variants = self.variants()
        if variants is None or not variants.count:
            return None
        best = self._changed(variants.make(frozenset(range(variants.count))))
        if best is None or not best.fits:
            return best

        def better(numbers: Iterable[int]) -> _Change | None:
            found = self._changed(variants.make(frozenset(numbers)))
            return found if found is not None and found.fits else None

        low, high = 1, variants.count
        while low < high:
            middle = (low + high) // 2
            found = better(range(middle))
            best, low, high = (best, middle + 1, high) if found is None else (found, low, middle)
        chosen = set(range(low))
        for number in range(low - 2, max(low - 2 - _TAKEN_BACK, -1), -1):
            found = better(chosen - {number})
            if found is not None and found.adds_ns < best.adds_ns:
                best, chosen = found, chosen - {number}
        return best

    def _changed(self, variant: Variant) -> _Change | None:
        """Return a variant in its plan; None where the memories have no room for it."""
        case = replace(self, plan=variant.plan, shrink=variant.shrink, variants=no_variants)
        try:
            planned = variant.plan(self.limited, self.sharing)
        except CompileError as refusal:
            if refusal.ids != ("memory.no-room",):
                raise
            return None
        fits = case.keeps(planned)
        alone = _Change(planned, variant.change, variant.adds_ns, fits, (variant.take,))
        less = None if fits else case.again(planned)
        if less is None or not less.fits:
            return alone
        adds, change = variant.adds_ns + less.adds_ns, f"{variant.change} and {less.change}"
        return _Change(less.planned, change, adds, fits=True, takes=(variant.take,))

    def fits(self, planned: PlannedModule) -> bool:
        """Whether the first heap keeps to its budget in the only entry of a program."""
        account = self._heap(planned)
        return account is not None and account.total <= self.budget.bytes[account.memory]

    def less(self, planned: PlannedModule) -> Less | None:
        """Return a program that takes less of the first heap, where that has more than its budget.

        The first one that fits, else the one that takes least.
        """
        account = self._heap(planned)
        if account is None or self.fits(planned):
            return None
        entry = self._entry(planned)
        beside = account.total - account.block
        least, best = account.total, None
        for room in _rooms(self.budget.bytes[account.memory] - beside, account.block):
            found = self.shrink(entry, room)
            after = None if found is None else self._heap(found.planned)
            if found is None or after is None or after.total >= least:
                continue
            least, best = after.total, found
            if self.fits(found.planned):
                break
        return best

    def _entry(self, planned: PlannedModule) -> str:
        module, _ = planned
        return next(iter(module.entries), module.entry)

    def _heap(self, planned: PlannedModule) -> Account | None:
        """Return what the only entry of a program takes of the first heap; None where that has no budget."""
        module, _ = planned
        pools = self.options.pools
        if not pools or pools[0].kind is not PoolKind.HEAP or pools[0].name not in self.budget.bytes:
            return None
        if len(module.entries) > 1:
            return None
        entry = self._entry(planned)
        account = self.accounts(planned, entry, dim_sizes(module.functions[entry], {}))[0]
        return None if account.unknown else account

    def refuse(self, planned: PlannedModule, *, must: bool = False, reason: str = "") -> Keeping:
        """Raise where a plan is beyond the budget; where it `must`, of the memory that is fullest."""
        module, plans = planned
        takes = dict.fromkeys(self.budget.bytes, 0)
        for entry in tuple(module.entries) or (module.entry,):
            sizes = dim_sizes(module.functions[entry], {})
            accounts = self.accounts(planned, entry, sizes)
            why = _why_unbounded(module, entry)
            if why and self.options.pools[0].name in takes:
                first = accounts[0]
                raise _no_bound(replace(first, unknown=why), self.budget.bytes[first.memory], sizes)
            over = [a for a in accounts if a.total > self.budget.bytes.get(a.memory, a.total)]
            for account in (a for a in accounts if a.memory in takes):
                takes[account.memory] = max(takes[account.memory], account.total)
                if account.unknown:
                    raise _no_bound(account, self.budget.bytes[account.memory], sizes)
            if over:
                raise self.over(over[0], planned, entry, sizes)
            if must:
                tight = [a for a in accounts if a.memory in self.budget.bytes]
                fullest = max(tight, key=lambda a: a.total / self.budget.bytes[a.memory])
                raise self.over(fullest, planned, entry, sizes, reason)
        first = self.options.pools[0].name if self.options.pools else ""
        scratch = any(
            c.origin is Origin.SCRATCH and (c.memory or first) in takes for p in plans for c in p.counted
        )
        each = any(w.per_part for k in module.kernels.values() for w in k.workspaces)
        return Keeping(takes, scratch or (each and first in takes) or self._overlaps(planned))

    def _overlaps(self, planned: PlannedModule) -> bool:
        """Whether kernels that run at once take more than one after the other."""
        module, _ = planned
        if self.budget.threads > 1:
            return any(p.calls for p in planned[1])
        for entry in tuple(module.entries) or (module.entry,):
            sizes = dim_sizes(module.functions[entry], {})
            alone, several = (self.accounts(planned, entry, sizes, threads=n) for n in (1, 2))
            if any(a.total < b.total or b.unknown for a, b in zip(alone, several, strict=True)):
                return True
        return False

    def accounts(
        self, planned: PlannedModule, entry: str, sizes: DimSizes, threads: int | None = None
    ) -> tuple[Account, ...]:
        module, plans = planned
        around = around_of(module, entry, self.options, sizes, threads or self.budget.threads)
        return accounts_of(plans, entry, module.entries, around)

    def over(
        self, account: Account, planned: PlannedModule, entry: str, sizes: DimSizes, why: str = ""
    ) -> InlayError:
        """Return the refusal of a plan that takes more of a memory than its budget."""
        budget = self.budget.bytes[account.memory]
        prices = sorted(self.prices(account, planned, entry, sizes), key=lambda p: (not p.fits, -p.saves))
        needed = account.lower_bound + account.constants + account.regions
        used = ", ".join(f"{name}={size}" for name, size in sizes.used.items())
        notes = [_parts(account) + (f", for {used}" if used else "")]
        if why:
            notes.append(f"within the budget: {why}")
        if needed > budget:
            loaded = (("constants", account.constants), ("regions of streams", account.regions))
            constants = "".join(f" and {name} take {n:,}" for name, n in loaded if n)
            notes.append(
                "no plan that has these values there, in this order, fits: "
                f"{account.lower_bound:,} bytes are alive at {account.at}{constants}"
            )
        else:
            notes.append(f"a plan within it was not found; {needed:,} bytes is what any plan needs at least")
        notes += _alive(account.held)
        notes += [f"price: {p}" for p in prices]
        if not prices:
            notes.append("nothing that can be chosen here saves bytes")
        best = prices[0].change if prices and prices[0].fits else "use a larger budget"
        return error(
            "memory.over-budget",
            f"found a program that takes {account.total:,} bytes of '{account.memory}', needed at most "
            f"{budget:,}",
            notes=notes,
            hint=best,
        )

    # ------------------------------------------------------------------- prices

    def prices(
        self, account: Account, planned: PlannedModule, entry: str, sizes: DimSizes
    ) -> Iterator[Price]:
        """Yield the changes that would save bytes of a memory."""
        if self.sharing is Sharing.PARALLEL:
            serial = self.plan(self.options, Sharing.SERIAL)
            yield from self._price(
                "--plan serial",
                account,
                self.accounts(serial, entry, sizes),
                _added(planned, serial, entry, sizes),
            )
        if self.budget.threads > 1:
            alone = self.plan(replace(self.options, threads=1), self.sharing)
            one = self.accounts(alone, entry, sizes, threads=1)
            yield from self._price("--threads 1", account, one, None)
        less = self.again(planned) if account.memory == self.options.pools[0].name else None
        for change in (less, self.variant()):
            if change is not None:
                others = self.accounts(change.planned, entry, sizes)
                done = f"{change.change} (done where it is enough)"
                yield from self._price(done, account, others, round(change.adds_ns))
        yield from self._smaller_dims(account, planned, entry, sizes)
        yield from self._fewer_outputs(account, planned, entry)

    def _price(
        self, change: str, account: Account, others: Sequence[Account], adds: int | None
    ) -> Iterator[Price]:
        total = next((a.total for a in others if a.memory == account.memory), 0)
        if total < account.total:
            fits = total <= self.budget.bytes[account.memory]
            yield Price(change, account.total - total, adds, fits)

    def _smaller_dims(
        self, account: Account, planned: PlannedModule, entry: str, sizes: DimSizes
    ) -> Iterator[Price]:
        """Yield for each dim with a bound the largest size with which the program fits, else the least."""
        for sym, at_most in sizes.ranges.items():
            low, high = max(at_most.low or 0, 1), at_most.high
            if sym in sizes.said or high is None or low >= high:
                continue
            step = max(at_most.modulus, 1)

            def fixed(sym: Sym, size: int) -> DimSizes:
                return sizes.with_size(sym, size)

            first = -(-low // step) * step
            best, above = first, high // step * step + step
            while above - best > step:
                middle = (best + above) // 2 // step * step
                found = self.accounts(planned, entry, fixed(sym, middle))
                total = next((a.total for a in found if a.memory == account.memory), 0)
                if total <= self.budget.bytes[account.memory]:
                    best = middle
                else:
                    above = middle
            change = f"--fix-dim {sym.name}={best} (it may be {high})"
            yield from self._price(change, account, self.accounts(planned, entry, fixed(sym, best)), None)

    def _fewer_outputs(self, account: Account, planned: PlannedModule, entry: str) -> Iterator[Price]:
        """Yield what the largest result takes beside blocks, where there are several: it need not be made."""
        module, plans = planned
        names = module.entries[entry].outputs if entry in module.entries else ()
        counted = [c for p in plans if p.name == entry for c in p.counted if c.origin is Origin.RESULT]
        sized = [(size, c.name) for c in counted if c.bytes is not None and (size := c.bytes.value)]
        if len(names) > 1 and len(sized) > 1:
            size, name = max(sized)
            change = f"--only, for other outputs than '{name}' (there are {', '.join(names)})"
            yield Price(change, size, None, account.total - size <= self.budget.bytes[account.memory])


def _rooms(room: int, block: int) -> Iterator[int]:
    """Yield bytes that a block is tried with: what fits, less for what packing loses, then what helps."""
    if room > 0:
        yield from dict.fromkeys(room - room // part if part else room for part in (0, 64, 32, 16, 8, 4))
    yield from (block * eighth // 8 for eighth in range(1, 8) if block * eighth // 8 > room)


def _why_unbounded(module: Module, entry: str) -> tuple[str, ...]:
    """Return what the runtime keeps beside tensors of known sizes."""
    found = [
        f"kernel {k.name}: calls of it may run as one, on copies" for k in module.kernels.values() if k.batch
    ]
    found += [
        f"{param.name}: strings are as long as data says"
        for param in module.functions[entry].params
        if isinstance(param.type, TensorType) and param.type.dtype.is_host_only
    ]
    return tuple(found)


def _added(planned: PlannedModule, other: PlannedModule, entry: str, sizes: DimSizes) -> int | None:
    """Return by how much the longest path of another plan is longer."""
    mine = find_reuse(planned[0], entry, sizes.number)
    theirs = find_reuse(other[0], entry, sizes.number)
    return None if mine is None or theirs is None else max(theirs.path_ns - mine.path_ns, 0)


def _parts(a: Account) -> str:
    rows = (
        ("blocks", a.block),
        ("results", a.results),
        ("copied results", a.copies),
        ("values allocated while it runs", a.values),
        ("tensors of the virtual machine", a.machine),
        ("scratch memory of kernels", a.scratch),
        ("functions that are called", a.functions),
        ("constants", a.constants),
        ("regions of streams", a.regions),
    )
    return ", ".join(f"{name} {size:,}" for name, size in rows if size) or "nothing"


def _alive(held: Iterable[Held]) -> list[str]:
    found = [
        f"alive there: {h.bytes:,} {', then '.join(h.names)}"
        + (f" [{h.nodes[0]}]" if h.nodes else "")
        + f", {f'made by {h.producer}' if h.producer else 'there from the beginning'}, "
        + (f"last used by {h.user}" if h.user else "stays to the end")
        for h in held
    ]
    left = len(found) - _SHOWN
    return found if left <= 0 else [*found[:_SHOWN], f"alive there: {left} more"]


def _no_bound(account: Account, budget: int, sizes: DimSizes) -> InlayError:
    """Return the refusal of a promise for memory that has no bound."""
    hint = "leave the budget of this memory out, or change what has no bound"
    if sizes.unbounded:
        name = sizes.unbounded[0]
        hint = f"bound the dim: --bound-dim {name}=SIZE; or fix it: --fix-dim {name}=SIZE"
    names = "".join(f"; the dim '{n}' has no bound" for n in sizes.unbounded)
    return error(
        "memory.no-bound",
        f"found a program whose memory in '{account.memory}' has no bound, needed one for a budget of "
        f"{budget:,} bytes{names}",
        notes=account.unknown,
        hint=hint,
    )
