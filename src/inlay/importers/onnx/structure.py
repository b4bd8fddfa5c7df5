"""Sequences and optionals as values of the prelude's `List` and `Option`.

A sequence that the nodes of one graph build has a length that is known there, and an optional often
has a known content. Such a value stays in this *known form* (`OnnxValue.items`, a plain content, or
`NOTHING`), as small integer tensors stay integers, and becomes a `List` or `Option` where only
the program knows more: at branches, loops and the border of the model.

Its type then is the least that all it may be has: elements of differing sizes have existential
dims. Ranks are static, so elements of differing ranks are refused. A type of which nothing is known
yet, as of the elements of an empty sequence, is `UNKNOWN` here; what it is joined with decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx

from inlay.arith.dtype import F32, DType
from inlay.arith.expr import Int, Sym, fresh, lit, to_int
from inlay.importers.onnx import load
from inlay.importers.onnx.node import Node
from inlay.importers.onnx.protos import dim_name
from inlay.importers.onnx.values import NOTHING, OnnxValue
from inlay.ir import make
from inlay.ir.conform import join
from inlay.ir.context import Context
from inlay.ir.dims import free_symbols, same_type
from inlay.ir.existentials import open_exists, pack
from inlay.ir.expr import Expr, Var
from inlay.ir.prelude import adt, prelude
from inlay.ir.types import UNKNOWN, AdtType, DimParam, ExistsType, TensorType, Type, UnknownType


def list_of(element: Type) -> AdtType:
    """Return the type of lists of an element."""
    return AdtType("List", (element,))


def option_of(content: Type) -> AdtType:
    """Return the type of options of a content."""
    return AdtType("Option", (content,))


def is_structured(value: OnnxValue) -> bool:
    """Whether a value is something else than a tensor, in known form or not."""
    return (
        value is NOTHING
        or value.items is not None
        or (value.expr is not None and isinstance(value.expr.type, AdtType))
    )


def form_of(node: Node, value: OnnxValue) -> Type:
    """Return the type of a value, with `UNKNOWN` where it has none yet."""
    if value is NOTHING:
        return option_of(UNKNOWN)
    if value.items is not None:
        element: Type = UNKNOWN
        for item in value.items:
            element = joined(node, element, form_of(node, item))
        return list_of(element)
    if value.expr is not None:
        return value.expr.type
    return TensorType(() if value.is_scalar else (lit(len(value.ints or ())),), value.dtype)


def joined(node: Node, a: Type, b: Type) -> Type:
    """Return the least type of which both are; a content and an option of it make an option.

    Raises:
        UnsupportedError: `import.unsupported` where elements differ in rank or kind.
    """
    match a, b:
        case UnknownType(), _:
            return b
        case _, UnknownType():
            return a
        case AdtType(name=x, args=(p,)), AdtType(name=y, args=(q,)) if x == y:
            return AdtType(x, (joined(node, p, q),))
        case AdtType(name="Option", args=(p,)), _:
            return option_of(joined(node, p, b))
        case _, AdtType(name="Option", args=(q,)):
            return option_of(joined(node, a, q))
        case ((TensorType() | ExistsType()), (TensorType() | ExistsType())):
            x, y = _tensor(a), _tensor(b)
            if x and y and (len(x.shape) != len(y.shape) or x.dtype != y.dtype):
                raise node.unsupported(
                    f"makes one type of {x.dtype} of rank {len(x.shape)} and {y.dtype} of rank "
                    f"{len(y.shape)}: ranks are static",
                    hint="use tensors of one rank in a sequence or optional",
                )
            return join(a, b, Context(node.proto.op_type, node.span), "one sequence")
        case _:
            raise node.unsupported("makes one type of a tensor and a sequence")


def _tensor(t: Type) -> TensorType | None:
    while isinstance(t, ExistsType):
        t = t.body
    return t if isinstance(t, TensorType) else None


def closed(t: Type, marker: Sym) -> Type:
    """Quantify the symbols younger than a marker in elements and contents: they end with a scope."""
    match t:
        case AdtType(name=name, args=(inner,)):
            inner = closed(inner, marker)
            young = [s for s in free_symbols(inner) if s.uid > marker.uid]
            return AdtType(name, (pack(inner, [DimParam(s, 0) for s in young]),))
        case _:
            return t


def has_unknown(t: Type) -> bool:
    """Whether a type is not decided yet."""
    return isinstance(t, UnknownType) or (isinstance(t, AdtType) and any(map(has_unknown, t.args)))


def filled(t: Type, declared: onnx.TypeProto | None) -> Type:
    """Decide what nothing decides, as of the elements of a sequence that is always empty."""
    match t:
        case UnknownType():
            return declared_type(declared) if declared is not None else TensorType((), F32)
        case AdtType(name=name, args=(inner,)):
            return AdtType(name, (filled(inner, _inner_of(declared)),))
        case _:
            return t


def _inner_of(declared: onnx.TypeProto | None) -> onnx.TypeProto | None:
    kind = declared.WhichOneof("value") if declared is not None else None
    if declared is not None and kind in ("sequence_type", "optional_type"):
        return getattr(declared, kind).elem_type
    return None


def declared_type(declared: onnx.TypeProto) -> Type:
    """Return a declared type; sizes that are no numbers are existential, unknown ranks are 0."""
    match declared.WhichOneof("value"):
        case "sequence_type":
            return list_of(declared_type(declared.sequence_type.elem_type))
        case "optional_type":
            return option_of(declared_type(declared.optional_type.elem_type))
        case _:
            tensor = declared.tensor_type
            return some_tensor(tensor.shape, load.dtype_of(tensor.elem_type) or F32)


def some_tensor(shape: onnx.TensorShapeProto, dtype: DType) -> Type:
    """Return the type of tensors whose axes are as declared, existential without a number."""
    symbols: list[Sym] = []
    dims: list[Int] = []
    for d in shape.dim:
        if d.WhichOneof("value") == "dim_value" and d.dim_value >= 0:
            dims.append(lit(d.dim_value))
        else:
            symbols.append(fresh(dim_name(d) or "k"))
            dims.append(to_int(symbols[-1]))
    return pack(TensorType(tuple(dims), dtype), [DimParam(s, 0) for s in symbols])


def construct(node: Node, data: str, name: str, args: Sequence[Expr], content: Type) -> Expr:
    """Emit a value of `List` or `Option`."""
    return node.b.emit(make.constructor_ref(adt(data), name, (content,), span=node.span), args)


def as_type(node: Node, value: OnnxValue, t: Type) -> Expr:
    """Return a value as one of a type that it may have: `t` is joined of its form and others."""
    match t:
        case AdtType(name="Option", args=(content,)):
            if value is NOTHING:
                return construct(node, "Option", "None", (), content)
            if value.expr is not None and _is(value.expr, "Option"):
                return value.expr
            return construct(node, "Option", "Some", (as_type(node, value, content),), content)
        case AdtType(name="List", args=(element,)):
            if value.items is None:
                assert value.expr is not None, "a sequence is known or an expression"
                return value.expr
            made = construct(node, "List", "Nil", (), element)
            for item in reversed(value.items):
                pair = (as_type(node, item, element), made)
                made = construct(node, "List", "Cons", pair, element)
            return made
        case _:
            return node.as_tensor(value)


def _is(e: Expr, data: str) -> bool:
    return isinstance(e.type, AdtType) and e.type.name == data


def as_list(node: Node, value: OnnxValue) -> Expr:
    """Return a sequence as a list; one that is known to be empty has scalars for elements."""
    form = form_of(node, value)
    if not isinstance(form, AdtType) or form.name != "List":
        raise node.invalid(f"is given {form} where it needs a sequence")
    return as_type(node, value, filled(form, None))


def content(t: Type) -> Type:
    """Return the type of the elements of a list type, or of the content of an option type."""
    assert isinstance(t, AdtType), "a list or an option"
    return t.args[0]


def element_type(xs: Expr) -> Type:
    """Return the type of the elements of a list."""
    return content(xs.type)


def any_size(t: Type, axis: int) -> Type:
    """Return the type of tensors that are like one, but for the size of one axis."""
    opened, dims = open_exists(t)
    assert isinstance(opened, TensorType), "a tensor has axes"
    size = fresh("k")
    shape = (*opened.shape[:axis], to_int(size), *opened.shape[axis + 1 :])
    return pack(TensorType(shape, opened.dtype), [*dims, DimParam(size, 0)])


def call_prelude(node: Node, name: str, *args: Expr) -> Expr:
    """Emit a call of a function of the prelude."""
    return node.b.emit(make.global_var(name, prelude().functions[name].type), args)


def local_function(
    node: Node, params: Sequence[Type], body: Callable[..., Expr], result: Type | None = None
) -> Expr:
    """Bind a function of values whose types may be existential.

    Args:
        node: where it is used.
        params: their types.
        body: gets a node that emits inside, and a variable for each parameter.
        result: its type; by default that of the body, with sizes that the parameters open closed.
    """
    scope = node.b.scope()
    names: list[Var] = []
    opened: list[DimParam] = []
    for i, t in enumerate(params):
        inner, dims = open_exists(t)
        scope.declare(dims)
        opened += dims
        names.append(Var(f"x{i}", inner, node.span))
    value = scope.finish(body(node.within(scope), *names))
    made = make.function(
        names,
        value,
        pack(value.type, opened) if result is None else result,
        (),
        param_types=params,
        span=node.span,
        known=node.b.known,
    )
    return node.b.bind(made, "f")


def _same(_: Node, x: Expr) -> Expr:
    return x


def widened(node: Node, xs: Expr, element: Type) -> Expr:
    """Return a list as one whose elements are of a wider type."""
    if same_type(element_type(xs), element):
        return xs
    same = local_function(node, [element_type(xs)], _same, element)
    return call_prelude(node, "list.map", same, xs)
