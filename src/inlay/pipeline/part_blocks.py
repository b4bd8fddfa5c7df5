"""Parts of a block's tensors: concatenations and slices that need no copy, and the block without them.

    let a = @conv(x, w);                       let y.0 = @conv.0(x, w);
    let b = @relu(x);                          let y = @relu.0(x, y.0);
    let y = @concat(a, b);             ->      let z = @neg.0(y);
    let z = @neg(a);

A *whole* is a tensor that has others as parts along an axis. Kernels that make a part get a variant that
writes it where it is in the whole (`Access.FILL`: all else of the whole stays), and kernels that read a part
get one that is given the whole (`lower.in_windows`). Two kinds of wholes are found:

* **Joins**: the result of a concatenation, with all concatenations along the same axis that are in it: those
  that are its operands, and those whose parts stand side by side in it, as in dense blocks. What cannot be
  made in place (inputs, constants, what others than kernels read, a part of two wholes) is copied, each
  part by a kernel of its own.
* **Cuts**: what is cut out of a tensor along an axis is read there.

Parts that lie in one piece are left to `skip-copies`, which needs no other code for them.

**When it is right.** The function stays as pure as it was: every kernel takes the whole as the kernel before
gave it, and gives one with one part more. So parts are in order, and what reads a part takes a whole that
has it. That these are one tensor is for `explicit-alloc` to use; nobody but these kernels has it before its
last part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inlay.analysis.blocks import count_uses, with_blocks
from inlay.arith.expr import Sym
from inlay.bytecode.verify_tables import MAX_PORTS
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, Function, GlobalVar, Let, OpRef, Var
from inlay.ir.kernel import Access, Kernel
from inlay.ir.types import TensorType
from inlay.ir.walk import spine
from inlay.lower.in_windows import Window, Windows
from inlay.ops.joining import AxisAttrs
from inlay.ops.slicing import SLICE, AxesAttrs
from inlay.ops.table import OperatorTable
from inlay.pipeline.build_kernels import LoopBody

_MOST_FORMS = 2
"""How many smaller forms of each kind a join has."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """An operand of a concatenation in the whole.

    Attributes:
        tensor: the operand.
        first: its first index along the axis.
        size: along the axis.
    """

    tensor: Expr
    first: int
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """A whole that concatenations make.

    Attributes:
        whole: the result of the last concatenation.
        axis: of all of them.
        parts: that it consists of, in order along the axis.
        made: variables of the parts that are made in place; the last one made first.
        inner: results of the other concatenations, with their first indices.
    """

    whole: Var
    axis: int
    parts: tuple[Part, ...]
    made: tuple[Var, ...]
    inner: Mapping[Var, int]

    def copied(self) -> Iterator[str]:
        """Yield the names of the parts that are copied."""
        there = set[Var]()
        for part in self.parts:
            var = part.tensor
            if not isinstance(var, Var):
                yield "a constant"
            elif var in there or var not in self.made:
                yield var.name
            else:
                there.add(var)

    def forms(self) -> Iterator[Join]:
        """Yield it, then forms that take fewer bytes for a time.

        First those without the last concatenations, which copy what is joined before them, then those with
        copies of the parts that are made first.
        """
        yield self
        ends = sorted((v for v, first in self.inner.items() if first == 0), key=lambda v: -_end(v, self.axis))
        for whole in ends[:_MOST_FORMS]:
            size = _end(whole, self.axis)
            parts = tuple(p for p in self.parts if p.first + p.size <= size)
            mine = {p.tensor for p in parts}
            made = tuple(v for v in self.made if v in mine)
            inner = {
                v: first
                for v, first in self.inner.items()
                if v is not whole and first + _end(v, self.axis) <= size
            }
            if made and size < _end(self.whole, self.axis):
                yield Join(whole, self.axis, parts, made, inner)
        for count in range(1, min(len(self.made), _MOST_FORMS + 1)):
            yield Join(self.whole, self.axis, self.parts, self.made[: len(self.made) - count], self.inner)


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A slice that is read where it is.

    Attributes:
        part: the slice.
        whole: what it is cut out of.
        axis: along which.
        first: its first index.
    """

    part: Var
    whole: Var
    axis: int
    first: int


