"""Compiling a model as a command line says; the only file of a run that imports the compiler."""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields

from inlay.api import compilation, load
from inlay.base.instrument import Instrument
from inlay.base.options import Layer, arguments_layer, environment, resolve
from inlay.cli._externs import externs_in
from inlay.importers.onnx.limits import ImportLimits
from inlay.pipeline.compile import Compilation
from inlay.pipeline.options import CompileOptions


def compile_arguments(arguments: argparse.Namespace, instrument: Instrument) -> Compilation:
    """Compile the model as the arguments say; the command line overrides the environment."""
    names, around = {field.name for field in fields(CompileOptions)}, environment()
    known = {name: value for name, value in around.values.items() if name in names}
    layers = Layer(around.origin, known), arguments_layer(arguments, CompileOptions)
    options = resolve(CompileOptions, *layers).options
    limits = resolve(ImportLimits, arguments_layer(arguments, ImportLimits)).options
    module = load(
        arguments.model, externs=externs_in(arguments.extern), instrument=instrument,
        **asdict(limits),
    )  # fmt: skip
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    return compilation(module, instrument=instrument, **values)
