"""The facade: from a file to a module, from a module to an executable."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, overload

import onnx

from inlay.analysis.infer_types import infer_types
from inlay.arith.dtype import BY_NAME, DType, near
from inlay.arith.expr import Int
from inlay.base.diagnostics import Collector, InlayError, error
from inlay.base.files import text_of
from inlay.base.garbage import paused
from inlay.base.instrument import SILENT, Instrument
from inlay.base.options import Layer, resolve
from inlay.base.registry import did_you_mean, nearest
from inlay.bytecode.container import MAGIC
from inlay.bytecode.writer import pieces
from inlay.importers.limits import ImportLimits, too_large
from inlay.importers.onnx.external import ExternalFiles
from inlay.importers.onnx.graph import import_model, load_model
from inlay.importers.onnx.load import model_of
from inlay.importers.tflite import graph as tflite
from inlay.importers.tflite.schema import is_tflite
from inlay.ir import make
from inlay.ir.entry_state import check_states
from inlay.ir.module import Module, require_entry
from inlay.ir.parser import parse_module
from inlay.ir.prelude import prelude, with_prelude
from inlay.ir.types import TensorType
from inlay.machine.board import Board
from inlay.ops.table import OperatorTable, table
from inlay.pipeline.compile import Compilation, compile_module
from inlay.pipeline.explain.fusion import FusionExplanation
from inlay.pipeline.explain.loops import LoopsExplanation
from inlay.pipeline.explain.memory import MemoryExplanation
from inlay.pipeline.explain.numerics import NumericsExplanation
from inlay.pipeline.explain.views import Explained, explained
from inlay.pipeline.externs import rebind, with_externs
from inlay.pipeline.fixed_dims import with_bounds, with_dims
from inlay.pipeline.options import CompileOptions, PlaceOptions
from inlay.pipeline.outputs import with_outputs
from inlay.placement.explain.reasons import Explanation
from inlay.runtime.chosen import check_threads
from inlay.runtime.extern import Extern
from inlay.runtime.native import Mode
from inlay.runtime.session import Executable, executable_of

_SUFFIXES = (".onnx", ".tflite", ".inl")
_OF_TFLITE = ("max_file_bytes", "max_nodes")

Source: TypeAlias = (
    str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | IO[str] | onnx.ModelProto
)
"""What a program is loaded from."""


def load(
    source: Source,
    *,
    externs: Sequence[Extern] = (),
    folder: str | os.PathLike[str] | None = None,
    instrument: Instrument = SILENT,
    **limits: int,
) -> Module:
    """Return the program in a file, in bytes or in a model.

    Args:
        source: a path of an ONNX model (`.onnx`), of a TFLite model (`.tflite`) or of the text form of
            a program (`.inl`); the bytes of a model, or an `onnx.ModelProto`; or an open file, which is
            a model where it gives bytes and a program where it gives text.
        externs: operators of your own that the program may use (`inlay.extern`).
        folder: where data is that a model given without a path keeps outside of it.
        instrument: where times go.
        limits: how large a model may be; see `inlay.importers.limits.ImportLimits`.

    Raises:
        CompileError: `extern.*`, `load.missing`, `load.unknown-format`, `load.not-text`, and what
            reading the format raises.
        OSError: an open file cannot be read.
    """
    settings = resolve(ImportLimits, Layer("keywords", limits), beside=("externs", "folder")).options
    operators = with_externs(table(), externs)
    named = isinstance(source, str | os.PathLike)
    with paused(), instrument.span("load", path=str(source) if named else ""):
        found = _content(source, settings)
        if folder is not None:
            _check_folder(found, os.fspath(folder))
        match found:
            case Path() as file if file.suffix.lower() == ".onnx":
                module = load_model(file, operators, settings)
                return replace(module, sources=(str(file), *module.sources))
            case Path() as file if file.suffix.lower() == ".tflite":
                _check_limits(_without(limits, *_OF_TFLITE), f"{file} is a TFLite model")
                module = tflite.load_model(file, operators, settings)
                return replace(module, sources=(str(file),))
            case Path() as file:
                _check_limits(limits, f"{file} is the text of a program")
                module = _parsed(text_of(file), operators, str(file))
                return replace(module, sources=(str(file),))
            case str() as text:
                _check_limits(_without(limits, "max_file_bytes"), "it is text")
                return _parsed(text, operators, "text")
            case bytes() as content if is_tflite(content):
                _check_limits(_without(limits, *_OF_TFLITE), "it is a TFLite model")
                return tflite.import_bytes(content, operators, settings)
            case content:
                files = ExternalFiles(() if folder is None else (Path(folder).resolve(),))
                model = model_of(content, "the model")
                return import_model(model, operators, files=files, limits=settings)


def _check_folder(found: Path | str | bytes | onnx.ModelProto, folder: str) -> None:
    """Refuse the folder of data of a model that is a file, or has all its data in it.

    Raises:
        CompileError: `option.bad-value`, `option.no-effect`.
    """
    if isinstance(found, Path):
        raise error(
            "option.bad-value",
            f"found folder={folder!r} for the file {found}, whose folder is known",
            hint="leave it out",
        )
    if isinstance(found, str) or (isinstance(found, bytes) and is_tflite(found)):
        kind = "text" if isinstance(found, str) else "a TFLite model"
        raise error(
            "option.no-effect",
            f"found folder={folder!r}, which does nothing here: the program is {kind}",
            hint="leave it out",
        )


def _content(source: Source, limits: ImportLimits) -> Path | str | bytes | onnx.ModelProto:
    """Return a file that exists and has a known format, the text of a program, or a model.

    Raises:
        CompileError: `load.*`, `import.too-large`.
    """
    match source:
        case str() | os.PathLike():
            return _checked(Path(source))
        case onnx.ModelProto():
            return source
        case bytes() | bytearray() | memoryview():
            found = bytes(source)
        case _ if hasattr(source, "read"):
            # A byte more than is allowed shows that there is more, and no more is read.
            found = source.read(limits.max_file_bytes + 1)
        case _:
            raise error(
                "load.unknown-format",
                f"found an object of type {type(source).__name__}, needed a path, bytes, an open "
                "file or an onnx.ModelProto",
            )
    if len(found) > limits.max_file_bytes:
        raise too_large("the model has", limits.max_file_bytes, "bytes", "max_file_bytes")
    if isinstance(found, bytes) and found.startswith(MAGIC):
        raise _executable("an executable")
    return found


def _without(limits: Mapping[str, int], *names: str) -> dict[str, int]:
    return {k: v for k, v in limits.items() if k not in names}


def _check_limits(limits: Mapping[str, int], why: str) -> None:
    """Refuse limits of ONNX models for what is none.

    Raises:
        CompileError: `option.no-effect`.
    """
    if limits:
        listed = ", ".join(limits)
        raise error("option.no-effect", f"found {listed}, which does nothing here: {why}")


def _checked(file: Path) -> Path:
    """Return the path of a program.

    Raises:
        CompileError: `load.executable`, `load.unknown-format`, `load.missing`.
    """
    if file.is_dir():
        raise error("load.missing", f"found the folder {file}, needed a file of a program")
    suffix = file.suffix.lower()
    if suffix == ".inlay":
        raise _executable(f"the executable {file}")
    if suffix not in _SUFFIXES:
        close = nearest(file.suffix, _SUFFIXES)
        raise error(
            "load.unknown-format",
            f"found {file.name}, needed a file that ends in {' or '.join(_SUFFIXES)}",
            hint=f"is it a {close[0]} file?" if close else "",
        )
    if not file.exists():
        raise error("load.missing", f"found no file {file}")
    return file


def _executable(found: str) -> InlayError:
    return error(
        "load.executable",
        f"found {found}, needed a program",
        hint="use inlay.load_executable, which needs no compiler",
    )


def _parsed(text: str, operators: OperatorTable, name: str) -> Module:
    parsed = parse_module(text, operators, name=name, known=prelude())
    require_entry(parsed)
    module = infer_types(with_prelude(parsed))
    findings = Collector()
    check_states(module, findings)
    findings.raise_if_fatal()
    return module


def compile(
    program: Module | Source,
    board: str | Board = "host",
    threads: int | None = None,
    mode: Mode | None = None,
    externs: Sequence[Extern] = (),
    **options: Any,
) -> Executable:
    """Return the executable of a program.

    Args:
        program: a module, or what `load` reads.
        board: the machine to compile for, by name or as a file, or a board made in Python.
        threads: on how many threads it runs here; all processors by default. Places are chosen for
            so many. It is no part of the executable: a saved one may be loaded with another number.
        mode: how calls go through the program, as for `load_executable`; nor is that.
        externs: operators of your own. A module has those that it was loaded with; one that is given
            here stands for the one of its name, which may choose another implementation.
        options: see `inlay.pipeline.options.CompileOptions`.

    Raises:
        CompileError: the program is wrong, or an option is.
        UnsupportedError: it is right and cannot be compiled.
        RunError: `run.device-*` where a device that must be asked while compiling does not answer.
    """
    if threads is not None:
        check_threads(threads)
    found = compilation(program, board=board, externs=externs, threads=threads, **options)
    kept, functions, sources = found.externs, found.functions, found.module.sources
    # What explains the program holds it with its weights as they were read: it goes before they are packed
    # into the executable, and each of them goes as it is.
    parts = list(pieces(found.program, seals=False))
    del found
    return executable_of(
        parts, threads=threads, mode=mode, externs=kept, callbacks=functions, made_from=sources
    )


def compilation(
    program: Module | Source,
    *,
    externs: Sequence[Extern] = (),
    instrument: Instrument = SILENT,
    threads: int | None = None,
    **options: Any,
) -> Compilation:
    """Compile a program; return the executable as data, with the report of what was done.

    Places are chosen by times on so many threads; all processors by default.
    """
    settings = resolve(
        CompileOptions, Layer("keywords", options), beside=("threads", "mode", "externs")
    ).options
    with paused():
        module = _chosen(_module_of(program, externs, instrument), settings)
        return compile_module(module, settings, instrument, threads)


@overload
def explain(
    program: Module | Source,
    board: str | Board = ...,
    *,
    view: Literal["placement"] = ...,
    at: Literal[""] = ...,
    **choices: Any,
) -> Explanation: ...
@overload
def explain(
    program: Module | Source, board: str | Board = ..., *, view: Literal["fusion"], **choices: Any
) -> FusionExplanation: ...
@overload
def explain(
    program: Module | Source, board: str | Board = ..., *, view: Literal["loops"], **choices: Any
) -> LoopsExplanation: ...
@overload
def explain(
    program: Module | Source, board: str | Board = ..., *, view: Literal["memory"], **choices: Any
) -> MemoryExplanation: ...
@overload
def explain(
    program: Module | Source, board: str | Board = ..., *, view: Literal["numerics"], **choices: Any
) -> NumericsExplanation: ...
@overload
def explain(
    program: Module | Source, board: str | Board = ..., *, view: str = ..., at: str = ..., **choices: Any
) -> Explained: ...


def explain(
    program: Module | Source,
    board: str | Board = "host",
    *,
    view: str = "placement",
    at: str = "",
    threads: int | None = None,
    externs: Sequence[Extern] = (),
    **choices: Any,
) -> Explained:
    """Return what a compilation of a program for a board would decide, and why.

    Args:
        program: a module, or what `load` reads.
        board: the machine, by name, as a file or made in Python; it need not be one that can be
            compiled for.
        view: where operations run (`placement`), what becomes one kernel (`fusion`), how kernels are
            scheduled (`loops`), where values live (`memory`), or in what formats products are
            computed and constants stored (`numerics`).
        at: asks for all of that about the operations of one name, as in pins, instead of a view.
        threads: on how many the program is to run; all processors by default.
        externs: operators of your own.
        choices: see `inlay.pipeline.options.PlaceOptions`; a compilation with the same ones decides the
            same.

    Raises:
        CompileError: the program is wrong, the board is, or what is asked for cannot be had.
    """
    layers = Layer("keywords", {"board": board, **choices})
    settings = resolve(PlaceOptions, layers, beside=("view", "at", "threads", "externs")).options
    if threads is not None:
        check_threads(threads)
    with paused():
        module = _chosen(_module_of(program, externs, SILENT), settings)
        return explained(module, settings, view, at, threads)


def _chosen(module: Module, settings: PlaceOptions) -> Module:
    """Return a module with the outputs and the sizes that options choose."""
    return with_outputs(with_bounds(with_dims(module, settings.dims), settings.bounds), settings.outputs)


def _module_of(program: Module | Source, externs: Sequence[Extern], instrument: Instrument) -> Module:
    """Return a module, or the one in a file, with its operators as they are given here."""
    if isinstance(program, Module):
        return rebind(program, externs)
    return load(program, externs=externs, instrument=instrument)


def tensor_type(shape: Iterable[Int | int], dtype: DType | str) -> TensorType:
    """Return the type of a tensor, for type rules: `tensor_type((n, 4), "f32")`.

    Raises:
        CompileError: `name.unknown` where there is no such element type.
    """
    found = BY_NAME.get(dtype) if isinstance(dtype, str) else dtype
    if not isinstance(found, DType):
        close = near(str(getattr(dtype, "__name__", dtype)))
        raise error(
            "name.unknown",
            f"found no element type {dtype!r}; there are {', '.join(BY_NAME)}",
            hint=did_you_mean(close),
        )
    return make.tensor_type(shape, found)
