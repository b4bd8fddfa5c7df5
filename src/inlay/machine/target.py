"""The target of code: what schedules, lowering and emitters know of one core of a device.

A target is made from what a back end knows of its devices, and from what the board says of their
architecture (`Target.with_facts`), which holds for machines that are not here too.

This machine is described from `/proc/cpuinfo` and `/sys` (or `sysctl`-free defaults elsewhere),
without importing llvmlite: a program whose kernels are all cached never needs it. The names of
features are LLVM's.

A processor elsewhere describes itself in words (`Target.offers`), and `offered` reads them without
trust: what it cannot know is left out, so code is made for at most what was offered.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from inlay.arith.dtype import I8, I16, U8, DType
from inlay.base.diagnostics import unsupported
from inlay.machine._permission import permitted
from inlay.machine.dot_products import DotProduct, instructions, kinds
from inlay.machine.matrix_units import TILE_FEATURES, MatrixProduct, matrix_products

# What must be there for arithmetic to be inlined: below this LLVM calls a math library.
_NEEDED = {"x86_64": frozenset({"sse4.1"}), "aarch64": frozenset[str]()}

# Linux spells a few features of x86 differently from LLVM; others differ only by underscores.
_X86_NAMES = {
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "lahf_lm": "sahf",
    "abm": "lzcnt",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
}
# Features that change which code is selected; the rest of the flags do not matter here.
_X86_USED = tuple(
    (
        "sse3 ssse3 sse4.1 sse4.2 popcnt lzcnt bmi bmi2 movbe avx avx2 fma f16c avx512f avx512cd avx512bw "
        "avx512dq avx512vl avx512vnni avx512vbmi avx512vbmi2 avx512ifma avx512bf16 avx512fp16 avx512bitalg "
        "avx512vpopcntdq avxvnni cx16 gfni sahf amx-tile amx-int8"
    ).split()
)
_ARM_NAMES = {
    "asimd": "neon",
    "asimddp": "dotprod",
    "fphp": "fullfp16",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "sve",
    "sve2": "sve2",
    "atomics": "lse",
}
_USED = {"x86_64": _X86_USED, "aarch64": tuple(_ARM_NAMES.values())}
_CPUS = tuple(
    (
        "znver1 znver2 znver3 znver4 znver5 skylake-avx512 icelake-server sapphirerapids x86-64 x86-64-v2 "
        "x86-64-v3 x86-64-v4"
    ).split()
)
_CACHES = (32 << 10, 512 << 10, 8 << 20)
MASKED_BYTES = 4
"""Of the least elements that vectors move by a mask; smaller ones take a branch each (AVX2, NEON)."""
HAND_OFF_NS = 10_000
"""What it takes to give other threads of a usual processor parts of a kernel, and to wait for them."""
_MOST_CACHE = 1 << 32


Fact: TypeAlias = int | tuple[str, ...]
"""A value of a field of `Target` that a board may give."""


@dataclass(frozen=True, slots=True)
class Target:
    """One core of a device, as code is made for it.

    Attributes:
        arch: LLVM's name of the instruction set, such as `x86_64`; empty where LLVM makes no code.
        cpu: LLVM's name of a processor, for instruction timing; `generic` is always right.
        features: LLVM's names of the features that may be used, sorted.
        vector_bytes: width of the widest vector registers; that of a scalar where there are none.
        vector_registers: how many there are.
        l1_bytes, l2_bytes, l3_bytes: data cache sizes, per core except the last; 0 for none.
        stack_bytes: that the temporaries of a kernel may take of the stack at once, by one caller.
        index_bits: width of the integers that addresses are computed with.
        dot: kinds of dot-product instructions, by name (`dot_products.KINDS`), where `features` do not
            say that there are some.
        saturating: whether sums of pairs of products of bytes may saturate, where no exact instruction
            is as fast.
        matrix: kinds of matrix instructions, by name (`matrix_units.MATRIX_PRODUCTS`), likewise.
        fma: whether a multiplication and addition with one rounding is an instruction, where
            `features` do not say so.
        doubles: whether there is `f64`.
        hand_off_ns: a kernel that is predicted to take less time has one part, on the thread of the call.
        dialect: name of the C that its compiler takes (`codegen/c_dialects.py`).
        stacks, memories: names of the stacks of its device, and of the other memories that it writes, as
            far as a board says them. Code without such names does not depend on them.
    """

    arch: str = ""
    cpu: str = "generic"
    features: tuple[str, ...] = ()
    vector_bytes: int = 32
    vector_registers: int = 16
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 8 << 20
    stack_bytes: int = 32 << 10
    index_bits: int = 64
    dot: tuple[str, ...] = ()
    saturating: bool = False
    matrix: tuple[str, ...] = ()
    fma: bool = True
    doubles: bool = True
    hand_off_ns: int = HAND_OFF_NS
    dialect: str = "C99"
    stacks: tuple[str, ...] = field(default=(), compare=False)
    memories: tuple[str, ...] = field(default=(), compare=False)

    def with_facts(self, facts: Sequence[tuple[str, Fact]]) -> Target:
        """Return the target with the values that a board gives for some fields, by name."""
        given: dict[str, Any] = dict(facts)
        return replace(self, **given) if given else self

    @property
    def triple(self) -> str:
        """LLVM's name of architecture and object format; code depends on no operating system."""
        return f"{self.arch}-unknown-linux-gnu"

    @property
    def feature_text(self) -> str:
        """The features as LLVM reads them.

        On x86 the name of a processor stands for features too, and a virtual machine or a sibling
        may lack some: those are taken away.
        """
        lacking = _X86_USED if self.arch == "x86_64" else ()
        words = [f"+{f}" for f in self.features]
        return ",".join([*words, *(f"-{f}" for f in lacking if f not in self.features)])

    @property
    def offers(self) -> str:
        """What it offers to code from elsewhere, as words; `offered` reads them."""
        caches = (f"l{i}={n}" for i, n in enumerate((self.l1_bytes, self.l2_bytes, self.l3_bytes), 1))
        return ",".join((self.arch, *self.features, f"cpu={self.cpu}", *caches))

    @property
    def has_half(self) -> bool:
        """Whether f16 is converted by an instruction."""
        return self.arch == "aarch64" or "f16c" in self.features

    @property
    def has_fma(self) -> bool:
        """Whether a multiplication and addition with one rounding is an instruction."""
        return self.fma and (self.arch != "x86_64" or "fma" in self.features)

    def dot_product(self, a: DType, b: DType) -> DotProduct | None:
        """Return the kind of instruction that adds up products of two formats; None for plain sums."""
        return next((kind for kind in self.dot_kinds if kind.takes(a, b)), None)

    @property
    def dot_kinds(self) -> tuple[DotProduct, ...]:
        """The kinds of dot-product instructions, by `features` and `dot`."""
        return kinds(self.arch, self.features, self.dot, saturating=self.saturating)

    @property
    def multiplies_bytes(self) -> bool:
        """Whether there is a dot-product instruction of bytes that is exact."""
        return any(kind.first.bits == 8 and not kind.saturates for kind in self.dot_kinds)

    @property
    def multiplies_unsigned(self) -> bool:
        """Whether an exact dot-product instruction takes bytes without a sign by bytes with one."""
        return any(kind.first is U8 and kind.second is I8 and not kind.saturates for kind in self.dot_kinds)

    @property
    def multiplies_half_bytes(self) -> bool:
        """Whether a dot-product instruction is exact for numbers of 4 bits without a sign by bytes.

        Sums of pairs saturate at 16 bits, which two products of 11 bits do not reach; and numbers of 4 bits
        are bytes with a sign, too.
        """
        found = kinds(self.arch, self.features, self.dot, saturating=True)
        return any(kind.second is I8 for kind in found)

    @property
    def sums_channels_in_floats(self) -> bool:
        """Whether sums of few products, each channel by itself, take fewer instructions in floats.

        On x86, products of small integers are those of pairs, whose other half is masked out. They take an
        addition each unless an instruction adds them to a sum; floats are converted instead of masked.
        """
        fused = (x.adds for x in instructions(self.arch, self.features) if x.kind.first is I16)
        return self.arch == "x86_64" and self.has_fma and not any(fused)

    @property
    def saturates_products(self) -> bool:
        """Whether sums of pairs of products of bytes may saturate in code for it."""
        kind = self.dot_product(U8, I8)
        return kind is not None and kind.saturates

    def matrix_product(self, a: DType, b: DType) -> MatrixProduct | None:
        """Return the kind of instruction that multiplies matrices of two formats, if there is one."""
        return next((x for x in self.matrix_kinds if x.first is a and x.second is b), None)

    @property
    def matrix_kinds(self) -> tuple[MatrixProduct, ...]:
        """The kinds of matrix instructions, by `features` and `matrix`."""
        return matrix_products(self.arch, self.features, self.matrix)

    def tile_registers(self, kind: DotProduct | None) -> int:
        """Return how many vector registers a tile of integer sums has for sums and factors.

        A product that no instruction adds to a sum by itself takes one, and ones that add up pairs another.
        """
        found = (x for x in instructions(self.arch, self.features) if x.kind is kind)
        first = next(found, None)
        if first is None or first.sums:
            return self.vector_registers - (1 if first is None else 2)
        return self.vector_registers - (not first.adds)

    @property
    def last_bytes(self) -> int:
        """Bytes of the last cache: the third one, or the second where there is no third."""
        return self.l3_bytes or self.l2_bytes

    def lanes(self, itemsize: int) -> int:
        """Return how many elements of so many bytes a vector register holds."""
        return max(1, self.vector_bytes // max(1, itemsize))

    @property
    def key(self) -> str:
        """What code depends on, as text for cache keys."""
        return f"{self.feature_text}|{astuple(replace(self, stacks=(), memories=()))}"


@functools.cache
def host() -> Target:
    """Describe the machine this runs on.

    Raises:
        UnsupportedError: `target.unknown-host`, `target.missing-feature`.
    """
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine())
    info = _cpu_info()
    features = _features(arch, info) if arch in _NEEDED else ()
    _check_known(arch, features)
    wide, registers = _vectors(arch, features)
    l1, l2, l3 = _caches()
    cpu = _cpu_name(arch, info, features)
    return Target(arch, cpu, features, wide, registers, l1, l2, l3)


