"""What the tests of transforms share: building, running and looking at small programs."""

from __future__ import annotations

from collections import Counter

import numpy as np

from inlay.analysis.blocks import anf_faults, is_anf, values
from inlay.arith.dtype import F32
from inlay.arith.expr import fresh
from inlay.interp.tensor import evaluate, evaluate_expr
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Call, GlobalVar, OpRef
from inlay.ir.module import EntryNames, Module
from inlay.ir.verify import check
from inlay.ops.table import table
from inlay.passes.contract import PassContext, Property
from inlay.passes.discover import pass_table, passes_named
from inlay.passes.manager import make_pipeline

OPS = table()
PASSES = pass_table()


def context(*options) -> PassContext:
    """A context with the operators, the evaluator and these option records."""
    return PassContext(OPS, evaluate=evaluate_expr, options={type(o): o for o in options})


def run(passes: str, module: Module, *options, ctx: PassContext | None = None) -> Module:
    """The module after a list of passes."""
    ctx = ctx or context(*options)
    given = (Property.TYPED, *((Property.ANF,) if is_anf(module) else ()))
    for step in make_pipeline(passes_named(passes, [PASSES]), given).passes:
        module = step.run(module, ctx)
    return module


class Program(Builder):
    """A builder whose operators are called by name."""

    def op(self, name, *args, **attrs):
        definition = OPS.definition(name).op
        return self.emit(definition, args, definition.attrs_type(**attrs))

    def input(self, name, *shape, dtype=F32):
        return self.param(name, make.tensor_type(shape, dtype))

    def module(self, *results) -> Module:
        result = results[0] if len(results) == 1 else results
        names = tuple(p.name for p in self._params)
        outputs = tuple(f"y{i}" for i in range(len(results)))
        return Module({"main": self.function(result)}, entries={"main": EntryNames(names, outputs)})


def dims(*names):
    """Fresh symbols."""
    found = tuple(fresh(n) for n in names)
    return found[0] if len(found) == 1 else found


def noise(*shape, seed=0, dtype=np.float32, low=-1.0, high=1.0):
    """Reproducible numbers."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def value_of(module: Module, *inputs):
    """What the entry gives."""
    return evaluate(module, inputs)


def close(a, b, rtol=2e-5, atol=2e-6) -> bool:
    """Whether two values are equal up to rounding."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(close(x, y, rtol, atol) for x, y in zip(a, b))
    return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True)


def same(before: Module, after: Module, *inputs, exact=False) -> None:
    """Assert that both modules give the same, and that the second is in A-normal form."""
    assert anf_faults(after) == []
    check(after)
    a, b = value_of(before, *inputs), value_of(after, *inputs)
    if exact:
        np.testing.assert_equal(a, b)
    else:
        assert close(a, b), f"{a}\n{b}"


def operators(module: Module, name="main") -> Counter:
    """How often each operator or function is called in a function."""
    found = Counter()
    for value in values(module.functions[name].body):
        if isinstance(value, Call):
            match value.callee:
                case OpRef(op=op):
                    found[op.name] += 1
                case GlobalVar(name=called):
                    found["@" + called] += 1
                case _:
                    found["call"] += 1
    return found


def kernels(module: Module) -> list[str]:
    """The primitive functions, as lists of operators, sorted."""
    return sorted(f.primitive for f in module.functions.values() if f.primitive is not None)
