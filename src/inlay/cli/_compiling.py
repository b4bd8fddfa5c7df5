"""Compiling a model as a command line says; the only file of a run that imports the compiler."""

from __future__ import annotations

import argparse
from dataclasses import fields

from inlay.api import compilation, load
from inlay.base.instrument import Instrument
from inlay.base.options import arguments_layer, environment, resolve
from inlay.cli._externs import externs_in
from inlay.importers.onnx.limits import ImportLimits
from inlay.pipeline.compile import Compilation
from inlay.pipeline.options import CompileOptions


def compile_arguments(arguments: argparse.Namespace, instrument: Instrument) -> Compilation:
    """Compile the model as the arguments say; the command line overrides the environment."""
    layers = (environment(), arguments_layer(arguments, CompileOptions))
    known = {"board", "cache", "pins", "batch", "overlap", "verify", "calibration"}
    environment_layer = type(layers[0])(
        layers[0].origin, {k: v for k, v in layers[0].values.items() if k in known}
    )
    options = resolve(CompileOptions, environment_layer, layers[1]).options
    limits = arguments_layer(arguments, ImportLimits).values
    module = load(
        arguments.model, externs=externs_in(arguments.extern), instrument=instrument, **limits
    )
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    return compilation(module, instrument=instrument, **values)
