"""Computes products of f16 and bf16 in f32, and what follows them, by casts that other passes see.

    let y = matmul(x, w);                let p = cast{dtype=f32}(x);   let q = cast{dtype=f32}(w);
    let z = add(y, b);                   let y = cast{dtype=f16}(matmul(p, q));
    let r = relu(z);          becomes    let z = cast{dtype=f16}(add(cast{dtype=f32}(y), cast{dtype=f32}(b)));
    matmul(r, v)                         let r = relu(cast{dtype=f32}(z));
                                         cast{dtype=f16}(matmul(r, cast{dtype=f32}(v)))

Operators of floats of 16 bits compute in f32 and round once (docs/design/0008): this is the same program, to
the bit. What changes is where numbers are widened. A kernel of a product reads an operand once for each tile
that it is part of; whoever makes it widens it once, in registers, and forms of products that add up in f32
(panels, Winograd's) are there for f16 too. Weights that 16 bits hold are kept so anyway (`pack-weights`).

A value of 16 bits has a *wide twin* where its numbers are in f32 somewhere: what a cast to 16 bits is widened
to again. Operators one of whose operands has a twin read twins; so nobody asks for the narrow value, and it
is never written. What hands numbers on as they are (`relu`, `reshape`; `_EXACT`) makes a twin that needs no
rounding.

Left as they are: products of few rows with another computed operand, like one query with the keys of all
tokens before it, which are read once and had better be half as large; operators on devices, which keep their
own arithmetic; f16 where a processor has no instruction that widens it, which would keep weights in f32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inlay.arith.deferred import DeferredArray, as_f32
from inlay.arith.dtype import BF16, F16, F32, DType
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef, Project, Var
from inlay.ir.module import Module
from inlay.ir.types import TensorType, TupleType, Type
from inlay.machine.target import Target
from inlay.ops._define import FusionPattern, OpDef
from inlay.ops.activations import ClipAttrs
from inlay.ops.elementwise import CastAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, is_call, rewrite_module

FEW_ROWS = 4
"""Rows up to which a product reads its other operand once, or nearly so."""

_EXACT = frozenset(
    "abs broadcast_to ceil clip concat depth_to_space flip floor max_pool maximum minimum neg pad reduce_max "
    "reduce_min relu reshape round select sign slice space_to_depth split tile transpose trilu trunc".split()
)
"""Operators whose results are numbers of their operands, but for signs, or whole numbers near them."""
_APART = frozenset(("bitcast", "cast", "dequantize", "quantize", "cumprod", "cumsum"))
"""Operators that do not compute in f32 what they compute in 16 bits."""
_COMPUTED = (FusionPattern.ELEMENTWISE, FusionPattern.BROADCAST, FusionPattern.REDUCTION)


def _any(_device: str) -> Target | None:
    return Target(vector_bytes=32, vector_registers=16, features=("f16c",))


@dataclass(frozen=True, slots=True)
class WidenOptions:
    """Options of this pass.

    Attributes:
        targets: gives for a device, by its name and "" for the host, what its code is made for; None where
            operators stay as they are.
    """

    targets: Callable[[str], Target | None] = _any


def run(module: Module, context: PassContext) -> Module:
    """Widen them. Cost: linear in the program; constants are widened when they are read."""
    assert isinstance(context.ops, OperatorTable), "tensor passes run with the table of operators"
    return rewrite_module(module, _Widening(context.ops, context.options_for(WidenOptions)).step)


class _Widening:
    """One run of the pass."""

    def __init__(self, operators: OperatorTable, options: WidenOptions) -> None:
        self._operators, self._options = operators, options
        self._cast = operators.definition("cast").op
        self._constants: dict[int, Const] = {}

    def step(self, block: BlockWriter, value: Expr) -> Expr | None:
        """Answer what stands for a value; see `_blocks`."""
        if isinstance(value, Project):
            return self._part(block, value)
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return None
        if is_call(value, "cast") and _dtype(value.type) is F32:
            return self._twin(block, value.args[0])
        definition = self._operators.definition(value.callee.op)
        dtype = None if definition.foreign is not None else _narrow(value)
        if dtype is None or not self._is_here(value, dtype):
            return None
        if definition.pattern is FusionPattern.CONTRACTION:
            if not self._is_read_once(block, value):
                return self._widened(block, value, dtype, is_exact=False)
        elif self._follows(block, value, definition):
            exact = is_exact(definition.name, value.callee.attrs, dtype)
            if exact or isinstance(value.type, TensorType):
                return self._widened(block, value, dtype, is_exact=exact)
        return None

    def _is_here(self, value: Call, dtype: DType) -> bool:
        target = self._options.targets("" if value.place is None else value.place.device)
        return target is not None and (dtype is BF16 or target.has_half)

    def _is_read_once(self, block: BlockWriter, product: Call) -> bool:
        """Whether a product has few rows and its other operand is computed, and is in 16 bits only."""
        x, w = product.args[0].type, product.args[1]
        assert isinstance(x, TensorType), "products have tensors for operands"
        rows = x.shape[-2].value if len(x.shape) > 1 else 1
        few = is_call(product, "matmul") and rows is not None and rows <= FEW_ROWS
        return few and not isinstance(w, Const) and self._twin(block, w) is None

    def _follows(self, block: BlockWriter, value: Call, definition: OpDef) -> bool:
        """Whether an operator computes in f32, and reads what is there in f32: one operand, or all of what
        it only hands on.
        """
        if not computes_in_f32(definition):
            return False
        computed = [a for a in value.args if _dtype(a.type) in (F16, BF16) and not isinstance(a, Const)]
        twins = [self._twin(block, a) is not None for a in computed]
        return any(twins) if definition.pattern in _COMPUTED else bool(twins) and all(twins)

    # -------------------------------------------------------------------------------- wide twins

    def _twin(self, block: BlockWriter, operand: Expr) -> Expr | None:
        """Return what has the numbers of a computed operand in f32 already, or will for who rounded it."""
        known = block.note(("wide", operand))
        if isinstance(known, Var):
            return known
        made = block.definition(operand)
        if not isinstance(made, Call) or not is_call(made, "cast") or _dtype(made.args[0].type) is not F32:
            return None
        if _dtype(operand.type) not in (F16, BF16):
            return None
        source = made.args[0]
        if block.note(("exact", source, _dtype(operand.type))):
            return source
        return self._noted(block, operand)

    def _noted(self, block: BlockWriter, operand: Expr) -> Expr:
        """Widen an operand here; once for all that read it in this block and those inside of it."""
        found = block.call(self._cast, (operand,), CastAttrs(F32))
        block.notes[("wide", operand)] = found
        return found

    def _wide(self, block: BlockWriter, operand: Expr) -> Expr:
        """Return an operand in f32; what is no float of 16 bits as it is."""
        if _dtype(operand.type) not in (F16, BF16):
            return operand
        if isinstance(operand, Const) and isinstance(operand.held, np.ndarray | DeferredArray):
            if id(operand.held) not in self._constants:
                self._constants[id(operand.held)] = make.const(as_f32(operand.held), span=operand.span)
            return self._constants[id(operand.held)]
        return self._twin(block, operand) or self._noted(block, operand)

    def _widened(self, block: BlockWriter, value: Call, dtype: DType, *, is_exact: bool) -> Expr:
        assert isinstance(value.callee, OpRef), "operators are called by reference"
        name = value.callee.op.name if block.variable is None else block.variable.name
        made = block.make(value.callee.op, [self._wide(block, a) for a in value.args], value.callee.attrs)
        wide = block.bind(made, name)
        if isinstance(value.type, TupleType):
            block.notes[("parts", block.variable)] = wide
            return value
        if _dtype(value.type) is not dtype:
            return wide  # of a comparison, or a place
        if is_exact:
            block.notes[("exact", wide, dtype)] = True
        return block.make(self._cast, (wide,), CastAttrs(dtype))

    def _part(self, block: BlockWriter, value: Project) -> Expr | None:
        """Return a part of what was widened as a whole (`split`), in 16 bits."""
        whole, dtype = block.note(("parts", value.value)), _dtype(value.type)
        if not isinstance(whole, Var) or dtype is None:
            return None
        part = block.bind(make.project(whole, value.index, span=value.span, place=value.place), "part")
        block.notes[("exact", part, dtype)] = True
        return block.make(self._cast, (part,), CastAttrs(dtype))


def computes_in_f32(definition: OpDef) -> bool:
    """Whether an operator makes of floats of 16 bits what it makes of them in f32, rounded once."""
    if definition.name in _APART or definition.reference is None:
        return False
    return definition.name in _EXACT or definition.pattern in _COMPUTED


def _dtype(type: Type) -> DType | None:
    return type.dtype if isinstance(type, TensorType) else None


def _narrow(value: Call) -> DType | None:
    """Return the format of 16 bits that all floats of operands and results have; None for no such one."""
    parts = value.type.fields if isinstance(value.type, TupleType) else (value.type,)
    results, operands = [_dtype(t) for t in parts], [_dtype(a.type) for a in value.args]
    floats = {d for d in (*results, *operands) if d is not None and d.is_float}
    return next((d for d in (F16, BF16) if floats == {d} and None not in results), None)


def is_exact(name: str, attrs: object, dtype: DType) -> bool:
    """Whether what an operator makes of numbers of 16 bits is such numbers."""
    ends = (attrs.low, attrs.high) if isinstance(attrs, ClipAttrs) else ()
    with np.errstate(over="ignore"):
        return name in _EXACT and all(float(np.float32(e).astype(dtype.numpy)) == e for e in ends)


PASS = Pass(
    __name__,
    run,
    "compute products of f16 and bf16, and what follows them, in f32",
    requires=(Property.ANF,),
    options=WidenOptions,
)
