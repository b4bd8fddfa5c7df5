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

Nothing moves across blocks, places, effects or functions. What became one kernel, and why neighbors did
not, is told to who watches (`Fusion`); the second is in the remarks of the pass context too (`not-fused`,
with the reason of `_groups.Reason`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from inlay.analysis.blocks import count_uses, nested, relet, with_blocks
from inlay.analysis.call_graph import call_graph, recursive_functions
from inlay.analysis.cost import predicted_ns
from inlay.base.options import option
from inlay.base.span import Span
from inlay.ir import walk
from inlay.ir.existentials import open_exists
from inlay.ir.expr import Call, Expr, Function, GlobalVar, Let, OpRef, Var
from inlay.ir.module import Module
from inlay.ops._define import OpDef
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property, Remark
from inlay.transforms._groups import REASONS, Group, Grouping, GroupOptions, Reason
from inlay.transforms._join import join
from inlay.transforms._nodes import Node
from inlay.transforms._outline import Outliner, bind, function_of


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A value in a kernel, or beside kernels.

    Attributes:
        operator: that computes it; of a call, the function.
        value: its name.
        span: where it comes from.
    """

    operator: str
    value: str
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class KernelCall:
    """Operators that run as one kernel, where it is called.

    Attributes:
        kernel: its name.
        function: of the module, in which it is called.
        device: that runs it; empty for the host.
        members: in program order.
        is_region: whether its device takes them as one, so that nothing was grouped here.
    """

    kernel: str
    function: str
    device: str
    members: tuple[Member, ...]
    is_region: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Border:
    """A value that goes from one kernel to another, or to what is no kernel."""

    producer: Member
    reader: Member
    reason: Reason

    @property
    def message(self) -> str:
        """Why they are not in one kernel, as a sentence."""
        return (
            f"{self.producer.operator} is not in the kernel of {self.reader.operator}: {REASONS[self.reason]}"
        )


@dataclass(frozen=True, slots=True)
class Fusion:
    """What became of the operators of one block.

    Attributes:
        calls: of kernels, in program order.
        borders: between them, in order of the readers.
        outside: what is in no kernel, with the reason.
    """

    calls: tuple[KernelCall, ...]
    borders: tuple[Border, ...]
    outside: tuple[tuple[Member, Reason], ...]


def _on_host(device: str) -> bool:
    return not device


@dataclass(frozen=True, slots=True)
class FuseOptions:
    """Options of this pass.

    Attributes:
        joins_attention: whether a device, "" for the host, has a schedule for attention as one kernel.
        watch: is told what became of each block.
    """

    limit: int = option(48, help="most operators in one kernel")
    operand_transposes: bool = option(default=True, help="read operands of products through transposes")
    joins_attention: Callable[[str], bool] = _on_host
    watch: Callable[[Fusion], None] | None = None


def run(module: Module, context: PassContext) -> Module:
    """Group the operators of every block into primitive functions. Cost: linear."""
    return fused(module, context)


def fused(module: Module, context: PassContext) -> Module:
    """Return the module with operators in groups; those that are in groups stay there."""
    assert isinstance(context.ops, OperatorTable), "tensor passes run with the table of operators"
    fusing = _Fusing(module, context, context.ops)
    again = recursive_functions(call_graph(module))
    functions = {
        name: f if f.primitive is not None else fusing.function(name, f, repeats=name in again)
        for name, f in module.functions.items()
    }
    return module.with_functions({**functions, **fusing.outliner.made})


def groups_of(module: Module, operators: OperatorTable, options: FuseOptions | None = None) -> dict[int, int]:
    """Return which operators would be one kernel if all of them were on one device.

    By identity of the call, a number for each group; nothing is rewritten. Who chooses devices asks
    this first: what is one kernel costs one launch and moves only what goes in and out. Cost: linear.

    Args:
        module: in A-normal form.
        operators: what it uses.
        options: those that this pass will run with.
    """
    asked = options or FuseOptions()
    limits = GroupOptions(asked.limit, asked.operand_transposes, asked.joins_attention)
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
    lets: Sequence[Let],
    operators: OperatorTable,
    reads: dict[Var, int],
    options: GroupOptions,
    *,
    repeats: bool,
) -> tuple[Grouping, list[Group]]:
    """Return the groups of a block, and how they came about; those of one that repeats are joined."""

    def predicted(group: Group) -> int | None:  # None where it depends on sizes
        return predicted_ns(function_of(group), operators).value

    grouping = Grouping(lets, lambda ref: operators.definition(ref.op), reads, options)
    if not repeats:
        return grouping, grouping.groups
    joined = join(lets, grouping.group_of, reads, predicted)
    grouping.group_of.update((node.let.var, group) for group in joined for node in group.nodes)
    return grouping, joined


def kernel_of(call: Call, definition: OpDef) -> Function:
    """Return the primitive function of an operator that is alone in its kernel."""
    var = Var(definition.name, open_exists(call.type)[0], call.span)
    node = Node(0, Let(var, call, var, var.type), call, definition, call.type)
    return function_of(Group([node], node))


class _Fusing:
    """Fuses the functions of one module.

    Attributes:
        outliner: has the primitive functions.
    """

    def __init__(self, module: Module, context: PassContext, ops: OperatorTable) -> None:
        self.outliner = Outliner(module)
        self._module = module
        self._context = context
        self._ops = ops
        options = context.options_for(FuseOptions)
        self._options = GroupOptions(options.limit, options.operand_transposes, options.joins_attention)
        self._watch = options.watch
        self._reads: dict[Var, int] = {}
        self._name = ""

    def function(self, name: str, function: Function, *, repeats: bool) -> Function:
        """Return a function with its operators in groups.

        Args:
            name: of the function.
            function: of the module.
            repeats: whether it may call itself.
        """
        self._reads, self._name = count_uses(function.body), name
        body = self._block(function.body, repeats=repeats)
        return function if body is function.body else replace(function, body=body)

    def _block(self, block: Expr, *, repeats: bool) -> Expr:
        lets, result = walk.spine(block)
        grouping, groups = _grouped(lets, self._ops, self._reads, self._options, repeats=repeats)
        # In program order, so that names count upward.
        calls = {g.last.let.var: (g, self.outliner.call(g)) for g in groups}
        self._tell(lets, grouping, calls)
        result = self._value(result, repeats=repeats)
        for let in reversed(lets):
            if let.var in calls:
                result = bind(*calls[let.var], result)
            elif let.var not in grouping.group_of:
                value = self._value(let.value, repeats=repeats or _is_recursive(let))
                result = relet(let, value, result)
        return result

    def _value(self, value: Expr, *, repeats: bool) -> Expr:
        """Return a value with its nested blocks fused."""
        return with_blocks(value, lambda block: self._block(block, repeats=repeats))

    def _tell(self, lets: Sequence[Let], grouping: Grouping, made: Mapping[Var, tuple[Group, Call]]) -> None:
        """Say what became one kernel, and why neighbors did not."""
        members = {
            let.var: _member(let) for let in lets if let.var in grouping.nodes or let.var in grouping.outside
        }
        calls: list[KernelCall] = []
        for let in lets:
            if let.var in made:
                group, call = made[let.var]
                inside = tuple(members[node.let.var] for node in group.nodes)
                calls.append(self._call(call, inside))
            elif isinstance(let.value, Call) and isinstance(let.value.callee, GlobalVar):
                function = self._module.functions.get(let.value.callee.name)
                if function is not None and function.primitive is not None:
                    own = tuple(_member(x) for x in walk.spine(function.body)[0])
                    calls.append(self._call(let.value, own, is_region=True))
        borders = tuple(Border(members[a.var], members[b.var], why) for a, b, why in grouping.refusals())
        for border in borders:
            spans = border.producer.span, border.reader.span
            self._context.remarks.add(Remark(PASS.name, "not-fused", border.reason, border.message, *spans))
        if self._watch is not None:
            outside = tuple((members[v], why) for v, why in grouping.outside.items())
            self._watch(Fusion(tuple(calls), borders, outside))

    def _call(self, call: Call, members: tuple[Member, ...], *, is_region: bool = False) -> KernelCall:
        assert isinstance(call.callee, GlobalVar), "kernels are functions of the module"
        device = "" if call.place is None else call.place.device
        return KernelCall(call.callee.name, self._name, device, members, is_region)


def _member(let: Let) -> Member:
    """Return a value as a kernel has it."""
    match let.value:
        case Call(callee=OpRef(op=op)):
            operator = op.name
        case Call(callee=GlobalVar(name=name)):
            operator = f"@{name}"
        case value:
            operator = type(value).__name__.lower()
    return Member(operator, let.var.name, let.value.span)


def _is_recursive(let: Let) -> bool:
    """Whether a value is a function that may call itself: then its blocks run again and again."""
    return isinstance(let.value, Function) and let.var in count_uses(let.value.body)


PASS = Pass(
    __name__,
    run,
    "group operators into primitive functions, each to become one kernel",
    requires=(Property.ANF,),
    establishes=(Property.FUSED,),
    options=FuseOptions,
)