Variant = Callable[[Kernel, Windows], Kernel | None]
"""Gives the kernel of a kernel for tensors in larger ones; None where there is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Invocation:
    """A call of a kernel that may work on parts.

    Attributes:
        position: of the let.
        var: its variable.
        call: its value.
        kernel: that is called.
        function: what it computes.
    """

    position: int
    var: Var
    call: Call
    kernel: Kernel
    function: Function

    def tensors(self) -> list[Expr]:
        """Return the tensors that it is given."""
        return [a for a in self.call.args if isinstance(a.type, TensorType)]

    def is_beside(self, other: Invocation) -> bool:
        """Whether both results are to be in the same memories, as far as anybody said."""
        return (self.call.place, self.var.place) == (other.call.place, other.var.place)

    def is_bound(self) -> bool:
        """Whether the result is to be in certain memories."""
        places = (self.call.place, self.var.place)
        return any(p is not None and p.memories is not None for p in places)


class Block:
    """A block that is read.

    Attributes:
        lets: of the block.
        tail: of the block.
        calls: of kernels that may work on parts, by the variables of their results.

    Args:
        block: in A-normal form.
        kernels: of the module.
        operators: that there are.
    """

    def __init__(self, block: Expr, kernels: Mapping[str, Kernel], operators: OperatorTable) -> None:
        self.lets, self.tail = spine(block)
        self.calls: dict[Var, Invocation] = {}
        self._operators = operators
        self._bound: dict[Var, int] = {}
        # Kernels that read a variable; None where something else does.
        self._readers: dict[Var, list[Invocation] | None] = {}
        for position, let in enumerate(self.lets):
            self._bound[let.var] = position
            found = self._invocation(position, let, kernels)
            if found is None:
                self._hide(let.value)
                continue
            self.calls[let.var] = found
            for arg in found.tensors():
                readers = self._readers.setdefault(arg, []) if isinstance(arg, Var) else None
                if readers is not None:
                    readers.append(found)
        self._hide(self.tail)

    def _hide(self, value: Expr) -> None:
        for var in count_uses(value):
            self._readers[var] = None

    def _invocation(self, position: int, let: Let, kernels: Mapping[str, Kernel]) -> Invocation | None:
        call = let.value
        if not isinstance(call, Call) or not isinstance(call.callee, GlobalVar):
            return None
        kernel = kernels.get(call.callee.name)
        if kernel is None or not isinstance(kernel.body, LoopBody) or call.type != let.var.type:
            return None
        body = kernel.body
        alone = body.of_device is None and kernel.batch is None and kernel.resource is None
        if not alone or len(kernel.ports) >= MAX_PORTS or not isinstance(call.type, TensorType):
            return None
        if any(p.access not in (Access.READ, Access.WRITE) or p.memories is not None for p in kernel.ports):
            return None
        lets, tail = spine(body.function.body)
        for value in (*(x.value for x in lets), tail):
            match value:
                case Call(callee=OpRef(op=op)) if self._operators.definition(op).compute is not None:
                    pass
                case Var() | Const():
                    pass
                case _:
                    return None
        return Invocation(position, let.var, call, kernel, body.function)

    # ------------------------------------------------------------------ finding

    def joins(self) -> list[Join]:
        """Return the wholes that are made of parts, large ones first; each concatenation is in one."""
        concats = {v: c for v, c in self.calls.items() if self._axis(c) is not None}
        found: list[Join] = []
        inside: set[Var] = set()
        placed: set[Var] = set()
        for whole in sorted(concats, key=lambda v: self._rank(concats[v])):
            if whole in inside or whole in placed:
                continue  # one that is made in place in a larger one has no memory of its own
            axis = self._axis(concats[whole])
            assert axis is not None, "a concatenation has an axis"
            inner: dict[Var, int] = {}
            parts = self._parts(whole, axis, concats, inside, inner)
            self._beside(whole, parts, axis, concats, inside, inner)
            inside |= {whole, *inner}
            made = self._made(concats[whole], parts, inside | placed)
            if made:
                found.append(Join(whole, axis, tuple(parts), made, inner))
                placed |= {*made, *inner}
        return found

    def _rank(self, concat: Invocation) -> tuple[int, int]:
        """Return what orders concatenations: what may be in others comes behind them."""
        return -(_size(concat.call, self._axis(concat) or 0) or 0), -concat.position

    def _axis(self, found: Invocation) -> int | None:
        """Return the axis of a concatenation whose parts are not in one piece; None for other kernels."""
        alone = _alone(found.function)
        if alone is None or alone[0].op.name != "concat" or not isinstance(alone[0].attrs, AxisAttrs):
            return None
        t = found.call.type
        assert isinstance(t, TensorType), "only those are looked at"
        axis = alone[0].attrs.axis % len(t.shape)
        if not _is_strided(t, axis) or any(_size(a, axis) is None for a in _args(found, alone[1])):
            return None
        return axis if len(_args(found, alone[1])) == len(alone[1]) else None

    def _parts(
        self,
        whole: Var,
        axis: int,
        concats: Mapping[Var, Invocation],
        inside: set[Var],
        inner: dict[Var, int],
    ) -> list[Part]:
        """Return the parts of a concatenation, with those of concatenations that are read by kernels only."""
        parts: list[Part] = []
        pending: list[tuple[Expr, int]] = [(whole, 0)]
        while pending:
            tensor, first = pending.pop()
            call = concats.get(tensor) if isinstance(tensor, Var) else None
            size = _size(tensor, axis)
            assert size is not None, "asked before"
            if call is None or self._axis(call) != axis or tensor in inside or tensor in inner:
                parts.append(Part(tensor, first, size))
                continue
            if tensor is not whole:
                if not self._is_read_by_kernels(tensor) or not call.is_beside(concats[whole]):
                    parts.append(Part(tensor, first, size))
                    continue
                assert isinstance(tensor, Var), "concatenations have names"
                inner[tensor] = first
            behind: list[tuple[Expr, int]] = []
            for operand in self._operands(call):
                behind.append((operand, first))
                first += _size(operand, axis) or 0
            pending.extend(reversed(behind))
        return parts

    def _beside(
        self,
        whole: Var,
        parts: Sequence[Part],
        axis: int,
        concats: Mapping[Var, Invocation],
        inside: set[Var],
        inner: dict[Var, int],
    ) -> None:
        """Note the concatenations of parts that stand side by side in a whole."""
        flat = [p.tensor for p in parts]
        first_of = {t: i for i, t in reversed(list(enumerate(flat)))}
        for var, call in concats.items():
            if var in inside or var in inner or not self._is_read_by_kernels(var):
                continue
            if not call.is_beside(concats[whole]):
                continue
            mine = self._leaves(var, axis, concats, inner)
            start = first_of.get(mine[0])
            if self._axis(call) == axis and start is not None and flat[start : start + len(mine)] == mine:
                if len(mine) < len(flat):
                    inner[var] = parts[start].first

    def _leaves(
        self, var: Var, axis: int, concats: Mapping[Var, Invocation], inner: Mapping[Var, int]
    ) -> list[Expr]:
        found: list[Expr] = []
        pending: list[Expr] = [var]
        while pending:
            tensor = pending.pop()
            call = concats.get(tensor) if isinstance(tensor, Var) else None
            if call is not None and (tensor is var or tensor in inner) and self._axis(call) == axis:
                pending.extend(reversed(self._operands(call)))
            else:
                found.append(tensor)
        return found

    def _operands(self, concat: Invocation) -> list[Expr]:
        alone = _alone(concat.function)
        assert alone is not None, "a concatenation is alone in its kernel"
        return _args(concat, alone[1])

    def _made(self, whole: Invocation, parts: Sequence[Part], taken: set[Var]) -> tuple[Var, ...]:
        """Return the parts that can be made in place, the last one made first."""
        found: dict[Var, int] = {}
        for part in parts:
            var = part.tensor
            if not isinstance(var, Var) or var in taken or var not in self.calls or part.size == 0:
                continue
            maker = self.calls[var]
            if maker.is_beside(whole) and self._is_read_by_kernels(var):
                found.setdefault(var, maker.position)
        return tuple(sorted(found, key=lambda v: -found[v]))

    def _is_read_by_kernels(self, var: Expr) -> bool:
        return isinstance(var, Var) and bool(self._readers.get(var))

    def cuts(self, joins: Sequence[Join]) -> list[Cut]:
        """Return the slices that can be read where they are, given which wholes are made of parts."""
        found: list[Cut] = []
        placed = {v: j for j in joins for v in (*j.made, *j.inner)}
        cut: dict[Var, Cut] = {}
        for var, call in self.calls.items():
            here = _slice(call)
            if here is None or var in placed or not self._is_read_by_kernels(var) or call.is_bound():
                continue
            source, axis, first = here
            if source in placed:
                continue
            if source in cut:
                if cut[source].axis != axis:
                    continue
                source, first = cut[source].whole, first + cut[source].first
            cut[var] = Cut(var, source, axis, first)
            found.append(cut[var])
        return found


def _alone(function: Function) -> tuple[OpRef, Sequence[Expr]] | None:
    """Return the only operator of a kernel with its operands, if it has no other."""
    lets, tail = spine(function.body)
    value = lets[0].value if len(lets) == 1 and tail is lets[0].var else tail if not lets else None
    if isinstance(value, Call) and isinstance(value.callee, OpRef):
        return value.callee, value.args
    return None


def _args(found: Invocation, operands: Sequence[Expr]) -> list[Expr]:
    """Return what a call gives for those operands of its kernel that are tensor parameters."""
    given = dict(zip(found.function.params, found.call.args, strict=True))
    return [given[x] for x in operands if isinstance(x, Var) and isinstance(x.type, TensorType)]


def _slice(found: Invocation) -> tuple[Var, int, int] | None:
    """Return what a slice is cut out of, the axis and the first index; None for other kernels."""
    alone = _alone(found.function)
    if alone is None or alone[0].op is not SLICE or not isinstance(alone[0].attrs, AxesAttrs):
        return None
    attrs, (operand, *bounds) = alone[0].attrs, alone[1]
    (source,) = _args(found, (operand,)) or (None,)
    t = found.call.type
    if not isinstance(source, Var) or not isinstance(t, TensorType) or len(attrs.axes) != 1:
        return None
    begin, _, step = (_only(b) for b in bounds)
    axis = attrs.axes[0] % len(t.shape)
    whole, size = _size(source, axis), t.shape[axis].value
    if whole is None or not size or begin is None or step != 1 or not _is_strided(t, axis):
        return None
    first = max(begin + whole, 0) if begin < 0 else begin
    return (source, axis, first) if first + size <= whole else None


def _only(shape: Expr) -> int | None:
    """Return the number of a constant shape of one."""
    if isinstance(shape, Const) and isinstance(shape.value, tuple) and len(shape.value) == 1:
        (value,) = shape.value
        return value.value
    return None


def _is_strided(t: TensorType, axis: int) -> bool:
    """Whether parts along an axis are not in one piece."""
    return any(d != 1 for d in t.shape[:axis])


def _end(tensor: Var, axis: int) -> int:
    return _size(tensor, axis) or 0


def _size(tensor: Expr, axis: int) -> int | None:
    t = tensor.type
    return t.shape[axis].value if isinstance(t, TensorType) else None


# ------------------------------------------------------------------------------- rewriting


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Where a tensor lies: in what, and how far in."""

    whole: Var
    axis: int
    first: int

    def window(self) -> Window:
        extent = _size(self.whole, self.axis)
        assert extent is not None, "wholes have a size along their axis"
        return Window(self.axis, self.first, extent)


