"""Skips kernels that only copy: tensors are made where they are to be, and read where they are.

    let a.s = alloc_storage(int(8));                let y.s = alloc_storage(int(20));
    let a = tensor_at(a.s, int(0), ..);             let a = tensor_at(y.s, int(0), ..);
    let _ = invoke(@f, x, a, ..);                   let _ = invoke(@f, x, a, ..);
    let b.s = alloc_storage(int(12));               let b = tensor_at(y.s, int(8), ..);
    let b = tensor_at(b.s, int(0), ..);        ->   let _ = invoke(@g, x, b, ..);
    let _ = invoke(@g, x, b, ..);                   let y = tensor_at(y.s, int(0), ..);
    let y.s = alloc_storage(int(20));
    let y = tensor_at(y.s, int(0), ..);
    let _ = invoke(@concat, a, b, y, ..);

Which kernels only copy, and where their operands would have to lie, is proved from their loops
(`Accesses.lies`). Two forms are looked for:

* **Parts made in the whole**, as above: the operands fill the result, one behind the other. Each is the
  only tensor of its storage and was written by one kernel.
* **A part read in the whole**: the one operand is the only tensor of its storage, and the result is in it.

**When it is right.** Nothing changes bytes that another tensor of the storage shows. What changes a tensor
are operators that take it over, and loops, data, calls and closures might hand it to one: so of the tensors
of such a storage all are read by kernels of the host and by views alone, in this block, but for the whole,
which may also be what the function returns. Results over operands are a matter of lifetimes, and those are
of storages, so they count whatever is in one.

**When it is done.** Parts in a whole take all of its bytes from the first part on, and a part in a whole
keeps all of it. So it is done where that does not raise the most bytes that are in use at once
(`lifetimes`): all that can be, else one after the other. Sizes over dims are compared at several sizes, as
orders are. In a memory of a fixed size it is done where all values have room without it: what is in such
a storage cannot leave the memory for a time (`spill-values`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from inlay.analysis.blocks import count_uses, nested, operands, relet, spine, with_blocks
from inlay.analysis.local_functions import find_loops
from inlay.arith.expr import Int, lit, symbols
from inlay.ir import make
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import Call, Const, Expr, Function, GlobalVar, Let, OpRef, Tuple, Var
from inlay.ir.kernel import Kernel
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.machine.memory import PoolKind
from inlay.memory.activations import Storage
from inlay.memory.choose_memories import MemoryOptions
from inlay.memory.explicit_alloc import size_of
from inlay.memory.lifetimes import at_call, find_lifetimes
from inlay.memory.order_for_peak import POINTS, Sizes, sizes_at
from inlay.memory.size_classes import ALIGNMENT
from inlay.ops.memory import ALLOC_STORAGE, INVOKE, TENSOR_AT, InvokeAttrs, StorageAttrs
from inlay.packing.bounds import max_live
from inlay.packing.buffer import Buffer, align
from inlay.passes.contract import Pass, PassContext, Property, Remark

_MOST_TRIES = 64
"""How many copies of a function are tried one by one; each costs a walk over it."""


def run(module: Module, context: PassContext) -> Module:
    """Skip copies in every function. Cost: linear; for each copy where not all can be skipped."""
    functions: dict[str, Function] = {}
    for name, function in module.functions.items():
        found = tuple(_copies(function, module.kernels))
        functions[name] = _chosen(name, function, found, module, context) if found else function
    return module.with_functions(functions)


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    """A tensor that will be in the storage of another one.

    Attributes:
        tensor: its variable.
        storage: that it has.
        offset: of its first byte in the other one.
    """

    tensor: Var
    storage: Var
    offset: Int


@dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    """A kernel that copies and may be skipped.

    Attributes:
        invoke: the let that invokes it.
        storage: of the whole.
        members: tensors that will be in it.
        memories: that it may be in.
    """

    invoke: Let
    storage: Var
    members: tuple[_Member, ...]
    memories: tuple[str, ...]


def _chosen(
    name: str, function: Function, copies: tuple[_Copy, ...], module: Module, context: PassContext
) -> Function:
    """Return a function without those of its copies that cost no memory."""
    typical = {d.sym: d.typical for d in function.dims if d.typical is not None}
    points = [sizes_at(typical, n) for n in POINTS]

    def peaks(candidate: Function) -> list[int]:
        return _peaks(name, candidate, module, points)

    least, taken = peaks(function), tuple[_Copy, ...]()
    pools = {p.name: p.bytes for p in context.options_for(MemoryOptions).pools if p.kind is not PoolKind.HEAP}
    copies = tuple(c for c in copies if all(max(least) <= (pools.get(m) or max(least)) for m in c.memories))
    if no_more(peaks(_without(function, copies)), least):
        taken = copies
    else:
        for copy in copies[:_MOST_TRIES]:
            found = peaks(_without(function, (*taken, copy)))
            if no_more(found, least):
                least, taken = found, (*taken, copy)
    for copy in taken:
        names = ", ".join(m.tensor.name for m in copy.members)
        message = f"{name}: {names} in {copy.storage.name}, so nothing is copied"
        context.remarks.add(Remark(PASS.name, "skipped", "in place", message, copy.invoke.span))
    return _without(function, taken)


def no_more(after: Sequence[int], before: Sequence[int]) -> bool:
    """Whether no number became more."""
    return all(a <= b for a, b in zip(after, before, strict=True))


def _peaks(name: str, function: Function, module: Module, points: Sequence[Sizes]) -> list[int]:
    """Return the most bytes that are in use at once, for several sizes of dims."""
    found = find_lifetimes(name, function, module, find_loops(function))
    return [sum(peak_of(a.storages, a.positions, sizes) for a in found) for sizes in points]


def peak_of(storages: Sequence[Storage], positions: int, sizes: Sizes) -> int:
    """Return the most bytes of storages of an activation that are in use at once."""
    return max_live(
        [
            Buffer("", s.start, (positions if s.escapes else s.end) + 1, align(sizes.of(s.bytes), ALIGNMENT))
            for s in storages
        ]
    )


# ------------------------------------------------------------------------------- finding


def _copies(function: Function, kernels: Mapping[str, Kernel]) -> Iterator[_Copy]:
    """Yield the copies of a function that may be skipped, all of them at once, in every block."""
    pending: list[tuple[Expr, bool]] = [(function.body, True)]
    uses = count_uses(function.body)
    while pending:
        block, is_body = pending.pop()
        lets, tail = spine(block)
        yield from _Block(lets, tail, kernels, uses, is_body=is_body).copies()
        for value in (*(let.value for let in lets), tail):
            pending.extend((inner, False) for inner in nested(value))


@dataclass(slots=True, eq=False)
class _Tensor:
    """A tensor of a block that has its storage to itself.

    Attributes:
        let: that makes it.
        storage: its variable.
        allocated: where that is allocated.
        made: where the kernel is invoked that writes it; -1 where none is.
        is_read: whether kernels of the host and views alone read it.
        is_returned: whether the function returns it.
    """

    let: Let
    storage: Var
    allocated: int
    made: int = -1
    is_read: bool = True
    is_returned: bool = False


class _Block:
    """A block that is read.

    Args:
        lets: of the block.
        tail: of the block.
        kernels: of the module.
        uses: how often variables are read in the function.
        is_body: whether it is the body of a function of the module.
    """

    def __init__(
        self,
        lets: Sequence[Let],
        tail: Expr,
        kernels: Mapping[str, Kernel],
        uses: Mapping[Var, int],
        *,
        is_body: bool,
    ) -> None:
        self._lets, self._kernels = lets, kernels
        self._allocated: dict[Var, int] = {}
        self._root: dict[Var, _Tensor] = {}
        returned = next((x for x in lets if x.var is tail and isinstance(x.value, Tuple)), None)
        if returned is not None and uses[returned.var] > 1:
            returned = None
        for number, let in enumerate(lets):
            if let is not returned:
                self._read(number, let, uses)
        result = tail if returned is None else returned.value
        if isinstance(result, Var | Tuple):
            for var in (tail, *operands(result)):
                if isinstance(var, Var) and var in self._root:
                    self._root[var].is_returned = True
                    self._root[var].is_read &= is_body
        else:
            self._hide((tail,))
        self._first = dict(self._allocated)
        self._moved: set[Var] = set()

    def _read(self, number: int, let: Let, uses: Mapping[Var, int]) -> None:
        match let.value:
            case Call(callee=OpRef(op=op)) if op is ALLOC_STORAGE:
                self._allocated[let.var] = number
            case Call(callee=OpRef(op=op), args=(Var() as storage, Const() as at, _)) if op is TENSOR_AT:
                if storage in self._allocated and uses[storage] == 1 and at.value == lit(0):
                    self._root[let.var] = _Tensor(let, storage, self._allocated[storage])
            case Call(callee=OpRef(op=op, attrs=InvokeAttrs(writes=writes)), args=args) if op is INVOKE:
                self._invoked(number, args, writes)
            case Call(callee=OpRef(op=op), args=args) if op.alias is not None and not op.in_place:
                source = args[op.alias]
                root = self._root.get(source) if isinstance(source, Var) else None
                t = let.var.type
                if root is not None and isinstance(t, TensorType) and size_of(t) == _bytes(root):
                    self._root[let.var] = root
                    args = tuple(a for a in args if a is not source)
                self._hide(args)
            case value:
                self._hide((value,))

    def _invoked(self, number: int, args: Sequence[Expr], writes: int) -> None:
        kernel, tensors = self._kernel(args), args[1:-1]
        for index, arg in enumerate(tensors):
            tensor = self._root.get(arg) if isinstance(arg, Var) else None
            if tensor is None:
                continue
            if kernel is None or kernel.accesses is None:
                tensor.is_read = False
            elif index >= len(tensors) - writes:
                # Kernels that update a tensor have one that `own` gave them.
                tensor.is_read &= tensor.made < 0 and arg is tensor.let.var
                tensor.made = number

    def _kernel(self, args: Sequence[Expr]) -> Kernel | None:
        return self._kernels.get(args[0].name) if isinstance(args[0], GlobalVar) else None

    def _hide(self, values: Sequence[Expr]) -> None:
        """Note that something else than kernels and views reads what is mentioned here."""
        for value in values:
            for var in count_uses(value):
                if var in self._root:
                    self._root[var].is_read = False

    # ------------------------------------------------------------------ deciding

    def copies(self) -> Iterator[_Copy]:
        """Yield what may be skipped, all of it at once."""
        for number, let in enumerate(self._lets):
            match let.value:
                case Call(callee=OpRef(op=op), args=args) if op is INVOKE:
                    kernel = self._kernel(args)
                    if kernel is not None and kernel.accesses is not None and kernel.accesses.lies:
                        copy = self._copy(number, kernel, args)
                        if copy is not None:
                            self._moved.update(m.storage for m in copy.members)
                            yield copy
                case _:
                    pass

    def _copy(self, number: int, kernel: Kernel, args: Sequence[Expr]) -> _Copy | None:
        assert kernel.accesses is not None, "tested by who calls"
        *parts, result = (self._root.get(a) if isinstance(a, Var) else None for a in args[1:-1])
        lies = [at_call(e, kernel, args[-1]) for e in kernel.accesses.lies]
        if result is None or result.made != number or not result.is_read or len(lies) != len(parts):
            return None
        tensors = [p for p in parts if p is not None and 0 <= p.made < number and p.is_read]
        offsets = [e for e in lies if e is not None]
        if len(tensors) != len(parts) or len(offsets) != len(parts) or not self._alike((*tensors, result)):
            return None
        let, memories = self._lets[number], self._attrs(result).memories
        if len(tensors) == 1 and not result.is_returned and result.storage not in self._moved:
            (whole,) = tensors
            member = _Member(result.let.var, result.storage, -offsets[0])
            return _Copy(let, whole.storage, (member,), memories)
        if self._fills(tensors, offsets, result):
            members = (_Member(p.let.var, p.storage, e) for p, e in zip(tensors, offsets, strict=True))
            self._first[result.storage] = min(self._first[p.storage] for p in tensors)
            return _Copy(let, result.storage, tuple(members), memories)
        return None

    def _alike(self, tensors: Sequence[_Tensor]) -> bool:
        """Whether tensors may be in the same memories."""
        return len(set(map(self._attrs, tensors))) == 1

    def _attrs(self, tensor: _Tensor) -> StorageAttrs:
        call = self._lets[tensor.allocated].value
        assert isinstance(call, Call), "storage is allocated"
        assert isinstance(call.callee, OpRef), "storage is allocated by an operator"
        assert isinstance(call.callee.attrs, StorageAttrs), "alloc_storage has its attributes"
        return call.callee.attrs

    def _fills(self, parts: Sequence[_Tensor], offsets: Sequence[Int], result: _Tensor) -> bool:
        """Whether tensors are one behind the other in a result, which can be made before them."""
        storages = {p.storage for p in parts}
        if len(storages) != len(parts) or storages & self._moved or any(p.is_returned for p in parts):
            return False
        ends = list(accumulate((_bytes(p) for p in parts), initial=lit(0)))
        if [*offsets, _bytes(result)] != ends:
            return False
        first = min(self._first[s] for s in storages)
        between = self._lets[first : result.allocated]
        opened = {d.sym for let in between for d in opened_dims(let.value.type, let.var.type)}
        return not any(s in opened for e in ends for s in symbols(e))


def _bytes(tensor: _Tensor) -> Int:
    t = tensor.let.var.type
    assert isinstance(t, TensorType), "tensor_at makes a tensor"
    return size_of(t)


# ------------------------------------------------------------------------------- rewriting


def _without(function: Function, copies: Sequence[_Copy]) -> Function:
    """Return a function without some copies."""
    moved = {m.storage: (copy.storage, m.offset) for copy in copies for m in copy.members}
    return replace(function, body=_Rewriter(moved, {copy.invoke.var for copy in copies}).block(function.body))


class _Rewriter:
    """Writes tensors into other storages.

    Args:
        moved: for storages that go, another one and the offset in it.
        skipped: variables of the lets that go.
    """

    def __init__(self, moved: Mapping[Var, tuple[Var, Int]], skipped: set[Var]) -> None:
        self._moved, self._skipped = moved, skipped

    def block(self, block: Expr) -> Expr:
        """Rewrite a block."""
        lets, tail = spine(block)
        allocations = {let.var: let for let in lets if _is_allocation(let.value)}
        found: dict[Var, tuple[Let, Expr]] = {}
        for let in lets:
            if let.var in self._skipped or let.var in self._moved or let.var in found:
                continue  # an allocation may be before its place
            value = with_blocks(let.value, self.block)
            match value:
                case Call(callee=OpRef(op=op), args=(Var() as storage, _, shape)) if (
                    op is TENSOR_AT and storage in self._moved
                ):
                    home, offset = self._home(storage)
                    if home not in found:
                        found[home] = allocations[home], allocations[home].value
                    value = replace(value, args=(home, make.int_const(offset), shape))
                case _:
                    pass
            found[let.var] = let, value
        body = with_blocks(tail, self.block)
        for let, value in reversed(found.values()):
            body = relet(let, value, body)
        return body

    def _home(self, storage: Var) -> tuple[Var, Int]:
        """Return the storage that one is in now, and where."""
        offset = lit(0)
        while storage in self._moved:
            storage, more = self._moved[storage]
            offset = offset + more
        return storage, offset


def _is_allocation(value: Expr) -> bool:
    return isinstance(value, Call) and isinstance(value.callee, OpRef) and value.callee.op is ALLOC_STORAGE


PASS = Pass(
    __name__,
    run,
    "make tensors where they would be copied to, and read them where they are",
    requires=(Property.EXPLICIT_STORAGE,),
)
