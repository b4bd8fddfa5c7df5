"""Computes a batch in parts: all layers for some samples, then all layers for the next ones.

    let y = conv(x, w);            let p = @main_part(slice(x, 0 .. 4));     fn main_part(x: Tensor[4, ...]) {
    let z = dense(y, v);     ->    let q = @main_part(slice(x, 4 .. 8));       let y = conv(x, w);
    z                              concat(p, q)                                dense(y, v)
                                                                             }

Layer by layer, a batch of 32 images goes through memory once a layer, and threads that share a layer read
what the other one wrote. A part stays in the caches of a core through all layers, and parts are calls that
need nothing of each other: threads take whole parts (`vm/tasks.py`), and share nothing but weights.

What is split are the operations of an entry that compute each sample from the same sample of the inputs
(`analysis/samples.py`), and from nothing that was computed of several. The rest of the program reads the
joined results. A part has as few samples as it takes for weights to be read rarely and for calls not to
count. It divides the batch, so that all parts are calls of one function. Where there would be fewer parts
than threads, or what layers hand on is not much more than what is joined, nothing is split: threads that
share kernels do better, or results would be copied for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from inlay.analysis.blocks import mentioned, operands, relet
from inlay.analysis.cost import bytes_of, work_of
from inlay.analysis.effects import Effects, EffectTable, effect_table
from inlay.analysis.samples import keeps_samples_apart
from inlay.arith.expr import Sym, fresh, lit, to_int
from inlay.base.diagnostics import CompileError
from inlay.base.names import NameSupply
from inlay.base.options import option
from inlay.ir import make, walk
from inlay.ir.dims import free_symbols, substitute_type
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import Call, Const, Expr, Function, GlobalVar, Let, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.types import ShapeType, TensorType, Type
from inlay.ops.joining import CONCAT
from inlay.ops.joining import AxisAttrs as JoinAttrs
from inlay.ops.slicing import SLICE, AxesAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property, Remark


@dataclass(frozen=True, slots=True)
class SplitBatchOptions:
    """Options of this pass.

    A core does up to 115 multiply-adds in a nanosecond, in which two that share a memory get 6 bytes each:
    with 100 for a byte, weights come in a fifth of the time. 100 million take about a millisecond.
    """

    splits: bool = option(True, help="whether batches are computed in parts")  # noqa: FBT003
    macs_per_byte: int = option(100, help="multiply-adds of a part for each byte of weights, at least")
    least_macs: int = option(100_000_000, help="multiply-adds of a part, at least")
    least_inside: int = option(4, help="bytes that contractions write for each byte that is joined, at least")
    most_parts: int = option(64, help="parts of a batch, at most: each is a call in the program")
    threads: int = option(1, help="threads that are to have a part each")


def run(module: Module, context: PassContext) -> Module:
    """Split the batches of entries.

    Cost: linear, with the formula of each operator, for each length of a first axis that inputs have.
    """
    operators = context.ops
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    options = context.options_for(SplitBatchOptions)
    if not options.splits:
        return module
    names, effects = NameSupply([*module.functions, *module.kernels]), effect_table(module)
    made: dict[str, Function] = {}
    entries = _entries(module)
    for name, function in module.functions.items():
        batch = _batch(function, operators, effects) if name in entries else None
        samples = None if batch is None else _samples_of_part(batch, options)
        if batch is None or samples is None:
            continue
        part = names.fresh(f"{name}_part")
        made[part] = _part(batch, samples)
        made[name] = _in_parts(batch, GlobalVar(part, made[part].type), samples)
        text = f"the {batch.size} samples of '{name}' are computed in parts of {samples}"
        context.remarks.add(Remark(PASS.name, "split", "batch", text, function.span))
    return module.with_functions({**module.functions, **made}) if made else module


def _entries(module: Module) -> set[str]:
    """Return the entries without state: what sessions carry is changed where it is, not cut and joined."""
    stateful = {n for n, e in module.entries.items() if e.state or e.grows or e.updates}
    return {module.entry, *module.entries} - stateful - {e.grown for e in module.entries.values()}


# ------------------------------------------------------------------------- what can be computed in parts


@dataclass(slots=True)
class _Batch:
    """An entry, divided into what computes samples apart and the rest.

    Attributes:
        function: the entry.
        size: how many samples it has.
        count: the number of samples of a part, while it is not known.
        generic: values with samples, inputs among them: what each is in a part.
        inside: operations of a part.
        before, behind: of the entry, as they are.
        macs: multiply-adds of all samples.
        written: bytes that contractions write.
        weights: bytes that they read in each part, by operand.
    """

    function: Function
    size: int
    count: Sym
    generic: dict[Var, Var]
    inside: list[tuple[Var, Expr]] = field(default_factory=list[tuple[Var, Expr]])
    before: list[Let] = field(default_factory=list[Let])
    behind: list[Let] = field(default_factory=list[Let])
    macs: int = 0
    written: int = 0
    weights: dict[Expr, int] = field(default_factory=dict[Expr, int])

    @property
    def results(self) -> list[Var]:
        """Values of the entry that are computed in parts and read outside of them."""
        made = {v for v, _ in self.inside}
        tail = walk.spine(self.function.body)[1]
        read = [v for e in (*(let.value for let in self.behind), tail) for v in walk.free_vars(e)]
        return [v for v in dict.fromkeys(read) if self.generic.get(v) in made]

    @property
    def cut(self) -> list[Var]:
        """Inputs of the entry of which each part gets its samples."""
        read = set(self._operands())
        return [p for p in self.function.params if self.generic.get(p) in read]

    @property
    def whole(self) -> list[Var]:
        """Values of the entry that every part gets as they are."""
        own = {*(v for v, _ in self.inside), *self.generic.values()}
        return [a for a in self._operands() if isinstance(a, Var) and a not in own]

    def _operands(self) -> list[Expr]:
        return list(dict.fromkeys(a for _, value in self.inside for a in operands(value)))


def _batch(function: Function, operators: OperatorTable, effects: EffectTable) -> _Batch | None:
    """Return the batch of an entry that most of its work is done for; None where there is none."""
    lets, _ = walk.spine(function.body)
    if function.primitive is not None or any(effects.of(let.value) is not Effects.NONE for let in lets):
        return None
    sizes = dict.fromkeys(n for p in function.params if (n := _length(p.type)) is not None and n > 1)
    return max((_divided(function, n, operators) for n in sizes), key=lambda b: b.macs, default=None)


def _length(t: Type) -> int | None:
    """Return how long the first axis of a tensor is, where that is known."""
    return t.shape[0].value if isinstance(t, TensorType) and t.shape else None


def _divided(function: Function, size: int, operators: OperatorTable) -> _Batch:
    count = fresh("samples")
    generic = {p: _generic(p, p.type, count) for p in function.params if _length(p.type) == size}
    batch = _Batch(function, size, count, generic)
    computed: set[Var | Sym] = set()
    """Of samples: what reads them is behind, if it is not inside."""
    late: set[Var | Sym] = set()
    for let in walk.spine(function.body)[0]:
        read = set(mentioned(let.value))
        made = None if read & late else _apart(batch, let, operators)
        if made is not None:
            batch.generic[let.var] = _generic(let.var, made.type, count)
            batch.inside.append((batch.generic[let.var], made))
            computed.add(let.var)
            _count_work(batch, let.value, operators)
        elif read & (late | computed):
            batch.behind.append(let)
            late |= {let.var, *(d.sym for d in opened_dims(let.value.type, let.var.type))}
        else:
            batch.before.append(let)
    return batch


def _generic(v: Var, t: Type, count: Sym) -> Var:
    return Var(v.name, _of_any_length(t, count), v.span, v.place)


def _of_any_length(t: Type, count: Sym) -> Type:
    assert isinstance(t, TensorType), "samples are of tensors"
    return TensorType((to_int(count), *t.shape[1:]), t.dtype)


def _apart(batch: _Batch, let: Let, operators: OperatorTable) -> Call | None:
    """Return an operation for any number of samples; None where it does not keep them apart."""
    call = let.value
    if not isinstance(call, Call) or not isinstance(call.callee, OpRef) or let.var.type != call.type:
        return None
    rule = operators.definition(call.callee.op).compute
    has_samples = any(isinstance(a, Var) and a in batch.generic for a in call.args)
    types = (call.type, *(a.type for a in call.args))
    if rule is None or not has_samples or _length(call.type) != batch.size or any(map(free_symbols, types)):
        return None
    args = [batch.generic.get(a, a) if isinstance(a, Var) else a for a in call.args]
    for given in (args, [_shape_of_any_length(a, batch) for a in args]):
        made = _made(call, given)
        if made is not None and made.type == _of_any_length(call.type, batch.count):
            return made if keeps_samples_apart(made, rule, batch.count) else None
    return None


def _shape_of_any_length(a: Expr, batch: _Batch) -> Expr:
    """Return a shape that begins with the number of samples as one of any number; all else as it is."""
    values = [v for v in a.type.values if v is not None] if isinstance(a.type, ShapeType) else []
    if isinstance(a, Const) and values[:1] == [lit(batch.size)]:
        return make.shape_const((to_int(batch.count), *values[1:]), a.span)
    return a


def _made(call: Call, args: Sequence[Expr]) -> Call | None:
    """Return the operation with these operands, where its type rule takes them without a check."""
    try:
        made = make.call(call.callee, args, span=call.span, place=call.place)
    except CompileError:
        return None
    if isinstance(made, Call) and all(a is b for a, b in zip(made.args, args, strict=True)):
        return made
    return None


def _count_work(batch: _Batch, value: Expr, operators: OperatorTable) -> None:
    assert isinstance(value, Call), "only operations are computed in parts"
    macs = work_of(value, operators).macs.value or 0
    if macs:
        batch.macs += macs
        batch.written += bytes_of(value.type).value or 0
        shared = (a for a in value.args if a not in batch.generic)
        batch.weights.update((a, bytes_of(a.type).value or 0) for a in shared)


def _samples_of_part(batch: _Batch, options: SplitBatchOptions) -> int | None:
    """Return how many samples a part has; None for a batch that stays whole."""
    joined = sum(bytes_of(v.type).value or 0 for v in batch.results)
    least = max(options.least_macs, options.macs_per_byte * sum(batch.weights.values()))
    if not batch.results or batch.written < options.least_inside * joined:
        return None
    fewest = -(-batch.size // options.most_parts)
    most = batch.size // max(options.threads, 2)
    counts = (n for n in range(fewest, most + 1) if batch.size % n == 0)
    return next((n for n in counts if batch.macs // batch.size * n >= least), None)


# ------------------------------------------------------------------------- the program in parts


def _part(batch: _Batch, samples: int) -> Function:
    """Return the function of a part."""
    ints = {batch.count: lit(samples)}
    params = [*(batch.generic[p] for p in batch.cut), *batch.whole]
    own = [Var(p.name, substitute_type(p.type, ints), p.span, p.place) for p in params]
    lets, results = batch.inside, [batch.generic[v] for v in batch.results]
    if len(results) == 1:
        body = make.lets(lets, results[0])
    else:
        together = make.tuple_(results)
        result = Var("result", together.type)
        body = make.lets([*lets, (result, together)], result)
    return make.function(own, walk.copy(body, dict(zip(params, own, strict=True)), ints), dims=())


def _in_parts(batch: _Batch, part: GlobalVar, samples: int) -> Function:
    """Return the entry, which calls the function of a part for all samples."""
    lets: list[tuple[Var, Expr]] = []
    calls: list[Var] = []
    for first in range(0, batch.size, samples):
        cut = dict(_slices(batch.cut, first, first + samples))
        call = make.call(part, (*cut, *batch.whole))
        calls.append(Var("part", call.type))
        lets += [*cut.items(), (calls[-1], call)]
    results = batch.results
    for index, v in enumerate(results):
        pieces = calls
        if len(results) > 1:
            projected = [make.project(c, index) for c in calls]
            pieces = [Var(v.name, x.type, v.span, v.place) for x in projected]
            lets += zip(pieces, projected, strict=True)
        lets.append((v, make.call(CONCAT, pieces, JoinAttrs(0), span=v.span, place=v.place)))
    body = _relets(batch.behind, walk.spine(batch.function.body)[1])
    return replace(batch.function, body=_relets(batch.before, make.lets(lets, body)))


def _slices(inputs: Iterable[Var], first: int, end: int) -> Iterator[tuple[Var, Expr]]:
    """Yield variables of some samples of inputs, and what they are bound to."""
    ends = [make.shape_const([n]) for n in (first, end, 1)]
    for p in inputs:
        rows = make.call(SLICE, (p, *ends), AxesAttrs((0,)), span=p.span, place=p.place)
        yield Var(p.name, rows.type, p.span, p.place), rows


def _relets(lets: Sequence[Let], body: Expr) -> Expr:
    for let in reversed(lets):
        body = relet(let, let.value, body)
    return body


PASS = Pass(
    __name__,
    run,
    "compute batches in parts, each through all layers",
    requires=(Property.TYPED, Property.ANF),
    options=SplitBatchOptions,
)
