"""The code generator that uses LLVM: requests to an artifact, through the object cache."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass

from inlay.arith.expr import Int
from inlay.codegen.cache import ObjectCache, key_of
from inlay.codegen.image import link
from inlay.codegen.interface import Artifact, KernelCode, PhaseCode, Request
from inlay.codegen.llvm import assertions_of, emit_module, needs_optimizer, workspace_layout
from inlay.codegen.llvm_compile import COMPILER_VERSION, compile_in_child, compile_text
from inlay.codegen.unit import Unit, from_bytes
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.machine.target import Target, host


@dataclass(frozen=True, slots=True)
class LlvmGenerator:
    """Compiles for one machine.

    Attributes:
        target: the machine.
        cache: where objects are kept between runs, or None.
    """

    target: Target
    cache: ObjectCache | None = None
    name: str = "llvm"

    def supports(self, target: Target) -> bool:
        """Whether code can be made for a machine."""
        return target.arch in ("x86_64", "aarch64")

    def compile(self, requests: Sequence[Request]) -> Artifact:
        """Return the code of kernels in one image, in the order of the requests."""
        units = [self._unit(r) for r in requests]
        image = link(
            [(r.name, unit.data) for r, (unit, _) in zip(requests, units, strict=True)],
            self.target.features,
        )
        kernels: dict[str, KernelCode] = {}
        for r, (unit, cached) in zip(requests, units, strict=True):
            phases = tuple(
                PhaseCode(image.symbols[f"{r.name}.{symbol}"], parallel)
                for symbol, parallel in unit.phases
            )
            kernels[r.name] = KernelCode(
                r.name, phases, unit.dims, unit.workspace, unit.workspace_per_part,
                unit.assertions, cached,
            )  # fmt: skip
        return Artifact(image, kernels)

    def _unit(self, request: Request) -> tuple[Unit, bool]:
        """Return a compiled kernel and whether it was cached."""
        version = f"{COMPILER_VERSION} {importlib.metadata.version('llvmlite')}"
        common = (version, self.target.key, repr(sorted(request.in_place)))
        source_key = key_of("source", request.key, *common) if request.key else ""
        found = self._cached(source_key)
        if found is not None:
            return found, True
        function = dataclasses.replace(request.lower(), name="kernel")
        text_key = key_of("text", print_function(function), *common)
        found = self._cached(text_key)
        if found is not None:
            self._store(source_key, found)
            return found, True
        unit = compile_function(function, self.target, request.in_place)
        self._store(text_key, unit)
        self._store(source_key, unit)
        return unit, False

    def _cached(self, key: str) -> Unit | None:
        data = self.cache.get(key) if self.cache is not None and key else None
        return None if data is None else from_bytes(data)

    def _store(self, key: str, unit: Unit) -> None:
        if self.cache is not None and key:
            self.cache.put(key, unit.to_bytes())


def compile_function(
    function: LoopFunction, target: Target, in_place: frozenset[int] = frozenset()
) -> Unit:
    """Compile one lowered function."""
    module = emit_module(function, target, in_place)
    optimize = needs_optimizer(function)
    same_machine = target.arch == host().arch and set(target.features) <= set(host().features)
    compile = compile_text if same_machine else compile_in_child
    data = compile(module.text, target, optimize=optimize)
    layout = workspace_layout(function)
    size: Int = layout.bytes_per_part
    return Unit(
        data, module.phases, function.dims, size, layout.is_per_part,
        tuple(a.message for a in assertions_of(function)),
    )  # fmt: skip
