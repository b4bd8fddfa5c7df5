"""What is known about the host, and the levels that stand for many machines."""

from __future__ import annotations

import subprocess
import sys

import pytest

from inlay.base.diagnostics import UnsupportedError
from inlay.machine.target import Target, baseline, host


def test_the_host_is_described_without_llvm() -> None:
    program = "import sys; from inlay.machine.target import host; host(); print('llvmlite' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_features_of_the_host_are_those_llvm_finds() -> None:
    import llvmlite.binding as llvm

    found = {k for k, on in llvm.get_host_cpu_features().items() if on}
    assert set(host().features) <= found
    for needed in ("avx2", "avx512f", "fma", "neon"):
        assert (needed in found) == (needed in host().features)


def test_vector_sizes() -> None:
    assert [baseline("x86_64", v).lanes(4) for v in ("v2", "v3", "v4")] == [4, 8, 16]
    assert baseline("aarch64").lanes(8) == 2


def test_unknown_levels_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no level 'v9'"):
        baseline("x86_64", "v9")


def test_keys_differ_by_what_code_depends_on() -> None:
    a = baseline("x86_64", "v3")
    b = Target(a.arch, a.cpu, a.features[:-1], a.vector_bytes, a.vector_registers)
    assert a.key != b.key
