"""Kernels that may run many calls as one: which, and with what in common."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.bytecode.program import Program
from inlay.ir.parser import parse_module
from inlay.machine.target import host
from inlay.ops.table import table
from inlay.pipeline import batches as found_by
from inlay.pipeline.batches import OWN_CALLS, own_batches
from inlay.runtime.native import OWN_BATCHES, Settings
from tests.boards import PARTED

TREE = """
data Bin { Leaf, Node(Bin, Bin) }

fn cell(l: Tensor[1, 4, f32], r: Tensor[1, 4, f32]) -> Tensor[1, 4, f32] {
  let w = f32[4, 4](1, 2, 3, 4, -1, 0.5, 2, 1, 0, 1, 0, -1, 3, 1, -2, 0.25);
  tanh(add(matmul(l, w), matmul(r, w)))
}

fn run(t: Bin) -> Tensor[1, 4, f32] {
  match t {
    Leaf() => f32[1, 4](0.5, -0.25, 1, 2),
    Node(a, b) => {
      let x = @run(a);
      let y = @run(b);
      @cell(x, y)
    },
  }
}

fn build(depth: some int d. int[d]) -> Bin {
  if (int_less(int(d), int(1))) { Leaf() } else { Node(@build(int(d - 1)), @build(int(d - 1))) }
}

fn main(depth: some int d. int[d]) -> Tensor[1, 4, f32] { @run(@build(int(d))) }
"""


@pytest.fixture
def share_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels have batches though these small ones do not gain."""
    monkeypatch.setattr(found_by, "LEAST_SHARED", 1)


