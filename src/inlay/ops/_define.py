"""What an operator is: one record that holds everything about it.

`ir.op.Op` is what the IR sees (name, attributes, type rule, effects). `OpDef` adds what the layers
above need: the meaning in NumPy, how to compute it, what fusion may assume, and sample inputs that
the differential tests run through every executor. A family file makes its records with `define` and
lists them in `DEFINITIONS`; `table.py` collects the files.

**Operands.** Rules see an argument by its type: a tensor is an array (reference), a `te.Tensor`
(compute) or a `Buffer` (loops); an `int` operand is a Python int, or an `Int` when compiling; a
`shape` operand is a tuple of those; a `bool` operand is a Python bool and never reaches a compute
rule. Numbers that are not known when compiling arrive as symbols.

**Ways to compute**, in order of preference: `compute` (tensor expressions, fusable), `loops` (a
lowered body, for what is not one value per element), `decompose` (other operators). Operators of
pattern `CONTROL` have none: they work on unboxed values and the virtual machine runs them itself.

**Numerics.** `f16` and `bf16` compute in f32 and round once at the end. Integers wrap, and integer
division is total: dividing by zero gives 0. Sums of floats have the order of the schedule; the
reference sums pairwise, and tests compare within `tests/tolerance.py`. A reference never warns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeVar, cast

import numpy as np

from inlay.arith.dtype import from_numpy
from inlay.arith.expr import Int, to_int
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr, Function
from inlay.ir.op import Effect, Op, TypeContext, TypeRule
from inlay.ir.types import BOOL_CONTROL, IntType, ShapeType, TensorType, Type
from inlay.loop import te
from inlay.loop.buffer import Buffer
from inlay.loop.stmt import Stmt

Operand = te.Tensor | Int | tuple[Int, ...]
"""An argument as a compute rule sees it."""


Argument = np.ndarray | int | bool | tuple[int, ...] | tuple[np.ndarray, ...]
"""An argument or result as a reference sees it."""

ComputeRule = Callable[[Any, Sequence[Any], Any], te.Tensor | tuple[te.Tensor, ...]]
"""`(attrs, operands, result type)` to the result, or one tensor per field of a tuple result."""

LoopsRule = Callable[[Any, Sequence[Any], Sequence[Buffer]], Stmt]
"""`(attrs, operands, outputs)` to a lowered statement that writes every element of the outputs."""

DecomposeRule = Callable[[Builder, Any, tuple[Expr, ...]], Expr | None]
"""`(builder, attrs, args)` to other operators: emits lets and returns the result."""

TermsRule = Callable[[Any, TensorType, TensorType], Int]
"""`(attrs, operands' types)` to how many products are summed for one element of the result."""

Reference = Callable[..., Any]
"""`(attrs, *args)` to the result: the meaning."""


class FusionPattern(StrEnum):
    """What one element of the result reads: the question that fusion asks.

    The members are ordered from easy to hard to fuse. A property holds for every call of an
    operator; fusion may find more (a broadcast between equal shapes is element-wise).
    """

    ELEMENTWISE = "elementwise"
    """The element at the same index of every operand."""
    BROADCAST = "broadcast"
    """One element of every operand, at the same index or with indices left out."""
    LAYOUT = "layout"
    """One element of one operand, at an index computed from the result's (reshape, gather)."""
    REDUCTION = "reduction"
    """Many elements; further work on the result can follow in the same kernel."""
    CONTRACTION = "contraction"
    """Sums of products that pay for tiling; element-wise work may follow."""
    OPAQUE = "opaque"
    """Anything; stands alone in its kernel."""
    CONTROL = "control"
    """Not a tensor computation: unboxed values, checks, storage."""


class Cost(StrEnum):
    """What one element of an element-wise operator or of a reduction takes."""

    CHEAP = "cheap"
    """An instruction or a few."""
    DIVISION = "division"
    """An instruction that takes as long as many: not to be repeated."""
    FUNCTION = "function"
    """A polynomial: tens of instructions."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One call to try: attributes, values, and which dims to make symbolic.

    Attributes:
        name: what is special about it.
        attrs: the attribute record.
        args: the values; their types follow from them.
        symbolic: for each argument the dims (of a tensor) or values (of an int or shape) as names
            or numbers; a name stands for a symbol whose value is what `args` has there. Empty when
            the sample has no symbolic variant.
        exact: whether float results must agree to the bit.
    """

    name: str
    attrs: object
    args: tuple[Argument, ...]
    symbolic: tuple[tuple[str | int, ...] | str | int | None, ...] = ()
    exact: bool = False

    def types(self) -> tuple[Type, ...]:
        """Return the types of the arguments, with every dim and control value known."""
        return tuple(_type_of(a) for a in self.args)


def _type_of(arg: Argument) -> Type:
    match arg:
        case np.ndarray():
            return TensorType(tuple(map(to_int, arg.shape)), from_numpy(arg.dtype))
        case bool():
            return BOOL_CONTROL
        case int():
            return IntType(to_int(arg))
        case _:
            return ShapeType(tuple(to_int(cast(int, v)) for v in arg))


def no_samples() -> Sequence[Sample]:
    """Return no samples: for operators that only the machine can run."""
    return ()


