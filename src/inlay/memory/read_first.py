"""Moves reads of a tensor before its update, so that the update happens where the tensor is.

    let next = @set_rows(cache, rows);              let now = @look_up(cache, i);
    let now = @look_up(cache, i);           ->      let next = @set_rows(cache, rows);
    loop(int(i + 1), next, now)                     loop(int(i + 1), next, now)

A kernel that updates an operand writes into it where nobody reads it any more, and into a copy where
somebody does: a cache that is read behind its update was copied in every turn of a loop. Kernels have
no effects, so one that does not need the update may as well run before it, together with what it needs
itself. What cannot be moved (a branch, a call, what reads both) is named in a remark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from inlay.analysis.blocks import nested, operands, spine
from inlay.ir import make
from inlay.ir.dims import free_symbols
from inlay.ir.expr import Arm, Call, Expr, Function, GlobalVar, If, Let, Match, OpRef, Tuple, Var
from inlay.ir.kernel import Access, Kernel
from inlay.ir.module import Module
from inlay.ir.op import Effect
from inlay.ir.opening import opened_dims
from inlay.ir.types import TensorType
from inlay.ir.walk import free_vars
from inlay.passes.contract import Pass, PassContext, Property, Remark


def run(module: Module, context: PassContext) -> Module:
    """Move reads. Cost: linear, but for blocks with updates: there times the number of updates."""
    if not any(map(_is_update, module.kernels.values())):
        return module
    mover = _Mover(module.kernels, context)
    return module.with_functions(
        {n: replace(f, body=mover.block(f.body)) for n, f in module.functions.items()}
    )


def _is_update(kernel: Kernel) -> bool:
    return any(p.access is Access.UPDATE for p in kernel.ports)


class _Mover:
    """Goes through the blocks of a module."""

    def __init__(self, kernels: Mapping[str, Kernel], context: PassContext) -> None:
        self._kernels = kernels
        self._context = context

    def block(self, block: Expr) -> Expr:
        """Rewrite a block and those in it."""
        old, tail = spine(block)
        lets = list(old)
        for let in old:
            updated = self._updated(let.value)
            if updated is not None:
                lets = self._before(lets, lets.index(let), updated, tail)
        result = self._inside(tail)
        for let in reversed(lets):
            value = self._inside(let.value)
            result = make.let(let.var, value, result, span=let.span, place=let.place)
        return result

    def _inside(self, value: Expr) -> Expr:
        match value:
            case Function(body=body):
                return replace(value, body=self.block(body))
            case If(then=then, otherwise=otherwise):
                return replace(value, then=self.block(then), otherwise=self.block(otherwise))
            case Match(arms=arms):
                new = tuple([Arm(arm.pattern, self.block(arm.body)) for arm in arms])
                return replace(value, arms=new)
            case _:
                return value

    def _kernel(self, value: Expr) -> Kernel | None:
        if isinstance(value, Call) and isinstance(value.callee, GlobalVar):
            return self._kernels.get(value.callee.name)
        return None

    def _updated(self, value: Expr) -> Var | None:
        """Return the variable that a call updates."""
        kernel = self._kernel(value)
        if kernel is None or not isinstance(value, Call):
            return None
        at = next((p.may_alias for p in kernel.ports if p.access is Access.UPDATE), None)
        tensors = [a for a in value.args if isinstance(a.type, TensorType)]
        found = None if at is None else tensors[at]
        return found if isinstance(found, Var) else None

    def _before(self, lets: list[Let], start: int, updated: Var, tail: Expr) -> list[Let]:
        """Return the lets with reads of a variable before the one that updates it."""
        places: dict[object, int] = {}
        for i, let in enumerate(lets[start:], start):
            places[let.var] = i
            places.update((d.sym, i) for d in opened_dims(let.value.type, let.var.type))
        moved: set[int] = set()
        for i, let in enumerate(lets[start + 1 :], start + 1):
            if any(x is updated for x in operands(let.value)):
                needed = self._needed(lets, places, start, i)
                if needed is None:
                    self._say(updated, lets[start], let.value)
                else:
                    moved |= needed
            elif any(updated in free_vars(x) for x in nested(let.value)):
                self._say(updated, lets[start], let.value)
        if updated in free_vars(tail):
            self._say(updated, lets[start], tail)
        first = [lets[i] for i in sorted(moved)]
        rest = [let for i, let in enumerate(lets[start:], start) if i not in moved]
        return [*lets[:start], *first, *rest]

    def _needed(
        self, lets: Sequence[Let], places: Mapping[object, int], start: int, position: int
    ) -> set[int] | None:
        """Return what is to be moved with a let, itself included; None where that is not possible."""
        found: set[int] = set()
        pending = [position]
        while pending:
            i = pending.pop()
            if i in found:
                continue
            let = lets[i]
            if i == start or not self._is_pure(let.value):
                return None
            found.add(i)
            reads = operands(let.value)
            types = (let.value.type, let.var.type, *(x.type for x in reads))
            symbols = (s for t in types for s in free_symbols(t))
            pending += [places[x] for x in (*reads, *symbols) if places.get(x, i) != i]
        return found

    def _is_pure(self, value: Expr) -> bool:
        match value:
            case Call(callee=OpRef(op=op)):
                return op.effect is Effect.PURE and not op.in_place
            case Call():
                kernel = self._kernel(value)
                return kernel is not None and not _is_update(kernel)
            case _:
                return isinstance(value, Tuple)

    def _say(self, updated: Var, update: Let, reader: Expr) -> None:
        message = (
            f"'{updated.name}' is copied before its update '{update.var.name}': {_name(reader)}, "
            "which cannot be moved, reads it behind"
        )
        self._context.remarks.add(
            Remark(PASS.name, "copied", "read-behind", message, update.span, reader.span)
        )


def _name(value: Expr) -> str:
    match value:
        case Call(callee=GlobalVar(name=name)) | Call(callee=Var(name=name)):
            return f"'{name}'"
        case If() | Match():
            return "a branch"
        case Function():
            return "a function"
        case _:
            return "what follows"


PASS = Pass(
    __name__,
    run,
    "move reads of a tensor before its update",
    requires=(Property.ANF, Property.LOWERED),
)
