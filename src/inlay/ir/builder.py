"""Builds programs in A-normal form from Python: what importers use.

A `Builder` is a scope that accumulates lets (`scope`) and makes loops (`loop_trace`):

    b = Builder()
    x = b.param("x", tensor_type((n, 64), F32))
    y = b.if_(flag, lambda s: s.emit(RELU, (x,)), lambda s: x)
    main = b.function(b.emit(ADD, (x, y)))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inlay.arith.expr import Int
from inlay.base.diagnostics import error
from inlay.ir import make
from inlay.ir.core_ops import GET_ROW
from inlay.ir.expr import Expr, Var
from inlay.ir.loop_trace import LoopResult, LoopTrace, Step, flag
from inlay.ir.scope import LetBuilder
from inlay.ir.type_printer import type_text
from inlay.ir.types import TensorType


class Builder(LetBuilder):
    """A scope of lets under construction that may hold loops."""

    def loop(
        self,
        carried: Sequence[Expr],
        body: Callable[[Builder, Int, tuple[Var, ...]], Step],
        *,
        condition: Callable[[Builder, Int, tuple[Var, ...]], Expr] | None = None,
        count: Int | int | None = None,
        names: Sequence[str] = (),
        name: str = "loop",
    ) -> LoopResult:
        """Run a body while a condition holds and a count is not reached.

        Args:
            carried: the first values of what the steps hand on.
            body: makes one step from the scope, the counter (0, 1, ...) and the carried values.
            condition: a control bool, asked before each step; without it only the count decides.
            count: the greatest number of steps.
            names: of the carried values.
            name: of the loop function.

        Raises:
            CompileError: `type.loop-carried` where a step changes the kind of a carried value,
                `type.stacked-rows` where the size of rows differs from step to step.
        """
        assert condition is not None or count is not None, "a loop needs a condition or a count"
        return LoopTrace(self, [self.bind(c) for c in carried], body, condition, count, names, name).run()

    def scan(
        self,
        carried: Sequence[Expr],
        sequences: Sequence[Expr],
        body: Callable[[Builder, tuple[Var, ...], tuple[Expr, ...]], Step],
        *,
        reverse_sequences: Sequence[bool] = (),
        reverse_rows: Sequence[bool] = (),
        names: Sequence[str] = (),
        name: str = "scan",
    ) -> LoopResult:
        """Run a body for each row of the sequences, all of one length.

        Args:
            carried: the first values of what the steps hand on.
            sequences: at least one tensor; each step gets row `i` of each.
            body: makes one step from the scope, the carried values and the rows.
            reverse_sequences: which sequences are read from the last row to the first.
            reverse_rows: which stacked results are written from the last row to the first.
            names: of the carried values.
            name: of the loop function.
        """
        bound = self._of_one_length([self.bind(s) for s in sequences])
        first = bound[0].type
        assert isinstance(first, TensorType)
        length = first.shape[0]

        def step(s: Builder, i: Int, values: tuple[Var, ...]) -> Step:
            rows: list[Expr] = []
            for j, x in enumerate(bound):
                at = length - 1 - i if flag(reverse_sequences, j) else i
                rows.append(s.emit(GET_ROW, (x, make.int_const(at)), name="row"))
            return body(s, values, tuple(rows))

        return LoopTrace(
            self, [self.bind(c) for c in carried], step, None, length, names, name, reverse_rows
        ).run()

    def _of_one_length(self, sequences: list[Expr]) -> list[Expr]:
        assert sequences, "a scan needs a sequence"
        found: list[Expr] = []
        first: Int | None = None
        for x in sequences:
            if not isinstance(x.type, TensorType) or not x.type.shape:
                raise error(
                    "type.mismatch",
                    f"found {type_text(x.type)}, needed a tensor with rows to scan over",
                    span=x.span or self.span,
                )
            first = x.type.shape[0] if first is None else first
            if not self.known.facts.equal(first, x.type.shape[0]):
                checked = make.assume_shape(x, (first, *x.type.shape[1:]), "length of the scan")
                x = self.bind(checked, x.name if isinstance(x, Var) else "sequence")
            found.append(x)
        return found
