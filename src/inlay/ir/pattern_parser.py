"""Reads patterns, given the type of what they take apart."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlay.base.diagnostics import error
from inlay.base.lexer import TokenStream
from inlay.base.span import Span
from inlay.ir import make
from inlay.ir.const_parser import ConstParser
from inlay.ir.existentials import open_exists
from inlay.ir.expr import Expr, Pattern, PatternConstructor, PatternTuple, PatternVar, PatternWildcard, Var
from inlay.ir.module import Adt
from inlay.ir.types import UNKNOWN, AdtType, ExistsType, FuncType, TupleType, Type, UnknownType


class PatternParser(ConstParser):
    """Reads patterns; their variables come into scope.

    Attributes:
        vars: local variables by name; graph bindings with their `%`.
        constructors: the data types that have a constructor of this name.
    """

    def __init__(self, tokens: TokenStream, resources: Mapping[str, np.ndarray]) -> None:
        super().__init__(tokens, resources)
        self.vars: dict[str, Expr] = {}
        self.constructors: dict[str, list[Adt]] = {}

    def _constructor(self, name: str) -> tuple[Adt | None, str]:
        found = self.constructors.get(name, [])
        if len(found) == 1:
            return found[0], name
        adt, _, constructor = name.rpartition(".")
        if adt in self.adts and any(c.name == constructor for c in self.adts[adt].constructors):
            return self.adts[adt], constructor
        return (found[0], name) if found else (None, name)

    def _pattern(self, type_: Type) -> Pattern:
        """Read a pattern for values of a type; variables without annotation get it, opened."""
        t = self.t
        with self._deeper():
            if t.accept("_"):
                return PatternWildcard()
            if isinstance(type_, ExistsType):
                type_, dims = open_exists(type_)
                self._declare(dims)
            if t.at("("):
                return self._tuple_pattern(type_)
            start = t.mark()
            span = t.span
            name = t.name("a pattern")
            adt, constructor = self._constructor(name)
            if adt is not None and (t.at("(") or not t.at(":", "@")):
                return self._constructor_pattern(adt, constructor, type_, span)
            place = self._place()
            declared, own = self._annotation()
            if isinstance(declared, UnknownType):
                own, dims = open_exists(type_, name)
                self._declare(dims)
            v = Var(name, own, t.since(start), place)
            self._bind(self.vars, name, v)
            return PatternVar(v)

    def _constructor_pattern(self, adt: Adt, name: str, type_: Type, span: Span) -> Pattern:
        c = make.find_constructor(adt, name)
        if isinstance(type_, AdtType) and type_.name == adt.name:
            reference = make.constructor_ref(adt, name, type_.args).type
            assert isinstance(reference, FuncType)
            types = reference.params
        else:
            types = (UNKNOWN,) * len(c.fields)
        fields: list[Pattern] = []
        if self.t.accept("("):
            while not self.t.accept(")"):
                at = len(fields)
                fields.append(self._pattern(types[at] if at < len(types) else UNKNOWN))
                if not self.t.accept(","):
                    self.t.expect_either(",", ")")
                    break
        if len(fields) != len(c.fields):
            raise error(
                "type.arity", f"pattern {name}: found {len(fields)} fields, needed {len(c.fields)}", span=span
            )
        return PatternConstructor(adt.name, name, c.tag, tuple(fields))

    def _tuple_pattern(self, type_: Type) -> Pattern:
        t = self.t
        types = type_.fields if isinstance(type_, TupleType) else ()
        fields: list[Pattern] = []
        t.expect("(")
        while not t.accept(")"):
            at = len(fields)
            fields.append(self._pattern(types[at] if at < len(types) else UNKNOWN))
            if not t.accept(","):
                t.expect_either(",", ")")
                break
        return PatternTuple(tuple(fields))
