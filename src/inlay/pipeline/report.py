"""What a compilation did, as data: operators, kernels, memory, times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from inlay.analysis.blocks import values
from inlay.arith.deferred import DeferredArray
from inlay.arith.expr import Int, substitute, symbols, to_int
from inlay.base.metadata import NOTHING_SAID, Metadata
from inlay.base.span import Span
from inlay.bytecode.formula import quoted
from inlay.ir.expr import Call, Const, GlobalVar, OpRef
from inlay.ir.module import Module
from inlay.ir.walk import postorder
from inlay.memory import read_first
from inlay.memory.plan import FunctionPlan
from inlay.ops.memory import ALLOC_STORAGE, INVOKE, KILL, TENSOR_AT
from inlay.passes.contract import Remark
from inlay.pipeline.hooking import faults
from inlay.pipeline.tuned_use import TunedUse
from inlay.runtime.promise import Promise


@dataclass(frozen=True, slots=True)
class KernelUse:
    """A kernel of the program.

    Attributes:
        name: in the program.
        origin: the operators it was made from.
        device: where it runs.
        calls: in how many places it is invoked.
        cached: whether its code came from the object cache.
    """

    name: str
    origin: str
    device: str
    calls: int
    cached: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What a compilation did.

    Attributes:
        operators: of the program as it was given, with how often each is called.
        constant_bytes: of the program as it was given.
        kernels: of the result, in order of first use.
        machine: operators that the virtual machine runs itself, with how often each is called.
        plans: the memory plan of each function.
        image_bytes: of native code.
        metadata: what the file of the program says of itself.
        remarks: what passes decided, and why.
        promise: what a call takes at most of memories that have budgets.
        tuned: which measured choices were used; None where no file was given.
    """

    operators: Mapping[str, int]
    constant_bytes: int
    kernels: tuple[KernelUse, ...]
    machine: Mapping[str, int]
    plans: tuple[FunctionPlan, ...]
    image_bytes: int
    metadata: Metadata = NOTHING_SAID
    remarks: tuple[Remark, ...] = ()
    promise: Promise | None = None
    tuned: TunedUse | None = None

    @property
    def copies(self) -> tuple[Remark, ...]:
        """Tensors that are copied before they are updated, with the reason for each."""
        return tuple(r for r in self.remarks if r.pass_name == read_first.PASS.name)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, which depends on program and target alone."""
        return {
            "operators": dict(self.operators),
            "constant_bytes": self.constant_bytes,
            "kernels": [
                {"name": k.name, "origin": k.origin, "device": k.device, "calls": k.calls}
                for k in self.kernels
            ],
            "machine": dict(self.machine),
            "memory": [memory_json(p) for p in self.plans],
            **({} if self.promise is None else {"budget": asdict(self.promise)}),
            **({} if self.tuned is None else {"tuned": self.tuned.to_json()}),
            "image_bytes": self.image_bytes,
            "copies": [{"reason": r.reason, "message": r.message, "at": _where(r.span)} for r in self.copies],
            "decisions": _counted(self.remarks),
            "faults": list(faults(self.remarks)),
            "model": self.metadata.to_json(),
        }


def memory_json(plan: FunctionPlan) -> dict[str, Any]:
    """Return the plan of a function as plain data; its parts where not all is in the host's heap."""
    found: dict[str, Any] = {
        "function": plan.name,
        "block_bytes": size_json(plan.block),
        "lower_bound": size_json(plan.bound),
        "unshared_bytes": size_json(plan.total),
        "planned": plan.planned,
        "counted": len(plan.counted),
    }
    if any(part.memory for part in plan.parts):
        found["parts"] = [
            {
                "memory": part.memory,
                "kind": part.kind.value,
                "block_bytes": size_json(part.block),
                "lower_bound": size_json(part.bound),
                "unshared_bytes": size_json(part.total),
                "planned": part.planned,
            }
            for part in plan.parts
        ]
    return found


def _counted(remarks: Iterable[Remark]) -> dict[str, dict[str, int]]:
    """Return how often each pass decided what, for which reason."""
    found: dict[str, dict[str, int]] = {}
    for remark, count in Counter((r.pass_name, f"{r.decision}: {r.reason}") for r in remarks).items():
        found.setdefault(remark[0], {})[remark[1]] = count
    return found


def _where(span: Span) -> str:
    """Return a place in a program, without the name of its file."""
    return f"{span.line}:{span.column}" if span.source is not None else span.name


def size_json(size: Int) -> int | str:
    """Return a size as a number, or as a formula over dims that `bytecode.formula` reads."""
    if size.value is not None:
        return size.value
    spelled = {s: to_int(replace(s, name=quoted(s.name))) for s in symbols(size)}
    return str(substitute(size, spelled))


def count_operators(module: Module) -> tuple[dict[str, int], int]:
    """Return how often each operator is called, and the bytes of distinct constants."""
    found: Counter[str] = Counter()
    constants: dict[int, int] = {}
    for e in postorder(module.functions.values()):
        match e:
            case Call(callee=OpRef(op=op)):
                found[op.name] += 1
            case Const(held=np.ndarray() | DeferredArray() as array):
                constants[id(array)] = array.nbytes
            case _:
                pass
    return dict(sorted(found.items())), sum(constants.values())


def count_kernels(
    module: Module, cached: Mapping[str, bool], host: str
) -> tuple[tuple[KernelUse, ...], dict[str, int]]:
    """Return the kernels that a module in explicit storage invokes, and its other operators."""
    calls: Counter[str] = Counter()
    devices: dict[str, str] = {}
    machine: Counter[str] = Counter()
    for function in module.functions.values():
        for value in values(function.body):
            if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
                continue
            if value.callee.op is INVOKE and isinstance(value.args[0], GlobalVar):
                name = value.args[0].name
                calls[name] += 1
                devices.setdefault(name, value.place.device if value.place else host)
            elif value.callee.op not in (ALLOC_STORAGE, TENSOR_AT, KILL):
                machine[value.callee.op.name] += 1
    kernels = tuple(
        KernelUse(name, module.kernels[name].origin, devices[name], count, cached.get(name, False))
        for name, count in calls.items()
    )
    return kernels, dict(sorted(machine.items()))
