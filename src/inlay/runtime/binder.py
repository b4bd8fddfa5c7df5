"""Inputs of a call against the signature of its entry.

The C runtime makes the same comparison on each call and stops at the first difference. This one
runs when something differs, and reports all that is independent: an input that is missing or
unknown, then element types and ranks, then dims and relations between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.base.diagnostics import CompileError, Diagnostic, diagnostic
from inlay.bytecode import formula
from inlay.bytecode.program import Entry, TensorSpec


def bind(entry: Entry, inputs: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the inputs in order as contiguous arrays that fit the signature.

    Raises:
        CompileError: `input.missing`, `input.unknown`, `input.not-array`, `input.dtype`,
            `input.rank`, `input.dim`, `input.requirement`.
    """
    found = _names(entry, inputs)
    arrays: list[np.ndarray] = []
    for spec in entry.inputs:
        if spec.name in inputs:
            array = to_array(spec, inputs[spec.name], found)
            if array is not None:
                found += _type_findings(spec, array)
                arrays.append(array)
    if not found:
        found = _dim_findings(entry, arrays)
    if found:
        raise CompileError(found)
    return [np.ascontiguousarray(array).reshape(array.shape) for array in arrays]


def to_array(spec: TensorSpec, value: Any, findings: list[Diagnostic]) -> np.ndarray | None:
    """Return a value as an array without copying where it offers its memory; else a finding."""
    if isinstance(value, np.ndarray):
        return cast("np.ndarray", value)
    given: object = value
    try:
        if hasattr(given, "__dlpack__"):
            return np.from_dlpack(value)
        array = np.asarray(value)
    except (TypeError, ValueError, BufferError, RuntimeError) as problem:
        findings.append(
            diagnostic(
                "input.not-array",
                f"input '{spec.name}': expected an array of {spec.dtype}; "
                f"found {type(given).__name__} ({problem})",
            )
        )
        return None
    # A number or list of Python has no width: it takes the expected one if its values fit.
    expected = dtypes.BY_NAME[spec.dtype].numpy
    if not isinstance(given, np.generic) and array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            narrowed = array.astype(expected)
        if np.array_equal(narrowed.astype(array.dtype), array):
            return narrowed
    return array


def _names(entry: Entry, inputs: Mapping[str, Any]) -> list[Diagnostic]:
    known = [spec.name for spec in entry.inputs]
    listed = ", ".join(f"'{name}'" for name in known) or "no inputs"
    findings = [
        diagnostic("input.missing", f"input '{spec.name}': expected {spec.dtype} "
                   f"{spec.shape_text}; found nothing")
        for spec in entry.inputs
        if spec.name not in inputs
    ]  # fmt: skip
    findings += [
        diagnostic("input.unknown", f"input '{name}': expected one of {listed}; found this name")
        for name in inputs
        if name not in known
    ]
    return findings


def _dtype_name(array: np.ndarray) -> str:
    try:
        return dtypes.from_numpy(array.dtype).name if array.dtype.isnative else str(array.dtype)
    except KeyError:
        return str(array.dtype)


def _type_findings(spec: TensorSpec, array: np.ndarray) -> list[Diagnostic]:
    findings: list[Diagnostic] = []
    if _dtype_name(array) != spec.dtype:
        findings.append(
            diagnostic("input.dtype", f"input '{spec.name}': expected {spec.dtype}; "
                       f"found {_dtype_name(array)}",
                       hint=f"convert it with .astype({dtypes.BY_NAME[spec.dtype].numpy.name!r})")
        )  # fmt: skip
    if array.ndim != len(spec.dims):
        findings.append(
            diagnostic("input.rank", f"input '{spec.name}': expected rank {len(spec.dims)}, "
                       f"{spec.shape_text}; found rank {array.ndim}, {list(array.shape)}")
        )  # fmt: skip
    return findings


def _dim_findings(entry: Entry, arrays: Sequence[np.ndarray]) -> list[Diagnostic]:
    values: list[int] = []
    for symbol in entry.symbols:
        dim = arrays[symbol.input].shape[symbol.axis]
        value = formula.evaluate(symbol.solution, [dim, *values])
        if value is None:
            return [_shape_finding(entry, symbol.input, arrays[symbol.input], values)]
        values.append(value)
    findings = [
        _shape_finding(entry, index, array, values)
        for index, (spec, array) in enumerate(zip(entry.inputs, arrays, strict=True))
        if any(
            dim.value is None or formula.evaluate(dim.value, values) != size
            for dim, size in zip(spec.dims, array.shape, strict=True)
        )
    ]
    for requirement in entry.requirements:
        if not formula.evaluate(requirement.value, values):
            found = _with(entry, values, requirement.value).replace(" with ", "; found ", 1)
            findings.append(
                diagnostic("input.requirement", f"the inputs must have {requirement.text}{found}")
            )
    return findings


def _shape_finding(
    entry: Entry, index: int, array: np.ndarray, values: Sequence[int]
) -> Diagnostic:
    spec = entry.inputs[index]
    used = tuple(step for dim in spec.dims if dim.value is not None for step in dim.value)
    return diagnostic(
        "input.dim",
        f"input '{spec.name}': expected {spec.shape_text}{_with(entry, values, used)}; "
        f"found {list(array.shape)}",
    )


def _with(entry: Entry, values: Sequence[int], used: formula.Formula) -> str:
    """Say what the symbols of a formula are, and which inputs said so."""
    named = {step.index for step in used if isinstance(step, formula.Arg)}
    parts = [
        f"{symbol.name} = {value} from input '{entry.inputs[symbol.input].name}' axis {symbol.axis}"
        for index, (symbol, value) in enumerate(zip(entry.symbols, values, strict=False))
        if index in named
    ]
    return " with " + ", ".join(parts) if parts else ""