def processor_name() -> str:
    """Return the name of this processor, as the system gives it; of its maker and part where it has none."""
    info = _cpu_info()
    part = f"implementer {info.get('cpu implementer', '?')} part {info.get('cpu part', '?')}"
    return " ".join(info.get("model name", "").split()) or f"{platform.machine()} {part}"


def offered(words: str) -> Target:
    """Return the target of a processor that offers these words (`Target.offers`).

    Words that mean nothing here are left out: what they offer is not used.

    Raises:
        UnsupportedError: `target.unknown-host`, `target.missing-feature`.
    """
    arch, *rest = words.split(",")
    facts = dict(word.split("=", 1) for word in rest if "=" in word)
    features = tuple(sorted(set(rest) & set(_USED.get(arch, ()))))
    _check_known(arch, features)
    wide, registers = _vectors(arch, features)
    cpu = facts.get("cpu", "")
    l1, l2, l3 = (_cache_size(facts.get(f"l{i}", ""), default) for i, default in enumerate(_CACHES, 1))
    return Target(
        arch, cpu if cpu in _CPUS and arch == "x86_64" else "generic", features, wide, registers, l1, l2, l3
    )


def _cache_size(text: str, default: int) -> int:
    is_size = text.isascii() and text.isdigit() and len(text) < 12
    return int(text) if is_size and 1024 <= int(text) <= _MOST_CACHE else default


