"""What a program costs for each let, made, walked, verified, printed, read, inferred: all linear."""

from __future__ import annotations

from inlay.analysis.infer_types import infer_types
from inlay.arith.dtype import F32
from inlay.base.garbage import paused
from inlay.ir import make, walk
from inlay.ir.equal import structural_hash
from inlay.ir.expr import Expr
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.printer import print_module
from inlay.ir.verify import verify
from inlay.ops.table import table
from measure import Report, measure


def program(lets: int) -> Module:
    """Return `let v1 = relu(x); let v2 = add(v1, x); ...`."""
    relu, add = table().find("relu"), table().find("add")
    x = make.var("x", make.tensor_type((16, 64), F32))
    names = [x, *(make.var(f"v{i}", x.type) for i in range(1, lets + 1))]
    values = [
        make.call(add, (names[i - 1], x)) if i % 2 else make.call(relu, (names[i - 1],))
        for i in range(1, lets + 1)
    ]
    body: Expr = names[-1]
    for v, value in zip(reversed(names[1:]), reversed(values), strict=True):
        body = make.let(v, value, body)
    return Module({"main": make.function((x,), body)})


def bare(lets: int) -> Module:
    """Return such a program whose function says no type at all; its call does."""
    op = ("relu(v{0})", "add(v{0}, x)")
    body = "".join(f"let v{i + 1} = {op[i % 2].format(i)};\n" for i in range(lets))
    text = f"fn f(x) {{ let v0 = x;\n{body} v{lets} }} fn main(x: Tensor[16, 64, f32]) {{ @f(x) }}"
    return parse_module(text, table())


def main() -> None:
    """Print microseconds for each let at growing lengths."""
    columns = ["lets", "make", "rewrite", "copy", "verify", "hash", "print", "parse", "infer"]
    report = Report("programs in memory, microseconds a let", columns)
    for lets in (1_000, 10_000, 100_000):
        with paused():
            module = program(lets)
            main_function = module.functions["main"]
            text = print_module(module)
            untyped = bare(lets)
            works = [
                lambda lets=lets: program(lets),
                lambda f=main_function: walk.rewrite(f, lambda e: e),
                lambda f=main_function: walk.copy(f),
                lambda m=module: verify(m),
                lambda f=main_function: structural_hash(f),
                lambda m=module: print_module(m),
                lambda t=text: parse_module(t, table()),
                lambda m=untyped: infer_types(m),
            ]
            times = [measure(work, repeat=1).least for work in works]
        report.row(lets, *(t / lets * 1e6 for t in times))


if __name__ == "__main__":
    main()
