"""Makes functions of constructors that are used as values.

    map(Wrap, xs)      becomes      let wrap = fn(a0: T) { let made = Wrap(a0); made };
                                    map(wrap, xs)

Constructors are not values of the machine; after this pass they are only called. A value that is only
another name of a constructor is replaced by it first. Operators have no type of their own, so those
that are used as values became functions when types were inferred: one that is left here is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inlay.analysis.blocks import operands
from inlay.arith.expr import from_atom
from inlay.base.diagnostics import error
from inlay.ir import make
from inlay.ir.dims import rename_dims, substitute_type
from inlay.ir.existentials import open_exists
from inlay.ir.expr import Call, ConstructorRef, Expr, Function, OpRef, RefCreate, RefPut, RefWrite, Tuple, Var
from inlay.ir.module import Module
from inlay.ir.types import FuncType
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module

_Ref = OpRef | ConstructorRef


def run(module: Module, context: PassContext) -> Module:
    """Replace constructors that are not called by functions. Cost: linear.

    Raises:
        CompileError: `type.undetermined`: an operator is used as a value.
    """
    del context
    return rewrite_module(module, _step)


def _step(block: BlockWriter, value: Expr) -> Expr | None:
    if isinstance(value, _Ref):
        # A name for it needs no function: its readers see the constructor itself. A result does.
        return None if block.variable is not None else _expanded(block, value)
    if not any(isinstance(x, _Ref) for x in _passed(value)):
        return None
    match value:
        case Call(callee=callee, args=args):
            new = tuple([_expanded(block, a) for a in args])
            return Call(callee, new, value.type, value.span, value.place)
        case Tuple(fields=fields):
            new = tuple([_expanded(block, f) for f in fields])
            return make.tuple_(new, span=value.span, place=value.place)
        case RefCreate(value=inner) | RefWrite(value=inner) | RefPut(value=inner):
            return replace(value, value=_expanded(block, inner))
        case _:
            return None


def _passed(value: Expr) -> Sequence[Expr]:
    """Return the operands that are read as values: all but a callee."""
    return value.args if isinstance(value, Call) else operands(value)


def _expanded(block: BlockWriter, atom: Expr) -> Expr:
    """Return an atom that is no constructor: the variable of its function, bound once in a block."""
    if isinstance(atom, OpRef):
        raise error(
            "type.undetermined",
            f"found {atom.op.name} as a value, where nothing says what it takes",
            span=atom.span,
            hint="write a function around it, with the types of its parameters",
        )
    if not isinstance(atom, ConstructorRef):
        return atom
    assert isinstance(atom.type, FuncType), "a constructor has a function type"
    key = (atom.adt, atom.tag, atom.type)
    found = block.note(key)
    if isinstance(found, Var):
        return found
    bound = block.bind(_function(atom, atom.type), atom.name.lower())
    block.notes[key] = bound
    return bound


def _function(ref: ConstructorRef, type: FuncType) -> Function:
    """Return `fn(a0, ...) { ref(a0, ...) }`, of the constructor's own type."""
    dims = rename_dims(type.dims)
    ints = {d.sym: from_atom(f.sym) for d, f in zip(type.dims, dims, strict=True)}
    declared = [substitute_type(t, ints) for t in type.params]
    params = [Var(f"a{i}", open_exists(t)[0], ref.span) for i, t in enumerate(declared)]
    made = make.call(ref, params, span=ref.span)
    result = Var("made", open_exists(made.type)[0], ref.span)
    return make.function(
        params,
        make.let(result, made, result),
        substitute_type(type.result, ints),
        dims,
        param_types=declared,
        type_vars=type.type_vars,
        span=ref.span,
    )


PASS = Pass(
    __name__,
    run,
    "make functions of constructors that are used as values",
    requires=(Property.ANF,),
    establishes=(Property.ETA_EXPANDED,),
)
