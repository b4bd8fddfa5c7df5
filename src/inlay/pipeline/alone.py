"""A kernel as a program of its own, to be run, checked and timed with other answers to what rules leave open.

    fn main(x0, x1) { let a = @kernel(x0, x1); let b = @kernel(x0, x1); b }

All operands are inputs. The kernel runs twice: what it gives first lies in the program's block, which stays,
and that run is timed, by the trace; what it gives second is returned, in memory that is fresh each time, as
results of programs are. Passes before kernels are not run again: it is the kernel of the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inlay.analysis.choices import Choice
from inlay.arith.deferred import AnyArray, elements
from inlay.arith.expr import Sym, evaluate
from inlay.base.diagnostics import Collector
from inlay.base.instrument import SILENT
from inlay.bytecode.program import Program
from inlay.codegen.interface import Artifact, Generator, Needs
from inlay.ir import make
from inlay.ir.expr import Call, Expr, Function, OpRef, Var
from inlay.ir.kernel import Kernel
from inlay.ir.module import Module
from inlay.ir.types import IntType, TensorType
from inlay.ir.walk import spine
from inlay.passes.contract import PassContext, Property, Remarks
from inlay.passes.manager import make_pipeline, run_pipeline
from inlay.pipeline import generate
from inlay.pipeline.build_kernels import BuildOptions, build_kernel, host_requests
from inlay.pipeline.generate import GenerateOptions, needs_of
from inlay.pipeline.leases import MEMORY
from inlay.pipeline.memories import memories_of_program
from inlay.pipeline.planning import Setting
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable, executable_of
from inlay.runtime.trace import EventKind
from inlay.transforms._packings import Form
from inlay.vm.link import link

NAME = "kernel"
_GIVEN = (Property.TYPED, Property.ANF, Property.LOWERED)


@dataclass(frozen=True, slots=True)
class Alone:
    """A kernel that can be called."""

    executable: Executable

    def results(self, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return what it gives."""
        found = self.executable.run(_named(operands))
        self.executable.events()
        return [np.asarray(x) for x in found.values()]

    def ns(self, operands: Sequence[np.ndarray]) -> float:
        """Run it; return how long it took, from the first of its threads to the last."""
        self.executable.run(_named(operands))
        runs = [e for e in self.executable.events() if e.kind is EventKind.RUN and e.name == NAME]
        first = min(e.number for e in runs)
        mine = [e for e in runs if e.number == first]
        return max(e.end for e in mine) - min(e.begin for e in mine)


