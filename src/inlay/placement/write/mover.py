"""Brings values to where they are wanted: decides, asks for copies, writes them.

A function is walked twice, and both walks ask the same questions in the same order: the first records
its answers and gathers demands, the second repeats them and reads off the copies.
"""

from __future__ import annotations

from dataclasses import replace

from inlay.base.span import Span
from inlay.ir.existentials import open_exists, opened_dims
from inlay.ir.expr import Call, Const, Expr, Function, Let, Project, Tuple, Var
from inlay.ir.make import let as make_let
from inlay.ir.make import op_ref
from inlay.ir.place import Place
from inlay.ir.types import FuncType, TupleType, Type
from inlay.ops.device import DEVICE_COPY, CopyAttrs
from inlay.placement.infer.domains import Domain, Kind, Leaf, Parts, leaves, part
from inlay.placement.infer.instance import Instance
from inlay.placement.write.copies import Copy, CopyPlan, Demand, OpenBlock, ValuePath, lifted
from inlay.placement.write.written import Bound, Writer, Written

Statement = tuple[Var, Expr, Let | None]
"""A variable, its value, and the let that it is written for; None for a copy."""


class Mover:
    """The statements of one walk over a function, and the copies among them; `Body` walks.

    Attributes:
        writing: whether this is the second walk.
        extras: parameters that were added, by identity of the instance and atom.
    """

    def __init__(self, writer: Writer, plan: CopyPlan, *, writing: bool) -> None:
        self.writer = writer
        self.plan = plan
        self.places = writer.places
        self.machine = writer.machine
        self.writing = writing
        self.extras: dict[tuple[int, int], Expr] = {}
        self._lets: dict[int, list[Statement]] = {}
        self._front: dict[int, int] = {}
        """Where, among the statements of a block, copies for the present one begin."""
        self._known: dict[ValuePath, Bound] = {}
        self._made: dict[int, Var] = {}
        self._count = 0
        self._blocks = 0
        self._decided = 0

    def open(self, outer: OpenBlock | None, *, is_function: bool = False) -> OpenBlock:
        """Open a block inside another one."""
        number = self._blocks
        self._blocks += 1
        if outer is None:
            made = OpenBlock(None, 0, number)
        else:
            made = OpenBlock(outer, outer.here, number, None if is_function else outer.home)
            made.depth = outer.depth + 1
        self._lets[number] = []
        return made

    def close(self, block: OpenBlock) -> list[Statement]:
        """Return the statements of a block, which is written."""
        found, self._lets[block.number] = self._lets[block.number], []
        return found

    def state(self, block: OpenBlock, var: Var, value: Expr, let: Let | None) -> None:
        """Add a statement to a block; `let` is what it is written for."""
        self._lets[block.number].append((var, value, let))

    def new(
        self, var: Var, home: Domain, block: OpenBlock, param: tuple[Instance, int] | None = None
    ) -> Bound:
        """Note a new value that a variable denotes."""
        self._count += 1
        made = ValuePath(self._count)
        bound = self._known[made] = Bound(var, home, made, block, param=param)
        return bound

    def bind(
        self,
        value: Expr,
        home: Domain,
        block: OpenBlock,
        name: str,
        old: Var | None = None,
        let: Let | None = None,
    ) -> Bound:
        """Bind what is written for an operation to a variable."""
        var = old if old is not None else Var(name, open_exists(value.type)[0], value.span)
        if self.writing:
            var = Var(name, var.type, var.span, self.writer.place(home, var.place))
            self.state(block, var, value, let)
        return self.new(var, home, block)

    def project(
        self, whole: Bound, index: int, block: OpenBlock, var: Var | None, node: Expr, let: Let | None = None
    ) -> Bound:
        """Return a field of a tuple: what stands for it, or a new variable."""
        if whole.fields and (var is None or not opened_dims(node.type, var.type)):
            return whole.fields[index]
        value = ValuePath(whole.value.key, (*whole.value.path, index))
        home = part(whole.home, index)
        owner = whole.block if whole.block is not None else block
        known = self._known.get(value) if self.writing and var is None else None
        if known is not None and _is_visible(known.block, block):  # a copy was made of it
            return known._replace(home=home, block=owner)
        t = var.type if var is not None else field_type(whole.expr.type, index)
        name = var.name if var is not None else "t"
        new = Var(name, t, node.span)
        if self.writing:
            place = self.writer.place(home, None if var is None else var.place)
            new = Var(name, t, node.span, place)
            made = Project(whole.expr, index, t, node.span, self.writer.place(home))
            self.state(block, new, made, let)
        bound = Bound(new, home, value, owner)
        self._known[value] = bound._replace(block=block)
        return bound

    # ------------------------------------------------------------------------ bringing values along

    def moves(self, home: Domain, want: Domain) -> bool:
        """Whether something has to be done before a value can be used somewhere."""
        return self._decide(None if self.writing else self._differs(home, want))

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
        if not self.places.meets(x, y):
            return False
        self.places.stay(x, y)
        return True

    def put(self, constant: Expr, want: Domain) -> Expr:
        """Return a tensor that is known, made ready where it is wanted; what has no place as it is."""
        if not self.writing or type(want) is not Leaf:
            return constant
        assert isinstance(constant, Const)
        return replace(constant, place=self.writer.place(want))

    def adapt(self, bound: Bound, want: Domain, block: OpenBlock, span: Span) -> Expr:
        """Return a value where it is wanted: itself, a copy, or a tuple of fields and copies."""
        return self.bring(bound, want, block, span)[0]

    def bring(self, bound: Bound, want: Domain, block: OpenBlock, span: Span) -> tuple[Expr, Domain]:
        """The same, and where that is: in a memory that two devices share, it is where it was."""
        home = bound.home
        if isinstance(bound.expr, Const):
            return self.put(bound.expr, want), want
        if not self.moves(home, want):
            return bound.expr, want if home is None else home
        match home, want:
            case Leaf(), Leaf(atom=y):
                return self.use(bound, y, block, span), want
            case Parts(kind=Kind.TUPLE), Parts(kind=Kind.TUPLE, parts=parts):
                if not self.writing and not bound.fields:
                    self.plan.taken_apart.setdefault((block.number, block.here), []).append(bound.value)
                fields: list[Expr] = []
                homes: list[Domain] = []
                for i, p in enumerate(parts):
                    own = self.project(bound, i, block, None, bound.expr)
                    field, at = self.bring(own, p, block, span)
                    fields.append(field)
                    homes.append(at)
                made = Tuple(tuple(fields), bound.expr.type, span)
                there = Parts(Kind.TUPLE, tuple(homes))
                return self.bind(made, there, block, "t").expr, there
            case Parts(kind=Kind.TUPLE, parts=parts), Leaf():
                every = Parts(Kind.TUPLE, tuple(want for _ in parts))
                return self.bring(bound, every, block, span)
            case Parts(kind=Kind.FUNCTION), Parts(kind=Kind.FUNCTION):
                return self._adapter(bound, home, want, block, span), want
            case _:
                return self.use(bound, next(leaves(want)), block, span), want

    def _adapter(self, bound: Bound, home: Parts, want: Parts, block: OpenBlock, span: Span) -> Expr:
        """Return a function that brings arguments and result along."""
        t = bound.expr.type
        assert isinstance(t, FuncType), "a function has a function type"
        inner = self.open(block, is_function=True)
        params = tuple(
            Var(f"x{i}", p, span, self.writer.place(want.params[i])) for i, p in enumerate(t.params)
        )
        given = [self.new(p, there, inner) for p, there in zip(params, want.params, strict=True)]
        self.insert(inner)
        needed = zip(given, home.params, strict=True)
        args = [self.adapt(own, there, inner, span) for own, there in needed]
        inner.here = 1
        called = Call(bound.expr, tuple(args), t.result, span, self.writer.place(home.result))
        result = self.bind(called, home.result, inner, "y")
        self.insert(inner)
        body = self.adapt(result, want.result, inner, span)
        for var, value, _ in reversed(self.close(inner)):
            body = make_let(var, value, body, span=span)
        made = Function(params, body, t, span, self.writer.place(want.result))
        new = self.bind(made, None, block, "f").expr  # the literal says where
        self._before_copies(block, bound.expr)
        return new

    def _before_copies(self, block: OpenBlock, used: Expr) -> None:
        """Move the last statement before the copies for the present one, unless what it uses is behind them.

        Planned again, it is a statement of its own, and copies for a statement stand right before it.
        """
        lets, front = self._lets[block.number], self._front.get(block.number, 0)
        if self.writing and all(var is not used for var, _, _ in lets[front:]):
            lets.insert(front, lets.pop())
            self._front[block.number] = front + 1

    def use(self, bound: Bound, want: int, block: OpenBlock, span: Span) -> Expr:
        """Return a tensor where it is wanted: itself, a copy of it, or the parameter that brings it.

        Args:
            bound: the tensor.
            want: an atom of the place.
            block: where it is used.
            span: of the use.
        """
        if isinstance(bound.expr, Const):
            return self.put(bound.expr, Leaf(want))
        atoms = list(leaves(bound.home))
        device, mask = self.places.device(want), self.places.mask(want)
        if not atoms or bound.block is None:
            return bound.expr
        if self._decide(None if self.writing else all(self._meet(a, want) for a in atoms)):
            return bound.expr
        if bound.param is not None and not bound.value.path:
            instance, i = bound.param
            w = self.writer.written.get(id(instance))
            if w is not None and i in w.invariant:
                return self._extra(w, i, device, want, bound)
        if not self.writing:
            spot = lifted((block, block.here), bound.block)
            name = getattr(bound.expr, "name", "the value")
            demand = Demand(want, mask, spot, span, f"'{name}'")
            self.plan.demand(bound.value, atoms[0], device, demand)
            self.plan.decisions.append(demand)
            return bound.expr
        demand = self._next()
        assert isinstance(demand, Demand), "both walks ask the same questions"
        return self._made[id(self.plan.copy_for(demand))]

    def _decide(self, answer: bool | None) -> bool:  # noqa: FBT001
        """Return an answer; None, in the second walk, for that of the first: sets shrink in between."""
        if answer is not None:
            self.plan.decisions.append(answer)
            return answer
        found = self._next()
        assert isinstance(found, bool), "both walks ask the same questions"
        return found

    def _next(self) -> object:
        self._decided += 1
        return self.plan.decisions[self._decided - 1]

    def _extra(self, w: Written, i: int, device: int, want: int, bound: Bound) -> Expr:
        if not self.writing:
            for known in w.extra:
                if known[:2] == (i, device) and self._meet(known[2], want):
                    self.plan.decisions.append(known)
                    return bound.expr
            made = (i, device, self.places.add(device, self.places.mask(want)))
            self.places.stay(made[2], want)  # where the copy arrives is where it is used
            w.extra.append(made)
            self.plan.decisions.append(made)
            return bound.expr
        made = self._next()
        assert isinstance(made, tuple), "both walks ask the same questions"
        return self.extras[id(w.instance), made[2]]

    def insert(self, block: OpenBlock) -> None:
        """Write the copies that stand before the present statement."""
        if not self.writing:
            return
        # A tuple is taken apart before its fields are copied: planned again, these are statements.
        for value in self.plan.taken_apart.get((block.number, block.here), ()):
            whole = self._known.get(value)
            if whole is not None and _is_visible(whole.block, block):
                for i in range(len(whole.home.parts) if isinstance(whole.home, Parts) else 0):
                    self.project(whole, i, block, None, whole.expr)
        self._front[block.number] = len(self._lets[block.number])
        for copy in self.plan.at(block, block.here):
            self._made[id(copy)] = self._write(copy, block)

    def _write(self, copy: Copy, block: OpenBlock) -> Var:
        source = self._source(copy.value, block)
        if copy.source is None:
            expr, home = source.expr, next(leaves(source.home))
        else:
            expr, home = self._made[id(copy.source)], copy.source.atom
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
        self.state(block, var, made, None)
        return var

    def _filled(self, home: Parts, place: Place | None) -> Place:
        """Return one place for all parts of a value."""
        return Place(
            "",
            fields=tuple(
                self._filled(p, place) if isinstance(p, Parts) else None if p is None else place
                for p in home.parts
            ),
        )

    def _source(self, value: ValuePath, block: OpenBlock) -> Bound:
        """Return what denotes a value in a block; project it from the whole if nothing does."""
        found = self._known.get(value)
        if found is not None and _is_visible(found.block, block):
            return found
        whole = self._source(ValuePath(value.key, value.path[:-1]), block)
        return self.project(whole, value.path[-1], block, None, whole.expr)


def _is_visible(owner: OpenBlock | None, block: OpenBlock | None) -> bool:
    if owner is None:
        return True
    while block is not None:
        if block is owner:
            return True
        block = block.parent
    return False


def field_type(t: Type, index: int) -> Type:
    """Return the type of a field of a tuple."""
    assert isinstance(t, TupleType), "only tuples are projected"
    return t.fields[index]
