"""Primitive functions to kernels, lowered only when their code is not at hand.

`fuse_ops` leaves one global function for each distinct group of operators. Each becomes a kernel
whose ports are its tensor parameters and results and whose integers are the dims it is polymorphic
in. The structural hash of the function names all that lowering depends on, so it is the first of the
two keys under which compiled code is cached: a group that was compiled before is neither lowered nor
scheduled again, in this process or another. What was measured to be faster than the estimates of schedule
rules is a choice for that hash, and a part of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np

from inlay.analysis.blocks import spine
from inlay.analysis.choices import NO_CHOICE, Choice
from inlay.analysis.cost import predicted_ns
from inlay.arith.expr import Sym, from_atom, lit
from inlay.arith.expr import evaluate as evaluate_int
from inlay.base.diagnostics import InternalError, unsupported
from inlay.bytecode.verify_tables import MAX_PORTS
from inlay.codegen.interface import Request
from inlay.interp.tensor import Meanings, evaluate
from inlay.ir import make
from inlay.ir.equal import structural_hash
from inlay.ir.expr import Call, Expr, Function, OpRef, Var
from inlay.ir.kernel import Access, Batch, Kernel, Port
from inlay.ir.module import Module
from inlay.ir.place import Place
from inlay.ir.types import ExistsType, IntType, TensorType, TupleType, Type
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.lower.in_windows import Windows
from inlay.lower.ops_to_loops import updated_param
from inlay.ops._define import FusionPattern
from inlay.ops.device import copy_in
from inlay.ops.layout import BROADCAST_TO
from inlay.ops.slicing import SLICE, UPDATE_SLICE, AxesAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.pipeline.batches import find_batches
from inlay.pipeline.lowering import Lowered
from inlay.schedule.choose import Decision


class LowerPrimitive(Protocol):
    """From a primitive function and a name to its lowered loops, for one call or for several."""

    def __call__(
        self,
        function: Function,
        name: str,
        batch: Batch | None,
        windows: Windows | None = None,
        choice: Choice = NO_CHOICE,
        /,
    ) -> Lowered:
        """Return the loops; for tensors in larger ones where windows are given."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LoopBody:
    """The body of a kernel: the group it was made from, and its loops once somebody asks.

    Attributes:
        function: the primitive function.
        key: hash of its structure.
        lower: makes the loops.
        schedule: says how they are scheduled; makes them, too.
        meanings: of the operators in it; None where nobody evaluates it.
        requests: what the code generator of the host is asked for.
        of_device: what another device is asked for instead.
        choice: answers to what schedule rules leave open, which were measured.
        batched: says how the loops of several calls at once are scheduled; None where they do not run so.
    """

    function: Function
    key: str
    lower: Callable[[], LoopFunction]
    schedule: Callable[[], Decision]
    meanings: Meanings | None = None
    requests: tuple[Request, ...] = ()
    of_device: DeviceRequest | None = None
    choice: Choice = NO_CHOICE
    batched: Callable[[], Decision] | None = None

    @property
    def kind(self) -> str:
        """Which part of the compiler understands it."""
        return "loops"

    def text(self) -> str:
        """Return the lowered loops as text."""
        return print_function(self.lower())

    def digest(self) -> str:
        """Return the hash of the group."""
        return self.key

    def evaluate(self, inputs: Sequence[np.ndarray], dims: Mapping[Sym, int]) -> tuple[np.ndarray, ...]:
        """Evaluate the group."""
        supply = iter(inputs)
        args = [
            next(supply) if isinstance(p.type, TensorType) else _number(p, dims) for p in self.function.params
        ]
        assert self.meanings is not None, "who evaluates kernels says what operators mean"
        result = evaluate(Module({"main": self.function}), args, self.meanings)
        found = cast("tuple[Any, ...]", result if isinstance(result, tuple) else (result,))
        return tuple(np.asarray(x) for x in found)


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A kernel of a device that is off the host, or a copy.

    Attributes:
        name: of the kernel.
        device: that runs it; of a copy, that gets it.
        is_copy: whether it only moves a value.
        lower: makes the loops.
        in_place: positions of parameters that may share bytes with another one.
    """

    name: str
    device: str
    is_copy: bool
    lower: Callable[[], LoopFunction]
    in_place: frozenset[int] = frozenset()


def by_estimates(_device: str, _key: str) -> Choice:
    """Leave all to rules."""
    return NO_CHOICE


def _no_code(*_: object) -> Lowered:
    raise InternalError("nobody said how groups become loops")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Options of this pass.

    Attributes:
        lower: makes the loops of a group; called lazily, at most once for each.
        apart: the same for devices whose code is not made with the program's, by their names.
        meanings: of operators.
        version: names everything besides the group that `lower` depends on.
        batch: whether several calls of a kernel may run as one.
        check: refuses a program of which no code can be made.
        choice: gives answers to what schedule rules leave open, by the device and the key of a kernel. Not
            where several calls may run as one: each has the bits of one alone.
    """

    lower: LowerPrimitive = _no_code
    apart: Mapping[str, LowerPrimitive] = field(default_factory=dict[str, LowerPrimitive])
    meanings: Meanings | None = None
    version: str = ""
    batch: bool = False
    check: Callable[[Module], None] | None = None
    choice: Callable[[str, str], Choice] = by_estimates


