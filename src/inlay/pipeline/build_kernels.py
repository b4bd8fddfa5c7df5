"""Primitive functions to kernels: one kernel for each distinct group, lowered only when needed.

Equal groups (up to names, by structural hash) share a kernel, so a network of repeated layers has
few. The hash is also the first of the two keys under which compiled code is cached: what it names
determines everything that lowering would do, so a kernel that was compiled before is neither lowered
nor scheduled again, in this process or another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from inlay.analysis.blocks import spine
from inlay.arith.expr import Sym
from inlay.base.diagnostics import InternalError
from inlay.codegen.interface import Request
from inlay.ir.dims import free_symbols
from inlay.ir.equal import structural_hash
from inlay.ir.expr import Arm, Call, Expr, Function, GlobalVar, If, Let, Match, OpRef, Var
from inlay.ir.kernel import Access, Kernel, Port
from inlay.ir.module import Module
from inlay.ir.types import DimParam, ExistsType, FuncType, TensorType, TupleType, Type
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function

LowerPrimitive = Callable[[Function, str], LoopFunction]
"""From a primitive function and a name to a lowered loop function whose integers are its dims."""


@dataclass(frozen=True, slots=True, eq=False)
class LoopBody:
    """The body of a kernel: the group it was made from, and its loops once somebody asks.

    Attributes:
        function: the primitive function.
        key: hash of its structure.
        lower: makes the loops.
    """

    function: Function
    key: str
    lower: Callable[[], LoopFunction]

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

    def evaluate(
        self, inputs: Sequence[np.ndarray], dims: Mapping[Sym, int]
    ) -> tuple[np.ndarray, ...]:
        """Refuse: the loops are evaluated by `interp.loop`, the group by `interp.tensor`."""
        raise InternalError("evaluate the primitive function, or its loops", where="LoopBody")


@dataclass(slots=True)
class KernelSet:
    """The kernels of a module while they are collected.

    Attributes:
        lower: lowers a group.
        version: names everything besides the group that determines the result of `lower`.
        kernels: by name, in order of first use.
        requests: what the code generator is asked for.
    """

    lower: LowerPrimitive
    version: str
    kernels: dict[str, Kernel] = field(default_factory=dict[str, Kernel])
    requests: list[Request] = field(default_factory=list[Request])
    _by_key: dict[str, str] = field(default_factory=dict[str, str])
    _taken: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, function: Function) -> Kernel:
        """Return the kernel of a group, a new one if no equal group was met before."""
        key = structural_hash(function, places=False, primitive_names=False)
        name = self._by_key.get(key)
        if name is not None:
            return self.kernels[name]
        base = _identifier(function.primitive or "kernel")
        count = self._taken[base] = self._taken.get(base, 0) + 1
        name = base if count == 1 else f"{base}_{count}"
        lowered: list[LoopFunction] = []

        def lower() -> LoopFunction:
            if not lowered:
                lowered.append(self.lower(function, name))
            return lowered[0]

        self._by_key[key] = name
        kernel = Kernel(
            name=name,
            type=function.type,
            ports=_ports(function),
            body=LoopBody(function, key, lower),
            ints=tuple(_int(d) for d in function.type.dims),
            origin=_origin(function),
        )
        self.kernels[name] = kernel
        shared = {
            len([p for p in kernel.ports[:i]])
            for i, port in enumerate(kernel.ports)
            if port.may_alias is not None
        } | {port.may_alias for port in kernel.ports if port.may_alias is not None}
        self.requests.append(Request(name, lower, f"{self.version} {key}", frozenset(shared)))
        return kernel


def build_kernels(module: Module, kernels: KernelSet) -> Module:
    """Return the module with every primitive function replaced by a kernel."""
    rewriter = _Rewriter(kernels)
    functions = {
        name: replace(function, body=rewriter.block(function.body))
        for name, function in module.functions.items()
        if function.primitive is None
    }
    return module.with_functions(functions).with_kernels({**module.kernels, **kernels.kernels})


class _Rewriter:
    """Replaces calls of primitive functions, in all blocks."""

    def __init__(self, kernels: KernelSet) -> None:
        self.kernels = kernels
        self._named: dict[Var, Function] = {}

    def block(self, block: Expr) -> Expr:
        """Rewrite a block."""
        lets, tail = spine(block)
        kept: list[tuple[Let, Expr]] = []
        for let in lets:
            value = let.value
            if isinstance(value, Function) and value.primitive is not None:
                self._named[let.var] = value
            else:
                kept.append((let, self._value(value)))
        body = self._value(tail)
        for let, value in reversed(kept):
            body = Let(let.var, value, body, body.type, let.span, let.place)
        return body

    def _value(self, value: Expr) -> Expr:
        match value:
            case Function():
                return replace(value, body=self.block(value.body))
            case If(then=then, otherwise=otherwise):
                return replace(value, then=self.block(then), otherwise=self.block(otherwise))
            case Match(arms=arms):
                return replace(
                    value, arms=tuple(Arm(arm.pattern, self.block(arm.body)) for arm in arms)
                )
            case Call(callee=Function(primitive=str()) as function):
                return self._call(value, function)
            case Call(callee=Var() as var) if var in self._named:
                return self._call(value, self._named[var])
            case _:
                return value

    def _call(self, call: Call, function: Function) -> Call:
        kernel = self.kernels.add(function)
        callee = GlobalVar(kernel.name, kernel.type, call.span)
        return Call(callee, call.args, call.type, call.span, call.place)


def _int(d: DimParam):  # noqa: ANN202
    from inlay.arith.expr import from_atom  # noqa: PLC0415

    return from_atom(d.sym)


def _ports(function: Function) -> tuple[Port, ...]:
    reads = [
        Port(p.name, p.type, Access.READ)
        for p in function.params
        if isinstance(p.type, TensorType)
    ]
    alias = _overwritten(function)
    results = _results(function.body.type)
    writes = [
        Port(f"out{i}" if len(results) > 1 else "out", t, Access.WRITE, may_alias=alias)
        for i, t in enumerate(results)
    ]
    return (*reads, *writes)


def _overwritten(function: Function) -> int | None:
    """Return the position of an operand that the result may be written over.

    Only where every operator reads the element of that operand at the index it writes: then the
    element is read before it is overwritten.
    """
    return None


def _results(t: Type) -> list[TensorType]:
    if isinstance(t, ExistsType):
        t = t.body
    fields = t.fields if isinstance(t, TupleType) else (t,)
    return [f for f in fields if isinstance(f, TensorType)]


def _origin(function: Function) -> str:
    lets, tail = spine(function.body)
    names = [
        v.callee.op.name
        for v in (*(let.value for let in lets), tail)
        if isinstance(v, Call) and isinstance(v.callee, OpRef)
    ]
    return "+".join(names)


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name)
