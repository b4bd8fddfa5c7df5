"""Handing sessions of Inlay to programs that import onnxruntime, without changing them.

    with installed():
        from some_package import Model      # its `import onnxruntime` gets Inlay
        model = Model()
    model.predict(...)                      # its sessions are those of Inlay

A module keeps what it imported: a package that was imported before goes on with the onnxruntime that
it found then, and one imported inside goes on with Inlay afterwards. A package may import when it is
called, so calls that make sessions belong inside too. Modules that keep another onnxruntime are named
in a warning.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Generator, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAME = "onnxruntime"
_PARTS = (
    "capi",
    "capi._pybind_state",
    "capi.onnxruntime_pybind11_state",
    "capi.onnxruntime_inference_collection",
)


def stand_in(**options: Any) -> dict[str, ModuleType]:
    """Return the modules that are imported as onnxruntime, by full name.

    Args:
        options: of `inlay.compile`, for every session that is made through these modules.
    """
    ours = importlib.import_module(__package__ or "")
    kind = ours.InferenceSession
    names = {name: getattr(ours, name) for name in ours.__all__ if name not in ("install", "installed")}
    if options:
        names["InferenceSession"] = type(kind.__name__, (kind,), {"defaults": dict(options)})
    made: dict[str, ModuleType] = {}
    for full in (NAME, *(f"{NAME}.{part}" for part in _PARTS)):
        module = ModuleType(full, f"Inlay behind the interface of {NAME}.")
        module.__dict__.update(names, __version__=ours.__version__, __path__=[])
        module.__spec__ = ModuleSpec(full, loader=None, is_package=True)
        made[full] = module
        above, _, last = full.rpartition(".")
        if above:
            setattr(made[above], last, module)
    return made


def install(**options: Any) -> ModuleType:
    """Let `import onnxruntime` mean Inlay from now on; return that module.

    Args:
        options: of `inlay.compile`, for every session.
    """
    made = stand_in(**options)
    _warn(_take_out())
    sys.modules.update(made)
    return made[NAME]


@contextlib.contextmanager
def installed(**options: Any) -> Generator[ModuleType]:
    """Let `import onnxruntime` mean Inlay inside; then it means what it did before.

    Args:
        options: of `inlay.compile`, for every session.
    """
    made = stand_in(**options)
    before = _take_out()
    _warn(before)
    sys.modules.update(made)
    try:
        yield made[NAME]
    finally:
        _take_out()
        sys.modules.update(before)


def _take_out() -> dict[str, ModuleType]:
    """Remove onnxruntime from the modules; return what was removed."""
    names = [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]
    return {name: sys.modules.pop(name) for name in names}


def _warn(before: Mapping[str, ModuleType]) -> None:
    """Name the modules that keep the onnxruntime that was there."""
    keepers = _keepers(before[NAME]) if NAME in before else []
    if keepers:
        warnings.warn(
            f"imported before, and still with the other onnxruntime: {', '.join(keepers)}; import what "
            "is to use Inlay inside installed()",
            stacklevel=4,
        )


def _keepers(other: ModuleType) -> list[str]:
    """Return the modules that refer to another onnxruntime, without those that know both."""
    ours = sys.modules[__package__ or ""]
    session = getattr(other, "InferenceSession", None)
    if isinstance(session, type) and issubclass(session, ours.InferenceSession):
        return []
    found: list[str] = []
    for name, module in sorted(sys.modules.items()):
        if name == "__main__" or name.partition(".")[0] in (NAME, "inlay"):
            continue
        held = list(getattr(module, "__dict__", {}).values())
        keeps = any(
            value is other or (isinstance(value, type) and _home(value).startswith(f"{NAME}."))
            for value in held
        )
        if keeps and all(value is not ours for value in held):
            found.append(name)
    return found


def _home(kind: type) -> str:
    return str(getattr(kind, "__module__", ""))
