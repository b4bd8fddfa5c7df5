"""Makes kernels to be: groups of operators become functions marked `primitive`.

`_groups.py` decides what goes together and why; here the groups are taken out of their blocks. Each
becomes a global function without free variables whose name tells what is in it, and whose body is a
block of operator calls:

    let y = conv_nhwc_packed(x, w);                let r = @conv_add_relu(x, w, b);
    let z = add(y, b);                      ->     ...
    let r = relu(z);                               fn @conv_add_relu<n>(x: ..., w: ..., b: ...)

* What a group reads from outside is a parameter: tensors in the order in which they are met, then
  integers for dims that no parameter's shape has by itself. Large constants are parameters too, so
  that layers with different weights share a kernel; single numbers are written into it.
* Groups that are equal up to names are one function.
* An operator that is alone is a group of one. Views, checks, control values and operators with an
  effect stay as they are.

Nothing moves across blocks, places, effects or functions. Why neighbors were not put together is in
the remarks of the pass context (`not-fused`, with the reason of `_groups.Reason`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inlay.analysis.blocks import count_uses, nested
from inlay.analysis.call_graph import call_graph, recursive_functions
from inlay.analysis.cost import predicted_ns
from inlay.arith.expr import Int, Sym, fresh, from_atom
from inlay.base.names import NameSupply
from inlay.base.options import option
from inlay.ir import make, walk
from inlay.ir.dims import free_symbols, substitute_type
from inlay.ir.expr import (
    Call,
    Const,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    OpRef,
    Project,
    Var,
)
from inlay.ir.module import Module
from inlay.ir.opening import open_exists
from inlay.ir.place import Place
from inlay.ir.types import IntType, ShapeType, TensorType, TupleType, Type
from inlay.ops._define import OpDef
from inlay.ops.device import DEVICE_COPY
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property, Remark
from inlay.transforms._groups import REASONS, Group, Grouping, GroupOptions, Node, is_literal
from inlay.transforms._join import join


@dataclass(frozen=True, slots=True)
class FuseOptions:
    """Options of this pass."""

    limit: int = option(48, help="most operators in one kernel")
    operand_transposes: bool = option(
        default=True, help="read operands of products through transposes that keep the last axis"
    )


def run(module: Module, context: PassContext) -> Module:
    """Group the operators of every block into primitive functions. Cost: linear."""
    assert isinstance(context.ops, OperatorTable), "tensor passes run with the table of operators"
    fusing = _Fusing(module, context, context.ops)
    again = recursive_functions(call_graph(module))
    functions = {
        name: f if f.primitive is not None else fusing.function(f, repeats=name in again)
        for name, f in module.functions.items()
    }
    return module.with_functions({**functions, **fusing.made})


def groups_of(
    module: Module, operators: OperatorTable, options: FuseOptions | None = None
) -> dict[int, int]:
    """Return which operators would be one kernel if all of them were on one device.

    By identity of the call, a number for each group; nothing is rewritten. Who chooses devices asks
    this first: what is one kernel costs one launch and moves only what goes in and out. Cost: linear.

    Args:
        module: in A-normal form.
        operators: what it uses.
        options: those that this pass will run with.
    """
    asked = options or FuseOptions()
    limits = GroupOptions(asked.limit, asked.operand_transposes)
    again = recursive_functions(call_graph(module))
    found: dict[int, int] = {}
    groups = 0
    for name, function in module.functions.items():
        if function.primitive is not None:
            continue
        reads = count_uses(function.body)
        pending = [(function.body, name in again)]
        while pending:
            block, repeats = pending.pop()
            lets, result = walk.spine(block)
            for group in _grouped(lets, operators, reads, limits, repeats=repeats)[1]:
                found.update((id(node.call), groups) for node in group.nodes)
                groups += 1
            for let in lets:
                inner = repeats or _is_recursive(let)
                pending.extend((b, inner) for b in nested(let.value))
            pending.extend((b, repeats) for b in nested(result))
    return found


def _grouped(
    lets: Sequence[Let], operators: OperatorTable, reads: dict[Var, int], options: GroupOptions, *,
    repeats: bool,
) -> tuple[Grouping, list[Group]]:  # fmt: skip
    """Return the groups of a block, and how they came about; those of one that repeats are joined."""

    def predicted(group: Group) -> int | None:  # None where it depends on sizes
        return predicted_ns(_Kernel(group).function(), operators).value

    grouping = Grouping(lets, lambda ref: operators.definition(ref.op), reads, options)
    if not repeats:
        return grouping, grouping.groups
    return grouping, join(lets, grouping.group_of, reads, predicted)


def kernel_of(call: Call, definition: OpDef) -> Function:
    """Return the primitive function of an operator that is alone in its kernel."""
    var = Var(definition.name, open_exists(call.type)[0], call.span)
    node = Node(0, Let(var, call, var, var.type), call, definition, call.type)
    return _Kernel(Group([node], node)).function()


class _Fusing:
    """Fuses the functions of one module.

    Attributes:
        made: the primitive functions, by name.
    """

    def __init__(self, module: Module, context: PassContext, ops: OperatorTable) -> None:
        self.made: dict[str, Function] = {}
        self._names = NameSupply([*module.functions, *module.kernels])
        self._by_key: dict[Hashable, GlobalVar] = {}
        self._context = context
        self._ops = ops
        options = context.options_for(FuseOptions)
        self._options = GroupOptions(options.limit, options.operand_transposes)
        self._reads: dict[Var, int] = {}

    def function(self, function: Function, *, repeats: bool) -> Function:
        """Return a function with its operators in groups.

        Args:
            function: of the module.
            repeats: whether it may call itself.
        """
        self._reads = count_uses(function.body)
        body = self._block(function.body, repeats=repeats)
        return function if body is function.body else replace(function, body=body)

    def _block(self, block: Expr, *, repeats: bool) -> Expr:
        lets, result = walk.spine(block)
        grouping, groups = _grouped(lets, self._ops, self._reads, self._options, repeats=repeats)
        self._remark(grouping)
        # In program order, so that names count upward.
        calls = {g.last.let.var: (g, self._call(g)) for g in groups}
        result = self._value(result, repeats=repeats)
        for let in reversed(lets):
            if let.var in calls:
                result = _bind(*calls[let.var], result)
            elif let.var not in grouping.group_of:
                value = self._value(let.value, repeats=repeats or _is_recursive(let))
                same = value is let.value and result is let.body
                result = let if same else _relet(let, value, result)
        return result

    def _value(self, value: Expr, *, repeats: bool) -> Expr:
        """Return a value with its nested blocks fused."""
        blocks = nested(value)
        if not blocks:
            return value
        new = tuple([self._block(b, repeats=repeats) for b in blocks])
        if all(a is b for a, b in zip(new, blocks, strict=True)):
            return value
        match value:
            case Function():
                return replace(value, body=new[0])
            case If():
                return replace(value, then=new[0], otherwise=new[1])
            case Match(arms=arms):
                made = tuple([replace(a, body=b) for a, b in zip(arms, new, strict=True)])
                return replace(value, arms=made)
            case _:
                raise AssertionError(f"no blocks in {type(value).__name__}")

    def _call(self, group: Group) -> Call:
        """Return the call of a group's kernel."""
        kernel = _Kernel(group)
        callee = self._by_key.get(kernel.key)
        if callee is None:
            name = self._names.fresh(_name(group))
            function = kernel.function()
            callee = GlobalVar(name, function.type, function.span)
            self._by_key[kernel.key] = callee
            self.made[name] = function
        return Call(callee, kernel.args, _result_type(group), group.last.call.span, _place(group))

    def _remark(self, grouping: Grouping) -> None:
        for producer, reader, reason in grouping.refusals():
            message = f"{producer.name} is not in the kernel of {reader.name}: {REASONS[reason]}"
            self._context.remarks.add(
                Remark(
                    PASS.name, "not-fused", reason, message, producer.call.span, reader.call.span
                )
            )


