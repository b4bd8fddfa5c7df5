"""Attention as one kernel: a product, softmax or what is spelled like it along rows, and a product by that.

    let s = matmul(q, k); let m = add(mul(s, c), mask); let p = softmax{axis=-1}(m); let y = matmul(p, v);

What is between the two products are the *scores*, a matrix of queries by keys for each head. Of long
sequences they are by far the largest tensor of a network, and each element is made once and used once.
In a kernel of its own each of these operators writes all of them and the next one reads them again; in
one kernel a thread has the scores of one head, or of some of its rows, in a workspace that stays in its
second cache, and they have no place in the plan of memory (`schedule/rules/attention.py`).

Between the products there may be element-wise work on scores (scalings, masks, choices by conditions) and
on one number for each row, and reductions along rows, of which there is at least one. A mask that is
smaller than the scores, or that others read too, is computed outside and read. Whatever is outside of the
two products must not read scores: then they have to be written anyway, and kernels stay apart. So they do
with one query for each head, whose scores are a row, and where a matrix has a single column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inlay.arith.expr import Int, lit
from inlay.ir.expr import Var
from inlay.ir.types import TensorType
from inlay.transforms._nodes import Node, operand_type, result_shape, row_axis


def makers_of_scores(
    values: Node, nodes: Mapping[Var, Node], chosen: set[Var], may_join: Callable[[Node, set[Var]], bool]
) -> tuple[Node, ...]:
    """Return what makes the scores that a product multiplies, the product that begins it first.

    Args:
        values: the product of scores and values.
        nodes: what may be in kernels, by variable.
        chosen: variables of the group so far, with that of `values`; those that are found are added.
        may_join: whether a node is free, on the same device, and read by chosen ones alone.

    Returns:
        The members; none where `values` is another product, and then `chosen` stays as it was.
    """
    scores, maker = operand_type(values, 0), _maker(values, nodes)
    if values.name != "matmul" or maker is None or scores is None or not _are_scores(values, scores):
        return ()
    taken = {*chosen}
    found: list[Node] = []
    products: list[Node] = []
    pending = [maker]
    while pending:
        node = max(pending, key=lambda n: n.index)
        pending.remove(node)
        if not may_join(node, taken) or not (_is_between(node, scores) or _is_product(node, scores)):
            continue
        if _is_product(node, scores):
            if products:
                continue  # another one that is added to the scores is a kernel of its own
            products.append(node)
        else:
            found.append(node)
            producers = (nodes[a] for a in node.call.args if isinstance(a, Var) and a in nodes)
            pending += [n for n in dict.fromkeys(producers) if n not in pending]
        taken.add(node.let.var)
    if not products or all(n.is_pointwise for n in found):
        return ()
    chosen |= taken
    return (*products, *found)


def _maker(values: Node, nodes: Mapping[Var, Node]) -> Node | None:
    first = values.call.args[0] if values.call.args else None
    return nodes.get(first) if isinstance(first, Var) else None


def _are_scores(values: Node, scores: TensorType) -> bool:
    """Whether a first factor is a matrix of floats for each matrix of the result, all of several elements."""
    shape = result_shape(values)
    return (
        scores.dtype.is_float
        and len(scores.shape) > 1
        and shape is not None
        and len(shape) == len(scores.shape)
        and shape[:-1] == scores.shape[:-1]
        and all(n != 1 for n in (*scores.shape[-2:], shape[-1]))
    )


def _is_product(node: Node, scores: TensorType) -> bool:
    first = operand_type(node, 0)
    return node.name == "matmul" and node.type == scores and first is not None and first.shape[-1] != 1


def _is_between(node: Node, scores: TensorType) -> bool:
    """Whether a node is element-wise work on scores or on numbers of rows, or reduces along rows."""
    outer = scores.shape[:-1]
    per_row: tuple[tuple[Int, ...], ...] = (outer, (*outer, lit(1)))
    if node.is_pointwise:
        return result_shape(node) in (scores.shape, *per_row)
    source = operand_type(node, 0)
    return source is not None and source.shape == scores.shape and row_axis(node) == len(outer)
