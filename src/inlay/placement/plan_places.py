"""Plans where everything lives: infers from what is written, fills in, writes places and copies.

The steps are modules of their own, and each reads as one idea: `infer/gather.py` says what places have
to do with each other, `infer/contradictions.py` refuses contradictions, `infer/solve.py` chooses
devices, `infer/scopes.py` memories, `write/specialize.py` which functions are one, `write/capture.py`
writes. The program is the only record: planning a planned program changes nothing, and new facts on it
only narrow and add copies.

On a board with one device and one memory there is nothing to choose: operations get that device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from inlay.analysis.blocks import relet, with_blocks
from inlay.base import garbage
from inlay.base.diagnostics import Collector
from inlay.base.named_sizes import named_sizes
from inlay.base.options import option
from inlay.ir.expr import Call, Expr, Function, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.place import Origin, Place
from inlay.ir.walk import all_vars, map_parts, rewrite, spine, substitute_vars
from inlay.machine.board import Board
from inlay.machine.board_file import find_board
from inlay.ops.device import DEVICE_COPY
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.placement.choose.bounds import cheapest_cut
from inlay.placement.choose.calibration import calibrated, read_measured
from inlay.placement.choose.candidates import CandidateSource, Offers, offers_of, regions_of
from inlay.placement.choose.costs import CostHook, Costs, Measured, Predictor
from inlay.placement.choose.decide import Decision, decide
from inlay.placement.choose.order import in_order
from inlay.placement.choose.typical import check_sizes, symbols_of
from inlay.placement.infer.capability import Refuse, capability_of
from inlay.placement.infer.contradictions import check_facts
from inlay.placement.infer.gather import gather
from inlay.placement.infer.graph import Graph, Machine
from inlay.placement.infer.instance import Capability, Instance, Regions
from inlay.placement.infer.operations import GroupSource
from inlay.placement.infer.pins import apply_pins
from inlay.placement.infer.scopes import Places, find_scopes
from inlay.placement.infer.solve import solve
from inlay.placement.write.capture import capture


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of this pass."""

    board: str = option("host", help="the machine to plan for, by name or as a file")
    machine: Board | None = None
    optimise: bool = option(False, help="choose what nobody placed by predicted time")  # noqa: FBT003
    first: bool = option(False, help="then choose the first device that can instead")  # noqa: FBT003
    worth: float = option(0.0, help="share of time that any other plan has to save")
    pins: tuple[str, ...] = option((), help="operations to put on devices, PATTERN=DEVICE")
    typical: tuple[str, ...] = option((), help="sizes to predict for, NAME=SIZE")
    calibration: str = option("", help="a file of measured costs that `inlay bench` wrote")
    generators: Mapping[str, Refuse] | None = None
    groups: GroupSource | None = None
    candidates: Mapping[str, CandidateSource] | None = None
    hooks: Mapping[str, CostHook] | None = None
    host_ends: bool = option(False, help="inputs and outputs of the program are on the host")  # noqa: FBT003
    threads: Mapping[str, int] | None = None
    watch: Callable[[Planned], None] | None = None
    asks: bool = False
    """Whether who watches asks why: where there is one device too, and for other sizes."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """What inference found, before it is written.

    Attributes:
        graph: atoms and facts.
        instances: functions at their occurrences.
        places: device and memories of every atom.
        decision: what was chosen by predicted time.
    """

    graph: Graph
    instances: list[Instance]
    places: Places
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, for who asks about it.

    Attributes:
        board: the machine, with what was measured.
        choice: how it was chosen.
        found: what inference found.
        module: the placed program.
    """

    board: Board
    choice: Choice | None
    found: Inferred
    module: Module


def run(module: Module, context: PassContext) -> Module:
    """Place everything. Cost: linear.

    Raises:
        CompileError: all of `placement.contradiction`, `placement.unsupported-op`,
            `placement.unknown-device`, `placement.unknown-memory`, `memory.scope-empty`,
            `device.no-path` at once.
    """
    options = context.options_for(PlanOptions)
    board = options.machine or find_board(options.board)
    if options.host_ends and len(board.devices) > 1:
        module = with_host_ends(module, Place(board.host.name))
    measured = Measured()
    if options.optimise or options.pins:
        measured = read_measured(options.calibration)
        board = calibrated(board, measured)
        check_sizes(module, named_sizes(options.typical))
    capability, choice = _choice(module, board, context, measured)
    if len(board.devices) == 1 or not options.optimise or options.first:
        is_watched = options.asks or len(board.devices) > 1
        return plan(module, board, capability, choice, options.watch if is_watched else None)
    found = planned(module, board, capability, choice)
    ordered = module
    if _may_be_faster(found):
        ordered = in_order(module, _predictor(module, board, context, measured))
    if ordered is not module:
        capability, choice = _choice(ordered, board, context, measured)
        found = _faster(found, planned(ordered, board, capability, choice))
    if options.watch is not None:
        options.watch(found)
    return found.module