def _result_type(group: Group) -> Type:
    """Return the type of what the kernel of a group returns."""
    types = [n.call.type for n in group.results]
    return types[0] if len(types) == 1 else TupleType(tuple(types))


def _place(group: Group) -> Place | None:
    """Return where a group runs and, of a lone result, in which memories that is."""
    place = group.last.call.place
    return place if place is None or len(group.results) == 1 else Place(place.device)


def _bind(group: Group, call: Call, body: Expr) -> Expr:
    """Return lets of the results of a group."""
    if len(group.results) == 1:
        return _relet(group.last.let, call, body)
    places = tuple(node.call.place for node in group.results)
    together = Var("results", call.type, call.span, call.place and Place("", fields=places))
    for index, node in reversed(list(enumerate(group.results))):
        part = Project(together, index, node.call.type, node.call.span, node.place)
        body = _relet(node.let, part, body)
    return Let(together, call, body, body.type, call.span, None)


def _is_recursive(let: Let) -> bool:
    """Whether a value is a function that may call itself: then its blocks run again and again."""
    return isinstance(let.value, Function) and let.var in count_uses(let.value.body)


def _relet(let: Let, value: Expr, body: Expr) -> Let:
    """Return a let with another value of the same type, and another body."""
    return Let(let.var, value, body, let.type, let.span, let.place)


