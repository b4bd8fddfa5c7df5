"""Static checks of a program, after which an interpreter may trust it.

**What is established.** Every index names something that exists; jumps go to instructions of the
same function; at each instruction the depth of the stack is one known number, at most the frame
size, and never too small for what is popped; it is known which slots are empty, and an empty slot
is never read; kinds never conflict for certain (`isa.Kind.ANY` is tested when executed). Formulas
are well formed. Hence no instruction reads or writes outside its frame or the tables.

**How.** Code is visited once, front to back. The state before an instruction is the list of kinds
of its slots. It comes from the instruction before it or from an earlier jump; two ways that meet
must agree in depth and emptiness, and where one knows a kind and the other does not, the meeting
knows it not (`ANY`). A jump backwards must arrive with the state its target was visited with. What
is reached only from below is refused, so one pass is enough and no fixed point is sought.

Cost: time linear in the code and the slots that its instructions name, plus the depth for each
jump. States are kept only between a jump and its target, those of loops to the end, and never more
than `MAX_WAITING` slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inlay.bytecode import effects
from inlay.bytecode.isa import (
    DTYPES,
    INSTRUCTIONS,
    MAX_ALIGN,
    MAX_COUNT,
    MAX_RANK,
    Instruction,
    Item,
    Kind,
    OperandKind,
)
from inlay.bytecode.program import Function, Program
from inlay.bytecode.verify_tables import Finding, table_findings

MAX_WAITING = 1 << 26
"""Slots of all states that wait for their jump targets at one time: a frame may be deep and jumps
may be many, and a forged function that has both must not take all memory."""


def _fixed_effects() -> dict[str, tuple[bytes, bytes]]:
    """Kinds popped and pushed by instructions without jumps for which operands do not matter."""
    found: dict[str, tuple[bytes, bytes]] = {}
    for row in INSTRUCTIONS:
        if row.effect is None or any(kind in _TARGETS for _, kind in row.operands):
            continue
        sides = [
            [item.kind for item in side if item.kind is not None and item.times == 1] for side in row.effect
        ]
        if [len(side) for side in sides] == [len(side) for side in row.effect]:
            found[row.name] = (bytes(sides[0]), bytes(sides[1]))
    return found


_TARGETS = (OperandKind.TARGET, OperandKind.TARGETS)
_FIXED = _fixed_effects()


class _WrongError(Exception):
    """Ends the check of one function; its text is the message of the finding."""


def findings(program: Program) -> list[Finding]:
    """Return what is wrong with the program: at most one finding for each function and row."""
    found = list(table_findings(program))
    if found:
        return found
    for index, function in enumerate(program.functions):
        checker = _FunctionChecker(program, function)
        try:
            checker.run()
        except _WrongError as wrong:
            where = f"function {index} '{function.name}' at word {checker.pc}"
            found.append(Finding(where, str(wrong)))
    return found


def instructions(code: Sequence[int]) -> Iterator[tuple[int, Instruction, tuple[int, ...]]]:
    """Yield position, row and operand words of each instruction (the targets of a switch listed).

    Raises:
        ValueError: a word is not an instruction, or the last one lacks operands.
    """
    pc = 0
    while pc < len(code):
        number = code[pc]
        if number >= len(INSTRUCTIONS):
            raise ValueError(f"{number} at word {pc} is not an instruction")
        row = INSTRUCTIONS[number]
        if row.operands and row.operands[0][1] is OperandKind.TARGETS:
            count = code[pc + 1] if pc + 1 < len(code) else 0
            end = pc + 2 + count
            words = tuple(code[pc + 2 : end])
            if count < 1 or end > len(code):
                raise ValueError(f"{row.name} at word {pc} lacks targets")
        else:
            end = pc + 1 + len(row.operands)
            words = tuple(code[pc + 1 : end])
            if end > len(code):
                raise ValueError(f"{row.name} at word {pc} lacks operands")
        yield pc, row, words
        pc = end


def targets_of(row: Instruction, words: Sequence[int]) -> Sequence[int]:
    """Return the operands of an instruction that are positions to continue at."""
    match row.operands:
        case ((_, OperandKind.TARGETS), *_):
            return words
        case ((_, OperandKind.TARGET), *_):
            return words[:1]
        case _:
            return ()


class _FunctionChecker:
    """The visit of one function; `pc` is where it is."""

    def __init__(self, program: Program, function: Function) -> None:
        self.program = program
        self.function = function
        self.pc = 0
        self.stack = bytearray(function.params)
        self.reachable = True
        self.states: dict[int, bytearray] = {}
        self.headers: set[int] = set()
        self.waiting = 0
        # The least value that an operand may not have; slots depend on the depth.
        self.limits: dict[OperandKind, int] = {
            OperandKind.POOL: len(program.pool),
            OperandKind.COUNT: MAX_COUNT + 1,
            OperandKind.INDEX: MAX_COUNT + 1,
            OperandKind.TAG: 1 << 31,
            OperandKind.CONSTANT: len(program.constants),
            OperandKind.FUNCTION: len(program.functions),
            OperandKind.KERNEL: len(program.kernels),
            OperandKind.SHAPE: len(program.shapes),
            OperandKind.MESSAGE: len(program.strings),
            OperandKind.MEMORY: len(program.memories),
            OperandKind.DTYPE: len(DTYPES),
            OperandKind.RANK: MAX_RANK + 1,
        }

    def run(self) -> None:
        """Visit the code.

        Raises:
            _WrongError: the first thing that is wrong.
        """
        rows = self._decode()
        for pc, row, words in rows:
            self.pc = pc
            self._arrive(pc)
            self._operands(row, words)
            if row.name in effects.HAVE_EFFECTS:
                self._effects(row.name, words[0] if words else 0)
            self._execute(row, words)
            if len(self.stack) > self.function.frame:
                raise _WrongError(f"needs more than the {self.function.frame} slots of its frame")
            self.reachable = not row.ends
        if self.reachable:
            raise _WrongError("control runs off the end of the code")

    def _decode(self) -> list[tuple[int, Instruction, tuple[int, ...]]]:
        try:
            rows = list(instructions(self.function.code))
        except ValueError as error:
            raise _WrongError(str(error)) from error
        starts = {pc for pc, _, _ in rows}
        for pc, row, words in rows:
            if row.operands and row.operands[0][1] in _TARGETS:
                self.pc = pc
                for target in targets_of(row, words):
                    if target not in starts:
                        raise _WrongError(f"{row.name} goes to word {target}, no instruction")
                    if target <= pc:
                        self.headers.add(target)
        return rows

    def _arrive(self, pc: int) -> None:
        waiting = self.states.get(pc)
        if waiting is not None:
            if self.reachable:
                self._join(waiting, self.stack)
            self.stack = waiting
            del self.states[pc]
            self.waiting -= len(waiting)
        elif not self.reachable:
            raise _WrongError("control never comes here")
        if pc in self.headers:
            self._keep(pc)
        self.reachable = True

    def _keep(self, target: int) -> None:
        """Remember what is known here for a target."""
        self.waiting += len(self.stack)
        if self.waiting > MAX_WAITING:
            raise _WrongError("too many jumps wait for their targets with too deep a stack")
        self.states[target] = bytearray(self.stack)

    def _jump(self, target: int) -> None:
        waiting = self.states.get(target)
        if waiting is None:
            # A target behind us was visited, and left its state because it is a header.
            self._keep(target)
        elif target > self.pc:
            self._join(waiting, self.stack)
        else:
            self._join(bytearray(waiting), self.stack)

    def _join(self, state: bytearray, other: bytearray) -> None:
        """Make ``state`` what is known on both ways."""
        if state == other:
            return
        if len(state) != len(other):
            raise _WrongError(f"two ways meet with {len(state)} and {len(other)} slots")
        for slot, (a, b) in enumerate(zip(state, other, strict=True)):
            if a == b:
                continue
            if Kind.EMPTY in (a, b) or Kind.ANY not in (a, b):
                names = f"{Kind(a).name.lower()} and {Kind(b).name.lower()}"
                raise _WrongError(f"two ways meet with {names} in slot {slot}")
            state[slot] = Kind.ANY

    def _operands(self, row: Instruction, words: tuple[int, ...]) -> None:
        for (label, kind), word in zip(row.operands, words, strict=False):
            limit = len(self.stack) if kind is OperandKind.SLOT else self.limits.get(kind)
            if limit is not None and word >= limit:
                raise _WrongError(f"{label} {word} of {row.name} is not below {limit}")
            if kind is OperandKind.ALIGN and (word == 0 or word & (word - 1) or word > MAX_ALIGN):
                raise _WrongError(f"{word} is not a power of two up to {MAX_ALIGN}")

    def _effects(self, name: str, operand: int) -> None:
        functions, kernels = self.program.functions, self.program.kernels
        found = effects.of(name, operand, lambda i: functions[i].effects, lambda i: kernels[i].ordered)
        if found & ~self.function.effects:
            raise _WrongError(f"{name} has effects that the type of the function does not have")

    def _execute(self, row: Instruction, words: tuple[int, ...]) -> None:
        if row.effect is None:
            self._special(row.name, words)
            return
        fixed = _FIXED.get(row.name)
        if fixed is not None:
            self._pop(fixed[0], row.name)
            self.stack += fixed[1]
            return
        if row.name == "CLOSURE":
            self._captures(words)
        popped, pushed = row.effect
        labels = [label for label, _ in row.operands]
        for item in reversed(popped):
            self._pop(self._kinds(item, labels, words), row.name)
        for target in targets_of(row, words):
            self._jump(target)
        for item in pushed:
            self.stack += self._kinds(item, labels, words)

    def _kinds(self, item: Item, labels: list[str], words: tuple[int, ...]) -> bytes:
        if isinstance(item.times, int):
            assert item.kind is not None, "only functions declare kinds"
            return bytes((item.kind,)) * item.times
        value = words[labels.index(item.times)]
        match item.of:
            case "params":
                return bytes(self.program.functions[value].params)
            case "results":
                return bytes(self.program.functions[value].results)
            case "value":
                count = value
            case "tensors":
                count = len(self.program.kernels[value].ports)
            case "ints":
                count = self.program.kernels[value].ints
        assert item.kind is not None, "counted items have a kind"
        return bytes((item.kind,)) * count

    def _pop(self, wanted: bytes, name: str) -> None:
        if wanted:
            del self.stack[self._match(wanted, name) :]

    def _match(self, wanted: bytes, name: str) -> int:
        """Check the kinds of the top slots; return where they begin."""
        if len(wanted) > len(self.stack):
            raise _WrongError(f"{name} pops {len(wanted)} of {len(self.stack)} slots")
        base = len(self.stack) - len(wanted)
        if bytes(self.stack[base:]) == wanted:
            return base
        for slot, want in enumerate(wanted, base):
            found = self.stack[slot]
            if found == Kind.EMPTY or (found != want and Kind.ANY not in (found, want)):
                needed, held = Kind(want).name.lower(), Kind(found).name.lower()
                raise _WrongError(f"{name} needs {needed} in slot {slot}, which holds {held}")
        return base

    def _captures(self, words: tuple[int, ...]) -> None:
        params = self.program.functions[words[0]].params
        if words[1] > len(params):
            raise _WrongError(f"a closure captures {words[1]} values for {len(params)} params")
        self._match(bytes(params[: words[1]]), "CLOSURE")

    def _special(self, name: str, words: tuple[int, ...]) -> None:
        stack = self.stack
        match name:
            case "COPY" | "MOVE" | "DROP":
                kind = stack[words[0]]
                if kind == Kind.EMPTY:
                    raise _WrongError(f"{name} of slot {words[0]}, which is empty")
                if name != "COPY":
                    stack[words[0]] = Kind.EMPTY
                if name != "DROP":
                    stack.append(kind)
            case "POP":
                self._need(words[0], name)
                del stack[len(stack) - words[0] :]
            case "SLIDE":
                keep, count = words
                self._need(keep + count, name)
                top = len(stack) - keep
                del stack[top - count : top]
            case "EVAL":
                self._evaluate(*words)
            case "TAIL_CALL":
                callee = self.program.functions[words[0]]
                self._pop(bytes(callee.params), name)
                self._same_results(callee.results)
            case "TAIL_CALL_CLOSURE":
                self._pop(bytes((Kind.CLOSURE,)) + bytes((Kind.ANY,)) * words[0], name)
            case _:
                assert name == "RETURN", f"{name} has no case in the verifier"
                self._pop(bytes(self.function.results), name)

    def _evaluate(self, target: int, index: int) -> None:
        """Arrive at the target with the results; what is between must arrive with the same."""
        shape = self.program.shapes[index]
        depth = len(self.stack)
        if target <= self.pc:
            raise _WrongError("EVAL goes back")
        if any(given.slot >= depth for given in shape.inputs):
            raise _WrongError(f"shape code takes a slot beyond the {depth} in use")
        if depth + shape.results > self.function.frame:
            raise _WrongError(f"needs more than the {self.function.frame} slots of its frame")
        self.stack += bytes((Kind.INT,)) * shape.results
        self._jump(target)
        del self.stack[depth:]

    def _need(self, count: int, name: str) -> None:
        if count > len(self.stack):
            raise _WrongError(f"{name} needs {count} of {len(self.stack)} slots")

    def _same_results(self, results: tuple[Kind, ...]) -> None:
        mine = self.function.results
        same = len(mine) == len(results) and all(
            a == b or Kind.ANY in (a, b) for a, b in zip(mine, results, strict=True)
        )
        if not same:
            raise _WrongError("a tail call returns other results than its caller")