def _choice(
    module: Module, board: Board, context: PassContext, measured: Measured
) -> tuple[Capability, Choice | None]:
    """Return what devices can run of a program, and how to choose among them."""
    options = context.options_for(PlanOptions)
    offers = offers_of(module, options.candidates or {})
    capability = capability_of(board, context.ops, _with_offers(options.generators, offers))
    choice = None
    if options.optimise or options.pins:
        assert isinstance(context.ops, OperatorTable), "costs are of known operators"
        groups = options.groups
        if offers is not None:
            groups = partial(offers.split_groups, options.groups)
        typical = named_sizes(options.typical)
        costs = Costs(options.hooks or {}, measured, typical, groups, options.threads or {})
        choice = Choice(
            context.ops,
            costs,
            options.pins,
            search=options.optimise,
            first=options.first,
            worth=options.worth,
            offers=offers,
            asks=options.asks,
        )
    return capability, choice


def _predictor(
    module: Module, board: Board, context: PassContext, measured: Measured
) -> Callable[[Call], float]:
    """Return what gives the time of an operation on the device that is fastest for it."""
    options = context.options_for(PlanOptions)
    assert isinstance(context.ops, OperatorTable), "costs are of known operators"
    costs = Costs(options.hooks or {}, measured, threads=options.threads or {})
    typical = named_sizes(options.typical)
    sizes = {s: typical[s.name] for s in symbols_of(module) if s.name in typical}
    predictor = Predictor(board, context.ops, costs, sizes)
    capability = capability_of(board, context.ops, options.generators)

    def least(call: Call) -> float:
        refused = capability(call)
        able = [d.name for d in board.devices if d.name not in refused]
        return min((predictor.kernel([(None, call)], name) for name in able), default=0.0)

    return least


def _faster(one: Planned, other: Planned) -> Planned:
    """Return the second of two plans where it is predicted to be faster; in doubt the first."""
    decisions = one.found.decision, other.found.decision
    if decisions[0] is None or decisions[1] is None:
        return one
    return other if decisions[1].outcome.time < _SAVED * decisions[0].outcome.time else one


def _may_be_faster(found: Planned) -> bool:
    """Whether a plan in another order of lines might save enough: the bound holds in every order."""
    decision = found.found.decision
    if decision is None:
        return False
    least = {s.tasks: s.cost for s in sorted(decision.sets, key=lambda s: -s.cost)}
    return cheapest_cut(decision.problem, least) < _SAVED * decision.outcome.time


_SAVED = 0.99
"""The share of the time that another order of lines may take at most: rounding is no reason."""


def with_host_ends(module: Module, host: Place) -> Module:
    """Return the module with inputs and outputs of entries on the host, where nobody says else."""
    functions = dict(module.functions)
    for name in dict.fromkeys((module.entry, *module.entries)):
        if name in functions:
            f = functions[name]
            params = tuple(p if p.place else Var(p.name, p.type, p.span, host) for p in f.params)
            renamed = dict(zip(f.params, params, strict=True))
            body = substitute_vars(f.body, {a: b for a, b in renamed.items() if a is not b})
            functions[name] = replace(f, params=params, body=body, place=f.place or host)
    return module.with_functions(functions)


def _with_offers(
    generators: Mapping[str, Refuse] | None, offers: Offers | None
) -> Mapping[str, Refuse] | None:
    """Return who refuses operations, with what devices that take patterns do not take alone."""
    if offers is None:
        return generators
    own = {d: partial(offers.refusal, device=d) for d in offers.devices}
    return {**(generators or {}), **own}


def _regions(found: Inferred) -> Regions:
    decision = found.decision
    if decision is None or not decision.located:
        return {}
    names = found.graph.machine.devices

    def device_of(index: int) -> str:
        return names[found.places.device(decision.operations[index].atom)]

    used = decision.outcome.used
    return regions_of(decision.located, used, device_of, decision.operations)


_PLAIN = Costs()


@dataclass(frozen=True, slots=True)
class Choice:
    """How to choose what nobody placed.

    Attributes:
        operators: what the program uses.
        costs: where predictions come from.
        pins: operations to put on devices.
        search: whether to look for the least predicted time; else inference decides alone.
        first: whether to take the first device that can run each operation, instead of searching.
        worth: the share of the predicted time of that plan which another one has to save.
        offers: what devices that take patterns would run.
        asks: whether somebody asks why the plan is as it is.
    """

    operators: OperatorTable
    costs: Costs = _PLAIN
    pins: tuple[str, ...] = ()
    search: bool = True
    first: bool = False
    worth: float = 0.0
    offers: Offers | None = None
    asks: bool = False


def plan(
    module: Module,
    board: Board,
    capability: Capability,
    choice: Choice | None = None,
    watch: Callable[[Planned], None] | None = None,
) -> Module:
    """Return the module with a place for everything; see `run`.

    Args:
        module: the program.
        board: the machine.
        capability: what devices can run.
        choice: how to choose what nobody placed.
        watch: is told the plan.
    """
    findings = Collector()
    if len(board.devices) == 1 and len(board.memories) == 1 and watch is None:
        if choice is not None and choice.pins:  # may still be wrong
            infer(module, board, capability, findings, replace(choice, search=False))
        return _place_all(module, Place(board.host.name))
    if choice is not None:
        choice = replace(choice, asks=watch is not None)
    found = planned(module, board, capability, choice)
    if watch is not None:
        watch(found)
    return found.module


