"""Names in emitted C shadow none."""

from __future__ import annotations

from inlay.codegen.c_names import Names


def test_what_is_hoisted_has_no_name_of_a_block_behind_it() -> None:
    names = Names(["t"])
    names.open()
    outer = 2
    names.open()
    names.open()
    inside = names.fresh("t")
    names.close()
    assert names.fresh("t", outer) != inside, "it is declared in front of the block that has ended"


def test_neighbors_have_the_same_names() -> None:
    names = Names([])
    found = []
    for _ in range(2):
        names.open()
        found.append(names.fresh("i"))
        names.close()
    assert found == ["i", "i"]
