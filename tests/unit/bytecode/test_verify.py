"""The verifier: wrong programs are refused with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.bytecode import verify
from inlay.bytecode.isa import CODES, INSTRUCTIONS, Kind
from inlay.bytecode.program import (
    AccessCode,
    BatchRecord,
    Effects,
    Function,
    HostBody,
    ImageBody,
    Kernel,
    Phase,
    Program,
    ShapeCode,
    ShapeInput,
)
from tests.data import REPOSITORY

SHAPES = (ShapeCode(0, (ShapeInput(0),), 1), ShapeCode(1, (ShapeInput(0, 2), ShapeInput(1)), 2))


def check(*code, params=(), results=(), frame=8, extra=(), image=b"code", shapes=SHAPES, **more):
    words = [CODES[w] if isinstance(w, str) else w & 0xFFFFFFFF for w in code]
    f = Function("f", tuple(params), tuple(results), frame, tuple(words), **more)
    program = Program(functions=(f, *extra), strings=("s",), image=image, shapes=shapes)
    return [str(x) for x in verify.findings(program)]


def waiting_jumps(depth: int, jumps: int) -> list:
    """So many slots, then jumps that all wait at one time, each for a place of its own."""
    ends = 2 * depth + 4 * jumps
    code = ["INT", 0] * depth
    for i in range(jumps):
        code += ["COPY", 0, "JUMP_IF_FALSE", ends + 2 * i]
    return [*code, *(["POP", 0] * jumps), "RETURN"]


def test_jumps_that_wait_with_deep_stacks_are_limited(monkeypatch):
    assert check(*waiting_jumps(30, 20), frame=40) == []
    monkeypatch.setattr(verify, "MAX_WAITING", 30 * 20)
    assert check(*waiting_jumps(30, 20), frame=40) == []
    monkeypatch.setattr(verify, "MAX_WAITING", 30 * 20 - 1)
    assert "too many jumps wait" in check(*waiting_jumps(30, 20), frame=40)[0]


def test_both_verifiers_have_one_limit():
    source = (REPOSITORY / "runtime" / "src" / "verify.c").read_text()
    assert f"#define MAX_WAITING ((size_t)1 << {verify.MAX_WAITING.bit_length() - 1})" in source


def test_native_shape_code_stands_for_the_instructions_behind_it():
    assert check("INT", 7, "EVAL", 7, 0, "INT", 1, "RETURN", results=(Kind.INT,)) == []
    two = ["INT", 7, "INT", 8, "EVAL", 11, 1, "INT", 1, "INT", 2, "RETURN"]
    assert check(*two, results=(Kind.INT,) * 4) == []


@pytest.mark.parametrize(
    "code",
    [
        ["INT", 1, "CELL_NEW", "POP", 1, "RETURN"],
        ["CALL", 1, "RETURN"],
        ["TAIL_CALL", 1],
        ["SPAWN", 1, "RETURN"],
        ["CLOSURE", 1, 0, "POP", 1, "RETURN"],
    ],
)
def test_a_type_that_hides_an_effect(code):
    callee = Function("g", (), (), 1, (CODES["RETURN"],), effects=Effects.CELLS)
    assert "has effects that the type of the function does not have" in check(*code, extra=(callee,))[0]
    assert check(*code, extra=(callee,), effects=Effects.CELLS) == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (["INT", 7, "EVAL", 9, 0, "INT", 1, "INT", 2, "RETURN"], "two ways meet with 2 and 3 slots"),
        (["INT", 7, "EVAL", 7, 0, "CONST", 0, "RETURN"], "constant 0 of CONST"),
        (["INT", 7, "EVAL", 2, 0, "RETURN"], "EVAL goes back"),
        (["INT", 7, "EVAL", 0, 0, "RETURN"], "EVAL goes back"),
        (["INT", 7, "EVAL", 6, 0, "INT", 1, "RETURN"], "EVAL goes to word 6, no instruction"),
        (["INT", 7, "EVAL", 7, 1, "INT", 1, "RETURN"], "a slot beyond the 1 in use"),
        (["INT", 7, "EVAL", 7, 2, "INT", 1, "RETURN"], "shape 2 of EVAL"),
        (["INT", 7] * 2 + ["EVAL", 9, 1, "INT", 1, "RETURN"], "the 3 slots of its frame"),
    ],
)
def test_wrong_use_of_native_shape_code(code, message):
    assert message in check(*code, results=(Kind.INT,), frame=3)[0]


def test_wrong_native_shape_code():
    def found(shape, image=b"code"):
        return check("INT", 1, "POP", 1, "RETURN", shapes=(shape,), image=image)[0]

    assert "outside the image" in found(ShapeCode(4, (), 1))
    assert "outside the image" in found(ShapeCode(-1, (), 1))
    assert "outside the image" in found(ShapeCode(0, (), 1), image=b"")
    assert "too many" in found(ShapeCode(0, (ShapeInput(0),) * 65, 1))
    assert "too many" in found(ShapeCode(0, (), 0x10000))
    assert "no slot and no axis" in found(ShapeCode(0, (ShapeInput(0, 16),), 1))


def test_accepts():
    assert check("INT", 1, "POP", 1, "RETURN") == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (["INT", 1], "runs off the end"),
        ([], "runs off the end"),
        ([999], "not an instruction"),
        (["INT"], "lacks operands"),
        (["SWITCH", 0], "lacks targets"),
        (["SWITCH", 9, 0], "lacks targets"),
        (["ADD", "RETURN"], "pops 1 of 0|pops 2 of 0"),
        (["COPY", 0, "RETURN"], "not below 0"),
        (["CONST", 0, "RETURN"], "not below 0"),
        (["INT_WIDE", 0, "RETURN"], "not below 0"),
        (["CALL", 1, "RETURN"], "not below 1"),
        (["INT", 1, "INVOKE", 0, "RETURN"], "not below 0"),
        (["FAIL", 0, 1], "not below 1"),
        (["JUMP", 1], "goes to word 1"),
        (["JUMP", 100], "goes to word 100"),
        (["INT", 0, "MOVE", 0, "MOVE", 0, "RETURN"], "which is empty"),
        (["INT", 0, "DROP", 0, "NEG", "RETURN"], "holds empty"),
        (["INT", 0, "TAG", "RETURN"], "needs adt in slot 0, which holds int"),
        (["INT", 0, "POP", 2, "RETURN"], "POP needs 2 of 1"),
        (["INT", 0, "SLIDE", 1, 1, "RETURN"], "SLIDE needs 2 of 1"),
        (["INT", 0, "STORAGE", 0, 3, "RETURN"], "power of two"),
        (["INT", 0, "STORAGE", 1, 64, "RETURN"], "not below 1"),
        (["INT", 0, "ALLOCATE", 0, 99, 1, "RETURN"], "dtype 99"),
        (["INT", 0, "ALLOCATE", 0, 0, 17, "RETURN"], "rank 17"),
        (["INT", 1] * 9 + ["RETURN"], "more than the 8 slots"),
        (["RETURN", "RETURN"], "never comes here"),
        # Two ways to word 6 with different depths; and with different kinds.
        (["INT", 0, "JUMP_IF_FALSE", 6, "INT", 1, "RETURN"], "two ways meet with 0 and 1 slots"),
        (["INT", 0, "COPY", 0, "JUMP_IF_FALSE", 8, "DROP", 0, "RETURN"], "int and empty"),
        (
            ["INT", 0, "INT", 0, "JUMP_IF_FALSE", 10, "TUPLE", 1, "JUMP", 10, "RETURN"],
            "int and tuple|tuple and int",
        ),
        (["INT", 0, "JUMP", 0], "two ways meet with 0 and 1 slots|1 and 0"),
    ],
)
def test_refuses(code, message):
    import re

    (found,) = check(*code)
    assert re.search(message, found), found


def test_results_and_arguments_have_their_kinds():
    assert "RETURN needs tensor" in check("INT", 1, "RETURN", results=[Kind.TENSOR])[0]
    g = Function("g", (Kind.TENSOR,), (), 1, (CODES["RETURN"],))
    assert "CALL needs tensor" in check("INT", 1, "CALL", 1, "RETURN", extra=[g])[0]
    assert "CLOSURE needs tensor" in check("INT", 1, "CLOSURE", 1, 1, "RETURN", extra=[g])[0]
    assert "captures 2" in check("INT", 1, "INT", 1, "CLOSURE", 1, 2, "RETURN", extra=[g])[0]
    h = Function("h", (), (Kind.INT,), 1, (CODES["INT"], 0, CODES["RETURN"]))
    assert "other results" in check("TAIL_CALL", 1, extra=[h])[0]


def test_unknown_kinds_meet_known_ones():
    # A projection may be an integer: it meets one, and is taken where one is needed.
    code = [
        "INT",
        1,
        "TUPLE",
        1,
        "PROJECT",
        0,
        "INT",
        0,
        "JUMP_IF_FALSE",
        14,
        "POP",
        1,
        "INT",
        2,
        "NEG",
        "RETURN",
    ]
    assert check(*code, results=[Kind.INT]) == []


def test_loop_arrives_with_the_state_of_its_head():
    assert check(
        "INT",
        5,
        "COPY",
        0,
        "JUMP_IF_FALSE",
        13,
        "COPY",
        0,
        "NEG",
        "SLIDE",
        1,
        1,
        "JUMP",
        2,
        "RETURN",
        results=[Kind.INT],
    )
    assert (
        check(
            "INT",
            5,
            "COPY",
            0,
            "JUMP_IF_FALSE",
            14,
            "COPY",
            0,
            "NEG",
            "SLIDE",
            1,
            1,
            "JUMP",
            2,
            "RETURN",
            results=[Kind.INT],
        )
        == []
    )


def test_deep_frames_are_linear():
    count = 20_000
    code = ["INT", 1] * count + ["RETURN"]
    assert check(*code, frame=count) == []


def test_every_instruction_has_an_effect_or_a_case():
    special = {r.name for r in INSTRUCTIONS if r.effect is None}
    assert special == {
        "COPY",
        "MOVE",
        "DROP",
        "POP",
        "SLIDE",
        "TAIL_CALL",
        "TAIL_CALL_CLOSURE",
        "RETURN",
        "EVAL",
    }


@pytest.mark.parametrize(
    ("many", "batch", "message"),
    [
        ({}, BatchRecord(1, (0,)), ""),
        ({}, BatchRecord(2), "there is no kernel 2"),
        ({"ints": 1}, BatchRecord(1), "the same tensors and one integer more"),
        ({"ports": (AccessCode.READ,)}, BatchRecord(1), "the same tensors and one integer more"),
        ({"body": HostBody("f")}, BatchRecord(1), "a batch is of native code"),
        ({}, BatchRecord(1, (1,)), "a list of tensors it reads"),
        ({}, BatchRecord(1, (0, 0)), "a list of tensors it reads"),
    ],
)
def test_batches_fit_their_kernels(many, batch, message):
    body, ports = ImageBody((Phase(0),)), (AccessCode.READ, AccessCode.WRITE)
    one = Kernel("one", ports, 1, body, batch=batch)
    other = replace(Kernel("many", ports, 2, body), **many)
    program = Program(functions=(), kernels=(one, other), image=b"\0")
    found = [str(x) for x in verify.findings(program)]
    assert (found == []) if not message else message in found[0]
