"""Changes the order of independent kernels so that less memory is in use at once.

    let a = @widen(x);     let b = @widen(y);         let a = @widen(x);   let p = @narrow(a);
    let p = @narrow(a);    let q = @narrow(b);   ->   let b = @widen(y);   let q = @narrow(b);

Kernels without a resource and pure operators may run in any order that data allows. What has an effect, may
fail, updates a tensor, branches or calls a function stays where it is, and divides its block into
*stretches* that are ordered by themselves (`peak_order` says how). The bytes of a stretch are those of
results and of scratch memory, phase by phase; views take none, a result written over a dying operand takes
those of the operand. Inputs and constants are the caller's and the program's: they are not counted.

Sizes over dims count at what is typical for the dims, else at 8; an order is taken where it needs less there
and not more where all dims are 1 or 512. A stretch with kernels of several devices stays as it is: what
was planned to run at the same time is not to be put one behind the other.

On one processor the order of kernels costs no time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from inlay.analysis.blocks import operands, relet, spine, with_blocks
from inlay.arith.expr import Int, Sym, evaluate, symbols
from inlay.ir.dims import free_symbols
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import Call, Const, Expr, Function, GlobalVar, Let, OpRef, Project, Tuple, Var
from inlay.ir.kernel import Access, Kernel
from inlay.ir.module import Module
from inlay.ir.op import Effect
from inlay.ir.types import ExistsType, TensorType, TupleType, Type
from inlay.ir.walk import free_vars
from inlay.memory.explicit_alloc import filled, size_of
from inlay.memory.peak_order import Extra, Problem, Task, find_order, peak_of
from inlay.memory.read_first import UPDATES
from inlay.passes.contract import Pass, PassContext, Property, Remark

STEPS = 20_000
"""How many tasks are tried for a stretch (each takes 2 to 10 us)."""

POINTS = (None, 1, 512)
"""Sizes of dims at which programs are compared; None for what is typical."""

_UNKNOWN = 8
"""What a dim counts that nobody says anything of."""


def run(module: Module, context: PassContext) -> Module:
    """Order the blocks of every function. Cost: linear, and a search of so many steps for each stretch."""
    functions: dict[str, Function] = {}
    for name, function in module.functions.items():
        typical = {d.sym: d.typical for d in function.dims if d.typical is not None}
        functions[name] = _Orderer(name, module.kernels, typical, context).function(function)
    return module.with_functions(functions)


class _Orderer:
    """Orders the blocks of one function of the module."""

    def __init__(
        self, name: str, kernels: Mapping[str, Kernel], typical: Mapping[Sym, int], context: PassContext
    ) -> None:
        self._name = name
        self._kernels = kernels
        self._typical = typical
        self._context = context

    def function(self, function: Function) -> Function:
        """Order a function."""
        return replace(function, body=self._block(function.body))

    def _block(self, block: Expr) -> Expr:
        old, tail = spine(block)
        lets = [relet(let, self._inner(let.value), let.body) for let in old]
        ordered: list[Let] = []
        stretch: list[int] = []
        uses = _last_uses(old, tail)
        for position, let in enumerate(old):
            if self._may_move(let.value):
                stretch.append(position)
                continue
            ordered += self._ordered(lets, stretch, old, uses)
            ordered.append(lets[position])
            stretch = []
        ordered += self._ordered(lets, stretch, old, uses)
        body = self._inner(tail)
        for let in reversed(ordered):
            body = relet(let, let.value, body)
        return body

    def _inner(self, value: Expr) -> Expr:
        return self.function(value) if isinstance(value, Function) else with_blocks(value, self._block)

    def _kernel(self, value: Expr) -> Kernel | None:
        if isinstance(value, Call) and isinstance(value.callee, GlobalVar):
            return self._kernels.get(value.callee.name)
        return None

    def _may_move(self, value: Expr) -> bool:
        match value:
            case Call(callee=OpRef(op=op)):
                return op.effect is Effect.PURE and op not in UPDATES
            case Call():
                kernel = self._kernel(value)
                return (
                    kernel is not None
                    and kernel.resource is None
                    and all(p.access is not Access.UPDATE for p in kernel.ports)
                )
            case Tuple() | Project() | Const() | Var():
                return True
            case _:
                return False

    def _ordered(
        self, lets: Sequence[Let], stretch: Sequence[int], old: Sequence[Let], uses: Mapping[Var, int]
    ) -> list[Let]:
        """Return the lets of a stretch in their order."""
        given = [lets[i] for i in stretch]
        if len(given) < 3 or len({_device(let.value) for let in given} - {None}) > 1:
            return given
        made = _Stretch(old, stretch, uses, self._kernel)
        first, *others = [made.problem(sizes_at(self._typical, n)) for n in POINTS]
        order = find_order(first, STEPS)
        before, after = peak_of(first, range(len(given))), peak_of(first, order)
        if after >= before:
            return given
        if any(peak_of(p, order) > peak_of(p, range(len(given))) for p in others):
            return given
        message = (
            f"{self._name}: {len(given)} steps in another order, {after} bytes at once instead of {before}"
        )
        self._context.remarks.add(Remark(PASS.name, "reordered", "peak", message, given[0].span))
        return [given[i] for i in order]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers for dims."""

    known: Mapping[Sym, int]
    other: int

    def of(self, e: Int) -> int:
        """Return a size in bytes, not less than 0."""
        if e.value is not None:
            return max(e.value, 0)
        return max(evaluate(e, {s: self.known.get(s, self.other) for s in symbols(e)}), 0)


