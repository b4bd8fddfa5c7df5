"""What is known about the host, and the levels that stand for many machines."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from inlay.arith.dtype import I8, U8
from inlay.base.diagnostics import UnsupportedError
from inlay.machine import target
from inlay.machine._permission import permitted
from inlay.machine.matrix_units import MATRIX_PRODUCTS
from inlay.machine.target import Target, baseline, host, offered


def test_the_host_is_described_without_llvm() -> None:
    program = "import sys; from inlay.machine.target import host; host(); print('llvmlite' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
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


def test_what_a_processor_offers_is_read_back() -> None:
    for one in (host(), baseline("x86_64", "v2"), baseline("x86_64", "v4"), baseline("aarch64")):
        assert offered(one.offers) == one


def test_what_is_not_known_is_not_used() -> None:
    words = "x86_64,sse4.1,avx2,wings,cpu=pentium -fast,l1=zero,l2=7,l3=99999999999,l4=1"
    found = offered(words)
    assert found.features == ("avx2", "sse4.1")
    assert (found.cpu, found.l1_bytes, found.l2_bytes, found.l3_bytes) == (
        "generic",
        32 << 10,
        512 << 10,
        8 << 20,
    )
    assert (found.vector_bytes, found.vector_registers) == (16, 16)


@pytest.mark.parametrize(
    ("words", "match"), [("", "''"), ("riscv64,v", "'riscv64'"), ("x86_64,sse3", "without sse4.1")]
)
def test_processors_that_no_code_is_made_for(words: str, match: str) -> None:
    with pytest.raises(UnsupportedError, match=match):
        offered(words)


@pytest.mark.llvm
def test_a_name_stands_for_no_feature_that_is_not_there() -> None:
    """Cascade Lake has VNNI and not VPOPCNTDQ; the name that both go by has both."""
    from inlay.codegen.llvm_compile import assembly

    text = """
define void @f(ptr %p) {
  %x = load <16 x i32>, ptr %p
  %y = call <16 x i32> @llvm.ctpop.v16i32(<16 x i32> %x)
  store <16 x i32> %y, ptr %p
  ret void
}
declare <16 x i32> @llvm.ctpop.v16i32(<16 x i32>)
"""
    v4 = baseline("x86_64", "v4")
    some = replace(v4, cpu="icelake-server", features=tuple(sorted((*v4.features, "avx512vnni"))))
    more = replace(some, features=tuple(sorted((*some.features, "avx512vpopcntdq"))))
    assert "vpopcntd" in assembly(text, more, optimize=False)
    assert "vpopcntd" not in assembly(text, some, optimize=False)


@pytest.mark.parametrize("may", [False, True])
def test_matrices_are_claimed_only_with_leave_to_use_them(
    monkeypatch: pytest.MonkeyPatch, *, may: bool
) -> None:
    flags = "sse4_1 amx_tile amx_int8"
    monkeypatch.setattr(target, "permitted", lambda _: may)
    found = target._features("x86_64", {"flags": flags})
    assert ("amx-int8" in found) is ("amx-tile" in found) is may
    assert bool(Target("x86_64", features=found).matrix_kinds) is may
    assert "amx-tile" not in target._features("x86_64", {"flags": "sse4_1 amx_tile"})


def test_matrix_kinds_are_exact_in_their_formats() -> None:
    said = Target(matrix=("u8i8",))
    assert said.matrix_product(U8, I8) is MATRIX_PRODUCTS["u8i8"]
    assert said.matrix_product(I8, I8) is None
    assert said.key != Target().key


def test_only_what_systems_hand_out_is_asked_for() -> None:
    assert all(permitted(f) for f in ("", "am", "avx2", "sse4.1", "neon"))
    assert permitted("amx-int8") is permitted("amx-tile")
    assert permitted("amx-int8") or "amx-int8" not in host().features
