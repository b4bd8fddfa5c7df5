"""`inlay bench MODEL [--against onnxruntime]`: honest times, next to a peer's.

Both run the same inputs in the same process, in interleaved rounds, so that a slow moment of the
machine hits both. The first round is dropped. Outputs are compared before anything is timed: a fast
wrong answer has no time.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from inlay.api import load
from inlay.base.diagnostics import error, unsupported
from inlay.base.options import arguments_layer
from inlay.cli._calibrate import Inputs, calibrate
from inlay.cli._command import Command, Output
from inlay.cli._effects import COMPILING, LIMITS, of_model, refuse
from inlay.cli._externs import externs_in
from inlay.cli._files import check_outputs
from inlay.cli._model import add_input_arguments, add_model_arguments, inputs_of, prepare, run_once
from inlay.cli._numbers import integer, number
from inlay.cli._progress import ticking
from inlay.importers.limits import ImportLimits
from inlay.ir.module import Module

PEERS = ("onnxruntime",)
Runner = Callable[[], Mapping[str, np.ndarray]]


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, needed=False)
    parser.add_argument(
        "--calibrate",
        metavar="BOARD",
        help="measure operators and copies on the devices of a board, and those of MODEL if given; "
        "--calibration of other commands reads what this writes",
    )
    parser.add_argument("-o", "--output", type=Path, help="file of --calibrate")
    add_input_arguments(parser)
    parser.add_argument("--against", choices=PEERS, help="a peer to run next to it")
    parser.add_argument("--rounds", type=integer(1, 1_000_000), default=12, help="interleaved rounds")
    parser.add_argument("--seconds", type=number(86400), default=0.25, help="of each side in a round")
    parser.add_argument("--atol", type=number(), default=1e-4, help="of the comparison of outputs")
    parser.add_argument("--rtol", type=number(), default=1e-3, help="of the comparison of outputs")


def _rules(arguments: argparse.Namespace) -> Iterator[tuple[bool, Iterable[str], str]]:
    """Yield which arguments do nothing, and when."""
    measures = arguments.calibrate is not None
    running = (*COMPILING, "mode", "schedule", "threads", "against", "rounds", "atol", "rtol")
    yield measures, running, "beside --calibrate"
    yield (
        measures and arguments.model is None,
        ("inputs", "dim", "seed", "extern", *LIMITS),
        "without a model",
    )
    yield not measures, ("output",), "without --calibrate: it names what that writes"
    yield not measures and arguments.against is None, ("atol", "rtol"), "without --against"
    yield from () if measures else of_model(arguments)


def _run(arguments: argparse.Namespace, output: Output) -> int:
    refuse(arguments, *_rules(arguments))
    if arguments.threads is None:
        arguments.threads = 1
    if arguments.calibrate is not None:
        name = Path(arguments.calibrate).stem
        path = arguments.output or Path(f"{name}.calibration.json")
        check_outputs(arguments, path)
        models: list[tuple[Module, Inputs]] = []
        if arguments.model is not None:
            limits = arguments_layer(arguments, ImportLimits).values
            module = load(arguments.model, externs=externs_in(arguments.extern), **limits)
            models.append((module, partial(inputs_of, arguments)))
        calibrate(arguments.calibrate, path, arguments.seconds, output, *models)
        return 0
    if arguments.model is None:
        raise error("option.bad-value", "found no model to measure", hint="inlay bench MODEL")
    if arguments.output is not None:
        raise error(
            "option.bad-value",
            f"found --output {arguments.output} without --calibrate BOARD",
            hint="measured times of a model are printed, with --json as one object",
        )
    loaded = prepare(arguments, output)
    inputs, _ = run_once(arguments, loaded.executable, inputs_of(arguments, loaded.executable))
    runners: dict[str, Runner] = {"inlay": lambda: loaded.executable.run(inputs)}
    if arguments.against == "onnxruntime":
        runners["onnxruntime"] = onnxruntime_runner(arguments.model, inputs, arguments.threads)
        difference = compare(runners["inlay"](), runners["onnxruntime"](), arguments.atol, arguments.rtol)
        output.say(f"outputs agree: largest difference {difference:.3g}")
        output.record(largest_difference=difference)
    times = measure(runners, arguments.rounds, arguments.seconds, quiet=output.as_json)
    for name, values in times.items():
        output.say(
            f"{name:12} {statistics.median(values) * 1e3:9.3f} ms  "
            f"(rounds from {min(values) * 1e3:.3f} to {max(values) * 1e3:.3f})"
        )
    output.record(
        threads=arguments.threads, milliseconds={n: statistics.median(v) * 1e3 for n, v in times.items()}
    )
    if len(times) == 2:
        ratios = ratios_of(times["inlay"], times["onnxruntime"])
        middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
        output.say(f"ratio to onnxruntime: {middle:.2f} (rounds from {low:.2f} to {high:.2f})")
        output.record(ratio=middle, ratio_low=low, ratio_high=high)
    return 0


def onnxruntime_runner(model: Any, inputs: Mapping[str, np.ndarray], threads: int) -> Runner:
    """Return a function that runs the model in onnxruntime.

    Raises:
        UnsupportedError: `bench.no-peer` where it is not installed.
        CompileError: `bench.peer-format` where the model is no ONNX file, or the peer refuses it.
    """
    if model.suffix.lower() != ".onnx":
        raise error("bench.peer-format", f"found {model.name}, needed an .onnx file to run a peer")
    try:
        onnxruntime: Any = importlib.import_module("onnxruntime")
    except ImportError:
        raise unsupported(
            "bench.no-peer",
            "onnxruntime is not installed",
            hint="install the extra: pip install 'inlay-compiler[bench]'",
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            constant_weights(model), options, providers=["CPUExecutionProvider"]
        )
    except Exception as failure:
        reason = str(failure).splitlines()[0]
        raise error("bench.peer-format", f"onnxruntime refuses {model.name}: {reason}") from failure
    names = [o.name for o in session.get_outputs()]
    given = dict(inputs)
    return lambda: dict(zip(names, session.run(names, given), strict=True))


def constant_weights(path: Path) -> str | bytes:
    """Return the model for a peer, changed so that its weights are constants.

    Old models list their weights among the inputs, and onnxruntime then folds nothing into them: on
    such a model it would be measured at half its speed. We take weights as constants; so may the
    peer. Other models are given as they are.
    """
    onnx: Any = importlib.import_module("onnx")
    model = onnx.load(path, load_external_data=False)
    weights = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    if len(inputs) == len(model.graph.input) or any(
        t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer
    ):
        return str(path)
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)
    return model.SerializeToString()


def compare(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], atol: float, rtol: float
) -> float:
    """Return the largest difference.

    Raises:
        CompileError: `bench.different` where outputs do not agree.
    """
    largest = 0.0
    for name, expected in theirs.items():
        found = np.asarray(ours[name])
        if found.shape != expected.shape:
            raise error(
                "bench.different",
                f"output '{name}' has shape {list(found.shape)}, the peer's {list(expected.shape)}",
            )
        if expected.dtype.kind not in "fiub":
            continue
        a, b = found.astype(np.float64), expected.astype(np.float64)
        if not np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
            raise error(
                "bench.different",
                f"output '{name}' differs from the peer's by {np.nanmax(np.abs(a - b)):.3g}",
                hint="times of different results are not comparable; report this model",
            )
        if a.size:
            largest = max(largest, float(np.nanmax(np.abs(a - b))))
    return largest


def measure(
    runners: Mapping[str, Runner], rounds: int, seconds: float, *, quiet: bool
) -> dict[str, list[float]]:
    """Return for each runner the median time of a run in each round."""
    times: dict[str, list[float]] = {name: [] for name in runners}
    with ticking("round", rounds, quiet=quiet) as tick:
        for index in range(rounds + 1):
            for name, run in runners.items():
                median = _one_round(run, seconds)
                if index:
                    times[name].append(median)
            tick(index)
    return times


def _one_round(run: Runner, seconds: float) -> float:
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < end:
        begun = time.perf_counter()
        run()
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


def ratios_of(ours: list[float], theirs: list[float]) -> list[float]:
    """Return our time over the peer's, round by round."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


COMMAND = Command(_arguments, _run)
