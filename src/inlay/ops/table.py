"""The table of all operators, assembled from the family files of this package.

A family is a module whose name has no leading underscore; it lists its records in `DEFINITIONS`.
Nothing registers itself: the files are found by listing the package, once.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence

from inlay import ops
from inlay.base.registry import unknown_name
from inlay.ir.expr import OpRef
from inlay.ir.op import Op
from inlay.ir.types import UNKNOWN
from inlay.ops._define import ForeignOp, OpDef


class OperatorTable:
    """Operators by name. Implements `ir.op.OpTable`."""

    def __init__(self, families: Mapping[str, tuple[OpDef, ...]]) -> None:
        self.families = families
        self._by_name: dict[str, OpDef] = {}
        for family, definitions in families.items():
            for d in definitions:
                assert d.name not in self._by_name, f"operator {d.name} is in {family} and before"
                self._by_name[d.name] = d

    def find(self, name: str) -> Op | None:
        """Return the operator of that name, or None."""
        found = self._by_name.get(name)
        return None if found is None else found.op

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        return tuple(sorted(self._by_name))

    def definition(self, op: Op | str) -> OpDef:
        """Return the record of an operator or of a name.

        Raises:
            CompileError: `name.unknown`.
        """
        if isinstance(op, ForeignOp):
            return op.record()
        name = op if isinstance(op, str) else op.name
        found = self._by_name.get(name)
        if found is None or (isinstance(op, Op) and found.op is not op):
            raise unknown_name("operator", name, self.names())
        return found

    def extended(self, definitions: Sequence[OpDef]) -> OperatorTable:
        """Return a table that has operators of the user too."""
        return OperatorTable({**self.families, "externs": tuple(definitions)})

    def __iter__(self) -> Iterator[OpDef]:
        return iter(self._by_name.values())


@functools.cache
def table() -> OperatorTable:
    """Return the table of all operators."""
    families: dict[str, tuple[OpDef, ...]] = {}
    for name in sorted(info.name for info in pkgutil.iter_modules(ops.__path__)):
        if not name.startswith("_") and name != "table":
            module = importlib.import_module(f"{ops.__name__}.{name}")
            families[name] = module.DEFINITIONS
    return OperatorTable(families)


def op_ref(name: str, **attrs: object) -> OpRef:
    """Return an operator with its attributes, ready to be called: `op_ref("softmax", axis=1)`.

    Raises:
        CompileError: `name.unknown`.
    """
    op = table().definition(name).op
    return OpRef(op, op.attrs_type(**attrs), UNKNOWN)
