"""Placed programs compute what they did, and what cannot be compiled for is refused."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError, RunError
from inlay.bytecode.program import CopyBody, DeviceBody
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from inlay.runtime.trace import device_times, in_order, queue_names
from tests.unit.placement.cases import read

SOURCE = """
fn main<n>(x: Tensor[n, 8, f32], w: Tensor[8, 8, f32]) -> (Tensor[n, 8, f32], Tensor[n, 8, f32]) {
  let a = on(DEVICE, matmul(x, w));
  let loop = fn<i>(i: int[i], h: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
    if (int_less(int(i), int(3))) { loop(int(i + 1), on(DEVICE, matmul(h, w))) } else { h }
  };
  (add(relu(loop(int(0), a)), x), neg(a))
}
entry main("x", "w") -> ("y", "z");
"""


@pytest.mark.llvm
def test_two_devices_give_what_one_gives():
    rng = np.random.default_rng(0)
    inputs = {
        "x": rng.standard_normal((5, 8)).astype(np.float32),
        "w": rng.standard_normal((8, 8)).astype(np.float32),
    }
    text = SOURCE.replace("DEVICE", "cpu1")
    plain = text.replace("on(cpu1, ", "(")
    one = inlay.compile(read(plain), cache="none").run(inputs)
    two = inlay.compile(read(text), board="host_two", verify=True, cache="none").run(inputs)
    for name, expected in one.items():
        np.testing.assert_array_equal(two[name], expected)


def compiled_for_opencl(text: str):
    try:
        return inlay.compile(read(text), board="opencl", verify=True, cache="none", threads=2)
    except RunError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        pytest.skip(str(failure))


@pytest.mark.llvm
def test_an_opencl_device_gives_what_the_host_gives():
    """Kernels, copies and a weight on the device, also in a loop; a program without it is the same."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 8)).astype(np.float32)
    w = rng.standard_normal((8, 8)).astype(np.float32)
    text = SOURCE.replace("DEVICE", "cl0")
    one = inlay.compile(read(text.replace("on(cl0, ", "(")), cache="none").run({"x": x, "w": w})
    exe = compiled_for_opencl(text)
    bodies = [k.body for k in exe.program.kernels]
    assert any(isinstance(b, DeviceBody) for b in bodies)
    assert any(isinstance(b, CopyBody) for b in bodies)
    for _ in range(2):
        two = exe.run({"x": x, "w": w})
        for name, expected in one.items():
            np.testing.assert_allclose(two[name], expected, rtol=1e-5, atol=1e-5)
    again = exe.run({"x": x[:3], "w": w})
    np.testing.assert_allclose(again["z"], one["z"][:3], rtol=1e-5, atol=1e-5)


@pytest.mark.llvm
def test_constants_go_to_the_device_when_the_program_is_loaded():
    text = """
    fn main<n>(x: Tensor[n, 2, f32]) -> Tensor[n, 2, f32] {
      let a = on(cl0, add(x, f32[1, 2](1.5, -2.0)));
      relu(a)
    }
    entry main("x") -> ("y");
    """
    exe = compiled_for_opencl(text)
    assert [c.memory for c in exe.program.constants].count(1) == 1
    x = np.linspace(-3, 3, 10, dtype=np.float32).reshape(5, 2)
    want = np.maximum(x + np.array([1.5, -2.0], np.float32), 0)
    np.testing.assert_array_equal(exe(x), want)


def test_what_a_device_cannot_compute_is_refused():
    text = "fn main(x: Tensor[4, f64]) -> Tensor[4, f64] { on(far0, neg(x)) }"
    with pytest.raises(CompileError, match="opencl-remote does not handle f64") as failure:
        inlay.compile(read(text), board="remote_opencl", cache="none")
    assert set(failure.value.ids) == {"placement.unsupported-op"}


CHAINS = """
fn main(a: SQUARE, b: SQUARE, c: SQUARE, d: SQUARE) -> (SQUARE, SQUARE, SQUARE, SQUARE) {
  (neg(on(cpu1, tanh(a))), neg(on(cpu1, tanh(b))),
   neg(on(cpu1, tanh(c))), neg(on(cpu1, tanh(d))))
}
entry main("a", "b", "c", "d") -> ("w", "x", "y", "z");
""".replace("SQUARE", "Tensor[1024, 1024, f32]")


@pytest.mark.llvm
def test_copies_and_kernels_of_a_device_overlap():
    """By the trace: a copy goes on beside a kernel, in some run where the machine has time for both."""
    program = inlay.compile(read(CHAINS), board="host_two", cache="none", threads=1).program
    settings = Settings(threads=2, mode="parallel", trace=True)
    exe = executable_of(program, settings=settings)
    rng = np.random.default_rng(1)
    arrays = {n: rng.standard_normal((1024, 1024)).astype(np.float32) for n in "abcd"}
    together = 0
    for _ in range(400):  # on a machine that is busy with other things few runs have time for both
        found = exe.run(arrays)
        for name, array in zip("wxyz", arrays.values(), strict=True):
            np.testing.assert_allclose(found[name], -np.tanh(array), rtol=1e-5, atol=1e-6)
        events = in_order(exe.events())
        assert {e.device for e in events} == {"cpu1"}
        assert sum(e.queue == 0 and "tanh" in e.name for e in events) == 4
        assert sum(e.queue == 1 and "copy" in e.name for e in events) >= 5
        [device] = device_times(events)
        together += device.together
        if together:
            break
    assert together
    assert queue_names(exe.program) == {"cpu1": ["cpu1", "copier"]}


