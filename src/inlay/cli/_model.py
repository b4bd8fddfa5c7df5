"""What commands that take a model have in common: options, compiling, inputs, summaries."""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.base.diagnostics import error, unsupported
from inlay.base.instrument import Instrument, ListSink
from inlay.base.metadata import Metadata
from inlay.base.named_sizes import named_sizes
from inlay.base.options import add_arguments
from inlay.bytecode import formula
from inlay.bytecode.program import Entry
from inlay.bytecode.spec import TensorSpec, is_flat, leaves
from inlay.bytecode.writer import pieces
from inlay.cli._arrays import read_arrays
from inlay.cli._command import Output
from inlay.cli._externs import add_extern_argument, externs_in
from inlay.cli._files import files_read
from inlay.cli._numbers import MOST, integer
from inlay.cli._progress import watched
from inlay.cli._sizes import elements, guess, run_fitting, shape_of
from inlay.importers.limits import ImportLimits
from inlay.pipeline.options import CompileOptions
from inlay.runtime.chosen import usable_processors
from inlay.runtime.native import MODES, MOST_THREADS, Settings
from inlay.runtime.session import Executable, executable_of, load_executable


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to run.

    Attributes:
        executable: what runs.
        facts: the report of its compilation, as plain data.
        times: nanoseconds of passes and stages; empty for a saved executable.
        sources: the files that it was made of, which no output may replace.
    """

    executable: Executable
    facts: Mapping[str, Any]
    times: Mapping[str, int]
    sources: Sequence[str] = ()


MODEL = "a model (.onnx, .tflite), a program (.inl) or an executable (.inlay)"


def add_model_arguments(
    parser: argparse.ArgumentParser, *, needed: bool = True, meaning: str = MODEL, runs: bool = True
) -> None:
    """Declare the model (which may be left out if it is not needed), how it is compiled and run."""
    parser.add_argument("model", type=Path, nargs=None if needed else "?", help=meaning)
    parser.add_argument(
        "--threads", type=integer(1, MOST_THREADS), help="threads to run on; all processors by default"
    )
    if runs:
        parser.add_argument(
            "--mode",
            choices=MODES,
            help="one kernel after the other, as soon as their inputs are there, or in an order that "
            "--schedule picks; by default as the program suits, which `run` says",
        )
        parser.add_argument("--schedule", type=integer(0, MOST), metavar="SEED", help="of --mode replay")
    add_extern_argument(parser)
    parser.add_argument("--timings", action="store_true", help="print the time of every pass")
    add_arguments(parser, CompileOptions)
    add_arguments(parser, ImportLimits)


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where inputs come from."""
    parser.add_argument("--inputs", type=Path, metavar="X.npz", help="arrays by input name")
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=SIZE", help="size of a symbolic dim"
    )
    parser.add_argument("--seed", type=integer(0, MOST), default=0, help="of random inputs")


def prepare(
    arguments: argparse.Namespace, output: Output, *, trace: bool = False, races: bool = False
) -> Loaded:
    """Compile or load the model; show progress and, if asked, times.

    `trace` keeps events, `races` compares accesses.
    """
    settings = Settings(threads=usable_processors(), trace=trace, races=races)
    if arguments.model.suffix.lower() == ".inlay":
        executable = load_executable(
            arguments.model,
            threads=arguments.threads,
            mode=arguments.mode,
            seed=arguments.schedule,
            settings=settings,
            externs=externs_in(arguments.extern),
        )
        facts = json.loads(executable.program.properties.get("report", "{}"))
        return Loaded(executable, facts, {}, files_read(arguments))
    with watched(quiet=output.as_json) as (instrument, kept):
        compiled = compile_arguments(arguments, instrument)
        facts, externs, functions = compiled.report.to_json(), compiled.externs, compiled.functions
        sources = [*files_read(arguments, externs), *compiled.module.sources]
        parts = list(pieces(compiled.program, seals=False))
        del compiled  # weights go as they are packed into the executable
        with instrument.span("load-image"):
            executable = executable_of(
                parts,
                threads=arguments.threads,
                mode=arguments.mode,
                seed=arguments.schedule,
                settings=settings,
                externs=externs,
                callbacks=functions,
            )
    return Loaded(executable, facts, _times(arguments, output, kept), sources)


def compile_arguments(arguments: argparse.Namespace, instrument: Instrument) -> Any:
    """Compile the model as the arguments say; return the `Compilation`.

    The compiler is imported here: who loads an executable, or asks for help, does not wait for it.
    """
    compiling = importlib.import_module("inlay.cli._compiling")
    return compiling.compile_arguments(arguments, instrument)


def _times(arguments: argparse.Namespace, output: Output, kept: ListSink) -> dict[str, int]:
    times = kept.durations()
    if arguments.timings:
        for name, ns in times.items():
            output.say(f"  {name:24}{ns / 1e6:10.1f} ms")
    return times


