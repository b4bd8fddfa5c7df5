"""The reference interpreter: what each instruction means, as plainly as Python can say it.

Calls and jumps are here; what other instructions do to a stack is in `interp_values` and
`interp_tensors`. Slow on purpose. The C runtime must agree with it on every program: same results,
and where an instruction fails, the same diagnostic id and message. Two freedoms are the runtime's
own: what bytes a new storage holds, and whether `OWN`, `APPEND` and `EXTEND` copy (they never need
to when nothing else refers to the tensor; here they always do).

Kernels are not executed here: the caller gives a function that gets the kernel, the tensors as
arrays that share the bytes of the machine, and the integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np

from inlay.base.diagnostics import InlayError, RunError, error
from inlay.bytecode.builder import span_of
from inlay.bytecode.isa import Instruction
from inlay.bytecode.program import AccessCode, Function, Kernel, Program
from inlay.bytecode.verify import instructions
from inlay.runtime.interp_tensors import TENSORS
from inlay.runtime.interp_values import (
    AGGREGATES,
    INT_BINARY,
    Failure,
    fit,
    integer,
    integers,
    mismatch,
    require_writable,
    take,
    tensor_of,
)
from inlay.runtime.value import Closure, Storage, Tensor, Value

KernelFunction: TypeAlias = Callable[[Kernel, list[np.ndarray], list[int]], None]


@dataclass(slots=True)
class _Frame:
    """An activation of a function: its slots (None is empty) and where it is."""

    index: int
    slots: list[Value | None]
    pc: int = 0


Decoded: TypeAlias = dict[int, tuple[Instruction, tuple[int, ...], int]]


class Interpreter:
    """Executes functions of one verified program.

    Attributes:
        program: the program.
        kernel: executes `INVOKE`.
        stack_limit: frames, beyond which a call fails with `run.stack-limit`.
    """

    def __init__(self, program: Program, kernel: KernelFunction, *, stack_limit: int = 2_000_000) -> None:
        self.program = program
        self.kernel = kernel
        self.stack_limit = stack_limit
        self._decoded: dict[int, Decoded] = {}
        self._constants: dict[int, Tensor] = {}
        self._frames: list[_Frame] = []

    def call(self, function: int, arguments: Sequence[Value]) -> list[Value]:
        """Return the results of a function.

        Raises:
            RunError: `run.*`, with the function and the source of the failing instruction.
        """
        outer, self._frames = self._frames, []
        try:
            return self._run(function, arguments)
        except Failure as failure:
            raise self._located(failure) from failure.__cause__
        finally:
            self._frames = outer

    def _run(self, function: int, arguments: Sequence[Value]) -> list[Value]:
        self._enter(function, list(arguments))
        while True:
            frame = self._frames[-1]
            row, words, following = self._code(frame.index)[frame.pc]
            match row.name:
                case "RETURN":
                    count = len(self.program.functions[frame.index].results)
                    results = take(frame.slots, count)
                    self._frames.pop()
                    if not self._frames:
                        return results
                    self._frames[-1].slots += results
                case "CALL" | "SPAWN":
                    frame.pc = following
                    arguments = take(frame.slots, len(self.program.functions[words[0]].params))
                    self._enter(words[0], arguments)
                case "TAIL_CALL":
                    arguments = take(frame.slots, len(self.program.functions[words[0]].params))
                    self._frames.pop()
                    self._enter(words[0], arguments)
                case "CALL_CLOSURE" | "SPAWN_CLOSURE":
                    arguments = take(frame.slots, words[0])
                    closure = self._callee(frame.slots.pop(), words[0], words[1])
                    frame.pc = following
                    self._enter(closure.function, [*closure.items, *arguments])
                case "TAIL_CALL_CLOSURE":
                    arguments = take(frame.slots, words[0])
                    results = len(self.program.functions[frame.index].results)
                    closure = self._callee(frame.slots.pop(), words[0], results)
                    self._frames.pop()
                    self._enter(closure.function, [*closure.items, *arguments])
                case "JUMP":
                    frame.pc = words[0]
                case "JUMP_IF_FALSE":
                    frame.pc = words[0] if integer(frame.slots.pop()) == 0 else following
                case "SWITCH":
                    index = integer(frame.slots.pop())
                    frame.pc = words[index] if 0 <= index < len(words) else words[-1]
                case _:
                    self._step(row.name, words, frame.slots)
                    frame.pc = following

    def _enter(self, function: int, arguments: list[Value]) -> None:
        if len(self._frames) >= self.stack_limit:
            raise Failure("run.stack-limit", f"calls nest deeper than {self.stack_limit}")
        self._frames.append(_Frame(function, list(arguments)))

    def _callee(self, value: Value | None, arguments: int, results: int) -> Closure:
        if not isinstance(value, Closure):
            mismatch("closure", value)
        callee = self.program.functions[value.function]
        if len(value.items) + arguments != len(callee.params) or results != len(callee.results):
            raise Failure(
                "run.kind-mismatch",
                f"a closure of '{callee.name}' is called with {arguments} arguments for {results} results",
            )
        return value

    def _code(self, index: int) -> Decoded:
        found = self._decoded.get(index)
        if found is None:
            rows = list(instructions(self.program.functions[index].code))
            ends = [pc for pc, _, _ in rows[1:]] + [len(self.program.functions[index].code)]
            found = {pc: (row, words, end) for (pc, row, words), end in zip(rows, ends)}
            self._decoded[index] = found
        return found

    def _located(self, failure: Failure) -> InlayError:
        notes: list[str] = []
        for depth, frame in enumerate(reversed(self._frames[-8:])):
            function: Function = self.program.functions[frame.index]
            # A caller's position is already behind its call.
            pc = frame.pc if depth == 0 else frame.pc - 1
            span = span_of(function, self.program.strings, pc)
            notes.append(f"in '{function.name}'" + (f" at {span}" if span else ""))
        return error(failure.id, failure.message, notes=notes)

    def _step(self, name: str, words: tuple[int, ...], stack: list[Value | None]) -> None:
        """Execute an instruction that neither calls nor jumps."""
        match name:
            case "INT":
                stack.append(words[0] - (words[0] >> 31 << 32))
            case "INT_WIDE":
                stack.append(self.program.pool[words[0]])
            case "CONST":
                stack.append(self._constant(words[0]))
            case "COPY":
                stack.append(stack[words[0]])
            case "MOVE":
                stack.append(stack[words[0]])
                stack[words[0]] = None
            case "DROP":
                stack[words[0]] = None
            case "POP":  # what is popped may be empty
                del stack[len(stack) - words[0] :]
            case "SLIDE":
                kept = stack[len(stack) - words[0] :]
                del stack[len(stack) - words[0] - words[1] :]
                stack += kept
            case "EVAL":
                pass  # native code is not run here: the instructions that follow say the same
            case "NEG":
                stack.append(fit(-integer(stack.pop())))
            case "NOT":
                stack.append(int(integer(stack.pop()) == 0))
            case "SELECT":
                c, a, b = integers(stack, 3)
                stack.append(a if c != 0 else b)
            case "CHECK":
                condition = integer(stack.pop())
                values = integers(stack, words[0])
                if condition == 0:
                    self._fail(words[1], values)
            case "FAIL":
                self._fail(words[1], integers(stack, words[0]))
            case "INVOKE":
                kernel = self.program.kernels[words[0]]
                numbers = integers(stack, kernel.ints)
                tensors = [tensor_of(value) for value in take(stack, len(kernel.ports))]
                for port, tensor in zip(kernel.ports, tensors, strict=True):
                    if port is not AccessCode.READ:
                        require_writable(tensor)
                try:
                    self.kernel(kernel, [tensor.array() for tensor in tensors], numbers)
                except RunError as problem:
                    (first, *_) = problem.diagnostics
                    raise Failure(first.id, first.message) from problem.__cause__
            case _ if name in INT_BINARY:
                a, b = integers(stack, 2)
                stack.append(fit(INT_BINARY[name](a, b)))
            case _ if name in AGGREGATES:
                AGGREGATES[name](stack, words)
            case _:
                TENSORS[name](stack, words, self.program)

    def _fail(self, message: int, values: list[int]) -> NoReturn:
        raise Failure("run.check-failed", fill(self.program.strings[message], values[:16]))

    def _constant(self, index: int) -> Tensor:
        found = self._constants.get(index)
        if found is None:
            constant = self.program.constants[index]
            data = np.frombuffer(constant.bytes(), np.uint8)
            data.flags.writeable = False
            found = Tensor(Storage(data), 0, constant.dtype, constant.dims)
            self._constants[index] = found
        return found


def fill(template: str, values: Sequence[int]) -> str:
    """Return a message with `{1}`, `{2}`, ... replaced by the values; other braces stay."""
    for position, value in enumerate(values, 1):
        template = template.replace(f"{{{position}}}", str(value))
    return template
