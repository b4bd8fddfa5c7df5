"""Lets state of a fixed size be updated where it is: entries get another one that writes only what changes.

    fn main(table: Tensor[n, d], at, rows) { ... let next = scatter_nd(table, at, rows); ...; (y, next) }

copies the whole table in each run. A session could let a run write into the table itself, but a run that
fails in its middle would leave half of an update behind. So the session has *two* tables: the one that
counts, which no run ever writes, and a spare one, which is the one that counted a run ago. It differs from
that in what the last run wrote, and nowhere else:

    fn main.grow(table, at, rows, table.spare, table.at0) {
      let caught = scatter_nd(table.spare, table.at0, gather_nd(table, table.at0));     is equal to table
      ... let next = scatter_nd(caught, at, rows); ...
      (y, next, at)
    }

brings the spare one up to date, by what the last run said it wrote (`at`), and updates it. After a run the
two change places; after one that failed, was cancelled or came too late nothing has happened to the table,
and the spare one is made anew. So a run writes what changes twice, and copies nothing else; there are as
many bytes as a run had before, with its input and its result. Nothing has to be undone, and reading the
table before or behind the update is as right as it is in `main`, because to the program the two are
different values.

**What is needed.** An output that is an input behind one or more of `scatter_nd`, `scatter_elements` and
`update_slice`, each of the one before, whatever else reads them. Sizes of what is written may differ from
run to run: what is taken for the run before has a first dim of its own, which is 0 where there is nothing to
catch up with. What does not fit stays as it is, and the pass says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from inlay.arith.dtype import I64
from inlay.arith.expr import Int, fresh, lit, symbols, to_int
from inlay.ir import make
from inlay.ir.core_ops import CHECK_AT_LEAST, CHECK_EQUAL, CHECK_SHAPE, TO_CONTROL, TO_TENSOR
from inlay.ir.dims import free_symbols
from inlay.ir.expr import Call, Const, Expr, Function, OpRef, Var
from inlay.ir.module import EntryNames, Module
from inlay.ir.op import Op
from inlay.ir.scope import LetBuilder
from inlay.ir.types import DimParam, ShapeType, TensorType
from inlay.ir.walk import copy, spine
from inlay.ops.indexing import AxisAttrs, BatchAttrs
from inlay.ops.scatter import Combine, ScatterAttrs, ScatterElementsAttrs
from inlay.ops.slicing import AxesAttrs
from inlay.passes.contract import Pass, PassContext, Property, Remark
from inlay.transforms._growing import Written, block_of, fields_of
from inlay.transforms.grow_state import GrowStateOptions

_UPDATES = ("scatter_nd", "scatter_elements", "update_slice")


def run(module: Module, context: PassContext) -> Module:
    """Add or extend an entry for each that gives inputs with parts replaced. Cost: linear."""
    if not context.options_for(GrowStateOptions).sessions:
        return module
    functions, entries = dict(module.functions), dict(module.entries)
    twins = {e.grown for e in module.entries.values()}
    for name, names in module.entries.items():
        if name not in functions or name in twins or names.updates:
            continue
        other = names.grown or f"{name}.grow"
        _explain(module.functions[name], names, context)
        twin = copy(functions[names.grown or name])
        assert isinstance(twin, Function), "a copy of a function is one"
        found = _chains(twin, names)
        if not found or (other in functions and not names.grown):
            continue
        writer = _Writer(twin, context)
        for chain in found:
            writer.add(names.inputs[chain.param], chain)
        if set(writer.inputs) & {*names.inputs, *names.outputs}:
            continue
        functions[other] = writer.finish(fields_of(twin, len(names.outputs)))
        entries[other] = EntryNames((*names.inputs, *writer.inputs), (*names.outputs, *writer.outputs))
        updates = tuple((names.inputs[c.param], names.outputs[c.field]) for c in found)
        entries[name] = replace(names, grown=other, updates=updates)
    if functions == dict(module.functions):
        return module
    return replace(module, entries=MappingProxyType(entries)).with_functions(functions)


@dataclass(frozen=True, slots=True)
class _Chain:
    """An input and an output, by position, and what is between them.

    Attributes:
        param, field: the input and the output.
        first: the variable of what takes the input: an update, or a check in front of it.
        updates: in order.
    """

    param: int
    field: int
    first: Var
    updates: tuple[Call, ...]


def _chains(function: Function, names: EntryNames) -> list[_Chain]:
    """Return what is updated, one output for an input: what the program says, else the last one."""
    best: dict[int, tuple[tuple[bool, int], _Chain]] = {}
    for chain in _candidates(function, names):
        is_said = (names.inputs[chain.param], names.outputs[chain.field]) in names.state
        key = is_said, len(chain.updates)
        if chain.param not in best or key > best[chain.param][0]:
            best[chain.param] = key, chain
    return sorted((chain for _, chain in best.values()), key=lambda c: c.field)


def _candidates(function: Function, names: EntryNames) -> Iterator[_Chain]:
    known: Mapping[Var, Expr] = {let.var: let.value for let in spine(function.body)[0]}
    fields, grown = fields_of(function, len(names.outputs)), {g.made for g in names.grows}
    params = {p: i for i, p in enumerate(function.params) if p.place is None}
    for k, made in enumerate(fields):
        if not isinstance(made, Var) or names.outputs[k] in grown or sum(f is made for f in fields) != 1:
            continue
        at, first = made, made
        updates: list[Call] = []
        while isinstance(value := known.get(at), Call) and value.args and isinstance(value.args[0], Var):
            if _can_repeat(value):
                updates.insert(0, value)
            elif not _is_check(value):
                break
            at, first = value.args[0], at
        if updates and at in params and at.type == made.type:
            yield _Chain(params[at], k, first, tuple(updates))


def _is_check(value: Call) -> bool:
    checks = (CHECK_SHAPE, CHECK_EQUAL, CHECK_AT_LEAST)
    return isinstance(value.callee, OpRef) and value.callee.op in checks


def _can_repeat(value: Expr) -> bool:
    """Whether a value is an update of which the next run can be told what it wrote."""
    if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
        return False
    if value.callee.op.name not in _UPDATES or not isinstance(value.args[0].type, TensorType):
        return False
    match value.callee.attrs:
        case ScatterAttrs() | ScatterElementsAttrs():
            index = value.args[1].type
            assert isinstance(index, TensorType), "scatters have indices"
            least = 2 if isinstance(value.callee.attrs, ScatterAttrs) else 1
            return len(index.shape) >= least
        case AxesAttrs(axes=axes):
            return bool(axes) and isinstance(value.args[2].type, ShapeType) and isinstance(value.args[1], Var)
        case _:
            return False


def _explain(function: Function, names: EntryNames, context: PassContext) -> None:
    """Say which outputs are updated where an input is, and why not of others that look like it."""
    fields = fields_of(function, len(names.outputs))
    done = {c.field: c for c in _chains(function, names)}
    for k, made in enumerate(fields):
        if k in done:
            given, ops = names.inputs[done[k].param], ", ".join(map(_operator, done[k].updates))
            text = f"'{names.outputs[k]}' is updated where '{given}' is: "
            text += f"a run of a session writes twice what {ops} replaces"
            context.remarks.add(Remark(PASS.name, "in-place", "updated", text, made.span))
        elif (why := _why_not(function, names, fields, k)) is not None:
            text = f"'{names.outputs[k]}' is made anew in each run of a session: {why[1]}"
            context.remarks.add(Remark(PASS.name, "copied", why[0], text, made.span))


def _why_not(function: Function, names: EntryNames, fields: Sequence[Expr], k: int) -> tuple[str, str] | None:
    """Return why an output is not updated where an input is; None where nothing says that it should be."""
    known = {let.var: let.value for let in spine(function.body)[0]}
    made, name = fields[k], names.outputs[k]
    value = known.get(made) if isinstance(made, Var) else None
    is_state = any(name == x for _, x in names.state)
    if name in {g.made for g in names.grows} or made in function.params:
        return None
    if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
        why = "it is the result of a branch, a loop or a function"
        return ("control-flow", why) if is_state else None
    op = value.callee.op.name
    if op not in _UPDATES:
        of_input = op == "select" and any(a in function.params and a.type == made.type for a in value.args)
        return ("whole", f"'{op}' writes all of it") if is_state or of_input else None
    if not _can_repeat(value):
        return "not-told", f"where '{op}' writes cannot be told to the next run"
    if sum(f is made for f in fields) != 1:
        return "given-twice", "it is given more than once"
    return "no-input", f"what '{op}' updates is no input as it was given, or is updated for another output"


def _operator(call: Call) -> str:
    assert isinstance(call.callee, OpRef), "an update is an operator"
    return f"'{call.callee.op.name}'"


@dataclass(slots=True)
class _Writer:
    """Writes an entry that catches up with what the run before wrote, and updates that."""

    function: Function
    context: PassContext
    inputs: list[str] = field(default_factory=list[str])
    outputs: list[str] = field(default_factory=list[str])
    params: list[Var] = field(default_factory=list[Var])
    dims: list[DimParam] = field(default_factory=list[DimParam])
    told: list[Expr] = field(default_factory=list[Expr])
    scope: LetBuilder = field(default_factory=LetBuilder)
    caught: dict[Var, Expr] = field(default_factory=dict[Var, Expr])

    def __post_init__(self) -> None:
        self.scope.declare(self.function.dims)

    def add(self, given: str, chain: _Chain) -> None:
        """Take a spare value of an input, and bring it up to date."""
        whole = self.function.params[chain.param]
        assert isinstance(whole.type, TensorType), "what is updated is a tensor"
        now: Expr = self._param(f"{given}.spare", whole.type)
        first = len(self.inputs)
        for call in chain.updates:
            self.scope.span = call.span
            now = self._again(given, first, whole, now, call)
        self.caught[chain.first] = now

    def _again(self, given: str, first: int, whole: Var, now: Expr, call: Call) -> Expr:
        """Write again what the run before wrote by one update."""
        assert isinstance(call.callee, OpRef), "an update is an operator"
        op, attrs = call.callee.op, call.callee.attrs
        match attrs:
            case AxesAttrs(axes=axes):
                part = self._told(given, first, call.args[1], whole, axes[0] % len(_shape(whole)))
                begins = self._begins(given, first, call.args[2])
                return self.scope.emit(op, (now, part, begins), attrs, name="caught")
            case ScatterAttrs():
                index = self._told(given, first, call.args[1], whole, 0)
                rows = self.scope.emit(self._find("gather_nd"), (whole, index), BatchAttrs())
                plain: object = replace(attrs, combine=Combine.REPLACE)
                return self.scope.emit(op, (now, index, rows), plain, name="caught")
            case ScatterElementsAttrs(axis=axis):
                index = self._told(given, first, call.args[1], whole, 0)
                rows = self.scope.emit(self._find("gather_elements"), (whole, index), AxisAttrs(axis))
                plain = replace(attrs, combine=Combine.REPLACE)
                return self.scope.emit(op, (now, index, rows), plain, name="caught")
            case _:
                raise AssertionError(f"{op.name} is no update")

    def _find(self, name: str) -> Op:
        op = self.context.ops.find(name)
        assert op is not None, "operators of parts are there"
        return op

    def _told(self, given: str, first: int, e: Expr, whole: Var, free: int) -> Expr:
        """Return what stands for an operand of the run before, whose size may differ along an axis."""
        if isinstance(e, Const):
            return e
        assert isinstance(e.type, TensorType), "updates have tensors"
        of_whole = set(free_symbols(whole.type))
        shape = [
            d if a != free and set(symbols(d)) <= of_whole else self._fresh()
            for a, d in enumerate(e.type.shape)
        ]
        self.told.append(e)
        self.outputs.append(f"{given}.at{len(self.inputs) - first}")
        return self._param(self.outputs[-1], TensorType(tuple(shape), e.type.dtype))

    def _begins(self, given: str, first: int, begins: Expr) -> Expr:
        """Return where a part of the run before began."""
        assert isinstance(begins.type, ShapeType), "parts begin at a shape"
        known = [b for b in begins.type.values if b is not None and b.value is not None]
        if len(known) == len(begins.type.values):
            return make.shape_const(known)
        self.told.append(make.call(TO_TENSOR, (begins,), span=begins.span))
        self.outputs.append(f"{given}.at{len(self.inputs) - first}")
        was = self._param(self.outputs[-1], TensorType((lit(len(begins.type.values)),), I64))
        return self.scope.emit(TO_CONTROL, (was,), name="begins")

    def _fresh(self) -> Int:
        dim = DimParam(fresh("before"))
        self.dims.append(dim)
        self.scope.declare((dim,))
        return to_int(dim.sym)

    def _param(self, name: str, type: TensorType) -> Var:
        self.inputs.append(name)
        var = make.var(name, type, self.function.span)
        self.params.append(var)
        return var

    def finish(self, fields: Sequence[Expr]) -> Function:
        """Return the entry."""
        written: Written = [
            (let.var, let.value, let) for let in spine(self.scope.finish(make.int_const(0)))[0]
        ]
        for let in spine(self.function.body)[0]:
            value = let.value
            if let.var in self.caught:
                assert isinstance(value, Call), "an update is a call"
                value = replace(value, args=(self.caught[let.var], *value.args[1:]))
            written.append((let.var, value, let))
        results: list[Expr] = list(fields)
        for e in self.told:
            if isinstance(e, Call):
                var = make.var("began", e.type, e.span)
                written.append((var, e, None))
                results.append(var)
            else:
                results.append(e)
        whole = make.tuple_(results, span=self.function.span)
        result = make.var("results", whole.type, whole.span)
        written.append((result, whole, None))
        f = self.function
        return make.function(
            (*f.params, *self.params),
            block_of(written, result),
            dims=(*f.dims, *self.dims),
            param_types=(*f.type.params, *(p.type for p in self.params)),
            type_vars=f.type.type_vars,
            span=f.span,
            place=f.place,
        )


def _shape(var: Var) -> tuple[Int, ...]:
    assert isinstance(var.type, TensorType), "what is updated is a tensor"
    return var.type.shape


PASS = Pass(
    __name__,
    run,
    "add entries whose state is updated where it is",
    requires=(Property.ANF,),
    options=GrowStateOptions,
)
