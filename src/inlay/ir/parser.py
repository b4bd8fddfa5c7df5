"""Reads the text form of the tensor IR. The grammar is in docs/language/tensor_ir.md.

Nodes are made by `ir.make` as they are read, so a program that says the types of its parameters is
typed when it is read, and relations that cannot be proved become checks. What has no type gets
`UNKNOWN`, and `analysis.infer_types` finds it.

Signatures of global functions are read first, so that functions may call each other. All
independent errors are reported: after an error in a statement reading goes on with the next one,
and an unknown name stands for a value of unknown type.

Graph bindings (`%1 = e;`) name a node; every use of the name is that very node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from inlay.arith.expr import Sym
from inlay.base.lexer import TokenKind, TokenStream
from inlay.base.span import Source, Span
from inlay.ir.expr import Expr, Function
from inlay.ir.expr_parser import ExprParser, Signature
from inlay.ir.kernel import Kernel
from inlay.ir.module import Adt, Constructor, EntryNames, Growth, Module
from inlay.ir.op import OpTable
from inlay.ir.type_parser import TypeParser
from inlay.ir.types import Type, TypeVar


def parse_module(
    text: str,
    ops: OpTable,
    *,
    name: str = "<text>",
    kernels: Mapping[str, Kernel] | None = None,
    resources: Mapping[str, np.ndarray] | None = None,
    known: Module | None = None,
) -> Module:
    """Read a module.

    Args:
        text: the program.
        ops: the operators it may use.
        name: of the text, for errors.
        kernels: kernels by digest of their bodies, which have no text form of their own here.
        resources: large constants by digest, besides those in the text.
        known: a module whose data types and functions may be used (`prelude.prelude()`); they do
            not become part of the result.

    Raises:
        CompileError: with all independent errors: `parse.*`, `name.*`, `type.*`.
    """
    tokens = TokenStream(Source(name, text))
    parser = ModuleParser(tokens, ops, kernels or {}, resources or {})
    if known is not None:
        parser.adopt(known)
    return parser.module()


def parse_expr(text: str, ops: OpTable, *, module: Module | None = None, name: str = "<text>") -> Expr:
    """Read one closed expression: statements and a result, or a function."""
    tokens = TokenStream(Source(name, text))
    parser = ModuleParser(tokens, ops, {}, {})
    if module is not None:
        parser.adopt(module)
    result = parser.whole_body()
    parser.raise_findings()
    return result


def parse_type(text: str, dims: Mapping[str, Sym] | None = None) -> Type:
    """Read a type; free symbols are given by name."""
    parser = TypeParser(TokenStream(Source("<type>", text)))
    parser.syms.update(dims or {})
    result = parser.type()
    parser.raise_findings()
    return result


class ModuleParser(ExprParser):
    """Reads the items of a module."""

    def __init__(
        self,
        tokens: TokenStream,
        ops: OpTable,
        kernels: Mapping[str, Kernel],
        resources: Mapping[str, np.ndarray],
    ) -> None:
        super().__init__(tokens, ops, resources)
        self.kernels: dict[str, Kernel] = {}
        self._defined: set[str] = set()
        self._adopted: set[str] = set()
        self._entry_spans: list[tuple[str, Span]] = []
        self._kernel_bodies = kernels

    def adopt(self, module: Module) -> None:
        """Make the names of a module known; the text may define them anew.

        A constructor of the text comes before one of the same name in the module.
        """
        self.globals.update((n, f.type) for n, f in module.functions.items())
        self.globals.update((n, k.type) for n, k in module.kernels.items())
        self._adopted.update(module.adts)
        for adt in module.adts.values():
            self._add_adt(adt)

    def module(self) -> Module:
        """Read all items: data types and signatures first, then bodies."""
        bodies: list[tuple[str, Signature, int]] = []
        entries: dict[str, EntryNames] = {}
        entry = ["main"]
        self._scan_declarations()
        while not self.t.is_end:
            with self._recovering(self._skip_item):
                self._item(bodies, entries, entry)
        functions: dict[str, Function] = {}
        for name, signature, mark in bodies:
            self.t.reset(mark)
            with self._recovering(lambda: None):
                functions[name] = self._function(signature)
        for name, span in self._entry_spans:
            if name not in functions and name not in self.globals:
                self._unknown("function", name, span, self.globals)
        self.raise_findings()
        adts = {n: a for n, a in self.adts.items() if n not in self._adopted}
        begin = next(iter(entries), entry[0]) if entry[0] not in functions else entry[0]
        return Module(functions, adts, self.kernels, entries, begin)

    def _scan_declarations(self) -> None:
        """Read data types first, and the resources: both may stand anywhere."""
        start = self.t.mark()
        heads = self.t.outside_braces(frozenset({"data", "resources"}))
        for mark in heads:  # first the names, so that types may refer to each other
            self.t.reset(mark)
            if self.t.accept("data") and self.t.kind is TokenKind.NAME:
                span = self.t.span
                name = self.t.name()
                if name in self._adopted:
                    self._forget_adt(name)
                elif name in self.adts:
                    self.findings.error("name.duplicate", f"found a second data type {name}", span=span)
                self.adts[name] = Adt(name, (), ())
        for mark in heads:
            self.t.reset(mark)
            with self._recovering(lambda: None):
                if self.t.accept("data"):
                    self._data()
                else:
                    self.t.advance()
                    self._resource_section()
        self.t.reset(start)

    def _item(
        self, bodies: list[tuple[str, Signature, int]], entries: dict[str, EntryNames], entry: list[str]
    ) -> None:
        t = self.t
        if t.at("data", "resources"):
            self._skip_to_brace()
            self.t.skip_braces()
        elif t.accept("fn"):
            span = t.span
            name = t.name("the name of a function")
            if name in self._defined:
                self.findings.error("name.duplicate", f"found a second {name}", span=span)
            self._defined.add(name)
            outer = self._enter()
            signature = self._signature()
            self._leave(outer)
            self.globals[name] = signature.type
            bodies.append((name, signature, t.mark()))
            self.t.skip_braces()
        elif t.accept("entry"):
            self._entry(entries, entry)
        elif t.accept("kernel"):
            self._kernel()
        else:
            raise t.failure("'fn', 'data', 'kernel', 'entry' or 'resources'")

    def _entry(self, entries: dict[str, EntryNames], entry: list[str]) -> None:
        t = self.t
        self._entry_spans.append((t.text, t.span))
        name = t.name("the name of a function")
        if not t.at("("):
            entry[0] = name
        else:
            t.advance()
            inputs = tuple(t.sequence(t.string, ")"))
            t.expect("->")
            t.expect("(")
            outputs = tuple(t.sequence(t.string, ")"))
            state = self._pairs("state")
            first = t.name("the name of a function") if t.accept("first") else ""
            grows = self._grows()
            updates = self._pairs("updates")
            grown = t.name("the name of a function") if (grows or updates) and t.accept("in") else ""
            entries[name] = EntryNames(inputs, outputs, state, first, grows, grown, updates)
        t.expect(";")

    def _pairs(self, word: str) -> tuple[tuple[str, str], ...]:
        """Read what stays: pairs of an input and an output."""
        t, found = self.t, list[tuple[str, str]]()
        while t.accept(word):
            t.expect("(")
            given = t.string("an input")
            t.expect(",")
            found.append((given, t.string("an output")))
            t.expect(")")
        return tuple(found)

    def _grows(self) -> tuple[Growth, ...]:
        """Read what grows: an input, an output and an axis each."""
        t, found = self.t, list[Growth]()
        while t.accept("grows"):
            t.expect("(")
            given = t.string("an input")
            t.expect(",")
            made = t.string("an output")
            t.expect(",")
            found.append(Growth(given, made, t.integer("an axis")))
            t.expect(")")
        return tuple(found)

    def _kernel(self) -> None:
        t = self.t
        name = t.name("the name of a kernel")
        t.expect(":")
        type_ = self.type()
        t.expect("=")
        t.string("the kind of the body")
        span = t.span
        digest = t.string("the digest of the body")
        t.expect(";")
        found = self._kernel_bodies.get(digest)
        if found is None:
            self.findings.error(
                "name.unknown",
                f"found kernel {name} with a body {digest} that was not given",
                span=span,
                hint="pass the kernels beside the text",
            )
        else:
            self.kernels[name] = replace(found, name=name)
        self.globals[name] = type_

    def _data(self) -> None:
        t = self.t
        name = t.name("the name of a data type")
        params: list[TypeVar] = []
        if t.accept("<"):
            params = t.sequence(self._type_var, ">")
        t.expect("{")
        built: list[Constructor] = []

        def constructor() -> None:
            c = t.name("a constructor")
            fields = tuple(t.sequence(self.type, ")")) if t.accept("(") else ()
            built.append(Constructor(c, len(built), fields))

        self.adts[name] = Adt(name, tuple(params), ())
        t.sequence(constructor, "}")
        self._add_adt(Adt(name, tuple(params), tuple(built)))

    def _add_adt(self, adt: Adt) -> None:
        self.adts[adt.name] = adt
        for c in adt.constructors:
            owners = self.constructors.setdefault(c.name, [])
            own = sum(a.name not in self._adopted for a in owners)
            owners.insert(own if adt.name not in self._adopted else len(owners), adt)

    def _forget_adt(self, name: str) -> None:
        self._adopted.discard(name)
        del self.adts[name]
        for constructor, owners in list(self.constructors.items()):
            kept = [a for a in owners if a.name != name]
            self.constructors[constructor] = kept

    def _resource_section(self) -> None:
        t = self.t
        t.expect("{")
        while not t.accept("}"):
            digest = t.string("a digest")
            t.expect(":")
            self._resources.setdefault(digest, t.string("the content in base64"))
            t.expect(";")

    def _skip_item(self) -> None:
        """Go on at the next item: a keyword of items outside of all braces."""
        t = self.t
        depth = 0
        moved = False
        while not t.is_end:
            if depth <= 0 and moved and t.at("fn", "data", "kernel", "entry", "resources"):
                return
            depth += t.at("{") - t.at("}")
            moved = True
            t.advance()

    def _skip_to_brace(self) -> None:
        while not self.t.is_end and not self.t.at("{"):
            self.t.advance()
