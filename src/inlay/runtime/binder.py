"""Inputs of a call against the signature of its entry.

The C runtime makes the same comparison on each call and stops at the first difference. This one
runs when something differs, and reports all that is independent: an input that is missing or
unknown, then structure, element types and ranks, then dims and relations between them. Values that
have structure always come here first, to be put into the form that the runtime takes.

Messages name the way to a value: `input 'x[2].1'` is field 1 of element 2 of input x.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never, cast

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.arith.text import text_array
from inlay.base.diagnostics import Diagnostic, diagnostic, error_of
from inlay.bytecode import formula
from inlay.bytecode.program import Entry
from inlay.bytecode.spec import ListSpec, OptionSpec, Spec, Symbol, TensorSpec, TupleSpec
from inlay.runtime.structure import Structure

_CARRIED = "it is kept from run to run: `executable.session()` begins it, and its runs take the other inputs"
_MOST_NAMES = 20
"""As many names of what was given are said."""


def bind(entry: Entry, inputs: Mapping[str, Any], carried: Container[str] = ()) -> list[Structure]:
    """Return the inputs in order as contiguous arrays, in the structure of the signature.

    Args:
        entry: that is called.
        inputs: by their names.
        carried: inputs that a session carries from run to run.

    Raises:
        RunError: `input.missing`, `input.unknown`, `input.structure`, `input.not-array`,
            `input.dtype`, `input.rank`, `input.dim`, `input.requirement`.
    """
    given_as = cast("object", inputs)
    if not isinstance(given_as, Mapping):
        raise error_of(
            [
                diagnostic(
                    "input.structure",
                    f"found {_kind(given_as)} for the inputs, needed a mapping from names to arrays",
                    hint="run({name: array}), or call the executable with the arrays in order",
                )
            ]
        )
    found = _names(entry, inputs, carried)
    given = [spec for spec in entry.inputs if spec.name in inputs]
    scope = _Scope("", entry.symbols)
    values = [_read(spec, inputs[spec.name], "", scope, found) for spec in given]
    if not found:
        found = _dim_findings(scope, [])
        is_solved = len(scope.values) == len(entry.symbols)
        for requirement in entry.requirements if is_solved else ():
            if not formula.evaluate(requirement.value, scope.values):
                used = _with([scope], requirement.value).replace(" with ", "; found ", 1)
                found.append(
                    diagnostic("input.requirement", f"the inputs must have {requirement.text}{used}")
                )
    if found:
        raise error_of(found)
    return values


@dataclass(slots=True)
class _Scope:
    """The call or an element while it is compared; see `bytecode/spec.py`.

    Attributes:
        path: of the element; empty for the call.
        symbols: what is read from dims of its tensors.
        tensors: its leaves with their paths.
        elements: the scopes in its lists and options.
        values: of the symbols of the scopes around it, then of its own.
    """

    path: str
    symbols: Sequence[Symbol]
    tensors: list[tuple[TensorSpec, str, np.ndarray]] = field(
        default_factory=list[tuple[TensorSpec, str, np.ndarray]]
    )
    elements: list[_Scope] = field(default_factory=list["_Scope"])
    values: list[int] = field(default_factory=list[int])


def _read(spec: Spec, value: Any, prefix: str, scope: _Scope, findings: list[Diagnostic]) -> Structure:
    """Return a value in the structure of its spec, and file its tensors; None with a finding."""
    path = prefix + spec.name
    match spec:
        case TensorSpec():
            array = to_array(spec, value, path, findings)
            if array is None:
                return None
            findings += _type_findings(spec, path, array)
            array = np.ascontiguousarray(array).reshape(array.shape)
            scope.tensors.append((spec, path, array))
            return array
        case TupleSpec(fields=fields):
            if not isinstance(value, tuple) or len(cast("tuple[Any, ...]", value)) != len(fields):
                findings.append(_structure_finding(spec, path, f"a tuple of {len(fields)}", value))
                return None
            items = cast("tuple[Any, ...]", value)
            pairs = zip(fields, items, strict=True)
            return tuple(_read(f, v, prefix, scope, findings) for f, v in pairs)
        case OptionSpec():
            return None if value is None else _element(spec, value, path, scope, findings)
        case ListSpec():
            if not isinstance(value, (list, tuple)):
                findings.append(_structure_finding(spec, path, "a list", value))
                return None
            values = cast("Sequence[Any]", value)
            return [_element(spec, v, f"{path}[{i}]", scope, findings) for i, v in enumerate(values)]
        case _:
            assert_never(spec)


def _element(
    spec: ListSpec | OptionSpec, value: Any, path: str, scope: _Scope, findings: list[Diagnostic]
) -> Structure:
    inner = _Scope(path, spec.element.symbols)
    scope.elements.append(inner)
    return _read(spec.element.spec, value, path, inner, findings)


def _structure_finding(spec: Spec, path: str, needed: str, value: Any) -> Diagnostic:
    given = cast("object", value)
    is_several = isinstance(given, (list, tuple))
    size = f" of {len(cast('Sequence[Any]', value))}" if is_several else ""
    return diagnostic(
        "input.structure",
        f"input '{path}': expected {spec.type_text}, which is {needed} in Python; "
        f"found {type(given).__name__}{size}",
    )


def to_array(spec: TensorSpec, value: Any, path: str, findings: list[Diagnostic]) -> np.ndarray | None:
    """Return a value as an array without copying where it offers its memory; else a finding."""
    if spec.dtype == "string":
        return _text(spec, value, path, findings)
    given = cast("object", value)
    is_array = isinstance(value, np.ndarray)
    try:
        if hasattr(given, "__dlpack__") and not is_array:
            return np.from_dlpack(value)
        array = np.asarray(cast("Any", value))
    except (TypeError, ValueError, BufferError, RuntimeError) as problem:
        findings.append(
            diagnostic(
                "input.not-array",
                f"input '{path}': expected an array of {spec.dtype}; "
                f"found {type(given).__name__} ({problem})",
            )
        )
        return None
    if is_array and array.dtype != object:
        return array
    if array.dtype == object:
        found = _kind(given) if array.ndim == 0 else f"{_kind(given)} with {_kind(_stranger(array))}"
        findings.append(
            diagnostic("input.not-array", f"input '{path}': expected an array of {spec.dtype}; found {found}")
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


def _kind(value: object) -> str:
    """Return what a value is, for messages."""
    return "None" if value is None else type(value).__name__


def _stranger(array: np.ndarray) -> object:
    """Return the first element of an array of objects that is no text; none in one of texts."""
    return next((x for x in array.reshape(-1).tolist() if not isinstance(x, str)), None)


def _text(spec: TensorSpec, value: Any, path: str, findings: list[Diagnostic]) -> np.ndarray | None:
    """Return a value as an array of `str` objects; else a finding."""
    try:
        return text_array(np.asarray(value))
    except (TypeError, ValueError) as problem:
        findings.append(
            diagnostic(
                "input.dtype",
                f"input '{path}': expected {spec.dtype}; found {problem}",
                hint="give an array of str, of one of NumPy's types of strings or of objects",
            )
        )
        return None


def _names(entry: Entry, inputs: Mapping[str, Any], carried: Container[str]) -> list[Diagnostic]:
    known = [spec.name for spec in entry.inputs]
    there = ", ".join(f"'{name}'" for name in list(inputs)[:_MOST_NAMES])
    more = ", ..." if len(inputs) > _MOST_NAMES else ""
    nothing = f"nothing of this name among {there}{more}" if there else "nothing"
    listed = ", ".join(f"'{name}'" for name in known) or "no inputs"
    findings = [
        diagnostic(
            "input.missing",
            f"input '{spec.name}': expected {spec.type_text}; found {nothing}",
            hint=_CARRIED if spec.name in carried else "",
        )
        for spec in entry.inputs
        if spec.name not in inputs
    ]
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


def _type_findings(spec: TensorSpec, path: str, array: np.ndarray) -> list[Diagnostic]:
    findings: list[Diagnostic] = []
    if _dtype_name(array) != spec.dtype:
        findings.append(
            diagnostic(
                "input.dtype",
                f"input '{path}': expected {spec.dtype}; found {_dtype_name(array)}",
                hint=f"convert it with .astype({dtypes.BY_NAME[spec.dtype].numpy.name!r})",
            )
        )
    if array.ndim != len(spec.dims):
        findings.append(
            diagnostic(
                "input.rank",
                f"input '{path}': expected rank {len(spec.dims)}, "
                f"{spec.shape_text}; found rank {array.ndim}, {list(array.shape)}",
            )
        )
    return findings


def _dim_findings(scope: _Scope, around: list[_Scope]) -> list[Diagnostic]:
    """Solve the symbols of a scope and compare dims, then of all that is in it."""
    scopes = [*around, scope]
    scope.values = list(around[-1].values) if around else []
    for symbol in scope.symbols:
        dim = scope.tensors[symbol.input][2].shape[symbol.axis]
        value = formula.evaluate(symbol.solution, [dim, *scope.values])
        if value is None:
            return [_shape_finding(scopes, symbol.input)]
        scope.values.append(value)
    findings = [
        _shape_finding(scopes, index)
        for index, (spec, _, array) in enumerate(scope.tensors)
        if any(
            dim.value is None or formula.evaluate(dim.value, scope.values) != size
            for dim, size in zip(spec.dims, array.shape, strict=True)
        )
    ]
    for element in scope.elements:
        findings += _dim_findings(element, scopes)
    return findings


def _shape_finding(scopes: Sequence[_Scope], index: int) -> Diagnostic:
    spec, path, array = scopes[-1].tensors[index]
    used = tuple(step for dim in spec.dims if dim.value is not None for step in dim.value)
    return diagnostic(
        "input.dim",
        f"input '{path}': expected {spec.shape_text}{_with(scopes, used)}; found {list(array.shape)}",
    )


def _with(scopes: Sequence[_Scope], used: formula.Formula) -> str:
    """Say what the symbols of a formula are, and which inputs said so."""
    named = {step.index for step in used if isinstance(step, formula.Arg)}
    symbols = [(scope, symbol) for scope in scopes for symbol in scope.symbols]
    parts = [
        f"{symbol.name} = {value} from input '{scope.tensors[symbol.input][1]}' axis {symbol.axis}"
        for index, ((scope, symbol), value) in enumerate(zip(symbols, scopes[-1].values, strict=False))
        if index in named
    ]
    return " with " + ", ".join(parts) if parts else ""