def run(module: Module, context: PassContext) -> Module:
    """Make a kernel of every primitive function. Cost: linear.

    Raises:
        UnsupportedError: `loop.too-many-tensors`.
    """
    operators, options = context.ops, context.options_for(BuildOptions)
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    if options.check is not None:
        options.check(module)
    batches = find_batches(module, operators) if options.batch else {}
    kernels = dict(module.kernels)
    for name, function in module.functions.items():
        if function.primitive is not None:
            kernels[name] = build_kernel(name, function, operators, options, batches.get(name))
    functions = {n: f for n, f in module.functions.items() if f.primitive is None}
    return module.with_functions(functions).with_kernels(kernels)


def host_requests(module: Module) -> tuple[Request, ...]:
    """Return what the code generator of the host is asked for, in order of definition."""
    return tuple(r for body in _bodies(module) for r in body.requests)


def device_requests(module: Module) -> tuple[DeviceRequest, ...]:
    """Return what other devices run, and copies between memories, in order of definition."""
    return tuple(body.of_device for body in _bodies(module) if body.of_device is not None)


def _bodies(module: Module) -> list[LoopBody]:
    return [k.body for k in module.kernels.values() if isinstance(k.body, LoopBody)]


def build_kernel(
    name: str,
    function: Function,
    operators: OperatorTable,
    options: BuildOptions,
    batch: Batch | None = None,
    *,
    moves: bool = False,
    windows: Windows | None = None,
) -> Kernel:
    """Return the kernel of a primitive function.

    Args:
        name: of the kernel.
        function: the group.
        operators: that there are.
        options: of this pass.
        batch: how several calls may run as one.
        moves: whether it is a copy, which runs without code of its own wherever the memories are.
        windows: which of its tensors lie in larger ones; on the host.
    """
    group = function
    if windows is not None:
        function = function_in_windows(group, windows)
    key = structural_hash(function, places=False, primitive_names=False)
    device = function.place.device if function.place is not None else ""
    copies = moves or (bool(options.apart) and copy_in(function) is not None)
    is_apart = copies or device in options.apart
    choice = NO_CHOICE if is_apart or batch is not None else options.choice(device, key)
    once = _Once(options.apart.get(device, options.lower), group, name, windows=windows, choice=choice)
    ports = _ports(function, operators, windows)
    of_device: DeviceRequest | None = None
    requests: list[Request] = []
    batched: Callable[[], Decision] | None = None
    if is_apart:
        ports = tuple([replace(p, access=_plain(p.access), may_alias=None) for p in ports])
        of_device, batch = DeviceRequest(name, device, copies, once), None
    else:
        text = f"{options.version} {key}" + ("" if windows is None else f" windows {windows.text()}")
        text += f" choice {choice.key}" if choice else ""
        requests.append(Request(name, once, text, _sharing(ports)))
        if batch is not None:
            many = _Once(options.lower, function, batch.code, batch)
            requests.append(Request(batch.code, many, f"{text} batch {sorted(batch.shared)}"))
            batched = many.schedule
    return Kernel(
        name=name,
        type=function.type,
        ports=ports,
        body=LoopBody(
            function, key, once, once.schedule, options.meanings, tuple(requests), of_device, choice, batched
        ),
        ints=() if copies else tuple(from_atom(d.sym) for d in function.type.dims),
        cost_ns=predicted_ns(group, operators),
        origin=origin_of(group),
        batch=batch,
    )


