"""A step that is repeated: loops of known trip count become one command of a unit for whole layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.accel.backend import backend_in_file
from inlay.accel.kit import Checked, checks
from inlay.accelerators import lstm_engine
from inlay.api import compilation
from inlay.base.diagnostics import CompileError
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.machine.board_file import board_text
from inlay.ops.table import table
from inlay.runtime.calls import calls_of

BOARD = "lstm_engine"
TURNS, BATCH, FEATURES, SIZE = 5, 2, 3, 4


def constant(shape: tuple[int, ...], seed: int) -> str:
    """Return small floats as text."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 0.5
    return f"f32[{', '.join(map(str, shape))}]({', '.join(map(str, values.ravel().tolist()))})"


W, R, B = constant((FEATURES, 4 * SIZE), 1), constant((SIZE, 4 * SIZE), 2), constant((4 * SIZE,), 3)
STATE = f"Tensor[{BATCH}, {SIZE}, f32]"
ROWS = f"Tensor[{TURNS}, {BATCH}, {SIZE}, f32]"


def gate(order: str, name: str) -> str:
    """Return the part of the sums that a gate is."""
    k = order.index(name) * SIZE
    return f"slice{{axes=[1]}}(g, shape({k}), shape({k + SIZE}), shape(1))"


def program(
    result: str = "(y, h, c)", order: str = "ifgo", row: str = "i", bias: str = B, other: str = ""
) -> Module:
    """Return an LSTM layer written by hand: the products are in the loop.

    Args:
        result: of `y`, `h`, `c`.
        order: of the gates.
        row: which one a turn reads and writes, over `i`.
        bias: of the gates.
        other: a statement in each turn.
    """
    text = f"""
    fn main(x: Tensor[{TURNS}, {BATCH}, {FEATURES}, f32], h0: {STATE}, c0: {STATE}) {{
      let empty = zeros(shape({TURNS}, {BATCH}, {SIZE}));
      let loop = fn<i>(i: int[i], h: {STATE}, c: {STATE}, y: {ROWS})
          -> some k. (int[k], {STATE}, {STATE}, {ROWS}) {{
        if (int_less(int(i), int({TURNS}))) {{
          let at = get_row(x, int({row}));
          let g = add(add(matmul(at, {W}), matmul(h, {R})), {bias});
          let kept = mul(c, sigmoid({gate(order, "f")}));
          let cell = add(mul(sigmoid({gate(order, "i")}), tanh({gate(order, "g")})), kept);
          let out = mul(sigmoid({gate(order, "o")}), tanh(cell));
          {other}
          loop(int(i + 1), out, cell, set_row(y, int({row}), out))
        }} else {{ (i, h, c, y) }}
      }};
      let end: some k. (int[k], {STATE}, {STATE}, {ROWS}) = loop(int(0), h0, c0, empty);
      let h = end.1;
      let c = end.2;
      let y = end.3;
      {result}
    }}
    entry main("x", "h0", "c0") -> ({", ".join(f'"{n}"' for n in result.strip("()").split(", "))});
    """
    return parse_module(text, table())


def inputs() -> list[np.ndarray]:
    """Return drawn inputs."""
    rng = np.random.default_rng(7)
    shapes = [(TURNS, BATCH, FEATURES), (BATCH, SIZE), (BATCH, SIZE)]
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


@pytest.fixture(name="fast")
def board_with_a_fast_unit(tmp_path: Path) -> str:
    """Return a board with a mock of the unit, faster than any host: small programs are worth its while."""
    description = Path(lstm_engine.__file__).read_text(encoding="utf-8")
    driver = 'Library("inlay.accelerators._lstm_engine_model")'
    assert description.count(driver) == 1
    mocked = description.replace(driver, "Mock()").replace("KiB, Library,", "KiB, Mock,")
    (tmp_path / "mocked.py").write_text(mocked)
    old, text = 'generator = "lstm-engine"\nloader = "lstm-engine"', board_text(BOARD)
    assert old in text
    fast = 'generator = "mocked"\nloader = "mocked.py"\nparameters = { macs = 65536, clock = 1000000000000 }'
    (tmp_path / "fast.toml").write_text(text.replace(old, fast))
    return str(tmp_path / "fast.toml")


