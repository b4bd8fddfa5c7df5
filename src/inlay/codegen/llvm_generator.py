"""The code generator that uses LLVM: requests to an artifact, through the object cache."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inlay.codegen.accesses import accesses_of
from inlay.codegen.cache import ObjectCache, key_of
from inlay.codegen.image import Image, link
from inlay.codegen.interface import Artifact, KernelCode, Needs, PhaseCode, Request
from inlay.codegen.llvm import emit_module, needs_optimizer
from inlay.codegen.llvm_compile import make_object, warm_up
from inlay.codegen.phases import assertions_of, workspace_layout
from inlay.codegen.shapes import ShapeFunction, emit_shapes
from inlay.codegen.unit import Unit, from_bytes
from inlay.codegen.workers import processors, run_all
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.lower.place_buffers import stack_taken
from inlay.machine.target import Target

FEW_KERNELS = 4
"""Fewer than this are not worth another process."""


@dataclass(frozen=True, slots=True)
class LlvmGenerator:
    """Compiles for one machine.

    Attributes:
        target: the machine.
        cache: where objects are kept between runs, or None.
        workers: processes that compile at once; 0 for one on each processor.
    """

    target: Target
    cache: ObjectCache | None = None
    workers: int = 0

    def compile(self, requests: Sequence[Request]) -> Artifact:
        """Return the code of kernels in one image, in the order of the requests."""
        units, cached = self._units(requests)
        image = link(
            [(r.name, unit.data) for r, unit in zip(requests, units, strict=True)], self.target.features
        )
        kernels: dict[str, KernelCode] = {}
        for r, unit, hit in zip(requests, units, cached, strict=True):
            phases = tuple(
                PhaseCode(image.symbols[f"{r.name}.{symbol}"], parallel) for symbol, parallel in unit.phases
            )
            facts = (unit.dims, unit.workspace, unit.assertions, unit.stack, hit, unit.accesses)
            kernels[r.name] = KernelCode(r.name, phases, *facts)
        return Artifact(image, kernels)

    def known(self, requests: Sequence[Request]) -> dict[str, Needs]:
        """Return what kernels need whose code is in the cache, by name; makes none."""
        found = {r.name: self._cached(self._key("source", r.key, r)) for r in requests if r.key}
        units = {n: u for n, u in found.items() if u is not None}
        return {n: Needs(u.dims, u.workspace, u.stack, u.accesses) for n, u in units.items()}

    def add_shapes(self, image: Image, functions: Sequence[ShapeFunction]) -> tuple[bytes, list[int]]:
        """Return an image with code of shape arithmetic behind it, and where each function is.

        Equal functions are made once, all in one object.
        """
        numbers = {f: i for i, f in enumerate(dict.fromkeys(functions))}
        text = emit_shapes(list(numbers))
        key = key_of("shapes", text, _version(), self.target.key)
        data = self.cache.get(key) if self.cache is not None else None
        if data is None:
            data = make_object(text, self.target, optimize=False)
            if self.cache is not None:
                self.cache.put(key, data)
        made = link([("shapes", data)], self.target.features, image)
        return made.data, [made.symbols[f"shapes.shape{numbers[f]}"] for f in functions]

    def _units(self, requests: Sequence[Request]) -> tuple[list[Unit], list[bool]]:
        """Return compiled kernels, and which of them were cached."""
        keys = [self._key("source", r.key, r) if r.key else "" for r in requests]
        units = [self._cached(key) for key in keys]
        missing = [i for i, unit in enumerate(units) if unit is None]
        jobs = [lambda r=requests[i]: self._make(r) for i in missing]
        workers = self.workers or processors()
        if len(missing) < FEW_KERNELS:
            workers = 1
        elif workers > 1:
            warm_up(self.target)
        cached = [unit is not None for unit in units]
        for i, data in zip(missing, run_all(jobs, workers), strict=True):
            unit = from_bytes(data[1:])
            units[i], cached[i] = unit, data[0] == 1
            self._store(keys[i], unit)
        return [u for u in units if u is not None], cached

    def _make(self, request: Request) -> bytes:
        """Lower and compile a kernel, or find it by its text.

        Returns a byte that says which, and the stored form.
        """
        function = dataclasses.replace(request.lower(), name="kernel")
        key = self._key("text", print_function(function), request)
        unit = self._cached(key)
        if unit is not None:
            return b"\1" + unit.to_bytes()
        unit = compile_function(function, self.target, request.in_place)
        self._store(key, unit)
        return b"\0" + unit.to_bytes()

    def _key(self, kind: str, text: str, request: Request) -> str:
        return key_of(kind, text, _version(), self.target.key, repr(sorted(request.in_place)))

    def _cached(self, key: str) -> Unit | None:
        data = self.cache.get(key) if self.cache is not None and key else None
        return None if data is None else from_bytes(data)

    def _store(self, key: str, unit: Unit) -> None:
        if self.cache is not None and key:
            self.cache.put(key, unit.to_bytes())


@functools.cache
def _version() -> str:
    """Return a text that changes with this package and with LLVM.

    Files are told apart by size and time of change: a miss too many does no harm.
    """
    folder = Path(__file__).parent
    facts = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(folder.glob("*.py"))]
    return f"llvmlite {importlib.metadata.version('llvmlite')} {facts}"


def compile_function(function: LoopFunction, target: Target, in_place: frozenset[int] = frozenset()) -> Unit:
    """Compile one lowered function.

    Args:
        function: to compile.
        target: for what.
        in_place: positions of parameters that are one tensor; what its loops allow besides is found here.
    """
    accesses = accesses_of(function)
    module = emit_module(function, target, in_place.union(*accesses.overlays))
    optimize = needs_optimizer(function)
    data = make_object(module.text, target, optimize=optimize)
    return Unit(
        data,
        module.phases,
        function.dims,
        workspace_layout(function).block(),
        tuple(a.message for a in assertions_of(function)),
        stack_taken(function.body, target),
        accesses,
    )
