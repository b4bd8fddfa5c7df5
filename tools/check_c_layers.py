"""Check that the C files of the runtime refer to each other in one direction, without circles.

A file refers to another one by an include, or by a function or variable that the other defines. The
first are read from the sources, the second from object files: each source is compiled, so a use
through a macro counts and one in a comment does not. Folders are layers, the lowest first.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("runtime/include", "runtime/src", "runtime/src/platform", "src/inlay/runtime/_ext")
HEADERS = (*(ROOT / folder for folder in FOLDERS), Path(sysconfig.get_paths()["include"]))

Graph = Mapping[str, Mapping[str, set[str]]]
"""What each file refers to in each other file: names of symbols, or "#include"."""


def includes(root: Path, files: Sequence[str]) -> Graph:
    """Return which files include which others of the list, found by the end of their paths."""
    found: dict[str, dict[str, set[str]]] = defaultdict(dict)
    for file in files:
        for name in re.findall(r'^#include "(.+)"', (root / file).read_text("utf-8"), re.MULTILINE):
            for other in files:
                if f"/{other}".endswith(f"/{name}"):
                    found[file][other] = {"#include"}
    return found


def uses(root: Path, sources: Sequence[str], headers: Sequence[Path]) -> Graph:
    """Compile sources, and return which of them use what is defined in which others."""
    paths = [f"-I{folder}" for folder in headers]
    with tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder, f"{i}.o") for i in range(len(sources))]

        def compile_one(pair: tuple[str, Path]) -> None:
            command = ["gcc", "-O0", "-w", *paths, "-c", str(root / pair[0]), "-o", str(pair[1])]
            subprocess.run(command, check=True)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_one, zip(sources, objects, strict=True)))
        rows = subprocess.run(
            ["nm", "-A", "-P", "-g", *map(str, objects)], check=True, capture_output=True, text=True
        ).stdout.splitlines()
    symbols = [row.split()[:3] for row in rows]
    of_object = {f"{o}:": s for o, s in zip(objects, sources, strict=True)}
    home = {name: of_object[place] for place, name, kind in symbols if kind != "U"}
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for place, name, kind in symbols:
        if kind == "U" and name in home:
            found[of_object[place]][home[name]].add(name)
    return found


def circles(graph: Graph) -> Iterator[list[str]]:
    """Yield the files of each circle: those that reach each other, by Tarjan's algorithm."""
    number: dict[str, int] = {}
    least: dict[str, int] = {}
    open_files: list[str] = []
    for root in sorted(graph):
        walk = [(root, iter(sorted(graph[root])))] if root not in number else []
        while walk:
            file, others = walk[-1]
            if file not in number:
                number[file] = least[file] = len(number)
                open_files.append(file)
            for other in others:
                if other not in number:
                    walk.append((other, iter(sorted(graph.get(other, ())))))
                    break
                if other in open_files:
                    least[file] = min(least[file], number[other])
            else:
                walk.pop()
                if walk:
                    least[walk[-1][0]] = min(least[walk[-1][0]], least[file])
                if least[file] == number[file]:
                    start = open_files.index(file)
                    if len(open_files) - start > 1:
                        yield sorted(open_files[start:])
                    del open_files[start:]


def findings(graph: Graph, layers: Sequence[str]) -> Iterator[str]:
    """Yield lines that say where a file refers to one above it, and what makes each circle."""

    def rows(files: Sequence[str]) -> Iterator[str]:
        for file in files:
            for other in sorted(set(graph.get(file, {})) & set(files)):
                yield f"  {file} -> {other}: {', '.join(sorted(graph[file][other]))}"

    for files in circles(graph):
        yield f"{len(files)} files refer to each other in a circle"
        yield from rows(files)
    for file in sorted(graph):
        for other in sorted(graph[file]):
            lower, upper = (layers.index(Path(f).parent.as_posix()) for f in (file, other))
            if lower < upper:
                yield f"{file} refers to a file of a layer above it"
                yield from rows([file, other])


def main() -> int:
    """Print what is wrong with the runtime; return the exit status."""
    files = sorted(
        path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).glob("*.[ch]")
    )
    sources = [file for file in files if file.endswith(".c")]
    lines = [
        line
        for graph in (includes(ROOT, files), uses(ROOT, sources, HEADERS))
        for line in findings(graph, FOLDERS)
    ]
    print(f"c layers: {len(files)} files, {'kept' if not lines else 'broken'}")
    print("\n".join(lines), end="\n" if lines else "")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
