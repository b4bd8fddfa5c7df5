"""Random well-typed programs with inputs they run on.

    @given(programs())
    def test_my_pass_keeps_the_meaning(p):
        assert_same(p, my_pass(p.module))

A program is a module with an entry `main` over tensors with symbolic dims, in A-normal form, built
with `ir.builder`: element-wise operators, reductions, products, layout, data-dependent sizes,
tuples, branches on control values, counted and conditional loops with stacked rows, scans, closures,
global functions polymorphic in dims, lists and options, cells. What a loop carries changes places with
other carried values, comes from outside, from a constant, from the row of a table that its counter
names, is a list. Values are small integers kept in a
range by `clip`, in f32, so that sums are exact in any order. A failing example prints its text.

Programs always succeed: a check that is inserted holds for the given inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from inlay.arith import expr as arith
from inlay.arith.dtype import F32, I64
from inlay.arith.expr import Int, Sym, fresh, from_atom, lit, symbols, to_int
from inlay.interp.tensor import evaluate
from inlay.interp.values import Data
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.core_ops import BOOL_NOT, INT_LESS, INT_LESS_EQUAL, TO_CONTROL, TO_TENSOR, ZEROS, DTypeAttrs
from inlay.ir.dims import LEAST_INT
from inlay.ir.expr import Expr, Function, Var
from inlay.ir.loop_trace import Step
from inlay.ir.module import EntryNames, Module
from inlay.ir.op import Op
from inlay.ir.prelude import adt, prelude, with_prelude
from inlay.ir.printer import PrintOptions, print_module
from inlay.ir.types import DimParam, ExistsType, FuncType, IntType, RefType, TensorType, Type
from inlay.ops.table import table

_LONGEST_TEXT = 12_000
"""Of a printed program, in characters: hypothesis warns above 30,000."""

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True, slots=True)
class Features:
    """What programs may contain; a law that needs less says so."""

    control: bool = True
    loops: bool = True
    functions: bool = True
    data: bool = True
    cells: bool = True
    data_dependent: bool = True
    symbolic: bool = True


ALL = Features()


@dataclass(frozen=True, slots=True)
class Program:
    """A module and arguments of its entry."""

    module: Module
    args: tuple[np.ndarray, ...]

    def __repr__(self) -> str:
        text = print_module(self.module, PrintOptions(resources=True))
        shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in self.args)
        cut = "\n... (cut)" if len(text) > _LONGEST_TEXT else ""
        return f"Program on {shapes}:\n{text[:_LONGEST_TEXT]}{cut}"


@st.composite
def programs(draw: Draw, features: Features = ALL, max_statements: int = 8) -> Program:
    """Draw a program."""
    return _Generator(draw, features).program(max_statements)


def run(p: Program, module: Module | None = None) -> Any:
    """Return the value of the program, or of another version of it, on its arguments."""
    return evaluate(p.module if module is None else module, p.args)


def assert_same(p: Program, other: Module) -> None:
    """Check that another version of a program computes the same values."""
    expected, found = run(p), run(p, other)
    assert same_value(expected, found), (
        f"{p}\nbecame\n{print_module(other)}\nexpected {expected}\nfound {found}"
    )


def same_value(a: Any, b: Any) -> bool:
    """Whether two values of the evaluator are equal, dtypes and shapes included."""
    match a, b:
        case np.ndarray(), np.ndarray():
            return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=True)
        case tuple(), tuple():
            return len(a) == len(b) and all(map(same_value, a, b))
        case Data(), Data():
            return a.tag == b.tag and same_value(a.fields, b.fields)
        case _:
            return type(a) is type(b) and a == b


def _op(name: str) -> Op:
    found = table().find(name)
    assert found is not None
    return found


UNARY = ("neg", "abs", "relu", "sign")
BINARY = ("add", "sub", "mul", "maximum", "minimum")


class _Generator:
    """Draws statements into builders.

    A scope is a builder and the values that statements may use, so that a nested body sees what is
    around it and nobody sees what is inside.
    """

    def __init__(self, draw: Draw, features: Features) -> None:
        self.draw = draw
        self.features = features
        self.functions: dict[str, Function] = {}
        self.sizes: dict[Sym, int] = {}

    # ------------------------------------------------------------------ choices

    def choose(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def coin(self) -> bool:
        return self.draw(st.booleans())

    # ------------------------------------------------------------------ program

    def program(self, max_statements: int) -> Program:
        dims: list[Int] = [lit(self.number(1, 4)) for _ in range(2)]
        if self.features.symbolic:
            for name in ("n", "m")[: self.number(1, 2)]:
                sym = fresh(name)
                self.sizes[sym] = self.number(1, 4)
                dims.append(to_int(sym))
        b = Builder()
        b.declare([DimParam(s, 1, lit(16)) for s in self.sizes])
        scope = _Scope(b, [])
        args: list[np.ndarray] = []
        for i in range(self.number(1, 3)):
            shape = [self.choose(dims) for _ in range(self.number(1, 2))]
            scope.add(b.param(f"x{i}", make.tensor_type(shape, F32)))
            args.append(self.array(shape))
        for s in self.sizes:  # every dim is decided by some parameter
            scope.add(b.param(f"of_{s.name}", make.tensor_type((s,), F32)))
            args.append(self.array([to_int(s)]))
        if self.features.functions and self.coin():
            self.helper()
        self.statements(scope, self.number(1, max_statements), depth=0)
        results = [v for v in scope.values if isinstance(v.type, (TensorType, IntType))]
        chosen = [self.choose(results) for _ in range(self.number(1, 3))]
        outputs = [v if isinstance(v.type, TensorType) else b.emit(TO_TENSOR, (v,)) for v in chosen]
        bounds = [DimParam(s, 1, lit(16)) for s in self.sizes]
        main = b.function(outputs, dims=bounds)
        names = EntryNames(tuple(p.name for p in main.params), tuple(f"y{i}" for i in range(len(outputs))))
        module = Module({**self.functions, "main": main}, {}, {}, {"main": names})
        return Program(with_prelude(module), tuple(args))

    def array(self, shape: Sequence[Int]) -> np.ndarray:
        sizes = [arith.evaluate(d, self.sizes) for d in shape]
        count = int(np.prod(sizes))
        values = self.draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count))
        return np.array(values, np.float32).reshape(sizes)

    def size(self, d: Int) -> int | None:
        """Return the number a dim stands for, None where data or a loop decides it."""
        if all(s in self.sizes for s in symbols(d)):
            return arith.evaluate(d, self.sizes)
        return None

    def helper(self) -> None:
        """A global function, polymorphic in a dim, that calls itself once at most."""
        n = fresh("n")
        b = Builder()
        b.declare([DimParam(n)])
        scope = _Scope(b, [b.param("p", make.tensor_type((n,), F32))])
        self.statements(scope, self.number(1, 3), depth=2)
        self.functions["helper"] = b.function(self.vector(scope), dims=[n])

    # ------------------------------------------------------------------ statements

    def statements(self, scope: _Scope, count: int, depth: int) -> None:
        f = self.features
        kinds = [self.unary, self.binary, self.binary, self.layout, self.reduce, self.product]
        kinds += [self.tuples, self.constant, self.concat, self.hide]
        if f.data_dependent:
            kinds += [self.select_rows]
        if depth < 2:
            nested = []
            if f.control:
                nested += [self.branch, self.branch]
            if f.loops:
                nested += [self.counted_loop, self.conditional_loop, self.scan, self.recursion]
            if f.functions:
                nested += [self.closure]
            if f.data:
                nested += [self.option, self.list_]
            kinds += nested
        if f.cells:
            kinds += [self.cell]
        if f.functions and "helper" in self.functions:
            kinds += [self.call_helper]
        for _ in range(count):
            self.choose(kinds)(scope, depth)

    def tensors(self, scope: _Scope, rank: int | None = None) -> list[Expr]:
        return [
            v
            for v in scope.values
            if isinstance(v.type, TensorType)
            and v.type.dtype == F32
            and (rank is None or len(v.type.shape) == rank)
        ]

    def tensor(self, scope: _Scope, rank: int | None = None) -> Expr:
        found = self.tensors(scope, rank)
        if found:
            return self.choose(found)
        return scope.add(self.flat(scope, self.choose(self.tensors(scope))))

    def vector(self, scope: _Scope) -> Expr:
        return self.tensor(scope, 1)

    def flat(self, scope: _Scope, x: Expr) -> Expr:
        total = lit(1)
        for d in x.type.shape:  # type: ignore[union-attr]
            total = total * d
        return scope.b.emit(_op("reshape"), (x, make.shape_const((total,))))

    def clip(self, scope: _Scope, x: Expr) -> Expr:
        op = _op("clip")
        return scope.b.emit(op, (x,), op.attrs_type(low=-8.0, high=8.0))

    def constant(self, scope: _Scope, _depth: int) -> None:
        shape = [self.number(1, 4) for _ in range(self.number(1, 2))]
        scope.add(make.const(self.array([lit(d) for d in shape])))

    def unary(self, scope: _Scope, _depth: int) -> None:
        scope.add(scope.b.emit(_op(self.choose(UNARY)), (self.tensor(scope),)))

    def hide(self, scope: _Scope, _depth: int) -> None:
        """Declare a value with less than is known of its sizes, and go on with that."""
        x = self.tensor(scope)
        t = x.type
        assert isinstance(t, TensorType)
        dims = [fresh("k") if self.coin() else None for _ in t.shape]
        shape = [d if k is None else to_int(k) for d, k in zip(t.shape, dims, strict=True)]
        less = make.tensor_type(shape, F32)
        hidden = tuple(DimParam(k) for k in dims if k is not None)
        declared = ExistsType(hidden, less) if hidden else less
        scope.add(scope.b.bind(make.call(_op("neg"), (x,)), "v", declared=declared))

    def binary(self, scope: _Scope, _depth: int) -> None:
        x = self.tensor(scope)
        same = [v for v in self.tensors(scope) if self.fits(v.type, x.type)]
        made = scope.b.emit(_op(self.choose(BINARY)), (x, self.choose(same)))
        scope.add(self.clip(scope, made))

    def fits(self, a: Type, b: Type) -> bool:
        """Whether two tensors have one shape, by type or by the sizes of this program's inputs."""
        if a == b:
            return True
        assert isinstance(a, TensorType)
        assert isinstance(b, TensorType)
        dims = (*a.shape, *b.shape)
        if len(a.shape) != len(b.shape) or any(self.size(d) is None for d in dims):
            return False
        return all(self.size(x) == self.size(y) for x, y in zip(a.shape, b.shape, strict=True))

    def layout(self, scope: _Scope, _depth: int) -> None:
        x = self.tensor(scope)
        if len(x.type.shape) == 2 and self.coin():  # type: ignore[union-attr]
            op = _op("transpose")
            scope.add(scope.b.emit(op, (x,), op.attrs_type(perm=(1, 0))))
        else:
            scope.add(self.flat(scope, x))

    def reduce(self, scope: _Scope, _depth: int) -> None:
        x = self.tensor(scope)
        op = _op("reduce_sum")
        axis = self.number(0, len(x.type.shape) - 1) if x.type.shape else None  # type: ignore[union-attr]
        axes = () if axis is None else (axis,)
        attrs = op.attrs_type(axes=axes, keepdims=True)
        scope.add(self.clip(scope, scope.b.emit(op, (x,), attrs)))

    def product(self, scope: _Scope, _depth: int) -> None:
        x = self.tensor(scope, 2)
        if len(x.type.shape) != 2:  # type: ignore[union-attr]
            return
        op = _op("transpose")
        right = scope.b.emit(op, (x,), op.attrs_type(perm=(1, 0)))
        scope.add(self.clip(scope, scope.b.emit(_op("matmul"), (x, right))))

    def concat(self, scope: _Scope, _depth: int) -> None:
        x, y = self.vector(scope), self.vector(scope)
        op = _op("concat")
        scope.add(scope.b.emit(op, (x, y), op.attrs_type(axis=0)))

    def tuples(self, scope: _Scope, _depth: int) -> None:
        t = scope.b.tuple([self.tensor(scope), self.tensor(scope)])
        scope.add(scope.b.project(t, self.number(0, 1)))

    def select_rows(self, scope: _Scope, _depth: int) -> None:
        """A size that the data decides: the elements that are not zero."""
        x = self.vector(scope)
        b = scope.b
        where = b.emit(_op("nonzero"), (x,))
        rows = b.emit(_op("reshape"), (where, make.shape_const((where.type.shape[-1],))))  # type: ignore[union-attr]
        gather = _op("gather")
        scope.add(b.emit(gather, (x, rows), gather.attrs_type(axis=0)))

    # ------------------------------------------------------------------ control

    def condition(self, scope: _Scope) -> Expr:
        """A control bool: of dims, or of data."""
        b = scope.b
        x = self.vector(scope)
        if self.coin():
            made = b.emit(
                INT_LESS,
                (make.int_const(x.type.shape[0]), make.int_const(self.number(1, 5))),  # type: ignore[union-attr]
            )
        else:
            made = b.emit(INT_LESS_EQUAL, (make.int_const(0), self.data_int(scope, x)))
        return b.emit(BOOL_NOT, (made,)) if self.coin() else made

    def data_int(self, scope: _Scope, x: Expr) -> Expr:
        """A control int that the data decides, between -8 and 8."""
        b = scope.b
        op, cast = _op("reduce_sum"), _op("cast")
        total = b.emit(op, (x,), op.attrs_type(axes=(0,), keepdims=False))
        whole = b.emit(cast, (self.clip(scope, total),), cast.attrs_type(dtype=I64))
        return b.emit(TO_CONTROL, (whole,), name="c")

    def body(self, scope: _Scope, b: Builder, depth: int, *extra: Expr) -> _Scope:
        inner = _Scope(b, [*scope.values, *extra])
        self.statements(inner, self.number(0, 3), depth + 1)
        return inner

    def branch(self, scope: _Scope, depth: int) -> None:
        rank = 2 if self.tensors(scope, 2) and self.coin() else 1

        def arms(b: Builder) -> list[Expr]:
            inner = self.body(scope, b, depth)
            return [self.tensor(inner, rank), self.vector(inner)]

        made = scope.b.if_(self.condition(scope), arms, arms)
        for v in scope.b.unpack(made):
            scope.add(v)

    # ------------------------------------------------------------------ loops

    def counted_loop(self, scope: _Scope, depth: int) -> None:
        start, kept = self.vector(scope), self.tensor(scope)
        row = self.tensor(scope)
        listed, turned = self.features.data and self.number(0, 3) == 0, self.number(0, 2) == 0
        count: Int | int = self.number(0, 3)
        if self.sizes and self.coin():
            count = self.choose([to_int(s) for s in self.visible_sizes(scope)] or [lit(2)])
        script = self.script(depth)

        def step(b: Builder, i: Int, c: tuple[Expr, ...]) -> Step:
            inner = _Scope(b, [*scope.values, *c[:2], make.int_const(i)])
            new = self.replay(script, inner, c[0], i)
            nexts = [new, b.emit(_op("neg"), (c[1],))]
            if turned and c[0].type == c[1].type:
                nexts = [c[1], new]
            made = [
                make.construct(adt("List"), "Cons", (new, c[2]), [_some_vector()], known=b.known)
                for _ in c[2:]
            ]
            return Step([*nexts, *made], [b.emit(_op("neg"), (row,))])

        items = [make.construct(adt("List"), "Nil", (), [_some_vector()])] if listed else []
        done = scope.b.loop([start, kept, *items], step, count=count)
        for v in (*done.carried[:2], *done.stacked[:1]):
            self.add_flat(scope, v)
        if listed:
            self.fold(scope, done.carried[2])

    def recursion(self, scope: _Scope, depth: int) -> None:
        """A local function that calls itself, at its end or before, and counts down."""
        b, start = scope.b, self.vector(scope)
        turns, step, is_last = self.number(0, 4), self.number(1, 2), self.number(0, 3) > 0
        other = self.choose([v for v in self.tensors(scope, 1) if v.type == start.type])
        script = [x for x in self.script(depth) if x[0] != "grow"]
        turned = self.coin()
        i = fresh("i")
        index = Var("i", IntType(to_int(i)))
        values = Var("h", start.type), Var("g", start.type)
        types = (index.type, start.type, start.type)
        own = Var("down", FuncType(types, start.type, (DimParam(i, LEAST_INT),)))
        b.declare([DimParam(i, LEAST_INT)])
        head = b.scope()
        going = head.emit(INT_LESS, (make.int_const(0), index))
        body = head.scope()
        new = self.replay(script, _Scope(body, [*scope.values, *values]), values[0])
        nexts = (values[1], new) if turned else (new, values[1])
        again = body.emit(own, (make.int_const(to_int(i) - step), *nexts))
        if not is_last:
            again = self.clip(_Scope(body, []), body.emit(_op("add"), (again, new)))
        made = make.if_(going, body.finish(again), values[0], known=b.known)
        bound = (DimParam(i, LEAST_INT),)
        function = make.function((index, *values), head.finish(made), start.type, bound, known=b.known)
        b.bind_recursive(own, function)
        scope.add(b.emit(own, (make.int_const(turns), start, other)))

    def visible_sizes(self, scope: _Scope) -> list[Sym]:
        seen: dict[Sym, None] = {}
        for v in scope.values:
            if isinstance(v.type, TensorType):
                for d in v.type.shape:
                    seen.update((s, None) for s in symbols(d) if s in self.sizes)
        return list(seen)

    def conditional_loop(self, scope: _Scope, depth: int) -> None:
        start = self.vector(scope)
        limit = self.number(0, 4)
        row = self.vector(scope)
        script = self.script(depth)

        def going(b: Builder, i: Int, c: tuple[Expr, ...]) -> Expr:
            inner = _Scope(b, [*scope.values, *c])
            small = b.emit(INT_LESS, (self.data_int(inner, c[0]), make.int_const(limit)))
            return small if limit % 2 else b.emit(BOOL_NOT, (small,))

        def step(b: Builder, i: Int, c: tuple[Expr, ...]) -> Step:
            inner = _Scope(b, [*scope.values, *c])
            return Step([self.replay(script, inner, c[0], i)], [b.emit(_op("abs"), (row,))])

        done = scope.b.loop([start], step, condition=going, count=4)
        self.add_flat(scope, done.carried[0])
        self.add_flat(scope, done.stacked[0])
        scope.add(make.int_const(done.count))

    def scan(self, scope: _Scope, _depth: int) -> None:
        xs = self.tensor(scope, 2)
        if len(xs.type.shape) != 2:  # type: ignore[union-attr]
            return
        columns = xs.type.shape[1]  # type: ignore[union-attr]
        b = scope.b
        start = b.emit(ZEROS, (make.shape_const((columns,)),), DTypeAttrs(F32))
        reverse = self.coin()

        def step(s: Builder, c: tuple[Expr, ...], rows: tuple[Expr, ...]) -> Step:
            inner = _Scope(s, [])
            new = self.clip(inner, s.emit(_op("add"), (c[0], rows[0])))
            return Step([new], [new])

        done = b.scan([start], [xs], step, reverse_sequences=[reverse], reverse_rows=[reverse])
        scope.add(done.carried[0])
        scope.add(done.stacked[0])

    def add_flat(self, scope: _Scope, v: Expr) -> None:
        if isinstance(v.type, TensorType) and len(v.type.shape) > 2:
            v = self.flat(scope, v)
        scope.add(v)

    def script(self, depth: int) -> list[tuple[str, int]]:
        """Choices for a loop body, drawn once: the body may be traced several times."""
        kinds = ["unary", "binary", "grow", "shared", "outside", "constant", "table"]
        if self.features.cells:
            kinds += ["cell"]
        return [(self.choose(kinds), self.number(0, 20)) for _ in range(self.number(1, 3 - depth))]

    def replay(self, script: list[tuple[str, int]], scope: _Scope, x: Expr, i: Int | None = None) -> Expr:
        b = scope.b
        for kind, n in script:
            if kind == "unary":
                x = b.emit(_op(UNARY[n % len(UNARY)]), (x,))
            elif kind in ("outside", "constant", "table", "cell"):
                x = self.replay_other(kind, n, scope, x, i)
            elif kind == "binary":
                same = [v for v in self.tensors(scope) if v.type == x.type] or [x]
                op = _op(BINARY[n % len(BINARY)])
                x = self.clip(scope, b.emit(op, (x, same[n % len(same)])))
            elif kind == "grow":
                concat = _op("concat")
                x = b.emit(concat, (x, x), concat.attrs_type(axis=0))
                if n % 3:
                    op = _op("reduce_sum")
                    one = b.emit(op, (x,), op.attrs_type(axes=(0,), keepdims=True))
                    x = self.clip(scope, one)
            else:
                x = self.clip(scope, b.emit(_op("add"), (x, x)))
        return x

    def replay_other(self, kind: str, n: int, scope: _Scope, x: Expr, i: Int | None) -> Expr:
        """Take a value that is no result of the turn."""
        b, shape = scope.b, x.type.shape  # type: ignore[union-attr]
        if kind == "outside":
            same = [v for v in self.tensors(scope) if v.type == x.type] or [x]
            return same[n % len(same)]
        if kind == "constant":
            if any(map(symbols, shape)):
                return b.emit(ZEROS, (make.shape_const(shape),), DTypeAttrs(F32))
            sizes = [arith.evaluate(d, {}) for d in shape]
            return make.const(np.full(sizes, n % 5 - 2, np.float32))
        if kind == "table":
            if i is None:
                return x
            rows = make.const((np.arange(6, dtype=np.float32) * (n + 1)) % 7 - 3)
            gather = _op("gather")
            at = b.emit(TO_TENSOR, (make.int_const(i),))
            row = b.emit(gather, (rows, at), gather.attrs_type(axis=0))
            return self.clip(scope, b.emit(_op("add"), (x, row)))
        cells = [v for v in scope.values if isinstance(v.type, RefType) and v.type.content == x.type]
        if not cells:
            return x
        cell = cells[n % len(cells)]
        if n % 3 == 0:  # moved out, and back as it is or changed
            before = b.bind(make.ref_take(cell), "before")
            b.bind(make.ref_put(cell, x if n % 2 else before, known=b.known), "done")
            return b.emit(_op("add"), (x, before)) if n % 2 else x
        before = b.bind(make.ref_read(cell), "before")
        b.bind(make.ref_write(cell, x, known=b.known), "done")
        return before if n % 2 else x

    # ------------------------------------------------------------------ functions and data

    def closure(self, scope: _Scope, depth: int) -> None:
        """A local function that captures, called twice."""
        x = self.vector(scope)
        inner_b = scope.b.scope()
        p = inner_b.param("p", x.type)
        inner = self.body(scope, inner_b, depth, p)
        f = scope.b.bind(inner_b.function(self.vector(inner), dims=()), "f")
        same = [v for v in self.tensors(scope, 1) if v.type == x.type] or [x]
        for _ in range(2):
            scope.add(scope.b.emit(f, (self.choose(same),)))

    def call_helper(self, scope: _Scope, _depth: int) -> None:
        g = make.global_var("helper", self.functions["helper"].type)
        scope.add(scope.b.emit(g, (self.vector(scope),)))

    def option(self, scope: _Scope, depth: int) -> None:
        option = adt("Option")
        x, other = self.vector(scope), self.vector(scope)
        some = _some_vector()
        b = scope.b

        def present(s: Builder) -> Expr:
            return make.construct(option, "Some", (x,), [some], known=s.known)

        def absent(_: Builder) -> Expr:
            return make.construct(option, "None", (), [some])

        o = b.if_(self.condition(scope), present, absent)

        def get(s: Builder, v: Expr) -> Expr:
            return self.vector(self.body(scope, s, depth, v))

        scope.add(b.match(o, option, {"Some": get, "None": lambda _: other}))

    def list_(self, scope: _Scope, _depth: int) -> None:
        """A list of vectors of differing sizes, mapped, folded and counted by the prelude."""
        list_adt = adt("List")
        some = _some_vector()
        b = scope.b
        xs = b.bind(make.construct(list_adt, "Nil", (), [some]), "xs")
        for _ in range(self.number(0, 3)):
            made = make.construct(list_adt, "Cons", (self.vector(scope), xs), [some], known=b.known)
            xs = b.bind(made, "xs")
        self.fold(scope, xs)

    def fold(self, scope: _Scope, xs: Expr) -> None:
        """Count the vectors of a list and add them up."""
        b = scope.b
        length = b.emit(_global("list.length"), (xs,), name="length")
        scope.add(length)
        one = make.tensor_type((1,), F32)
        f = b.scope()
        so_far = f.param("so_far", one)
        item = f.param("item", make.tensor_type((fresh("k"),), F32))
        op = _op("reduce_sum")
        total = f.emit(op, (item,), op.attrs_type(axes=(0,), keepdims=True))
        result = self.clip(_Scope(f, []), f.emit(_op("add"), (so_far, total)))
        body = f.finish(result)
        add = b.bind(make.function((so_far, item), body, one, (), param_types=(one, _some_vector())), "add")
        start = make.const(np.zeros(1, np.float32))
        scope.add(b.emit(_global("list.fold_left"), (add, start, xs)))

    def cell(self, scope: _Scope, _depth: int) -> None:
        """Create, read, write or update a cell; what branches and loops write is seen outside."""
        b = scope.b
        cells = [v for v in scope.values if isinstance(v.type, RefType)]
        if not cells or self.number(0, 3) == 0:
            scope.add(b.bind(make.ref_create(self.vector(scope)), "cell"))
            return
        cell = self.choose(cells)
        content = cell.type.content  # type: ignore[union-attr]
        fitting = [v for v in self.tensors(scope) if v.type == content]
        if self.number(0, 2) == 0:
            taken = b.bind(make.ref_take(cell), "taken")
            changed = b.emit(_op("neg"), (taken,))
            b.bind(make.ref_put(cell, self.choose([*fitting, changed]), known=b.known), "done")
            scope.add(self.choose([taken, changed]))
        elif fitting and self.coin():
            b.bind(make.ref_write(cell, self.choose(fitting), known=b.known), "done")
        else:
            scope.add(b.bind(make.ref_read(cell), "content"))


@dataclass(slots=True)
class _Scope:
    """A builder and the values its statements may use."""

    b: Builder
    values: list[Expr]

    def add(self, v: Expr) -> Expr:
        self.values.append(v)
        return v


def _some_vector() -> Type:
    k = fresh("k")
    return ExistsType((DimParam(k),), TensorType((from_atom(k),), F32))


def _global(name: str) -> Expr:
    return make.global_var(name, prelude().functions[name].type)
