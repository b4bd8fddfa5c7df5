"""The map of ARCHITECTURE.md is complete, and imports stand on top.

`make imports` checks that packages import only from below.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib

from tests.architecture.sources import PACKAGE, ROOT, modules, nodes, place

# Third-party packages that a module may import when it first needs them: each is an extra, or
# too slow to import for those who do not use it.
OPTIONAL = {"rich", "onnxruntime", "torch", "onnx", "llvmlite", "numpy", "ml_dtypes"}


def test_every_package_is_in_the_map() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = (c for c in settings["tool"]["importlinter"]["contracts"] if c["containers"] == ["inlay"])
    listed = {x.strip(" ()") for layer in contract["layers"] for x in layer.split("|")}
    existing = {
        p.stem
        for p in PACKAGE.iterdir()
        if (p.suffix == ".py" or (p / "__init__.py").exists()) and p.name != "__init__.py"
    }
    assert existing <= listed
    chart = (ROOT / "ARCHITECTURE.md").read_text()
    assert all(name in chart for name in existing)


def test_no_import_inside_a_function_but_of_optional_packages() -> None:
    found: list[str] = []
    for path in modules():
        for function in nodes(path):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [node.module or "."]
                found += [
                    f"{place(path)}:{node.lineno}: import of {name}"
                    for name in names
                    if name.split(".")[0] not in OPTIONAL
                ]
    assert not found, "\n".join(sorted(set(found)))


def test_imports_are_absolute_and_named() -> None:
    found: list[str] = []
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and (
                node.level or any(alias.name == "*" for alias in node.names)
            ):
                found.append(f"{place(path)}:{node.lineno}")
    assert not found, "\n".join(found)


def test_only_options_and_commands_read_the_environment() -> None:
    found: list[str] = []
    for path in modules():
        name = place(path).removeprefix("src/inlay/")
        if name == "base/options.py" or name.startswith("cli/"):
            continue
        for node in nodes(path):
            reads = isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
            taken = isinstance(node, ast.ImportFrom) and any(
                alias.name in ("environ", "getenv") for alias in node.names
            )
            if reads or taken:
                found.append(f"{place(path)}:{node.lineno}")
    assert not found, "\n".join(found)


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys; sys.path.insert(0, 'src'); before = set(sys.modules); import inlay; "
        "heavy = {'numpy', 'onnx', 'llvmlite'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
