"""What a kernel is predicted to cost on a device.

Work and traffic are formulas over dims (`analysis/cost.py`); dims have typical sizes. From the best
source there is: an architecture's own function; what was measured of this very kernel; else a roofline
over the board's figures, times what was measured of the operator that has most of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inlay.analysis.cost import bytes_of, work_of
from inlay.arith.expr import Int, Sym, evaluate, lit, product, symbols
from inlay.base.usual_sizes import planned_size
from inlay.ir.expr import Call, Expr, OpRef, Var
from inlay.ir.types import TensorType, Type
from inlay.machine.board import Board
from inlay.ops._define import FusionPattern
from inlay.ops.table import OperatorTable
from inlay.placement.infer.operations import GroupSource

_MEMORY_THREADS = 4
"""Threads beyond which a kernel that waits for memory gains nothing."""
CostHook = Callable[[Call, Mapping[Sym, int]], float | None]
"""An architecture's own prediction of a call, in nanoseconds; None leaves it to the roofline."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured on a board (`placement/choose/calibration.py`).

    Attributes:
        factors: measured over predicted time, by names of device and operator; `*` for all others.
        launches: nanoseconds that a kernel costs before it does anything, by name of the device.
        kernels: nanoseconds of a kernel, by name of the device and `kernel_key`.
        links: latency in nanoseconds and bytes in a nanosecond, by names of two memories.
        exclusive: pairs of devices that do not work at the same time.
    """

    factors: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    launches: Mapping[str, float] = field(default_factory=dict[str, float])
    kernels: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    links: Mapping[tuple[str, str], tuple[float, float]] = field(
        default_factory=dict[tuple[str, str], tuple[float, float]]
    )
    exclusive: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Costs:
    """Where predictions come from.

    Attributes:
        hooks: an architecture's own function, by name of the architecture.
        measured: on this board.
        typical: sizes of dims by name, where the user says them.
        groups: gives what would be one kernel; without it every operation is a kernel.
        threads: by name of the device, on how many threads its kernels run; one where nothing is said.
    """

    hooks: Mapping[str, CostHook] = field(default_factory=dict[str, CostHook])
    measured: Measured = field(default_factory=Measured)
    typical: Mapping[str, int] = field(default_factory=dict[str, int])
    groups: GroupSource | None = None
    threads: Mapping[str, int] = field(default_factory=dict[str, int])


Step = tuple[Var | None, Call]
"""A call of an operator, and what its result is called."""


class Predictor:
    """Predicts kernels of one program on the devices of a board.

    Args:
        board: the machine.
        operators: what the program uses.
        costs: where predictions come from.
        dims: sizes to predict for.
    """

    def __init__(self, board: Board, operators: OperatorTable, costs: Costs, dims: Mapping[Sym, int]) -> None:
        self._board = board
        self._operators = operators
        self._costs = costs
        self._dims = dims

    def number(self, e: Int) -> float:
        """Return a formula at the typical sizes."""
        return at_sizes(e, self._dims)

    def kernel(self, steps: Sequence[Step], device: str) -> float:
        """Return the nanoseconds of operations that run as one kernel."""
        arch, measured = self._board.arch_of(device), self._costs.measured
        hook = self._costs.hooks.get(arch.name)
        if hook is not None:
            found = [hook(call, self._dims) for _, call in steps]
            if None not in found:
                return sum(x for x in found if x is not None)
        if all(self._is_nothing(call) for _, call in steps):
            return 1.0
        memory = self._board.memory(self._board.writable(device)[0])
        assert memory is not None, "a checked board knows the memories of its devices"
        work = sum(self._compute(call, device) for _, call in steps)
        moved = self.traffic(steps) / memory.bytes_per_ns
        launch = measured.launches.get(device, arch.speed.launch_ns)
        threads = self._costs.threads.get(device, 1)
        if moved > work:
            threads = min(threads, _MEMORY_THREADS)
        known = None
        if measured.kernels:
            known = measured.kernels.get((device, kernel_key(steps, self._operators)))
        if known is not None:
            return launch + _shared(known - launch, threads, arch.hand_off_ns)
        alone = max(work, moved) * self.factor(self.heaviest(steps, device), device)
        return launch + _shared(alone, threads, arch.hand_off_ns) + 1.0

    def heaviest(self, steps: Sequence[Step], device: str) -> str:
        """Return the operator that has most of the work of a kernel, by the name that boards use."""
        call = max((call for _, call in steps), key=lambda call: self._compute(call, device))
        assert isinstance(call.callee, OpRef), "kernels are made of operators"
        definition = self._operators.definition(call.callee.op)
        return definition.form_of or definition.name

    def traffic(self, steps: Sequence[Step]) -> float:
        """Return the bytes that go in and out of a kernel."""
        total = self.number(bytes_of(steps[-1][1].type))
        for call, arg in _operands(steps):
            size = self.number(bytes_of(arg.type))
            if self._reads_as_it_writes(call) and arg is call.args[0]:
                size = min(size, self.number(bytes_of(call.type)))
            total += size
        return total

    def _compute(self, call: Call, device: str) -> float:
        speed = self._board.arch_of(device).speed
        work = work_of(call, self._operators)
        return (
            self.number(work.macs) / speed.macs_per_ns
            + self.number(work.cheap) / speed.elements_per_ns
            + self.number(work.transcendental) / speed.transcendentals_per_ns
        )

    def factor(self, operator: str, device: str) -> float:
        """Return measured over predicted time of an operator, or of a candidate by its name, on a device."""
        factors = self._costs.measured.factors
        return factors.get((device, operator), factors.get((device, "*"), 1.0))

    def _is_nothing(self, call: Call) -> bool:
        """Whether nothing runs: a view of the operand, or work of the virtual machine."""
        if not isinstance(call.callee, OpRef):
            return False
        op = call.callee.op
        return op.alias is not None or self._operators.definition(op).pattern is FusionPattern.CONTROL

    def _reads_as_it_writes(self, call: Call) -> bool:
        """Whether of the first operand no more is read than is written: rows of a table, a part."""
        return isinstance(call.callee, OpRef) and (
            self._operators.definition(call.callee.op).pattern is FusionPattern.LAYOUT
        )


def at_sizes(e: Int, dims: Mapping[Sym, int]) -> float:
    """Return a formula at sizes of dims, as planned for by their names for those that are not there."""
    if e.value is not None:
        return float(e.value)
    return float(max(0, evaluate(e, {s: dims.get(s, planned_size(s.name)) for s in symbols(e)})))


def _shared(ns: float, threads: int, hand_off_ns: int) -> float:
    """Return the time of a kernel that threads share; a short one stays on the thread of the call."""
    if threads <= 1 or ns <= hand_off_ns:
        return ns
    return hand_off_ns + (ns - hand_off_ns) / threads


def kernel_key(steps: Iterable[Step], operators: OperatorTable) -> str:
    """Return what tells kernels apart whose times differ, whatever the layout of their operands.

    These are the operators by the names that boards use, their work, and what comes out. A plan is made
    before layouts are chosen and weights are packed, and what was measured ran afterwards: both have
    the same key. Operators that only move elements are left out beside others.
    """
    calls = [call for _, call in steps]
    defined = [operators.definition(c.callee.op) for c in calls if isinstance(c.callee, OpRef)]
    names = [d.form_of or d.name for d in defined if d.pattern is not FusionPattern.LAYOUT]
    work = [work_of(c, operators) for c in calls]
    macs = sum((w.macs for w in work), lit(0))
    shown = "+".join(sorted(names or [d.name for d in defined]))
    return f"{shown} of {_number_text(macs)} macs -> {_size_text(calls[-1].type)}"


def is_static(key: str) -> bool:
    """Whether a key says all sizes, so that what was measured holds wherever it is met."""
    return "?" not in key


def _operands(steps: Sequence[Step]) -> list[tuple[Call, Expr]]:
    """Return what a kernel reads from outside, each once; numbers are written into it."""
    own = {var for var, _ in steps if var is not None}
    found: dict[int, tuple[Call, Expr]] = {}
    for _, call in steps:
        for arg in call.args:
            is_inner = isinstance(arg, Var) and arg in own
            if isinstance(arg.type, TensorType) and not is_inner and _is_table(arg.type):
                found.setdefault(id(arg), (call, arg))
    return list(found.values())


def _is_table(t: TensorType) -> bool:
    return product(t.shape).value != 1


def _number_text(n: Int) -> str:
    return "?" if n.value is None else str(n.value)


def _size_text(t: Type) -> str:
    if not isinstance(t, TensorType):
        return "?"
    return f"{t.dtype.name} {_number_text(product(t.shape))}"