def check(module: Module, board: str) -> None:
    """Check that the unit runs the whole loop, and computes what the host does."""
    found = compilation(module, board=board, required=("npu0",))
    assert len(calls_of(lambda: found.program, found.program.properties)) == 1
    split, plain = inlay.compile(module, board=board), inlay.compile(module)
    for got, want in zip(_listed(split(*inputs())), _listed(plain(*inputs())), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def _listed(found: object) -> list[np.ndarray]:
    return [np.asarray(x) for x in found] if isinstance(found, tuple | list) else [np.asarray(found)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("result", ["(y, h, c)", "y", "h", "(h, c)", "(y, c)"])
def test_a_loop_by_hand_is_one_command_whatever_is_read_of_it(result: str, fast: str) -> None:
    check(program(result), fast)


def test_a_sequence_of_one_row_has_no_slice(fast: str) -> None:
    shape = f"Tensor[1, {BATCH}, {FEATURES}, f32]"
    text = f"""
    fn main(x: {shape}, h: {STATE}, c: {STATE}) {{
      let g = add(add(matmul(reshape(x, shape({BATCH}, {FEATURES})), {W}), matmul(h, {R})), {B});
      let kept = mul(c, sigmoid({gate("ifgo", "f")}));
      let cell = add(mul(sigmoid({gate("ifgo", "i")}), tanh({gate("ifgo", "g")})), kept);
      let out = mul(sigmoid({gate("ifgo", "o")}), tanh(cell));
      (reshape(out, shape(1, {BATCH}, {SIZE})), cell)
    }}
    entry main("x", "h", "c") -> ("y", "cell");
    """
    module, given = parse_module(text, table()), [inputs()[0][:1], *inputs()[1:]]
    split, plain = inlay.compile(module, board=fast, required=("npu0",)), inlay.compile(module)
    for got, want in zip(_listed(split(*given)), _listed(plain(*given)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_gates_may_stand_in_any_order(fast: str) -> None:
    check(program(order="ogif"), fast)


def test_a_loop_may_begin_with_the_last_row(fast: str) -> None:
    check(program(row=f"{TURNS - 1} - i"), fast)


def reasons(module: Module) -> str:
    """Return why the unit takes nothing of a program, whose loop then stays one."""
    found = inlay.explain(module, board=BOARD)
    assert all(o.device == "cpu" for o in found.operations)
    assert any(o.operator == "get_row" for o in found.operations), "the loop is still one"
    return " ".join(o.others["npu0"] for o in found.operations)


def test_a_turn_that_does_more_is_no_layer() -> None:
    module = program("y", other="let out = add(out, reduce_max{axes=[0], keepdims=true}(cell));")
    assert "its step is no turn of 'loop'" in reasons(module)


def test_loops_of_unknown_count_stay_loops() -> None:
    text = f"""
    fn main<n in 1..9>(x: Tensor[n, 1, 4, f32], h0: Tensor[1, 4, f32]) -> Tensor[1, 4, f32] {{
      let loop = fn<i>(i: int[i], h: Tensor[1, 4, f32]) -> Tensor[1, 4, f32] {{
        if (int_less(int(i), int(n))) {{
          let g = add(get_row(x, int(i)), matmul(h, {constant((4, 4), 1)}));
          loop(int(i + 1), tanh(g))
        }} else {{ h }}
      }};
      loop(int(0), h0)
    }}
    entry main("x", "h0") -> ("y");
    """
    assert "'loop' has n turns: a number from 1 to 256" in reasons(parse_module(text, table()))


def test_an_open_batch_is_one_command_for_all_its_sizes(fast: str) -> None:
    text = f"""
    fn main<n>(x: Tensor[2, n, 3, f32], h0: Tensor[n, 2, f32], c0: Tensor[n, 2, f32]) -> Tensor[n, 2, f32] {{
      let loop = fn<i>(i: int[i], h: Tensor[n, 2, f32], c: Tensor[n, 2, f32]) -> Tensor[n, 2, f32] {{
        if (int_less(int(i), int(2))) {{
          let sums = add(matmul(get_row(x, int(i)), {constant((3, 8), 1)}), matmul(h, {constant((2, 8), 2)}));
          let into = sigmoid(slice{{axes=[-1]}}(sums, shape(0), shape(2), shape(1)));
          let forget = sigmoid(slice{{axes=[-1]}}(sums, shape(2), shape(4), shape(1)));
          let new = tanh(slice{{axes=[-1]}}(sums, shape(4), shape(6), shape(1)));
          let out = sigmoid(slice{{axes=[-1]}}(sums, shape(6), shape(8), shape(1)));
          let cell = add(mul(forget, c), mul(into, new));
          loop(int(i + 1), mul(out, tanh(cell)), cell)
        }} else {{ h }}
      }};
      loop(int(0), h0, c0)
    }}
    entry main("x", "h0", "c0") -> ("y");
    """
    module = parse_module(text, table())
    split = inlay.compile(module, board=fast, required=("npu0",))
    plain = inlay.compile(module)
    rng = np.random.default_rng(1)
    for n in (1, 3):
        given = [rng.standard_normal(s).astype(np.float32) for s in ((2, n, 3), (n, 2), (n, 2))]
        np.testing.assert_allclose(split(*given), plain(*given), rtol=1e-5, atol=1e-6)


def test_the_kit_finds_gates_that_are_given_as_others(tmp_path: Path) -> None:
    text = Path(lstm_engine.__file__).read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(text.replace("lambda m: m.into.index", "lambda m: m.forget.index"))
    found = [x for x in checks(backend_in_file(str(wrong)), 3, 0) if isinstance(x, Checked) and x.failure]
    assert [x.section for x in found] == ["pattern layer", "pattern cell"]
    assert "concat{axis=0}" in found[0].program or "reshape" in found[0].program


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("times=(1, 256)", "times=(0, 256)", "found the times 0 to 256"),
        ("p.op(\"tanh\", cell)), cell", "p.op(\"tanh\", cell)),", "gives 1 results of operators, needed one for each of 2"),
        ("(y, h, c), self.lstm", "(y, h), self.lstm", "found 2 results of 'lstm', which writes y, h, c"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = Path(lstm_engine.__file__).read_text(encoding="utf-8")
    assert text.count(old) == 1
    wrong = tmp_path / "wrong.py"
    wrong.write_text(text.replace(old, new))
    with pytest.raises(CompileError, match=said):
        backend_in_file(str(wrong)).patterns(())
