"""Measures what rules leave open for the kernels of a program, and keeps what wins in a file.

The program is compiled by estimates and run: the kernels whose time matters most go first. Each is then
measured by itself (`alone.py`), with its constants and drawn operands, against the default in the same rounds
(`tune/rounds.py`). Constants are copied so often that they are as far away as in the program, where weights
of other kernels were there before. First the form of its product (how weights are packed), then its
schedule.

A choice is checked before it is timed: its results are those of the default, integers to the bit and floats
within the table of tolerances. What is measured is in the file after each step, so that a run that is ended
loses no more than that, and the next one goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import prod

import numpy as np

from inlay.analysis.choices import NO_CHOICE, Choice, Question
from inlay.arith.deferred import AnyArray, DeferredArray
from inlay.arith.expr import Sym, evaluate, symbols
from inlay.arith.tolerance import disagreement
from inlay.base.diagnostics import CompileError, RunError
from inlay.codegen.interface import Generator
from inlay.ir.equal import structural_hash
from inlay.ir.expr import Call, Const, Function, GlobalVar, OpRef
from inlay.ir.kernel import Access, Kernel
from inlay.ir.module import Module
from inlay.ir.walk import postorder, spine
from inlay.loop.stmt import IterKind
from inlay.loop.walk import blocks_of
from inlay.ops._define import FusionPattern
from inlay.pipeline import place_parts
from inlay.pipeline.alone import Alone, aligned, alone, kernel_of, operands_of, reformed
from inlay.pipeline.build_kernels import BuildOptions, LoopBody
from inlay.pipeline.building import build_options, explaining_options
from inlay.pipeline.planning import Setting
from inlay.pipeline.running import run_passes
from inlay.transforms._packings import PackedProduct, PackOptions
from inlay.tune.database import Database
from inlay.tune.rounds import timed
from inlay.tune.search import Confirm, Done, Try, kept, step
from inlay.tune.trial import Kind, Outcome, Place, Trial

AT_ONCE = 6
"""Choices that are compiled and measured in one step, which is all that is lost when it is ended."""
ROUNDS, MORE_ROUNDS = 7, 21
"""Of a first measurement, and of the one that confirms."""
LEAST_SHARE = 0.001
"""Of the time of a run, that a kernel takes to be worth measuring."""
MOST_COPIES = 64
"""Of the constants of a kernel."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel to tune.

    Attributes:
        name: in the program.
        origin: the operators in it.
        function: the group.
        ns: what its calls take in a run of the program.
        constants: operands that are, by position.
        sizes: of its dims.
        product: the product in it whose weights are packed, and the position of these; None for none.
    """

    name: str
    origin: str
    function: Function
    ns: float
    constants: Mapping[int, AnyArray]
    sizes: Mapping[Sym, int]
    product: tuple[PackedProduct, int] | None


@dataclass(frozen=True, slots=True)
class Subjects:
    """The kernels of a program.

    Attributes:
        found: those that can be tuned, the longest first.
        without: why others cannot be, by name.
        constant_bytes: of the program.
    """

    found: tuple[Subject, ...]
    without: Mapping[str, str]
    constant_bytes: int


@dataclass(frozen=True, slots=True)
class Tuning:
    """What came of one kernel.

    Attributes:
        subject: the kernel.
        product, kernel: what is kept of the form of its product, and of its schedule.
        tried: choices that this run measured.
        dropped: choices that were refused or wrong, with the reasons.
        is_done: whether nothing is left to try.
    """

    subject: Subject
    product: Trial | None = None
    kernel: Trial | None = None
    tried: int = 0
    dropped: tuple[tuple[Choice, str], ...] = ()
    is_done: bool = False

    @property
    def saves_ns(self) -> float:
        """What a run of the program saves, by the measurements of the kernel alone."""
        left = prod(1 - t.gain for t in (self.product, self.kernel) if t is not None)
        return self.subject.ns * (1 - left)


def subjects_of(
    module: Module, setting: Setting, times: Mapping[str, float], sizes: Mapping[str, int]
) -> Subjects:
    """Return the kernels of a program.

    Args:
        module: as it was loaded.
        setting: of a compilation without choices.
        times: nanoseconds of all calls of a kernel in a run of the program, by name.
        sizes: of the dims of the inputs, by name.
    """
    products: list[PackedProduct] = []
    packing = replace(setting.context.options_for(PackOptions), packed=products.append)
    watched = replace(setting, context=setting.context.with_options(packing))
    dry = explaining_options(setting)
    run = run_passes(module, watched, dry, until=place_parts.PASS)
    by_weights = {id(p.form.weights): p for p in products}
    calls: dict[str, Call] = {}
    constants: dict[int, int] = {}
    for e in postorder(run.module.functions.values()):
        match e:
            case Call(callee=GlobalVar(name=name)):
                calls.setdefault(name, e)
            case Const(held=np.ndarray() | DeferredArray() as array):
                constants[id(array)] = array.nbytes
            case _:
                pass
    least = LEAST_SHARE * sum(times.values())
    found: list[Subject] = []
    without: dict[str, str] = {}
    for name, kernel in run.module.kernels.items():
        if why := _not_tuned(kernel, calls.get(name), times.get(name), sizes, least):
            without[name] = why
            continue
        body, call = kernel.body, calls[name]
        assert isinstance(body, LoopBody), "others are not tuned"
        arrays = _constants(call)
        at = next((i for i, x in arrays.items() if id(x) in by_weights), None)
        product = None if at is None else (by_weights[id(arrays[at])], at)
        dims = {d.sym: sizes[d.sym.name] for d in body.function.type.dims}
        found.append(Subject(name, kernel.origin, body.function, times[name], arrays, dims, product))
    found.sort(key=lambda s: -s.ns)
    return Subjects(tuple(found), without, sum(constants.values()))


def _not_tuned(
    kernel: Kernel, call: Call | None, ns: float | None, sizes: Mapping[str, int], least: float
) -> str:
    """Return why a kernel is not tuned, or nothing."""
    body = kernel.body
    if not isinstance(body, LoopBody) or not body.requests:
        return "it does not run on the host, or its code comes from outside"
    if call is None or ns is None:
        return "it was not run"
    if ns < least:
        return f"it takes less than {LEAST_SHARE:.1%} of a run"
    if kernel.batch is not None:
        return "several calls of it may run as one"
    if any(p.access not in (Access.READ, Access.WRITE) for p in kernel.ports):
        return "it writes into a tensor that it is given"
    if unknown := [d.sym.name for d in body.function.type.dims if d.sym.name not in sizes]:
        return f"the program computes its size {', '.join(unknown)}"
    return ""


def _constants(call: Call) -> dict[int, AnyArray]:
    return {
        i: a.held
        for i, a in enumerate(call.args)
        if isinstance(a, Const) and isinstance(a.held, np.ndarray | DeferredArray)
    }


# --------------------------------------------------------------------------- one kernel


@dataclass(frozen=True, slots=True)
class _Variant:
    """A kernel that can be run.

    Attributes:
        run: it.
        operands: sets of them that differ in where constants are.
        length: of the longest sum in it.
    """

    run: Alone
    operands: Sequence[Sequence[np.ndarray]]
    length: int

    def ns(self, turn: Callable[[], int]) -> float:
        return self.run.ns(self.operands[turn() % len(self.operands)])


@dataclass(frozen=True, slots=True)
class _Made:
    """What a choice makes of a kernel, before there is code of it."""

    function: Function
    constants: Mapping[int, AnyArray]
    kernel: Kernel


Make = Callable[[Choice], "_Made | None"]


@dataclass(slots=True)
class Tuner:
    """Tunes kernels of a program, one after the other.

    Attributes:
        setting: of the program, without choices.
        generator: makes code.
        database: where trials are kept.
        place: what they hold for.
        deadline: when to end, by the clock of `time.monotonic`.
        constant_bytes: of the program.
        told: is called with the number of choices measured so far, after each step.
    """

    setting: Setting
    generator: Generator
    database: Database
    place: Place
    deadline: float
    constant_bytes: int
    told: Callable[[int], None]
    _tried: int = 0
    _dropped: list[tuple[Choice, str]] = field(default_factory=list[tuple[Choice, str]])

    @property
    def is_late(self) -> bool:
        """Whether time is over."""
        return time.monotonic() >= self.deadline

    def tune(self, subject: Subject) -> Tuning:
        """Measure what is left to try of a kernel, as long as there is time."""
        self._tried, self._dropped = 0, []
        building = build_options(self.setting)
        product, is_done = None, True
        made = _Made(
            subject.function,
            subject.constants,
            kernel_of(subject.function, NO_CHOICE, building, self.setting),
        )
        if subject.product is not None:
            p, at = subject.product
            of_form = partial(self._with_form, subject, building, p, at)
            product, is_done = self._search(Kind.PRODUCT, p.key, subject, p.questions, of_form)
            made = of_form(product.choice) if product is not None else made
            assert made is not None, "what was measured can be made"

        def scheduled(choice: Choice) -> _Made | None:
            kernel = kernel_of(made.function, choice, building, self.setting)
            return replace(made, kernel=kernel)

        body = made.kernel.body
        assert isinstance(body, LoopBody), "kernels of loops are tuned"
        key = structural_hash(made.function, places=False, primitive_names=False)
        assert key == body.key, "one key for one group"
        best, done = self._search(Kind.KERNEL, key, subject, body.schedule().questions, scheduled)
        return Tuning(subject, product, best, self._tried, tuple(self._dropped), is_done and done)

    def _with_form(
        self, subject: Subject, building: BuildOptions, product: PackedProduct, at: int, choice: Choice
    ) -> _Made | None:
        form = product.form if not choice else product.remake(choice)
        if form is None:
            return None
        function = reformed(subject.function, at, product.form.name, form, self.setting)
        if function is None:
            return None
        kernel = kernel_of(function, NO_CHOICE, building, self.setting)
        return _Made(function, {**subject.constants, at: form.weights}, kernel)

    def _search(
        self, kind: Kind, key: str, subject: Subject, questions: Sequence[Question], make: Make
    ) -> tuple[Trial | None, bool]:
        """Return the choice that is kept, and whether nothing is left to try."""
        default: _Variant | None = None
        while True:
            trials = self.database.trials(self.place, kind, key)
            todo = step(questions, trials, self.place.threads)
            if isinstance(todo, Done):
                return todo.best, True
            if self.is_late:
                return kept(trials), False
            default = default or self._variant(subject, make(NO_CHOICE))
            assert default is not None, "the default is the kernel of the program"
            match todo:
                case Try(choices=choices):
                    found = self._try(subject, default, make, choices[:AT_ONCE])
                case Confirm(trial=trial):
                    (again,) = self._try(subject, default, make, (trial.choice,), MORE_ROUNDS)
                    found = [replace(again, kept=again.wins)]
            self.database.record(self.place, kind, key, subject.origin, found)
            self._tried += len(found)
            self.told(self._tried)

    def _try(
        self, subject: Subject, default: _Variant, make: Make, choices: Sequence[Choice], rounds: int = ROUNDS
    ) -> list[Trial]:
        """Return what comes of choices, each compiled, checked and timed."""
        dropped: dict[Choice, Trial] = {}
        variants: dict[Choice, _Variant] = {}
        for choice in choices:
            try:
                variant = self._variant(subject, make(choice))
                why = "this form has another kernel" if variant is None else _wrong(default, variant)
                outcome = Outcome.REFUSED if variant is None else Outcome.WRONG
            except (CompileError, RunError) as failure:
                variant, why, outcome = None, failure.diagnostics[0].message, Outcome.REFUSED
            if variant is not None and not why:
                variants[choice] = variant
                continue
            dropped[choice] = Trial(choice, outcome, said=why)
            self._dropped.append((choice, why))
        if not variants:
            return list(dropped.values())
        turns = count()
        turn = partial(next, turns)
        runs = [partial(v.ns, turn) for v in variants.values()]
        times = timed(partial(default.ns, turn), runs, rounds)
        measured = [
            Trial(choice, Outcome.MEASURED, ns, times.default_ns, times.noise, rounds)
            for choice, ns in zip(variants, times.ns, strict=True)
        ]
        return [*measured, *dropped.values()]

    def _variant(self, subject: Subject, made: _Made | None) -> _Variant | None:
        """Return a kernel that can be run; its operands are drawn alike for all choices."""
        if made is None:
            return None
        body = made.kernel.body
        assert isinstance(body, LoopBody), "kernels of loops are tuned"
        run = alone(made.kernel, made.function, self.setting, self.generator, self.place.threads)
        first = operands_of(
            made.function,
            made.constants,
            subject.sizes,
            reads_by_index=_reads_by_index(made.function, self.setting),
        )
        size = sum(first[i].nbytes for i in made.constants)
        target = self.setting.targets(self.setting.board.host.name)
        spread = min(self.constant_bytes, target.l3_bytes + 4 * target.l2_bytes)
        copies = 1 if size == 0 else max(1, min(MOST_COPIES, spread // size))
        sets = [first, *(_copied(first, made.constants) for _ in range(copies - 1))]
        return _Variant(run, sets, _longest_sum(body, subject.sizes))


def _copied(operands: Sequence[np.ndarray], constants: Mapping[int, AnyArray]) -> list[np.ndarray]:
    return [aligned(x) if i in constants else x for i, x in enumerate(operands)]


def _wrong(default: _Variant, other: _Variant) -> str:
    """Return how the results of two kernels differ by more than is allowed, or nothing."""
    want, got = (v.run.results(v.operands[0]) for v in (default, other))
    length = default.length + other.length
    return next((d for g, w in zip(got, want, strict=True) if (d := disagreement(g, w, length))), "")


def _longest_sum(body: LoopBody, sizes: Mapping[Sym, int]) -> int:
    """Return how many terms go into a result, at most about: levels of a sum are sums of their own."""
    total = 1
    for block in blocks_of(body.schedule().function.body):
        terms = [i.extent for i in block.iters if i.kind is IterKind.REDUCE]
        known = [t for t in terms if all(s in sizes for s in symbols(t))]
        total += prod(evaluate(t, sizes) for t in known) if terms else 0
    return total


def _reads_by_index(function: Function, setting: Setting) -> bool:
    """Whether integers of a group may be places in tensors."""
    lets, tail = spine(function.body)
    for value in (*(x.value for x in lets), tail):
        if isinstance(value, Call) and isinstance(value.callee, OpRef):
            pattern = setting.operators.definition(value.callee.op).pattern
            if pattern in (FusionPattern.LAYOUT, FusionPattern.OPAQUE, FusionPattern.CONTROL):
                return True
    return False
