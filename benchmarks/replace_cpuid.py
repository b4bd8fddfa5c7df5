"""Replace `cpuid` in the libraries of a folder, where the processor cannot let it fault (AMD).

    python -m venv ENV && ENV/bin/pip install '.[peers]'
    python benchmarks/replace_cpuid.py ENV/lib/python3*/site-packages/{inlay,llvmlite,numpy,...}
    LD_PRELOAD=$PWD/hide_avx512.so ENV/bin/python benchmarks/networks.py ...

Each `cpuid` (0F A2) becomes `ud2` (0F 0B), which `hide_avx512.c` answers: without it such a library ends
with SIGILL. `objdump` says where instructions begin, since the same two bytes occur inside others. Use such
an environment for nothing else.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

CPUID, UD2 = b"\x0f\xa2", b"\x0f\x0b"


def sections(library: Path) -> Iterator[tuple[int, int, int]]:
    """First address, size and offset in the file of each section of code."""
    shown = subprocess.run(["objdump", "-h", library], capture_output=True, text=True, check=True)
    for size, address, offset, flags in re.findall(
        r"^ +\d+ \S+ +(\w+) +(\w+) +\w+ +(\w+) .*\n +(.*)$", shown.stdout, re.MULTILINE
    ):
        if "CODE" in flags:
            yield int(address, 16), int(size, 16), int(offset, 16)


def replace(library: Path) -> int:
    """How many it replaced in `library`."""
    begins = list(sections(library))
    command = ["objdump", "-d", "--no-show-raw-insn", library]
    data, count = bytearray(library.read_bytes()), 0
    if CPUID not in data:
        return 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shown:
        assert shown.stdout
        for line in shown.stdout:
            if "\tcpuid" not in line:
                continue
            at = int(line.split(":")[0], 16)
            first, _, offset = next(x for x in begins if x[0] <= at < x[0] + x[1])
            place = slice(at - first + offset, at - first + offset + 2)
            assert data[place] == CPUID
            data[place] = UD2
            count += 1
    library.write_bytes(data)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    for folder in parser.parse_args().folders:
        for library in sorted(folder.rglob("*.so*")):
            print(f"{library}: {replace(library)}")


if __name__ == "__main__":
    main()
