"""Accuracy of elementary functions, against 50 digits or f64, in units in the last place."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from tests.unit.codegen.support import parsed, run_native

RNG = np.random.default_rng(3)


def wide(kind: type, lo: float, hi: float, count: int = 4000) -> np.ndarray:
    """Points dense near zero and over the whole range, of both signs where the range has both."""
    line = np.linspace(lo, hi, count)
    smallest = -45 if kind is np.float32 else -323
    logs = 10.0 ** RNG.uniform(smallest, math.log10(max(abs(lo), abs(hi))), count)
    values = np.concatenate([line, logs, -logs])
    return values[(values >= lo) & (values <= hi)].astype(kind)


SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0]

# Reference, range, and the greatest error in units in the last place for f32 and f64.
FUNCTIONS = {
    "exp": (np.exp, (-104, 89), (-745, 710), 1.0, 1.0),
    "log": (np.log, (1e-45, 3e38), (5e-324, 1e308), 1.0, 1.0),
    "sin": (np.sin, (-3e38, 3e38), (-1e5, 1e5), 0.51, 1.5),
    "cos": (np.cos, (-3e38, 3e38), (-1e5, 1e5), 0.51, 1.5),
    "tan": (np.tan, (-3e38, 3e38), (-1e5, 1e5), 0.51, 3.0),
    "asin": (np.arcsin, (-1, 1), (-1, 1), 0.51, 2.0),
    "acos": (np.arccos, (-1, 1), (-1, 1), 0.51, 1.5),
    "atan": (np.arctan, (-1e4, 1e4), (-1e6, 1e6), 0.51, 1.5),
    "sinh": (np.sinh, (-89, 89), (-710, 710), 0.51, 2.5),
    "cosh": (np.cosh, (-89, 89), (-710, 710), 0.51, 2.5),
    "tanh": (np.tanh, (-20, 20), (-30, 30), 2.5, 2.5),
    "asinh": (np.arcsinh, (-1e30, 1e30), (-1e300, 1e300), 0.51, 2.5),
    "acosh": (np.arccosh, (1, 1e30), (1, 1e300), 0.51, 2.5),
    "atanh": (np.arctanh, (-1, 1), (-1, 1), 0.51, 2.5),
    "erf": (np.vectorize(math.erf, otypes=[float]), (-6, 6), (-7, 7), 5.0, 2.0),
    "sigmoid": (None, (-103, 90), (-740, 700), 3.0, 2.0),
    "rsqrt": (None, (1e-45, 3e38), (5e-324, 1e308), 0.51, 1.5),
}

# What is allowed beside, for each unit that the argument is below 0: of 1 it is nothing.
BELOW_ZERO = {("sigmoid", "f32"): 1.25}


def sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        e = np.exp(-np.abs(x.astype(np.longdouble)))
        return np.where(x < 0, e / (1 + e), 1 / (1 + e))


def reference(name: str, x: np.ndarray) -> np.ndarray:
    function = FUNCTIONS[name][0]
    with np.errstate(all="ignore"):
        if name == "sigmoid":
            return sigmoid(x)
        if name == "rsqrt":
            return 1 / np.sqrt(x.astype(np.longdouble))
        if name == "erf":
            return function(x.astype(np.float64))
        # The platform's long double functions carry 64 bits: enough to judge f64.
        return function(x.astype(np.longdouble))


def program(name: str, kind: str, lanes: int) -> str:
    call = f"{name}(x[i*{lanes} + l])"
    return f"""\
lowered func f(x: {kind}[n]) -> (y: {kind}[n]) over (n) {{
  for i in 0..n / {lanes} {{
    for l in 0..{lanes} vector {{ y[i*{lanes} + l] = {call} }}
  }}
}}
"""


@functools.cache
def evaluated(name: str, kind: str, lanes: int = 16) -> tuple[np.ndarray, np.ndarray]:
    lo, hi = FUNCTIONS[name][1 if kind == "f32" else 2]
    dtype = np.float32 if kind == "f32" else np.float64
    x = np.concatenate([np.array(SPECIAL, dtype), wide(dtype, lo, hi)])
    x = x[: len(x) // lanes * lanes]
    [y] = run_native(parsed(program(name, kind, lanes)), [x], {"n": len(x)})
    return x, y


def ulps(y: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors in units of the last place of the exact value, subnormals included."""
    info = np.finfo(y.dtype)
    size = np.maximum(np.abs(exact.astype(np.longdouble)), np.longdouble(info.smallest_normal))
    unit = np.exp2(np.floor(np.log2(size))) * np.longdouble(info.eps)
    return np.abs(y.astype(np.longdouble) - exact) / unit


