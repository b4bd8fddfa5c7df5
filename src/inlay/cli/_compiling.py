"""Compiling a model as a command line says; the only file of a run that imports the compiler."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TypeVar

from inlay.api import compilation, load
from inlay.base.diagnostics import Collector
from inlay.base.instrument import Instrument
from inlay.base.options import arguments_layer, environment, resolve
from inlay.base.registry import suggestion
from inlay.cli._externs import externs_in
from inlay.importers.limits import ImportLimits
from inlay.ir.module import Module
from inlay.pipeline.compile import Compilation
from inlay.pipeline.fixed_dims import check_input_sizes
from inlay.pipeline.options import CompileOptions, PlaceOptions

T = TypeVar("T", bound=PlaceOptions)


def options_in(kind: type[T], arguments: argparse.Namespace) -> T:
    """Return options as the environment and the arguments say; the command line has the last word."""
    known = {field.name for field in fields(CompileOptions)}
    said = environment()
    findings = Collector()
    for name in said.values:
        if name not in known:
            findings.error(
                "option.unknown",
                f"found the environment variable INLAY_{name.upper()}, which means nothing",
                hint=suggestion(name, known, f"there are {', '.join(sorted(known))}, as INLAY_BOARD"),
            )
    findings.raise_if_fatal()
    whole = resolve(CompileOptions, said, arguments_layer(arguments, kind)).options
    return kind(**{field.name: getattr(whole, field.name) for field in fields(kind)})


def module_in(arguments: argparse.Namespace, instrument: Instrument) -> Module:
    """Return the program that the arguments name."""
    given = arguments_layer(arguments, ImportLimits)
    limits = resolve(ImportLimits, given).options
    return load(
        arguments.model,
        externs=externs_in(arguments.extern),
        instrument=instrument,
        **{name: getattr(limits, name) for name in given.values},
    )


def compile_arguments(arguments: argparse.Namespace, instrument: Instrument) -> Compilation:
    """Compile the model as the arguments say; the command line overrides the environment."""
    options = options_in(CompileOptions, arguments)
    module = module_in(arguments, instrument)
    check_input_sizes(module, getattr(arguments, "dim", ()))  # who mistyped one waits for no compilation
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    return compilation(module, instrument=instrument, threads=arguments.threads, **values)
