"""Which small groups of a block become one kernel, where that block runs again and again.

Issuing a kernel takes 50 to 100 ns, or several times that where it has to wait for another. A cell of a
recurrent network or of a tree is one product and a handful of short vectors, so most of the time of a
small cell goes there:

    let x = @concat(h1, h2);                    let t = @matmul_add_concat_..(h1, h2, w, b, c1, c2);
    let g = @matmul_add(x, w, b);        ->     let c = t.0;
    let c = @slices_and_sigmoids(g, c1, c2);    let h = t.1;
    let h = @slice_and_tanh(g, c);

Groups are joined when one reads what another makes, or both read the same; what is read outside are the
results of the kernel. The nests inside stay those of the groups, one after the other.

* At most one of them is a contraction, and no other reduces: the schedules of contractions and of
  point-wise work do not disturb each other.
* All others are short, by a prediction that no symbol is in: what takes long gains nothing, and is
  better begun as soon as its operands are there.
* Nothing but the making of views and numbers stands between them. No call is overtaken.

Blocks that run once are left as they are. Cost: linear in the block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from inlay.analysis.blocks import nested, operands
from inlay.ir.expr import Call, Let, OpRef, Var
from inlay.ir.op import Effect
from inlay.ir.types import TensorType
from inlay.ops._define import FusionPattern
from inlay.transforms._groups import Group
from inlay.transforms._nodes import Node

SHORT_NS = 2000
"""A group that is predicted to take longer is a kernel of its own, unless it is the contraction."""
MOST_TENSORS = 12
"""Operands and results of a joined kernel, at most."""


def join(
    lets: Sequence[Let],
    group_of: dict[Var, Group],
    reads: dict[Var, int],
    predicted_ns: Callable[[Group], int | None],
) -> list[Group]:
    """Return the groups of a block after joining."""
    joining = _Joining(reads, predicted_ns)
    for let in lets:
        group = group_of.get(let.var)
        if group is None:
            joining.pass_by(let)
        elif group.last.let is let:
            joining.add(group)
    joining.close()
    return joining.done


class _Joining:
    """Walks a block; at each point one set of groups is open.

    Attributes:
        done: the groups that are complete.
    """

    def __init__(self, reads: dict[Var, int], predicted_ns: Callable[[Group], int | None]) -> None:
        self.done: list[Group] = []
        self._open: list[Group] = []
        self._reads = reads
        self._predicted_ns = predicted_ns

    def close(self) -> None:
        """Make one group of those that are open."""
        if len(self._open) == 1:
            self.done += self._open
        elif self._open:
            self.done.append(_joined(self._open, self._reads))
        self._open = []

    def pass_by(self, let: Let) -> None:
        """Go past a let that is no group: it will stand before what is open."""
        if not _is_light(let) or _made(self._open) & _variables([let]):
            self.close()

    def add(self, group: Group) -> None:
        """Add a group to what is open, or begin with it anew."""
        if not self._may_join(group):
            self.close()
        if self._is_joinable(group):
            self._open.append(group)
        else:
            self.done.append(group)

    def _may_join(self, group: Group) -> bool:
        if not self._open or not self._is_joinable(group):
            return False
        members = [*self._open, group]
        read = _variables([n.let for g in self._open for n in g.nodes]) | _made(self._open)
        return (
            group.anchor.place == self._open[0].anchor.place
            and bool(read & _variables([n.let for n in group.nodes]))
            and sum(not g.anchor.definition.is_injective for g in members) <= 1
            and self._tensors(members) <= MOST_TENSORS
        )

    def _tensors(self, groups: Sequence[Group]) -> int:
        """Return how many operands and results a kernel of these has."""
        nodes = [n for g in groups for n in g.nodes]
        read = _variables([n.let for n in nodes]) - _made(groups)
        return len(read) + len(_results(nodes, self._reads))

    def _is_joinable(self, group: Group) -> bool:
        for node in group.nodes:
            definition = node.definition
            if definition.compute is None or definition.update is not None:
                return False
            if not isinstance(node.type, TensorType):
                return False
        if group.title:
            return False  # a whole of its own, which a nest beside it would disturb
        if group.anchor.definition.pattern is FusionPattern.CONTRACTION:
            return True
        predicted = self._predicted_ns(group)
        short = predicted is not None and predicted <= SHORT_NS
        return short and group.anchor.definition.is_injective


def _joined(groups: Sequence[Group], reads: dict[Var, int]) -> Group:
    nodes = sorted((n for g in groups for n in g.nodes), key=lambda n: n.index)
    anchor = next((g.anchor for g in groups if not g.anchor.definition.is_injective), nodes[-1])
    return Group(nodes, anchor, _results(nodes, reads))


def _results(nodes: Sequence[Node], reads: dict[Var, int]) -> list[Node]:
    """Return the nodes that something else reads."""
    inside: dict[Var, int] = {}
    for node in nodes:
        for arg in node.call.args:
            if isinstance(arg, Var):
                inside[arg] = inside.get(arg, 0) + 1
    return [n for n in nodes if reads.get(n.let.var, 0) > inside.get(n.let.var, 0)]


def _is_light(let: Let) -> bool:
    """Whether a value is a view, a number, or a part of another: no call, and no update in place.

    An update would find its operand still in use by what is moved behind it, and copy all of it.
    """
    value = let.value
    if not isinstance(value, Call):
        return not nested(value)
    callee = value.callee
    return isinstance(callee, OpRef) and callee.op.effect is Effect.PURE and not callee.op.in_place


def _made(groups: Iterable[Group]) -> set[Var]:
    return {n.let.var for g in groups for n in g.nodes}


def _variables(lets: Iterable[Let]) -> set[Var]:
    return {x for let in lets for x in operands(let.value) if isinstance(x, Var)}
