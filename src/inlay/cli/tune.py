"""`inlay tune MODEL --db FILE`: measure what the compiler else estimates, and keep what is faster.

Kernels are measured one by one, those that take most of a run first, until all is tried or time is over;
the file has all of it after each step, and another run goes on. `--tuned FILE` of other commands uses it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from inlay.api import compilation
from inlay.base.diagnostics import error
from inlay.base.instrument import Instrument
from inlay.cli._command import Command, Output
from inlay.cli._compiling import module_in, options_in
from inlay.cli._effects import of_model, refuse
from inlay.cli._files import check_outputs
from inlay.cli._model import add_input_arguments, add_model_arguments, counted, inputs_of, run_once, sizes_of
from inlay.cli._numbers import number
from inlay.cli._progress import watched
from inlay.codegen.cache import ObjectCache
from inlay.ir.module import Module
from inlay.pipeline.compile import Compilation, host_generator
from inlay.pipeline.options import CompileOptions
from inlay.pipeline.planning import place_of
from inlay.pipeline.tuning import Subjects, Tuner, Tuning, subjects_of
from inlay.runtime.chosen import usable_processors
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable, executable_of
from inlay.runtime.trace import EventKind
from inlay.tune.database import Database
from inlay.tune.rounds import Timed, timed

_INTERRUPTED = 130
_RUNS = 5
"""Of the program, of which the least time of each kernel counts."""
_ROUNDS_NS = 10e9
"""Time for the rounds in which the whole program is compared, at most about."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, meaning="a model (.onnx, .tflite) or a program (.inl)", runs=False)
    add_input_arguments(parser)
    parser.add_argument(
        "--db",
        type=Path,
        required=True,
        metavar="FILE",
        help="the file of measurements, made where there is none; several processes may use it at once",
    )
    parser.add_argument(
        "--minutes", type=number(1_000_000), default=5.0, help="after which to end; 5 by default"
    )


def _run(arguments: argparse.Namespace, output: Output) -> int:
    refuse(
        arguments,
        *of_model(arguments),
        (True, ("tuned",), "here: what is measured is held against the estimates"),
        (True, ("batch",), "here: kernels of which several calls may run as one are not tuned"),
    )
    check_outputs(arguments, arguments.db)
    begun = time.monotonic()
    options = replace(options_in(CompileOptions, arguments), tuned="")
    threads: int = arguments.threads or usable_processors()
    with watched(quiet=output.as_json) as (instrument, kept):
        module = module_in(arguments, instrument)
        compiled = _compiled(module, options, threads, instrument)
        executable = _executable(compiled, threads, trace=True)
        inputs, _ = run_once(arguments, executable, inputs_of(arguments, executable))
        with instrument.span("subjects"):
            setting = compiled.run.setting
            entry = executable.entries[0]
            sizes = dict(zip((s.name for s in entry.symbols), sizes_of(entry, inputs), strict=True))
            times = _kernel_times(executable, inputs)
            subjects = subjects_of(compiled.run.loaded, setting, times, sizes)
    if arguments.timings:
        for name, ns in kept.durations().items():
            output.say(f"  {name:24}{ns / 1e6:10.1f} ms")
    if not subjects.found:
        raise _nothing(subjects)
    whole = sum(times.values())
    share = sum(s.ns for s in subjects.found) / max(whole, 1.0)
    output.say(
        f"{arguments.model.name}: {counted(len(subjects.found), 'kernel')} to tune on "
        f"{counted(threads, 'thread')}, {share:.0%} of {whole / 1e6:.3f} ms in kernels"
    )
    deadline = begun + 60 * arguments.minutes
    run = _Tuned(compiled, options, subjects, threads, deadline)
    found, is_interrupted = run.all(arguments.db, output)
    _describe(found, subjects, arguments.db, output)
    output.record(model=str(arguments.model), db=str(arguments.db), threads=threads, kernels_ns=whole)
    if is_interrupted:
        output.say(f"interrupted: what was measured is in {arguments.db}")
    elif any(t.saves_ns for t in found):
        tuned = _compiled(module, replace(options, tuned=str(arguments.db)), threads, Instrument())
        _compare(executable.run(inputs), compiled, tuned, inputs, threads, output)
    output.record(seconds=time.monotonic() - begun)
    return _INTERRUPTED if is_interrupted else 0


@dataclass(frozen=True, slots=True)
class _Tuned:
    """What the kernels of a program are tuned with."""

    compiled: Compilation
    options: CompileOptions
    subjects: Subjects
    threads: int
    deadline: float

    def all(self, file: Path, output: Output) -> tuple[list[Tuning], bool]:
        """Return what came of the kernels until time was over, and whether somebody interrupted it."""
        found: list[Tuning] = []
        with watched(quiet=output.as_json) as (instrument, _):
            database = Database(file)
            try:
                for tuning in self._each(database, instrument):
                    found.append(tuning)
                    for line in _lines(tuning):
                        output.say(line)
            except KeyboardInterrupt:
                return found, True
            finally:
                database.close()
        return found, False

    def _each(self, database: Database, instrument: Instrument) -> Iterator[Tuning]:
        setting, folder = self.compiled.run.setting, self.options.cache_folder
        cache = None if folder is None else ObjectCache(folder)
        _, generator = host_generator(setting.board, cache)
        place = place_of(setting.board, setting.targets, self.threads)
        total = self.subjects.constant_bytes

        def told(count: int) -> None:
            instrument.progress("choices", count, 0)

        tuner = Tuner(setting, generator, database, place, self.deadline, total, told)
        for subject in self.subjects.found:
            with instrument.span(f"measure {subject.name}"):
                tuning = tuner.tune(subject)
            yield tuning
            if tuner.is_late:
                return