@dataclass(frozen=True, slots=True)
class Foreign:
    """Code from outside behind an operator: what the body of its kernel will be.

    Attributes:
        language: `python` or `c`.
        name: under which the code is looked up when the program is loaded.
        library: where a C function was found; empty where it is given when the program is loaded.
        symbol: its name there.
        resource: what its calls use one after the other; empty for pure code.
    """

    language: Literal["python", "c"]
    name: str
    library: str = ""
    symbol: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ForeignOp(Op):
    """An operator that no table has: it carries its own record.

    Attributes:
        record: returns the record, which refers to the operator.
    """

    record: Callable[[], OpDef] = field(kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class OpDef:
    """Everything about an operator.

    Attributes:
        op: what the IR sees; `op.in_place` and `op.alias` are the in-place facts. An in-place
            argument may give its buffer to the result only where both types are equal.
        pattern: what fusion may assume.
        reference: the meaning in NumPy; None for what only exists in explicit storage.
        compute: the result as tensor expressions.
        loops: the result as a lowered loop body.
        update: the same where the output holds operand 0 already: it writes only what differs. Used
            where the operand's buffer can be taken over; it is `op.in_place` then.
        decompose: the result in terms of other operators; it may decline with None where there are
            other rules.
        commutative: for binary operators, whether the operands may be exchanged.
        foreign: code from outside that is called with the operands; all of them are tensors.
        function: for operators of the user that are written in the language: the function that a
            call stands for, typed and in A-normal form, from the attributes.
        samples: makes the sample calls; a function, so that importing costs nothing.
        form_of: name of the operator that this one computes for operands in another layout; empty
            for operators in their own right. Boards and pins speak of that one.
        cost: of an element.
        terms: of contractions: the products that are summed for one element.
        stands_alone: whether it is a kernel of its own, as what copies or updates parts is.
    """

    op: Op
    pattern: FusionPattern
    reference: Reference | None = None
    compute: ComputeRule | None = None
    loops: LoopsRule | None = None
    decompose: DecomposeRule | None = None
    commutative: bool = False
    samples: Callable[[], Sequence[Sample]] = no_samples
    foreign: Foreign | None = None
    function: Callable[[Any], Function] | None = None
    update: LoopsRule | None = None
    form_of: str = ""
    cost: Cost = Cost.CHEAP
    terms: TermsRule | None = None
    stands_alone: bool = False

    @property
    def name(self) -> str:
        """The name of the operator."""
        return self.op.name

    @property
    def is_injective(self) -> bool:
        """Whether each element of the result reads one element of each operand it reads."""
        easy = (FusionPattern.ELEMENTWISE, FusionPattern.BROADCAST, FusionPattern.LAYOUT)
        return self.pattern in easy

    def evaluate(self, attrs: object, *args: Argument) -> Any:
        """Run the reference, silently. Tensors come as arrays, those of rank 0 too."""
        assert self.reference is not None, f"{self.name} has no meaning outside explicit storage"
        with np.errstate(all="ignore"):
            return _arrays(self.reference(attrs, *args))


def _arrays(result: Any) -> Any:
    """Make dense arrays of results, also of the scalars that NumPy returns for rank 0."""
    if isinstance(result, tuple):
        return tuple([_arrays(r) for r in cast(tuple[Any, ...], result)])
    if isinstance(result, np.generic | np.ndarray):
        return np.asarray(cast(Any, result), order="C")
    return result


A = TypeVar("A")


def define(
    name: str,
    attrs: type[A],
    rule: Callable[[TypeContext, A, tuple[Type, ...]], Type],
    arity: int | tuple[int, int | None],
    pattern: FusionPattern,
    doc: str,
    *,
    reference: Reference | None = None,
    compute: ComputeRule | None = None,
    loops: LoopsRule | None = None,
    decompose: DecomposeRule | None = None,
    update: LoopsRule | None = None,
    samples: Callable[[], Sequence[Sample]] = no_samples,
    commutative: bool = False,
    effect: Effect = Effect.PURE,
    alias: int | None = None,
    in_place: tuple[int, ...] = (),
    data_dependent: bool = False,
    form_of: str = "",
    cost: Cost = Cost.CHEAP,
    terms: TermsRule | None = None,
    stands_alone: bool = False,
) -> OpDef:
    """Make the record of an operator; see `OpDef` and `ir.op.Op` for the fields."""
    op = Op(
        name=name,
        attrs_type=attrs,
        # The table calls a rule with records of `attrs_type` only: that is what the cast says.
        type_rule=cast(TypeRule, rule),
        arity=(arity, arity) if isinstance(arity, int) else arity,
        effect=effect,
        alias=alias,
        in_place=in_place,
        data_dependent=data_dependent,
        doc=doc,
    )
    return OpDef(
        op,
        pattern,
        reference,
        compute,
        loops,
        decompose,
        commutative,
        samples,
        update=update,
        form_of=form_of,
        cost=cost,
        terms=terms,
        stands_alone=stands_alone,
    )


def by_name(definitions: Sequence[OpDef]) -> dict[str, OpDef]:
    """Return the records of a family by the names of their operators."""
    return {d.name: d for d in definitions}