def inputs_of(arguments: argparse.Namespace, executable: Executable) -> dict[str, np.ndarray]:
    """Return the inputs of a run: from a file, or random ones of the right types; first values of state."""
    entry = executable.entries[0]
    if not (is_flat(entry.inputs) and is_flat(entry.outputs)):
        inside = next(s for s in (*entry.inputs, *entry.outputs) if not isinstance(s, TensorSpec))
        raise unsupported(
            "entry.structure",
            f"'{inside.name}' is a {inside.type_text}, and the command line handles tensors",
            hint="call the program from Python: inlay.compile(path).run({name: value}), where a list "
            "is a list, an option None or its content, and a tuple a tuple",
        )
    begun = executable.first_state()
    if arguments.inputs is not None:
        return begun | read_arrays(arguments.inputs)
    return (
        _made(guess(executable.program, entry, named_sizes(arguments.dim, "--dim")).values, arguments, entry)
        | begun
    )


def _made(sizes: Sequence[int], arguments: argparse.Namespace, entry: Entry) -> dict[str, np.ndarray]:
    shapes = {spec: shape_of(spec, sizes) for spec in leaves(entry.inputs)}
    _check_sizes(shapes)
    return {spec.name: _random(spec, shape, arguments.seed) for spec, shape in shapes.items()}


def _check_sizes(shapes: Mapping[TensorSpec, tuple[int, ...]]) -> None:
    """Refuse inputs that this machine cannot hold, before the system ends what tries to."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for spec, shape in shapes.items():
        size = math.prod(shape) * max(dtypes.BY_NAME[spec.dtype].itemsize, 1)
        if size > most:
            raise error(
                "option.bad-value",
                f"found sizes that make input '{spec.name}' {spec.dtype}{list(shape)}, "
                f"{size_text(size)}; this machine has {size_text(most)}",
                hint="give smaller ones with --dim NAME=SIZE",
            )


def run_once(
    arguments: argparse.Namespace, executable: Executable, inputs: dict[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Run; return what was given and the outputs.

    Where sizes were guessed and a check of the program fails, others are tried (`_sizes`).
    """
    if arguments.inputs is not None:
        return inputs, executable.run(inputs)
    entry, begun = executable.entries[0], executable.first_state()
    return run_fitting(
        executable.run,
        lambda sizes: _made(sizes, arguments, entry) | begun,
        lambda sizes: elements(entry, sizes),
        guess(executable.program, entry, named_sizes(arguments.dim, "--dim")),
    )


