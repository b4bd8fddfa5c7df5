"""Operators on the contents of strings: Python code behind kernels, which the runtime has itself.

Each is a function from arrays to one array; arrays of strings hold `str`. They are the meaning of the
operators of `ops/text.py` as well. Kernels name them by `PREFIX` and the name of the operator.

Orders are those of code points, which are those of the bytes of UTF-8 too.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from inlay.base.diagnostics import RunError, error
from inlay.bytecode.program import AccessCode, HostBody, Kernel
from inlay.runtime.native import Callback

PREFIX = "inlay.text."

_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_FLOAT = re.compile(r"\s*[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)\s*", re.IGNORECASE)


def _each(function: Callable[[Any], Any], x: np.ndarray, dtype: Any) -> np.ndarray:
    made = np.empty(x.shape, dtype)
    made.reshape(-1)[:] = [function(item) for item in x.reshape(-1).tolist()]
    return made


def concat(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Join elements, which broadcast."""
    x, y = np.broadcast_arrays(x, y)
    made = np.empty(x.shape, object)
    made.reshape(-1)[:] = list(map(operator.add, x.reshape(-1).tolist(), y.reshape(-1).tolist()))
    return made


def lower(x: np.ndarray) -> np.ndarray:
    """Put letters into lower case."""
    return _each(str.lower, x, object)


def upper(x: np.ndarray) -> np.ndarray:
    """Put letters into upper case."""
    return _each(str.upper, x, object)


def full_match(x: np.ndarray, pattern: np.ndarray) -> np.ndarray:
    """Say which elements a regular expression matches as a whole."""
    found = re.compile(pattern.item(), re.ASCII)
    return _each(lambda text: found.fullmatch(text) is not None, x, np.bool_)


def _parts(text: str, delimiter: str, most: int) -> list[str]:
    return text.split(delimiter or None, most)


def split_counts(x: np.ndarray, delimiter: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Count the parts of each element; an empty delimiter stands for any white space."""
    return _each(lambda t: len(_parts(t, delimiter.item(), int(most))), x, np.int64)


def split(x: np.ndarray, delimiter: np.ndarray, most: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return the parts of each element, and empty strings behind them."""
    width = shape[-1]
    made = np.full((x.size, width), "", object)
    for row, text in zip(made, x.reshape(-1).tolist(), strict=True):
        parts = _parts(text, delimiter.item(), int(most))
        row[: len(parts)] = parts
    return made.reshape(tuple(shape))


def order(x: np.ndarray) -> np.ndarray:
    """Number elements by their order: equal ones have one number, the least has 0."""
    places = {text: i for i, text in enumerate(sorted(set(x.reshape(-1).tolist())))}
    return _each(places.__getitem__, x, np.int64)


def to_int(x: np.ndarray) -> np.ndarray:
    """Read integers in decimal; those from 2**63 on as the i64 of the same bits."""
    return _each(_int, x, np.int64)


def _int(text: str) -> int:
    if not _INTEGER.fullmatch(text) or len(text) > 400:
        raise _unreadable(text, "an integer")
    value = int(text)
    if not -(1 << 63) <= value < 1 << 64:
        raise _unreadable(text, "an integer of 64 bits")
    return value - (1 << 64) if value >> 63 == 1 else value


def to_float(x: np.ndarray) -> np.ndarray:
    """Read numbers: plain, with an exponent, `NaN`, `INF` and `-INF`."""
    return _each(_float, x, np.float64)


def _float(text: str) -> float:
    if not _FLOAT.fullmatch(text):
        raise _unreadable(text, "a number")
    return float(text)


def _unreadable(text: str, needed: str) -> Exception:
    shown = repr(text if len(text) < 60 else text[:60] + "...")
    return error("run.bad-text", f"found {shown}, needed {needed}")


def of(x: np.ndarray) -> np.ndarray:
    """Write numbers so that reading gives them back, as short as that is possible."""
    if x.dtype.kind in "iu":
        return _each(str, x, object)
    made = np.empty(x.shape, object)
    made.reshape(-1)[:] = [_written(v) for v in x.reshape(-1)]
    return made


def _written(value: Any) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    return str(value)


BODIES: Mapping[str, Callable[..., np.ndarray]] = {
    f.__name__: f for f in (concat, lower, upper, full_match, split_counts, order, to_int, to_float, of)
}
"""Functions of their operands alone."""


def callbacks(kernels: Sequence[Kernel]) -> dict[Kernel, Callback]:
    """Return the code of the kernels that name operators of this module."""
    found: dict[Kernel, Callback] = {}
    for kernel in kernels:
        if isinstance(kernel.body, HostBody) and kernel.body.name.startswith(PREFIX):
            made = _callback(kernel, kernel.body.name.removeprefix(PREFIX))
            if made is not None:
                found[kernel] = made
    return found


def _callback(kernel: Kernel, name: str) -> Callback | None:
    reads = sum(port is AccessCode.READ for port in kernel.ports)
    body = BODIES.get(name)

    def run(tensors: list[np.ndarray], _integers: list[int]) -> None:
        try:
            (out,) = tensors[reads:]
            if body is None:
                x, delimiter, most = tensors[:reads]
                out[...] = split(x, delimiter, most, out.shape)
            else:
                out[...] = body(*tensors[:reads])
        except RunError:
            raise
        except Exception as problem:  # a file may ask for what no compiler writes
            raise error(
                "run.kernel-failed", f"operator '{name}' raised {type(problem).__name__}: {problem}"
            ) from problem

    return run if body is not None or name == split.__name__ else None
