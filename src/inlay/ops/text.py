"""Operators on the contents of strings: concatenation, letters, parts, patterns, numbers in decimal.

Strings are on the host alone, and only Python code looks into them: `runtime/text.py` has the meaning
of each operator, which is also what runs behind its kernel. What only moves strings or compares them
for equality is no matter of this file, for at run time an element is a number.

Operands that ONNX has as attributes are tensors here, as attributes of the user's operators are: so
they reach the kernel as constants, and nothing is added to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from inlay.arith.dtype import BF16, BOOL, F16, F32, F64, I8, I64, STRING, U64, DType
from inlay.ir.op import Effect, NoAttrs, TypeContext
from inlay.ir.types import TensorType
from inlay.ops import _rules as rules
from inlay.ops._define import Foreign, FusionPattern, OpDef, Sample, define
from inlay.ops._rules import NUMBERS, Types
from inlay.ops._samples import edges
from inlay.runtime import text

_TEXT = (STRING,)
_WORDS = ("b, a", "", "a", " B  c ", "\u00e4\u00df,", "a,b,c")
_NUMBERS = ("1", "-20", "+3", " 4 ", "0", "18446744073709551615")
_REALS = ("1.5", "-2e3", ".5", "NaN", "INF", "-inf")


def _texts(items: Sequence[str], shape: Sequence[int]) -> np.ndarray:
    made = np.empty(len(items), object)
    made[:] = items
    return made.reshape(tuple(shape))


def _one(value: str) -> np.ndarray:
    return _texts((value,), ())


def _elements(dtype: DType) -> Callable[[TypeContext, NoAttrs, Types], TensorType]:
    """Return the rule of what maps strings to elements of one dtype."""

    def rule(ctx: TypeContext, _attrs: NoAttrs, args: Types) -> TensorType:
        return TensorType(rules.tensor(ctx, args, 0, _TEXT).shape, dtype)

    return rule


def _concat_rule(ctx: TypeContext, _attrs: NoAttrs, args: Types) -> TensorType:
    x, y = rules.tensors(ctx, args, _TEXT)
    return TensorType(rules.broadcast(ctx, (x.shape, y.shape)), STRING)


def _match_rule(ctx: TypeContext, _attrs: NoAttrs, args: Types) -> TensorType:
    x, pattern = rules.tensors(ctx, args, _TEXT)
    rules.of_rank(ctx, pattern, 0, "the pattern")
    return TensorType(x.shape, BOOL)


def _counts_rule(ctx: TypeContext, _attrs: NoAttrs, args: Types) -> TensorType:
    return TensorType(_split_operand(ctx, args).shape, I64)


def _split_rule(ctx: TypeContext, _attrs: NoAttrs, args: Types) -> TensorType:
    x, shape = _split_operand(ctx, args), rules.shape_values(ctx, args, 3)
    if len(shape) != len(x.shape) + 1:
        raise ctx.fail(f"found {len(shape)} dims, needed those of the strings and one more")
    for i, (found, needed) in enumerate(zip(shape, x.shape, strict=False)):
        ctx.equal(found, needed, f"dim {i} of the parts and of the strings")
    return TensorType(shape, STRING)


def _split_operand(ctx: TypeContext, args: Types) -> TensorType:
    x, delimiter = (rules.tensor(ctx, args, i, _TEXT) for i in range(2))
    rules.of_rank(ctx, delimiter, 0, "the delimiter")
    rules.of_rank(ctx, rules.tensor(ctx, args, 2, (I64,)), 0, "the greatest number of splits")
    return x


def _write_rule(ctx: TypeContext, _attrs: NoAttrs, args: Types) -> TensorType:
    return TensorType(rules.tensor(ctx, args, 0, NUMBERS).shape, STRING)


def _samples(items: Sequence[str], *more: np.ndarray) -> Callable[[], list[Sample]]:
    def make() -> list[Sample]:
        x, rest = _texts(items, (2, 3)), tuple(() for _ in more)
        return [
            Sample("matrix", NoAttrs(), (x, *more), (("n", 3), *rest)),
            Sample("rank 0", NoAttrs(), (x[0, 0:1].reshape(()), *more)),
            Sample("empty", NoAttrs(), (x[:0], *more), (("n", 3), *rest)),
        ]

    return make


def _concat_samples() -> list[Sample]:
    x, y = _texts(_WORDS, (2, 3)), _texts(("", "x"), (2, 1))
    return [
        Sample("broadcast", NoAttrs(), (x, y), (("n", 3), ("n", 1))),
        Sample("rank 0", NoAttrs(), (_one("a"), _one("b"))),
        Sample("empty", NoAttrs(), (x[:0], _one("b")), (("n", 3), ())),
    ]


def _split_samples() -> list[Sample]:
    x = _texts(_WORDS, (2, 3))
    made: list[Sample] = []
    for delimiter, most, width in ((",", -1, 3), ("", 1, 2), (", ", 0, 1)):
        name = f"{delimiter!r} up to {most}"
        args = (x, _one(delimiter), np.array(most, np.int64), (2, 3, width))
        made.append(Sample(name, NoAttrs(), args, (("n", 3), (), (), ("n", 3, "k"))))
    return made


def _write_samples() -> list[Sample]:
    made = [Sample(f"{d}", NoAttrs(), (edges(d),), (("n",),)) for d in (F16, BF16, F32, F64, I8, U64)]
    return [*made, Sample("rank 0", NoAttrs(), (np.array(7, np.int32),))]


def _meaning(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Return a function of the runtime as a reference, which gets attributes in front."""

    def run(_attrs: object, *args: Any) -> np.ndarray:
        return function(*args)

    # The page of operators names operands after the parameters.
    own = inspect.signature(function)
    attrs = inspect.Parameter("_attrs", inspect.Parameter.POSITIONAL_ONLY)
    setattr(run, "__signature__", own.replace(parameters=[attrs, *own.parameters.values()]))  # noqa: B010
    return run