def _random(spec: TensorSpec, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return random values of a type: floats in [0, 1), integers and booleans 0 or 1, words."""
    generator = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    dtype = dtypes.BY_NAME[spec.dtype]
    if dtype.is_float:
        return generator.random(shape, np.float32).astype(dtype.numpy)
    bits = generator.integers(0, 2, shape)
    return np.where(bits, "one", "zero") if dtype.is_host_only else bits.astype(dtype.numpy)


def describe_import(model: Path, facts: Mapping[str, Any], output: Output) -> None:
    """Say what was imported."""
    operators = facts.get("operators", {})
    total = counted(sum(operators.values()), "operator")
    each = ", ".join(f"{n} {name}" for name, n in sorted(operators.items(), key=lambda x: (-x[1], x[0])))
    output.say(f"{model.name}: {total}" + (f" ({each})" if each else ""))
    output.say(f"  constants: {size_text(facts.get('constant_bytes', 0))}")
    describe_metadata(Metadata.from_text(json.dumps(facts)), output)


def describe_metadata(said: Metadata, output: Output) -> None:
    """Say what the model says of itself, a line for each thing; long texts are cut."""
    producer = f"{said.producer} {said.producer_version}".strip()
    version = str(said.version) if said.version else ""
    for name, text in (
        ("graph", said.graph),
        ("producer", producer),
        ("domain", said.domain),
        ("model version", version),
        ("description", said.description),
        ("of the graph", said.graph_description),
        *((f"'{key}'", value) for key, value in said.properties.items()),
    ):
        if text:
            cut = text if len(text) <= 100 else f"{text[:97]}... ({len(text)} characters)"
            output.say(f"  {name}: {cut}")


def describe_placement(facts: Mapping[str, Any], output: Output, *, all_kernels: bool) -> None:
    """Say where each operation runs."""
    kernels = facts.get("kernels", [])
    by_device: dict[str, list[int]] = {}
    for kernel in kernels:
        by_device.setdefault(kernel["device"], []).append(kernel["calls"])
    for device, calls in by_device.items():
        invocations, of = counted(sum(calls), "invocation"), counted(len(calls), "kernel")
        output.say(f"  {device}: {invocations} of {of}")
    shown = kernels if all_kernels else kernels[:0]
    for kernel in shown:
        times = f" x{kernel['calls']}" if kernel["calls"] > 1 else ""
        output.say(f"    {kernel['device']:6} {kernel['name']}{times}: {kernel['origin']}")
    machine = facts.get("machine", {})
    if machine:
        each = ", ".join(f"{n} {name}" for name, n in machine.items())
        output.say(f"  virtual machine: {each}")
    describe_budget(facts, output)
    for line in tuned_lines(facts["tuned"]) if "tuned" in facts else ():
        output.say(f"  {line}")
    for fault in facts.get("faults", []):
        output.say(f"  {fault}")
    output.say(f"  native code: {size_text(facts.get('image_bytes', 0))}")


def describe_budget(facts: Mapping[str, Any], output: Output) -> None:
    """Say what a call takes of memories that have budgets."""
    budget = facts.get("budget", {})
    threads = budget.get("threads", 0)
    on = f" on {counted(threads, 'thread')}" if threads else ""
    for memory, size in budget.get("bytes", {}).items():
        takes = budget["takes"].get(memory, 0)
        text = f"takes at most {size_text(takes)}{on}" if takes else "nothing is there, so it has no effect"
        output.say(f"  budget of {memory}, {size_text(size)}: {text}")


def tuned_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Return what was used of a file of measurements as lines."""
    used = f"{counted(len(facts['kernels']), 'kernel')} and {counted(len(facts['products']), 'product')}"
    yield f"measured choices: used for {used}"
    yield from (f"not used: {counted(n, 'choice')}, {why}" for why, n in facts["others"].items())


def describe_copies(facts: Mapping[str, Any], output: Output) -> None:
    """Say which tensors are copied before they are updated, and why."""
    for copy in facts.get("copies", []):
        at = f"{copy['at']}: " if copy["at"] else ""
        output.say(f"  {at}{copy['message']}")


def describe_memory(
    facts: Mapping[str, Any], entry: Entry, inputs: Mapping[str, np.ndarray], output: Output
) -> None:
    """Say what the memory plan needs at its peak; of inner functions, over what dims of theirs."""
    sizes = sizes_of(entry, inputs)
    names = [s.name for s in entry.symbols]
    record: list[dict[str, Any]] = []
    for plan in facts.get("memory", []):
        block, bound, apart = (
            _evaluated(plan[what], names, sizes) for what in ("block_bytes", "lower_bound", "unshared_bytes")
        )
        gap = ""
        if isinstance(block, int) and isinstance(bound, int) and bound:
            gap = f", {(block / bound - 1) * 100:.1f} % above the lower bound"
        where = "" if plan["function"] == "main" else f" of {plan['function']}"
        output.say(
            f"  memory plan{where}: peak {size_text(block)} for {counted(plan['planned'], 'buffer')} "
            f"({size_text(apart)} unshared{gap}); "
            f"{counted(plan['counted'], 'buffer')} counted at run time"
        )
        known = block if isinstance(block, int) else None
        record.append({"function": plan["function"], "peak_bytes": known})
    output.record(memory=record)


def sizes_of(entry: Entry, inputs: Mapping[str, np.ndarray]) -> list[int]:
    """Return the sizes of the dims of an entry, in order, that inputs have."""
    sizes: list[int] = []
    for symbol in entry.symbols:
        array = inputs.get(entry.inputs[symbol.input].name)
        found = array.shape[symbol.axis] if array is not None else 0
        sizes.append(formula.evaluate(symbol.solution, [found, *sizes]) or 0)
    return sizes


def _evaluated(size: int | str, names: Sequence[str], sizes: Sequence[int]) -> int | str:
    """Return a size as a number; as it is where it depends on dims that only inner functions know."""
    if isinstance(size, int):
        return size
    try:
        value = formula.evaluate(formula.parse(size, names), sizes)
    except ValueError:
        return size
    return size if value is None else value


def counted(count: int, what: str) -> str:
    """Return a number of things."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def size_text(size: int | str) -> str:
    """Return bytes in the unit that fits; a formula of them as it is."""
    if isinstance(size, str):
        return f"{size} B"
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def describe_arrays(arrays: Mapping[str, np.ndarray], output: Output, *, what: str) -> None:
    """Summarize arrays, one line each."""
    for name, array in arrays.items():
        dtype = dtypes.from_numpy(array.dtype).name
        line = f"  {what} {name}: {dtype}{list(array.shape)}"
        if array.size and array.dtype.kind in "fiu":
            wide = array.astype(np.float64)
            finite = wide[np.isfinite(wide)]
            if finite.size:
                line += f"  min {finite.min():.6g}  mean {finite.mean():.6g}  max {finite.max():.6g}"
            if finite.size < wide.size:
                line += f"  ({wide.size - finite.size} not finite)"
        output.say(line)


def arrays_record(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the types of arrays as plain data."""
    return {
        name: {"dtype": dtypes.from_numpy(a.dtype).name, "shape": list(a.shape)} for name, a in arrays.items()
    }
