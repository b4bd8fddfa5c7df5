"""Generated programs in text form, all types said; and the same programs with types erased.

Every program has `main<n>(x: Tensor[n, 4, f32], v: Tensor[n, f32], b: Tensor[bool])`, global helper
functions, local functions, branches, tuples, lists, data-dependent sizes and loops. They are text, so
that a failing one can be read and kept.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from inlay.ir import walk
from inlay.ir.dims import free_symbols, opened_dims
from inlay.ir.expr import Const, Expr, Function, GlobalVar, Let, Match, Var
from inlay.ir.module import Module
from inlay.ir.types import UNKNOWN, FuncType

HEAD = """
data List<'a> { Nil, Cons('a, List['a]) }
fn scale<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] { add(x, x) }
fn rows<n>(x: Tensor[n, 4, f32], v: Tensor[n, f32]) -> Tensor[n, 4, f32] {
  mul(x, reshape(v, shape(n, 1)))
}
fn sum<n>(xs: List[Tensor[n, 4, f32]], first: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  match xs { Nil => first, Cons(h, t) => @sum(t, add(first, h)) }
}
"""

STEPS = """
let {r} = neg({a});
---
let {r} = add({a}, {b});
---
let {r} = relu(mul({a}, {b}));
---
let {r} = @scale({a});
---
let {r} = @rows({a}, v);
---
let {r} = @rows(@scale({a}), neg(v));
---
let {r} = if (c) {{ {a} }} else {{ let q = neg({b}); add(q, {a}) }};
---
let f{r} = fn<m>(p: Tensor[m, 4, f32]) -> Tensor[m, 4, f32] {{ let q = relu(p); add(q, p) }};
let {r} = f{r}({a});
---
let g{r} = fn(p: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {{ add(p, {b}) }};
let {r} = g{r}(g{r}({a}));
---
let t{r} = ({a}, v, {b});
let {r} = add(t{r}.0, t{r}.2);
---
let {r} = match ({a}, {b}) {{ (l, _) => neg(l) }};
---
let {r} = @sum(Cons({a}, Cons({b}, Nil[Tensor[n, 4, f32]]())), {a});
---
let c{r} = ref({a});
write(c{r}, add(read(c{r}), {b}));
let {r} = read(c{r});
---
let l{r} = fn<i>(i: int[i], acc: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {{
  if (int_less(int(i), int(3))) {{ l{r}(int(i + 1), add(acc, {b})) }} else {{ acc }}
}};
let {r} = l{r}(int(0), {a});
---
let k{r}: some k{r} <= n. Tensor[1, k{r}, i64] = nonzero(relu(v));
let s{r} = cast{{dtype=f32}}(reshape(k{r}, shape(k{r})));
let {r} = mul({a}, reduce_sum{{axes=[0]}}(s{r}));
""".split("---")


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Return a program of a few steps, each on values made before it."""
    names = ["x"]
    body = ["let c = to_control(b);"]
    for i in range(draw(st.integers(1, 6))):
        step = draw(st.sampled_from(STEPS))
        a, b = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        body.append(step.strip().format(r=f"y{i}", a=a, b=b))
        names.append(f"y{i}")
    lines = "\n  ".join(body)
    return (
        f"{HEAD}fn main<n>(x: Tensor[n, 4, f32], v: Tensor[n, f32], b: Tensor[bool]) {{\n"
        f"  {lines}\n  {names[-1]}\n}}\n"
    )


def erase(module: Module, *, params: bool = False) -> Module:
    """Return the module without the types of lets, patterns and results, and of operations.

    Kept are annotations that name what the data decide, and the signatures of functions that call
    themselves. With `params`, the parameters of functions that no one else names types for go too.
    """
    functions: dict[str, Function] = {}
    for name, f in module.functions.items():
        eraser = _Eraser(params=params and _is_called(module, name))
        keep = name == "main" or _names_dims(f)
        made = eraser.function(f, keep=keep, recursive=_mentions(f.body, name))
        functions[name] = made
    return module.with_functions(functions)


def _mentions(body: Expr, name: str) -> bool:
    return any(isinstance(e, GlobalVar) and e.name == name for e in walk.postorder(body))


def _is_called(module: Module, name: str) -> bool:
    return any(_mentions(f.body, name) for n, f in module.functions.items() if n != name)


def _names_dims(f: Function) -> bool:
    """Whether a constant mentions dims that the function binds: then they need their names."""
    own = {d.sym for d in f.type.dims}
    found = (e.type for e in walk.postorder(f.body) if isinstance(e, Const))
    return any(s in own for t in found for s in free_symbols(t))


class _Eraser:
    def __init__(self, *, params: bool) -> None:
        self.params = params
        self.vars: dict[Var, Var] = {}

    def bare(self, v: Var) -> Var:
        return self.vars.setdefault(v, Var(v.name, UNKNOWN, v.span))

    def function(self, f: Function, *, keep: bool, recursive: bool) -> Function:
        t = f.type
        if self.params and not keep and not recursive:
            for v in f.params:
                self.bare(v)
            t = FuncType(tuple(UNKNOWN for _ in f.params), UNKNOWN)
        elif not recursive:
            t = replace(t, result=UNKNOWN)
        body = self.expr(f.body)
        return Function(tuple(self.vars.get(v, v) for v in f.params), body, t, f.span)

    def expr(self, e: Expr) -> Expr:
        match e:
            case Var():
                return self.vars.get(e, e)
            case Const():
                return e
            case Function():
                return self.function(e, keep=_names_dims(e), recursive=False)
            case Let(var=v, value=value):
                if isinstance(value, Function):
                    recursive = v in walk.free_vars(value)
                    if not recursive:
                        self.bare(v)
                    made: Expr = self.function(value, keep=_names_dims(value), recursive=recursive)
                else:
                    if not opened_dims(value.type, v.type):
                        self.bare(v)
                    made = self.expr(value)
                return Let(self.vars.get(v, v), made, self.expr(e.body), UNKNOWN, e.span)
            case Match():
                for a in e.arms:
                    walk.map_pattern(a.pattern, self.bare)
                arms = tuple(
                    replace(
                        a, pattern=walk.map_pattern(a.pattern, self.bare), body=self.expr(a.body)
                    )
                    for a in e.arms
                )
                return Match(self.expr(e.scrutinee), arms, UNKNOWN, e.span)
            case _:
                kids = walk.children(e)
                if not kids:
                    return self.leaf(e)
                return self.unknown(e, tuple(map(self.expr, kids)))

    def leaf(self, e: Expr) -> Expr:
        if isinstance(e, GlobalVar):
            return replace(e, type=UNKNOWN)
        return e

    def unknown(self, e: Expr, kids: tuple[Expr, ...]) -> Expr:
        return walk._REPLACE[type(e)](e, kids, UNKNOWN)