def sizes_at(typical: Mapping[Sym, int], point: int | None) -> Sizes:
    """Return the sizes of dims at one of `POINTS`."""
    return Sizes(typical if point is None else {}, _UNKNOWN if point is None else point)


class _Stretch:
    """Lets in a row that may change places, as tasks.

    Args:
        lets: of the block.
        positions: of those that may change places.
        uses: the position of the last use of each variable of the block, inside of values included.
        kernel: returns the kernel that a value calls.
    """

    def __init__(
        self,
        lets: Sequence[Let],
        positions: Sequence[int],
        uses: Mapping[Var, int],
        kernel: Callable[[Expr], Kernel | None],
    ) -> None:
        self._lets = lets
        self._positions = positions
        self._uses = uses
        self._kernel = kernel
        self._root = _roots(lets, kernel)

    def problem(self, sizes: Sizes) -> Problem:
        """Return the tasks, for certain sizes of dims."""
        numbers: dict[Var, int] = {}
        end = self._positions[-1]
        mine = {self._lets[p].var: i for i, p in enumerate(self._positions)}
        symbols_of = {
            d.sym: i
            for i, p in enumerate(self._positions)
            for d in opened_dims(self._lets[p].value.type, self._lets[p].var.type)
        }
        last: dict[Var, int] = {}
        for var, root in self._root.items():
            last[root] = max(last.get(root, -1), self._uses.get(var, -1))
        bytes_of: list[int] = []
        kept: set[int] = set()
        tasks: list[Task] = []
        for position in self._positions:
            let = self._lets[position]
            reads: list[int] = []
            used = [x for x in operands(let.value) if isinstance(x, Var)]
            for var in dict.fromkeys(used):
                root = self._root.get(var)
                if root is None:
                    continue
                if root not in numbers:
                    numbers[root] = len(bytes_of)
                    bytes_of.append(sum(sizes.of(b) for b in _bytes(root.type)))
                    if last[root] > end:
                        kept.add(numbers[root])
                reads.append(numbers[root])
            makes = None
            if self._root.get(let.var) is let.var:
                makes = numbers[let.var] = len(bytes_of)
                bytes_of.append(sum(sizes.of(b) for b in _bytes(let.var.type)))
                if last[let.var] > end:
                    kept.add(makes)
            kinds = (let.value.type, let.var.type, *(x.type for x in operands(let.value)))
            needs = {mine[v] for v in used if v in mine}
            needs |= {symbols_of[s] for t in kinds for s in free_symbols(t) if s in symbols_of}
            needs.discard(mine[let.var])
            reads = list(dict.fromkeys(reads))
            extra = self._extra(let, numbers, bytes_of, makes, sizes)
            tasks.append(Task(frozenset(needs), tuple(reads), makes, extra))
        return Problem(tasks, bytes_of, frozenset(kept))

    def _extra(
        self, let: Let, numbers: Mapping[Var, int], bytes_of: Sequence[int], makes: int | None, sizes: Sizes
    ) -> Extra:
        """Return what tells how many bytes a let takes beside what is there."""
        result = 0 if makes is None else bytes_of[makes]
        kernel = self._kernel(let.value)
        if kernel is None:
            return lambda _: result
        assert isinstance(let.value, Call), "kernels are called"
        scratch = sum(sizes.of(w.planned()) for w in kernel.workspaces if not w.requested)
        tensors = [a for a in let.value.args if isinstance(a.type, TensorType)]
        roots = [self._root.get(a) if isinstance(a, Var) else None for a in tensors]
        values = [None if r is None else numbers[r] for r in roots]
        return _phases(kernel, values, bytes_of, result, scratch)


