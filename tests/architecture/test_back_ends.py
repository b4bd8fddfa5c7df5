"""Who makes code is known to the back ends alone: nothing else compares the names of generators or drivers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from inlay.codegen.backend_table import backends
from tests.architecture.sources import modules, nodes, place

OWN = ("src/inlay/codegen/backends/", "src/inlay/codegen/backend_table.py", "src/inlay/codegen/interface.py")
FIELDS = {"generator", "loader", "driver"}
ENGINES = {"engine"}
"""Of the runtime, which has an engine of the same name as a back end."""


def names() -> set[str]:
    return {*backends(), *(g for b in backends().values() for g in b.generators)}


def compared(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a node compares with something."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        if not any(isinstance(s, ast.Name) and s.id in ENGINES for s in sides):
            for side in sides:
                yield from side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
    elif isinstance(node, ast.MatchValue):
        yield node.value


def is_name(e: ast.expr, known: set[str]) -> bool:
    if isinstance(e, ast.Attribute):
        return e.attr in FIELDS
    return isinstance(e, ast.Constant) and e.value in known


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("arch.generator == x", True),
        ("x not in ('llvm', 'jit')", True),
        ("match x:\n  case 'remote': pass", True),
        ("engine == 'native'", False),
        ("arch.name == 'cortex-m7'", False),
    ],
)
def test_the_search_finds_comparisons(text: str, found: bool) -> None:
    nodes = ast.walk(ast.parse(text))
    assert any(is_name(e, names()) for node in nodes for e in compared(node)) is found


def test_only_back_ends_compare_names_of_generators_and_drivers() -> None:
    known = names()
    assert {"llvm", "native", "opencl", "remote"} <= known
    found = [
        f"{place(path)}:{node.lineno}"
        for path in modules()
        if not place(path).startswith(OWN)
        for node in nodes(path)
        if any(is_name(e, known) for e in compared(node))
    ]
    assert not found, "ask the back end (codegen/interface.py):\n" + "\n".join(found)


def test_this_machine_is_described_in_one_place() -> None:
    """For code by its back end. Running compares it with what executables need; `targets` shows it; mocks run in it."""
    found: set[str] = set()
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom):
                imported = {f"{node.module}.{alias.name}" for alias in node.names}
                if imported & {"inlay.machine.target.host", "inlay.machine.target"}:
                    found.add(place(path).removeprefix("src/inlay/"))
    assert found == {"codegen/backends/native.py", "runtime/host_cpu.py", "cli/targets.py", "accel/mock.py"}
