"""What the compiler makes of operators of the user: records like those of its own operators.

An `Extern` (`runtime/extern.py`) becomes an `OpDef` whose type rule, meaning and way to compute come
from its parts:

* **generated**: the record has the function that a call stands for; `expand-externs` calls it.
* **Python and C**: the operator decomposes into one that takes its attributes as operands, of which
  `call-foreign` makes a kernel.
* **Python, with sizes that it decides**: it decomposes into two such operators. The first calls the
  function and gives the dims of what came out, which become dims of the program; then there is memory,
  and the second gives the contents. Nothing else may come between them and use them twice, so both
  have a resource.

The evaluator runs the implementation that was chosen, too.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from inlay.arith.dtype import BY_NAME, I64, DType, from_numpy
from inlay.arith.expr import Int, Sym, lit, substitute
from inlay.arith.expr import evaluate as evaluate_int
from inlay.base.diagnostics import CompileError, InlayError, error, error_of
from inlay.interp.tensor import evaluate
from inlay.ir import make, walk
from inlay.ir.builder import Builder
from inlay.ir.conform import instantiate
from inlay.ir.context import Context
from inlay.ir.core_ops import CHECK_AT_LEAST, CHECK_EQUAL, TO_CONTROL, CheckAttrs, LeastAttrs
from inlay.ir.existentials import open_exists
from inlay.ir.expr import Expr, Function, OpRef
from inlay.ir.module import Module
from inlay.ir.op import Effect, TypeContext
from inlay.ir.parser import parse_module, parse_type
from inlay.ir.type_printer import type_text
from inlay.ir.types import DimParam, ExistsType, FuncType, ShapeType, TensorType, TupleType, Type
from inlay.ops._define import Foreign, ForeignOp, FusionPattern, OpDef
from inlay.ops.table import OperatorTable, table
from inlay.passes.contract import PassContext
from inlay.passes.manager import make_pipeline, run_pipeline
from inlay.runtime.c_function import call_c
from inlay.runtime.extern import SIZES, TAKE, Attribute, Expected, Extern, Waiting, call_python, check_results
from inlay.transforms import eta_expand, infer_types, to_anf

_WORDS = frozenset({"Tensor", "min", "max", "ceildiv", "int", "bool", "shape", *BY_NAME})
_RULE = re.compile(r"\s*(?:fn\s*)?(<(?:[^>]|>=)*>)?\s*\((.*)\)\s*->\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class ExternOp(ForeignOp):
    """The operator of an extern."""

    extern: Extern = field(kw_only=True)


def with_externs(operators: OperatorTable, externs: Sequence[Extern]) -> OperatorTable:
    """Return a table that has these operators too.

    Raises:
        CompileError: `extern.name` for the name of an operator of Inlay, `extern.duplicate`, and
            what is wrong with the rule or body of one, all at once.
    """
    findings: list[CompileError] = []
    made: dict[str, OpDef] = {}
    for e in externs:
        try:
            if operators.find(e.name) is not None:
                raise error("extern.name", f"found extern '{e.name}', which Inlay has itself")
            if e.name in made:
                raise error("extern.duplicate", f"found two externs of the name '{e.name}'")
            made[e.name] = definition_of(e)
        except CompileError as problem:
            findings.append(problem)
    if findings:
        raise error_of(d for f in findings for d in f.diagnostics)
    return operators.extended(tuple(made.values())) if made else operators


def externs_of(module: Module) -> tuple[Extern, ...]:
    """Return the externs whose operators a module uses, in order of first use."""
    found: dict[Extern, None] = {}
    for function in module.functions.values():
        for node in walk.postorder(function):
            if isinstance(node, OpRef) and isinstance(node.op, ExternOp):
                found.setdefault(node.op.extern)
    return tuple(found)


def rebind(module: Module, externs: Sequence[Extern]) -> Module:
    """Return the module with these externs instead of those of the same names that it uses.

    Raises:
        CompileError: `extern.rule` where the type rules differ; what `with_externs` raises.
    """
    given = {e.name: e for e in externs}
    used = externs_of(module)
    other = [e for e in used if e.name in given and given[e.name] is not e]
    operators = with_externs(table(), externs)
    if not other:
        return module
    for e in other:
        if e.rule != given[e.name].rule or e.attributes != given[e.name].attributes:
            raise error(
                "extern.rule",
                f"extern '{e.name}' has another type rule or other attributes than the one that "
                "the module was loaded with",
                hint="load the module with this one",
            )

    def step(e: Expr) -> Expr:
        if not isinstance(e, OpRef) or not isinstance(e.op, ExternOp) or e.op.name not in given:
            return e
        op = operators.definition(e.op.name).op
        return OpRef(op, op.attrs_type(**_values(e.attrs)), e.type, e.span)

    functions: dict[str, Function] = {}
    for name, function in module.functions.items():
        made = walk.rewrite(function, step)
        assert isinstance(made, Function), "a function stays one"
        functions[name] = made
    return module.with_functions(functions)


def definition_of(extern: Extern) -> OpDef:
    """Return the record of an operator of the user.

    Raises:
        CompileError: `extern.rule`, `extern.body`.
    """
    return _Maker(extern).definition()


# ------------------------------------------------------------------------ attributes


def _attrs_type(extern: Extern) -> type:
    def one(name: str, kind: Attribute) -> tuple[str, Any, Any]:
        python: Any = {"bool": bool, "int": int, "float": float, "str": str}[kind.kind]
        if kind.many:
            python = tuple[python, ...]
        default = dataclasses.MISSING if kind.default is None else kind.default
        return name, python, dataclasses.field(default=cast("Any", default), kw_only=True)

    fields = [one(name, kind) for name, kind in extern.attributes.items()]
    return dataclasses.make_dataclass("Attributes", fields, frozen=True)


def _values(attrs: object) -> dict[str, Any]:
    return {f.name: getattr(attrs, f.name) for f in dataclasses.fields(cast("Any", attrs))}


# ------------------------------------------------------------------------ type rules


class _Rule:
    """The type rule of an extern, from either form."""

    def __init__(self, extern: Extern) -> None:
        self.extern = extern
        self._types: dict[str, FuncType] = {}
        rule = extern.rule
        if isinstance(rule, str):
            self._parts = _RULE.fullmatch(rule)
            if self._parts is None:
                raise self.wrong(f"found {rule!r}, needed '(operands) -> result'")
        else:
            self._wants_context = "ctx" in inspect.signature(rule).parameters

    def wrong(self, what: str, hint: str = "") -> InlayError:
        return error("extern.rule", f"extern '{self.extern.name}': {what}", hint=hint)

    def header(self, attrs: Mapping[str, Any]) -> tuple[str, str, str]:
        """Return dims, parameters and result as text, with the values of `int` attributes."""
        assert self._parts is not None, "the rule is a text"
        dims, params, result = (self._valued(p or "", attrs) for p in self._parts.groups())
        if not dims:
            found = re.findall(r"[A-Za-z_]\w*(?!\w)(?!\s*[:(])", params)
            dims = ", ".join(dict.fromkeys(n for n in found if n not in _WORDS))
            dims = f"<{dims}>" if dims else ""
        return dims, params, result

    def _valued(self, text: str, attrs: Mapping[str, Any]) -> str:
        for name, kind in self.extern.attributes.items():
            if kind.kind == "int" and not kind.many and name in attrs:
                text = re.sub(rf"\b{name}\b(?!\s*:)", f"({attrs[name]})", text)
        return text

    def function_type(self, attrs: Mapping[str, Any]) -> FuncType:
        """Return the type that a rule of text says.

        Raises:
            CompileError: `extern.rule`.
        """
        dims, params, result = self.header(attrs)
        unnamed = re.sub(r"[A-Za-z_]\w*\s*:", "", params)
        text = f"fn{dims}({unnamed}) -> {result}"
        found = self._types.get(text)
        if found is None:
            try:
                parsed = parse_type(text)
            except CompileError as problem:
                said = "; ".join(d.message for d in problem.diagnostics)
                hint = next((d.hint for d in problem.diagnostics if d.hint), "")
                raise self.wrong(f"{said} in {text}", hint) from None
            assert isinstance(parsed, FuncType), "the text is that of a function type"
            found = self._types[text] = parsed
        return found

    def __call__(self, ctx: TypeContext, attrs: object, args: tuple[Type, ...]) -> Type:
        """Run the rule; part of `ir.op.Op`."""
        rule, values = self.extern.rule, _values(attrs)
        if isinstance(rule, str):
            return instantiate(self.function_type(values), args, cast("Context", ctx))[0]
        given = {**values, "ctx": ctx} if self._wants_context else values
        try:
            found: object = rule(*args, **given)
        except CompileError:
            raise
        except ValueError as problem:
            raise ctx.fail(str(problem)) from problem
        except Exception as problem:
            raise ctx.fail(
                f"its type rule raised {type(problem).__name__}: {problem}", id="extern.rule"
            ) from problem
        name = type(found).__name__
        result = TupleType(cast("tuple[Type, ...]", found)) if isinstance(found, tuple) else found
        if not isinstance(result, Type):
            raise ctx.fail(f"its type rule returned {name}, needed a type", id="extern.rule")
        if self.extern.implementation != "generated":
            _tensors_of(self.extern, result)
        return result


def _tensors_of(extern: Extern, t: Type) -> tuple[TensorType, ...]:
    """Return the tensors of a result.

    Raises:
        CompileError: `extern.rule` where code from outside cannot give such a result.
    """
    body = t.body if isinstance(t, ExistsType) else t
    fields = body.fields if isinstance(body, TupleType) else (body,)
    tensors = tuple(f for f in fields if isinstance(f, TensorType))
    is_odd = isinstance(body, TupleType) and len(fields) < 2
    if is_odd or len(tensors) != len(fields) or _has_text(extern, tensors):
        raise error(
            "extern.rule",
            f"extern '{extern.name}' gives {type_text(t)}; code from outside gives a tensor of "
            "numbers or a tuple of several",
        )
    if isinstance(t, ExistsType) and extern.implementation == "c":
        raise error(
            "extern.rule",
            f"extern '{extern.name}' gives {type_text(t)}; a C function cannot decide sizes",
            hint="give a Python or generated implementation, or a greatest size and a count",
        )
    return tensors


def _has_text(extern: Extern, tensors: Sequence[TensorType]) -> bool:
    """Whether there are strings where a C function would get or give them."""
    return extern.implementation == "c" and any(t.dtype.is_host_only for t in tensors)


# ------------------------------------------------------------------------ records


@dataclass(frozen=True, slots=True)
class TakeAttrs:
    """The element types and ranks of results that wait to be taken."""

    dtypes: tuple[DType, ...]
    ranks: tuple[int, ...]


class _Maker:
    """Makes the operators of one extern."""

    def __init__(self, extern: Extern) -> None:
        self.extern = extern
        self.rule = _Rule(extern)
        self.attrs_type = _attrs_type(extern)
        self.waiting = Waiting()
        self._functions: dict[str, Function] = {}
        self.arity: tuple[int, int | None] = (0, None)
        if isinstance(extern.rule, str):
            self._check_text()

    def _check_text(self) -> None:
        """Read a rule of text once, so that what is wrong with it is said where it is given."""
        values = {n: 1 if a.default is None else a.default for n, a in self.extern.attributes.items()}
        t = self.rule.function_type(values)
        self.arity = (len(t.params), len(t.params))
        if self.extern.implementation == "generated":
            return
        _tensors_of(self.extern, t.result)
        for index, p in enumerate(t.params):
            if not isinstance(p, TensorType) or _has_text(self.extern, (p,)):
                raise self.rule.wrong(
                    f"operand {index + 1} is {type_text(p)}; code from outside takes tensors of numbers"
                )

    def definition(self) -> OpDef:
        """Return the record of the operator."""
        e = self.extern
        if e.implementation == "generated":
            if isinstance(e.generated, str) and not any(a.default is None for a in e.attributes.values()):
                self.function(self.attrs_type())
            return self._record(e.name, self.rule, function=self.function, reference=self._evaluated)
        run = self._record(
            f"extern.{e.name}", self._on_operands(self.rule), foreign=self._foreign(""), reference=self._run
        )
        sizes = self._record(
            f"extern.{e.name}.sizes",
            self._on_operands(self._sizes_rule),
            foreign=self._foreign(SIZES),
            reference=self._sizes,
        )
        take = self._record(
            f"extern.{e.name}.take", _take_rule, TakeAttrs, foreign=self._foreign(TAKE), reference=self._take
        )

        def decompose(b: Builder, attrs: object, args: tuple[Expr, ...]) -> Expr:
            values = _values(attrs)
            constants = [make.const(a.encode(values[n])) for n, a in e.attributes.items()]
            result = self.rule(Context(e.name, b.span), attrs, tuple(a.type for a in args))
            if not isinstance(result, ExistsType):
                return b.emit(run.op, (*args, *constants), attrs)
            both = b.emit(sizes.op, (*args, *constants), attrs)
            return self._taken(b, take, b.unpack(both), result)

        return self._record(e.name, self._checked_operands, decompose=decompose, reference=self._called)

    def _record(self, name: str, rule: Any, attrs: type | None = None, **parts: Any) -> OpDef:
        """Return a record and its operator, which refer to each other."""
        found: list[OpDef] = []
        foreign: Foreign | None = parts.get("foreign")
        resource = self.extern.resource if foreign is None else foreign.resource
        op = ExternOp(
            name,
            attrs or self.attrs_type,
            rule,
            self.arity if name == self.extern.name else (0, None),
            effect=Effect.WRITES if resource else Effect.PURE,
            record=lambda: found[0],
            extern=self.extern,
        )
        found.append(OpDef(op, FusionPattern.OPAQUE, **parts))
        return found[0]

    def _foreign(self, half: str) -> Foreign:
        e = self.extern
        resource = e.resource or (f"results of {e.name}" if half else "")
        if e.implementation == "c":
            assert e.c is not None, "the implementation was given"
            return Foreign("c", e.name, e.c.library, e.c.symbol, resource)
        return Foreign("python", e.name + half, resource=resource)

    # -------------------------------------------------------------------- rules

    def _operands(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args[: len(args) - len(self.extern.attributes)]

    def _on_operands(self, rule: Callable[..., Type]) -> Callable[..., Type]:
        """Return the rule for an operator that takes its attributes as operands as well."""

        def on_operands(ctx: TypeContext, attrs: object, args: tuple[Type, ...]) -> Type:
            return rule(ctx, attrs, self._operands(args))

        return on_operands

    def _checked_operands(self, ctx: TypeContext, attrs: object, args: tuple[Type, ...]) -> Type:
        for index, t in enumerate(args):
            if not isinstance(t, TensorType):
                raise ctx.fail(
                    f"found {type_text(t)} as operand {index + 1}, needed a tensor",
                    hint="code from outside takes tensors: use to_tensor",
                )
        return self.rule(ctx, attrs, args)

    def _sizes_rule(self, ctx: TypeContext, attrs: object, args: tuple[Type, ...]) -> Type:
        results = _tensors_of(self.extern, self.rule(ctx, attrs, args))
        rank = sum(len(r.shape) for r in results)
        return TupleType((TensorType((lit(1),), I64), TensorType((lit(rank),), I64)))

    def _taken(self, b: Builder, take: OpDef, both: tuple[Expr, ...], result: ExistsType) -> Expr:
        """Name the dims of a result that waits, check what the rule says of them, and take it."""
        ticket, sizes = both
        shape = b.emit(TO_CONTROL, (sizes,))
        assert isinstance(shape.type, ShapeType), "to_control of a vector gives a shape"
        opened, dims = open_exists(result)
        tensors = _tensors_of(self.extern, opened)
        unknown = {d.sym for d in dims}
        known: dict[Sym, Int] = {}
        wanted = [d for t in tensors for d in t.shape]
        for d, found in zip(wanted, shape.type.values, strict=True):
            if isinstance(d.atom, Sym) and d.atom in unknown and found is not None:
                known.setdefault(d.atom, found)
        if missing := [s.name for s in unknown if s not in known]:
            raise self._without_dim(missing)
        for d in dims:
            ticket = self._checked_dim(b, ticket, d, known)
        attrs = TakeAttrs(tuple(t.dtype for t in tensors), tuple(len(t.shape) for t in tensors))
        exact = make.shape_const([substitute(d, known) for d in wanted])
        return b.emit(take.op, (ticket, exact), attrs)

    def _checked_dim(self, b: Builder, ticket: Expr, d: DimParam, known: Mapping[Sym, Int]) -> Expr:
        """Check the range that a rule gives for a dim that the function decides."""
        found = known[d.sym]
        why = f"{d.sym.name}, which operator {self.extern.name} decides"
        if d.low > 0:
            ticket = b.emit(CHECK_AT_LEAST, (ticket, make.int_const(found)), LeastAttrs(d.low, why))
        if d.high is not None:
            room = substitute(d.high, known) - found
            ticket = b.emit(CHECK_AT_LEAST, (ticket, make.int_const(room)), LeastAttrs(0, f"room for {why}"))
        if d.multiple_of > 1:
            rest = make.int_const(found % d.multiple_of)
            ticket = b.emit(CHECK_EQUAL, (ticket, rest, make.int_const(0)), CheckAttrs(why))
        return ticket

    # -------------------------------------------------------------------- meaning

    def function(self, attrs: Any) -> Function:
        """Return the generated body as a function.

        Raises:
            CompileError: `extern.body`, and what is wrong with the text.
        """
        e, values = self.extern, _values(attrs)
        text = e.generated if isinstance(e.generated, str) else cast("Any", e.generated)(**values)
        if text.lstrip().startswith("{"):
            if not isinstance(e.rule, str):
                raise self._bad_body("found a block, whose parameters only a rule of text names")
            dims, params, result = self.rule.header(values)
            text = f"fn main{dims}({params}) -> {result} {text}"
        found = self._functions.get(text)
        if found is None:
            module = parse_module(text, table(), name=f"extern '{e.name}'")
            if set(module.functions) != {"main"} or module.adts:
                raise self._bad_body("needed one function, main, and nothing else")
            pipeline = make_pipeline((infer_types.PASS, to_anf.PASS, eta_expand.PASS))
            found = run_pipeline(pipeline, module, PassContext(table())).functions["main"]
            if isinstance(e.rule, str):
                t = self.rule.function_type(values)
                if type_text(t.result) != type_text(found.type.result) or len(t.params) != len(found.params):
                    raise self._bad_body(f"has type {type_text(found.type)}, not {type_text(t)}")
            self._functions[text] = found
        return found

    def _bad_body(self, what: str) -> InlayError:
        return error("extern.body", f"the body of extern '{self.extern.name}': {what}")

    def _evaluated(self, attrs: object, *args: Any) -> Any:
        return evaluate(Module({"main": self.function(attrs)}), args)

    def _called(self, attrs: object, *args: Any) -> Any:
        """Call the code from outside."""
        e = self.extern
        types = tuple(TensorType(tuple(map(lit, a.shape)), from_numpy(a.dtype)) for a in args)
        result = self.rule(Context(e.name), attrs, types)
        tensors = _tensors_of(e, result)
        expected = [Expected(np.dtype(t.dtype.numpy), tuple(d.value for d in t.shape)) for t in tensors]
        values = _values(attrs)
        if e.implementation == "c":
            encoded = [a.encode(values[n]) for n, a in e.attributes.items()]
            inputs = [np.asarray(a, order="C") for a in (*args, *encoded)]
            outputs = [np.empty([d or 0 for d in x.dims], x.dtype) for x in expected]
            call_c(e.name, e.address(), inputs, outputs)
            found: Sequence[np.ndarray] = outputs
        else:
            assert e.python is not None, "the implementation was given"
            made = call_python(e.name, e.python, args, values)
            found = check_results(e.name, made.result() if isinstance(made, Future) else made, expected)
        if isinstance(result, ExistsType):
            self._check_sizes(result, found)
        body = result.body if isinstance(result, ExistsType) else result
        return tuple(found) if isinstance(body, TupleType) else found[0]

    def _check_sizes(self, result: ExistsType, found: Sequence[np.ndarray]) -> None:
        """Check sizes that the function decided, as the checks of a compiled program do."""
        e = self.extern
        known: dict[Sym, int] = {}
        unknown = {d.sym for d in result.dims}
        pairs = [
            (d, n)
            for t, a in zip(_tensors_of(e, result), found, strict=True)
            for d, n in zip(t.shape, a.shape, strict=True)
        ]
        for d, n in pairs:
            if isinstance(d.atom, Sym) and d.atom in unknown:
                known.setdefault(d.atom, n)
        if missing := [s.name for s in unknown if s not in known]:
            raise self._without_dim(missing)
        for d in result.dims:
            n = known[d.sym]
            high = None if d.high is None else evaluate_int(d.high, known)
            if n < d.low or (high is not None and n > high) or n % d.multiple_of:
                raise error(
                    "run.check-failed",
                    f"operator '{e.name}' decides {d.sym.name} = {n}, which its type rule excludes",
                )
        dims = iter([evaluate_int(d, known) for d, _ in pairs])
        check_results(e.name, found, [Expected(a.dtype, tuple(next(dims) for _ in a.shape)) for a in found])

    def _without_dim(self, names: Sequence[str]) -> InlayError:
        return self.rule.wrong(f"no dim of the result is {' or '.join(names)} alone")

    def _run(self, attrs: object, *args: Any) -> Any:
        return self._called(attrs, *self._operands(args))

    def _sizes(self, attrs: object, *args: Any) -> tuple[np.ndarray, np.ndarray]:
        results = _tuple(self._run(attrs, *args))
        number = np.array([self.waiting.put(results)])
        return number, np.array([d for r in results for d in r.shape], np.int64)

    def _take(self, attrs: TakeAttrs, ticket: np.ndarray, shape: tuple[int, ...]) -> Any:
        ends = np.cumsum(attrs.ranks)
        expected = [
            Expected(np.dtype(dtype.numpy), shape[end - rank : end])
            for dtype, rank, end in zip(attrs.dtypes, attrs.ranks, ends, strict=True)
        ]
        found = check_results(self.extern.name, self.waiting.take(int(ticket[0])), expected)
        return tuple(found) if len(found) > 1 else found[0]


def _tuple(found: Any) -> tuple[np.ndarray, ...]:
    return cast("tuple[np.ndarray, ...]", found) if isinstance(found, tuple) else (found,)


def _take_rule(ctx: TypeContext, attrs: TakeAttrs, args: tuple[Type, ...]) -> Type:
    shape = args[1]
    if not isinstance(shape, ShapeType):
        raise ctx.fail("needed the dims of the results as a shape")
    dims = iter(shape.values)
    results: list[TensorType] = []
    for dtype, rank in zip(attrs.dtypes, attrs.ranks, strict=True):
        own = [next(dims) for _ in range(rank)]
        results.append(TensorType(tuple(d for d in own if d is not None), dtype))
    return results[0] if len(results) == 1 else TupleType(tuple(results))
