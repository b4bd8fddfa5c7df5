"""Hooks of a description: what their functions get besides the program, and what is wrong with their order.

A function gets the device, what there is, and a `HookContext`, which is all that it needs of the compiler: it
walks modules and makes calls in them, and applies primitives to loops that are not scheduled yet.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from inlay.accel.declare import HookDecl
from inlay.base.registry import suggestion
from inlay.codegen.program_hooks import HookSite, Level, RunHook, When
from inlay.ir import make
from inlay.ir.expr import Call, Expr, Function, OpRef
from inlay.ir.module import Module
from inlay.ir.walk import rewrite
from inlay.loop.func import LoopFunction
from inlay.machine.board import Board
from inlay.machine.target import Target
from inlay.ops.table import table
from inlay.schedule.state import Schedule


class Loops:
    """Loops of a kernel that are not scheduled yet; primitives are its methods.

        loops = ctx.loops(f)
        loops.inline("mul")              # as schedule/primitives/inline.py says it
        return loops.function

    A primitive that is not legal raises, which leaves the hook out with that reason.
    """

    def __init__(self, f: LoopFunction) -> None:
        self._schedule = Schedule(f)

    @property
    def function(self) -> LoopFunction:
        """The loops as they are now."""
        return self._schedule.function

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the blocks."""
        return tuple(self._schedule.block_names())

    def __getattr__(self, primitive: str) -> Callable[..., Any]:
        """Return a primitive."""
        if primitive.startswith("_"):
            raise AttributeError(primitive)
        try:
            found = getattr(importlib.import_module(f"inlay.schedule.primitives.{primitive}"), primitive)
        except ModuleNotFoundError:
            raise AttributeError(f"there is no primitive '{primitive}'") from None
        return lambda *args, **keywords: found(self._schedule, *args, **keywords)


class HookContext:
    """What a hook may ask of the compiler.

    Attributes:
        board: as programs run on it.
        device: whose hook it is.
        kernel: that is lowered, where it is one.
        operators: in the kernel, joined by `+`.
        runs_on: the device that the kernel is lowered for.
        target: what that device is.
    """

    def __init__(self, site: HookSite) -> None:
        self.board: Board = site.board
        self.device: str = site.device
        self.kernel: str = site.kernel
        self.operators: str = site.origin
        self.runs_on: str = site.runs_on
        self.target: Target | None = site.target

    def calls(self, module: Module) -> Iterator[tuple[str, Call]]:
        """Yield the calls of operators of a module that are no part of a kernel, with the operator."""
        found: list[tuple[str, Call]] = []
        self.rewrite(module, lambda name, call: found.append((name, call)))
        yield from found

    def rewrite(self, module: Module, change: Callable[[str, Call], Expr | None]) -> Module:
        """Return a module in which calls of operators are others; what a device runs as one stays.

        Args:
            module: the program.
            change: gives for the name of an operator and a call of it what is to be there; None for itself.
        """

        def changed(e: Expr) -> Expr:
            if not isinstance(e, Call) or not isinstance(e.callee, OpRef):
                return e
            return change(e.callee.op.name, e) or e

        functions = dict(module.functions)
        for name, function in module.functions.items():
            made = function if function.primitive is not None else rewrite(function, changed)
            assert isinstance(made, Function), "a function stays one"
            functions[name] = made
        return module.with_functions(functions)

    def call(self, operator: str, *args: Expr, attrs: object = None) -> Expr:
        """Return a call of an operator.

        Raises:
            CompileError: `name.unknown`, and what is wrong with its types.
        """
        return make.call(table().definition(operator).op, args, attrs)

    def loops(self, f: LoopFunction) -> Loops:
        """Return the loops of a kernel to apply primitives to."""
        return Loops(f)


def running_hook(declared: HookDecl, device: object) -> RunHook:
    """Return what calls the function of a hook."""

    def run(found: Any, site: HookSite) -> Any:
        return declared.run(device, found, HookContext(site))

    return run


def digest_of(cls: type, declared: HookDecl, parameters: tuple[tuple[str, str], ...]) -> str:
    """Return a text that changes when the file of a description does, or what its hook gets."""
    try:
        text = Path(inspect.getfile(cls)).read_bytes()
    except (OSError, TypeError):
        text = f"{os.getpid()} {id(declared)}".encode()  # made in this process: nothing of it stays
    return hashlib.blake2b(repr(parameters).encode() + text, digest_size=16).hexdigest()


def hook_problems(declared: HookDecl) -> Iterator[str]:
    """Yield what is wrong with the declaration of a hook."""
    levels, times = [x.value for x in Level], [x.value for x in When]
    if declared.level not in levels:
        hint = suggestion(declared.level, levels, f"there are {', '.join(levels)}")
        yield f"found the level '{declared.level}' of the hook '{declared.name}': {hint}"
    elif (declared.level == Level.TENSOR) is not (declared.when in times):
        needed = " or ".join(times) if declared.level == Level.TENSOR else "none"
        found = f"when='{declared.when}' of the hook '{declared.name}' of level {declared.level}"
        yield f"found {found}, needed {needed}"
    count = len(inspect.signature(declared.run).parameters)
    if count != 3:
        yield f"found {count} arguments of the hook '{declared.name}', needed self, what there is, and ctx"