@pytest.mark.sample(18)
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_accuracy(name: str, kind: str) -> None:
    bound = FUNCTIONS[name][3 if kind == "f32" else 4]
    x, y = evaluated(name, kind)
    x, y = x[len(SPECIAL) :], y[len(SPECIAL) :]
    exact = reference(name, x)
    with np.errstate(over="ignore"):
        rounded = exact.astype(y.dtype)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(y[~finite], rounded[~finite])
    slope = BELOW_ZERO.get((name, kind), 0.0)
    error = ulps(y[finite], exact[finite]) - slope * np.maximum(-x[finite], 0)
    worst = int(np.argmax(error))
    assert error[worst] <= bound, f"{error[worst]:.2f} ulp at {x[finite][worst]!r}"


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_special_values(name: str, kind: str) -> None:
    x, y = evaluated(name, kind)
    x, y = x[: len(SPECIAL)], y[: len(SPECIAL)]
    expected = reference(name, x).astype(y.dtype)
    np.testing.assert_array_equal(y[:5], expected[:5])
    np.testing.assert_array_max_ulp(
        y[5:][np.isfinite(expected[5:])], expected[5:][np.isfinite(expected[5:])], 2
    )
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(y[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("lanes", [1, 8, 32])
@pytest.mark.parametrize("name", ["exp", "erf", "sin"])
def test_lanes_do_not_matter(name: str, lanes: int) -> None:
    x, y = evaluated(name, "f32")
    count = len(x) // lanes * lanes
    [z] = run_native(parsed(program(name, "f32", lanes)), [x[:count]], {"n": count})
    np.testing.assert_array_equal(z, y[:count])


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("lanes", [1, 8, 16, 32])
def test_raised_exp_of_what_is_at_most_zero(kind: str, lanes: int) -> None:
    size = 110.0 if kind == "f32" else 750.0
    line = np.concatenate([np.linspace(-size, 0.0, 8192), -np.geomspace(1e-40, 1.0, 4088)])
    far = [-0.0, -math.inf, math.nan, -1e30, -np.finfo(np.float32).max, -size, -size / 2, 0.0]
    x = np.concatenate([far, line]).astype(kind.replace("f", "float"))
    [y] = run_native(parsed(program("exp_raised", kind, lanes)), [x], {"n": len(x)})
    exact = np.exp(x.astype(np.longdouble)) * 2**32
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    np.testing.assert_array_equal(y[x == 0], 2**32)
    assert (y[x == -math.inf] <= np.exp2(-118.0)).all()
    known = (x > (-104.0 if kind == "f32" else -700.0)) & (x <= 0)
    allowed = 3 - 1.25 * x[known] if kind == "f32" else 1.5
    assert (ulps(y[known], exact[known]) <= allowed).all()


def test_raised_exp_is_the_same_with_any_number_of_lanes() -> None:
    x = np.concatenate([np.linspace(-104.0, 0.0, 9216), -np.geomspace(1e-40, 1.0, 1024)]).astype(np.float32)
    results = [
        run_native(parsed(program("exp_raised", "f32", lanes)), [x], {"n": len(x)})
        for lanes in (1, 8, 16, 32)
    ]
    for y in results[1:]:
        np.testing.assert_array_equal(y, results[0])


@pytest.mark.parametrize("lanes", [1, 8, 16, 32])
def test_exp_far_from_zero(lanes: int) -> None:
    """Far beyond what is in range, where less is left of an argument than the logarithm of two."""
    sizes = np.concatenate([np.geomspace(105, 3.4e38, 157), [np.finfo(np.float32).max, np.inf, np.nan]])
    x = np.concatenate([sizes, -sizes]).astype(np.float32)
    [y] = run_native(parsed(program("exp", "f32", lanes)), [x], {"n": len(x)})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, np.exp(x))


POW = """\
lowered func f(x: {0}[n], z: {0}[n]) -> (y: {0}[n]) over (n) {{
  for i in 0..n / 8 {{
    for l in 0..8 vector {{ y[i*8 + l] = pow(x[i*8 + l], z[i*8 + l]) }}
  }}
}}
"""


@pytest.mark.parametrize(("kind", "bound"), [("f32", 0.51), ("f64", 1.5)])
def test_pow(kind: str, bound: float) -> None:
    dtype = np.float32 if kind == "f32" else np.float64
    x = np.concatenate([10.0 ** RNG.uniform(-30, 30, 8000), RNG.uniform(0.5, 2, 8000)]).astype(dtype)
    z = np.concatenate([RNG.uniform(-8, 8, 8000), RNG.uniform(-400, 400, 8000)]).astype(dtype)
    [y] = run_native(parsed(POW.format(kind)), [x, z], {"n": len(x)})
    with np.errstate(over="ignore", under="ignore"):
        exact = np.power(x.astype(np.longdouble), z.astype(np.longdouble))
        rounded = exact.astype(dtype)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(y[~finite], rounded[~finite])
    assert ulps(y[finite], exact[finite]).max() <= bound


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_pow_special_values(kind: str) -> None:
    dtype = np.float32 if kind == "f32" else np.float64
    some = np.array([0.0, -0.0, 1, -1, 2, -2, 3, 0.5, -0.5, 2.5, math.inf, -math.inf, math.nan])
    grid = np.array([(a, b) for a in some for b in some], dtype)
    grid = np.concatenate([grid, np.ones((-len(grid) % 8, 2), dtype)])
    x, z = grid[:, 0].copy(), grid[:, 1].copy()
    [y] = run_native(parsed(POW.format(kind)), [x, z], {"n": len(x)})
    with np.errstate(all="ignore"):
        expected = np.power(x, z)
    np.testing.assert_allclose(y, expected, rtol=1e-15 if kind == "f64" else 1e-7)
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(y[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("lanes", [1, 8])
def test_large_angles(lanes: int) -> None:
    """Angles with more multiples of pi/2 than a float has digits: exact sines by mpmath."""
    x = np.array([2.0**30 + 1, 1e15, 1e22, -1e22, 1e100, 1.7e308, -(2.0**60), 6381956970095103 * 2.0**797])
    exact = [
        0.3284483319740196,
        0.8582727931702359,
        -0.8522008497671888,
        0.8522008497671888,
        -0.3806377310050287,
        -0.5952560848632077,
        0.8306492176372546,
        1.0,
    ]
    [y] = run_native(parsed(program("sin", "f64", lanes)), [x], {"n": 8})
    np.testing.assert_array_max_ulp(y, np.array(exact), 1)
