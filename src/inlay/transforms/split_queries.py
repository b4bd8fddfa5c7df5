"""Attention of any number of queries over a cache: a branch for one query.

    let t = transpose(keys);                          if int_equal(int(n), 1) {
    let s = matmul(q, t);              [n, past + n]    let q1 = check_shape(q, 1 query); ...; v1: 1 result
    let p = softmax(s);                          ->     check_shape(v1, n results)
    let v = matmul(p, values);                        } else { as it was }

A decoder reads a text with many queries, and then goes on with one at a time, for which most programs have
one entry with any number of them. One query reads keys and values as they lie (`_rules/products.py`,
`schedule/rules/chunked.py`), which code for any number cannot: many queries want transposed and packed keys,
and to copy all keys for one query takes longer than all the rest of its attention.

What is in the branch is what leads from the product with transposed keys to the product with values, and the
transposes of keys and values that nothing else reads. Where keys are as many as queries there is no cache,
and nothing to win: the first token of a text is one of many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from inlay.analysis.blocks import count_uses
from inlay.arith.expr import Int, Sym, lit
from inlay.ir import core_ops, make, walk
from inlay.ir.dims import free_symbols, substitute_type
from inlay.ir.existentials import is_open
from inlay.ir.expr import Call, Const, Expr, Function, Let, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.place import Place
from inlay.ir.types import TensorType
from inlay.ops.layout import PermAttrs
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, is_call, rewrite_function
from inlay.transforms._rules.rule_match import attrs_of
from inlay.transforms.fuse_ops import FuseOptions

MOST = 16
"""Operations from one product to the other, at most."""


def run(module: Module, context: PassContext) -> Module:
    """Put branches around attention over a cache. Cost: linear."""
    on_host = context.options_for(FuseOptions).joins_attention
    functions = {
        name: f if f.primitive is not None else _Splitting(count_uses(f.body), on_host).function(f)
        for name, f in module.functions.items()
    }
    if all(functions[name] is f for name, f in module.functions.items()):
        return module
    return module.with_functions(functions)


class _Splitting:
    """The pass over one function.

    Args:
        uses: how often each variable is read.
        on_host: whether a device, "" for the host, has schedules for one query and for many.
    """

    def __init__(self, uses: dict[Var, int], on_host: Callable[[str], bool]) -> None:
        self._uses = uses
        self._on_host = on_host
        self._moved: set[Var] = set()

    def function(self, f: Function) -> Function:
        """Return a function with its branches."""
        body = rewrite_function(f, self._step).body
        if not self._moved:
            return f
        # They may be checks, which are kept although nobody reads them.
        kept = walk.rewrite(body, lambda e: e.body if isinstance(e, Let) and e.var in self._moved else e)
        return replace(f, body=kept)

    def _step(self, block: BlockWriter, value: Expr) -> Expr | None:
        """Answer a product with values by a branch, where it ends attention over a cache."""
        if (
            not is_call(value, "matmul")
            or not isinstance(value.type, TensorType)
            or len(value.type.shape) < 2
        ):
            return None
        queries = value.type.shape[-2].atom
        device = "" if value.place is None else value.place.device
        if not isinstance(queries, Sym) or isinstance(value.args[1], Const) or not self._on_host(device):
            return None
        group = self._group(block, value, queries)
        if group is None:
            return None
        tail = make.var("attention", value.type, value.span)
        whole = make.lets([*group.items(), (tail, value)], tail)
        narrowed = self._for_one(whole, queries, value.place)
        if narrowed is None:
            return None
        self._moved |= group.keys()
        count = (make.int_const(value.type.shape[-2]), make.int_const(1))
        is_one = block.bind(make.call(make.op_ref(core_ops.INT_EQUAL), count), "is_one")
        span, place = value.span, value.place
        return make.if_(is_one, narrowed, walk.copy(whole), span=span, place=place, known=block.known)

    def _group(self, block: BlockWriter, values: Call, queries: Sym) -> dict[Var, Call] | None:
        """Return the operations that lead from keys to values, in order; None where there are none."""
        search = _Search(block, queries, values.place, self._uses)
        if not search.leads(values.args[0]) or search.products != 1:
            return None
        moved = search.only_transpose(values.args[1])
        if moved is not None:
            search.found[moved[0]] = moved[1]
        read = [a for call in (*search.found.values(), values) for a in call.args]
        is_inside = all(self._uses.get(v) == read.count(v) for v in search.found)
        return search.found if is_inside else None

    # ------------------------------------------------------------------------ one query

    def _for_one(self, whole: Expr, queries: Sym, place: Place | None) -> Expr | None:
        """Return operations as they are for one query; None where what they read is no tensors."""
        one: dict[Sym, Int] = {queries: lit(1)}
        checked: list[tuple[Var, Expr]] = []
        given: dict[Var, Var] = {}
        for x in dict.fromkeys(walk.free_vars(whole)):
            if queries not in free_symbols(x.type):
                continue
            narrow = substitute_type(x.type, one)
            if not isinstance(narrow, TensorType):
                return None
            value = _of_shape(x, narrow, place)
            given[x] = make.var(x.name, value.type, x.span)
            checked.append((given[x], value))
        lets, tail = walk.spine(walk.copy(whole, dict[Var, Expr](given), one))
        assert isinstance(whole.type, TensorType), "attention gives a tensor"
        result = _of_shape(tail, whole.type, place)
        end = make.var("attention", result.type, result.span)
        return make.lets([*checked, *((x.var, x.value) for x in lets), (end, result)], end)


@dataclass(slots=True)
class _Search:
    """From a product with values back to the product with keys.

    Attributes:
        block: the block that is written.
        queries: how many there are.
        place: of all operations.
        uses: how often each variable is read.
        found: operations between, with the transpose of keys, in order.
        products: how many of these are products with keys.
    """

    block: BlockWriter
    queries: Sym
    place: Place | None
    uses: dict[Var, int]
    found: dict[Var, Call] = field(default_factory=dict[Var, Call])
    products: int = 0
    _pending: set[Var] = field(default_factory=set[Var])

    def leads(self, atom: Expr) -> bool:
        """Whether an atom is computed of scores: then it is found, and all between."""
        if not isinstance(atom, Var) or atom in self.found:
            return atom in self.found
        made = self.block.definition(atom)
        if not isinstance(made, Call) or not isinstance(made.callee, OpRef) or made.place != self.place:
            return False
        # A size that it opens may be read outside.
        if not is_open(made.type) or len(self.found) + len(self._pending) > MOST:
            return False
        keys = self._transposed_keys(made)
        if keys is not None:
            self.found[keys[0]] = keys[1]
            self.products += 1
        else:
            self._pending.add(atom)
            of_scores = [self.leads(a) for a in made.args]
            self._pending.discard(atom)
            if not any(of_scores):
                return False
        self.found[atom] = made
        return True

    def _transposed_keys(self, call: Call) -> tuple[Var, Call] | None:
        """Return the transpose of keys that a product of queries reads; None for anything else."""
        if not is_call(call, "matmul") or not isinstance(call.type, TensorType) or len(call.type.shape) < 2:
            return None
        rows, columns = (n.atom for n in call.type.shape[-2:])
        found = self.only_transpose(call.args[1])
        if rows != self.queries or columns == rows or not call.type.dtype.is_float or found is None:
            return None
        perm = attrs_of(found[1], PermAttrs).perm
        return found if len(perm) > 1 and perm[-2] == len(perm) - 1 else None

    def only_transpose(self, atom: Expr) -> tuple[Var, Call] | None:
        """Return the transpose that an atom is, where nothing else reads it."""
        made = self.block.definition(atom)
        if isinstance(atom, Var) and self.uses.get(atom) == 1 and is_call(made, "transpose"):
            return atom, made
        return None


def _of_shape(x: Expr, type: TensorType, place: Place | None) -> Expr:
    """Return a tensor as one of this type, on the place where it is read."""
    checked = make.assume_shape(x, type.shape, "one query")
    return replace(checked, place=place) if isinstance(checked, Call) else checked


PASS = Pass(
    __name__,
    run,
    "a branch for one query in attention of any number of queries over a cache",
    requires=(Property.ANF,),
)
