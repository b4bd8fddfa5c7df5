"""Lists, options and tuples into and out of executables, in both engines."""

from __future__ import annotations

import mmap
from dataclasses import replace

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError, RunError
from inlay.bytecode import container, writer
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import ImageBody, ShapeCode, ShapeInput
from inlay.interp.tensor import evaluate_entry
from inlay.runtime import _runtime
from inlay.runtime.native import NOT_DONE
from inlay.runtime.session import executable_of
from inlay.runtime.structure import Flat, from_flat, to_flat
from tests.unit.bytecode.test_container import reseal, sample

PROGRAM = """
data Option<'a> { None, Some('a) }
data List<'a> { Nil, Cons('a, List['a]) }

fn main<n, m>(
  x: Tensor[n, 4, f32],
  xs: List[some k. Tensor[k, 4, f32]],
  o: Option[Tensor[n, bf16]],
  t: (Tensor[2, f32], Tensor[m, i64], int),
  ll: List[List[(Tensor[m, f32], Option[Tensor[i64]])]]
) -> (
  List[some k. Tensor[k, 4, f32]], Option[Tensor[n, bf16]], (Tensor[m, i64], int),
  List[List[(Tensor[m, f32], Option[Tensor[i64]])]], List[Tensor[n, 4, f32]]
) {
  let y: some k. Tensor[k, 4, f32] = match xs { Nil() => relu(x), Cons(h, _) => neg(h) };
  let z = neg(x);
  (
    Cons[some k. Tensor[k, 4, f32]](y, xs), o, (t.1, t.2), ll,
    Cons(z, Cons(z, Cons(x, Nil[Tensor[n, 4, f32]]())))
  )
}
entry main("x", "xs", "o", "t", "ll") -> ("a", "b", "c", "d", "e");
"""