def _compiled(module: Module, options: CompileOptions, threads: int, instrument: Instrument) -> Compilation:
    values = {f.name: getattr(options, f.name) for f in fields(options)}
    return compilation(module, instrument=instrument, threads=threads, **values)


def _executable(compiled: Compilation, threads: int, *, trace: bool = False) -> Executable:
    return executable_of(
        compiled.program,
        settings=Settings(threads=threads, trace=trace),
        mode="sequential",
        externs=compiled.externs,
        callbacks=compiled.functions,
    )


def _kernel_times(executable: Executable, inputs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return what all calls of each kernel take in a run, in nanoseconds."""
    least: dict[str, float] = {}
    executable.events()
    for _ in range(_RUNS):
        executable.run(inputs)
        spans: dict[tuple[str, int, int], tuple[int, int]] = {}
        for e in executable.events():
            if e.kind is EventKind.RUN and not e.device:
                begin, end = spans.get((e.name, e.call, e.number), (e.begin, e.end))
                spans[e.name, e.call, e.number] = min(begin, e.begin), max(end, e.end)
        times: dict[str, float] = {}
        for (name, _, _), (begin, end) in spans.items():
            times[name] = times.get(name, 0.0) + end - begin
        least = {n: min(ns, least.get(n, ns)) for n, ns in times.items()}
    return least


def _nothing(subjects: Subjects) -> Exception:
    listed = [f"{name}: {why}" for name, why in list(subjects.without.items())[:4]]
    sizes = any("computes its size" in why for why in subjects.without.values())
    return error(
        "tune.unknown-size" if sizes else "tune.nothing",
        "found no kernel that can be measured",
        notes=listed or ["the program has no kernels"],
    )


# --------------------------------------------------------------------------- words


def _lines(t: Tuning) -> Iterator[str]:
    """Return what came of a kernel as lines."""
    kept = [f"{c.choice} ({c.gain:.1%})" for c in (t.product, t.kernel) if c is not None]
    rest = "" if t.is_done else "; not all was tried"
    found = "; ".join(kept) or ("as estimated" if t.is_done else "nothing so far")
    yield f"  {t.subject.ns / 1e3:9.1f} us  {t.subject.name}: {found}{rest}"
    yield from (f"{'':14}dropped {choice}: {why}" for choice, why in t.dropped)


def _describe(found: Sequence[Tuning], subjects: Subjects, file: Path, output: Output) -> None:
    saves, tried = sum(t.saves_ns for t in found), sum(t.tried for t in found)
    done = sum(t.is_done for t in found)
    output.say(
        f"{counted(tried, 'choice')} measured, {done} of {counted(len(subjects.found), 'kernel')} done; "
        f"kernels alone save {saves / 1e3:.1f} us of a run; {file}"
    )
    if done < len(subjects.found):
        output.say("run the same command again to go on")
    reasons = list(dict.fromkeys(subjects.without.values()))
    for why in reasons:
        names = [n for n, w in subjects.without.items() if w == why]
        output.say(f"  not tuned: {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}: {why}")
    output.record(
        tuned=[_record(t) for t in found],
        without=dict(subjects.without),
        tried=tried,
        done=done,
        kernels=len(subjects.found),
        saves_ns=saves,
    )


def _record(t: Tuning) -> dict[str, Any]:
    kept = {"product": t.product, "kernel": t.kernel}
    return {
        "kernel": t.subject.name,
        "origin": t.subject.origin,
        "ns": t.subject.ns,
        "saves_ns": t.saves_ns,
        "tried": t.tried,
        "done": t.is_done,
        "kept": {
            name: {"choice": dict(x.choice.values), "ns": x.ns, "default_ns": x.default_ns, "noise": x.noise}
            for name, x in kept.items()
            if x is not None
        },
        "dropped": [{"choice": dict(c.values), "reason": why} for c, why in t.dropped],
    }


def _compare(
    expected: Mapping[str, Any],
    default: Compilation,
    tuned: Compilation,
    inputs: Mapping[str, np.ndarray],
    threads: int,
    output: Output,
) -> None:
    """Say how long the whole program takes by estimates and as it was measured to be best."""
    ours, other = (_executable(c, threads) for c in (default, tuned))
    difference = _difference(expected, other.run(inputs))

    def run(executable: Executable) -> float:
        begun = time.perf_counter_ns()
        executable.run(inputs)
        return time.perf_counter_ns() - begun

    least = max(1.0, min(run(ours), run(ours)))
    rounds = max(5, min(31, int(_ROUNDS_NS / (6 * least))))
    found: Timed = timed(lambda: run(ours), [lambda: run(other)], rounds)
    (ns,) = found.ns
    output.say(
        f"the program takes {ns / 1e6:.3f} ms instead of {found.default_ns / 1e6:.3f} ms "
        f"({found.default_ns / ns:.3f} times as fast, noise {found.noise:.1%}); largest difference of "
        f"outputs {difference:.2g}, of the largest magnitude"
    )
    output.record(
        default_ns=found.default_ns, tuned_ns=ns, noise=found.noise, rounds=rounds, difference=difference
    )


def _difference(expected: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """Return the largest difference of floats, as a share of the largest magnitude of an output."""
    most = 0.0
    for name, value in expected.items():
        a = np.asarray(value)
        if a.dtype.kind in "fiu" and a.size:
            wide, other = a.astype(np.float64), np.asarray(found[name]).astype(np.float64)
            scale = float(np.nanmax(np.abs(wide), initial=0.0)) or 1.0
            most = max(most, float(np.nanmax(np.abs(wide - other), initial=0.0)) / scale)
    return most


COMMAND = Command(_arguments, _run)
