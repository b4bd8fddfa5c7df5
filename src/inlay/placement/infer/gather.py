"""Walks a program and says what places have to do with each other: atoms, facts and edges.

**Instances.** Each occurrence of a global or let-bound function has constraints of its own, as a
polymorphic function has types of its own; a recursive group and function parameters have one. The
body of a function is walked once for each instance, so the work is that of the program with calls
written out; from `_MOST_VALUES` walked values on, further occurrences of a function share one instance
for the cells that they are given. That only costs copies, which cells and fixed results do not allow.

**Annotations.** `on_device(e, d)` as an operand asks for `e` on `d` and is a new value about which
nothing follows from `e`; as a definition it is `e` and is on `d`. Both stand for `e` afterwards, and so
does a `device_copy` without an engine: what they ask for is a demand like that of any use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from inlay.analysis.blocks import count_uses
from inlay.analysis.call_graph import call_graph
from inlay.base.diagnostics import Collector, InlayError, error
from inlay.base.graph import strong_components
from inlay.ir.dims import substitute_type
from inlay.ir.expr import (
    Call,
    Const,
    ConstructorRef,
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
    RefPut,
    RefRead,
    RefTake,
    RefWrite,
    Tuple,
    Var,
)
from inlay.ir.module import Module
from inlay.ir.types import Type
from inlay.ops.device import DEVICE_COPY, CopyAttrs, annotation_of, copy_in
from inlay.ops.memory import TENSOR_AT, StorageAttrs
from inlay.placement.infer import annotations
from inlay.placement.infer.constraints import Constraints
from inlay.placement.infer.domains import Domain, Kind, Parts, leaves, match_types, part
from inlay.placement.infer.graph import Edge, Graph, Reason, Support
from inlay.placement.infer.instance import CHECKS, Capability, Instance


def gather(module: Module, graph: Graph, capability: Capability, findings: Collector) -> list[Instance]:
    """Return all instances, callers before callees; fill the graph.

    Requires A-normal form and marked annotations. Findings: `placement.unknown-device`,
    `placement.unknown-memory`, `placement.unsupported-op`.
    """
    walk = _Gather(module, graph, capability, findings)
    walk.run()
    return walk.instances


_MOST_VALUES = 150_000
_MOST_AGAIN = 1_000_000
"""Values of further occurrences that are walked: each level of calls may double what is below."""


def _too_many(instance: Instance) -> InlayError:
    name = instance.name.name if isinstance(instance.name, Var) else instance.name
    return error(
        "placement.too-many-occurrences",
        f"found functions that take more than {_MOST_AGAIN:,} values written out once for each "
        f"occurrence, such as '{name}', needed fewer that share no cells",
        span=instance.function.span,
        hint="hand one cell to all calls, or make cells outside of what is called",
    )


class _Gather:
    """A walk over a program."""

    def __init__(self, module: Module, graph: Graph, capability: Capability, findings: Collector) -> None:
        self.constraints = Constraints(module, graph, findings)
        self.graph = graph
        self.machine = graph.machine
        self.module = module
        self.capability = capability
        self.instances: list[Instance] = []
        self.pending: deque[Instance] = deque()
        self.locals: dict[Var, Function] = {}
        self.shared: dict[tuple[int, int, tuple[int, ...]], Instance] = {}
        self.walked = self.again = 0
        self.met: set[int] = set()
        self.uses: dict[int, set[Var]] = {}
        self.calls = call_graph(module)
        components = strong_components(list(self.calls), lambda name: self.calls[name])
        self.groups = {name: frozenset(group) for group in components for name in group}

    def run(self) -> None:
        """Instantiate entries and functions that nobody calls, then what they call."""
        called = {g for name, callees in self.calls.items() for g in callees if g != name}
        roots = [n for n in (self.module.entry, *self.module.entries) if n in self.module.functions]
        roots += [n for n in self.module.functions if n not in called]
        self._all(list(dict.fromkeys(roots)))
        rest = [n for n in self.module.functions if n not in self._seen()]
        while rest:  # groups that only call each other
            self._all(rest[:1])
            rest = [n for n in self.module.functions if n not in self._seen()]

    def _seen(self) -> set[object]:
        return {i.name for i in self.instances if isinstance(i.name, str)}

    def _all(self, names: Sequence[str]) -> None:
        for name in names:
            if self.module.functions[name].primitive is None and name not in self._seen():
                self._instance(self.module.functions[name], name, None, {})
            elif self.module.functions[name].primitive is not None:
                self.instances.append(Instance(self.module.functions[name], name, None, {}))
            while self.pending:
                self._walk(self.pending.popleft())

    # ------------------------------------------------------------------------ instances

    def _instance(
        self, function: Function, name: str | Var | None, parent: Instance | None, types: Mapping[str, Type]
    ) -> Instance:
        made = Instance(function, name, parent, types)
        outer, self.constraints.now = self.constraints.now, made
        spelled = name.name if isinstance(name, Var) else name or "the function"
        params: list[Domain] = []
        for p in function.params:
            what = f"parameter {p.name} of {spelled}"
            domain = self.constraints.domain(p.type, what, p.span or function.span)
            self.constraints.place(domain, p.place, what, p.span or function.span)
            made.env[p] = domain
            params.append(domain)
        made.params = tuple(params)
        what = f"the result of {spelled}"
        made.result = self.constraints.domain(function.type.result, what, function.span)
        self.constraints.place(made.result, function.place, what, function.span)
        self.constraints.now = outer
        self.instances.append(made)
        self.pending.append(made)
        return made

    def _occurrence(self, atom: Expr, node: Expr, index: int) -> Domain:
        """Return the domain of a function by name, at one occurrence of it."""
        now = self.constraints.now
        assert now is not None
        found: Instance | None = now.children.get((id(node), index))
        if found is not None:  # a bare variable as a value: one instance for all of them
            return found.domain
        if isinstance(atom, GlobalVar):
            function = self.module.functions[atom.name]
            found = now.group.get(atom.name)
            if found is None:
                types = self._types_at(function, node, index)
                found = self._shared(function, atom.name, None, types, node, index)
                if found is None:
                    found = self._instance(function, atom.name, None, types)
                    members = self.groups.get(atom.name, frozenset())
                    inside = now.name in members if isinstance(now.name, str) else False
                    found.group = now.group if inside else {}
                    found.group[atom.name] = found
        else:
            assert isinstance(atom, Var)
            home = self._home(atom)
            if home.name is atom:  # recursion
                found = home
            else:
                function = self.locals[atom]
                types = {**home.types, **self._types_at(function, node, index)}
                found = self._shared(function, atom, home, types, node, index)
                if found is None:
                    found = self._instance(function, atom, home, types)
                    found.group = home.group
        now.children[id(node), index] = found
        found.sites.append((now, node, index))
        return found.domain

    def _shared(
        self,
        function: Function,
        name: str | Var,
        parent: Instance | None,
        types: Mapping[str, Type],
        node: Expr,
        index: int,
    ) -> Instance | None:
        if self.walked < _MOST_VALUES or function.type.type_vars:
            return None
        cells = self._cells_of(function, node, index)
        if cells is None:
            return None
        key = (id(function), id(parent), cells)
        if key not in self.shared:
            self.shared[key] = self._instance(function, name, parent, types)
            self.shared[key].shared = True
        return self.shared[key]

    def _cells_of(self, function: Function, node: Expr, index: int) -> tuple[int, ...] | None:
        """Return the cells that an occurrence of a function is given: others of these may share it.

        None where no other may: no copy can stand between what it gives or gets and anything else.
        """
        has_cells = self.constraints.shapes.has_cells
        if not isinstance(node, Call) or index != 0:
            return None if has_cells(function.type) else ()
        if has_cells(function.type.result) or any(map(self.constraints.is_rigid, node.args)):
            return None
        given = [a for a in node.args if isinstance(a, Var) and has_cells(a.type)]
        return tuple(self.graph.values.find(a) for v in given for a in leaves(self._home(v).env.get(v)))

    def _home(self, var: Var) -> Instance:
        """Return the instance in which a variable is bound, or that it names."""
        home = self.constraints.now
        while home is not None and var not in home.env and home.name is not var:
            home = home.parent
        assert home is not None, f"'{var.name}' is bound around its use"
        return home

    def _types_at(self, function: Function, node: Expr, index: int) -> dict[str, Type]:
        """Return what type variables stand for at a call."""
        if not function.type.type_vars or not isinstance(node, Call) or index != 0:
            return {}
        assert self.constraints.now is not None
        found: dict[str, Type] = {}
        for declared, arg in zip(function.type.params, node.args, strict=False):
            match_types(declared, arg.type, found)
        match_types(function.type.result, node.type, found)
        return {n: substitute_type(t, {}, self.constraints.now.types) for n, t in found.items()}

    # ------------------------------------------------------------------------ bodies

    def _walk(self, instance: Instance) -> None:
        self.constraints.now = instance
        spelled = instance.name.name if isinstance(instance.name, Var) else instance.name
        before = self.walked
        body = self._block(instance.function.body)
        if id(instance.function) in self.met:
            self.again += self.walked - before
        self.met.add(id(instance.function))
        if self.again > _MOST_AGAIN:
            raise _too_many(instance)
        reason = Reason(f"the body of {spelled} is its result", instance.function.span)
        self.constraints.flow(body, instance.result, reason)

    def _block(self, block: Expr) -> Domain:
        while isinstance(block, Let):
            self._let(block)
            block = block.body
        return self._value(block)

    def _let(self, let: Let) -> None:
        assert self.constraints.now is not None
        var, value = let.var, let.value
        self.walked += 1
        if isinstance(value, Function) and value.primitive is None:
            self.locals[var] = value
            self.constraints.now.env[var] = None
            if not self._is_used(var):
                self._occurrence(var, let, 0)
            return
        domain = self._value(value)
        span = var.span or value.span
        annotation = annotation_of(value)
        if annotation is not None and annotations.fixes_uses(self.constraints, value, annotation):
            self.constraints.rigid_vars.add(var)
        if isinstance(value, Const) and var.place is not None:
            domain = self.constraints.domain(var.type, f"'{var.name}'", span)
        self.constraints.place(domain, var.place, f"'{var.name}'", span)
        self.constraints.now.env[var] = domain

    def _is_used(self, var: Var) -> bool:
        """Whether anything mentions a local function."""
        assert self.constraints.now is not None
        function = self.constraints.now.function
        if id(function) not in self.uses:
            self.uses[id(function)] = set(count_uses(function.body))
        return var in self.uses[id(function)]

    def _atom(self, atom: Expr, node: Expr, index: int) -> Domain:
        """Return the domain of an operand."""
        assert self.constraints.now is not None
        match atom:
            case Var() if atom in self.locals:
                return self._occurrence(atom, node, index)
            case Var():
                return self._home(atom).env[atom]
            case GlobalVar(name=name) if name in self.module.functions:
                if self.module.functions[name].primitive is None:
                    return self._occurrence(atom, node, index)
                return self.constraints.domain(atom.type, f"@{name}", atom.span)
            case GlobalVar():
                return self.constraints.domain(atom.type, f"@{atom.name}", atom.span)
            case _:
                return None

    def _value(self, value: Expr) -> Domain:
        assert self.constraints.now is not None
        self.walked += 1
        domain = self._value_domain(value)
        self.constraints.now.domains[id(value)] = domain
        return domain

    def _value_domain(self, value: Expr) -> Domain:
        match value:
            case Call():
                return self._call(value)
            case If(then=then, otherwise=otherwise):
                join = self.constraints.domain(value.type, "the branches of if", value.span)
                for block in (then, otherwise):
                    reason = Reason("a branch is the value of if", value.span)
                    self.constraints.flow(self._block(block), join, reason)
                self.constraints.place(join, value.place, "the value of if", value.span)
                return join
            case Match(scrutinee=scrutinee, arms=arms):
                inner = self._atom(scrutinee, value, 0)
                join = self.constraints.domain(value.type, "the arms of match", value.span)
                for arm in arms:
                    self._pattern(arm.pattern, inner)
                    reason = Reason("an arm is the value of match", value.span)
                    self.constraints.flow(self._block(arm.body), join, reason)
                self.constraints.place(join, value.place, "the value of match", value.span)
                return join
            case Tuple(fields=fields):
                parts: list[Domain] = []
                for i, f in enumerate(fields):
                    own = self._atom(f, value, i)
                    if own is None and isinstance(f, Const | Var):
                        own = self.constraints.domain(f.type, f"field {i}", f.span or value.span)
                    parts.append(own)
                made = Parts(Kind.TUPLE, tuple(parts))
                self.constraints.place(made, value.place, "the tuple", value.span)
                return made
            case Project(value=inner, index=index):
                domain = part(self._atom(inner, value, 0), index)
                self.constraints.place(domain, value.place, f"field {index}", value.span)
                return domain
            case RefCreate(value=inner):
                cell = self.constraints.domain(value.type, "the cell", value.span)
                content = self._atom(inner, value, 0)
                reason = Reason("it is put into the cell", value.span)
                self.constraints.hand_on(inner, content, part(cell, 0), reason)
                self.graph.cells.update(leaves(cell))
                self.constraints.place(cell, value.place, "the cell", value.span)
                return cell
            case RefRead(ref=ref) | RefTake(ref=ref):
                return part(self._atom(ref, value, 0), 0)
            case RefWrite(ref=ref, value=inner) | RefPut(ref=ref, value=inner):
                cell, content = self._atom(ref, value, 0), self._atom(inner, value, 1)
                reason = Reason("it is written to the cell", value.span)
                self.constraints.hand_on(inner, content, part(cell, 0), reason)
                return None
            case Function():
                return self.constraints.domain(value.type, "the kernel", value.span)
            case _:
                return self._atom(value, value, 0)

    def _pattern(self, pattern: Pattern, domain: Domain) -> None:
        assert self.constraints.now is not None
        match pattern:
            case PatternVar(var=var):
                self.constraints.place(domain, var.place, f"'{var.name}'", var.span)
                self.constraints.now.env[var] = domain
            case PatternTuple(fields=fields):
                for i, f in enumerate(fields):
                    self._pattern(f, part(domain, i))
            case PatternConstructor(name=name, fields=fields):
                known = domain.fields.get(name, ()) if isinstance(domain, Parts) else ()
                for i, f in enumerate(fields):
                    self._pattern(f, known[i] if i < len(known) else domain)
            case _:
                pass

    # ------------------------------------------------------------------------ calls

    def _call(self, call: Call) -> Domain:
        annotation = annotation_of(call)
        match call.callee:
            case OpRef() if annotation is not None:
                return annotations.annotate(
                    self.constraints, call, annotation, self._atom(call.args[0], call, 1)
                )
            case OpRef(op=op, attrs=CopyAttrs() as attrs) if op is DEVICE_COPY:
                return self._copy(call, attrs)
            case OpRef(op=op) if op in CHECKS:
                first = self._atom(call.args[0], call, 1)
                return first or self.constraints.domain(call.type, "a checked constant", call.span)
            case OpRef(op=op):
                return self._operation(call, op.name)
            case ConstructorRef(name=name):
                return self._construct(call, name)
            case GlobalVar(name=name) if self._is_kernel(name):
                function = self.module.functions.get(name)
                copied = None if function is None else copy_in(function)
                if copied is not None:
                    return self._copy(call, copied)
                return self._operation(call, name)
            case callee:
                return self._apply(call, self._atom(callee, call, 0))

    def _is_kernel(self, name: str) -> bool:
        function = self.module.functions.get(name)
        return function is None or function.primitive is not None

    def _apply(self, call: Call, callee: Domain) -> Domain:
        if not isinstance(callee, Parts):  # a function of unknown shape
            result = self.constraints.domain(call.type, "the result of a call", call.span)
            for i, arg in enumerate(call.args):
                self.constraints.flow(
                    self._atom(arg, call, i + 1), callee, Reason("it is an argument", arg.span)
                )
            self.constraints.flow(callee, result, Reason("it is the result", call.span))
            return result
        name = getattr(call.callee, "name", "the function")
        for i, (arg, param) in enumerate(zip(call.args, callee.params, strict=False)):
            own = self._atom(arg, call, i + 1)
            word = getattr(arg, "name", f"argument {i}")
            reason = Reason(f"{word} is passed to parameter {i} of {name}", arg.span or call.span)
            self.constraints.hand_on(arg, own, param, reason)
        self.constraints.place(callee.result, call.place, f"the result of {name}", call.span)
        return callee.result

    def _construct(self, call: Call, name: str) -> Domain:
        data = self.constraints.domain(call.type, f"the {name}", call.span)
        known = data.fields.get(name, ()) if isinstance(data, Parts) else ()
        for i, (arg, slot) in enumerate(zip(call.args, known, strict=False)):
            own = self._atom(arg, call, i + 1)
            reason = Reason(f"it is field {i} of {name}", arg.span or call.span)
            self.constraints.hand_on(arg, own, slot, reason)
        self.constraints.place(data, call.place, f"the {name}", call.span)
        return data

    def _operation(self, call: Call, name: str) -> Domain:
        result = self.constraints.domain(call.type, f"the result of {name}", call.span)
        atoms = list(leaves(result))
        assert self.constraints.now is not None
        ports = self._ports(call)
        if ports:
            self.constraints.now.ports.update({(id(call), i): bits for i, bits in ports.items()})
        if not atoms:  # what has no tensor to give is run by the host: it needs its operands there
            for i, arg in enumerate(call.args):
                self._atom(arg, call, i + 1)
            return result
        first = atoms[0]
        for other in atoms[1:]:
            self.graph.same_device(first, other, Reason(f"it is a result of {name}", call.span))
        allowed, refused = self._able(call)
        self.graph.supports[first] = Support(name, allowed, refused, call.span)
        spec = call.callee
        if isinstance(spec, OpRef) and isinstance(spec.attrs, StorageAttrs) and spec.attrs.memories:
            named = spec.attrs.memories
            bits = self.constraints.memories(named, call.span)
            if bits is not None:
                owner = self.machine.board.owner_of(named[0])
                said = Reason(f"{name} names {', '.join(named)}", call.span)
                self.graph.limit(first, bits, said)
                self.graph.pin(first, self.machine.device_index[owner], said)
        is_view = isinstance(spec, OpRef) and spec.op is TENSOR_AT
        for i, arg in enumerate(call.args):
            own = self._atom(arg, call, i + 1)
            if not is_view and not self.constraints.is_rigid(arg):
                port = ports.get(i, self.machine.every)
                for atom in leaves(own):
                    self.graph.edge(atom, first, Edge.ORDINARY, port)
                continue
            word = Reason(f"operand {i} of {name}", arg.span or call.span)
            for atom in leaves(own):
                if is_view:
                    self.graph.same_value(atom, first, word)
                else:
                    self.graph.same_device(atom, first, word)
        self._port_results(call, result)
        self._own_place(call, result)
        return result

    def _able(self, call: Call) -> tuple[tuple[int, ...], tuple[tuple[int, str], ...]]:
        """Return the devices that can run an operation, and why each other one cannot."""
        refusals = self.capability(call)
        if not refusals:
            return self.machine.everyone, ()
        allowed = tuple(i for i, d in enumerate(self.machine.devices) if d not in refusals)
        return allowed, tuple((self.machine.device_index[d], r) for d, r in refusals.items())

    def _copy(self, call: Call, attrs: CopyAttrs) -> Domain:
        result = annotations.copy(self.constraints, call, attrs, self._atom(call.args[0], call, 1))
        self._own_place(call, result)
        return result

    def _own_place(self, call: Call, result: Domain) -> None:
        if call.place is not None:
            self.constraints.place(result, call.place, self._described(call), call.span)

    def _described(self, call: Call) -> str:
        return f"the result of {getattr(call.callee, 'name', None) or call.callee.op.name}"  # type: ignore[union-attr]

    def _ports(self, call: Call) -> dict[int, int]:
        """Return the memories that operands of a kernel may be in, by index; others may be anywhere."""
        found: dict[int, int] = {}
        for i, scope in self._scopes(call):
            if i < len(call.args):
                bits = self.constraints.memories(scope, call.span)
                if bits is not None:
                    found[i] = bits
        return found

    def _port_results(self, call: Call, result: Domain) -> None:
        atoms = list(leaves(result))
        for i, scope in self._scopes(call):
            at = i - len(call.args)
            if 0 <= at < len(atoms):
                bits = self.constraints.memories(scope, call.span)
                if bits is not None:
                    said = f"result {at} of the kernel is in {', '.join(scope)}"
                    self.graph.limit(atoms[at], bits, Reason(said, call.span))

    def _scopes(self, call: Call) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the restricted ports of a kernel: operands first, then results."""
        if not isinstance(call.callee, GlobalVar):
            return
        kernel = self.module.kernels.get(call.callee.name)
        if kernel is not None:
            for i, port in enumerate(kernel.ports):
                if port.memories is not None:
                    yield i, port.memories
            return
        function = self.module.functions[call.callee.name]
        results = getattr(function.type.result, "fields", (None,))
        places = [*(p.place for p in function.params), *(function.place for _ in results)]
        for i, place in enumerate(places):
            if place is not None and place.memories is not None:
                yield i, place.memories