def planned(module: Module, board: Board, capability: Capability, choice: Choice | None = None) -> Planned:
    """Return the plan of a program; see `plan`."""
    findings = Collector()
    with garbage.paused():  # a third of the time of a large program, and nothing is found
        found = infer(module, board, capability, findings, choice)
        result = capture(module, found.instances, found.places, findings, _regions(found))
    findings.raise_if_fatal()
    return Planned(board, choice, found, result)


def infer(
    module: Module, board: Board, capability: Capability, findings: Collector, choice: Choice | None = None
) -> Inferred:
    """Return what follows from what is written and, with a choice, what is chosen for the rest.

    Raises:
        CompileError: as `run`, of what stands in the way of an answer.
    """
    graph = Graph(Machine(board))
    instances = gather(module, graph, capability, findings)
    if choice is not None:
        apply_pins(graph, instances, choice.pins, choice.operators, findings)
    check_facts(graph, findings)
    findings.raise_if_fatal()
    decision = None
    if choice is not None and choice.search:
        decision = decide(
            module,
            board,
            graph,
            instances,
            choice.operators,
            choice.costs,
            choice.offers,
            first=choice.first,
            worth=choice.worth,
            asks=choice.asks,
        )
    places = find_scopes(graph, solve(graph), findings)
    findings.raise_if_fatal()
    return Inferred(graph, instances, places, decision)


def forget(module: Module) -> Module:
    """Return the module without what was planned: places of that origin, and copies.

    What people wrote stays, and so do functions that were specialised; plan again with new facts.
    """
    return module.with_functions({n: _forgotten(f) for n, f in module.functions.items()})


def _forgotten(function: Function) -> Function:
    def without(e: Expr) -> Expr:
        planned = e.place is not None and _asked(e.place) != e.place
        is_copy = isinstance(e, Call) and isinstance(e.callee, OpRef) and e.callee.op is DEVICE_COPY
        if is_copy and planned:
            assert isinstance(e, Call)
            return e.args[0]
        return replace(e, place=_asked(e.place)) if planned and not isinstance(e, Var) else e

    return _replaced(function, _asked, without)


def widened(module: Module) -> Module:
    """Return the module with values on their devices and in any memory of these, but for what was asked."""
    return module.with_functions(
        {n: f if f.primitive is not None else _widened(f) for n, f in module.functions.items()}
    )


def _widened(function: Function) -> Function:
    def without(e: Expr) -> Expr:
        return e if isinstance(e, Var) else replace(e, place=_anywhere(e.place))

    return _replaced(function, _anywhere, without)


def _anywhere(place: Place | None) -> Place | None:
    """Return a place without the memories that were planned."""
    if place is None or (place.memories is None and not place.fields):
        return place
    fields = tuple(map(_anywhere, place.fields))
    memories = None if place.origin is Origin.PLANNED else place.memories
    return replace(place, memories=memories, fields=fields)


def _replaced(
    function: Function, of_var: Callable[[Place | None], Place | None], of_value: Callable[[Expr], Expr]
) -> Function:
    """Return a function with other places of variables, and with values replaced."""
    bound = [*all_vars(function), *function.params]
    renamed = {v: Var(v.name, v.type, v.span, of_var(v.place)) for v in bound}
    result = rewrite(map_parts(function, lambda t: t, lambda e: e, renamed), of_value)
    assert isinstance(result, Function)
    return result


def _asked(place: Place | None) -> Place | None:
    """Return what people asked for in a place."""
    if place is None or (not place.fields and place.origin is Origin.PLANNED):
        return None
    if not place.fields:
        return place
    fields = tuple(map(_asked, place.fields))
    return None if all(f is None for f in fields) else replace(place, fields=fields)


def _place_all(module: Module, place: Place) -> Module:
    return module.with_functions({n: _function(f, place) for n, f in module.functions.items()})


def _function(function: Function, place: Place) -> Function:
    body = _block(function.body, place)
    return function if body is function.body else replace(function, body=body)


def _block(block: Expr, place: Place) -> Expr:
    lets, tail = spine(block)
    result = _value(tail, place)
    for let in reversed(lets):
        result = relet(let, _value(let.value, place), result)
    return result


def _value(value: Expr, place: Place) -> Expr:
    match value:
        case Call(callee=OpRef(), place=None):
            return Call(value.callee, value.args, value.type, value.span, place)
        case _:
            return with_blocks(value, lambda block: _block(block, place))


PASS = Pass(
    __name__,
    run,
    "decide where every value lives, and write copies",
    requires=(Property.ANF,),
    establishes=(Property.PLACED,),
    options=PlanOptions,
)
