"""Fresh names and spellings."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from inlay.base.names import NameSupply, to_c


def test_fresh_names_do_not_grow() -> None:
    supply = NameSupply(["x_1"])
    assert [supply.fresh("x") for _ in range(3)] == ["x", "x_2", "x_3"]
    assert supply.fresh("x_2") == "x_4"
    assert supply.fresh("conv1") == "conv1"
    assert supply.fresh("conv1") == "conv1_1"
    assert "conv1_1" in supply
    assert "y" not in supply


@given(st.lists(st.sampled_from(["x", "x_1", "x_2", "t", "_1", "x_1_1"])))
def test_fresh_names_are_distinct(hints: list[str]) -> None:
    supply = NameSupply()
    names = [supply.fresh(hint) for hint in hints]
    assert len(set(names)) == len(names)


def test_plain_names_stay_readable() -> None:
    assert to_c("model/layer.0:out") == "model_layer_0_out"
    assert to_c("float") == "float_"
    assert to_c("0x") == "v0x"
    assert to_c("0x", prefix="k_") == "k_0x"


@given(st.text())
def test_c_names_are_identifiers(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", to_c(name))
