"""Writes down where results of kernels are stored: storage, tensors in it, invocations.

    let y = @kernel(x)      becomes      let y.s = alloc_storage(int(size of y));
                                         let y = tensor_at(y.s, int(0), shape(dims of y));
                                         let _ = invoke(@kernel, x, y, shape(kernel ints));

Scratch memory of a kernel is one more tensor that it writes, in a storage that only this call uses.
A kernel that updates an operand gets it as its own (`own`), with a copy only if somebody else still
has it. A tensor that several kernels write parts of (`Access.FILL`) is one tensor, made where the first
of them is invoked; nobody else has it before the last one. A row that is computed for one tensor is
written into it at once. Every other result gets a storage of its own here; which of them share bytes is
the business of `plan_memory`. Variables keep their names and types, so nothing else of the program
changes. Sizes are integers over the dims in scope: what is symbolic stays symbolic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from inlay.analysis.blocks import count_uses, nested, spine, with_blocks
from inlay.arith.dtype import U8
from inlay.arith.expr import Int, from_atom, lit, substitute
from inlay.base.diagnostics import error, unsupported
from inlay.base.span import Span
from inlay.ir import make
from inlay.ir.conform import Matching
from inlay.ir.context import Context
from inlay.ir.core_ops import GET_ROW, SET_ROW
from inlay.ir.dims import rename_dims, substitute_type
from inlay.ir.expr import Call, Const, Expr, Function, GlobalVar, Let, OpRef, Project, Tuple, Var
from inlay.ir.kernel import Access, Kernel
from inlay.ir.module import Module
from inlay.ir.place import Place
from inlay.ir.type_printer import type_text
from inlay.ir.types import STORAGE, UNIT, ExistsType, TensorType, TupleType, Type
from inlay.ops.memory import ALLOC_STORAGE, INVOKE, OWN, TENSOR_AT, InvokeAttrs, StorageAttrs, TensorAtAttrs
from inlay.passes.contract import Pass, PassContext, Property

Binding = tuple[Var, Expr, Span]

SCRATCH = ".scratch"
"""How names of scratch memory end; they begin like the result of the kernel."""


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Options of this pass.

    Attributes:
        memories: where results of devices may be, by name of the device, the preferred memory first;
            the host's for all others.
        machine: where the virtual machine makes tensors and callers have theirs; empty where there is
            none.
    """

    memories: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    machine: str = ""


def run(module: Module, context: PassContext) -> Module:
    """Make storage explicit in every function.

    Raises:
        CompileError: `memory.no-room` for values that are where nobody can put them.
    """
    options = context.options_for(StorageOptions)
    writer = _Writer(module.kernels, options)
    entries = (f for n, f in module.functions.items() if n in (module.entry, *module.entries))
    for function in entries:
        for param in function.params:
            _check_machine(param, param.place, options.machine, "is an input, which the caller has")
    return module.with_functions(
        {name: writer.of_module(function) for name, function in module.functions.items()}
    )


