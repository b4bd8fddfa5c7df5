from __future__ import annotations

from dataclasses import dataclass

import pytest

from inlay.ir.module import Module
from inlay.passes.contract import Pass, PassContext, Property, Remark


class NoOps:
    def find(self, name):
        return None

    def names(self):
        return ()


@dataclass(frozen=True, slots=True)
class Limit:
    size: int = 4


@dataclass(frozen=True, slots=True)
class Other:
    size: int = 5


def make_pass(name="turn_over", run=lambda m, c: m, **kw):
    return Pass(f"inlay.transforms.{name}", run, "turn over", **kw)


def test_name_is_the_kebab_file_name():
    assert make_pass("fold_constants").name == "fold-constants"


def test_options_are_found_by_record_type_and_default_otherwise():
    context = PassContext(NoOps(), options={Limit: Limit(9)})
    assert context.options_for(Limit) == Limit(9)
    assert context.options_for(Other) == Other()


def test_options_of_the_wrong_record_are_our_fault():
    context = PassContext(NoOps(), options={Limit: Other()})
    with pytest.raises(AssertionError, match="Limit"):
        context.options_for(Limit)


def test_remarks_keep_their_order_and_are_found_by_pass():
    context = PassContext(NoOps())
    first = Remark("fuse-ops", "not-fused", "effect", "a check keeps its place")
    second = Remark("pack-weights", "packed", "constant", "the weight is constant")
    context.remarks.add(first)
    context.remarks.add(second)
    assert context.remarks.all == (first, second)
    assert context.remarks.of("pack-weights") == (second,)


def test_contexts_do_not_share_what_they_gather():
    PassContext(NoOps()).remarks.add(Remark("a", "b", "c", "d"))
    assert PassContext(NoOps()).remarks.all == ()


def test_properties_are_kebab_words():
    assert all(p.value == p.name.lower().replace("_", "-") for p in Property)
    assert Module().functions == {}