def _check_known(arch: str, features: tuple[str, ...]) -> None:
    if arch not in _NEEDED:
        raise unsupported(
            "target.unknown-host",
            f"found a processor of architecture {arch!r}, needed one of {sorted(_NEEDED)}",
            hint="compile for one of the architectures that `inlay targets` lists",
        )
    if missing := sorted(_NEEDED[arch] - set(features)):
        raise unsupported(
            "target.missing-feature",
            f"found a processor without {', '.join(missing)}, which generated code needs",
        )


def baseline(arch: str, level: str = "") -> Target:
    """Return a target that many machines have: `x86_64` v2, v3 or v4, or `aarch64`."""
    if arch == "aarch64":
        return Target(arch, "generic", ("neon",), 16, 32)
    v2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
    v3 = tuple(sorted((*v2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")))
    v4 = tuple(sorted((*v3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")))
    match level or "v3":
        case "v2":
            return Target(arch, "x86-64-v2", v2, 16, 16)
        case "v3":
            return Target(arch, "x86-64-v3", v3, 32, 16)
        case "v4":
            return Target(arch, "x86-64-v4", v4, 64, 32)
        case _:
            raise unsupported("target.unknown-host", f"no level {level!r} of {arch}")


def _cpu_info() -> dict[str, str]:
    """Return the fields of the first processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    fields: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip().lower(), value.strip())
    return fields


def _features(arch: str, info: dict[str, str]) -> tuple[str, ...]:
    if arch == "x86_64":
        flags = {_X86_NAMES.get(f, f) for f in info.get("flags", "").split()}
        flags |= {{"bmi1": "bmi", "avx_vnni": "avxvnni", "pni": "sse3"}.get(f, f) for f in flags}
        if not flags >= TILE_FEATURES or not all(map(permitted, TILE_FEATURES)):
            flags -= TILE_FEATURES
        return tuple(sorted(flags & set(_X86_USED)))
    flags = info.get("features", "asimd").split()
    return tuple(sorted({_ARM_NAMES[f] for f in flags if f in _ARM_NAMES} | {"neon"}))


def _vectors(arch: str, features: tuple[str, ...]) -> tuple[int, int]:
    if arch == "aarch64":
        return 16, 32
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(features):
        return 64, 32
    return (32, 16) if "avx2" in features and "fma" in features else (16, 16)


def _cpu_name(arch: str, info: dict[str, str], features: tuple[str, ...]) -> str:
    """Return a name LLVM knows; a wrong one would only cost speed, so few are told apart."""
    if arch == "aarch64":
        return "generic"
    known = set(features)
    family, model = (int(info.get(k, "0") or 0) for k in ("cpu family", "model"))
    if "AMD" in info.get("vendor_id", "") and family in (0x17, 0x19, 0x1A):
        if family == 0x1A:
            return "znver5" if "avx512f" in known else "znver3"
        if family == 0x19:
            return "znver4" if "avx512f" in known else "znver3"
        return "znver2" if model >= 0x30 else "znver1"
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= known:
        if "avx512fp16" in known:
            return "sapphirerapids"
        return "icelake-server" if "avx512vnni" in known else "skylake-avx512"
    if "avx2" in known and "fma" in known:
        return "x86-64-v3"
    return "x86-64-v2" if "sse4.2" in known else "x86-64"


def _caches() -> tuple[int, int, int]:
    sizes: dict[int, int] = dict(enumerate(_CACHES, 1))
    root = Path("/sys/devices/system/cpu/cpu0/cache")
    for index in sorted(root.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and size.endswith("K") and level in sizes:
            sizes[level] = int(size[:-1]) << 10
    return sizes[1], sizes[2], sizes[3]
