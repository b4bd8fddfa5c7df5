"""What a device or an engine touches is in a memory that it reaches: drawn programs on drawn boards.

The check knows nothing of the planner: it walks the program that comes out, takes the memory of every
storage from there, and holds each access against what the board says of the one who makes it. Boards are of
two kinds: devices that are only described, with engines and stacks, and devices that there are: accelerators,
OpenCL, this processor again, in any order.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.analysis.blocks import nested
from inlay.analysis.infer_types import infer_types
from inlay.api import explain
from inlay.base.diagnostics import CompileError
from inlay.ir.expr import Call, Expr, Function, GlobalVar, OpRef, Project, Tuple, Var
from inlay.ir.parser import parse_module
from inlay.ir.walk import spine
from inlay.machine.board import Board
from inlay.machine.board_file import read_board
from inlay.ops.device import copy_in
from inlay.ops.memory import ALLOC_STORAGE, INVOKE, KILL, TENSOR_AT, InvokeAttrs, StorageAttrs
from inlay.ops.table import table
from inlay.pipeline.build_kernels import LoopBody
from inlay.pipeline.detect import find_usable
from inlay.pipeline.explain.memory import MemoryExplanation
from tests.examples import examples
from tests.property import draw_boards

REFUSALS = {
    "board.invalid",
    "memory.no-room",
    "memory.scope-empty",
    "placement.over-capacity",
    "placement.contradiction",
    "device.no-path",
    "placement.unsupported-op",
}


def draw_board(rng: random.Random) -> str:
    """Return a described machine: memories of all kinds, some shared, and engines between some of them."""
    devices = ["cpu", *rng.sample(["npu", "dsp", "gpu"], rng.randint(1, 3))]
    near = {"cpu": ["ram", "cpu.stack"]}
    sizes = {"ram": rng.choice(["", "64KiB", "4KiB"]), "cpu.stack": rng.choice(["256B", "2KiB", "64KiB"])}
    kinds = {"ram": "static" if sizes["ram"] else "heap", "cpu.stack": "stack"}
    if rng.random() < 0.6:
        near["cpu"].insert(rng.randint(0, 2), "fast")
        kinds["fast"], sizes["fast"] = "static", rng.choice(["512B", "2KiB"])
    for device in devices[1:]:
        own = f"{device}.mem"
        kinds[own], sizes[own] = "static", rng.choice(["1KiB", "8KiB", "64KiB"])
        shared = rng.choice([[], ["ram"], [m for m in ("fast",) if m in kinds]])
        near[device] = [own, *shared] if rng.random() < 0.7 or not shared else [*shared]
    if all("ram" not in m for d, m in near.items() if d != "cpu") and rng.random() < 0.3:
        near[devices[-1]].append("ram")
    used = list(dict.fromkeys(m for ms in near.values() for m in ms))
    lines = ['summary = "drawn"']
    for memory in used:
        lines += ["[[memory]]", f'name = "{memory}"', f'kind = "{kinds[memory]}"']
        lines += [f'bytes = "{sizes[memory]}"'] if sizes[memory] else []
        owner = memory.partition(".")[0]
        lines += [f'owner = "{owner}"'] if "." in memory else []
        lines += [f"bytes_per_ns = {rng.choice([1, 8, 64])}", f"alignment = {rng.choice([8, 16, 64])}"]
    for device in devices:
        lines += [
            "[[arch]]",
            f'name = "arch_{device}"',
            f"macs_per_ns = {rng.choice([1, 50])}",
            "stack_bytes = 0",
        ]
        lines += ["[[device]]", f'name = "{device}"', f'arch = "arch_{device}"']
        lines.append("memories = [" + ", ".join(f'"{m}"' for m in near[device]) + "]")
    for memory in used:
        parties = [d for d in devices if memory in near[d]]
        if len(parties) > 1 and rng.random() < 0.8:
            lines += ["[[coherent]]", f'memory = "{memory}"', f"parties = {parties}".replace("'", '"')]
    for i, memory in enumerate([m for m in used if m not in ("ram", "cpu.stack")]):
        lines += ["[[engine]]", f'name = "dma{i}"', f'memories = ["ram", "{memory}"]']
        for one, other in (("ram", memory), (memory, "ram")):
            lines += [
                "[[link]]",
                f'from = "{one}"',
                f'to = "{other}"',
                f'engine = "dma{i}"',
                "bytes_per_ns = 1",
            ]
    return "\n".join(lines) + "\n"


def draw_program(rng: random.Random, board: Board) -> str:
    """Return a program whose values are asked for here and there, some of them in a memory."""
    names, lets = ["x", "w"], []
    for i in range(rng.randint(3, 9)):
        a, b = rng.choice(names), rng.choice(names)
        call = rng.choice([f"matmul({a}, {b})", f"tanh({a})", f"add({a}, {b})", f"softmax{{axis=1}}({a})"])
        where = ""
        if rng.random() < 0.5:
            device = rng.choice(board.devices)
            where = f" @{device.name}"
            if rng.random() < 0.4:
                where += f"![{rng.choice([*device.memories, 'global', 'workspace', 'stack'])}]"
        lets.append(f"  let v{i}{where} = {call};")
        names.append(f"v{i}")
    square = "Tensor[8, 8, f32]"
    result = f"add({names[-1]}, {rng.choice(names)})"
    body = "\n".join(lets)
    return f'fn main(x: {square}, w: {square}) -> {square} {{\n{body}\n  {result}\n}}\nentry main("x", "w") -> ("y");\n'


def draw_integers(rng: random.Random, board: Board) -> str:
    """Return a program of layers that accelerators take, with what only others run; some are put somewhere."""
    weights = ", ".join(str(rng.randint(-9, 9)) for _ in range(64))
    biases = ", ".join(str(rng.randint(-99, 99)) for _ in range(8))
    inputs, lets = ["x"], []
    for i in range(rng.randint(2, 5)):
        x = rng.choice(inputs)
        lets.append((f"s{i}", f"add(matmul_integer({x}, i8[8, 8]({weights})), i32[8]({biases}))"))
        lets.append((f"v{i}", f"requantize{{zero=3}}(s{i}, f32(0.01))"))
        if rng.random() < 0.3:
            lets.append((f"w{i}", f"add(v{i}, {x})"))
        inputs.append(lets[-1][0])
    body = ""
    for name, call in lets:
        device, asked = rng.choice(board.devices), rng.random()
        scope = f"![{rng.choice([*device.memories, 'global'])}]" if asked < 0.05 else ""
        where = f" @{device.name}{scope}" if asked < 0.12 else ""
        body += f"  let {name}{where} = {call};\n"
    head = "fn main(x: Tensor[8, 8, i8]) -> Tensor[8, 8, i8]"
    return f'{head} {{\n{body}  {inputs[-1]}\n}}\nentry main("x") -> ("y");\n'


class Touched:
    """Walks a planned program, and holds every access against the board."""

    def __init__(self, found: MemoryExplanation) -> None:
        self.board, self.module = found.board, found.module
        self.first = self.board.memories[0].name
        self.memory: dict[Var, str] = {}
        self.writers: dict[Var, set[str]] = {}
        self.accesses: Counter[str] = Counter()
        for plan in found.plans:
            inputs = {
                m.names[0]: p.memory or self.first
                for p in plan.parts
                for m in p.members
                if m.names and m.first == 0
            }
            function = self.module.functions.get(plan.name)
            for param in function.params if function is not None else ():
                if param.name in inputs:
                    self.memory[param] = inputs[param.name]
        for function in self.module.functions.values():
            self.block(function.body)

    def block(self, body: Expr) -> None:
        lets, tail = spine(body)
        for var, value in (*((let.var, let.value) for let in lets), (None, tail)):
            if var is not None:
                self.value(var, value)
            for inner in nested(value):
                self.block(inner)

    def value(self, var: Var, value: Expr) -> None:
        match value:
            case Call(callee=OpRef(op=op, attrs=StorageAttrs() as attrs)) if op is ALLOC_STORAGE:
                assert len(attrs.memories) <= 1, "planning leaves one memory"
                self.memory[var] = attrs.memories[0] if attrs.memories else self.first
            case Call(callee=OpRef(op=op), args=(Var() as storage, *_)) if op is TENSOR_AT:
                self.memory[var] = self.memory[storage]
            case Call(callee=OpRef(op=op, attrs=InvokeAttrs(writes=writes))) if op is INVOKE:
                self.invoke(value, writes)
            case Call(callee=OpRef(op=op), args=args) if op.alias is not None and op is not KILL:
                self.same(var, args[op.alias])
            case Var() | Project() | Tuple() | Function():
                self.same(var, value)
            case _:
                pass

    def same(self, var: Var, value: Expr) -> None:
        if isinstance(value, Var) and value in self.memory:
            self.memory[var] = self.memory[value]
            self.writers[var] = self.writers.setdefault(value, set())

    def invoke(self, call: Call, writes: int) -> None:
        kernel = call.args[0]
        assert isinstance(kernel, GlobalVar)
        body = self.module.kernels[kernel.name].body
        tensors = [t for t in call.args[1:-1] if isinstance(t, Var) and t in self.memory]
        attrs = copy_in(body.function) if isinstance(body, LoopBody) else None
        where = [self.memory[t] for t in tensors]
        if attrs is not None:
            engine = next(e for e in self.board.engines if e.name == attrs.engine)
            self.accesses[engine.name] += len(where)
            assert set(where) <= set(engine.memories), f"{engine.name} copies from {where[0]} to {where[-1]}"
            hops = [(x.source, x.target, x.engine) for x in self.board.links]
            assert len(where) < 2 or (*where, attrs.engine) in hops, f"{engine.name} copies from {where}"
            self.writers[tensors[-1]] = {attrs.dst}
            return
        place = call.place
        while place is not None and not place.device and place.fields:
            place = place.fields[0]
        device = self.board.host.name if place is None else place.device
        near = self.board.devices_by_name[device].memories
        self.accesses[device] += len(where)
        outputs = call.args[1:-1][len(call.args) - 2 - writes :]
        for t in tensors:
            assert self.memory[t] in near, f"{device} touches {t.name} in {self.memory[t]}; it reaches {near}"
            if any(t is x for x in outputs):
                self.writers[t] = {device}
            for writer in self.writers.get(t, ()):
                seen = self.board.shared_memories(writer, device)
                assert self.memory[t] in seen, f"{device} reads {t.name} of {writer} in {self.memory[t]}"


THERE = ("own", "native", "described", "opencl", "opencl")


def holds(seed: int, *, there: bool = False) -> Counter[str]:
    """Check one drawn case; return the accesses that were looked at, by device and engine.

    Args:
        seed: of the case.
        there: whether devices are drawn that there are, and not such as are only described.
    """
    rng = random.Random(seed)
    text = draw_boards.draw_board(rng, THERE) if there else draw_board(rng)
    program = ""
    try:
        board = find_usable(read_board("drawn", text, place="drawn.toml"))
        program = draw_integers(rng, board) if there and rng.random() < 0.7 else draw_program(rng, board)
        found = explain(infer_types(parse_module(program, table())), board, view="memory")
    except CompileError as failure:
        assert set(failure.ids) <= REFUSALS, f"{failure}\n{text}\n{program}"  # noqa: PT017
        return Counter()
    try:
        return Touched(found).accesses
    except AssertionError as failure:
        raise AssertionError(f"{failure}\nseed {seed}\n{text}\n{program}") from None


def test_what_is_touched_is_within_reach():
    assert sum((holds(seed) for seed in range(examples(25))), Counter()).total() > 100


def test_what_devices_that_there_are_touch_is_within_reach():
    found = sum((holds(seed, there=True) for seed in range(examples(20))), Counter())
    assert found.total() > 50
    assert found["vanilla0"]
    assert any(name.startswith("dma_") for name in found)


@pytest.mark.slow
@settings(max_examples=700)
@given(st.integers(0, 10**9))
def test_what_devices_that_there_are_touch_is_within_reach_long(seed):
    holds(seed, there=True)


@pytest.mark.slow
@settings(max_examples=1000)
@given(st.integers(0, 10**9))
def test_what_is_touched_is_within_reach_long(seed):
    holds(seed)


SHARED = """
summary = "a processor with a fast stack, and an NPU that sees the same memory but no stack"
[[memory]]
name = "ram"
kind = "static"
bytes = "RAM"
bytes_per_ns = 1
[[memory]]
name = "cpu.stack"
kind = "stack"
bytes = "64KiB"
owner = "cpu"
bytes_per_ns = 64
[[arch]]
name = "core"
stack_bytes = 0
[[device]]
name = "cpu"
arch = "core"
memories = ["ram", "cpu.stack"]
[[device]]
name = "npu"
arch = "core"
memories = ["ram"]
[[coherent]]
memory = "ram"
parties = ["cpu", "npu"]
"""
POINTER = """
fn main(x: Tensor[8, 8, f32]) -> Tensor[8, 8, f32] {
  let mine @cpu![stack] = matmul(x, x);
  let given @cpu![SCOPE] = matmul(mine, x);
  let y @npu = matmul(given, given);
  y
}
entry main("x") -> ("y");
"""


def places(ram: str, scope: str) -> dict[str, str]:
    """Return the memory of each value."""
    board = read_board("shared", SHARED.replace("RAM", ram), place="shared.toml")
    found = explain(infer_types(parse_module(POINTER.replace("SCOPE", scope), table())), board, view="memory")
    assert Touched(found).accesses
    return {n: p.memory for plan in found.plans for p in plan.parts for m in p.members for n in m.names}


def test_an_npu_is_given_no_pointer_to_a_stack():
    found = places("4KiB", "global")
    assert found["mine"] == "cpu.stack"
    assert found["given"] == found["y"] == "ram"
    with pytest.raises(CompileError) as caught:  # the stack has room, and is still no way out
        places("512B", "global")
    assert caught.value.ids in (("memory.no-room",), ("placement.over-capacity",))
    with pytest.raises(CompileError) as caught:
        places("4KiB", "stack")
    assert set(caught.value.ids) <= {"memory.scope-empty", "device.no-path"}