def _sharing(ports: Sequence[Port]) -> frozenset[int]:
    """Return the ports whose bytes may be those of another port."""
    pairs = [(i, p.may_alias) for i, p in enumerate(ports) if p.may_alias is not None]
    return frozenset(port for pair in pairs for port in pair)


def _plain(access: Access) -> Access:
    """Devices get what they update as an operand and write a new tensor."""
    return Access.WRITE if access is Access.UPDATE else access


class _Once:
    """Lowers a group when first called, and gives the function all dims of the group."""

    def __init__(
        self,
        lower: LowerPrimitive,
        function: Function,
        name: str,
        batch: Batch | None = None,
        windows: Windows | None = None,
        choice: Choice = NO_CHOICE,
    ) -> None:
        self._lower = lower
        self._choice = choice
        self._batch = batch
        self._windows = windows
        self._function = function
        self._name = name
        self._made: Lowered | None = None

    def __call__(self) -> LoopFunction:
        return self._lowered().loops

    def schedule(self) -> Decision:
        """Return how the loops are scheduled."""
        return self._lowered().schedule

    def _lowered(self) -> Lowered:
        if self._made is None:
            found = self._lower(self._function, self._name, self._batch, self._windows, self._choice)
            made = found.loops
            dims = tuple(d.sym for d in self._function.type.dims)
            if self._batch is not None:
                dims = (*dims, self._batch.count)
            unknown = [s.name for s in made.dims if s not in dims]
            if unknown:
                raise InternalError(
                    f"its loops mention {', '.join(unknown)}, which no parameter determines", where=self._name
                )
            # Callers give every dim, whether or not the loops happen to mention it: what they pass
            # must not depend on whether the loops were made.
            self._made = replace(found, loops=replace(made, dims=dims))
        return self._made


def function_in_windows(group: Function, windows: Windows) -> Function:
    """Return what a group computes where some of its tensors lie in larger ones.

    Those are what it takes and gives; what it takes of a larger tensor to give it back with one part more is
    its last parameter. Where it gives the first part, all else is 0, which nobody reads.
    """
    bindings: list[tuple[Var, Expr]] = []
    params: list[Var] = []
    tensors = 0
    for p in group.params:
        if not isinstance(p.type, TensorType):
            params.append(p)
            continue
        window = windows.reads.get(tensors)
        tensors += 1
        if window is None:
            params.append(p)
            continue
        whole = Var(p.name, TensorType(window.shape(p.type.shape), p.type.dtype), p.span, p.place)
        params.append(whole)
        ends = lit(window.first) + p.type.shape[window.axis]
        bounds = (make.shape_const((window.first,)), make.shape_const((ends,)), make.shape_const((1,)))
        bindings.append((p, make.call(SLICE, (whole, *bounds), AxesAttrs((window.axis,)), span=p.span)))
    lets, tail = spine(group.body)
    bindings += [(let.var, let.value) for let in lets]
    if windows.result is not None:
        tail = _in_whole(group, tail, windows, bindings, params)
    return make.function(
        params,
        make.lets(bindings, tail),
        dims=group.type.dims,
        span=group.span,
        place=group.place,
        primitive=group.primitive,
    )


