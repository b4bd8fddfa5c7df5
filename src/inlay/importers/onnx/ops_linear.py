"""Einsum and determinants."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inlay.arith.expr import Int, product
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, arange, filled, integers, term
from inlay.importers.onnx.values import OnnxValue
from inlay.ir.builder import Builder
from inlay.ir.expr import Var
from inlay.ir.loop_trace import Step


@dataclass(frozen=True, slots=True, eq=False)
class _Labeled:
    """A tensor with a letter for each axis, all different."""

    x: Term
    labels: str

    def size(self, label: str) -> Int:
        """Return the size of the axis with a letter."""
        return self.x.shape[self.labels.index(label)]

    def ordered(self, labels: str) -> _Labeled:
        """Put the axes into an order."""
        return _Labeled(self.x.transpose(*(self.labels.index(c) for c in labels)), labels)

    def summed(self, keep: str) -> _Labeled:
        """Sum over all axes whose letters are not to be kept."""
        gone = tuple(i for i, c in enumerate(self.labels) if c not in keep)
        if not gone:
            return self
        left = "".join(c for c in self.labels if c in keep)
        return _Labeled(self.x.over("sum", *gone), left)


def _einsum(node: Node) -> OnnxValue:
    """Contract operands from left to right, each pair as one batched matrix product."""
    equation = node.string("equation", "").replace(" ", "")
    operands = [term(node, i) for i in range(len(node.inputs))]
    inputs, output = _parsed(node, equation, [x.rank for x in operands])
    labeled = [_diagonal(x, labels) for x, labels in zip(operands, inputs, strict=True)]
    labeled = _stretched(labeled)
    result = labeled[0]
    for i, other in enumerate(labeled[1:], 1):
        later = output + "".join(x.labels for x in labeled[i + 1 :])
        result = _contracted(result, other, later)
    return result.summed(output).ordered(output).x.value


def _parsed(node: Node, equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return letters for every axis of the operands and of the result; dots become letters."""
    left, arrow, right = equation.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        raise node.invalid(f"has equation '{equation}' for {len(ranks)} operands")
    unused = [c for c in string.ascii_letters if c not in equation]
    extra = max(
        (r - len(s.replace("...", "")) for s, r in zip(inputs, ranks, strict=True) if "..." in s), default=0
    )
    if extra < 0 or extra > len(unused):
        raise node.invalid(f"has equation '{equation}' for operands of ranks {list(ranks)}")
    dots = "".join(unused[:extra])
    spelled: list[str] = []
    for s, rank in zip(inputs, ranks, strict=True):
        own = rank - len(s.replace("...", ""))
        full = s.replace("...", dots[extra - own :] if own > 0 else "")
        if len(full) != rank or not all(c in string.ascii_letters for c in full):
            raise node.invalid(f"has equation '{equation}', and an operand of rank {rank}")
        spelled.append(full)
    if arrow:
        output = right.replace("...", dots)
    else:
        letters = sorted(set(left) - set(",."))
        output = dots + "".join(c for c in letters if left.count(c) == 1)
    if len(set(output)) != len(output) or set(output) - set("".join(spelled)):
        raise node.invalid(f"has equation '{equation}', whose result has other letters")
    return spelled, output


def _diagonal(x: Term, labels: str) -> _Labeled:
    """Keep of axes with one letter the elements where they have one index: each row's next one further on."""
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            first, again = labels.index(c), labels.rindex(c)
            others = [d for d in range(x.rank) if d not in (first, again)]
            x, count = x.transpose(*others, first, again), x.shape[first]
            lead = x.shape[:-2]
            index = arange(x.node, count) * integers(x.node, (count + 1,))
            x = x.reshape(*lead, count * count).gather(index, axis=len(lead), clamp=True)
            labels = "".join(labels[d] for d in others) + c
    return _Labeled(x, labels)


def _stretched(operands: Sequence[_Labeled]) -> list[_Labeled]:
    """Repeat axes of size 1 where another operand has more with the same letter."""
    sizes: dict[str, Int] = {}
    for o in operands:
        for c in o.labels:
            if o.size(c) != 1 or c not in sizes:
                sizes[c] = o.size(c)
    return [
        _Labeled(o.x.broadcast([sizes[c] for c in o.labels]), o.labels)
        if any(o.size(c) == 1 and sizes[c] != 1 for c in o.labels)
        else o
        for o in operands
    ]


def _contracted(a: _Labeled, b: _Labeled, later: str) -> _Labeled:
    a, b = a.summed(later + b.labels), b.summed(later + a.labels)
    both = [c for c in a.labels if c in b.labels]
    batch = "".join(c for c in both if c in later)
    inner = "".join(c for c in both if c not in later)
    rows = "".join(c for c in a.labels if c not in b.labels)
    columns = "".join(c for c in b.labels if c not in a.labels)
    left, right = a.ordered(batch + rows + inner), b.ordered(batch + inner + columns)
    sizes = {c: o.size(c) for o in (a, b) for c in o.labels}

    def size(labels: str) -> Int:
        return product([sizes[c] for c in labels])

    x = left.x.reshape(size(batch), size(rows), size(inner))
    y = right.x.reshape(size(batch), size(inner), size(columns))
    out = batch + rows + columns
    return _Labeled(x.op("matmul", y).reshape(*(sizes[c] for c in out)), out)


# --------------------------------------------------------------------------- determinant


def _det(node: Node) -> OnnxValue:
    """Eliminate with the greatest pivot; the determinant is the product of the pivots."""
    x = term(node, 0)
    if x.rank < 2:
        raise node.invalid("needs matrices")
    lead, n = x.shape[:-2], x.shape[-1]
    batch = product(lead)
    matrices = x.reshape(batch, n, n)
    one = filled(node, 1.0, (batch,), x.dtype)

    def step(scope: Builder, k: Int, carried: tuple[Var, ...]) -> Step:
        inside = node.within(scope)
        a, det = (Term(inside, c) for c in carried)
        a, det = _eliminate(a, det, k)
        return Step([a.expr, det.expr])

    done = node.b.loop([matrices.expr, one.expr], step, count=n, name=node.loop_name)
    return Term(node, done.carried[1]).reshape(*lead).value


def _eliminate(a: Term, det: Term, k: Int) -> tuple[Term, Term]:
    node, (batch, n, _) = a.node, a.shape
    rows = arange(node, n).reshape(1, n, 1)
    here = integers(node, (k,)).reshape(1, 1, 1)
    column = a.gather(here.reshape(1), axis=2, clamp=True)
    size = (rows < here).where(-1.0, column.op("abs"))
    best = size.op("argmax", axis=1, keepdims=True)
    chosen = rows.equals(best)
    pivot_row = chosen.where(a, 0.0).over("sum", 1, keep=True)
    own_row = a.gather(here.reshape(1), axis=1, clamp=True)
    a = rows.equals(here).where(pivot_row, chosen.where(own_row, a))
    pivot = pivot_row.gather(here.reshape(1), axis=2, clamp=True)
    sign = best.equals(here).where(pivot, -pivot).reshape(batch)
    safe = pivot.equals(0.0).where(1.0, pivot)
    factors = (rows > here).where(a.gather(here.reshape(1), axis=2, clamp=True) / safe, 0.0)
    return a - factors * pivot_row, det * sign


RULES: Mapping[str, Rule] = {"Einsum": _einsum, "Det": _det}
