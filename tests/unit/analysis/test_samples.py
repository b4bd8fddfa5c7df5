"""Which operators compute each sample from the same sample: what is said of them holds for all their samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from inlay.analysis.samples import keeps_samples_apart
from inlay.arith.expr import fresh, to_int
from inlay.base.diagnostics import InlayError
from inlay.ir import make
from inlay.ir.expr import Call, OpRef
from inlay.ir.parser import parse_module
from inlay.ir.types import ShapeType, TensorType
from inlay.ir.walk import spine
from inlay.ops._define import OpDef, Sample
from inlay.ops.table import table

OPS = table()
COUNT = fresh("n")


def is_apart(text: str, params: str = "x: Tensor[n, 3, 4, f32]") -> bool:
    """Whether an operation of inputs with `n` samples keeps them apart."""
    module = parse_module(f"fn main<n>({params}) {{ let y = {text}; y }}", OPS)
    function = module.functions["main"]
    call = spine(function.body)[0][-1].value
    assert isinstance(call, Call)
    assert isinstance(call.callee, OpRef)
    rule = OPS.definition(call.callee.op).compute
    assert rule is not None
    return keeps_samples_apart(call, rule, function.dims[0].sym)


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("relu(x)", "x: Tensor[n, 3, 4, f32]"),
        ("add(x, b)", "x: Tensor[n, 3, 4, f32], b: Tensor[4, f32]"),
        ("add(x, y)", "x: Tensor[n, 3, 4, f32], y: Tensor[n, 1, 4, f32]"),
        ("matmul(x, w)", "x: Tensor[n, 3, 4, f32], w: Tensor[4, 5, f32]"),
        ("matmul(x, y)", "x: Tensor[n, 3, 4, f32], y: Tensor[n, 4, 2, f32]"),
        ("conv(x, w)", "x: Tensor[n, 3, 8, 8, f32], w: Tensor[5, 3, 3, 3, f32]"),
        ("softmax{axis=2}(x)", "x: Tensor[n, 3, 4, f32]"),
        ("reduce_sum{axes=[1]}(x)", "x: Tensor[n, 3, 4, f32]"),
        ("transpose{perm=[0, 2, 1]}(x)", "x: Tensor[n, 3, 4, f32]"),
        ("reshape(x, shape(n, 2, 6))", "x: Tensor[n, 3, 4, f32]"),
        ("concat{axis=1}(x, y)", "x: Tensor[n, 3, f32], y: Tensor[n, 2, f32]"),
        ("slice{axes=[1]}(x, shape(0), shape(2), shape(1))", "x: Tensor[n, 3, f32]"),
        ("gather{axis=0}(t, i)", "t: Tensor[9, 4, f32], i: Tensor[n, 3, i64]"),
    ],
)
def test_operations_that_keep_samples_apart(text: str, params: str):
    assert is_apart(text, params)


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("softmax{axis=0}(x)", "x: Tensor[n, 3, 4, f32]"),
        ("slice{axes=[0]}(x, shape(n - 1), shape(-n - 1), shape(-1))", "x: Tensor[n, 3, f32]"),
        ("matmul(x, y)", "x: Tensor[n, n, f32], y: Tensor[n, 2, f32]"),
        ("flip{axes=[0]}(x)", "x: Tensor[n, 3, f32]"),
        ("trilu(x, int(0))", "x: Tensor[n, 3, f32]"),
        ("gather{axis=0}(x, i)", "x: Tensor[n, 3, f32], i: Tensor[n, i64]"),
    ],
)
def test_operations_that_mix_samples(text: str, params: str):
    assert not is_apart(text, params)


@dataclass(frozen=True)
class Case:
    """A sample of an operator: which operands have samples, and how many."""

    definition: OpDef
    sample: Sample
    cut: tuple[bool, ...]
    size: int

    def __str__(self) -> str:
        return f"{self.definition.name}: {self.sample.name}, {self.cut}"


def cases() -> list[Case]:
    found: list[Case] = []
    for definition in OPS:
        for sample in definition.samples() if definition.compute is not None else ():
            lengths = [a.shape[0] if isinstance(a, np.ndarray) and a.ndim else 0 for a in sample.args]
            for size in {n for n in lengths if n > 1}:
                same = [n == size for n in lengths]
                shapes = [isinstance(a, tuple) and a[:1] == (size,) for a in sample.args]
                first = [i == same.index(True) for i in range(len(same))]
                both = [a or b for a, b in zip(same, shapes)]
                for cut in {tuple(x) for x in (same, first, both, np.logical_or(first, shapes).tolist())}:
                    found.append(Case(definition, sample, cut, size))
    return found


def symbolic(case: Case) -> Call | None:
    """The call for any number of samples; None where types do not allow it."""
    args = []
    for t, is_cut in zip(case.sample.types(), case.cut):
        if isinstance(t, TensorType):
            shape = (to_int(COUNT), *t.shape[1:]) if is_cut else t.shape
            args.append(make.var("x", TensorType(shape, t.dtype)))
        elif isinstance(t, ShapeType):
            args.append(make.shape_const((to_int(COUNT), *t.values[1:]) if is_cut else t.values))
        else:
            return None
    try:
        made = make.call(case.definition.op, args, case.sample.attrs)
    except InlayError:
        return None
    is_plain = isinstance(made, Call) and all(a is b for a, b in zip(made.args, args))
    return made if is_plain and isinstance(made.type, TensorType) and made.type.shape else None


def of_samples(case: Case, first: int, end: int) -> np.ndarray:
    """The meaning of the operator on some of the samples."""
    args = [
        a if not is_cut else a[first:end] if isinstance(a, np.ndarray) else (end - first, *a[1:])
        for a, is_cut in zip(case.sample.args, case.cut)
    ]
    return case.definition.reference(case.sample.attrs, *args)


def test_what_is_kept_apart_may_be_computed_in_parts():
    kept: set[str] = set()
    for case in cases():
        call, rule = symbolic(case), case.definition.compute
        if call is None or call.type.shape[0] != to_int(COUNT):
            continue
        assert rule is not None
        if not keeps_samples_apart(call, rule, COUNT):
            continue
        kept.add(case.definition.name)
        with np.errstate(all="ignore"):
            whole = of_samples(case, 0, case.size)
            parts = [(r, of_samples(case, *r)) for r in ((0, 1), (1, case.size))]
        for (first, end), part in parts:
            np.testing.assert_allclose(
                np.asarray(part, np.float64),
                np.asarray(whole[first:end], np.float64),
                rtol=1e-5,
                atol=1e-6,
                err_msg=str(case),
            )
    assert len(kept) > 60, sorted(kept)
