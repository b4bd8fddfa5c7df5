"""Moves reads of a tensor before its update, so that the update happens where the tensor is.

    let next = @set_rows(cache, rows);              let now = @look_up(cache, i);
    let now = @look_up(cache, i);           ->      let next = @set_rows(cache, rows);
    loop(int(i + 1), next, now)                     loop(int(i + 1), next, now)

What updates an operand (a kernel that changes a part of it, an operator such as `set_row`) writes into
it where nobody else has it any more, and into a copy where somebody does: a cache that is read behind
its update was copied in every turn of a loop. Kernels have no effects, so one that does not need the
update may as well run before it, together with what it needs itself. A view reads what it shows.

Where a tensor is copied all the same, a remark says why: it is a constant, an input, or made outside
of the loop, all of which have to stay as they are; the update itself reads it twice; or something that
cannot be moved (a branch, a call, what reads both) reads it behind the update, perhaps as a view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from inlay.analysis.blocks import nested, operands, spine, with_blocks
from inlay.base.span import NO_SPAN, Span
from inlay.ir import make
from inlay.ir.core_ops import PUSH_ROW, SET_ROW
from inlay.ir.dims import free_symbols
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import Call, Const, Expr, Function, GlobalVar, If, Let, Match, OpRef, Project, Tuple, Var
from inlay.ir.kernel import Access, Kernel
from inlay.ir.module import Module
from inlay.ir.op import Effect
from inlay.ir.types import TensorType, TupleType
from inlay.ir.walk import free_vars
from inlay.memory.aliases import Aliases, find_aliases
from inlay.ops.joining import EXTEND
from inlay.passes.contract import Pass, PassContext, Property, Remark

COPIED = "copied"
"""The decision of the remarks."""

UPDATES = frozenset({SET_ROW, PUSH_ROW, EXTEND})
"""Operators that write into their first operand where nobody else has it."""


def run(module: Module, context: PassContext) -> Module:
    """Move reads. Cost: linear, but for blocks with updates: there times the number of updates."""
    functions: dict[str, Function] = {}
    for name, function in module.functions.items():
        mover = _Mover(module, context, function, is_entry=name in module.entries)
        functions[name] = replace(function, body=mover.block(function.body))
    return module.with_functions(functions)


@dataclass(frozen=True, slots=True)
class _Update:
    """A let that updates a tensor.

    Attributes:
        let: the update.
        tensor: that it updates.
        shown: the variables whose bytes that may be.
    """

    let: Let
    tensor: Expr
    shown: frozenset[Var]


class _Mover:
    """Goes through the blocks of a function of the module."""

    def __init__(self, module: Module, context: PassContext, root: Function, *, is_entry: bool) -> None:
        self._kernels: Mapping[str, Kernel] = module.kernels
        self._context = context
        self._root = root
        self._is_entry = is_entry
        self._aliases: Aliases | None = None
        self._said: set[Let] = set()
        # The function whose block is gone through, and what follows the blocks around that one.
        self._inside = [root]
        self._after: list[tuple[Sequence[Let], int, Expr]] = []

    @property
    def aliases(self) -> Aliases:
        """What variables of the function show; found where something is updated at all."""
        if self._aliases is None:
            self._aliases = find_aliases(self._root)
        return self._aliases

    def block(self, block: Expr) -> Expr:
        """Rewrite a block and those in it."""
        old, tail = spine(block)
        lets = list(old)
        for let in old:
            update = self._update(let)
            if update is not None:
                lets = self._before(lets, lets.index(let), update, tail)
                self._say_of_operand(update)
                self._say_of_rest(update)
        result = self._inner(tail, lets, len(lets), _NOTHING)
        for index, let in reversed(list(enumerate(lets))):
            value = self._inner(let.value, lets, index + 1, tail)
            result = make.let(let.var, value, result, span=let.span, place=let.place)
        return result

    def _inner(self, value: Expr, lets: Sequence[Let], index: int, tail: Expr) -> Expr:
        """Rewrite what is nested in a value, which lets from `index` on follow."""
        match value:
            case Function(body=body):
                around, self._after = self._after, []
                self._inside.append(value)
                made = replace(value, body=self.block(body))
                self._inside.pop()
                self._after = around
                return made
            case If() | Match():
                self._after.append((lets, index, tail))
                made = with_blocks(value, self.block)
                self._after.pop()
                return made
            case _:
                return value

    def _kernel(self, value: Expr) -> Kernel | None:
        if isinstance(value, Call) and isinstance(value.callee, GlobalVar):
            return self._kernels.get(value.callee.name)
        return None

    def _update(self, let: Let) -> _Update | None:
        """Return what a let updates, if it does."""
        call = let.value
        if not isinstance(call, Call):
            return None
        if isinstance(call.callee, OpRef):
            if call.callee.op not in UPDATES:
                return None
            tensor = call.args[0]
        else:
            kernel = self._kernel(call)
            ports = () if kernel is None else kernel.ports
            at = next((p.may_alias for p in ports if p.access is Access.UPDATE), None)
            if at is None:
                return None
            tensor = [a for a in call.args if isinstance(a.type, TensorType)][at]
        return _Update(let, tensor, self.aliases.of(tensor))

    # ------------------------------------------------------------------------------- moving

    def _before(self, lets: list[Let], start: int, update: _Update, tail: Expr) -> list[Let]:
        """Return the lets with reads of what is updated before the let that updates it."""
        places: dict[object, int] = {}
        for i, let in enumerate(lets[start:], start):
            places[let.var] = i
            places.update((d.sym, i) for d in opened_dims(let.value.type, let.var.type))
        moved: set[int] = set()
        # What may fail and be moved: it fails as early as before, if it is moved with those before it.
        failing: set[int] = set()
        may_fail = self._fails(update.let.value) is False
        for i, let in enumerate(lets[start + 1 :], start + 1):
            reads, fails = self._reads(operands(let.value), update), self._fails(let.value)
            needed = None
            if reads or (may_fail and fails is not False):
                needed = self._needed(lets, places, start, i, failing if may_fail else None)
            if fails is not False:
                may_fail = may_fail and fails is True and needed is not None
                failing |= needed or set() if may_fail else set()
            if reads and needed is not None:
                moved |= needed
            elif reads or self._reads_inside(let.value, update):
                self._say_read(update, let.value)
        if self._reads(free_vars(tail), update):
            self._say_read(update, tail)
        first = [lets[i] for i in sorted(moved)]
        rest = [let for i, let in enumerate(lets[start:], start) if i not in moved]
        return [*lets[:start], *first, *rest]

    def _reads(self, exprs: Iterable[Expr], update: _Update) -> bool:
        return not self.aliases.of_all(exprs).isdisjoint(update.shown)

    def _reads_inside(self, value: Expr, update: _Update) -> bool:
        return any(self._reads(free_vars(x), update) for x in nested(value))

    def _needed(
        self,
        lets: Sequence[Let],
        places: Mapping[object, int],
        start: int,
        position: int,
        failing: set[int] | None,
    ) -> set[int] | None:
        """Return what is to be moved with a let, itself included; None where that is not possible.

        Args:
            lets: of the block.
            places: where variables and symbols are bound.
            start: of the update.
            position: of the let.
            failing: lets that may fail and go along where another one does; None: none may.
        """
        found: set[int] = set()
        pending = [position]
        while pending:
            i = pending.pop()
            if i in found:
                continue
            let = lets[i]
            fails = self._fails(let.value)
            if i == start or fails is None or (fails and failing is None):
                return None
            if self._update(let) is not None:
                return None
            found.add(i)
            if fails and failing is not None:
                pending += [k for k in failing if k < i]
            reads = operands(let.value)
            types = (let.value.type, let.var.type, *(x.type for x in reads))
            symbols = (s for t in types for s in free_symbols(t))
            pending += [places[x] for x in (*reads, *symbols) if places.get(x, i) != i]
        return found

    def _fails(self, value: Expr) -> bool | None:
        """Whether a value may end the program, and does nothing else; None where it does."""
        match value:
            case Call(callee=OpRef(op=op)) if op.effect in (Effect.PURE, Effect.FAILS):
                return op.effect is Effect.FAILS
            case Call():
                kernel = self._kernel(value)
                return None if kernel is None or kernel.resource is not None else False
            case Tuple() | Project() | Function() | Const() | Var():
                return False
            case _:
                return None

    # ------------------------------------------------------------------------------- remarks

    def _say_of_operand(self, update: _Update) -> None:
        """Say where what is updated has to stay as it is, or is read by the update itself."""
        known, inside = self.aliases, self._inside[-1]
        shown = sorted(update.shown, key=lambda v: v.name)
        if isinstance(update.tensor, Const) or not known.constants.isdisjoint(shown):
            self._say(update, "constant", "it is a constant, which stays as it is")
        for var in shown:
            if var in known.constants:
                continue
            if known.homes[var] is not inside:
                self._say(
                    update,
                    "captured",
                    f"'{var.name}' is made outside, for all of its turns"
                    if inside in known.loops
                    else f"'{var.name}' is made outside of it",
                )
            elif self._is_entry and var in self._root.params:
                self._say(update, "input", f"'{var.name}' is an input, which belongs to the caller")
        call = update.let.value
        if sum(self._reads((x,), update) for x in operands(call)) > 1:
            self._say(update, "read-twice", "the update itself reads it twice")

    def _say_of_rest(self, update: _Update) -> None:
        """Say what reads behind the branches around the update."""
        for lets, index, tail in self._after:
            for value in (*(let.value for let in lets[index:]), tail):
                if self._reads(free_vars(value), update):
                    self._say_read(update, value)

    def _say_read(self, update: _Update, reader: Expr) -> None:
        """Say what reads behind an update: the first of them."""
        if update.let in self._said:
            return
        self._said.add(update.let)
        reads = free_vars(reader)
        views = sorted(v.name for v in reads if v is not update.tensor and self._reads((v,), update))
        through = f" as '{views[0]}'" if views and update.tensor not in reads else ""
        self._say(
            update,
            "view-behind" if through else "read-behind",
            f"{_name(reader)}, which cannot be moved, reads it{through} behind",
            reader.span,
        )

    def _say(self, update: _Update, reason: str, why: str, other: Span = NO_SPAN) -> None:
        name = f"'{update.tensor.name}'" if isinstance(update.tensor, Var) else "a constant"
        inside, where = self._inside[-1], ""
        if inside in self.aliases.names:
            turn = "turn" if inside in self.aliases.loops else "call"
            where = f" in every {turn} of '{self.aliases.names[inside].name}'"
        message = f"{name} is copied before its update '{update.let.var.name}'{where}: {why}"
        remark = Remark(PASS.name, COPIED, reason, message, update.let.span, other)
        self._context.remarks.add(remark)


_NOTHING = Tuple((), TupleType(()))


def _name(value: Expr) -> str:
    match value:
        case Call(callee=GlobalVar(name=name)) | Call(callee=Var(name=name)):
            return f"'{name}'"
        case Call(callee=OpRef(op=op)):
            return f"'{op.name}'"
        case If() | Match():
            return "a branch"
        case Function():
            return "a function"
        case _:
            return "what follows"


PASS = Pass(__name__, run, "move reads of a tensor before its update", requires=(Property.ANF,))