def _op(
    name: str,
    rule: Callable[[TypeContext, NoAttrs, Types], TensorType],
    samples: Callable[[], list[Sample]],
    doc: str,
    effect: Effect = Effect.PURE,
) -> OpDef:
    """Return the record of an operator whose meaning and code are the runtime's function of that name."""
    function: Callable[..., np.ndarray] = getattr(text, name)
    arity = len(inspect.signature(function).parameters)
    reference = _meaning(function)
    made = define(
        f"string_{name}",
        NoAttrs,
        rule,
        arity,
        FusionPattern.OPAQUE,
        doc,
        reference=reference,
        samples=samples,
        effect=effect,
    )
    return replace(made, foreign=Foreign("python", text.PREFIX + name))


_PART = (_one(","), np.array(-1, np.int64))

DEFINITIONS: tuple[OpDef, ...] = (
    _op("concat", _concat_rule, _concat_samples, "the strings of y behind those of x, which broadcast"),
    _op("lower", _elements(STRING), _samples(_WORDS), "letters in lower case"),
    _op("upper", _elements(STRING), _samples(_WORDS), "letters in upper case"),
    _op(
        "full_match",
        _match_rule,
        _samples(_WORDS, _one(r"[a-c, ]+")),
        "whether a regular expression matches the whole of an element",
    ),
    _op(
        "split_counts",
        _counts_rule,
        _samples(_WORDS, *_PART),
        "how many parts an element has: x, the delimiter (empty for white space), the "
        "greatest number of splits (negative for any)",
    ),
    _op(
        "split",
        _split_rule,
        _split_samples,
        "the parts of each element along a last axis, empty strings behind them; operands "
        "as of string_split_counts, and the dims of the result",
    ),
    _op(
        "order",
        _elements(I64),
        _samples(_WORDS),
        "the place of each element in the order of code points, where equal ones share one",
    ),
    _op(
        "to_int",
        _elements(I64),
        _samples(_NUMBERS),
        "integers in decimal; from 2**63 on as the i64 of the same bits; stops the program at anything else",
        Effect.FAILS,
    ),
    _op(
        "to_float",
        _elements(F64),
        _samples(_REALS),
        "numbers in decimal, NaN, INF and -INF; stops the program at anything else",
        Effect.FAILS,
    ),
    _op("of", _write_rule, _write_samples, "numbers as strings, as short as reading them back allows"),
)
