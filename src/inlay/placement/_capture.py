"""Writes the plan into the program: places on binders, operations and branches, and copies.

Every function is walked twice in the same way: once to gather who needs what where, and, when all
copies are known (a callee may ask its callers for further parameters), once to write. What is written
has fresh variables; functions that are written more than once have fresh dims too.

A wish, a copy without an engine of its own, and a variable bound to a variable stand for the value
behind them; their uses are uses of that value. An invariant parameter of a recursive function that is
needed elsewhere comes as a further parameter, so that the copy is made once, by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from inlay.base.diagnostics import Collector
from inlay.base.span import Span
from inlay.ir.dims import opened_dims
from inlay.ir.expr import (
    Arm,
    Call,
    Const,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    OpRef,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    Project,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    Var,
)
from inlay.ir.make import op_ref
from inlay.ir.module import Module
from inlay.ir.place import Origin, Place
from inlay.ir.types import FuncType, TupleType, Type
from inlay.ir.walk import copy as fresh_copy
from inlay.ir.walk import rewrite, spine
from inlay.ops.device import DEVICE_COPY, CopyAttrs
from inlay.placement._copies import Copy, Demand, Plan, Region, Value, lifted
from inlay.placement._domains import Domain, Kind, Leaf, Parts, leaves, part
from inlay.placement._gather import CHECKS, Instance
from inlay.placement._scopes import Places
from inlay.placement._specialize import representatives
from inlay.placement.mark_wishes import wish_of

_NOWHERE = Value(-1)


@dataclass(frozen=True, slots=True)
class Bound:
    """What an atom stands for.

    Attributes:
        expr: what to write.
        home: where it is; None for what is nowhere (constants, control values).
        value: which value, and which part of it.
        region: where it is bound; None for what is visible everywhere.
        fields: of a tuple literal, what its fields stand for.
        param: the function and the index, of a parameter.
    """

    expr: Expr
    home: Domain
    value: Value = _NOWHERE
    region: Region | None = None
    fields: tuple[Bound, ...] = ()
    param: tuple[Instance, int] | None = None


@dataclass(slots=True, eq=False)
class _Written:
    """A function that is written.

    Attributes:
        extra: parameters added for copies of invariant ones: index, device and atom.
        invariant: indices of parameters that every recursive call passes on.
    """

    instance: Instance
    name: str
    extra: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    invariant: frozenset[int] = frozenset()

    @property
    def type(self) -> FuncType:
        """The type with the added parameters."""
        t = self.instance.function.type
        if not self.extra:
            return t
        return replace(t, params=(*t.params, *(t.params[i] for i, _, _ in self.extra)))


def capture(
    module: Module, instances: list[Instance], places: Places, findings: Collector
) -> Module:
    """Return the module with places and copies. Findings: `device.no-path`. Cost: linear."""
    writer = _Writer(module, instances, places, findings)
    return writer.run()


class _Writer:
    def __init__(
        self, module: Module, instances: list[Instance], places: Places, findings: Collector
    ) -> None:
        self.module = module
        self.places = places
        self.machine = places.machine
        self.findings = findings
        self.instances = instances
        self.chosen = representatives(instances, places)
        self.locals: dict[tuple[int, Var], list[Instance]] = {}
        self.globals: dict[str, list[_Written]] = {}
        self.written: dict[int, _Written] = {}
        self._places: dict[tuple[int, int, Origin], Place] = {}
        self._list_functions()

    def _list_functions(self) -> None:
        taken = set(self.module.functions) | set(self.module.kernels)
        for instance in self.instances:
            if self.chosen[id(instance)] is not instance or instance.function.primitive is not None:
                continue
            if isinstance(instance.name, Var):
                assert instance.parent is not None
                key = (id(self.chosen[id(instance.parent)]), instance.name)
                self.locals.setdefault(key, []).append(instance)
                name = instance.name.name
            else:
                assert isinstance(instance.name, str)
                before = self.globals.setdefault(instance.name, [])
                name, count = instance.name, len(before) + 1
                while before and name in taken:
                    name, count = f"{instance.name}_{count}", count + 1
                taken.add(name)
            made = self.written[id(instance)] = _Written(instance, name)
            made.invariant = self._invariant(instance)
            if isinstance(instance.name, str):
                self.globals[instance.name].append(made)

    def _invariant(self, instance: Instance) -> frozenset[int]:
        """Return which parameters every recursive call passes on, where all mentions are calls."""
        same = [i for i in self.instances if self.chosen[id(i)] is instance]
        sites = [s for i in same for s in i.sites] if len(self.instances) < 5000 else instance.sites
        if not sites or not all(isinstance(n, Call) and index == 0 for _, n, index in sites):
            return frozenset()
        if instance.name in (self.module.entry, *self.module.entries):
            return frozenset()
        params = instance.function.params
        kept: set[int] | None = None
        for where, node, _ in sites:
            home: Instance | None = where
            while home is not None and home.function is not instance.function:
                home = home.parent
            if home is not None:
                assert isinstance(node, Call)
                here = {i for i, p in enumerate(params) if node.args[i] is p}
                kept = here if kept is None else kept & here
        return frozenset(kept or ())

    def run(self) -> Module:
        roots = [w for group in self.globals.values() for w in group]
        order = {id(i): n for n, i in enumerate(self.instances)}
        plans: dict[int, Plan] = {}
        for w in sorted(roots, key=lambda w: -order[id(w.instance)]):
            plan = plans[id(w)] = Plan(self.places)
            _Body(self, w, plan, writing=False).function(w, None)
        while True:
            self.places.has_narrowed = False
            found = Collector()
            for plan in plans.values():
                plan.settle(found)
            if not self.places.has_narrowed:  # sets only shrink, so this ends
                break
        self.findings.add(*found.diagnostics)
        if self.findings.has_fatal:
            return self.module
        functions: dict[str, Function] = {}
        emitted: set[int] = set()
        for name, function in self.module.functions.items():
            if function.primitive is not None:
                functions[name] = function
            for w in self.globals.get(name, ()):
                made = _Body(self, w, plans[id(w)], writing=True).function(w, None)
                if id(w.instance.function) in emitted:
                    again = fresh_copy(made)
                    assert isinstance(again, Function)
                    made = again
                emitted.add(id(w.instance.function))
                functions[w.name] = made
        return self.module.with_functions(functions)

    # ------------------------------------------------------------------------ places as text

    def place(self, domain: Domain, old: Place | None = None) -> Place | None:
        """Return what is written for a domain."""
        origin = Origin.PLANNED if old is None else old.origin
        match domain:
            case Leaf(atom=atom):
                device = self.places.device(atom)
                mask = self.places.mask(atom)
                key = (device, mask, origin)
                found = self._places.get(key)
                if found is None:
                    memories = None
                    if mask != self.machine.reach[device]:
                        memories = tuple(sorted(self.machine.names(mask)))
                    found = Place(self.machine.devices[device], memories, origin)
                    self._places[key] = found
                return found
            case Parts(parts=parts):
                inner = tuple(
                    self.place(p, old.fields[i] if old and i < len(old.fields) else None)
                    for i, p in enumerate(parts)
                )
                if all(p is None for p in inner):
                    return None
                return Place("", None, origin if not inner else Origin.PLANNED, inner)
            case None:
                return None

    def operation_place(self, domain: Domain) -> Place | None:
        """Return the place of an operation: its device, and the memories of a lone result."""
        if type(domain) is Leaf:
            return self.place(domain)
        atoms = list(leaves(domain))
        if not atoms:
            return None
        if len(atoms) == 1:
            return self.place(Leaf(atoms[0]))
        return Place(self.machine.devices[self.places.device(atoms[0])])


class _Body:
    """Walks one global function and the local functions in it."""

    def __init__(self, writer: _Writer, root: _Written, plan: Plan, *, writing: bool) -> None:
        self.writer = writer
        self.root = root
        self.plan = plan
        self.places = writer.places
        self.machine = writer.machine
        self.writing = writing
        self.env: dict[tuple[int, Var], Bound] = {}
        self.literals: dict[int, Var] = {}
        self.extras: dict[tuple[int, int], Expr] = {}
        self.lets: dict[int, list[tuple[Var, Expr, Let | None]]] = {}
        self.known: dict[Value, Bound] = {}
        self.made: dict[int, Var] = {}
        self.count = 0
        self.regions = 0
        self.decided = 0
        self.host = 0

    # ------------------------------------------------------------------------ functions

    def function(self, w: _Written, outer: Region | None) -> Function:
        instance, f = w.instance, w.instance.function
        region = self._region(outer, is_function=True)
        params: list[Var] = []
        for i, (p, home) in enumerate(zip(f.params, instance.params, strict=True)):
            var = Var(p.name, p.type, p.span, self.writer.place(home, p.place))
            params.append(var)
            bound = Bound(var, home, self._new_value(), region, param=(instance, i))
            self.env[id(instance), p] = bound
            self.known[bound.value] = bound
        if self.writing:
            for i, _, atom in w.extra:
                p = f.params[i]
                var = Var(p.name, p.type, p.span, self.writer.place(Leaf(atom)))
                params.append(var)
                self.extras[id(instance), atom] = var
        body = self.block(f.body, instance, region, instance.result)
        place = self.writer.place(instance.result, f.place)
        return Function(tuple(params), body, w.type, f.span, place, f.primitive)

    def _region(self, outer: Region | None, *, is_function: bool = False) -> Region:
        number = self.regions
        self.regions += 1
        if outer is None:
            made = Region(None, 0, number)
        else:
            made = Region(outer, outer.here, number, None if is_function else outer.home)
            made.depth = outer.depth + 1
        self.lets[number] = []
        return made

    def _new_value(self) -> Value:
        self.count += 1
        return Value(self.count)

    # ------------------------------------------------------------------------ blocks

    def block(self, root: Expr, instance: Instance, region: Region, want: Domain) -> Expr:
        """Write a block whose result is wanted somewhere."""
        lets, tail = spine(root)
        for i, let in enumerate(lets):
            region.here = i
            self._insert(region)
            self._let(let, instance, region)
        region.here = len(lets)
        self._insert(region)
        result = self._tail(tail, instance, region, want)
        for var, value, let in reversed(self.lets[region.number]):
            if let is None:
                result = Let(var, value, result, result.type, value.span)
            else:  # its type quantifies the dims that it opens
                result = Let(var, value, result, let.type, let.span, let.place)
        self.lets[region.number] = []
        return result

    def _tail(self, tail: Expr, instance: Instance, region: Region, want: Domain) -> Expr:
        if isinstance(tail, Call | If | Match) and not self._is_alias(tail):
            value, home = self._value(tail, instance, region)
            if not self._decide(self._differs(home, want)):
                return value
            bound = self._bind(value, home, region, _hint(tail))
            region.here += 1  # copies of it stand behind it
            self._insert(region)
            return self.adapt(bound, want, region, tail.span)
        return self.adapt(self.atom(tail, instance, tail, 0), want, region, tail.span)

    def _bind(
        self, value: Expr, home: Domain, region: Region, name: str, old: Var | None = None,
        let: Let | None = None,
    ) -> Bound:  # fmt: skip
        place = self.writer.place(home, None if old is None else old.place)
        t = value.type if old is None else old.type
        var = Var(name, t, value.span if old is None else old.span, place)
        self.lets[region.number].append((var, value, let))
        bound = Bound(var, home, self._new_value(), region)
        self.known[bound.value] = bound
        return bound

    def _let(self, let: Let, instance: Instance, region: Region) -> None:
        var, value = let.var, let.value
        if isinstance(value, Function) and value.primitive is None:
            self._literals(var, let, instance, region)
            return
        if isinstance(value, Var | GlobalVar):
            self.env[id(instance), var] = self.atom(value, instance, value, 0)
            return
        if isinstance(value, Const):
            self._constant(let, instance, region)
            return
        alias = self._alias(value, instance, region)
        if alias is not None:
            self.env[id(instance), var] = alias
            return
        if isinstance(value, Tuple):
            self._tuple(let, value, instance, region)
            return
        if isinstance(value, Project):
            whole = self.atom(value.value, instance, value, 0)
            self.env[id(instance), var] = self._project(
                whole, value.index, region, var, value, let
            )
            return
        made, home = self._value(value, instance, region)
        self.env[id(instance), var] = self._bind(made, home, region, var.name, var, let)

    def _constant(self, let: Let, instance: Instance, region: Region) -> None:
        home = instance.env[let.var]
        if home is None:
            self.env[id(instance), let.var] = Bound(let.value, None)
        else:
            self.env[id(instance), let.var] = self._bind(
                let.value, home, region, let.var.name, let.var, let
            )

    def _tuple(self, let: Let, value: Tuple, instance: Instance, region: Region) -> None:
        home = instance.domains[id(value)]
        fields: list[Bound] = []
        parts: list[Domain] = []
        exprs: list[Expr] = []
        for i, f in enumerate(value.fields):
            bound = self.atom(f, instance, value, i)
            own = part(home, i)
            exprs.append(self.adapt(bound, own, region, value.span))
            fields.append(bound if bound.home is not None else replace(bound, home=own))
            parts.append(own)
        made = Tuple(tuple(exprs), value.type, value.span, None)
        domain = Parts(Kind.TUPLE, tuple(parts))
        bound = self._bind(made, domain, region, let.var.name, let.var, let)
        self.env[id(instance), let.var] = replace(bound, fields=tuple(fields))

    def _literals(self, var: Var, let: Let, instance: Instance, region: Region) -> None:
        """Write a local function once for each way in which it is used."""
        f = let.value
        assert isinstance(f, Function)
        again = False
        for child in self.writer.locals.get((id(instance), var), ()):
            w = self.writer.written[id(child)]
            # The literal says where its parameters and result are; passes may give it more of them.
            bound = Var(var.name, var.type, var.span)
            self.literals[id(child)] = bound
            made = self.function(w, region)
            if w.extra:  # the variable has the type of the function; calls in the body have it too
                typed = Var(var.name, w.type, var.span)
                made = _with_var(made, bound, typed)
                bound = self.literals[id(child)] = typed
            if again and self.writing:
                fresh = fresh_copy(made)
                assert isinstance(fresh, Function)
                made = fresh
            again = True
            self.lets[region.number].append((bound, made, let))

    # ------------------------------------------------------------------------ atoms

    def atom(self, e: Expr, instance: Instance, node: Expr, index: int) -> Bound:
        """Return what an operand stands for."""
        child = instance.children.get((id(node), index))
        if child is not None and isinstance(e, Var | GlobalVar):
            chosen = self.writer.chosen[id(child)]
            if isinstance(e, Var):
                return Bound(self.literals[id(chosen)], chosen.domain)
            w = self.writer.written[id(chosen)]
            return Bound(GlobalVar(w.name, self._global_type(e, w), e.span, e.place), chosen.domain)
        if isinstance(e, Var):
            home: Instance | None = instance
            while home is not None:
                found = self.env.get((id(home), e))
                if found is not None:
                    return found
                parent = home.parent
                home = None if parent is None else self.writer.chosen[id(parent)]
            raise AssertionError(f"'{e.name}' is bound around its use")
        return Bound(e, None)

    @staticmethod
    def _global_type(e: GlobalVar, w: _Written) -> Type:
        return w.type if w.extra else e.type

    def _is_alias(self, value: Expr) -> bool:
        if wish_of(value) is not None:
            return True
        match value:
            case Call(callee=OpRef(op=op, attrs=CopyAttrs() as attrs), place=place):
                if op is not DEVICE_COPY:
                    return False
                return not attrs.engine or (place is not None and place.origin is Origin.PLANNED)
            case _:
                return False

    def _alias(self, value: Expr, instance: Instance, region: Region) -> Bound | None:
        """Return what a wish or a copy stands for; None for what is computed."""
        if not isinstance(value, Call) or not self._is_alias(value):
            return None
        if isinstance(value.args[0], Const):
            home = instance.constants.get(id(value))
            if home is None:
                return Bound(value.args[0], None)
            return self._bind(value.args[0], home, region, "constant")
        return self.atom(value.args[0], instance, value, 1)

    def _project(
        self, whole: Bound, index: int, region: Region, var: Var | None, node: Expr,
        let: Let | None = None,
    ) -> Bound:  # fmt: skip
        if whole.fields and (var is None or not opened_dims(node.type, var.type)):
            return whole.fields[index]
        value = Value(whole.value.key, (*whole.value.path, index))
        home = part(whole.home, index)
        t = var.type if var is not None else _field_type(whole.expr.type, index)
        name = var.name if var is not None else "t"
        place = self.writer.place(home, None if var is None else var.place)
        new = Var(name, t, node.span, place)
        made = Project(whole.expr, index, t, node.span, self.writer.place(home))
        self.lets[region.number].append((new, made, let))
        owner = whole.region if whole.region is not None else region
        bound = Bound(new, home, value, owner)
        self.known[value] = replace(bound, region=region)
        return bound

    # ------------------------------------------------------------------------ values

    def _value(self, value: Expr, instance: Instance, region: Region) -> tuple[Expr, Domain]:
        """Return what is written for an operation, and where its result is."""
        home = instance.domains[id(value)]
        match value:
            case Call():
                return self._call(value, instance, region, home)
            case If(condition=condition, then=then, otherwise=otherwise):
                chosen = self.atom(condition, instance, value, 0).expr
                arms = [
                    self.block(b, instance, self._region(region), home) for b in (then, otherwise)
                ]
                place = self.writer.place(home)
                return If(chosen, arms[0], arms[1], value.type, value.span, place), home
            case Match(scrutinee=scrutinee, arms=arms):
                bound = self.atom(scrutinee, instance, value, 0)
                written: list[Arm] = []
                for arm in arms:
                    inner = self._region(region)
                    pattern = self._pattern(arm.pattern, bound.home, instance, inner)
                    written.append(Arm(pattern, self.block(arm.body, instance, inner, home)))
                place = self.writer.place(home)
                return Match(bound.expr, tuple(written), value.type, value.span, place), home
            case RefCreate(value=inner):
                content = self.atom(inner, instance, value, 0)
                new = self.adapt(content, part(home, 0), region, value.span)
                return RefCreate(new, value.type, value.span, self.writer.place(home)), home
            case RefRead(ref=ref):
                cell = self.atom(ref, instance, value, 0)
                content = part(cell.home, 0)
                place = self.writer.place(content)
                return RefRead(cell.expr, value.type, value.span, place), content
            case RefWrite(ref=ref, value=inner):
                cell = self.atom(ref, instance, value, 0)
                content = self.atom(inner, instance, value, 1)
                new = self.adapt(content, part(cell.home, 0), region, value.span)
                return RefWrite(cell.expr, new, value.type, value.span, value.place), None
            case Function():  # a kernel to be
                return value, home
            case _:
                raise AssertionError(f"no operation: {type(value).__name__}")

    def _pattern(
        self, pattern: Pattern, home: Domain, instance: Instance, region: Region
    ) -> Pattern:
        match pattern:
            case PatternVar(var=var):
                new = Var(var.name, var.type, var.span, self.writer.place(home, var.place))
                bound = Bound(new, home, self._new_value(), region)
                self.env[id(instance), var] = bound
                self.known[bound.value] = bound
                return PatternVar(new)
            case PatternTuple(fields=fields):
                made = (self._pattern(f, part(home, i), instance, region)
                        for i, f in enumerate(fields))  # fmt: skip
                return PatternTuple(tuple(made))
            case PatternConstructor(name=name, fields=fields):
                known = home.fields.get(name, ()) if isinstance(home, Parts) else ()
                inner = (
                    self._pattern(f, known[i] if i < len(known) else home, instance, region)
                    for i, f in enumerate(fields)
                )
                return replace(pattern, fields=tuple(inner))
            case _:
                return pattern

    def _call(
        self, call: Call, instance: Instance, region: Region, home: Domain
    ) -> tuple[Expr, Domain]:
        wanted = list(self._wanted(call, instance, home))
        callee = self.atom(call.callee, instance, call, 0)
        args: list[Expr] = []
        for i, arg in enumerate(call.args):
            bound = self.atom(arg, instance, call, i + 1)
            args.append(self.adapt(bound, wanted[i], region, call.span))
        child = instance.children.get((id(call), 0))
        if child is not None:
            args.extend(self._added(call, self.writer.chosen[id(child)], instance, region))
        is_operation = isinstance(call.callee, OpRef) or self._is_kernel(call.callee)
        if isinstance(call.callee, OpRef) and self._keeps(call):
            first = self.atom(call.args[0], instance, call, 1)
            home = first.home
        place = self.writer.operation_place(home) if is_operation else self.writer.place(home)
        if isinstance(call.callee, OpRef) and call.callee.op is DEVICE_COPY and place is not None:
            place = replace(place, origin=Origin.USER)  # kept as a person wrote it
        return Call(callee.expr, tuple(args), call.type, call.span, place), home

    def _keeps(self, call: Call) -> bool:
        """Whether a call gives back its first operand."""
        return isinstance(call.callee, OpRef) and call.callee.op in CHECKS

    def _is_kernel(self, callee: Expr) -> bool:
        if not isinstance(callee, GlobalVar):
            return False
        function = self.writer.module.functions.get(callee.name)
        return function is None or function.primitive is not None

    def _wanted(self, call: Call, instance: Instance, home: Domain) -> Iterator[Domain]:
        """Yield where each operand is needed."""
        match call.callee:
            case OpRef(op=op, attrs=CopyAttrs() as attrs) if op is DEVICE_COPY and attrs.src:
                device = self.machine.device_index[attrs.src]
                mask = self.machine.reach[device]
                if attrs.src_memory:
                    mask = 1 << self.machine.memory_index[attrs.src_memory]
                yield Leaf(self.places.port(device, mask))
            case OpRef() if self._keeps(call):
                for _ in call.args:
                    yield None
            case OpRef() | GlobalVar() if isinstance(call.callee, OpRef) or self._is_kernel(
                call.callee
            ):
                atoms = list(leaves(home))
                device = self.places.device(atoms[0]) if atoms else self.host
                every = Leaf(self.places.port(device, self.machine.every))
                for i in range(len(call.args)):
                    mask = instance.ports.get((id(call), i)) if instance.ports else None
                    yield every if mask is None else Leaf(self.places.port(device, mask))
            case _ if isinstance(home, Parts) and home.kind is Kind.DATA and _constructs(call):
                known = home.fields.get(call.callee.name, ())  # type: ignore[union-attr]
                for i in range(len(call.args)):
                    yield known[i] if i < len(known) else None
            case _:
                callee = self.atom(call.callee, instance, call, 0).home
                params = callee.params if isinstance(callee, Parts) else ()
                for i in range(len(call.args)):
                    yield params[i] if i < len(params) else None

    def _added(
        self, call: Call, chosen: Instance, instance: Instance, region: Region
    ) -> Iterator[Expr]:
        """Yield the arguments for the parameters that a function was given."""
        for i, _, atom in list(self.writer.written[id(chosen)].extra):
            bound = self.atom(call.args[i], instance, call, i + 1)
            if bound.param == (chosen, i):  # the recursive call hands on what it was given
                if self.writing:
                    yield self.extras[id(chosen), atom]
            else:
                yield self.use(bound, atom, region, call.span)

    # ------------------------------------------------------------------------ bringing values along

    def _differs(self, home: Domain, want: Domain) -> bool:
        if type(home) is Leaf and type(want) is Leaf:
            return not self._meet(home.atom, want.atom)
        match home, want:
            case (None, _) | (_, None):
                return False
            case Parts(kind=Kind.CELL), _:
                return False
            case Parts(parts=xs), Parts(parts=ys) if len(xs) == len(ys):
                return any(self._differs(x, y) for x, y in zip(xs, ys, strict=True))
            case _:
                first = next(leaves(want), None)
                return first is not None and any(not self._meet(x, first) for x in leaves(home))

    def _meet(self, x: int, y: int) -> bool:
        """Whether a value can stay for a use; both then are in what both allow."""
        places = self.places
        device, mask = places.device(y), places.mask(y)
        if not places.meets(x, device, mask):
            return False
        if not self.writing and places.group(x) != places.group(y):
            places.stay(x, y)
        return True

    def adapt(self, bound: Bound, want: Domain, region: Region, span: Span) -> Expr:
        """Return a value where it is wanted: itself, a copy, or a tuple of fields and copies."""
        home = bound.home
        if not self._decide(self._differs(home, want)):
            return bound.expr
        match home, want:
            case Leaf(), Leaf(atom=y):
                return self.use(bound, y, region, span)
            case Parts(kind=Kind.TUPLE), Parts(kind=Kind.TUPLE, parts=parts):
                fields: list[Expr] = []
                for i, p in enumerate(parts):
                    own = self._project(bound, i, region, None, bound.expr)
                    fields.append(self.adapt(own, p, region, span))
                made = Tuple(tuple(fields), bound.expr.type, span, self.writer.place(want))
                return self._bind(made, want, region, "t").expr
            case Parts(kind=Kind.TUPLE, parts=parts), Leaf():
                every = Parts(Kind.TUPLE, tuple(want for _ in parts))
                return self.adapt(bound, every, region, span)
            case Parts(kind=Kind.FUNCTION), Parts(kind=Kind.FUNCTION):
                return self._adapter(bound, home, want, region, span)
            case _:
                return self.use(bound, next(leaves(want)), region, span)

    def _adapter(
        self, bound: Bound, home: Parts, want: Parts, region: Region, span: Span
    ) -> Expr:
        """Return a function that brings arguments and result along."""
        t = bound.expr.type
        assert isinstance(t, FuncType), "a function has a function type"
        inner = self._region(region, is_function=True)
        params = tuple(
            Var(f"x{i}", p, span, self.writer.place(want.params[i])) for i, p in enumerate(t.params)
        )
        args: list[Expr] = []
        for i, (p, there) in enumerate(zip(params, want.params, strict=True)):
            own = Bound(p, there, self._new_value(), inner)
            self.known[own.value] = own
            self._insert(inner)
            args.append(self.adapt(own, home.params[i], inner, span))
        inner.here = 1
        called = Call(bound.expr, tuple(args), t.result, span, self.writer.place(home.result))
        result = self._bind(called, home.result, inner, "y")
        self._insert(inner)
        body = self.adapt(result, want.result, inner, span)
        for var, value, _ in reversed(self.lets[inner.number]):
            body = Let(var, value, body, body.type, span)
        self.lets[inner.number] = []
        made = Function(params, body, t, span, self.writer.place(want.result))
        return self._bind(made, want, region, "f").expr

    def use(self, bound: Bound, want: int, region: Region, span: Span) -> Expr:
        """Return a tensor where it is wanted: itself, a copy of it, or the parameter that brings it.

        Args:
            bound: the tensor.
            want: an atom of the place.
            region: where it is used.
            span: of the use.
        """
        home = bound.home
        atoms = [home.atom] if type(home) is Leaf else list(leaves(home))
        device, mask = self.places.device(want), self.places.mask(want)
        if not atoms or bound.region is None:
            return bound.expr
        if self._decide(all(self._meet(a, want) for a in atoms)):
            return bound.expr
        if bound.param is not None and not bound.value.path:
            instance, i = bound.param
            w = self.writer.written.get(id(instance))
            if w is not None and i in w.invariant:
                return self._extra(w, i, device, want, bound)
        if not self.writing:
            spot = lifted((region, region.here), bound.region)
            name = getattr(bound.expr, "name", "the value")
            demand = Demand(want, mask, spot, span, f"'{name}'")
            self.plan.demand(bound.value, atoms[0], device, demand)
            self.plan.decisions.append(demand)
            return bound.expr
        demand = self._next()
        assert isinstance(demand, Demand), "both walks ask the same questions"
        return self.made[id(self.plan.copy_for(demand))]

    def _decide(self, answer: bool) -> bool:  # noqa: FBT001
        """Return an answer, in the second walk that of the first: sets shrink in between."""
        if not self.writing:
            self.plan.decisions.append(answer)
            return answer
        found = self._next()
        assert isinstance(found, bool), "both walks ask the same questions"
        return found

    def _next(self) -> object:
        self.decided += 1
        return self.plan.decisions[self.decided - 1]

    def _extra(self, w: _Written, i: int, device: int, want: int, bound: Bound) -> Expr:
        mask = self.places.mask(want)
        if not self.writing:
            for known in w.extra:
                if known[:2] == (i, device) and self.places.mask(known[2]) & mask:
                    self.places.narrow(known[2], mask)
                    self.places.narrow(want, self.places.mask(known[2]))
                    self.plan.decisions.append(known)
                    return bound.expr
            made = (i, device, self.places.add(device, mask))
            w.extra.append(made)
            self.plan.decisions.append(made)
            return bound.expr
        made = self._next()
        assert isinstance(made, tuple), "both walks ask the same questions"
        return self.extras[id(w.instance), made[2]]

    def _insert(self, region: Region) -> None:
        """Write the copies that stand before the present statement."""
        if not self.writing:
            return
        for copy in self.plan.at(region, region.here):
            self.made[id(copy)] = self._write(copy, region)

    def _write(self, copy: Copy, region: Region) -> Var:
        source = self._source(copy.value, region)
        if copy.source is None:
            expr, home = source.expr, next(leaves(source.home))
        else:
            expr, home = self.made[id(copy.source)], copy.source.atom
        assert copy.link is not None
        copy.atom = self.places.add(copy.device, copy.mask)
        names, devices = self.machine.names, self.machine.devices
        from_, to = names(self.places.mask(home)), names(copy.mask)
        attrs = CopyAttrs(
            devices[self.places.device(home)],
            devices[copy.device],
            from_[0] if len(from_) == 1 else "",
            to[0] if len(to) == 1 else "",
            copy.link.engine,
        )
        place = self.writer.place(Leaf(copy.atom))
        if isinstance(source.home, Parts):
            place = self._filled(source.home, place)
        callee = op_ref(DEVICE_COPY, attrs, expr.span)
        made = Call(callee, (expr,), expr.type, expr.span, place)
        var = Var(getattr(expr, "name", "t"), expr.type, expr.span, place)
        self.lets[region.number].append((var, made, None))
        return var

    def _filled(self, home: Parts, place: Place | None) -> Place:
        """Return one place for all parts of a value."""
        return Place("", fields=tuple(
            self._filled(p, place) if isinstance(p, Parts) else None if p is None else place
            for p in home.parts
        ))  # fmt: skip

    def _source(self, value: Value, region: Region) -> Bound:
        """Return what denotes a value in a region; project it from the whole if nothing does."""
        found = self.known.get(value)
        if found is not None and _is_visible(found.region, region):
            return found
        whole = self._source(Value(value.key, value.path[:-1]), region)
        return self._project(whole, value.path[-1], region, None, whole.expr)


def _is_visible(owner: Region | None, region: Region | None) -> bool:
    if owner is None:
        return True
    while region is not None:
        if region is owner:
            return True
        region = region.parent
    return False


def _constructs(call: Call) -> bool:
    return hasattr(call.callee, "adt")


def _field_type(t: Type, index: int) -> Type:
    assert isinstance(t, TupleType), "only tuples are projected"
    return t.fields[index]


def _hint(value: Expr) -> str:
    match value:
        case Call(callee=Var(name=name) | GlobalVar(name=name)):
            return name
        case _:
            return "t"


def _with_var(function: Function, old: Var, new: Var) -> Function:
    result = rewrite(function, lambda e: new if e is old else e)
    assert isinstance(result, Function)
    return result

