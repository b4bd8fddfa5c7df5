"""Replaces operators of the user that are written in the language by calls of functions.

    let y = my_op{k=3}(x);      becomes      let y = @my_op(x);      with the function of that name

From here on the operator is like any other function of the program: it is inlined, and what is in it
fused with what is around it. Each operator with each attributes becomes one function.
"""

from __future__ import annotations

from inlay.base.names import NameSupply
from inlay.ir import make, walk
from inlay.ir.attrs import attrs_text
from inlay.ir.dims import same_type
from inlay.ir.expr import Call, Expr, Function, OpRef
from inlay.ir.module import Module
from inlay.ir.op import Op
from inlay.ops._define import ForeignOp
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module


def run(module: Module, context: PassContext) -> Module:
    """Expand. Cost: linear."""
    del context
    names = NameSupply([*module.functions, *module.kernels])
    made: dict[tuple[Op, str], str] = {}
    functions: dict[str, Function] = {}

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return None
        op, attrs = value.callee.op, value.callee.attrs
        definition = op.record() if isinstance(op, ForeignOp) else None
        if definition is None or definition.function is None:
            return None
        key = (op, attrs_text(attrs))
        if key not in made:
            made[key] = names.fresh(op.name)
            copied = walk.copy(definition.function(attrs))
            assert isinstance(copied, Function), "a copy of a function is one"
            functions[made[key]] = copied
        function = functions[made[key]]
        found = block.make(make.global_var(made[key], function.type), value.args)
        if same_type(found.type, value.type):
            return found
        return make.coerce(block.bind(found), value.type, f"the result of {op.name}", known=block.known)

    rewritten = rewrite_module(module, step)
    return rewritten.with_functions({**rewritten.functions, **functions})


PASS = Pass(
    __name__,
    run,
    "replace operators of the user that are written in the language by calls of functions",
    requires=(Property.ANF,),
)