def same(a: object, b: object) -> bool:
    """Whether two structures are equal: kinds, lengths, types and contents."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a is b


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    path = tmp_path_factory.mktemp("structure") / "program.inl"
    path.write_text(PROGRAM)
    return inlay.load(path)


@pytest.fixture(scope="module")
def program(module):
    return inlay.compile(module).program


def floats(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 3


def inputs() -> dict[str, object]:
    import ml_dtypes

    return {
        "x": floats(3, 4),
        "xs": [floats(1, 4), floats(0, 4), floats(2, 4)],
        "o": floats(3).astype(ml_dtypes.bfloat16),
        "t": (floats(2), np.arange(5), np.array(7)),
        "ll": [[], [(floats(5), None), (floats(5) + 1, np.array(7))]],
    }


@pytest.mark.parametrize("engine", ["native", "python"])
@pytest.mark.parametrize("changes", [{}, {"o": None, "xs": [], "ll": []}])
def test_structure_goes_in_and_out(module, program, engine, changes):
    executable = executable_of(program, engine=engine)
    given = {**inputs(), **changes}
    got = executable.run(given)
    want = evaluate_entry(module, given)
    assert list(got) == ["a", "b", "c", "d", "e"]
    assert same(list(got.values())[0:2], list(want.values())[0:2])
    assert same(got["c"][0], given["t"][1])
    assert int(got["c"][1]) == 7
    assert same(got["d"], given["ll"])
    assert same(got["e"], [-given["x"], -given["x"], given["x"]])
    assert executable.live_objects() == 0


def arrays(value: object) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    return [a for v in value for a in arrays(v)] if isinstance(value, (list, tuple)) else []


@pytest.mark.parametrize("engine", ["native", "python"])
def test_results_share_nothing(program, engine):
    given = inputs()
    results = arrays(list(executable_of(program, engine=engine).run(given).values()))
    everything = [*results, *arrays(list(given.values()))]
    for i, a in enumerate(results):
        assert a.flags.writeable
        assert not any(np.shares_memory(a, b) for b in everything[i + 1 :])


def test_all_that_is_wrong_is_said_with_its_way(program):
    executable = executable_of(program)
    wrong = {
        **inputs(),
        "xs": [floats(1, 4), floats(2)],
        "o": [[]],
        "t": (floats(2), np.arange(5)),
        "ll": [3, [(floats(5), None, None)]],
    }
    with pytest.raises(RunError) as caught:
        executable.run(wrong)
    # A list of Python has no width, so `[]` is an array of the needed type; its rank is wrong.
    said = [d.message for d in caught.value.diagnostics]
    assert said[:2] == [
        "input 'xs[1]': expected rank 2, [k, 4]; found rank 1, [2]",
        "input 'o': expected rank 1, [n]; found rank 2, [1, 0]",
    ]
    assert said[2].startswith("input 't': expected (f32 [2], i64 [m], i64 []), which is a tuple of 3")
    assert said[3].startswith("input 'll[0]': expected list of (f32 [m], optional i64 [])")
    assert said[4].startswith("input 'll[1][0]': expected (f32 [m], optional i64 [])")
    assert said[4].endswith("found tuple of 3")
    assert len(said) == 5
    assert same(executable.run(inputs())["d"], inputs()["ll"])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "xs",
            [floats(2, 4), floats(2, 3)],
            "input 'xs[1]': expected [k, 4] with k = 2 from input 'xs[1]' axis 0; found [2, 3]",
        ),
        (
            "ll",
            [[(floats(5), None), (floats(4), None)]],
            "input 'll[0][1].0': expected [m] with m = 5 from input 't.1' axis 0; found [4]",
        ),
    ],
)
def test_sizes_of_elements_are_compared(program, name, value, message):
    executable = executable_of(program)
    given = {**inputs(), name: value}
    with pytest.raises(RunError) as caught:
        executable.run(given)
    assert [d.message for d in caught.value.diagnostics] == [message]
    # The C runtime holds them to the signature too, and says the way as the binder does.
    entry = executable.entries[0]
    flat = to_flat(entry.inputs, [given[spec.name] for spec in entry.inputs])
    with pytest.raises(RunError) as caught:
        executable._engine.call_structured(0, flat)
    assert caught.value.ids == ("input.mismatch",)
    assert caught.value.diagnostics[0].message.startswith(message.split(" with ")[0])
    assert executable.live_objects() == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda flat: flat.counts.pop(),
        lambda flat: flat.counts.append(0),
        lambda flat: flat.counts.__setitem__(0, -1),
        lambda flat: flat.counts.__setitem__(0, 2**62),
        lambda flat: flat.counts.__setitem__(1, 2),
        lambda flat: flat.tensors.pop(),
        lambda flat: flat.tensors.append(floats(1)),
        lambda flat: flat.tensors.clear(),
    ],
)
def test_a_damaged_flat_form_is_refused(program, spoil):
    executable = executable_of(program)
    entry = executable.entries[0]
    given = inputs()
    flat = to_flat(entry.inputs, [given[spec.name] for spec in entry.inputs])
    again = from_flat(entry.inputs, flat)
    assert same(again, [given[spec.name] for spec in entry.inputs])
    spoil(flat)
    with pytest.raises(RunError):
        executable._engine.call_structured(0, flat)
    assert executable.live_objects() == 0
    with pytest.raises(NOT_DONE):
        executable._engine.call(0, *[a for a in flat.tensors if a.dtype.name != "bfloat16"])


def test_long_lists_need_no_stack(program):
    executable = executable_of(program)
    ones = [floats(1, 4)] * 20_000
    got = executable.run({**inputs(), "xs": ones})["a"]
    assert len(got) == 20_001
    assert same(got[-1], ones[0])


def test_both_readers_agree_on_forged_entries():
    program = sample()
    kernels = tuple(k for k in program.kernels if isinstance(k.body, ImageBody))
    data = writer.to_bytes(replace(program, kernels=kernels))
    row = container.Container(data).sections["ENTR"]
    generator = np.random.default_rng(1)
    verdicts = {True: 0, False: 0}
    for _ in range(300):
        wrong = bytearray(data)
        word = row.offset + 4 * int(generator.integers(row.size // 4))
        wrong[word] = int(generator.integers(6))
        forged = reseal(wrong)
        try:
            container.read(forged)
            is_right = True
        except CompileError:
            is_right = False
        assert loads(forged) == is_right
        verdicts[is_right] += 1
    assert min(verdicts.values()) > 30


def test_both_readers_agree_on_forged_shape_code():
    b = ProgramBuilder(image=bytes(64))
    f = b.function("main", [Kind.TENSOR], [Kind.INT])
    behind = f.label()
    f.emit("INT", 3), f.emit("EVAL", behind, 0)
    f.emit("COPY", 1), f.emit("INT", 1), f.emit("ADD"), f.emit("COPY", 0), f.emit("DIM", 1)
    f.place(behind)
    f.emit("ADD"), f.emit("RETURN")
    b.shapes = [ShapeCode(0, (ShapeInput(1), ShapeInput(0, 1)), 2), ShapeCode(32, (), 0)]
    data = writer.to_bytes(b.finish())
    sections = container.Container(data).sections
    generator = np.random.default_rng(1)
    verdicts = {True: 0, False: 0}
    for round in range(400):
        wrong = bytearray(data)
        row = sections["SHAP" if round % 2 else "CODE"]
        word = row.offset + 4 * int(generator.integers(row.size // 4))
        values = (*range(18), 63, 64, 65, 0xFFFF, 0x10000, 0xFFFFFFFF)
        wrong[word : word + 4] = int(generator.choice(values)).to_bytes(4, "little")
        forged = reseal(wrong)
        try:
            container.read(forged)
            is_right = True
        except CompileError:
            is_right = False
        assert loads(forged) == is_right, (round, word)
        verdicts[is_right] += 1
    assert min(verdicts.values()) > 60


def loads(data: bytes) -> bool:
    """Whether the C runtime takes a container; it is never run."""
    memory = mmap.mmap(-1, len(data))
    memory.write(data)
    try:
        _runtime.load(None, memory, 1, 0, 0, 0, 0, 1, {}, {})
    except _runtime.Failure:
        return False
    return True


def test_flat_form_of_nothing():
    assert to_flat((), ()) == Flat([], [])
