from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from inlay.base.diagnostics import InternalError, error
from inlay.base.instrument import EventKind, Instrument
from inlay.ir.module import Module
from inlay.passes.contract import Pass, PassContext, Property
from inlay.passes.manager import make_pipeline, run_pipeline


class NoOps:
    def find(self, name):
        return None

    def names(self):
        return ()


CONTEXT = PassContext(NoOps())


def step(name, entry=None, **kw):
    """A pass that appends its name to the entry of the module, which stands for any change."""

    def run(module, context):
        return replace(module, entry=module.entry + (entry or name[0]))

    return Pass(f"x.{name}", run, name, **kw)


def test_a_list_that_satisfies_every_requirement_is_accepted():
    pipeline = make_pipeline(
        [
            step("name_all", requires=(Property.TYPED,), establishes=(Property.ANF,)),
            step("fuse", requires=(Property.ANF,), establishes=(Property.FUSED,)),
        ]
    )
    assert pipeline.establishes == {Property.TYPED, Property.ANF, Property.FUSED}


def test_a_requirement_that_comes_too_late_is_refused_with_the_name_of_its_maker():
    with pytest.raises(InternalError, match=r"'fuse' requires 'anf'.*'name-all'.*comes after"):
        make_pipeline([step("fuse", requires=(Property.ANF,)), step("name_all", establishes=(Property.ANF,))])


def test_a_requirement_that_was_lost_is_refused_with_the_name_of_the_loser():
    with pytest.raises(InternalError, match=r"'fuse' requires 'anf', and 'nest' loses that"):
        make_pipeline(
            [
                step("name_all", establishes=(Property.ANF,)),
                step("nest", loses=(Property.ANF,)),
                step("fuse", requires=(Property.ANF,)),
            ]
        )


def test_a_requirement_that_nothing_establishes_is_refused():
    with pytest.raises(InternalError, match="nothing before it establishes"):
        make_pipeline([step("fuse", requires=(Property.ANF,))])


def test_what_is_established_again_holds_again():
    make_pipeline(
        [
            step("nest", loses=(Property.ANF,)),
            step("name_all", establishes=(Property.ANF,)),
            step("fuse", requires=(Property.ANF,)),
        ],
        given=(Property.ANF,),
    )


def test_passes_run_in_order_and_are_observed_and_timed():
    seen = []
    events = []
    context = PassContext(NoOps(), instrument=Instrument(SimpleNamespace(emit=events.append)))
    result = run_pipeline(
        make_pipeline([step("a"), step("b"), step("c")]),
        Module(entry=""),
        context,
        observe=lambda p, before, after: seen.append((p.name, before.entry, after.entry)),
    )
    assert result.entry == "abc"
    assert seen == [("a", "", "a"), ("b", "a", "ab"), ("c", "ab", "abc")]
    assert [(e.kind, e.name) for e in events] == [
        (kind, name) for name in "abc" for kind in (EventKind.BEGIN, EventKind.END)
    ]


def test_an_ill_formed_result_is_our_fault_and_names_the_pass():
    def verify(module):
        if "b" in module.entry:
            raise error("type.rank-mismatch", "found rank 1, needed rank 2")

    with pytest.raises(InternalError, match="pass 'b' is not well formed") as caught:
        run_pipeline(
            make_pipeline([step("a"), step("b"), step("c")]), Module(entry=""), CONTEXT, verify=verify
        )
    assert caught.value.where == "b"
    assert "type.rank-mismatch" in str(caught.value)
