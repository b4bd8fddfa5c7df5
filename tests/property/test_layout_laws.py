"""Laws of layouts: each device has those that its own code wants, whatever runs beside it.

Programs are drawn with what runs where, on a machine of processors with other vectors, devices of
OpenCL, one behind a server, and one that is given operators as they are.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.analysis.blocks import values
from inlay.analysis.register_tiles import panel_width
from inlay.api import compilation
from inlay.codegen.backends import remote
from inlay.codegen.interface import Backend, in_process
from inlay.interp.tensor import evaluate
from inlay.ir.expr import Call, OpRef
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.type_printer import type_text
from inlay.machine.board_file import read_board
from inlay.machine.target import baseline, host
from inlay.ops.device import DEVICE_COPY
from inlay.ops.table import table
from inlay.passes.manager import run_pipeline
from inlay.pipeline.options import PlaceOptions
from inlay.pipeline.planning import Setting, meanings_of, setting_of
from inlay.pipeline.route import route
from inlay.placement import plan_places
from inlay.runtime.session import executable_of
from inlay.transforms import call_foreign
from inlay.transforms._packings import PackOptions
from tests.backends import installed
from tests.examples import examples

OPS = table()


class AsTheyAre(Backend):
    """Makes no loops."""

    generators = ("own",)
    in_host_memory = True

    def emit(self, job):
        return in_process(job, lambda kernel, operands, dims: kernel.body.evaluate(operands, dims))


BACKEND = AsTheyAre()
ARCHS = {
    "wide": 'generator = "llvm"\nloader = "native"\nvector_bytes = 64\nvector_registers = 32',
    "narrow": 'generator = "llvm"\nloader = "native"\nvector_bytes = 16',
    "cl": 'generator = "opencl"\nloader = "opencl"\nparameters = { schedule = "few" }',
    "gpu": 'generator = "opencl"\nloader = "opencl"\nparameters = { schedule = "items" }',
    "far": 'generator = "llvm"\nloader = "remote"\nparameters = { endpoint = "tcp://127.0.0.1:1" }',
    "asis": 'generator = "own"\nloader = "own"',
    "described": "",
}
CANONICAL, NO_PANELS = {"asis", "described"}, {"asis", "described", "gpu"}


@pytest.fixture(scope="module", autouse=True)
def served():
    """Let a processor of short vectors answer behind the server, and the back end above be there."""
    facts = SimpleNamespace(name="far", offers=baseline(host().arch, "v2").offers)
    opened = contextlib.nullcontext(SimpleNamespace(facts=facts))
    with pytest.MonkeyPatch.context() as patch, installed("own", __name__):
        patch.setattr(remote, "OpenDevice", lambda *_: opened)
        yield


def board_of(*archs: str):
    """Return a machine of this processor and a device of each architecture."""
    text = '[[memory]]\nname = "ram"\n[[device]]\nname = "cpu"\narch = "native"\nmemories = ["ram"]\n'
    memory_of = {a: "ram" if a == "asis" else f"{a}.mem" for a in archs}
    text += f'[[engine]]\nname = "copier"\nmemories = {list(dict.fromkeys(["ram", *memory_of.values()]))}\n'
    for a, memory in memory_of.items():
        text += f'[[arch]]\nname = "{a}"\n{ARCHS[a]}\n'
        text += f'[[device]]\nname = "{a}"\narch = "{a}"\nmemories = ["{memory}"]\n'
        if memory == "ram":
            continue
        text += f'[[memory]]\nname = "{memory}"\nowner = "{a}"\n'
        for ends in (("ram", f"{a}.mem"), (f"{a}.mem", "ram")):
            text += '[[link]]\nfrom = "{}"\nto = "{}"\nengine = "copier"\n'.format(*ends)
    text += f'[[coherent]]\nmemory = "ram"\nparties = {["cpu", *({"asis"} & {*archs})]}\n'
    return read_board("drawn", text.replace("'", '"'), place="drawn.toml")


def constant(rng: random.Random, *shape: int) -> str:
    numbers = ", ".join(str(rng.randint(-8, 8) / 8) for _ in range(math.prod(shape)))
    return f"f32[{', '.join(map(str, shape))}]({numbers})"


def drawn(rng: random.Random, devices: list[str]) -> str:
    """Return a program of convolutions and products, each asked to be on some device."""

    def put(text: str) -> str:
        return f"{text} @{rng.choice(devices)}!" if rng.random() < 0.9 else text

    channels, lines, values_of = 3, ["let v0 = x;"], {3: ["v0"]}
    for n in range(1, rng.randint(3, 7)):
        kind, before = rng.choice(["conv", "conv", "relu", "add"]), rng.choice(values_of[channels])
        if kind == "conv":
            wide = rng.choice([3, 5, 17, 40])
            made = f"conv({before}, {constant(rng, wide, channels, 1, 1)})"
            channels = wide
        else:
            made = (
                f"relu({before})" if kind == "relu" else f"add({before}, {rng.choice(values_of[channels])})"
            )
        lines.append(f"let v{n} = {put(made)};")
        values_of.setdefault(channels, []).append(f"v{n}")
    rows = f"reshape({values_of[channels][-1]}, shape({channels}, 30))"
    w = constant(rng, 30, rng.choice([7, 33]))  # read twice, by one device or by two
    ends = [f"let a = {put('matmul(r, w)')};", f"let b = {put('matmul(tanh(r), w)')};", "add(a, b)"]
    body = "\n  ".join([*lines, f"let r = {rows};", f"let w = {w};", *ends])
    return f'fn main(x: Tensor[1, 3, 5, 6, f32]) {{\n  {body}\n}}\nentry main("x") -> ("y");'


def calls_of(module: Module) -> list[Call]:
    found = [v for f in module.functions.values() for v in values(f.body) if isinstance(v, Call)]
    return [c for c in found if isinstance(c.callee, OpRef)]


def copies_of(module: Module) -> Counter[tuple[str, str, str]]:
    copies = [c for c in calls_of(module) if c.callee.op is DEVICE_COPY]
    return Counter((c.callee.attrs.src, c.callee.attrs.dst, type_text(c.type)) for c in copies)


def assert_own_layouts(before: Module, after: Module, setting: Setting) -> None:
    """Nothing goes between devices in another layout than before, and each reads its own panels."""
    assert copies_of(after) <= copies_of(before)
    named = {(c.place.device, c.callee.op.name) for c in calls_of(before) if c.place is not None}
    target_of = setting.context.options_for(PackOptions).targets
    for call in calls_of(after):
        if call.place is None or call.callee.op is DEVICE_COPY:
            continue
        device, name, attrs = call.place.device, call.callee.op.name, call.callee.attrs
        assert device not in CANONICAL or (device, name) in named, (device, name)
        if not name.endswith("_packed"):
            continue
        assert device not in NO_PANELS, (device, name)
        target, packed = target_of(device), call.args[1].value.shape
        columns = attrs.n if name == "matmul_packed" else attrs.channels
        rows = next((d.value for d in reversed(call.type.shape[:-1]) if d != 1), 1)
        terms = math.prod(packed) // (attrs.panel * -(-columns // attrs.panel))
        assert attrs.panel == panel_width(target, columns, terms, rows) == packed[-1]
        lanes = setting.targets(device).lanes(4)
        assert attrs.panel % lanes == 0 or attrs.panel * 2 == lanes >= 16, (
            "whole registers, or half of a wide one"
        )


@settings(max_examples=examples(6))
@given(st.integers(0, 10**6))
def test_no_device_sees_the_layout_of_another(seed):
    rng = random.Random(seed)
    module = parse_module(drawn(rng, ["cpu", *ARCHS]), OPS)
    setting = setting_of(PlaceOptions(board=board_of(*ARCHS)), threads=1)
    before = run_pipeline(route(plan_places.PASS), module, setting.context)
    after = run_pipeline(route(call_foreign.PASS), module, setting.context)
    assert_own_layouts(before, after, setting)
    x = np.random.default_rng(seed).standard_normal((1, 3, 5, 6)).astype(np.float32)
    want, got = (evaluate(m, [x], meanings_of(OPS)) for m in (module, after))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def packed_widths(device: str) -> set[int]:
    """Return the panels of a program of which all is on one device."""
    text = drawn(random.Random(3), [device])
    setting = setting_of(PlaceOptions(board=board_of(*ARCHS)), threads=1)
    after = run_pipeline(route(call_foreign.PASS), parse_module(text, OPS), setting.context)
    packed = [c for c in calls_of(after) if c.callee.op.name.endswith("_packed")]
    return {c.callee.attrs.panel for c in packed if c.place.device == device}


def test_devices_of_other_vectors_have_other_panels():
    """Else the law above would show nothing."""
    assert packed_widths("wide") != packed_widths("narrow")
    assert not packed_widths("gpu") | packed_widths("asis")


@pytest.mark.llvm
@settings(max_examples=examples(1), deadline=None)
@given(st.integers(0, 10**6))
def test_what_is_drawn_runs_on_processors_of_other_vectors(seed):
    archs = ("wide", "narrow", "asis")
    module = parse_module(drawn(random.Random(seed), ["cpu", *archs]), OPS)
    x = np.random.default_rng(seed).standard_normal((1, 3, 5, 6)).astype(np.float32)
    made = compilation(module, board=board_of(*archs), threads=1, cache="none", verify=True)
    exe = executable_of(made.program, callbacks=made.functions)
    want = evaluate(module, [x], meanings_of(OPS))
    np.testing.assert_allclose(exe(x), want, rtol=1e-3, atol=1e-3)