LONG = """
fn main(x: Tensor[64, 64, f32]) -> Tensor[64, 64, f32] {
  let loop = fn<i>(i: int[i], h: Tensor[64, 64, f32]) -> Tensor[64, 64, f32] {
    if (int_less(int(i), int(20000))) { loop(int(i + 1), on(cpu1, sigmoid(h))) } else { h }
  };
  neg(loop(int(0), x))
}
entry main("x") -> ("y");
"""


@pytest.mark.llvm
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_work_of_a_device_that_takes_too_long_is_given_up(mode):
    exe = inlay.compile(read(LONG), board="host_two", cache="none", threads=2, mode=mode)
    x = np.ones((64, 64), np.float32)
    for _ in range(2):
        with pytest.raises(RunError) as failure:
            exe.run({"x": x}, timeout=0.02)
        assert failure.value.ids == ("run.deadline",)
    assert exe.live_objects() == 0


@pytest.mark.llvm
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_two_parts_of_one_opencl_device_are_two_devices(mode):
    """Both run kernels, and values go from one to the other and to the host."""
    text = SOURCE.replace("on(DEVICE, matmul(x, w))", "on(cl0, matmul(x, w))")
    text = text.replace("DEVICE", "cl1").replace("neg(a)", "on(cl1, neg(a))")
    rng = np.random.default_rng(0)
    inputs = {
        "x": rng.standard_normal((5, 8)).astype(np.float32),
        "w": rng.standard_normal((8, 8)).astype(np.float32),
    }
    plain = text.replace("on(cl0, ", "(").replace("on(cl1, ", "(")
    one = inlay.compile(read(plain), cache="none").run(inputs)
    try:
        exe = inlay.compile(read(text), board="opencl_two", cache="none", threads=2, mode=mode)
    except RunError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        pytest.skip(str(failure))
    (device,) = exe.program.devices
    assert len(device.memories) == 2
    ran = {k.body.memory for k in exe.program.kernels if isinstance(k.body, DeviceBody)}
    assert ran == set(device.memories)
    for _ in range(2):
        two = exe.run(inputs)
        for name, expected in one.items():
            np.testing.assert_allclose(two[name], expected, rtol=1e-5, atol=1e-5)
    assert exe.live_objects() == 0


LISTS = """
fn main<n>(x: Tensor[n, 8, f32], w: Tensor[8, 8, f32]) -> Tensor[n, 8, f32] {
  let made: List[Tensor[n, 8, f32]] = Cons(x, Cons(tanh(x), Nil()));
  let first = @list.get(made, int(0));
  let all = @list.combine(Cons(relu(first), made), fn(a, b) { add(a, b) });
  matmul(all, w)
}
entry main("x", "w") -> ("y");
"""


@pytest.mark.sample(2)
@pytest.mark.llvm
@pytest.mark.parametrize("pin", ["relu=cpu1", "tanh=cpu1", "add=cpu1", "matmul*=cpu1"])
def test_elements_of_lists_are_copied_where_their_type_is_known(pin, tmp_path, kernels):
    """Functions over lists are written for elements of any type, and a copy needs their size."""
    (tmp_path / "lists.inl").write_text(LISTS)
    module = inlay.load(tmp_path / "lists.inl")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    expected = inlay.compile(module, cache=kernels)(x, w)
    found = inlay.compile(module, board="host_two", pins=(pin,), cache=kernels, verify=True)(x, w)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


ONE = "Cons[Tensor[4, f32]](neg(x), Nil[Tensor[4, f32]]())"


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("body", "kind"), [(f"on(cpu1, {ONE})", "List[Tensor[4, f32]]"), (f"@all({ONE})", "'a")]
)
def test_what_is_no_tensor_is_not_copied(body, kind):
    """Not as a whole, nor where it is not known to be one."""
    text = f"""
      fn all<'a>(xs: List['a]) -> List['a] {{
        match xs {{ Nil() => Nil['a](), Cons(h, t) => Cons['a](on(cpu1, h), @all(t)) }}
      }}
      fn main(x: Tensor[4, f32]) -> List[Tensor[4, f32]] {{ {body} }}
      entry main("x") -> ("y");"""
    with pytest.raises(CompileError) as caught:
        inlay.compile(read(text), board="host_two", cache="none")
    assert caught.value.ids == ("placement.copy-of-structure",)
    assert kind in str(caught.value)
