"""Ways to run one operator on sample values: the columns of the differential test.

An executor gets the record of an operator, a sample and whether its dims are symbolic, and returns
the results as arrays; it says beforehand what it supports. Add one by adding a row to `EXECUTORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

import inlay
from inlay.arith.bounds import ANY, DIM
from inlay.arith.dtype import I64
from inlay.arith.expr import Int, Sym, evaluate, substitute
from inlay.arith.solve import Facts
from inlay.interp import loop as loop_evaluator
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.context import Context
from inlay.ir.core_ops import TO_CONTROL
from inlay.ir.dims import free_symbols
from inlay.ir.expr import Expr, Var
from inlay.ir.module import EntryNames, Module
from inlay.ir.types import ExistsType, IntType, ShapeType, TensorType, TupleType, Type
from inlay.loop import te
from inlay.loop.buffer import Buffer
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.scalar import Reduce
from inlay.loop.verify import verify
from inlay.ops._define import FusionPattern, OpDef, Sample
from tests.symbolic import symbolic_types


@dataclass(frozen=True)
class Setup:
    """A sample made ready: types, values of the symbols, arrays of the tensor arguments."""

    definition: OpDef
    sample: Sample
    types: tuple[Type, ...]
    dims: dict[Sym, int]
    result: tuple[TensorType, ...]
    arrays: list[np.ndarray]

    @property
    def result_type(self) -> Type:
        return self.definition.op.type_rule(context(self.types, self.dims), self.sample.attrs, self.types)


def prepare(d: OpDef, sample: Sample, *, symbolic: bool) -> Setup:
    types, dims = symbolic_types(sample) if symbolic else (sample.types(), {})
    result = d.op.type_rule(context(types, dims), sample.attrs, types)
    result = result.body if isinstance(result, ExistsType) else result
    fields = result.fields if isinstance(result, TupleType) else (result,)
    arrays = [np.asarray(a, order="C") for a in sample.args if isinstance(a, np.ndarray)]
    assert all(isinstance(f, TensorType) for f in fields)
    return Setup(d, sample, types, dims, fields, arrays)  # type: ignore[arg-type]


def context(types: tuple[Type, ...], dims: dict[Sym, int]) -> Context:
    """A context that knows which symbols are dims; values of control operands may be negative."""
    sizes = {s for t in types if isinstance(t, TensorType) for s in free_symbols(t)}
    return Context(facts=Facts(ranges={s: DIM if s in sizes else ANY for s in dims}))


def operands(setup: Setup, tensor: Callable[[str, TensorType], object]) -> list[object]:
    """Return the arguments as rules see them: what `tensor` makes of tensors, and integers."""
    found: list[object] = []
    for i, t in enumerate(setup.types):
        match t:
            case TensorType():
                found.append(tensor(f"x{i}", t))
            case IntType(value=value):
                found.append(value)
            case ShapeType(values=values):
                found.append(values)
            case _:
                raise AssertionError(f"operand of type {t}")
    return found


def expressions(setup: Setup) -> tuple[list[te.Tensor], tuple[te.Tensor, ...]]:
    """Return the placeholders and the results of the compute rule."""
    rule = setup.definition.compute
    assert rule is not None
    args = operands(setup, lambda name, t: te.placeholder(t.shape, t.dtype, name))
    made = rule(setup.sample.attrs, args, setup.result_type)
    inputs = [a for a in args if isinstance(a, te.Tensor)]
    return inputs, made if isinstance(made, tuple) else (made,)


def sum_length(setup: Setup) -> int:
    """Return how many terms the longest chain of reductions adds up."""
    if setup.definition.compute is None:
        return max([1, *(a.size for a in setup.arrays)])
    total, seen = 0, set[te.Tensor]()
    pending = list(expressions(setup)[1])
    while pending:
        t = pending.pop()
        if t in seen:
            continue
        seen.add(t)
        pending += t.inputs
        if isinstance(t.body, Reduce):
            total += prod(evaluate(a.extent, setup.dims) for a in t.body.axes)
    return max(1, total)


def kernel(setup: Setup) -> LoopFunction:
    """Return the schedulable function of the compute rule."""
    inputs, outputs = expressions(setup)
    return from_te(setup.definition.name, inputs, outputs)


def body(setup: Setup) -> LoopFunction:
    """Return the lowered function of the loops rule."""
    rule = setup.definition.loops
    assert rule is not None
    args = operands(setup, lambda name, t: Buffer(name, t.shape, t.dtype))
    reads = [a for a in args if isinstance(a, Buffer)]
    writes = [Buffer(f"y{i}", t.shape, t.dtype) for i, t in enumerate(setup.result)]
    made = rule(setup.sample.attrs, args, writes)
    params = (*reads, *writes)
    name = setup.definition.name
    return LoopFunction(name, params, len(reads), tuple(setup.dims), made, Stage.LOWERED)


def evaluated(f: LoopFunction, setup: Setup) -> Sequence[np.ndarray]:
    verify(f)
    return loop_evaluator.run(f, setup.arrays, {d: setup.dims[d] for d in f.dims})


def program(setup: Setup) -> tuple[Module, list[np.ndarray]]:
    """Return a module whose entry makes the call, and the arrays of its inputs.

    A symbol that no tensor has as a dim becomes an input of its own: an i64 of rank 0, which
    `to_control` turns into a size, as in a model whose sizes are data.
    """
    b = Builder()
    tensors = [b.param(f"x{i}", t) if isinstance(t, TensorType) else None for i, t in enumerate(setup.types)]
    arrays = list(setup.arrays)
    bound = {s for t in setup.types if isinstance(t, TensorType) for s in free_symbols(t)}
    sizes: dict[Sym, Var] = {}
    for s in setup.dims:
        if s not in bound:
            sizes[s] = b.param(s.name, TensorType((), I64))
            arrays.append(np.asarray(setup.dims[s], np.int64))
    known: dict[Sym, Int] = {}
    for s, x in sizes.items():
        size = b.emit(TO_CONTROL, (x,)).type
        assert isinstance(size, IntType)
        assert size.value is not None
        known[s] = size.value
    args: list[Expr] = []
    for t, x in zip(setup.types, tensors, strict=True):
        match t:
            case IntType(value=Int() as v):
                args.append(make.int_const(substitute(v, known)))
            case ShapeType(values=values):
                args.append(make.shape_const([substitute(v, known) for v in values if v is not None]))
            case _:
                assert x is not None
                args.append(x)
    result = b.emit(setup.definition.op, args, setup.sample.attrs)
    f = b.function(result)
    count = len(result.type.fields) if isinstance(result.type, TupleType) else 1
    names = EntryNames(tuple(p.name for p in f.params), tuple(f"y{i}" for i in range(count)))
    return Module({"main": f}, entries={"main": names}), arrays


def compiled(setup: Setup, threads: int = 1) -> Sequence[np.ndarray]:
    module, arrays = program(setup)
    result = inlay.compile(module, threads=threads, cache="none")(*arrays)
    found = result if isinstance(result, tuple) else (result,)
    return [np.asarray(r) for r in found]


@dataclass(frozen=True)
class Executor:
    """A column: which operators it runs, and how."""

    name: str
    supports: Callable[[OpDef], bool]
    run: Callable[[Setup], Sequence[np.ndarray]]
    most: int | None = None
    """How many samples of each operator run by default; all, where it is None."""


EXECUTORS: tuple[Executor, ...] = (
    Executor(
        "compute",
        lambda d: d.compute is not None and d.pattern is not FusionPattern.CONTROL,
        lambda setup: evaluated(kernel(setup), setup),
        most=1,
    ),
    Executor("loops", lambda d: d.loops is not None, lambda setup: evaluated(body(setup), setup)),
    Executor(
        "compiled",
        lambda d: bool(d.compute or d.loops or d.decompose or d.foreign) and d.name != "device_copy",
        compiled,
        most=1,
    ),
)