class _Writer:
    """Rewrites blocks; spines with loops, nested blocks recursively."""

    def __init__(self, kernels: Mapping[str, Kernel], options: StorageOptions) -> None:
        self.kernels = kernels
        self.memories = options.memories
        self.machine = options.machine
        self.viewed: frozenset[Var] = frozenset()
        # For tensors that parts are missing of: the one that has all. They are one tensor.
        self.same: dict[Var, Var] = {}

    def of_module(self, function: Function) -> Function:
        """Rewrite a function of the module."""
        self.viewed = _viewed(function)
        return self.function(function)

    def function(self, function: Function) -> Function:
        """Rewrite a function."""
        return replace(function, body=self.block(function.body))

    def block(self, block: Expr) -> Expr:
        """Rewrite a block."""
        lets, tail = spine(block)
        self.same |= _wholes(lets, self.kernels)
        bindings: list[Binding] = []
        parts = self._parts(block)
        rows = _rows(lets, tail, self._makers(lets, parts), self.viewed)
        written = {row.set_row: row for row in rows.values()}
        taken = {part for of_one in parts.values() for part in of_one.values()}
        for let in lets:
            if let.var in taken:
                continue
            if let.var in written:
                bindings.append((let.var, written[let.var].owned, let.span))
                continue
            if not self._kernel_call(let.var, let.value, bindings, parts.get(let.var), rows):
                self._check(let.var, let.value)
                bindings.append((let.var, with_blocks(let.value, self.block), let.span))
        result = make.var("result", _open(tail.type), tail.span)
        tail = result if self._kernel_call(result, tail, bindings) else with_blocks(tail, self.block)
        for var, value, span in reversed(bindings):
            tail = make.let(var, value, tail, span=span)
        return tail

    def _check(self, var: Var, value: Expr) -> None:
        """Refuse a tensor of the virtual machine that is to be elsewhere than where that makes it."""
        match value:
            case Call(callee=OpRef(op=op)) if op.alias is None and isinstance(value.type, TensorType):
                why = f"is made by '{op.name}', which the virtual machine runs"
                _check_machine(var, value.place, self.machine, why)
            case _:
                pass

    def _parts(self, block: Expr) -> dict[Var, dict[int, Var]]:
        """Return the names of results, by number, of kernels whose tuple is only taken apart here."""
        lets, _ = spine(block)
        made = {
            let.var: dict[int, Var]()
            for let in lets
            if isinstance(let.value, Call)
            and isinstance(let.value.callee, GlobalVar)
            and let.value.callee.name in self.kernels
            and isinstance(let.var.type, TupleType)
        }
        if not made:
            return made
        for let in lets:
            match let.value:
                case Project(value=Var() as together, index=index) if together in made:
                    made[together].setdefault(index, let.var)
                case _:
                    pass
        uses = count_uses(block)
        return {var: parts for var, parts in made.items() if uses.get(var, 0) == len(parts)}

    def _kernel_call(
        self,
        var: Var,
        value: Expr,
        bindings: list[Binding],
        parts: Mapping[int, Var] | None = None,
        rows: Mapping[Var, _Row] = MappingProxyType({}),
    ) -> bool:
        """Write the call of a kernel, if it is one.

        Args:
            var: of its result.
            value: perhaps a call of a kernel.
            bindings: gets what is written.
            parts: names of results of its tuple, where that is only taken apart.
            rows: results that are written into a tensor at once.
        """
        if not isinstance(value, Call) or not isinstance(value.callee, GlobalVar):
            return False
        kernel = self.kernels.get(value.callee.name)
        if kernel is None:
            return False
        span = value.span
        # First, as it is given back when the call returns and then taken again: a result that leaves between
        # would take its place.
        scratch = self._scratch(kernel, value, var.name, bindings)
        given = (a for a in value.args if isinstance(a.type, TensorType))
        tensors: list[Expr] = [self.same.get(a, a) if isinstance(a, Var) else a for a in given]
        fills = next((p for p in kernel.ports if p.access is Access.FILL), None)
        if fills is not None:
            whole = self.same.get(var, var)
            if fills.may_alias is None:
                self._store(whole, _tensor_type(whole), self._memories(value, 0, var), value, bindings)
            self._invoke(kernel, value, tensors, [whole], scratch, bindings)
            return True
        updated = next((p.may_alias for p in kernel.ports if p.access is Access.UPDATE), None)
        if updated is not None:
            owned = make.call(OWN, (tensors[updated],), span=span, place=value.place)
            bindings.append((var, owned, span))
            tensors[updated] = var
            self._invoke(kernel, value, tensors, [var], scratch, bindings)
            return True
        results = _results(var)
        outputs: list[Var] = []
        for index, t in enumerate(results):
            output = var if isinstance(var.type, TensorType) else (parts or {}).get(index)
            if output is None:
                output = make.var(f"{var.name}.{index}", t)
            outputs.append(output)
            if output in rows:
                self._row(output, rows[output], value, bindings)
                continue
            self._store(output, t, self._memories(value, index, output), value, bindings)
        self._invoke(kernel, value, tensors, outputs, scratch, bindings)
        if not isinstance(var.type, TensorType) and parts is None:
            bindings.append((var, Tuple(tuple(outputs), var.type, span, value.place), span))
        return True

    def _store(
        self, tensor: Var, t: TensorType, memories: tuple[str, ...], call: Call, bindings: list[Binding]
    ) -> None:
        """Write a tensor in a storage of its own."""
        storage = make.var(f"{tensor.name}.s", STORAGE, call.span)
        size = make.int_const(size_of(t))
        made = make.call(ALLOC_STORAGE, (size,), StorageAttrs(memories), span=call.span)
        bindings.append((storage, made, call.span))
        shape = make.shape_const(t.shape)
        args, attrs = (storage, make.int_const(0), shape), TensorAtAttrs(t.dtype)
        view = make.call(TENSOR_AT, args, attrs, span=call.span, place=call.place)
        bindings.append((tensor, view, call.span))

    def _memories(self, call: Call, field: int, output: Var) -> tuple[str, ...]:
        """Return the memories that a result of a kernel may be put into, the preferred one first."""
        place = output.place
        if place is None or not place.device:
            place = call.place
            if place is not None and place.fields and not place.device:
                place = place.fields[field]
        if place is None:
            return ()
        every = self.memories.get(place.device, ())
        if place.memories is None:
            return every
        return tuple(sorted(place.memories, key=lambda m: _at(every, m)))

    def _row(self, output: Var, row: _Row, call: Call, bindings: list[Binding]) -> None:
        """Write that a result is a row of a tensor."""
        owned = make.call(OWN, (row.tensor,), span=call.span, place=call.place)
        bindings.append((row.owned, owned, call.span))
        view = make.call(GET_ROW, (row.owned, row.index), span=call.span, place=call.place)
        bindings.append((output, view, call.span))

    def _makers(self, lets: Sequence[Let], parts: Mapping[Var, Mapping[int, Var]]) -> dict[Var, int]:
        """Return where the kernels are called that make tensors, by the variables of those."""
        found: dict[Var, int] = {}
        for position, let in enumerate(lets):
            if _makes_new(let.value, self.kernels):
                made = parts.get(let.var, {}).values() or (let.var,)
                found.update(dict.fromkeys(made, position))
        return found

    def _scratch(self, kernel: Kernel, call: Call, name: str, bindings: list[Binding]) -> list[Var]:
        """Write the scratch memory of a call, in storages of its own."""
        at_call = _dims_at(kernel, call)
        scratch: list[Var] = []
        for w in kernel.workspaces:
            if not w.requested:
                t = TensorType((at_call(w.planned()),), U8)
                scratch.append(make.var(f"{name}{SCRATCH}", t, call.span))
                memories = (w.memory,) if w.memory else self._device_memories(call)
                self._store(scratch[-1], t, memories, call, bindings)
        return scratch

    def _invoke(
        self,
        kernel: Kernel,
        call: Call,
        reads: list[Expr],
        writes: list[Var],
        scratch: list[Var],
        bindings: list[Binding],
    ) -> None:
        at_call = _dims_at(kernel, call)
        ints = make.shape_const(tuple(map(at_call, kernel.ints)))
        args = (call.callee, *reads, *writes, *scratch, ints)
        attrs = InvokeAttrs(len(writes) + len(scratch))
        invoke = make.call(INVOKE, args, attrs, span=call.span, place=call.place)
        bindings.append((make.var("_", UNIT), invoke, call.span))

    def _device_memories(self, call: Call) -> tuple[str, ...]:
        """Return the memories of the device that runs a kernel, the preferred one first."""
        place = call.place
        while place is not None and not place.device and place.fields:
            place = place.fields[0]
        return () if place is None else self.memories.get(place.device, ())


