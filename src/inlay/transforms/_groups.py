"""Which operators of a block become one kernel: the decision behind `fuse_ops`, without the rewriting.

Terms. A *node* is a let whose value is a call of a tensor operator. A *group* is a set of nodes of one
block and one place that becomes one kernel. Every group has one *result*: the value of its last node;
what its other nodes compute is read inside the group only. So no path leaves a group and comes back,
and the kernel can stand where the last node stood.

Four kinds of groups are formed, the ones with most to lose first:

1. **Contraction**: a convolution or matrix product, and the element-wise work on its result (bias,
   activation, residual) as long as it has the shape of the result: it is done on tiles that are still
   in registers. Element-wise work on an *operand* would be repeated for every output it contributes
   to, so it is left out; a transpose of an operand that keeps the last axis only changes strides, and
   one of a matrix that all rows are multiplied by is a step less: it is packed transposed.
   **Attention** is two of them with reductions along rows between, as one kernel (`_attention.py`), where
   the device has a schedule for that.
2. **Rows**: reductions over the same trailing axes (softmax, layer_norm, or spelled-out forms), with
   element-wise work before, between and after them, on whole rows or on one number per row. A kernel
   goes row by row, so what several stages read is computed once per row.
3. **Other reductions**: any other reduction with element-wise work before it (each element is read
   once) and after it. Windows of pools overlap, so nothing is put before them.
4. **Injective**: what is left of element-wise work and data movement, in chains and diamonds.

Reshapes and other views move nothing and stay outside. Concatenation and padding stand alone: a kernel
for one is a copy per operand, and together with other work it would ask at every element where it is.
So do updates of a part: alone they can be done in place.

Growing a group forward walks the candidates in program order and remembers the last point where only
the newest node is read from outside: that is the largest group with one result. Cost: linear, as every
node is taken by one group, and what is looked at in vain is bounded by the limit of a group.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from inlay.analysis.blocks import operands
from inlay.arith.dtype import F32, F64
from inlay.ir.expr import Call, Const, GlobalVar, Let, OpRef, Var
from inlay.ir.op import Effect
from inlay.ir.types import TensorType
from inlay.ops._define import FusionPattern, OpDef
from inlay.ops.reduction import ReduceAttrs
from inlay.transforms._attention import makers_of_scores
from inlay.transforms._nodes import (
    Node,
    element_bytes,
    may_precede,
    ones,
    operand_type,
    result_shape,
    row_axis,
)


class Reason(StrEnum):
    """Why a producer and its reader are in different kernels."""

    SEVERAL_READERS = "several-readers"
    OTHER_PLACE = "other-place"
    TWO_ANCHORS = "two-anchors"
    REPEATED_WORK = "repeated-work"
    OTHER_SHAPE = "other-shape"
    STANDS_ALONE = "stands-alone"
    MOVES_DATA = "moves-data"
    LIMIT = "limit"
    VIEW = "view"
    MACHINE = "machine"
    CALL = "call"
    IN_PLACE = "in-place"


REASONS: dict[Reason, str] = {
    Reason.SEVERAL_READERS: "its result is read outside the kernel too",
    Reason.OTHER_PLACE: "they run on different places",
    Reason.TWO_ANCHORS: "both are contractions or reductions, and their loops differ",
    Reason.REPEATED_WORK: "its work would be repeated for every element that reads it",
    Reason.OTHER_SHAPE: "it computes another shape than the kernel",
    Reason.STANDS_ALONE: "one of them is a kernel of its own",
    Reason.MOVES_DATA: "it moves elements to other places, and the kernel takes element-wise work only",
    Reason.LIMIT: "the kernel would have too many operators",
    Reason.VIEW: "one of them is a view: nothing is computed, and no kernel is made of it",
    Reason.MACHINE: "the virtual machine runs one of them itself",
    Reason.CALL: "one of them is the call of a function, which has kernels of its own",
    Reason.IN_PLACE: "nothing is copied: its parts are made in it, or it is read in what it is a part of",
}


@dataclass(slots=True, eq=False)
class Group:
    """Nodes that become one kernel, in program order; the last is a result.

    Attributes:
        nodes: the members.
        anchor: the node that decides how the kernel is scheduled; the last of injective groups.
        results: the nodes whose values are read outside, where there may be more than the last.
        title: what it is as a whole; empty where the names of its operators say that.
    """

    nodes: list[Node]
    anchor: Node
    results: list[Node] = field(default_factory=list[Node])
    members: set[Var] = field(default_factory=set[Var])
    title: str = ""

    def __post_init__(self) -> None:
        self.members = {n.let.var for n in self.nodes}
        self.results = self.results or [self.nodes[-1]]

    @property
    def last(self) -> Node:
        """The node in whose place the kernel is called."""
        return self.nodes[-1]


def _nowhere(_device: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """What a group may be.

    Attributes:
        limit: most operators in one group.
        operand_transposes: whether a transpose of an operand becomes part of a contraction: one that
            keeps the last axis, or of a matrix that is packed.
        joins_attention: whether a device, "" for the host, has a schedule for attention as one kernel.
    """

    limit: int = 48
    operand_transposes: bool = True
    joins_attention: Callable[[str], bool] = _nowhere


class Grouping:
    """Forms the groups of one block.

    Attributes:
        nodes: what may be in kernels, by variable.
        outside: why what else the block calls is in no kernel that is made here.
        group_of: the kernel of each node.
        groups: in program order.

    Args:
        lets: the lets of the block.
        define: the record of an operator.
        reads: how often each variable is read in the whole function.
        options: see `GroupOptions`.
    """

    def __init__(
        self,
        lets: Sequence[Let],
        define: Callable[[OpRef], OpDef],
        reads: dict[Var, int],
        options: GroupOptions,
    ) -> None:
        self.nodes: dict[Var, Node] = {}
        self.outside: dict[Var, Reason] = {}
        self.group_of: dict[Var, Group] = {}
        self.groups: list[Group] = []
        self._lets = lets
        self._reads = reads
        self._options = options
        self._readers: dict[Var, list[Node]] = {}
        for index, let in enumerate(lets):
            node = _node(index, let, define)
            if isinstance(node, Reason):
                self.outside[let.var] = node
            if not isinstance(node, Node):
                continue
            self.nodes[let.var] = node
            for arg in dict.fromkeys(node.call.args):
                if isinstance(arg, Var):
                    self._readers.setdefault(arg, []).append(node)
        self._form()

    # ------------------------------------------------------------------------ phases

    def _form(self) -> None:
        nodes = list(self.nodes.values())
        # The later of two contractions that meet in a sum takes the sum: its result is newest.
        for node in reversed(nodes):
            if node.definition.pattern is FusionPattern.CONTRACTION and self._is_free(node):
                self._take_contraction(node)
        for node in nodes:
            if self._is_free(node) and row_axis(node) is not None:
                self._take(self._rows(node), node)
        for node in nodes:
            if self._is_free(node) and node.definition.pattern is FusionPattern.REDUCTION:
                self._take(self._reduction(node), node)
        for node in reversed(nodes):
            if self._is_free(node):
                self._take(self._injective(node), node)
        self.groups.sort(key=lambda g: g.last.index)

    def _take(self, nodes: Iterable[Node], anchor: Node, title: str = "") -> None:
        group = Group(sorted(nodes, key=lambda n: n.index), anchor, title=title)
        self.groups.append(group)
        for node in group.nodes:
            self.group_of[node.let.var] = group

    def _take_contraction(self, node: Node) -> None:
        """Take a contraction with what is around it, and attention where it is the end of one."""
        nodes = self._contraction(node)
        chosen = {n.let.var for n in nodes}
        makers: tuple[Node, ...] = ()
        if self._options.joins_attention("" if node.place is None else node.place.device):
            makers = makers_of_scores(node, self.nodes, chosen, lambda n, c: self._may_join(n, node, c))
        if makers and self._options.operand_transposes:
            nodes += self._operand_transposes(makers[0], chosen)
        self._take([*nodes, *makers], node, "attention" if makers else "")

    def _is_free(self, node: Node) -> bool:
        return node.let.var not in self.group_of

    def _contraction(self, anchor: Node) -> list[Node]:
        def accepts(node: Node, chosen: set[Var]) -> bool:
            return node.is_pointwise and _keeps_shape(node, anchor, chosen)

        nodes = self._grow(anchor, accepts)
        chosen = {n.let.var for n in nodes}
        nodes += self._absorb_beside(anchor, nodes, chosen)
        if self._options.operand_transposes:
            nodes += self._operand_transposes(anchor, chosen)
        return nodes

    def _absorb_beside(self, anchor: Node, nodes: Sequence[Node], chosen: set[Var]) -> list[Node]:
        """Return the point-wise producers of what follows an anchor, but of nothing it reads."""
        behind = [n for n in nodes if n.index > anchor.index]
        assert isinstance(anchor.type, TensorType), "anchors have one result"

        def accepts(n: Node) -> bool:
            return n.is_pointwise and n.let.var not in anchor.call.args and not self._narrows_sums(n)

        return self._absorb(behind, chosen, accepts, anchor.type)

    def _narrows_sums(self, node: Node) -> bool:
        """Whether a node brings the sums of a free contraction to fewer bytes: it is for that one to take.

        Elsewhere the sums would be written and read as they are.
        """
        size = element_bytes(node)
        pending, left = self._producers(node), self._options.limit
        while pending and left:
            maker = pending.pop()
            left -= 1
            if maker.definition.pattern is FusionPattern.CONTRACTION:
                if self._is_free(maker) and maker.place == node.place and element_bytes(maker) > size:
                    return True
            elif (
                maker.is_pointwise
                and result_shape(maker) == result_shape(node)
                and self._reads.get(maker.let.var) == 1
            ):
                pending.extend(self._producers(maker))
        return False

    def _operand_transposes(self, anchor: Node, chosen: set[Var]) -> list[Node]:
        """Return the transposes of the operands of a product that it reads through."""
        found: list[Node] = []
        if "matmul" not in (anchor.name, anchor.definition.form_of):
            return found
        for arg in dict.fromkeys(anchor.call.args):
            node = self.nodes.get(arg) if isinstance(arg, Var) else None
            if node is None or not self._may_join(node, anchor, chosen):
                continue
            perm = getattr(node.call.callee.attrs, "perm", None)  # type: ignore[union-attr]
            if node.name != "transpose" or not perm:
                continue
            if perm[-1] == len(perm) - 1 or (arg is anchor.call.args[1] and self._is_packed(node, anchor)):
                found.append(node)
                chosen.add(node.let.var)
        return found

    def _is_packed(self, node: Node, anchor: Node) -> bool:
        """Whether a product can pack what a node transposes: one matrix of floats, of known size."""
        device = "" if anchor.place is None else anchor.place.device
        kind = node.type
        if not isinstance(kind, TensorType) or len(kind.shape) != 2 or kind.dtype not in (F32, F64):
            return False
        return self._options.joins_attention(device) and None not in [d.value for d in kind.shape]

    def _rows(self, anchor: Node) -> list[Node]:
        axis = row_axis(anchor)
        source = operand_type(anchor, 0)
        assert axis is not None, "a row reduction has rows"
        assert source is not None, "a row reduction has rows"
        outer, row = source.shape[:axis], source.shape[axis:]
        per_row = (outer, (*outer, *ones(row)))

        def accepts(node: Node, _chosen: set[Var]) -> bool:
            if node.is_pointwise:
                return result_shape(node) in (source.shape, *per_row)
            operand = operand_type(node, 0)
            return row_axis(node) == axis and operand is not None and operand.shape == source.shape

        nodes = self._grow(anchor, accepts)
        chosen = {n.let.var for n in nodes}
        return nodes + self._absorb(nodes, chosen, may_precede, source)

    def _reduction(self, anchor: Node) -> list[Node]:
        def accepts(node: Node, chosen: set[Var]) -> bool:
            return node.is_pointwise and _keeps_shape(node, anchor, chosen)

        nodes = self._grow(anchor, accepts)
        chosen = {n.let.var for n in nodes}
        source = operand_type(anchor, 0)
        if source is not None and isinstance(anchor.call.callee, OpRef):
            if isinstance(anchor.call.callee.attrs, ReduceAttrs):
                nodes += self._absorb([anchor], chosen, may_precede, source)
        return nodes + self._absorb_beside(anchor, nodes, chosen)

    def _injective(self, last: Node) -> list[Node]:
        if last.definition.stands_alone or not last.definition.is_injective:
            return [last]
        assert isinstance(last.type, TensorType), "injective operators have one result"
        chosen = {last.let.var}
        return [last, *self._absorb([last], chosen, may_precede, last.type)]

    # ------------------------------------------------------------------------ growth

    def _may_join(self, node: Node, member: Node, chosen: set[Var]) -> bool:
        """Whether a producer is free, here, and read inside the group only."""
        return (
            self._is_free(node)
            and node.let.var not in chosen
            and node.place == member.place
            and len(chosen) < self._options.limit
            and self._is_inner(node, chosen)
        )

    def _is_inner(self, node: Node, chosen: set[Var]) -> bool:
        """Whether everything that reads a node is chosen."""
        reads = self._reads.get(node.let.var, 0)
        if reads > 2 * self._options.limit:
            return False
        inside = sum(
            reader.call.args.count(node.let.var)
            for reader in self._readers.get(node.let.var, ())
            if reader.let.var in chosen
        )
        return inside == reads

    def _grow(self, anchor: Node, accepts: Callable[[Node, set[Var]], bool]) -> list[Node]:
        """Return the anchor and the largest set of readers after it that has one result."""
        limit = self._options.limit
        taken = [anchor]
        chosen = {anchor.let.var}
        outside = {anchor.let.var: self._reads.get(anchor.let.var, 0)}
        read_outside = 1  # members that something outside reads
        best = 1
        waiting: list[tuple[int, Var]] = []
        self._wait_for_readers(anchor, waiting)
        for _ in range(2 * limit):
            if not waiting or len(taken) == limit:
                break
            node = self.nodes[heapq.heappop(waiting)[1]]
            if (
                node.let.var in chosen
                or not self._is_free(node)
                or node.place != anchor.place
                or node.definition.stands_alone
                or not accepts(node, chosen)
            ):
                continue
            taken.append(node)
            chosen.add(node.let.var)
            for arg in node.call.args:
                if isinstance(arg, Var) and arg in outside:
                    outside[arg] -= 1
                    read_outside -= outside[arg] == 0
            outside[node.let.var] = self._reads.get(node.let.var, 0)
            read_outside += outside[node.let.var] > 0
            if read_outside == 1 and outside[node.let.var] > 0:
                best = len(taken)
            self._wait_for_readers(node, waiting)
        return taken[:best]

    def _wait_for_readers(self, node: Node, waiting: list[tuple[int, Var]]) -> None:
        """Add the readers of a node, unless they are too many to be all in one group."""
        readers = self._readers.get(node.let.var, ())
        if len(readers) <= self._options.limit:
            for reader in readers:
                heapq.heappush(waiting, (reader.index, reader.let.var))

    def _absorb(
        self, into: Sequence[Node], chosen: set[Var], accepts: Callable[[Node], bool], space: TensorType
    ) -> list[Node]:
        """Return the producers, in any number of steps, that are read by the group only.

        Args:
            into: members whose operands are looked at.
            chosen: variables of the group so far; those that are found are added.
            accepts: what kind of operator may precede.
            space: the loops of the group; what computes fewer elements is repeated in them.
        """
        found: list[Node] = []
        pending = [n for member in into for n in self._producers(member)]
        while pending:
            node = max(pending, key=lambda n: n.index)
            pending.remove(node)
            if not self._may_join(node, into[0], chosen) or not accepts(node):
                continue
            if node.is_costly and result_shape(node) != space.shape:
                continue
            found.append(node)
            chosen.add(node.let.var)
            pending.extend(self._producers(node))
        return found

    def _producers(self, node: Node) -> list[Node]:
        args = dict.fromkeys(a for a in node.call.args if isinstance(a, Var))
        return [self.nodes[a] for a in args if a in self.nodes]

    # ------------------------------------------------------------------------ reasons

    def refusals(self) -> Iterable[tuple[Let, Let, Reason]]:
        """Yield producer, reader and reason wherever one reads the other and no kernel has both."""
        makers = {let.var: let for let in self._lets}
        for let in self._lets:
            reader = self.nodes.get(let.var)
            outside = self.outside.get(let.var)
            if reader is None and outside is None:
                continue
            for var in dict.fromkeys(a for a in operands(let.value) if isinstance(a, Var)):
                producer = self.nodes.get(var)
                if producer is not None and reader is not None:
                    if self.group_of[var] is not self.group_of[let.var]:
                        yield producer.let, let, self._reason(producer, reader)
                elif producer is not None and outside is not None:
                    yield producer.let, let, outside
                elif var in self.outside:
                    yield makers[var], let, self.outside[var]

    def _reason(self, producer: Node, reader: Node) -> Reason:
        group = self.group_of[reader.let.var]
        if producer.place != reader.place:
            return Reason.OTHER_PLACE
        if (
            producer.definition.stands_alone
            or reader.definition.stands_alone
            or FusionPattern.OPAQUE in (producer.definition.pattern, reader.definition.pattern)
        ):
            return Reason.STANDS_ALONE
        if not self._is_inner(producer, group.members):
            return Reason.SEVERAL_READERS
        anchors = (self.group_of[producer.let.var].anchor, group.anchor)
        if all(not a.definition.is_injective for a in anchors):
            return Reason.TWO_ANCHORS
        if len(group.nodes) >= self._options.limit:
            return Reason.LIMIT
        contracts = group.anchor.definition.pattern is FusionPattern.CONTRACTION
        if contracts and producer.definition.is_injective and not producer.is_pointwise:
            return Reason.MOVES_DATA
        if producer.definition.is_injective:
            return Reason.REPEATED_WORK
        return Reason.OTHER_SHAPE


def _node(index: int, let: Let, define: Callable[[OpRef], OpDef]) -> Node | Reason | None:
    """Return a let as a node, or why the operator that it calls is in no kernel; None for no operator."""
    value = let.value
    if not isinstance(value, Call):
        return None
    if not isinstance(value.callee, OpRef):
        return Reason.CALL if isinstance(value.callee, GlobalVar) else None
    if value.callee.op.alias is not None:
        return Reason.VIEW
    definition = define(value.callee)
    if definition.pattern is FusionPattern.CONTROL or value.callee.op.effect is not Effect.PURE:
        return Reason.MACHINE
    return Node(index, let, value, definition, value.type)


def _keeps_shape(node: Node, anchor: Node, chosen: set[Var]) -> bool:
    """Whether a point-wise node reads what is chosen element by element: no broadcast of it."""
    shape = result_shape(anchor)
    return result_shape(node) == shape and all(
        isinstance(a.type, TensorType) and a.type.shape == shape
        for a in node.call.args
        if isinstance(a, Var) and a in chosen
    )


def is_literal(arg: object) -> bool:
    """Whether an operand is written into the kernel: numbers, not tables."""
    if not isinstance(arg, Const):
        return False
    size = getattr(arg.held, "size", 1)
    return bool(size == 1)
