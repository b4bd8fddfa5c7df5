"""Stacks have a budget for each architecture: temporaries go elsewhere beyond it, and compute the same."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation, explain
from inlay.cli.main import main
from inlay.codegen import llvm_generator
from inlay.ir.parser import parse_module
from inlay.lower.place_buffers import stack_taken
from inlay.machine.board_file import board_text, read_board
from inlay.ops.table import table
from inlay.runtime.session import executable_of

PROGRAM = """
fn main(x: Tensor[9, 700, f32], w: Tensor[700, 33, f32]) -> (Tensor[9, f32], Tensor[9, 33, f32]) {
  let rows = softmax{axis=1}(x);
  (reduce_max{axes=[1], keepdims=false}(rows), softmax{axis=1}(matmul(x, w)))
}
entry main("x", "w") -> ("most", "y");
"""
THREADED = PROGRAM.replace("[9", "[3000")
NATIVE = """
[[arch]]
name = "native"
generator = "llvm"
loader = "native"
stack_bytes = BYTES
"""
MEASURE = """
import pickle, sys
from inlay.codegen.llvm_compile import compile_text
for text, target, optimize in pickle.load(sys.stdin.buffer):
    compile_text(text, target, optimize=optimize)
"""
THREADS = """
import json, os, sys, time
import numpy as np
from inlay.api import compilation, explain
from inlay.runtime.session import executable_of
from tests.unit.memory.test_stacks import THREADED, board_of, module

def blocked():
    for name in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{name}/syscall") as stream:
            words = stream.read().split()
        if words[0] != "running":  # its number, arguments, stack pointer, instruction
            yield int(name), int(words[-2], 16)

def used(pointer):
    with open("/proc/self/maps") as stream:
        regions = [[int(n, 16) for n in line.split(" ")[0].split("-")] for line in stream]
    low, high = next(r for r in regions if r[0] <= pointer < r[1])
    with open("/proc/self/mem", "rb") as memory:
        memory.seek(low)
        found = np.flatnonzero(np.frombuffer(memory.read(high - low), np.uint8))
    return high - pointer, high - low - int(found[0])

budget, before = int(sys.argv[1]), {name for name, _ in blocked()} | {os.getpid()}
made = compilation(module(THREADED), board=board_of(budget), cache="none", threads=3)
exe = executable_of(made.program, threads=3)
random = np.random.default_rng(0)
inputs = {"x": random.standard_normal((3000, 700), np.float32), "w": random.standard_normal((700, 33), np.float32)}
for _ in range(9):
    exe.run(inputs)
time.sleep(0.3)  # until threads wait again
(stack,) = explain(module(THREADED), board_of(budget), view="memory", threads=3).stacks
print(json.dumps([stack.most, [used(pointer) for name, pointer in blocked() if name not in before]]))
"""
SAVED_BYTES = 4096
"""What registers are saved in on the way to a kernel, and frames of the runtime above it."""
RED_ZONE = 128
"""Bytes below its frame that a function may use without taking them."""


def module(text: str = PROGRAM):
    return infer_types(parse_module(text, table()))


def board_of(stack_bytes: int):
    text = board_text("host") + NATIVE.replace("BYTES", str(stack_bytes))
    return read_board("b", text, place="b.toml")


def test_temporaries_leave_stacks_that_are_too_small_and_compute_the_same():
    rng = np.random.default_rng(0)
    inputs = {
        "x": rng.standard_normal((9, 700)).astype(np.float32),
        "w": rng.standard_normal((700, 33)).astype(np.float32),
    }
    bits, taken, scratch = [], {}, {}
    for budget in (0, 4096, 32 << 10):
        compiled = compilation(module(), board=board_of(budget), cache="none")
        results = executable_of(compiled.program).run(inputs)
        bits.append([results[name].view(np.uint32) for name in ("most", "y")])
        found = explain(module(), board_of(budget), view="memory")
        (stack,) = found.stacks
        assert stack.most <= stack.budget == budget
        assert stack.unknown == 0
        kernels = compiled.module.kernels.values()
        assert max(k.stack for k in kernels) == stack.most  # who explains counts what is compiled
        taken[budget], scratch[budget] = stack.most, sum(w.bytes.value for k in kernels for w in k.workspaces)
    for found in bits[1:]:
        for one, other in zip(found, bits[0], strict=True):
            np.testing.assert_array_equal(one, other)
    assert taken[0] == 0
    assert taken[4096] >= 700 * 4  # a row that no result holds
    assert scratch[0] > scratch[4096]


@pytest.mark.sample(1)
@pytest.mark.llvm
@pytest.mark.parametrize("budget", [0, 4096])
def test_what_is_counted_is_what_code_takes(budget, monkeypatch):
    made = []
    real = llvm_generator.emit_module

    def emit(function, target, in_place=frozenset()):
        found = real(function, target, in_place)
        made.append((function, target, found.text, llvm_generator.needs_optimizer(function)))
        return found

    monkeypatch.setattr(llvm_generator, "emit_module", emit)
    compilation(module(), board=board_of(budget), cache="none")
    assert made
    for function, target, text, optimize in made:
        counted = stack_taken(function.body, target)
        assert max(allocated(text)) <= counted <= budget
        # LLVM measures frames: what is counted, and what registers are saved in.
        measured = max(frames(text, target, optimize=optimize), default=0)
        assert counted <= measured + RED_ZONE


@pytest.mark.slow
@pytest.mark.llvm
@pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="the system does not show stacks")
def test_threads_take_no_more_of_their_stacks_than_is_promised():
    """Stacks of new threads are zero, so the lowest byte that is not is as far as any call has come."""
    most: dict[int, int] = {}
    for budget in (0, 4096, 32 << 10):
        command = [sys.executable, "-c", THREADS, str(budget)]
        root = Path(__file__).parents[3]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
        promised, threads = json.loads(done.stdout)
        assert threads
        assert promised <= budget
        for waiting, used in threads:
            assert used <= waiting + promised + SAVED_BYTES
        most[budget] = max(used for _, used in threads)
        # The measurement sees temporaries: some thread had most of what was promised.
        assert most[budget] - most[0] >= promised - SAVED_BYTES // 4


def allocated(text: str) -> list[int]:
    """Return the bytes of allocations in each function of a module."""
    sizes = {"i1": 1, "i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}
    return [
        sum(int(n) * sizes[t] for n, t in re.findall(r"alloca \[(\d+) x (\w+)\]", function))
        for function in text.split("\ndefine ")
    ]


def frames(text: str, target: object, *, optimize: bool) -> list[int]:
    """Return the bytes of each frame that is not empty, as LLVM says them in its warnings."""
    text = re.sub(r"^(define .*)\{$", r'\1"warn-stack-size"="0" {', text, flags=re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE],
        input=pickle.dumps([(text, target, optimize)]),
        capture_output=True,
        check=True,
    )
    return [int(n) for n in re.findall(rb"stack frame size \((\d+)\)", done.stderr)]


def test_the_view_of_memory_shows_stacks(tmp_path, capsys):
    path = tmp_path / "p.inl"
    path.write_text(PROGRAM)
    board = tmp_path / "b.toml"
    board.write_text(board_text("host") + NATIVE.replace("BYTES", "4096"))
    assert main(["explain", str(path), "--board", str(board), "--view", "memory"]) == 0
    shown = capsys.readouterr().out
    assert "stack of kernels on cpu: temporaries of 4,096 bytes allowed, at most 2,8" in shown
