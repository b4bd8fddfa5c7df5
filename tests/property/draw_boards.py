"""Draw machines: devices of all kinds in any order, memories, engines, links, and what is missing.

A device is this processor again, one with other figures, an accelerator that is here (`vanilla`,
`strawberry`), an OpenCL device, or one that is only described. It has a memory of its own behind an engine,
or the host's. Now and then a link or coherence is missing, a memory is small, a stack has no bytes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Keys = Mapping[str, object]


@dataclass
class Drawn:
    """A machine as it is drawn: devices with their architecture and memories, and the other tables."""

    devices: list[tuple[str, str, list[str]]] = field(default_factory=lambda: [("cpu", "native", ["ram"])])
    archs: dict[str, dict[str, object]] = field(default_factory=dict)
    memories: dict[str, dict[str, object]] = field(default_factory=lambda: {"ram": {}})
    coherent: list[str] = field(default_factory=lambda: ["cpu"])
    links: list[tuple[str, str, str]] = field(default_factory=list)


def draw_board(rng: random.Random, kinds: Sequence[str] = ("own", "native", "described")) -> str:
    """Return the file of a board.

    Args:
        rng: draws.
        kinds: that devices with figures of their own may be: also `opencl`.
    """
    b = Drawn()
    _host(b, rng)
    _accelerators(b, rng)
    for name in rng.sample(["side", "deep", "far"], rng.choice([0, 1, 1, 2])):
        _device(b, rng, name, rng.choice(kinds))
    rng.shuffle(b.devices)
    lines = ['summary = "drawn"']
    if rng.random() < 0.4:
        lines.append(f'default = "{rng.choice(b.devices)[0]}"')
    lines += [line for name, keys in b.archs.items() for line in _table("arch", name=name, **keys)]
    for name, keys in b.memories.items():
        lines += _table("memory", name=name, bytes_per_ns=rng.choice([1, 12, 100]), **keys)
    for name, arch, memories in b.devices:
        lines += _table("device", name=name, arch=arch, memories=memories)
    if len(b.coherent) > 1 and rng.random() < 0.95:
        lines += _table("coherent", memory="ram", parties=b.coherent)
    for source, target, engine in b.links:
        if source == "ram":
            lines += _table("engine", name=engine, memories=[source, target])
    for source, target, engine in b.links:
        lines += _table("link", source, target, engine=engine, bytes_per_ns=rng.choice([1, 50]))
    return "\n".join(lines) + "\n"


def _host(b: Drawn, rng: random.Random) -> None:
    if rng.random() < 0.15:
        b.memories["ram"] = {"kind": "static", "bytes": rng.choice(["4KiB", "64KiB", "1MiB"])}
    elif rng.random() < 0.15:
        b.memories["ram"] = {"bytes": rng.choice(["1KiB", "16KiB", "1MiB"])}
    if rng.random() < 0.4:
        b.memories["cpu.stack"] = {"kind": "stack", "owner": "cpu", "bytes": rng.choice(["512B", "64KiB"])}
        b.devices[0][2].append("cpu.stack")
    if rng.random() < 0.3:
        b.memories["fast"] = {"kind": "static", "bytes": rng.choice(["512B", "4KiB", "64KiB"])}
        b.devices[0][2].insert(rng.randint(0, 1), "fast")
    if rng.random() < 0.6:  # a slow host leaves the work to others
        b.archs["native"] = {
            "stack_bytes": rng.choice([0, 4096, 32768]),
            "macs_per_ns": rng.choice([0.001, 9]),
        }


def _accelerators(b: Drawn, rng: random.Random) -> None:
    drawn = [("vanilla", rng.choice([1, 1, 2]), 0.5), ("strawberry", 1, 0.3)]
    for kind, count, chance in drawn:
        if rng.random() < chance:
            b.archs[kind] = {"generator": kind, "loader": kind}
            for i in range(count):
                b.devices.append((f"{kind}{i}", kind, ["ram"]))
                b.coherent.append(f"{kind}{i}")


def _device(b: Drawn, rng: random.Random, name: str, kind: str) -> None:
    arch = "native" if kind == "native" else f"arch_{name}"
    if kind != "native":
        b.archs[arch] = {"macs_per_ns": rng.choice([1, 4000]), "launch_ns": rng.choice([0, 3000])}
        b.archs[arch] |= {"own": {"generator": "llvm", "loader": "native"}, "described": {}}.get(
            kind, {"generator": kind, "loader": kind}
        )
        if rng.random() < 0.3:
            b.archs[arch]["operators"] = ["matmul", "add", "tanh"]
    if rng.random() < 0.3 and kind != "opencl":
        b.devices.append((name, arch, ["ram"]))
        b.coherent.append(name)
        return
    memory, engine = f"{name}.mem", f"dma_{name}"
    b.memories[memory] = {"owner": name}
    if rng.random() < 0.5:
        b.memories[memory] |= {"kind": "static", "bytes": rng.choice(["512B", "4KiB", "64KiB", "1MiB"])}
    b.devices.append((name, arch, [memory]))
    b.links += [("ram", memory, engine), (memory, "ram", engine)][: 1 if rng.random() < 0.05 else 2]


def _table(kind: str, source: str = "", target: str = "", /, **keys: object) -> list[str]:
    ends = [f'from = "{source}"', f'to = "{target}"'] if source else []
    return [f"[[{kind}]]", *ends, *(f"{k} = {_value(v)}" for k, v in keys.items())]


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return str(value) if isinstance(value, int | float) else f'"{value}"'
