"""A session: a model, compiled once, and run by names of inputs and outputs.

    session = InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x})

The provider `CPUExecutionProvider` is the board `host`. `InlayExecutionProvider` is whatever its
options say, which are those of `inlay.compile`: `("InlayExecutionProvider", {"board": "opencl"})`.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import onnx

from inlay.api import compilation
from inlay.arith import dtype as dtypes
from inlay.bytecode.spec import OptionSpec, Spec, TensorSpec
from inlay.bytecode.writer import pieces
from inlay.compat.onnxruntime.binding import IOBinding
from inlay.compat.onnxruntime.failures import InvalidArgument, NotOffered, as_theirs
from inlay.compat.onnxruntime.options import (
    ExecutionMode,
    RunOptions,
    SessionOptions,
    check,
    flag_of,
    threads_of,
)
from inlay.compat.onnxruntime.values import ModelMetadata, NodeArg, OrtValue, values_of
from inlay.importers.onnx.external import ExternalFiles
from inlay.importers.onnx.graph import import_model
from inlay.importers.onnx.load import parse_model, read_parts
from inlay.ops.table import table
from inlay.pipeline.externs import with_externs
from inlay.runtime.chosen import usable_processors
from inlay.runtime.native import Settings, limited
from inlay.runtime.session import Executable, executable_of
from inlay.runtime.trace import queue_names, timeline

CPU = "CPUExecutionProvider"
INLAY = "InlayExecutionProvider"
_NONE: Mapping[Any, Any] = {}
_CPU_HINTS = ("arena_extend_strategy", "use_arena")

_OF_PYTHON = (list, tuple, int, float, str)

Provider = str | tuple[str, Mapping[Any, Any]]


def get_available_providers() -> list[str]:
    """Return the providers that a session may have."""
    return [INLAY, CPU]


class InferenceSession:
    """A compiled model with the interface of onnxruntime's class of this name.

    Attributes:
        defaults: options of `inlay.compile` for every session of the class.
    """

    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Compile a model.

        Args:
            path_or_bytes: a file of any name, or its bytes.
            sess_options: threads and the like; see `SessionOptions`.
            providers: names, or names with options; the processor by default. Those that are not
                available are passed over with a warning.
            provider_options: options in the order of `providers`.
            kwargs: `enable_fallback` and `disabled_optimizers`, which are hints.

        Raises:
            NoSuchFile, InvalidProtobuf, InvalidGraph: there is no model, or it is wrong.
            NotImplemented: Inlay has no such operator or option.
            InvalidArgument: an option has a value that it cannot have.
        """
        unknown = sorted(kwargs.keys() - {"enable_fallback", "disabled_optimizers"})
        if unknown:
            raise TypeError(f"InferenceSession knows no arguments {', '.join(unknown)}")
        self._options = SessionOptions() if sess_options is None else sess_options
        if not isinstance(self._options, SessionOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(
                f"the options are a {type(sess_options).__module__}.{type(sess_options).__name__}, not "
                f"of {SessionOptions.__module__}"
            )
        check(self._options)
        self._providers = _chosen(providers, provider_options)
        with as_theirs():
            model = self._compiled(path_or_bytes)
            self._metadata = ModelMetadata.of(model)
        constants = {t.name for t in model.graph.initializer}
        args = [NodeArg.of(i) for i in model.graph.input]
        self._inputs = [a for a in args if a.name not in constants]
        self._constants = [a for a in args if a.name in constants]
        found = {s.name: s for s in self._executable.outputs}
        listed = [o for o in model.graph.output if o.name in found]
        self._outputs = [NodeArg.of(o).completed(found[o.name]) for o in listed]
        self._specs = {s.name: s for s in self._executable.inputs}
        self._begun = time.time_ns()

    def _compiled(self, source: Any) -> onnx.ModelProto:
        """Compile a model; return it, without large initializers where it is a file."""
        model, files = _model(source)
        _fix_dims(model, *self._options.sizes)
        options = {**self.defaults, **next(iter(self._providers.values()))}
        externs = options.pop("externs", ())
        operators = with_externs(table(), externs)
        compiled = compilation(import_model(model, operators, files=files), externs=externs, **options)
        kept, functions, sources = compiled.externs, compiled.functions, compiled.module.sources
        parts = list(pieces(compiled.program, seals=False))
        del files, compiled  # weights go as they are packed into the executable
        is_parallel = self._options.execution_mode is ExecutionMode.ORT_PARALLEL
        self._executable = executable_of(
            parts,
            threads=threads_of(self._options) or usable_processors(),
            mode="parallel" if is_parallel else None,
            externs=kept,
            callbacks=functions,
            made_from=sources,
            settings=Settings(trace=self._options.enable_profiling),
        )
        return model

    @property
    def executable(self) -> Executable:
        """What runs."""
        return self._executable

    # ------------------------------------------------------------------ running

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Return outputs in the order in which they are named; all where none is.

        Args:
            output_names: which; None or nothing for all, in the order of the model.
            input_feed: arrays by name, or lists of numbers, which get the type of the input; a list of
                arrays for a sequence, None for an optional without a value.
            run_options: see `RunOptions`.

        Raises:
            ValueError: an input is missing.
            InvalidArgument: an input does not fit, or there is no such input or output.
            RuntimeException: running fails.
            Fail: `run_options` say to stop.
        """
        names = [o.name for o in self._outputs]
        asked = list(output_names) if output_names else names
        unknown = [name for name in asked if name not in names]
        if unknown:
            raise InvalidArgument(f"Invalid output name: {unknown[0]}; there are {', '.join(names)}")
        self._check_given(input_feed)
        feed = {n: self._as_input(n, v) for n, v in values_of(input_feed).items()}
        flag = flag_of(run_options)
        with as_theirs():
            if flag is None:
                found = self._executable.run(feed)
            else:
                found = limited(flag, 0, lambda: self._executable.run(feed))
        return [found[name] for name in asked]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Return outputs as `run` does, each as an `OrtValue`."""
        return [OrtValue(v) for v in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """Return a list of inputs and outputs to be filled, for `run_with_iobinding`."""
        return IOBinding(self._checked_input, tuple(o.name for o in self._outputs))

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on what is bound; outputs are in the binding, and in the memory that is bound to them."""
        names = iobinding.asked()
        iobinding.fill(names, self.run(names, iobinding.feed(), run_options))

    def _checked_input(self, name: str) -> None:
        if name not in self._specs:
            raise InvalidArgument(f"Invalid input name: {name}; there are {', '.join(self._specs)}")

    def _check_given(self, feed: Mapping[str, Any]) -> None:
        for name in feed:
            if any(a.name == name for a in self._constants):
                raise NotOffered(f"input '{name}' has a value in the model, which is kept")
            self._checked_input(name)
        specs = self._specs.items()
        missing = [n for n, s in specs if n not in feed and not isinstance(s, OptionSpec)]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")

    def _as_input(self, name: str, value: Any) -> Any:
        """Return lists and numbers of Python as arrays of the type of the input."""
        spec: Spec = self._specs[name]
        if not isinstance(spec, TensorSpec) or not isinstance(value, _OF_PYTHON):
            return value
        dtype = dtypes.BY_NAME[spec.dtype]
        try:
            return np.array(value, dtype.numpy)
        except (ValueError, TypeError, OverflowError) as failure:
            raise InvalidArgument(f"input '{name}' is no {spec.type_text}: {failure}") from None

    # ------------------------------------------------------------------ what it is

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs that a run needs."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return nothing: what the model stores is compiled into the program."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """Return what the model says of itself."""
        return self._metadata

    def get_session_options(self) -> SessionOptions:
        """Return the options that the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """Return the providers of the session, the one that was asked for first."""
        return list(dict.fromkeys((*self._providers, CPU)))

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of the providers, as text."""
        given = {n: {str(k): str(v) for k, v in o.items()} for n, o in self._providers.items()}
        return {CPU: {}, **given}

    def set_providers(
        self,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
    ) -> None:
        """Accept the providers that the session has; others need another session.

        Raises:
            NotImplemented: others are named.
        """
        if _chosen(providers, provider_options) != self._providers:
            raise NotOffered("providers are chosen when a session is made; make another one")

    def disable_fallback(self) -> None:
        """Do nothing: a failed run is never tried elsewhere."""

    def enable_fallback(self) -> None:
        """Do nothing: a failed run is never tried elsewhere."""

    def get_profiling_start_time_ns(self) -> int:
        """Return when the session was made, in nanoseconds since 1970."""
        return self._begun

    def end_profiling(self) -> str:
        """Write what ran until now as a timeline for Perfetto or Chrome; return the name of the file.

        Raises:
            InvalidArgument: the session was made without `enable_profiling`.
        """
        if not self._options.enable_profiling:
            raise InvalidArgument("the session was made without the option 'enable_profiling'")
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.gmtime())
        name = f"{self._options.profile_file_prefix}_{stamp}.json"
        events = self._executable.events()
        rows = queue_names(self._executable.program)
        Path(name).write_text(json.dumps(timeline(events, rows)), encoding="utf-8")
        return name


def _chosen(
    providers: Sequence[Provider] | None, options: Sequence[Mapping[Any, Any]] | None
) -> dict[str, dict[str, Any]]:
    """Return the available providers with options of `inlay.compile`, the first one deciding.

    Raises:
        ValueError: there are not as many options as providers.
        InvalidArgument: the processor is given an option that it does not have.
    """
    if options is not None and len(options) != len(providers or ()):
        counts = f"{len(providers or ())} providers and {len(options)} provider_options"
        raise ValueError(f"found {counts}; they should be the same length if both are given")
    chosen: dict[str, dict[str, Any]] = {}
    for index, provider in enumerate(providers or (CPU,)):
        name, own = provider if isinstance(provider, tuple) else (provider, _NONE)
        given: dict[Any, Any] = {**own, **(options[index] if options else {})}
        if name not in get_available_providers():
            listed = ", ".join(get_available_providers())
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names. "
                f"Available providers: '{listed}'",
                stacklevel=3,
            )
            continue
        if name == CPU:
            unknown = [k for k in given if k not in _CPU_HINTS]
            if unknown:
                raise InvalidArgument(f"{CPU} has no option '{unknown[0]}'")
            given = {}
        chosen.setdefault(name, given)
    return chosen or {CPU: {}}


def _model(source: Any) -> tuple[onnx.ModelProto, ExternalFiles]:
    """Return a model and the files that it may name."""
    if isinstance(source, bytes | bytearray | memoryview):
        return parse_model(bytes(cast("bytes", source)), "bytes"), ExternalFiles()
    if isinstance(source, str | os.PathLike):
        file = Path(cast("str", source))
        model, stored = read_parts(file)
        return model, ExternalFiles.beside(file, stored)
    raise TypeError(f"Unable to load from type '{type(source)}'")


def _fix_dims(model: onnx.ModelProto, names: Mapping[str, int], kinds: Mapping[str, int]) -> None:
    """Give symbolic dims of the inputs the sizes that the options name.

    Raises:
        InvalidArgument: no dim of the inputs has such a name or denotation.
    """
    tensors = [i.type.tensor_type for i in model.graph.input if i.type.HasField("tensor_type")]
    dims = [d for t in tensors for d in t.shape.dim]
    for sizes, field in ((names, "dim_param"), (kinds, "denotation")):
        for name, size in sizes.items():
            found = [d for d in dims if getattr(d, field) == name]
            if not found:
                raise InvalidArgument(f"no dim of the inputs is called '{name}', which is to be {size}")
            for dim in found:
                dim.dim_value = size