@dataclass(slots=True, eq=False)
class _Whole:
    """A whole while it is written.

    Attributes:
        join: what it is.
        there: its parts that are there, by position.
        latest: the whole with these.
    """

    join: Join
    there: set[int] = field(default_factory=set[int])
    latest: Var | None = None


class Writer:
    """Writes a block without some of its copies.

    Attributes:
        changes: of the variables of the block whose kernels are others then, the names of those; nothing for
            copies that are none.

    Args:
        block: that was read.
        joins: wholes that are made of parts.
        cuts: slices that are read where they are.
        variant: gives kernels.
        copy: gives the kernel that copies a tensor of a type.
    """

    def __init__(
        self,
        block: Block,
        joins: Sequence[Join],
        cuts: Sequence[Cut],
        variant: Variant,
        copy: Callable[[TensorType], Kernel | None],
    ) -> None:
        self._block, self._variant, self._copy = block, variant, copy
        self._wholes = {j.whole: _Whole(j) for j in joins}
        self._concats = {v: self._wholes[j.whole] for j in joins for v in (j.whole, *j.inner)}
        self._cuts = {c.part for c in cuts}
        self._at: dict[Var, _Place] = {c.part: _Place(c.whole, c.axis, c.first) for c in cuts}
        self._part: dict[Var, tuple[_Whole, int]] = {}
        for j in joins:
            self._at.update({v: _Place(j.whole, j.axis, first) for v, first in j.inner.items()})
            for number, part in reversed(list(enumerate(j.parts))):
                if isinstance(part.tensor, Var) and part.tensor in j.made:
                    self._at[part.tensor] = _Place(j.whole, j.axis, part.first)
                    self._part[part.tensor] = self._wholes[j.whole], number
        self._written: list[tuple[Var, Expr, Let]] = []
        self.changes: dict[Var, str] = {}

    def run(self, inner: Callable[[Expr], Expr]) -> Expr | None:
        """Return the block; None where a kernel has no variant.

        Args:
            inner: rewrites nested blocks.
        """
        for let in self._block.lets:
            if let.var in self._cuts:
                self.changes[let.var] = ""
                continue
            whole = self._concats.get(let.var)
            if whole is not None:
                self.changes[let.var] = ""
                if not all(self._copied(whole, n, let) for n in self._missing(whole, let.var)):
                    return None
                continue
            call = self._block.calls.get(let.var)
            if call is None or not self._is_touched(let.var, call):
                self._written.append((let.var, with_blocks(let.value, inner), let))
            elif not self._call(let, call.kernel, list(call.call.args), self._part.get(let.var)):
                return None
        body = with_blocks(self._block.tail, inner)
        for var, value, old in reversed(self._written):
            body = make.let(var, value, body, span=old.span, place=old.place)
        return body

    def _is_touched(self, var: Var, call: Invocation) -> bool:
        return var in self._part or any(a in self._at for a in call.tensors())

    def _missing(self, whole: _Whole, concat: Var) -> Iterator[int]:
        """Yield the parts of a concatenation that are not there."""
        first = 0 if concat is whole.join.whole else whole.join.inner[concat]
        size = _size(concat, whole.join.axis) or 0
        for number, part in enumerate(whole.join.parts):
            if number not in whole.there and first <= part.first and part.first + part.size <= first + size:
                yield number

    def _copied(self, whole: _Whole, number: int, let: Let) -> bool:
        tensor = whole.join.parts[number].tensor
        assert isinstance(tensor.type, TensorType), "parts are tensors"
        kernel = self._copy(tensor.type)
        return kernel is not None and self._call(let, kernel, [tensor], (whole, number))

    def _call(self, let: Let, kernel: Kernel, args: list[Expr], part: tuple[_Whole, int] | None) -> bool:
        """Write the call of a variant of a kernel."""
        windows: dict[int, Window] = {}
        positions = [i for i, a in enumerate(args) if isinstance(a.type, TensorType)]
        for number, i in enumerate(positions):
            place = self._at.get(args[i])  # type: ignore[call-overload]
            if place is not None:
                windows[number] = place.window()
                args[i] = self._latest(place.whole)
        var, result, continues = let.var, None, False
        if part is not None:
            whole, number = part
            join = whole.join
            result = _Place(join.whole, join.axis, join.parts[number].first).window()
            continues = whole.latest is not None
            if whole.latest is not None:
                args.append(whole.latest)
            whole.there.add(number)
            is_last = len(whole.there) == len(join.parts)
            name = f"{join.whole.name}.{len(whole.there) - 1}"
            var = join.whole if is_last else Var(name, join.whole.type, let.span, join.whole.place)
            whole.latest = var
        made = self._variant(kernel, Windows(windows, result, continues))
        if made is None:
            return False
        self.changes.setdefault(let.var, made.name)
        callee = make.global_var(made.name, made.type, let.span)
        call = make.call(callee, args, span=let.span, place=let.value.place)
        self._written.append((var, call, let))
        return call.type == var.type

    def _latest(self, whole: Var) -> Var:
        found = self._wholes.get(whole)
        if found is None:
            return whole
        assert found.latest is not None, "what is read of a whole is there"
        return found.latest


def copied_type(t: TensorType) -> bool:
    """Whether a kernel can copy a tensor: its shape says its dims."""
    return all(d.value is not None or isinstance(d.atom, Sym) for d in t.shape)
