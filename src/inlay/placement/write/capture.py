"""Writes the plan into the program: places on binders, operations and branches, and copies.

Every function is walked twice in the same way: once to gather who needs what where, and, when all
copies are known (a callee may ask its callers for further parameters), once to write. What is written
has fresh variables; functions that are written more than once have fresh dims too. `body.py`
walks, `mover.py` moves values, `copies.py` decides about copies.
"""

from __future__ import annotations

from inlay.base.diagnostics import Collector
from inlay.ir.expr import Function
from inlay.ir.module import Module
from inlay.ir.walk import copy as fresh_copy
from inlay.placement.infer.instance import Instance, Regions
from inlay.placement.infer.scopes import Places
from inlay.placement.write.body import Body
from inlay.placement.write.copies import CopyPlan
from inlay.placement.write.written import Writer


def capture(
    module: Module, instances: list[Instance], places: Places, findings: Collector, regions: Regions
) -> Module:
    """Return the module with places and copies. Findings: `device.no-path`. Cost: linear.

    Args:
        module: the program.
        instances: its functions at their occurrences.
        places: where everything is.
        findings: what is wrong.
        regions: that operations are in.
    """
    writer = Writer(module, instances, places, regions)
    plans = _plans(writer, findings)
    return writer.module if findings.has_fatal else _write(writer, plans)


def _plans(writer: Writer, findings: Collector) -> dict[int, CopyPlan]:
    """Return the copies of each global function, by identity; callees are asked before callers."""
    roots = [w for group in writer.globals.values() for w in group]
    order = {id(i): n for n, i in enumerate(writer.instances)}
    plans: dict[int, CopyPlan] = {}
    for w in sorted(roots, key=lambda w: -order[id(w.instance)]):
        plan = plans[id(w)] = CopyPlan(writer.places)
        Body(writer, plan, writing=False).function(w, None)
    while True:
        writer.places.has_narrowed = False
        found = Collector()
        for plan in plans.values():
            plan.settle(found)
        if not writer.places.has_narrowed:  # sets only shrink, so this ends
            break
    findings.add(*found.diagnostics)
    return plans


def _write(writer: Writer, plans: dict[int, CopyPlan]) -> Module:
    functions: dict[str, Function] = {}
    emitted: set[int] = set()
    for name, function in writer.module.functions.items():
        if function.primitive is not None:
            functions[name] = function
        for w in writer.globals.get(name, ()):
            made = Body(writer, plans[id(w)], writing=True).function(w, None)
            if id(w.instance.function) in emitted:
                again = fresh_copy(made)
                assert isinstance(again, Function)
                made = again
            emitted.add(id(w.instance.function))
            functions[w.name] = made
    return writer.module.with_functions(functions)