def _name(group: Group) -> str:
    """Return a name that tells what is in a group: its anchor first."""
    words = [group.anchor.name, *(n.name for n in group.nodes if n is not group.anchor)]
    shown = [w.rpartition(".")[2] for w in words[:4]]
    return "_".join(shown) + (f"_and_{len(words) - 4}" if len(words) > 4 else "")


class _Kernel:
    """The function of one group.

    Attributes:
        args: what the call passes: atoms of the block.
        key: equal for groups that are the same function.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._numbers: dict[Sym, int] = {}
        self._index = {n.let.var: i for i, n in enumerate(group.nodes)}
        self._tensors: dict[Expr, int] = {}
        for node in group.nodes:
            for arg in node.call.args:
                if self._is_parameter(node, arg):
                    self._tensors.setdefault(arg, len(self._tensors))
        self._ints = self._undetermined()
        ints = [make.int_const(s, group.anchor.call.span) for s in self._ints]
        self.args: tuple[Expr, ...] = (*self._tensors, *ints)
        self.key = self._make_key()

    def _is_parameter(self, node: Node, arg: Expr) -> bool:
        if isinstance(arg, Var):
            is_control = isinstance(arg.type, IntType | ShapeType)
            return arg not in self._index and not is_control
        if not isinstance(arg, Const) or not isinstance(arg.type, TensorType):
            return False
        # A loop body reads buffers; only expressions have numbers written into them. What number a
        # string is, the program says.
        return arg.type.dtype.is_host_only or node.definition.loops is not None or not is_literal(arg)

    def _undetermined(self) -> list[Sym]:
        """Return the symbols in the group that are not by themselves a dim of a parameter."""
        determined: set[Sym] = set()
        for arg in self._tensors:
            if isinstance(arg.type, TensorType):
                determined.update(d.atom for d in arg.type.shape if isinstance(d.atom, Sym))
        found: dict[Sym, None] = {}
        for arg in self._tensors:
            found.update(dict.fromkeys(free_symbols(arg.type)))
        for node in self._group.nodes:
            for e in (*node.call.args, node.call):
                found.update(dict.fromkeys(free_symbols(e.type)))
        for s in found:
            self._numbers[s] = len(self._numbers)
        return [s for s in found if s not in determined]

    # ------------------------------------------------------------------------ identity

    def _make_key(self) -> Hashable:
        """Return the structure of the group, with symbols and operands by number."""
        canonical = {s: from_atom(Sym("s", -1 - i)) for s, i in self._numbers.items()}
        operators: list[Hashable] = []
        for node in self._group.nodes:
            assert isinstance(node.call.callee, OpRef), "nodes are calls of operators"
            operands = tuple([self._operand_key(a, canonical) for a in node.call.args])
            callee = node.call.callee
            result = substitute_type(node.call.type, canonical)
            operators.append((callee.op, _attrs_key(callee.attrs), operands, result))
        parameters = tuple([substitute_type(a.type, canonical) for a in self._tensors])
        ints = tuple([self._numbers[s] for s in self._ints])
        results = tuple([self._index[n.let.var] for n in self._group.results])
        return (tuple(operators), parameters, ints, results, self._group.last.place)

    def _operand_key(self, arg: Expr, canonical: Mapping[Sym, Int]) -> Hashable:
        if arg in self._tensors:
            return ("parameter", self._tensors[arg])
        if isinstance(arg, Var) and arg in self._index:
            return ("node", self._index[arg])
        if isinstance(arg, Const) and isinstance(arg.value, np.ndarray):
            return (arg.value.dtype.str, arg.value.shape, arg.value.tobytes())
        return ("control", substitute_type(arg.type, canonical))

    # ------------------------------------------------------------------------ function

    def function(self) -> Function:
        """Return the function, with variables and symbols of its own."""
        # No shape says of these that they are sizes: they may be numbers from data.
        own = {s: fresh(s.name, signed=s in self._ints) for s in self._numbers}
        ints = {s: from_atom(f) for s, f in own.items()}
        replaced: dict[Expr, Expr] = {}
        params: list[Var] = []
        for i, arg in enumerate(self._tensors):
            name = arg.name if isinstance(arg, Var) else f"c{i}"
            param = Var(name, substitute_type(arg.type, ints), arg.span, self._port(arg))
            params.append(param)
            replaced[arg] = param
        anchor = self._group.anchor.call
        params.extend(Var(s.name, IntType(ints[s]), anchor.span) for s in self._ints)
        return make.function(
            params,
            self._body(replaced, ints),
            span=anchor.span,
            place=_place(self._group),
            primitive="+".join(n.name for n in self._group.nodes),
        )

    def _port(self, arg: Expr) -> Place | None:
        """Return where a parameter is: a copy reads a certain memory, any other kernel all of them."""
        place, copied = arg.place, self._group.anchor.call.callee
        is_copy = isinstance(copied, OpRef) and copied.op is DEVICE_COPY
        return place if is_copy or place is None else replace(place, memories=None)

    def _body(self, replaced: dict[Expr, Expr], ints: Mapping[Sym, Int]) -> Expr:
        bound: list[tuple[Var, Call]] = []
        for node in self._group.nodes:
            call, old = node.call, node.let.var
            args = tuple([_inside(a, replaced, ints) for a in call.args])
            type = substitute_type(call.type, ints)
            value = Call(call.callee, args, type, call.span, call.place)
            var = Var(old.name, open_exists(type)[0], old.span, old.place)
            replaced[old] = var
            bound.append((var, value))
        results = [replaced[n.let.var] for n in self._group.results]
        if len(results) == 1:
            return make.lets(bound, results[0])
        together = make.tuple_(results)
        var = Var("results", together.type, together.span)
        return make.lets(bound, make.let(var, together, var))


def _inside(arg: Expr, replaced: Mapping[Expr, Expr], ints: Mapping[Sym, Int]) -> Expr:
    """Return an operand as the kernel sees it."""
    found = replaced.get(arg)
    if found is not None:
        return found
    type = substitute_type(arg.type, ints)
    match type:
        case IntType(value=Int() as value):
            return Const(value, type, arg.span)
        case ShapeType(values=values) if None not in values:
            return Const(tuple([v for v in values if v is not None]), type, arg.span)
        case _:
            return arg


def _attrs_key(attrs: object) -> Hashable:
    """Return attributes as a key; those that cannot be hashed are only equal to themselves."""
    try:
        hash(attrs)
    except TypeError:
        return id(attrs)
    return attrs


PASS = Pass(
    __name__,
    run,
    "group operators into primitive functions, each to become one kernel",
    requires=(Property.ANF,),
    establishes=(Property.FUSED,),
    options=FuseOptions,
)
