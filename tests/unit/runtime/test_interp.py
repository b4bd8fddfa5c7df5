"""The reference interpreter, instruction by instruction and on small programs."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.bytecode.builder import FunctionBuilder, ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, HostBody, Kernel
from inlay.runtime.interp import Interpreter, fill
from inlay.runtime.value import Tensor, Tuple, from_array


def no_kernel(*_):
    raise AssertionError("no kernel here")


def run(emit, params=(), results=(Kind.INT,), arguments=()):
    """Run a one-function program whose code `emit` writes."""
    program = ProgramBuilder()
    main = program.function("main", params, results)
    emit(main)
    return Interpreter(program.finish(), no_kernel).call(main.index, arguments)


def binary(name, a, b):
    def emit(f: FunctionBuilder) -> None:
        f.emit("INT", a)
        f.emit("INT", b)
        f.emit(name)
        f.emit("RETURN")

    return run(emit)[0]


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("ADD", 2, -5, -3),
        ("SUB", 2, 5, -3),
        ("MUL", -2, 5, -10),
        ("FLOORDIV", -7, 2, -4),
        ("FLOORDIV", 7, -2, -4),
        ("MOD", -7, 2, 1),
        ("MOD", 7, -2, -1),
        ("MIN", 3, -4, -4),
        ("MAX", 3, -4, 3),
        ("EQ", 4, 4, 1),
        ("NE", 4, 4, 0),
        ("LT", 4, 4, 0),
        ("LE", 4, 4, 1),
        ("AND", 5, 0, 0),
        ("AND", 5, -1, 1),
        ("OR", 0, 0, 0),
        ("OR", 0, 7, 1),
        ("ADD", (1 << 62), 5, (1 << 62) + 5),
    ],
)
def test_integers(name, a, b, expected):
    assert binary(name, a, b) == expected


@pytest.mark.parametrize(
    ("name", "a", "b", "id"),
    [
        ("ADD", (1 << 63) - 1, 1, "run.int-overflow"),
        ("MUL", 1 << 40, 1 << 40, "run.int-overflow"),
        ("FLOORDIV", -(1 << 63), -1, "run.int-overflow"),
        ("FLOORDIV", 1, 0, "run.divide-by-zero"),
        ("MOD", 1, 0, "run.divide-by-zero"),
    ],
)
def test_integer_failures(name, a, b, id):
    with pytest.raises(RunError) as caught:
        binary(name, a, b)
    assert caught.value.ids == (id,)


def sum_to(program: ProgramBuilder, *, tail: bool) -> FunctionBuilder:
    """A function n acc -> acc + 1 + .. + n, or n -> 1 + .. + n without a tail call."""
    f = program.function("sum", [Kind.INT] * (2 if tail else 1), [Kind.INT])
    done = f.label()
    f.emit("COPY", 0)
    f.emit("JUMP_IF_FALSE", done)
    if tail:
        f.emit("COPY", 0), f.emit("INT", 1), f.emit("SUB")
        f.emit("COPY", 1), f.emit("COPY", 0), f.emit("ADD")
        f.emit("TAIL_CALL", f)
    else:
        f.emit("COPY", 0)
        f.emit("COPY", 0), f.emit("INT", 1), f.emit("SUB")
        f.emit("CALL", f), f.emit("ADD"), f.emit("RETURN")
    f.place(done)
    f.emit("COPY", 1 if tail else 0)
    f.emit("RETURN")
    return f


def test_tail_calls_use_one_frame():
    program = ProgramBuilder()
    f = sum_to(program, tail=True)
    assert Interpreter(program.finish(), no_kernel, stack_limit=1).call(0, [100, 0]) == [5050]
    assert f.index == 0


def test_recursion_and_its_limit():
    program = ProgramBuilder()
    sum_to(program, tail=False)
    finished = program.finish()
    assert Interpreter(finished, no_kernel).call(0, [20_000]) == [20_000 * 20_001 // 2]
    with pytest.raises(RunError) as caught:
        Interpreter(finished, no_kernel, stack_limit=100).call(0, [200])
    assert caught.value.ids == ("run.stack-limit",)


def test_loop_in_one_frame():
    def emit(f: FunctionBuilder) -> None:
        # i = 10, total = 0; while i: total += i; i -= 1
        f.emit("INT", 10), f.emit("INT", 0)
        head, done = f.label(), f.label()
        f.place(head)
        f.emit("COPY", 0), f.emit("JUMP_IF_FALSE", done)
        f.emit("COPY", 0), f.emit("INT", 1), f.emit("SUB")
        f.emit("COPY", 1), f.emit("COPY", 0), f.emit("ADD")
        f.emit("SLIDE", 2, 2)
        f.emit("JUMP", head)
        f.place(done)
        f.emit("RETURN")

    assert run(emit) == [55]


def test_switch_takes_the_last_target_for_other_values():
    def emit(f: FunctionBuilder) -> None:
        labels = [f.label() for _ in range(3)]
        f.emit("COPY", 0)
        f.emit("SWITCH", labels)
        for value, label in enumerate(labels):
            f.place(label)
            f.emit("INT", 10 * value)
            f.emit("RETURN")

    results = [run(emit, [Kind.INT], arguments=[k])[0] for k in (0, 1, 2, 3, -1)]
    assert results == [0, 10, 20, 20, 20]


def test_closures_carry_their_captures():
    program = ProgramBuilder()
    body = program.function("body", [Kind.INT, Kind.INT], [Kind.INT])
    body.emit("COPY", 0), body.emit("COPY", 1), body.emit("SUB"), body.emit("RETURN")
    main = program.function("main", [], [Kind.INT])
    main.emit("INT", 100), main.emit("CLOSURE", body, 1)
    main.emit("INT", 1), main.emit("CALL_CLOSURE", 1, 1), main.emit("RETURN")
    assert Interpreter(program.finish(), no_kernel).call(main.index, []) == [99]


def test_aggregates_and_cells():
    def emit(f: FunctionBuilder) -> None:
        f.emit("INT", 7), f.emit("INT", 8), f.emit("CONSTRUCT", 3, 2)
        f.emit("CELL_NEW")
        f.emit("COPY", 0), f.emit("CELL_READ"), f.emit("TAG")  # 3
        f.emit("COPY", 0), f.emit("CELL_READ"), f.emit("FIELD", 1)  # 8
        f.emit("TUPLE", 2)
        f.emit("MOVE", 0), f.emit("COPY", 1), f.emit("CELL_WRITE")
        f.emit("UNPACK", 2)
        f.emit("SLIDE", 2, 1)
        f.emit("TUPLE", 2)
        f.emit("RETURN")

    (made,) = run(emit, results=[Kind.TUPLE])
    assert isinstance(made, Tuple)
    assert made.items == (3, 8)


def test_tensors():
    def emit(f: FunctionBuilder) -> None:
        f.emit("MOVE", 0), f.emit("COPY", 1), f.emit("APPEND")  # [3, 2]
        f.emit("COPY", f.depth - 1), f.emit("INT", 1), f.emit("INT", 2), f.emit("ROWS")
        f.emit("INT", 4), f.emit("RESHAPE", 1)
        f.emit("COPY", 2), f.emit("INT", 0), f.emit("ROW")
        f.emit("RETURN")

    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    row = np.array([9, 8], np.float32)
    arguments = [from_array(x), from_array(row)]
    flat, first = run(emit, [Kind.TENSOR] * 2, [Kind.TENSOR] * 2, arguments)
    assert isinstance(flat, Tensor)
    assert isinstance(first, Tensor)
    assert flat.array().tolist() == [2, 3, 9, 8]
    assert first.array().tolist() == [0, 1]


def test_tensors_are_joined_behind_dims_of_one():
    def emit(f: FunctionBuilder) -> None:
        f.emit("MOVE", 0), f.emit("COPY", 1), f.emit("EXTEND", 1)
        f.emit("COPY", 1), f.emit("EXTEND", 1)
        f.emit("RETURN")

    x, y = np.arange(4.0).reshape(1, 2, 2), np.array([[[9.0, 8.0]]])
    (found,) = run(emit, [Kind.TENSOR] * 2, [Kind.TENSOR], [from_array(x), from_array(y)])
    assert isinstance(found, Tensor)
    assert found.array().tolist() == [[[0, 1], [2, 3], [9, 8], [9, 8]]]


def test_invoke_writes_through_views():
    program = ProgramBuilder()
    kernel = program.kernel(Kernel("scale", (AccessCode.READ, AccessCode.WRITE), 1, HostBody("scale")))
    main = program.function("main", [Kind.TENSOR], [Kind.TENSOR])
    main.emit("INT", 16), main.emit("STORAGE", "host", 64)
    main.emit("COPY", 1), main.emit("INT", 8), main.emit("INT", 2), main.emit("TENSOR", "f32", 1)
    main.emit("MOVE", 0), main.emit("COPY", 2), main.emit("INT", 3), main.emit("INVOKE", kernel)
    main.emit("RETURN")

    def scale(kernel, tensors, integers):
        assert kernel.name == "scale"
        tensors[1][...] = tensors[0] * integers[0]

    machine = Interpreter(program.finish(), scale)
    (result,) = machine.call(main.index, [from_array(np.array([1, 2], np.float32))])
    assert isinstance(result, Tensor)
    assert result.array().tolist() == [3, 6]


def test_failures_say_where():
    program = ProgramBuilder()
    f = program.function("inner", [Kind.INT], [])
    f.at("model.onnx: node 'a'")
    f.emit("COPY", 0), f.emit("INT", 64), f.emit("COPY", 0), f.emit("INT", 64), f.emit("EQ")
    f.emit("CHECK", 2, "n is {1}, and must be {2}")
    f.emit("RETURN")
    main = program.function("main", [], [])
    main.at("model.onnx: node 'b'")
    main.emit("INT", 3), main.emit("CALL", f), main.emit("RETURN")
    with pytest.raises(RunError) as caught:
        Interpreter(program.finish(), no_kernel).call(main.index, [])
    (found,) = caught.value.diagnostics
    assert (found.id, found.message) == ("run.check-failed", "n is 3, and must be 64")
    assert found.notes == ("in 'inner' at model.onnx: node 'a'", "in 'main' at model.onnx: node 'b'")


def test_fill_leaves_other_braces():
    assert fill("{1} {x} {2} {3}", [5, 6]) == "5 {x} 6 {3}"


def test_ints_and_tensors():
    def emit(f: FunctionBuilder) -> None:
        f.emit("COPY", 0), f.emit("READ_INTS", 2), f.emit("MAKE_INTS", "i32", 2)
        f.emit("COPY", 0), f.emit("INT", 1), f.emit("ROW"), f.emit("TO_INT")
        f.emit("RETURN")

    x = from_array(np.array([5, -6], np.int64))
    made, last = run(emit, [Kind.TENSOR], [Kind.TENSOR, Kind.INT], [x])
    assert isinstance(made, Tensor)
    assert made.dtype == "i32"
    assert made.array().tolist() == [5, -6]
    assert last == -6


@pytest.mark.parametrize(("dtype", "value"), [("u8", 256), ("bool", 2), ("f32", 1 << 25)])
def test_values_that_a_type_cannot_hold(dtype, value):
    with pytest.raises(RunError) as caught:
        run(
            lambda f: (f.emit("INT", value), f.emit("TO_TENSOR", dtype), f.emit("RETURN")),
            results=[Kind.TENSOR],
        )
    assert caught.value.ids == ("run.int-overflow",)
