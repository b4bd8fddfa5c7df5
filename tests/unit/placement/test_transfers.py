"""All who say what a copy costs say the same: predictions, bounds, the relaxation and reports."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import inlay.placement as placement
from inlay.placement.choose.bounds import lower_bound
from inlay.placement.choose.capacity import predict
from inlay.placement.choose.relaxation import relax
from inlay.placement.choose.schedule import Item, Problem, Task
from inlay.placement.choose.transfers import Hop, fitted, route_ns, times_copied

SIZE = 4096.0
ROUTES = {
    "one link": (Hop(1, 0, 300.0, 0.25),),
    "two links": (Hop(2, 0, 100.0, 0.5), Hop(1, 1, 700.0, 0.125)),
}


@pytest.mark.parametrize("name", ROUTES)
@pytest.mark.parametrize("often", [0.5, 1.0, 8.0])
@pytest.mark.parametrize("runs", [0.5, 1.0, 8.0])
def test_one_copy_costs_the_same_for_all(name: str, often: float, runs: float):
    route = ROUTES[name]
    # The input is on device 0, and the only task runs on device 1, for nothing.
    p = Problem(
        (Task((None, 0.0, None), (0,), (1,), runs),),
        (Item(SIZE, -1, 0, SIZE, often), Item(0.0, 0)),
        (0, 1, 2),
        (((), route, None), (None, (), None), (None, None, ())),
        (-1, -1),
        ((1, 1),),
        ((0,), (1,), (2,)),
        (None,) * 3,
    )
    time = route_ns(route, SIZE, times_copied(often, runs))
    assert predict(p, (1,)) == pytest.approx(time)
    assert lower_bound(p) <= time * (1 + 1e-9)
    bound = relax(p, time).bound
    assert bound <= time * (1 + 1e-9)
    if len(route) == 1:  # all of the time is on one engine, so the relaxation sees all of it
        assert bound == pytest.approx(time, rel=0.15)


def test_what_is_fitted_predicts_what_was_measured():
    hop = Hop(1, 0, 800.0, 0.25)
    measured = [(size, route_ns([hop], size)) for size in (64.0, 4096.0, 65536.0)]
    latency, rate = fitted([*measured, (64.0, 5000.0)])  # a slow run counts for nothing
    assert (latency, 1 / rate) == pytest.approx((hop.latency, hop.per_byte))


def test_no_other_file_has_the_formula():
    """Rates of links are multiplied with sizes in one file; others ask it."""
    found: list[str] = []
    for path in sorted(Path(placement.__path__[0]).rglob("*.py")):
        if path.name in ("transfers.py", "calibration.py"):  # that one writes rates into a file
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("bytes_per_ns", "latency_ns"):
                owner = ast.unparse(node.value)
                if owner not in ("memory",):  # traffic of kernels, not of copies
                    found.append(f"{path.name}:{node.lineno}: {owner}.{node.attr}")
    assert not found