def _named(operands: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    return {f"x{i}": x for i, x in enumerate(operands)}


def kernel_of(function: Function, choice: Choice, building: BuildOptions, setting: Setting) -> Kernel:
    """Return the kernel of a group with answers to what its schedule leaves open."""

    def chosen(_device: str, _key: str) -> Choice:
        return choice

    return build_kernel(NAME, function, setting.operators, replace(building, choice=chosen))


def alone(kernel: Kernel, function: Function, setting: Setting, generator: Generator, threads: int) -> Alone:
    """Return a kernel as a program.

    Raises:
        CompileError, UnsupportedError: it cannot be one.
    """
    program = _program(kernel, function, setting, generator)
    return Alone(executable_of(program, settings=Settings(threads=threads, trace=True), mode="sequential"))


def _program(kernel: Kernel, function: Function, setting: Setting, generator: Generator) -> Program:
    params = [make.var(f"x{i}", p.type) for i, p in enumerate(function.params)]
    callee = make.global_var(NAME, kernel.type)
    calls = [make.call(callee, params, place=function.place) for _ in range(2)]
    a, b = (make.var(name, c.type, place=c.place) for name, c in zip("ab", calls, strict=True))
    body = make.lets([(a, calls[0]), (b, calls[1])], b)
    main = make.function(params, body, dims=function.type.dims)
    made: list[Artifact] = []

    def code(module: Module, _context: PassContext) -> dict[str, Needs]:
        made.append(generator.compile(host_requests(module)))
        return needs_of(module, made[-1])

    quiet = replace(
        setting.context.with_options(GenerateOptions(code)),
        instrument=SILENT,
        diagnostics=Collector(),
        remarks=Remarks(),
    )
    pipeline = make_pipeline((generate.PASS, *MEMORY), _GIVEN)
    module = run_pipeline(pipeline, Module({"main": main}, kernels={NAME: kernel}), quiet)
    target = setting.targets(setting.board.host.name)
    memories = memories_of_program(setting.board)
    (artifact,) = made
    return link(
        module,
        artifact,
        target.triple,
        memories=memories,
        shapes=lambda functions: generator.add_shapes(artifact.image, functions),
    )


def reformed(function: Function, index: int, old: str, form: Form, setting: Setting) -> Function | None:
    """Return a group whose product has another form.

    Args:
        function: the group.
        index: of the parameter with its weights.
        old: name of the operator that it has.
        form: the other one.
        setting: of the program.

    Returns:
        None where the group is not of the one product with these weights.
    """
    param = function.params[index]
    weights = make.const(form.weights).type
    new = make.var(param.name, weights, param.span, param.place)
    lets, tail = spine(function.body)
    bindings: list[tuple[Var, Expr]] = []
    changed = 0
    for var, value in [*((x.var, x.value) for x in lets), (None, tail)]:
        made = value
        if isinstance(value, Call) and any(a is param for a in value.args):
            if not isinstance(value.callee, OpRef) or value.callee.op.name != old:
                return None
            op = setting.operators.definition(form.name).op
            args = [new if a is param else a for a in value.args]
            made = make.call(op, args, form.attrs, span=value.span, place=value.place)
            changed += 1
        if made.type != value.type:
            return None
        if var is not None:
            bindings.append((var, made))
        else:
            tail = made
    if changed != 1:
        return None
    params = [new if p is param else p for p in function.params]
    return make.function(
        params,
        make.lets(bindings, tail),
        dims=function.type.dims,
        span=function.span,
        place=function.place,
        primitive=function.primitive,
    )


# --------------------------------------------------------------------------- operands

_LEAST_ALIGNMENT = 64


def operands_of(
    function: Function, constants: Mapping[int, AnyArray], sizes: Mapping[Sym, int], *, reads_by_index: bool
) -> list[np.ndarray]:
    """Return operands of a group: constants as they are, others drawn, the same for the same types.

    Args:
        function: the group.
        constants: by position.
        sizes: of its dims.
        reads_by_index: whether integers may be places in tensors; then they are 0.
    """
    rng = np.random.default_rng(0)
    found: list[np.ndarray] = []
    for i, p in enumerate(function.params):
        match p.type:
            case TensorType(shape=shape, dtype=dtype):
                if i in constants:
                    found.append(aligned(elements(constants[i])))
                    continue
                dims = [evaluate(d, sizes) for d in shape]
                found.append(aligned(_drawn(rng, dims, dtype.numpy, zeros=reads_by_index)))
            case IntType(value=value) if value is not None:
                found.append(np.array(evaluate(value, sizes), np.int64))
            case _:
                raise AssertionError("parameters of kernels are tensors and known integers")
    return found


def _drawn(rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype, *, zeros: bool) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        if dtype.itemsize > 2:
            return np.zeros(shape, dtype) if zeros else rng.integers(0, 100, shape).astype(dtype)
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    return rng.standard_normal(shape, np.float32).astype(dtype)


def aligned(array: np.ndarray) -> np.ndarray:
    """Return a copy that begins where constants and blocks of programs begin."""
    raw = np.empty(array.nbytes + _LEAST_ALIGNMENT, np.uint8)
    first = -raw.ctypes.data % _LEAST_ALIGNMENT
    made = raw[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made
