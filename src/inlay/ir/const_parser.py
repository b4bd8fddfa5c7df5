"""Reads constants: control values and tensors, in place or beside the text."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.arith.dtype import DType
from inlay.base.diagnostics import error
from inlay.base.lexer import TokenStream
from inlay.base.span import Span
from inlay.ir import make
from inlay.ir.expr import Const, Expr
from inlay.ir.type_parser import TypeParser

_PLAIN = {
    False: re.compile(r"(?:(?:- )?\d{1,20} , )*(?:- )?\d{1,20}(?: ,)?"),
    True: re.compile(r"(?:{0} , )*{0}(?: ,)?".format(r"(?:- )?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")),
}
"""Elements in decimal, with blanks between their tokens; by whether they are floats."""

_ZERO_OF_INTEGERS = re.compile(r"- 0+(?![\d.eE])")
"""Which has no sign."""


class ConstParser(TypeParser):
    """Reads constants; large ones are resources, found by their digest."""

    def __init__(self, tokens: TokenStream, resources: Mapping[str, np.ndarray]) -> None:
        super().__init__(tokens)
        self._resources: dict[str, np.ndarray | str] = dict(resources)

    def _control_const(self) -> Expr:
        t = self.t
        start = t.mark()
        word = t.advance()
        t.expect("(")
        if word == "int":
            value = self.int()
            t.expect(")")
            return make.int_const(value, t.since(start))
        values = t.sequence(self.int, ")")
        return make.shape_const(values, t.since(start))

    def _tensor_const(self) -> Const:
        t = self.t
        start = t.mark()
        dtype = dtypes.BY_NAME[t.advance()]
        shape: list[int] = []
        if t.accept("["):
            shape = t.sequence(lambda: t.integer("a number of elements"), "]")
        t.expect("(")
        if t.accept("#"):
            span = t.span
            digest = t.string("a digest")
            t.expect(")")
            array = self._resource(digest, dtype, shape, span)
        else:
            values = self._plain(dtype)
            if values is None:
                values = t.sequence(lambda: self._element(dtype), ")")
            array = _array(values, dtype, shape, t.since(start))
        return make.const(array, dtype, t.since(start))

    def _plain(self, dtype: DType) -> list[object] | None:
        """Read elements in decimal, of which there may be many, and what closes them; None for others.

        Nothing is read then, and who reads them one by one says what is wrong.
        """
        text = "" if dtype == dtypes.STRING else self.t.joined(")")
        if not _PLAIN[dtype.is_float].fullmatch(text):
            return None
        items = text.removesuffix(" ,").replace("- ", "-").split(" , ")
        values: list[object]
        if dtype.is_float:
            floats = list(map(float, items))
            with np.errstate(over="ignore"):
                is_held = bool(np.isfinite(np.array(floats).astype(dtype.numpy)).all())
            if not is_held or _ZERO_OF_INTEGERS.search(text):
                return None
            values = [*floats]
        else:
            integers = list(map(int, items))
            low, high = _range(dtype)
            if min(integers) < low or max(integers) > high:
                return None
            values = [*integers]
        self.t.reset(self.t.mark() + text.count(" ") + 1)
        self.t.expect(")")
        return values

    def _element(self, dtype: DType) -> object:
        t = self.t
        if dtype == dtypes.STRING:
            return t.string()
        if dtype == dtypes.BOOL and t.at("true", "false"):
            return t.advance() == "true"
        span = t.span
        value = t.number("an element")
        if dtype.is_float:
            return _held(value, dtype, span)
        low, high = _range(dtype)
        if not isinstance(value, int) or not low <= value <= high:
            raise error("parse.bad-number", f"found {value}, which is no {dtype} value", span=span)
        return value

    def _resource(self, digest: str, dtype: DType, shape: list[int], span: Span) -> np.ndarray:
        found = self._resources.get(digest)
        if found is None:
            raise error(
                "name.unknown",
                f"found no resource {digest}",
                span=span,
                hint="give the resources beside the text",
            )
        if isinstance(found, str):
            raw = np.frombuffer(base64.b64decode(found), dtype=dtype.numpy)
            if raw.size != math.prod(shape):
                raise error(
                    "parse.bad-number",
                    f"found {raw.size} elements in the resource, needed {math.prod(shape)}",
                    span=span,
                )
            found = self._resources[digest] = raw
        return found.reshape(shape)


def _held(value: int | float, dtype: DType, span: Span) -> float:
    """Return a number as a float, if the format holds it; infinity is written `inf`."""
    try:
        found = float(value)
        with np.errstate(over="ignore"):
            is_held = math.isinf(found) or not np.isinf(dtype.numpy.type(found))
    except OverflowError:
        found, is_held = math.inf, False
    if not is_held:
        shown = str(value) if abs(value) < 1e300 else f"a number of {len(str(value))} digits"
        message = f"found {shown}, which no {dtype} holds"
        raise error("parse.bad-number", message, span=span, hint="infinity is inf")
    return found


def _range(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest integer of a type."""
    if dtype == dtypes.BOOL:
        return 0, 1
    if dtype.is_signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def _array(values: list[object], dtype: DType, shape: list[int], span: Span) -> np.ndarray:
    if len(values) != math.prod(shape):
        raise error("parse.bad-number", f"found {len(values)} elements, needed {math.prod(shape)}", span=span)
    with np.errstate(over="ignore"):
        return np.array(values, dtype=dtype.numpy).reshape(shape)