def _phases(
    kernel: Kernel, values: Sequence[int | None], bytes_of: Sequence[int], result: int, scratch: int
) -> Extra:
    """Return what tells the most bytes that a kernel takes at once, beside those in use before it."""
    accesses = kernel.accesses
    if accesses is None:
        return lambda _: result + scratch
    writes = range(len(values), len(kernel.ports))
    begun = min((accesses.used[w][0] for w in writes), default=0)
    ends: dict[int, int] = {}
    for index, value in enumerate(values):
        if value is not None:
            ends[value] = max(ends.get(value, 0), accesses.used[index][1])
    only = len(writes) == 1
    over = {v for _, r in accesses.overlays if only and values.count(v := values[r]) == 1}
    span = accesses.used[-1] if scratch else (0, -1)

    def extra(dying: frozenset[int]) -> int:
        most = 0
        for phase in range(accesses.phases):
            taken = scratch if span[0] <= phase <= span[1] else 0
            if begun <= phase:
                taken += result
                # One of the operands of the same size that die here has its bytes.
                if any(v in over and bytes_of[v] == result and ends[v] >= begun for v in dying if v in ends):
                    taken -= result
            taken -= sum(bytes_of[v] for v in dying if v in ends and ends[v] < phase)
            most = max(most, taken)
        return most

    return extra


def _last_uses(lets: Sequence[Let], tail: Expr) -> dict[Var, int]:
    """Return where variables are used last; behind all lets for the tail."""
    found: dict[Var, int] = {}
    for position, value in enumerate((*(let.value for let in lets), tail)):
        for var in free_vars(value):
            found[var] = position
    for let in reversed(lets):
        if isinstance(let.value, Tuple):
            for field in let.value.fields:
                if isinstance(field, Var):
                    found[field] = max(found[field], found.get(let.var, 0))
    return found


def _roots(lets: Sequence[Let], kernel: Callable[[Expr], Kernel | None]) -> dict[Var, Var]:
    """Return the variable in whose bytes each variable of a block is; none for what takes no bytes of ours.

    The tuple of a kernel is one value with all that is in it. A tensor with one part more is what it was.
    """
    found: dict[Var, Var] = {}
    for let in lets:
        value = let.value
        match value:
            case Call(callee=GlobalVar()) if (whole := filled(value, kernel(value))) is not None:
                shown = whole
            case Call(callee=OpRef(op=op)) if op.alias is not None:
                shown = value.args[op.alias]
            case Project(value=shown):
                pass
            case Var():
                shown = value
            case Call():
                found[let.var] = let.var
                continue
            case _:
                continue
        if isinstance(shown, Var) and shown in found:
            found[let.var] = found[shown]
    return found


def _bytes(t: Type) -> list[Int]:
    """Return the bytes of the tensors in a type."""
    match t:
        case TensorType():
            return [size_of(t)]
        case TupleType(fields=fields):
            return [b for f in fields for b in _bytes(f)]
        case ExistsType(body=body):
            return _bytes(body)
        case _:
            return []


def _device(value: Expr) -> str | None:
    """Return the device that runs a value; None for what no device runs."""
    if not isinstance(value, Call) or not isinstance(value.callee, GlobalVar):
        return None
    place = value.place
    while place is not None and not place.device and place.fields:
        place = place.fields[0]
    return "" if place is None else place.device


PASS = Pass(
    __name__,
    run,
    "order independent kernels so that less memory is in use at once",
    requires=(Property.ANF, Property.LOWERED),
)
