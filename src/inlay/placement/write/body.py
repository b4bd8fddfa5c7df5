"""Walks the functions of a program and writes them with places and copies.

An annotation, a copy without an engine of its own, and a variable bound to a variable stand for the
value behind them; their uses are uses of that value. An invariant parameter of a recursive function
that is needed elsewhere comes as a further parameter, so that the copy is made once, by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from inlay.ir.expr import (
    Arm,
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
from inlay.ir.make import let as make_let
from inlay.ir.place import Origin
from inlay.ir.types import Type
from inlay.ir.walk import copy as fresh_copy
from inlay.ir.walk import rewrite, spine
from inlay.ops.device import DEVICE_COPY, CopyAttrs, copy_in
from inlay.placement.infer.domains import Domain, Kind, Leaf, Parts, leaves, part
from inlay.placement.infer.instance import CHECKS, Instance
from inlay.placement.write.copies import CopyPlan, OpenBlock
from inlay.placement.write.mover import Mover
from inlay.placement.write.written import Bound, Writer, Written, is_alias


class Body:
    """A walk over one global function and the local functions in it.

    Attributes:
        env: what variables stand for, by identity of the instance.
        literals: the variables of local functions, by identity of the instance.
    """

    def __init__(self, writer: Writer, plan: CopyPlan, *, writing: bool) -> None:
        self.writer = writer
        self.places = writer.places
        self.machine = writer.machine
        self.writing = writing
        self.mover = Mover(writer, plan, writing=writing)
        self.env: dict[tuple[int, Var], Bound] = {}
        self.literals: dict[int, Var] = {}
        devices, every = range(len(self.machine.devices)), self.machine.every
        self._anywhere = [Leaf(self.places.port(d, every)) for d in devices]

    def function(self, w: Written, outer: OpenBlock | None) -> Function:
        """Return a function with places and copies; in the first walk, as it was."""
        instance, f = w.instance, w.instance.function
        block = self.mover.open(outer, is_function=True)
        params: list[Var] = []
        for i, (p, home) in enumerate(zip(f.params, instance.params, strict=True)):
            var = Var(p.name, p.type, p.span, self.writer.place(home, p.place))
            params.append(var)
            self.env[id(instance), p] = self.mover.new(var, home, block, (instance, i))
        if not self.writing:
            self.block(f.body, instance, block, instance.result)
            return f
        for i, _, atom in w.extra:
            p = f.params[i]
            var = Var(p.name, p.type, p.span, self.writer.place(Leaf(atom)))
            params.append(var)
            self.mover.extras[id(instance), atom] = var
        body = self.block(f.body, instance, block, instance.result)
        place = self.writer.place(instance.result, f.place)
        return Function(tuple(params), body, w.type, f.span, place, f.primitive)

    # ------------------------------------------------------------------------ blocks

    def block(self, root: Expr, instance: Instance, block: OpenBlock, want: Domain) -> Expr:
        """Write a block whose result is wanted somewhere."""
        lets, tail = spine(root)
        for let in lets:
            self.mover.insert(block)
            self._let(let, instance, block)
            block.here += 1
        self.mover.insert(block)
        result = self._tail(tail, instance, block, want)
        for var, value, let in reversed(self.mover.close(block)):
            if let is None:
                result = make_let(var, value, result)
            else:  # its type quantifies the dims that it opens
                result = Let(var, value, result, let.type, let.span, let.place)
        return result

    def _tail(self, tail: Expr, instance: Instance, block: OpenBlock, want: Domain) -> Expr:
        if isinstance(tail, Call | If | Match) and not is_alias(tail):
            value, home = self._value(tail, instance, block)
            if not self.mover.moves(home, want):
                return value
            bound = self.mover.bind(value, home, block, _hint(tail))
            block.here += 1  # copies of it stand behind it
            self.mover.insert(block)
            return self.mover.adapt(bound, want, block, tail.span)
        return self.mover.adapt(self.atom(tail, instance, tail, 0), want, block, tail.span)

    def _let(self, let: Let, instance: Instance, block: OpenBlock) -> None:
        var, value = let.var, let.value
        if isinstance(value, Call) and not is_alias(value):
            made, home = self._call(value, instance, block)
            self.env[id(instance), var] = self.mover.bind(made, home, block, var.name, var, let)
            return
        if isinstance(value, Function) and value.primitive is None:
            self._literals(var, let, instance, block)
            return
        if isinstance(value, Var | GlobalVar):
            self.env[id(instance), var] = self.atom(value, instance, value, 0)
            return
        if isinstance(value, Const):
            self._constant(let, instance, block)
            return
        if isinstance(value, Call):
            self.env[id(instance), var] = self._alias(value, instance, block)
            return
        if isinstance(value, Tuple):
            self._tuple(let, value, instance, block)
            return
        if isinstance(value, Project):
            whole = self.atom(value.value, instance, value, 0)
            self.env[id(instance), var] = self.mover.project(whole, value.index, block, var, value, let)
            return
        made, home = self._value(value, instance, block)
        self.env[id(instance), var] = self.mover.bind(made, home, block, var.name, var, let)

    def _constant(self, let: Let, instance: Instance, block: OpenBlock) -> None:
        home = instance.env[let.var]
        if home is None:
            self.env[id(instance), let.var] = Bound(let.value, None)
        else:
            made = self.mover.put(let.value, home)
            self.env[id(instance), let.var] = self.mover.bind(made, home, block, let.var.name, let.var, let)

    def _tuple(self, let: Let, value: Tuple, instance: Instance, block: OpenBlock) -> None:
        home = instance.domains[id(value)]
        fields: list[Bound] = []
        parts: list[Domain] = []
        exprs: list[Expr] = []
        for i, f in enumerate(value.fields):
            bound = self.atom(f, instance, value, i)
            own = part(home, i)
            brought, at = self.mover.bring(bound, own, block, value.span)
            exprs.append(brought)
            fields.append(bound if bound.home is not None else bound._replace(home=own))
            parts.append(at)
        made = Tuple(tuple(exprs), value.type, value.span, None)
        domain = Parts(Kind.TUPLE, tuple(parts))
        bound = self.mover.bind(made, domain, block, let.var.name, let.var, let)
        self.env[id(instance), let.var] = bound._replace(fields=tuple(fields))

    def _literals(self, var: Var, let: Let, instance: Instance, block: OpenBlock) -> None:
        """Write a local function once for each way in which it is used."""
        f = let.value
        assert isinstance(f, Function)
        again = False
        for child in self.writer.locals.get((id(instance), var), ()):
            if again:  # each is a statement, with copies of its own before it
                block.here += 1
                self.mover.insert(block)
            w = self.writer.written[id(child)]
            # The literal says where its parameters and result are; passes may give it more of them.
            bound = Var(var.name, var.type, var.span)
            self.literals[id(child)] = bound
            made = self.function(w, block)
            if w.extra and self.writing:  # the variable, also in the body, has the type of the function
                typed = Var(var.name, w.type, var.span)
                made = _with_var(made, bound, typed)
                bound = self.literals[id(child)] = typed
            if again and self.writing:
                fresh = fresh_copy(made)
                assert isinstance(fresh, Function)
                made = fresh
            again = True
            self.mover.state(block, bound, made, let)

    # ------------------------------------------------------------------------ atoms

    def atom(self, e: Expr, instance: Instance, node: Expr, index: int) -> Bound:
        """Return what an operand stands for."""
        if not isinstance(e, Var | GlobalVar):
            return Bound(e, None)
        found = self.env.get((id(instance), e)) if isinstance(e, Var) else None
        if found is not None:
            return found
        child = instance.children.get((id(node), index))
        if child is not None:
            chosen = self.writer.chosen[id(child)]
            if isinstance(e, Var):
                return Bound(self.literals[id(chosen)], chosen.domain)
            w = self.writer.written[id(chosen)]
            return Bound(GlobalVar(w.name, self._global_type(e, w), e.span, e.place), chosen.domain)
        if isinstance(e, GlobalVar):
            return Bound(e, None)
        parent = instance.parent
        while parent is not None:
            home = self.writer.chosen[id(parent)]
            found = self.env.get((id(home), e))
            if found is not None:
                return found
            parent = home.parent
        raise AssertionError(f"'{e.name}' is bound around its use")

    @staticmethod
    def _global_type(e: GlobalVar, w: Written) -> Type:
        return w.type if w.extra else e.type

    def _alias(self, value: Call, instance: Instance, block: OpenBlock) -> Bound:
        """Return what an annotation or a copy stands for."""
        if isinstance(value.args[0], Const):
            home = instance.constants.get(id(value))
            if home is None:
                return Bound(value.args[0], None)
            return self.mover.bind(self.mover.put(value.args[0], home), home, block, "constant")
        return self.atom(value.args[0], instance, value, 1)

    # ------------------------------------------------------------------------ values

    def _value(self, value: Expr, instance: Instance, block: OpenBlock) -> tuple[Expr, Domain]:
        """Return what is written for an operation, and where its result is."""
        home = instance.domains[id(value)]
        match value:
            case Call():
                return self._call(value, instance, block)
            case If(condition=condition, then=then, otherwise=otherwise):
                chosen = self.atom(condition, instance, value, 0).expr
                arms = [self.block(b, instance, self.mover.open(block), home) for b in (then, otherwise)]
                place = self.writer.place(home)
                return If(chosen, arms[0], arms[1], value.type, value.span, place), home
            case Match(scrutinee=scrutinee, arms=arms):
                bound = self.atom(scrutinee, instance, value, 0)
                written: list[Arm] = []
                for arm in arms:
                    inner = self.mover.open(block)
                    pattern = self._pattern(arm.pattern, bound.home, instance, inner)
                    written.append(Arm(pattern, self.block(arm.body, instance, inner, home)))
                place = self.writer.place(home)
                return Match(bound.expr, tuple(written), value.type, value.span, place), home
            case RefCreate(value=inner):
                content = self.atom(inner, instance, value, 0)
                new = self.mover.adapt(content, part(home, 0), block, value.span)
                return RefCreate(new, value.type, value.span, self.writer.place(home)), home
            case RefRead(ref=ref):
                cell = self.atom(ref, instance, value, 0)
                content = part(cell.home, 0)
                place = self.writer.place(content)
                return RefRead(cell.expr, value.type, value.span, place), content
            case RefTake(ref=ref):
                cell = self.atom(ref, instance, value, 0)
                content = part(cell.home, 0)
                place = self.writer.place(content)
                return RefTake(cell.expr, value.type, value.span, place), content
            case RefWrite(ref=ref, value=inner) | RefPut(ref=ref, value=inner):
                cell = self.atom(ref, instance, value, 0)
                content = self.atom(inner, instance, value, 1)
                new = self.mover.adapt(content, part(cell.home, 0), block, value.span)
                made = RefPut if isinstance(value, RefPut) else RefWrite
                return made(cell.expr, new, value.type, value.span, value.place), None
            case Function():  # a kernel to be
                return value, home
            case _:
                raise AssertionError(f"no operation: {type(value).__name__}")

    def _pattern(self, pattern: Pattern, home: Domain, instance: Instance, block: OpenBlock) -> Pattern:
        match pattern:
            case PatternVar(var=var):
                new = Var(var.name, var.type, var.span, self.writer.place(home, var.place))
                self.env[id(instance), var] = self.mover.new(new, home, block)
                return PatternVar(new)
            case PatternTuple(fields=fields):
                made = (self._pattern(f, part(home, i), instance, block) for i, f in enumerate(fields))
                return PatternTuple(tuple(made))
            case PatternConstructor(name=name, fields=fields):
                known = home.fields.get(name, ()) if isinstance(home, Parts) else ()
                inner = (
                    self._pattern(f, known[i] if i < len(known) else home, instance, block)
                    for i, f in enumerate(fields)
                )
                return replace(pattern, fields=tuple(inner))
            case _:
                return pattern

    def _call(self, call: Call, instance: Instance, block: OpenBlock) -> tuple[Expr, Domain]:
        home = instance.domains[id(call)]
        wanted = self._wanted(call, instance, home)
        callee = self.atom(call.callee, instance, call, 0)
        is_operation = isinstance(call.callee, OpRef) or self._is_kernel(call.callee)
        is_copy = self._copied(call) is not None
        prepares = is_operation and not is_copy and not self._keeps(call)
        args: list[Expr] = []
        for i, arg in enumerate(call.args):
            bound = self.atom(arg, instance, call, i + 1)
            if prepares and isinstance(bound.expr, Const):
                args.append(bound.expr)  # it is where the operation runs
            else:
                args.append(self.mover.adapt(bound, wanted[i], block, call.span))
        child = instance.children.get((id(call), 0))
        if child is not None:
            args.extend(self._added(call, self.writer.chosen[id(child)], instance, block))
        if self._keeps(call):
            first = self.atom(call.args[0], instance, call, 1)
            home = home if isinstance(first.expr, Const) else first.home
        if not self.writing:
            return call, home
        # A copy may be of several values: its place is that of all of them.
        one_place = is_operation and not is_copy
        place = self.writer.operation_place(home) if one_place else self.writer.place(home)
        if isinstance(call.callee, OpRef) and call.callee.op is DEVICE_COPY and place is not None:
            place = replace(place, origin=Origin.USER)  # kept as a person wrote it
        own = self.writer.regions.get((id(instance), id(call))) or (call.place.region if call.place else "")
        if own and place is not None:
            place = replace(place, region=own)
        return Call(callee.expr, tuple(args), call.type, call.span, place), home

    def _keeps(self, call: Call) -> bool:
        """Whether a call gives back its first operand."""
        return isinstance(call.callee, OpRef) and call.callee.op in CHECKS

    def _copied(self, call: Call) -> CopyAttrs | None:
        """Return from where to where a call copies that stays as it is; None for any other."""
        match call.callee:
            case OpRef(attrs=CopyAttrs() as attrs):
                return attrs
            case GlobalVar(name=name) if name in self.writer.module.functions:
                function = self.writer.module.functions[name]
                return None if function.primitive is None else copy_in(function)
            case _:
                return None

    def _is_kernel(self, callee: Expr) -> bool:
        if not isinstance(callee, GlobalVar):
            return False
        function = self.writer.module.functions.get(callee.name)
        return function is None or function.primitive is not None

    def _wanted(self, call: Call, instance: Instance, home: Domain) -> Sequence[Domain]:
        """Return where each operand is needed."""
        callee, count = call.callee, len(call.args)
        if isinstance(callee, OpRef) or self._is_kernel(callee):
            return self._wanted_by_operation(call, instance, home)
        if isinstance(callee, ConstructorRef):
            known = home.fields.get(callee.name, ()) if isinstance(home, Parts) else ()
        else:
            function = self.atom(callee, instance, call, 0).home
            known = function.params if isinstance(function, Parts) else ()
        return (*known[:count], *(None for _ in range(count - len(known))))

    def _wanted_by_operation(self, call: Call, instance: Instance, home: Domain) -> Sequence[Domain]:
        count, attrs = len(call.args), self._copied(call)
        if attrs is not None:
            if attrs.src:
                device = self.machine.device_index[attrs.src]
                mask = self.machine.reach[device]
                if attrs.src_memory:
                    mask = 1 << self.machine.memory_index[attrs.src_memory]
                return (Leaf(self.places.port(device, mask)), *(None,) * (count - 1))
        elif self._keeps(call):  # a constant comes to be somewhere by it
            first = self.atom(call.args[0], instance, call, 1)
            return (home if isinstance(first.expr, Const) else None, *(None,) * (count - 1))
        atom = home.atom if type(home) is Leaf else next(leaves(home), -1)
        device = 0 if atom < 0 else self.places.device(atom)
        every = self._anywhere[device]
        if not instance.ports:
            return (every,) * count
        masks = (instance.ports.get((id(call), i)) for i in range(count))
        return [every if m is None else Leaf(self.places.port(device, m)) for m in masks]

    def _added(self, call: Call, chosen: Instance, instance: Instance, block: OpenBlock) -> Iterator[Expr]:
        """Yield the arguments for the parameters that a function was given."""
        for i, _, atom in list(self.writer.written[id(chosen)].extra):
            bound = self.atom(call.args[i], instance, call, i + 1)
            if bound.param == (chosen, i):  # the recursive call hands on what it was given
                if self.writing:
                    yield self.mover.extras[id(chosen), atom]
            else:
                yield self.mover.use(bound, atom, block, call.span)


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