def _check_machine(var: Var, place: Place | None, machine: str, why: str) -> None:
    memories = None if place is None else place.memories
    if machine and memories is not None and machine not in memories:
        raise error(
            "memory.no-room",
            f"found '{var.name}' in {', '.join(memories)}; it {why} in {machine}",
            span=var.span,
            hint=f"allow it {machine}, or copy it",
        )


def _at(names: Sequence[str], name: str) -> tuple[int, str]:
    return (names.index(name) if name in names else len(names), name)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row that a kernel computes for one tensor.

    Attributes:
        set_row: the variable of the tensor with the row in it.
        tensor: the tensor before.
        index: of the row.
        owned: a name for the tensor while the row is written.
    """

    set_row: Var
    tensor: Var
    index: Expr
    owned: Var


def _viewed(function: Function) -> frozenset[Var]:
    """Return the variables that have views, or are views: others may see their bytes."""
    found: set[Var] = set()
    pending: list[Expr] = [function.body]
    while pending:
        lets, tail = spine(pending.pop())
        for var, value in (*((let.var, let.value) for let in lets), (None, tail)):
            pending.extend(nested(value))
            if isinstance(value, Call) and isinstance(value.callee, OpRef):
                alias = value.callee.op.alias
                if alias is not None:
                    found.update(x for x in (var, value.args[alias]) if isinstance(x, Var))
    return frozenset(found)


def _rows(
    lets: Sequence[Let], tail: Expr, makers: Mapping[Var, int], viewed: frozenset[Var]
) -> dict[Var, _Row]:
    """Return results of kernels that are read once, to set a row of a tensor.

    Nothing mentions the tensor from the call of the kernel to where the row is set, and no view shows
    it, so that it can be taken over at the call already; and the index is known there.
    """
    found: dict[Var, _Row] = {}
    at = {let.var: position for position, let in enumerate(lets)}
    mentions = [count_uses(let.value) for let in lets]
    uses: dict[Var, int] = {}
    for mentioned in (*mentions, count_uses(tail)):
        for var, count in mentioned.items():
            uses[var] = uses.get(var, 0) + count
    for position, let in enumerate(lets):
        call = let.value
        if not (isinstance(call, Call) and isinstance(call.callee, OpRef)):
            continue
        if call.callee.op is not SET_ROW:
            continue
        tensor, index, row = call.args
        if not isinstance(row, Var) or not isinstance(tensor, Var) or uses.get(row) != 1:
            continue
        start = makers.get(row)
        if start is None or at.get(tensor, -1) >= start or tensor in viewed:
            continue
        if isinstance(index, Var) and at.get(index, -1) >= start:
            continue
        if not isinstance(index, (Var, Const)):
            continue
        if isinstance(index, Const) and position != start and _opens(lets[start:position]):
            continue
        if any(tensor in mentions[i] for i in range(start, position)):
            continue
        owned = Var(f"{let.var.name}.own", tensor.type, let.span, let.var.place)
        found[row] = _Row(let.var, tensor, index, owned)
    return found


def _makes_new(value: Expr, kernels: Mapping[str, Kernel]) -> bool:
    """Whether a value is a call of a kernel that makes new tensors."""
    if not isinstance(value, Call) or not isinstance(value.callee, GlobalVar):
        return False
    kernel = kernels.get(value.callee.name)
    if kernel is None or kernel.resource is not None:
        return False
    return all(p.access not in (Access.UPDATE, Access.FILL) for p in kernel.ports)


def _wholes(lets: Sequence[Let], kernels: Mapping[str, Kernel]) -> dict[Var, Var]:
    """Return for each tensor that kernels of a block add parts to the variable that has all of them."""
    found: dict[Var, Var] = {}
    for let in reversed(lets):
        call = let.value
        if isinstance(call, Call) and isinstance(call.callee, GlobalVar):
            before = filled(call, kernels.get(call.callee.name))
            if isinstance(before, Var):
                found[before] = found.get(let.var, let.var)
    return found


def _opens(lets: Sequence[Let]) -> bool:
    """Whether lets give names to dims, which an index behind them might mention."""
    return any(let.value.type is not let.var.type for let in lets)


def filled(call: Call, kernel: Kernel | None) -> Expr | None:
    """Return the tensor that a call of a kernel adds a part to; None where it is another kernel."""
    for port in () if kernel is None else kernel.ports:
        if port.access is Access.FILL and port.may_alias is not None:
            return [a for a in call.args if isinstance(a.type, TensorType)][port.may_alias]
    return None


def size_of(t: TensorType) -> Int:
    """Return the bytes of a dense tensor."""
    size = lit(t.dtype.itemsize)
    for dim in t.shape:
        size = size * dim
    return size


def _results(var: Var) -> list[TensorType]:
    fields = var.type.fields if isinstance(var.type, TupleType) else (var.type,)
    tensors = [t for t in fields if isinstance(t, TensorType)]
    if len(tensors) != len(fields):  # kernels make tensors; copies take what they are given
        raise unsupported(
            "placement.copy-of-structure",
            f"found '{var.name}' of type {type_text(var.type)}, which would be copied as a whole "
            "from one memory to another; only tensors are copied",
            span=var.span,
            hint="ask for the tensors in it to be there, or leave them to be placed",
        )
    return tensors


def _tensor_type(var: Var) -> TensorType:
    assert isinstance(var.type, TensorType), "what has parts is a tensor"
    return var.type


def _open(t: Type) -> Type:
    return t.body if isinstance(t, ExistsType) else t


def _dims_at(kernel: Kernel, call: Call) -> Callable[[Int], Int]:
    """Return what writes an integer over the dims of a kernel over those of a caller."""
    if not kernel.ints:
        return lambda e: e
    # Renamed, because a kernel's symbols may be those of the function it was cut out of.
    dims = rename_dims(kernel.type.dims)
    names = {d.sym: from_atom(f.sym) for d, f in zip(kernel.type.dims, dims, strict=True)}
    matching = Matching(Context(kernel.name, call.span))
    matching.bind(dims)
    for index, (declared, arg) in enumerate(zip(kernel.type.params, call.args, strict=True)):
        matching.match(substitute_type(declared, names), arg.type, f"argument {index + 1}")
    matching.finish()
    return lambda e: substitute(substitute(e, names), matching.ints)


PASS = Pass(
    __name__,
    run,
    "give every result of a kernel a storage of its own",
    requires=(Property.ANF, Property.LOWERED),
    establishes=(Property.EXPLICIT_STORAGE,),
    options=StorageOptions,
)
