"""Whether two results agree, by the table of tolerances in `inlay.arith.tolerance`."""

from __future__ import annotations

import numpy as np

from inlay.arith.dtype import from_numpy
from inlay.arith.tolerance import bound


def assert_close(actual: np.ndarray, expected: np.ndarray, *, length: int = 1, exact: bool = False) -> None:
    """Fail unless two arrays agree in dtype, shape and, within the bound, in every element."""
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    dtype = from_numpy(expected.dtype)
    if not dtype.is_float:
        np.testing.assert_array_equal(actual, expected)
        return
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    if exact:
        np.testing.assert_array_equal(a, e)
        return
    finite = np.abs(e[np.isfinite(e)])
    tolerance = bound(dtype, length)
    # Whole-tensor magnitude matters for sums only; element by element the value itself does.
    scale = max(1.0, float(finite.max(initial=0))) if length > 1 else 1.0
    np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance * scale)
