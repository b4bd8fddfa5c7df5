"""Makes parts of concatenations where they are joined, and reads slices where they are.

`part_blocks` finds what is possible and writes it; here it is decided. A whole takes all of its bytes from
its first part on, and what is cut out of a tensor keeps all of it. So it is done where what a call takes does
not become more: all that can be, else one after the other, the largest wholes first; a whole has smaller
forms. What a call takes is found as for the program itself: kernels are lowered (or the cache says what they
need), ordered for their peak, and given storage. Sizes over dims are compared at several sizes.

Time is not weighed: a copy less is done, and a kernel stores or loads its rows at another distance. In a
memory of a fixed size nothing is done where values have no room without it: what several kernels write
cannot leave it for a time (`spill-values`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from inlay.analysis.blocks import nested, operands, values
from inlay.analysis.local_functions import find_loops
from inlay.base.diagnostics import Collector
from inlay.base.instrument import SILENT
from inlay.base.names import NameSupply
from inlay.base.span import Span
from inlay.codegen.interface import Needs
from inlay.ir import make
from inlay.ir.expr import Expr, Function, GlobalVar, Var
from inlay.ir.kernel import Access, Kernel
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.ir.walk import spine
from inlay.lower.in_windows import Windows
from inlay.machine.memory import PoolKind
from inlay.memory import carry_buffers, explicit_alloc, order_for_peak, read_first, skip_copies
from inlay.memory.choose_memories import MemoryOptions
from inlay.memory.leaving import leaves, predicted_ns
from inlay.memory.lifetimes import IN_RESULT, Activation, find_lifetimes
from inlay.memory.order_for_peak import POINTS, Sizes, sizes_at
from inlay.memory.skip_copies import no_more, peak_of
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property, Remark, Remarks
from inlay.passes.manager import make_pipeline, run_pipeline
from inlay.pipeline.build_kernels import BuildOptions, LoopBody, build_kernel
from inlay.pipeline.generate import GenerateOptions, lowered_needs, scratch_threads, with_needs
from inlay.pipeline.part_blocks import Block, Cut, Join, Writer, copied_type
from inlay.transforms._groups import Reason
from inlay.transforms.fuse_ops import Fusion, KernelCall

_STORED = (read_first.PASS, order_for_peak.PASS, explicit_alloc.PASS, carry_buffers.PASS, skip_copies.PASS)
"""The passes that say what is in use when."""
_MOST_TRIES = 24
"""How many choices for a function are compared; each takes a run of these passes."""


Moves = Mapping[tuple[str, str, str, Span], Sequence[str]]
"""By function, kernel, and name and place of the result: which kernels are called instead, in program order.

Nothing for a copy that is none."""


@dataclass(frozen=True, slots=True)
class PartOptions:
    """Options of this pass.

    Attributes:
        needs: how what kernels need is found where no code is made of them; None to do nothing.
        watch: is told what became of the calls of kernels.
    """

    needs: GenerateOptions | None = None
    watch: Callable[[Moves], None] | None = None


def run(module: Module, context: PassContext) -> Module:
    """Place parts in every function. Cost: linear; plans storage for each choice that is compared."""
    operators, options = context.ops, context.options_for(PartOptions)
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    if options.needs is None:
        return module
    chooser = _Chooser(module, context, operators, options.needs)
    for name, function in module.functions.items():
        blocks = blocks_of(function, module.kernels, operators)
        if any(b.joins or b.cuts for b in blocks.values()):
            chooser.choose(name, function, blocks)
    if options.watch is not None:
        options.watch(chooser.moves)
    return chooser.module()


def with_moves(fusions: Sequence[Fusion], moves: Moves) -> tuple[Fusion, ...]:
    """Return what became of operators: other kernels for parts, and none for what is not copied."""
    left = {key: list(reversed(names)) for key, names in moves.items()}
    found: list[Fusion] = []
    for fusion in fusions:
        calls: list[KernelCall] = []
        outside = list(fusion.outside)
        for call in fusion.calls:
            last = call.members[-1]
            names = left.get((call.function, call.kernel, last.value, last.span))
            name = names.pop() if names else call.kernel
            if name:
                calls.append(replace(call, kernel=name))
            else:
                outside += [(m, Reason.IN_PLACE) for m in call.members]
        found.append(replace(fusion, calls=tuple(calls), outside=tuple(outside)))
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A block, and what may be done in it."""

    block: Block
    joins: tuple[Join, ...]
    cuts: tuple[Cut, ...]