def batches(program: Program) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return for each kernel with a batch the name of the batch and what it shares."""
    return {
        k.name: (program.kernels[k.batch.kernel].name, k.batch.shared)
        for k in program.kernels
        if k.batch is not None
    }


@pytest.mark.usefixtures("share_little")
def test_weights_are_shared_and_results_stay() -> None:
    module = parse_module(TREE, table())
    plain, batched = inlay.compile(module), inlay.compile(module, batch=True)
    assert batches(plain.program) == {}
    found = batches(batched.program)
    assert found and all(many == f"{one}.batch" for one, (many, _) in found.items())
    assert any(shared for _, shared in found.values())
    for name, (_, shared) in found.items():
        kernel = next(k for k in batched.program.kernels if k.name == name)
        assert len(shared) < kernel.ports.count(kernel.ports[0])
    depth = np.array(3)
    expected = plain.run({"depth": depth})
    for name, got in batched.run({"depth": depth}).items():
        np.testing.assert_array_equal(got, expected[name])


@pytest.mark.usefixtures("share_little")
def test_parts_of_one_product_have_the_bits_of_running_alone() -> None:
    """Gates that are parts of one product of one row, as cells of Tree-LSTMs have them."""
    rng = np.random.default_rng(5)
    text = TREE.replace("Tensor[1, 4, f32]", "Tensor[1, 40, f32]")
    head, tail = text.split("let w =", 1)
    cell = """let parts = split{axis=1}(matmul(concat{axis=1}(l, r), f32[80, 120](#"w")), shape(40, 40, 40));
      mul(sigmoid(parts.0), add(tanh(parts.1), mul(parts.2, l)))
    }"""
    text = head + cell + tail.split("}", 1)[1]
    text = text.replace("f32[1, 4](0.5, -0.25, 1, 2)", 'f32[1, 40](#"x")')
    given = {"w": rng.normal(0, 0.1, (80, 120)).astype(np.float32), "x": rng.random((1, 40), np.float32)}
    module = parse_module(text, table(), resources=given)
    plain, batched = inlay.compile(module), inlay.compile(module, batch=True)
    assert batches(batched.program)
    depth = np.array(6)
    np.testing.assert_array_equal(
        batched.run({"depth": depth})["output"], plain.run({"depth": depth})["output"]
    )


@pytest.mark.usefixtures("share_little")
def test_threads_have_batches_of_their_own_where_the_last_cache_holds_all_weights() -> None:
    module = parse_module(TREE, table())
    said = [dict(inlay.compile(module, batch=b).program.properties).get(OWN_BATCHES) for b in (False, True)]
    assert said == [None, str(OWN_CALLS)]
    assert Settings().completed({OWN_BATCHES: "14"}).own_batches == 14
    assert Settings(own_batches=3).completed({OWN_BATCHES: "14"}).own_batches == 3
    assert Settings().completed({OWN_BATCHES: "-1"}).own_batches is None
    small = replace(host(), l3_bytes=16)
    assert own_batches(13, small) == 0
    assert own_batches(12, small) == OWN_CALLS


def test_what_shares_little_has_no_batch() -> None:
    assert batches(inlay.compile(parse_module(TREE, table()), batch=True).program) == {}


@pytest.mark.usefixtures("share_little")
def test_what_differs_between_calls_is_not_shared() -> None:
    module = parse_module(
        """
        fn main(x: Tensor[1, 2, f32], y: Tensor[1, 2, f32]) {
          let v = f32[2, 2](1, 2, 3, 4);
          let w = f32[2, 2](4, 3, 2, 1);
          (matmul(x, v), matmul(y, w))
        }
    """,
        table(),
    )
    found = batches(inlay.compile(module, batch=True).program)
    assert {shared for _, shared in found.values()} <= {(), (1,)}


@pytest.mark.usefixtures("share_little")
@pytest.mark.parametrize("threads", [1, 2])
def test_modes_give_the_same_bits(tmp_path: Path, threads: int) -> None:
    file = tmp_path / "tree.inlay"
    inlay.compile(parse_module(TREE, table()), board=PARTED, batch=True).save(file)
    modes = [("sequential", 0), (None, 0), ("parallel", 0), *(("replay", s) for s in range(4))]
    engines = [
        inlay.load_executable(
            file, settings=Settings(threads=threads, mode=mode, seed=seed, hand_off_ns=limit, races=watched)
        )
        for mode, seed in modes
        for limit, watched in ((0, False), (10_000, False), (0, True))  # the race detector looks as well
    ]
    for depth in (0, 1, 4, 7):
        first, *others = [
            e.run({"depth": np.array(depth)})["output"].tobytes() for e in engines for _ in range(2)
        ]
        assert all(other == first for other in others)


@pytest.mark.usefixtures("share_little")
def test_a_function_at_several_types_is_no_kernel() -> None:
    """What is a tensor for one caller is none for another: only calls of kernels are looked at."""
    module = parse_module(
        """
        data List<'a> { Nil, Cons('a, List['a]) }

        fn last<'a>(xs: List['a], x: 'a) -> 'a {
          match xs { Nil() => x, Cons(y, rest) => @last(rest, y) }
        }

        fn main(x: Tensor[1, 2, f32], n: some int n. int[n]) {
          let w = f32[2, 2](4, 3, 2, 1);
          let tensors = Cons(matmul(x, w), Nil[Tensor[1, 2, f32]]());
          let pairs = Cons((x, x), Nil[(Tensor[1, 2, f32], Tensor[1, 2, f32])]());
          let pair = @last(pairs, (x, x));
          (@last(tensors, x), pair.0)
        }
    """,
        table(),
    )
    plain, batched = inlay.compile(module), inlay.compile(module, batch=True)
    x, n = np.array([[1, 2]], np.float32), np.array(2)
    for a, b in zip(plain(x, n), batched(x, n), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("share_little")
def test_loops_of_several_calls_are_explained():
    alone, together = (
        {k.kernel: k for k in inlay.explain(parse_module(TREE, table()), view="loops", batch=batch).kernels}
        for batch in (False, True)
    )
    assert not [name for name in alone if name.endswith(".batch")]
    many = {name: k for name, k in together.items() if name.endswith(".batch")}
    assert many
    for name, k in many.items():
        assert k.decision is not None
        assert k.nests
        assert k.origin == together[name.removesuffix(".batch")].origin
