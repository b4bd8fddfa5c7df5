"""Laws of the tensor IR over generated programs."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings

from inlay.base.diagnostics import CompileError
from inlay.ir import walk
from inlay.ir.equal import equal, modules_equal, structural_hash
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.printer import PrintOptions, print_module
from inlay.ir.verify import verify
from inlay.ops.table import table
from tests.examples import examples
from tests.property.gen_ir import Program, assert_same, programs, run


@given(programs())
def test_programs_are_well_formed_and_run(p: Program):
    assert verify(p.module) == ()
    run(p)


@given(programs())
def test_what_is_printed_is_read_back(p: Program):
    text = print_module(p.module)
    again = parse_module(text, table())
    assert modules_equal(p.module, again), text
    assert verify(again) == ()
    short = parse_module(print_module(p.module, PrintOptions(types=False)), table())
    assert modules_equal(p.module, short)


@given(programs())
def test_equal_programs_have_one_hash(p: Program):
    again = parse_module(print_module(p.module), table())
    for name, f in p.module.functions.items():
        assert structural_hash(f) == structural_hash(again.functions[name])


@given(programs())
def test_the_identity_rewrite_is_the_identity(p: Program):
    for f in p.module.functions.values():
        assert walk.rewrite(f, lambda e: e) is f


@given(programs())
def test_a_copy_is_equal_and_apart(p: Program):
    copies = {n: walk.copy(f) for n, f in p.module.functions.items()}
    for name, f in p.module.functions.items():
        assert equal(f, copies[name])
        assert equal(copies[name], f)
        assert not set(walk.all_vars(f)) & set(walk.all_vars(copies[name]))
        assert not set(walk.bound_symbols(f)) & set(walk.bound_symbols(copies[name]))
    m = Module(copies, p.module.adts, p.module.kernels, p.module.entries)
    assert verify(m) == ()
    assert_same(p, m)


@given(programs())
@settings(max_examples=examples(10))
def test_reading_broken_text_is_an_error_and_no_crash(p: Program):
    text = print_module(p.module)
    for at in range(7, len(text), max(len(text) // 12, 1)):
        for broken in (text[:at] + text[at + 1 :], text[:at] + ")" + text[at:]):
            with contextlib.suppress(CompileError):
                parse_module(broken, table())