_Choice = tuple[Join | Cut, ...]


def blocks_of(
    function: Function, kernels: Mapping[str, Kernel], operators: OperatorTable
) -> dict[Expr, _Found]:
    """Return the blocks of a function with what may be done in each. Cost: linear, but for joins of joins."""
    found: dict[Expr, _Found] = {}
    pending: list[Expr] = [function.body]
    while pending:
        block = pending.pop()
        read = Block(block, kernels, operators)
        joins = read.joins()
        found[block] = _Found(read, tuple(joins), tuple(read.cuts(joins)))
        lets, tail = spine(block)
        for value in (*(let.value for let in lets), tail):
            pending.extend(nested(value))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A function with a choice, and what becomes of its calls (`Writer.changes`)."""

    function: Function
    changes: Mapping[Var, str]


@dataclass(frozen=True, slots=True, eq=False)
class _Trial:
    """Compares choices for a function.

    Attributes:
        chooser: for the module.
        name: of the function.
        function: without any choice.
        blocks: of it.
    """

    chooser: _Chooser
    name: str
    function: Function
    blocks: Mapping[Expr, _Found]

    def written(self, choice: _Choice) -> _Candidate | None:
        """Return the function with a choice."""
        return self.chooser.written(self.function, self.blocks, choice)

    def peaks(self, candidate: _Candidate) -> list[int]:
        """Return what a call takes at most, at several sizes of dims, and then what of it leaves blocks."""
        typical = {d.sym: d.typical for d in self.function.dims if d.typical is not None}
        planned = self.chooser.stored(self.name, candidate.function)
        function = planned.functions[self.name]
        found = find_lifetimes(self.name, function, planned, find_loops(function))
        each = [sizes_at(typical, n) for n in POINTS]
        memories = self.chooser.memories
        taken = [[_taken(a, planned.kernels, sizes, memories) for a in found] for sizes in each]
        return [sum(x[k] for x in at) for k in (0, 1) for at in taken]

    def one_by_one(
        self, every: _Choice, given: _Candidate, least: Sequence[int]
    ) -> tuple[_Candidate, _Choice]:
        """Return the function with as much of a choice as takes no more, and that choice."""
        best, taken = given, list[Join | Cut]()
        forms = ((x, form) for x in every for form in (x.forms() if isinstance(x, Join) else (x,)))
        done: set[Join | Cut] = set()
        for x, form in islice(forms, _MOST_TRIES):
            candidate = None if x in done else self.written((*taken, form))
            found = least if candidate is None else self.peaks(candidate)
            if candidate is not None and no_more(found, least):
                best, least = candidate, found
                taken.append(form)
                done.add(x)
        return best, tuple(taken)


def _taken(
    activation: Activation, kernels: Mapping[str, Kernel], sizes: Sizes, memories: MemoryOptions
) -> tuple[int, int]:
    """Return what an activation takes at most, and how much of that leaves its block as a result.

    A block is there for the whole call, with what is beside it; the largest result that may is in it. What
    leaves it is touched anew by the next call, which takes longer than storage of its own.
    """
    inside = [s for s in activation.storages if not s.escapes]
    beside = [s for s in activation.storages if s.escapes]
    block, left = peak_of(inside, activation.positions, sizes), 0
    work = predicted_ns(activation, kernels, sizes.of)
    is_known = all(s.bytes.value is not None for s in inside)
    results = sorted((s for s in beside if s.escapes == IN_RESULT), key=lambda s: -sizes.of(s.bytes))
    for result in results:
        whole, size = peak_of([*inside, result], activation.positions, sizes), sizes.of(result.bytes)
        most = whole if is_known else None
        if leaves(size, whole, most, result, memories, work):
            block, left = whole, size
            beside.remove(result)
            break
    return block + peak_of(beside, activation.positions, sizes), left


def _needs_of(kernel: Kernel, variant: Kernel, needs: Needs) -> Needs:
    """Return what a kernel needs, from what its variant for parts does."""
    accesses = needs.accesses
    if accesses is None:
        return needs
    fills = next((p for p in variant.ports if p.access is Access.FILL), None)
    if fills is None:
        return replace(needs, accesses=replace(accesses, lies=()))
    used = [u for i, u in enumerate(accesses.used) if i != fills.may_alias]
    last = len(kernel.ports) - 1
    alias = kernel.ports[last].may_alias
    overlays = () if alias is None else ((last, alias),)
    return replace(needs, accesses=replace(accesses, used=tuple(used), overlays=overlays, lies=()))


class _NoVariant(Exception):
    """A kernel has no variant for tensors in larger ones."""


@dataclass(slots=True, eq=False)
class _Variants:
    """Kernels for tensors in larger ones, each made once.

    Attributes:
        made: by name of the kernel and what its tensors are in.
    """

    module: Module
    operators: OperatorTable
    options: BuildOptions
    names: NameSupply
    made: dict[tuple[str, str], Kernel] = field(default_factory=dict[tuple[str, str], Kernel])
    copies: dict[str, Kernel] = field(default_factory=dict[str, Kernel])

    def variant(self, kernel: Kernel, windows: Windows) -> Kernel | None:
        """Return the kernel of a kernel for windows."""
        key = kernel.name, windows.text()
        if key not in self.made:
            body = kernel.body
            assert isinstance(body, LoopBody), "only those are asked for"
            name = self.names.fresh(f"{kernel.name}_part")
            self.made[key] = build_kernel(name, body.function, self.operators, self.options, windows=windows)
        return self.made[key]

    def copy(self, t: TensorType) -> Kernel | None:
        """Return the kernel that copies a tensor."""
        if not copied_type(t):
            return None
        key = str(t)
        if key not in self.copies:
            x = make.var("x", t)
            function = make.function([x], x, primitive="copy")
            name = self.names.fresh("copy")
            self.copies[key] = build_kernel(name, function, self.operators, self.options)
        return self.copies[key]


class _Chooser:
    """Chooses for the functions of a module, one after the other.

    Attributes:
        moves: what became of the calls of kernels.
        memories: of the machine.
    """

    def __init__(
        self, module: Module, context: PassContext, operators: OperatorTable, needs: GenerateOptions
    ) -> None:
        self._context, self._generating = context, needs
        names = NameSupply([*module.functions, *module.kernels])
        self._variants = _Variants(module, operators, context.options_for(BuildOptions), names)
        self._kernels = dict(module.kernels)
        self._needs: dict[str, Needs] = {}
        self.moves: dict[tuple[str, str, str, Span], list[str]] = {}
        self.memories = context.options_for(MemoryOptions)
        self._module = module

    def module(self) -> Module:
        """Return the module with the kernels that it calls."""
        known = {k.name: k for k in self._variants.made.values()}
        called = _called(self._module, {**self._kernels, **known})
        return self._module.with_kernels(called)

    def choose(self, name: str, function: Function, blocks: Mapping[Expr, _Found]) -> None:
        """Choose for a function."""
        every: _Choice = tuple(x for b in blocks.values() for x in (*b.joins, *b.cuts))
        trial = _Trial(self, name, function, blocks)
        whole = trial.written(every)
        if whole is not None:
            self._learn(name, whole.function)  # first, as it says what kernels need that it is without
        given = _Candidate(function, {})
        least = trial.peaks(given)
        if not self._has_room(max(least)):
            return
        best, taken = whole, every
        if whole is None or not no_more(trial.peaks(whole), least):
            best, taken = trial.one_by_one(every, given, least)
        assert best is not None, "it is what was given where nothing is taken"
        if not taken:
            return
        self._module = self._module.with_functions({**self._module.functions, name: best.function})
        for x in taken:
            self._say(name, x)
        for block in blocks.values():
            for var, call in block.block.calls.items():
                key = name, call.kernel.name, var.name, call.call.span
                self.moves.setdefault(key, []).append(best.changes.get(var, call.kernel.name))

    def _has_room(self, peak: int) -> bool:
        return all(
            peak <= p.bytes
            for p in self.memories.pools
            if p.kind is not PoolKind.HEAP and p.bytes is not None
        )

    def written(
        self, function: Function, blocks: Mapping[Expr, _Found], choice: _Choice
    ) -> _Candidate | None:
        """Return a function with a choice; None where a kernel has no variant for it."""
        chosen = {x.whole if isinstance(x, Join) else x.part: x for x in choice}
        changes: dict[Var, str] = {}

        def rewrite(block: Expr) -> Expr:
            found = blocks[block]
            calls = found.block.calls
            joins = [x for x in chosen.values() if isinstance(x, Join) and x.whole in calls]
            cuts = [x for x in chosen.values() if isinstance(x, Cut) and x.part in calls]
            writer = Writer(found.block, joins, cuts, self._variants.variant, self._variants.copy)
            made = writer.run(rewrite)
            if made is None:
                raise _NoVariant
            changes.update(writer.changes)
            return made

        try:
            return _Candidate(replace(function, body=rewrite(function.body)), changes)
        except _NoVariant:
            return None

    def stored(self, name: str, function: Function) -> Module:
        """Return the module with a function in explicit storage, as it would be planned."""
        module = self._learn(name, function)
        needs = {n: x for n, x in self._needs.items() if n in module.kernels}
        module = with_needs(module, needs, scratch_threads(self._context))
        quiet = replace(self._context, instrument=SILENT, diagnostics=Collector(), remarks=Remarks())
        given = (Property.TYPED, Property.ANF, Property.LOWERED)
        return run_pipeline(make_pipeline(_STORED, given), module, quiet)

    def _learn(self, name: str, function: Function) -> Module:
        """Find out what the kernels of a function need; return the module with it and with its kernels.

        A kernel for parts has the schedule of the kernel that it was made of, so what one needs says what the
        other does. Kernels that will not be in the program are not lowered for that.
        """
        functions = {**self._module.functions, name: function}
        known = {**self._kernels, **{k.name: k for k in self._variants.made.values()}}
        module = self._module.with_functions(functions)
        module = module.with_kernels(_called(module, known))
        new = {n: k for n, k in module.kernels.items() if n not in self._needs}
        if new:
            self._needs |= lowered_needs(module.with_kernels(new), self._generating)
        for (of, _), made in self._variants.made.items():
            if of not in self._needs and made.name in self._needs and of in self._kernels:
                self._needs[of] = _needs_of(self._kernels[of], made, self._needs[made.name])
        return module

    def _say(self, name: str, x: Join | Cut) -> None:
        if isinstance(x, Join):
            parts = ", ".join(v.name for v in (*reversed(x.made), *x.inner))
            message = f"{name}: {parts} in {x.whole.name}, so they are not copied"
            message += "".join(f"; {c} is" for c in x.copied())
            remark = Remark(PASS.name, "made-in-whole", "in place", message, x.whole.span)
        else:
            message = f"{name}: {x.part.name} is read in {x.whole.name}, so it is not copied"
            remark = Remark(PASS.name, "read-in-whole", "in place", message, x.part.span)
        self._context.remarks.add(remark)


def _called(module: Module, kernels: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """Return those of some kernels that a module calls, in their order."""
    used = {
        x.name
        for f in module.functions.values()
        for v in values(f.body)
        for x in (v, *operands(v))
        if isinstance(x, GlobalVar)
    }
    return {n: k for n, k in kernels.items() if n in used}


PASS = Pass(
    __name__,
    run,
    "make parts of concatenations where they are joined, and read slices where they are",
    requires=(Property.ANF, Property.LOWERED),
    options=PartOptions,
)
