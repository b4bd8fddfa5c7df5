"""LLVM text to relocatable objects, through llvmlite.

This is the only module that imports llvmlite, and it does so when the first text is compiled, so
that a program whose objects are all cached starts without it. Typing of llvmlite is partial, hence
`Any` here.

Two pipelines: none for text with explicit vectors, where `llvm_builder` has already done what
passes would do, and O3 for scalar loops. A back end that cannot select an instruction aborts the
process, so other machines than the host are compiled in a child process.
"""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from inlay.base.diagnostics import InternalError
from inlay.machine.target import Target

R = TypeVar("R")
LONG_BLOCK = 160
"""Loads of a basic block, from which on x86 code keeps the order of the text. The scheduler of LLVM moves
loads ahead, which helps with what is in no cache yet, but in long blocks so far that what was loaded is
stored on the stack. Windows of 7 x 7 of 3 channels to 32, with 189 loads, take 2,280 us scheduled and 1,690
as they are (Zen 5); 3 x 3 of 9 and 16 channels, with 243 and 432, 27 and 19, 295 and 234; 1 x 1 of 20, with
140, 31 and 33."""
_EMITTING = threading.Lock()


@functools.cache
def _llvm() -> Any:
    import llvmlite.binding

    llvm: Any = llvmlite.binding
    # Loop strength reduction takes half of the time of unrolled kernels and gains nothing: their
    # addresses are one pointer and constants, which x86 and Arm fold into loads.
    llvm.set_option("", "-disable-lsr")
    if str(llvm.get_process_triple()).startswith("x86_64"):
        # Sums of integers it makes trees of, whose parts no longer fit the registers beside accumulators.
        llvm.set_option("", "-x86-machine-combiner=false")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@functools.cache
def _machine(target: Target, level: int) -> Any:
    llvm = _llvm()
    if target.arch != _arch_here():
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    chosen = llvm.Target.from_triple(target.triple)
    return chosen.create_target_machine(
        cpu=target.cpu, features=target.feature_text, opt=level, reloc="pic", codemodel="small"
    )


def _arch_here() -> str:
    return str(_llvm().get_process_triple()).partition("-")[0]


@functools.cache
def _runs_here(target: Target) -> bool:
    """Whether this processor has what a target has."""
    try:
        here = {name for name, has in dict(_llvm().get_host_cpu_features()).items() if has}
    except RuntimeError:  # LLVM does not know this one
        return False
    return target.arch == _arch_here() and set(target.features) <= here


def make_object(text: str, target: Target, *, optimize: bool) -> bytes:
    """Return the object of a module: made in a child process for what this machine is not.

    Raises:
        InternalError: LLVM does not accept the text.
    """
    make = compile_text if _runs_here(target) else compile_in_child
    return make(text, target, optimize=optimize)


def warm_up(target: Target) -> None:
    """Load LLVM for a target now, so that forked children share it."""
    for level in (2, 3):
        _machine(target, level)


def compile_text(text: str, target: Target, *, optimize: bool) -> bytes:
    """Return the object of a module.

    Raises:
        InternalError: LLVM does not accept the text.
    """
    return _emitted(text, target, lambda machine, module: machine.emit_object(module), optimize=optimize)


def assembly(text: str, target: Target, *, optimize: bool) -> str:
    """Return the assembly of a module, for people and for tests."""
    return _emitted(text, target, lambda machine, module: machine.emit_assembly(module), optimize=optimize)


def _emitted(text: str, target: Target, emit: Callable[[Any, Any], R], *, optimize: bool) -> R:
    """Return what a machine makes of a module.

    Whether instructions are scheduled is an option of LLVM as a whole, so one module is made at a time; other
    calls of LLVM wait for each other as well.
    """
    module, machine = _prepared(text, target, optimize=optimize)
    schedules = target.arch != "x86_64" or optimize or _most_loads(text) < LONG_BLOCK
    with _EMITTING:
        _llvm().set_option("", f"-enable-misched={str(schedules).lower()}")
        return emit(machine, module)


def _most_loads(text: str) -> int:
    """Return the loads of the basic block that has most."""
    most = count = 0
    for line in text.splitlines():
        if line.endswith(":"):
            count = 0
        elif " = load " in line:
            count += 1
            most = max(most, count)
    return most


def _prepared(text: str, target: Target, *, optimize: bool) -> tuple[Any, Any]:
    llvm = _llvm()
    machine = _machine(target, 3 if optimize else 2)
    try:
        module = llvm.parse_assembly(text)
    except RuntimeError as failure:
        raise InternalError(
            f"LLVM does not accept the emitted text: {failure}",
            where="codegen.llvm",
            reproduce=text if len(text) < 20000 else text[:20000] + "\n...",
        ) from None
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    if optimize:
        tuning = llvm.create_pipeline_tuning_options(speed_level=3)
        tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_interleaving = True
        builder = llvm.create_pass_builder(machine, tuning)
        builder.getModulePassManager().run(module, builder)
    return module, machine


def compile_in_child(text: str, target: Target, *, optimize: bool) -> bytes:
    """Return the object of a module, made in a child process that may abort.

    Raises:
        InternalError: the back end aborted or refused; the message has its last words.
    """
    program = (
        "import sys, pickle; from inlay.codegen.llvm_compile import compile_text; "
        "text, target, optimize = pickle.load(sys.stdin.buffer); "
        "sys.stdout.buffer.write(compile_text(text, target, optimize=optimize))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((text, target, optimize)),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-3:]
        raise InternalError(
            f"the back end for {target.triple} failed: {' / '.join(last)}",
            where="codegen.llvm_compile",
            reproduce=text if len(text) < 20000 else text[:20000] + "\n...",
        )
    return done.stdout