def _in_whole(
    group: Function, part: Expr, windows: Windows, bindings: list[tuple[Var, Expr]], params: list[Var]
) -> Expr:
    window, t = windows.result, group.body.type
    assert window is not None, "asked by who calls"
    assert isinstance(t, TensorType), "what has a window is one tensor"
    if not isinstance(part, Var):
        made = make.var("part", t, part.span)
        bindings.append((made, part))
        part = made
    shape = window.shape(t.shape)
    if windows.continues:
        whole = make.var("whole", TensorType(shape, t.dtype), part.span, group.place)
        params.append(whole)
    else:
        zero = make.const(np.zeros((), t.dtype.numpy), t.dtype)
        empty = make.call(BROADCAST_TO, (zero, make.shape_const(shape)), span=part.span)
        whole = make.var("whole", empty.type, part.span)
        bindings.append((whole, empty))
    begins = make.shape_const((window.first,))
    return make.call(UPDATE_SLICE, (whole, part, begins), AxesAttrs((window.axis,)), span=part.span)


def _ports(function: Function, operators: OperatorTable, windows: Windows | None = None) -> tuple[Port, ...]:
    reads = [
        Port(p.name, p.type, Access.READ, _memories(p.place))
        for p in function.params
        if isinstance(p.type, TensorType)
    ]
    result = function.body.type
    if isinstance(result, ExistsType):
        result = result.body
    fields = result.fields if isinstance(result, TupleType) else (result,)
    writes = [
        Port(f"out{i}" if len(fields) > 1 else "out", t, Access.WRITE, _memories(function.place))
        for i, t in enumerate(fields)
        if isinstance(t, TensorType)
    ]
    if len(reads) + len(writes) > MAX_PORTS:
        raise unsupported(
            "loop.too-many-tensors",
            f"found a kernel of {len(reads)} operands and {len(writes)} results, of which "
            f"{MAX_PORTS} are possible",
            span=function.span,
            hint="split or join in several steps",
        )
    if windows is not None:
        if windows.result is not None:
            at = len(reads) - 1 if windows.continues else None
            writes = [replace(writes[0], access=Access.FILL, may_alias=at)]
        return (*reads, *writes)
    updated = updated_param(function, operators.definition)
    if updated is not None:
        writes = [replace(writes[0], access=Access.UPDATE, may_alias=updated)]
    elif len(writes) == 1:
        alias = _overwritten(function, writes[0].type, reads, operators)
        writes = [replace(writes[0], may_alias=alias)]
    return (*reads, *writes)


def _memories(place: Place | None) -> tuple[str, ...] | None:
    return None if place is None else place.memories


def _overwritten(
    function: Function, result: TensorType, reads: Sequence[Port], operators: OperatorTable
) -> int | None:
    """Return the position of a parameter that the result may be written over.

    All operators of the group are element-wise, and what depends on the parameter has the shape of
    the result: then each of its elements is read for the element at the same index only, and before
    that is written.
    """
    lets, tail = spine(function.body)
    for value in (*(let.value for let in lets), tail):
        if isinstance(value, Call) and isinstance(value.callee, OpRef):
            pattern = operators.definition(value.callee.op).pattern
            if pattern not in (FusionPattern.ELEMENTWISE, FusionPattern.BROADCAST):
                return None
            shape = value.type.shape if isinstance(value.type, TensorType) else None
            for arg in value.args:
                if isinstance(arg.type, TensorType) and arg.type.shape == result.shape != shape:
                    return None
        elif not isinstance(value, Var):
            return None
    return next((i for i, port in enumerate(reads) if port.type == result), None)


def _number(p: Var, dims: Mapping[Sym, int]) -> int:
    t: Type = p.type
    assert isinstance(t, IntType), "parameters are tensors and ints"
    assert t.value is not None, "an integer parameter has a value over the dims"
    return evaluate_int(t.value, dims)


def origin_of(function: Function) -> str:
    """Return the operators of a primitive function, in order."""
    lets, tail = spine(function.body)
    found: list[Expr] = [*(let.value for let in lets), tail]
    return "+".join(v.callee.op.name for v in found if isinstance(v, Call) and isinstance(v.callee, OpRef))


PASS = Pass(
    __name__,
    run,
    "make a kernel of every primitive function",
    requires=(Property.ANF, Property.FUSED),
    establishes=(Property.LOWERED,),
    options=BuildOptions,
)
