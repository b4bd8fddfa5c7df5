"""Text form of the tensor IR; `parser` reads it back. The grammar is in docs/language/tensor_ir.md.

A *block* is the body of a function, an arm of a branch, or a let inside an operand: statements and a
result. A node that is used more than once is one value, so it is written once, as a *graph binding*
`%1 = add(x, y);`, which unlike a let gives a node a name and says nothing about when it is computed.
It stands in the innermost block that all uses share, before the first of them. Nests of operands
deeper than `_DEEPEST` are broken up in the same way, so lines stay readable and parsing is shallow.

Three passes, none of which recurses: names in program order, places of graph bindings from the uses
down, documents from the operands up.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from inlay.arith import expr as arith
from inlay.arith.deferred import AnyArray, elements
from inlay.arith.dtype import BY_NAME
from inlay.arith.expr import Int, Sym, from_atom
from inlay.base.doc import Doc, bracket, concat, hardline, lines, nest, render
from inlay.base.lexer import quote
from inlay.base.names import NameSupply
from inlay.ir import walk
from inlay.ir.attrs import attrs_text
from inlay.ir.dims import dim_params, free_symbols, same_type
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import (
    Call,
    Const,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    OpRef,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Project,
    RefCreate,
    RefPut,
    RefRead,
    RefTake,
    RefWrite,
    Tuple,
    Var,
)
from inlay.ir.kernel import Kernel
from inlay.ir.module import Adt, EntryNames, Module
from inlay.ir.place import Origin, Place
from inlay.ir.positions import Positions
from inlay.ir.type_printer import dim_text, type_text
from inlay.ir.types import AdtType, ExistsType, FuncType, Type, UnknownType

KEYWORDS = frozenset(
    "fn let if else match true false int shape bool ref read write take put some in step typical Tensor "
    "Ref Storage data entry kernel resources inf nan none".split()
)
_DEEPEST = 6
_INLINE_ELEMENTS = 16
_NOT_WORD = re.compile(r"\W")


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """How to write.

    Attributes:
        types: the type of each let, even where the value says it.
        places: where each node lives.
        resources: the content of large constants after the module, so that the text is complete.
        width: of a line.
    """

    types: bool = True
    places: bool = True
    resources: bool = True
    width: int = 100


def print_module(module: Module, options: PrintOptions | None = None) -> str:
    """Return a module as text that `parse_module` reads."""
    options = options or PrintOptions()
    shared = _Shared.of(module, options)
    items: list[Doc | str] = [_adt_doc(a) for a in module.adts.values()]
    items += [_kernel_doc(k) for k in module.kernels.values()]
    items += [_FunctionPrinter(shared, f).global_function(name) for name, f in module.functions.items()]
    names = dict(module.entries)
    entry = [_entry_doc(name, e) for name, e in names.items()]
    if module.entry not in names and module.entry in module.functions and module.entry != "main":
        entry.append(f"entry {module.entry};")
    elif module.entry != "main" and names:
        entry.append(f"entry {module.entry};")
    items += entry
    if options.resources and shared.resources:
        items.append(_resources_doc(shared.resources))
    text = render(concat(*_spaced(items)), options.width)
    return text if text.endswith("\n") else text + "\n"


def print_expr(e: Expr, module: Module | None = None, options: PrintOptions | None = None) -> str:
    """Return one expression as text: for messages and tests."""
    options = options or PrintOptions(resources=False)
    shared = _Shared.of(module or Module(), options, (e,))
    printer = _FunctionPrinter(shared, e, alone=True)
    if isinstance(e, Function):
        return render(printer.docs[id(e)], options.width)
    body = printer.block_body(e)
    return render(body, options.width)


def _spaced(items: list[Doc | str]) -> Iterable[Doc | str]:
    for i, item in enumerate(items):
        if i:
            yield hardline()
            yield hardline()
        yield item


@dataclass(slots=True)
class _Shared:
    """What the functions of a module have in common.

    Attributes:
        reserved: names that no variable may have: those of operators and constructors in use.
        constructors: spelling by data type and name; qualified where a name is in two types.
        resources: large arrays by digest.
    """

    options: PrintOptions
    reserved: frozenset[str]
    constructors: dict[tuple[str, str], str]
    resources: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    array_texts: dict[int, str] = field(default_factory=dict[int, str])

    @staticmethod
    def of(module: Module, options: PrintOptions, roots: tuple[Expr, ...] = ()) -> _Shared:
        used: dict[str, None] = {}
        spelled: dict[tuple[str, str], str] = {}
        for e in walk.postorder([*module.functions.values(), *roots]):
            if isinstance(e, OpRef):
                used[e.op.name] = None
            elif isinstance(e, ConstructorRef):
                spelled[e.adt, e.name] = e.name
        owners: dict[str, int] = {}
        for adt in module.adts.values():
            for c in adt.constructors:
                owners[c.name] = owners.get(c.name, 0) + 1
                spelled[adt.name, c.name] = c.name
        for key, name in spelled.items():
            if owners.get(name, 1) > 1:
                spelled[key] = f"{key[0]}.{name}"
        reserved = KEYWORDS.union(used, spelled.values(), BY_NAME)
        return _Shared(options, reserved, spelled)

    def constructor(self, adt: str, name: str) -> str:
        return self.constructors.get((adt, name), name)


# ---------------------------------------------------------------------------------- items


def _adt_doc(adt: Adt) -> Doc:
    params = f"<{', '.join(chr(39) + p.name for p in adt.params)}>" if adt.params else ""
    constructors = [
        c.name + (f"({', '.join(map(type_text, c.fields))})" if c.fields else "") for c in adt.constructors
    ]
    return concat(f"data {adt.name}{params} {{ {', '.join(constructors)} }}")


def _kernel_doc(kernel: Kernel) -> Doc:
    """A kernel is its name, type and digest; its body comes from whoever holds it."""
    return concat(
        f"kernel {kernel.name}: {type_text(kernel.type)} = "
        f"{quote(kernel.body.kind)} {quote(kernel.body.digest())};"
    )


def _entry_doc(name: str, e: EntryNames) -> str:
    inputs, outputs = (", ".join(map(quote, names)) for names in (e.inputs, e.outputs))
    state = "".join(f" state({quote(given)}, {quote(made)})" for given, made in e.state)
    first = f" first {e.first}" if e.first else ""
    grows = "".join(f" grows({quote(g.given)}, {quote(g.made)}, {g.axis})" for g in e.grows)
    grows += "".join(f" updates({quote(given)}, {quote(made)})" for given, made in e.updates)
    grown = f" in {e.grown}" if e.grown else ""
    return f"entry {name}({inputs}) -> ({outputs}){state}{first}{grows}{grown};"


def _resources_doc(resources: Mapping[str, np.ndarray]) -> Doc:
    entries = [
        f"{quote(digest)}: {quote(base64.b64encode(array.tobytes()).decode('ascii'))};"
        for digest, array in resources.items()
    ]
    return concat("resources {", nest(2, concat(hardline(), lines(entries))), hardline(), "}")


# ---------------------------------------------------------------------------------- leaves


def digest(array: np.ndarray) -> str:
    """Return the content hash that stands for a large constant."""
    return hashlib.sha256(array.tobytes()).hexdigest()[:32]


def place_text(place: Place | None) -> str:
    """Return a place as ` @cpu`, empty for none; `!` marks what the user asked for."""
    return "" if place is None else f" @{_place(place)}"


def _place(place: Place | None) -> str:
    if place is None:
        return "_"
    text = (place.device or "_") + ("!" if place.origin is Origin.USER else "")
    if place.region:
        text += f"#{place.region}"
    if place.memories is not None:
        text += f"[{', '.join(place.memories)}]"
    if place.fields:
        text += f"({', '.join(map(_place, place.fields))})"
    return text


def _number_text(value: object) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(cast("int", value)))
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, np.floating):
        return str(cast("object", value))
    return repr(float(cast("float", value)))


def array_text(held: AnyArray, dtype: str, shared: _Shared) -> str:
    """Return a tensor constant: `f32(1.5)`, `i64[2](3, 4)`, `f32[64, 64](#"digest")`."""
    known = shared.array_texts.get(id(held))
    if known is not None:
        return known
    array = elements(held)
    head = dtype + (f"[{', '.join(map(str, array.shape))}]" if array.shape else "")
    if array.size <= _INLINE_ELEMENTS or dtype == "string":
        flat = array.astype(np.float32) if dtype == "bf16" else array
        text = f"{head}({', '.join(_number_text(v) for v in flat.reshape(-1))})"
    else:
        key = digest(array)
        shared.resources[key] = array
        text = f"{head}(#{quote(key)})"
    shared.array_texts[id(held)] = text
    return text


# ---------------------------------------------------------------------------------- functions


class _FunctionPrinter:
    """Prints one function, or one expression."""

    def __init__(self, shared: _Shared, root: Expr, *, alone: bool = False) -> None:
        self.shared = shared
        self.options = shared.options
        self.root = root
        self._vars = NameSupply(shared.reserved)
        self._var_names: dict[Var, str] = {}
        self._syms = NameSupply(KEYWORDS)
        self._sym_names: dict[Sym, Int] = {}
        self._types: dict[Type, str] = {}
        self._ints: dict[Int, str] = {}
        self._name_binders()
        self.bindings = _Bindings(root)
        self.docs: dict[int, Doc] = {}
        for e in self.bindings.order:
            if self.bindings.is_laid_out_by_user(e):
                continue
            if e is root and isinstance(e, Function) and not alone:
                break
            doc = self._doc(e)
            name = self.bindings.names.get(id(e))
            self.docs[id(e)] = doc if name is None else concat(name)
            if name is not None:
                self.bindings.docs[id(e)] = concat(f"{name} = ", doc, ";")

    # ------------------------------------------------------------------ names

    def _name_binders(self) -> None:
        """Give names in program order: those of parameters and of outer lets come first."""
        stack: list[Expr] = [self.root]
        seen: set[int] = set()
        while stack:
            e = stack.pop()
            if id(e) in seen or type(e) in walk.LEAVES:
                continue
            seen.add(id(e))
            if isinstance(e, Function):
                for d in e.dims:
                    self._sym(d.sym)
            for v in walk.bound_here(e):
                self._var(v)
                self.type(v.type)
            stack.extend(walk.children(e)[::-1])

    def _var(self, v: Var) -> str:
        name = self._var_names.get(v)
        if name is None:
            hint = _NOT_WORD.sub("_", v.name) or "v"
            name = self._vars.fresh(f"v{hint}" if hint[0].isdigit() else hint)
            self._var_names[v] = name
        return name

    def _sym(self, s: Sym) -> Int:
        found = self._sym_names.get(s)
        if found is None:
            hint = _NOT_WORD.sub("_", s.name) or "n"
            name = self._syms.fresh(f"n{hint}" if hint[0].isdigit() else hint)
            found = self._sym_names[s] = from_atom(Sym(name, s.uid))
        return found

    def int(self, e: Int) -> str:
        """Return an integer with names that are unique here."""
        text = self._ints.get(e)
        if text is None:
            text = self._ints[e] = str(arith.rebuild(e, self._sym)).replace("//", "/")
        return text

    def type(self, t: Type) -> str:
        """Return a type with names that are unique here."""
        text = self._types.get(t)
        if text is None:
            text = self._types[t] = type_text(t, self.int)
        return text

    # ------------------------------------------------------------------ nodes

    def _doc(self, e: Expr) -> Doc:
        doc = self._bare(e)
        if self.options.places and e.place is not None and not isinstance(e, (Var, Function)):
            return concat(doc, place_text(e.place))
        return doc

    def _bare(self, e: Expr) -> Doc:
        match e:
            case Var():
                return concat(self._var(e))
            case GlobalVar(name=name):
                return concat(f"@{name}")
            case Const():
                return concat(self._const(e))
            case OpRef(op=op, attrs=attrs):
                return concat(op.name + attrs_text(attrs))
            case ConstructorRef(adt=adt, name=name, type=t):
                generic = isinstance(t, FuncType) and t.type_vars
                args = "" if generic else self._type_args(t)
                return concat(self.shared.constructor(adt, name) + args)
            case Call(callee=callee, args=args):
                return concat(self._callee(callee), bracket("(", map(self._operand, args), ")"))
            case Function():
                return concat("fn", self._signature(e), " ", self.block(e.body))
            case Let():
                return self.block(e)
            case If():
                return self._if(e)
            case Match(scrutinee=scrutinee, arms=arms):
                parts: list[Doc | str] = []
                for a in arms:
                    visible = set(free_symbols(scrutinee.type))
                    pattern = self._pattern(a.pattern, visible)
                    parts.append(concat(pattern, " => ", self._arm(a.body), ","))
                inner = nest(2, concat(hardline(), lines(parts)))
                return concat("match ", self._operand(scrutinee), " {", inner, hardline(), "}")
            case Tuple(fields=fields):
                closing = ",)" if len(fields) == 1 else ")"
                return bracket("(", map(self._operand, fields), closing)
            case Project(value=value, index=index):
                return concat(self._callee(value), f".{index}")
            case RefCreate(value=value):
                return concat("ref(", self._operand(value), ")")
            case RefRead(ref=ref):
                return concat("read(", self._operand(ref), ")")
            case RefWrite(ref=ref, value=value):
                return concat("write(", self._operand(ref), ", ", self._operand(value), ")")
            case RefTake(ref=ref):
                return concat("take(", self._operand(ref), ")")
            case RefPut(ref=ref, value=value):
                return concat("put(", self._operand(ref), ", ", self._operand(value), ")")

    def _operand(self, e: Expr) -> Doc:
        return self.docs[id(e)]

    def _callee(self, e: Expr) -> Doc:
        """What stands before `(` or `.` is in parentheses unless it is a word."""
        simple = isinstance(e, (Var, GlobalVar, OpRef, ConstructorRef, Project))
        if id(e) in self.bindings.names or (simple and (e.place is None or isinstance(e, Var))):
            return self.docs[id(e)]
        return concat("(", self.docs[id(e)], ")")

    def _type_args(self, t: Type) -> str:
        args = cast("AdtType", t.result).args if isinstance(t, FuncType) else ()
        return f"[{', '.join(map(self.type, args))}]" if args else ""

    def _const(self, e: Const) -> str:
        match e.held:
            case bool(value):
                return "true" if value else "false"
            case Int() as value:
                return f"int({self.int(value)})"
            case tuple() as values:
                return f"shape({', '.join(map(self.int, values))})"
            case array:
                dtype = getattr(e.type, "dtype", None)
                return array_text(array, str(dtype), self.shared)

    def _if(self, e: If) -> Doc:
        head = concat("if (", self._operand(e.condition), ") ", self.block(e.then), " else ")
        chained = isinstance(e.otherwise, If) and not self.bindings.before(e.otherwise)
        if chained and id(e.otherwise) not in self.bindings.names:
            return concat(head, self.docs[id(e.otherwise)])
        return concat(head, self.block(e.otherwise))

    def _arm(self, body: Expr) -> Doc:
        simple = not isinstance(body, Let) and not self.bindings.before(body)
        return self.docs[id(body)] if simple else self.block(body)

    def _pattern(self, p: Pattern, visible: set[Sym]) -> str:
        """Write a pattern; a symbol that is not visible yet is opened by the first variable."""
        match p:
            case PatternWildcard():
                return "_"
            case PatternVar(var=v):
                own = v.type
                opened = dim_params([own], visible.__contains__)
                visible.update(d.sym for d in opened)
                annotation = self._annotation(ExistsType(opened, own) if opened else own)
                return f"{self._var(v)}{self._place_of(v)}{annotation}"
            case PatternConstructor(adt=adt, name=name, fields=fields):
                inner = ", ".join([self._pattern(f, visible) for f in fields])
                return f"{self.shared.constructor(adt, name)}({inner})"
            case PatternTuple(fields=fields):
                inner = ", ".join([self._pattern(f, visible) for f in fields])
                return f"({inner},)" if len(fields) == 1 else f"({inner})"

    def _annotation(self, t: Type) -> str:
        return "" if isinstance(t, UnknownType) else f": {self.type(t)}"

    # ------------------------------------------------------------------ functions and blocks

    def global_function(self, name: str) -> Doc:
        """Return the function as an item of the module."""
        f = self.root
        assert isinstance(f, Function)
        return concat(f"fn {name}", self._signature(f), " ", self.block(f.body))

    def _signature(self, f: Function) -> Doc:
        t = f.type
        bound = [f"'{v.name}" for v in t.type_vars] + [dim_text(d, self.int) for d in t.dims]
        head = f" {quote(f.primitive)}" if f.primitive is not None else ""
        if bound:
            head += f"<{', '.join(bound)}>"
        params = [
            f"{self._var(p)}{self._place_of(p)}{self._binder_type(declared, p.type)}"
            for p, declared in zip(f.params, t.params, strict=True)
        ]
        result = "" if isinstance(t.result, UnknownType) else f" -> {self.type(t.result)}"
        place = place_text(f.place) if self.options.places else ""
        return concat(head, bracket("(", params, ")"), result, place)

    def _place_of(self, v: Var) -> str:
        return place_text(v.place) if self.options.places else ""

    def _binder_type(self, declared: Type, own: Type) -> str:
        """A binder that opens says so: `: some k. Tensor[k]` makes `k` known from here."""
        opened = opened_dims(declared, own)
        if not opened:
            return self._annotation(own)
        return f": {self.type(ExistsType(opened, own))}"

    def block(self, e: Expr) -> Doc:
        """Return a body in braces."""
        body = self.block_body(e)
        simple = not isinstance(e, Let) and not self.bindings.before(e)
        if simple and not body.breaks:
            return bracket("{", [concat(" ", body, " ")], "}", indent=2)
        return concat("{", nest(2, concat(hardline(), body)), hardline(), "}")

    def block_body(self, e: Expr) -> Doc:
        """Return the statements and the result of a body."""
        statements: list[Doc | str] = []
        while True:
            statements += [self.bindings.docs[id(b)] for b in self.bindings.before(e)]
            if not isinstance(e, Let) or id(e) in self.bindings.names:
                break
            statements.append(self._let(e))
            if not self.bindings.is_inner_let(e.body) and isinstance(e.body, Let):
                e = e.body
                break
            e = e.body
        statements.append(self.docs[id(e)])
        return lines(statements)

    def _let(self, e: Let) -> Doc:
        v, value = e.var, e.value
        annotation = self._binder_type(value.type, v.type)
        if isinstance(value, Function) and same_type(value.type, v.type):
            annotation = ""
        elif not self.options.types and annotation and same_type(value.type, v.type):
            annotation = ""
        head = f"let {self._var(v)}{self._place_of(v)}{annotation} = "
        place = place_text(e.place) if self.options.places else ""
        return concat(head, self._operand(value), place and f" in{place}", ";")


# ---------------------------------------------------------------------------------- bindings


def _bodies(e: Expr) -> tuple[Expr, ...]:
    """Return the children that are blocks of their own."""
    match e:
        case Function(body=body):
            return (body,)
        case If(then=then, otherwise=otherwise):
            return (then, otherwise)
        case Match(arms=arms):
            return tuple([a.body for a in arms])
        case _:
            return ()


class _Bindings:
    """Which nodes need a graph binding, and before which statement it stands."""

    def __init__(self, root: Expr) -> None:
        self.names: dict[int, str] = {}
        self.docs: dict[int, Doc] = {}
        self._before: dict[int, list[Expr]] = {}
        self._inner_lets: set[int] = set()
        self._bodies = {id(root)} if isinstance(root, Let) else set[int]()
        positions = Positions(root)
        order = positions.order
        self._uses = {id(root): 0}
        for e in order:
            for c in walk.children(e):
                self._uses[id(c)] = self._uses.get(id(c), 0) + 1
        for e in order:
            if isinstance(e, Let) and isinstance(e.body, Let) and self._uses[id(e.body)] == 1:
                self._inner_lets.add(id(e.body))
            elif not isinstance(e, Let):
                self._bodies.update(id(b) for b in _bodies(e) if self._uses[id(b)] == 1)
        for number, e in enumerate(self._find_bound(order), start=1):
            self.names[id(e)] = f"%{number}"
            statement = positions.statements[positions.of[id(e)]]
            self._before.setdefault(id(statement), []).append(e)
        self.order = order

    def is_laid_out_by_user(self, e: Expr) -> bool:
        """Whether the node is a let that whoever uses it writes as part of a block."""
        return isinstance(e, Let) and (id(e) in self._inner_lets or id(e) in self._bodies)

    def is_inner_let(self, e: Expr) -> bool:
        """Whether the node is a let that continues the spine of another."""
        return id(e) in self._inner_lets

    def before(self, e: Expr) -> list[Expr]:
        """Return the nodes bound just before a statement, given its let or its result."""
        return self._before.get(id(e), [])

    def _find_bound(self, order: list[Expr]) -> list[Expr]:
        """Return nodes with several uses, and those that would nest too deeply."""
        bound: list[Expr] = []
        height: dict[int, int] = {}
        for e in order:
            if type(e) in walk.LEAVES:
                continue
            h = 1 + max([height.get(id(c), 0) for c in walk.children(e)], default=0)
            if isinstance(e, (Let, If, Match, Function)):
                h = 1
            if self._uses[id(e)] > 1 or (h > _DEEPEST and not self.is_inner_let(e)):
                bound.append(e)
                h = 0
            height[id(e)] = h
        return bound
