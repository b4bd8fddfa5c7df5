"""Which kernels may run many independent calls as one, and what the calls share.

Programs over trees and ragged data call the same small kernels again and again, for values that do
not depend on each other: one product of a row and a matrix for each node. Many calls at once are one
product of two matrices, which reads the matrix once. So each kernel whose operators all have
formulas gets a second body with a leading axis over calls (`loop.te_batch`); the machine decides
while running which calls are ready together.

What calls may have in common must be known when the second body is made: it is what every call in the
program passes as a constant, as weights are. Layers that are one kernel pass different ones; the machine
runs together what was given the same.

A call that may be part of a batch costs one or two microseconds: it is noted, its operands are copied
together and its results apart. What it saves is to read what it shares by itself, from a cache, at some
100 bytes a nanosecond. So a kernel that shares less than `LEAST_SHARED` bytes runs call by call; that
includes all that share nothing, which would only be copied.
"""

from __future__ import annotations

import numpy as np

from inlay.analysis.blocks import spine, values
from inlay.arith.deferred import DeferredArray
from inlay.arith.expr import fresh
from inlay.ir.expr import Call, Const, Expr, Function, GlobalVar, OpRef
from inlay.ir.kernel import Batch
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.machine.target import Target
from inlay.ops.table import OperatorTable

LEAST_SHARED = 256 << 10
"""Bytes that the calls of a kernel have to share to gain from running as one."""
OWN_CALLS = 5
"""Calls for each thread from which on threads run batches of their own. Four rows keep a thread busy: a
product of them with 8 MB of weights has 98 % of the peak (Zen 4). Some calls are always elsewhere; 8 decoders
on two threads make as many tokens either way, from 10 on more so."""


def own_batches(constant_bytes: int, target: Target) -> int:
    """Return from how many calls for each thread on threads run batches of their own; 0 for never.

    Each of them reads all weights then. From memory that takes longer than the arithmetic: a step of a
    decoder with 170 MB of weights gives 25 % fewer tokens for 32 callers so, and 13 % for 128.
    """
    return OWN_CALLS if constant_bytes <= target.l3_bytes // 4 * 3 else 0


def find_batches(module: Module, operators: OperatorTable) -> dict[str, Batch]:
    """Return the batches of the primitive functions that gain from one. Cost: linear."""
    shared: dict[str, frozenset[int]] = {}
    constants: dict[str, list[Const | None]] = {}
    primitive = {n: f for n, f in module.functions.items() if f.primitive is not None}
    for function in module.functions.values():
        if function.primitive is None:
            for value in values(function.body):
                match value:
                    case Call(callee=GlobalVar(name=name), args=args) if name in primitive:
                        _note(constants, name, args)
                    case _:
                        pass
    for name, found in constants.items():
        known = {i: c for i, c in enumerate(found) if c is not None}
        read = sum(c.held.nbytes for c in known.values() if isinstance(c.held, np.ndarray | DeferredArray))
        if read >= LEAST_SHARED and _has_formulas(primitive[name], operators):
            shared[name] = frozenset(known)
    return {name: Batch(f"{name}.batch", fresh("calls"), s) for name, s in shared.items()}


def _note(constants: dict[str, list[Const | None]], name: str, args: tuple[Expr, ...]) -> None:
    tensors = [a for a in args if isinstance(a.type, TensorType)]
    given = [a if isinstance(a, Const) else None for a in tensors]
    known = constants.setdefault(name, given)
    for i, new in enumerate(given):
        if new is None:
            known[i] = None


def _has_formulas(function: Function, operators: OperatorTable) -> bool:
    lets, tail = spine(function.body)
    calls = [v for v in (*(let.value for let in lets), tail) if isinstance(v, Call)]
    definitions = [operators.definition(v.callee.op) for v in calls if isinstance(v.callee, OpRef)]
    return len(definitions) == len(calls) and all(
        d.compute is not None and d.update is None  # updates are of one tensor, in place
        for d in definitions
    )
