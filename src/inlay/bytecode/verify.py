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
from dataclasses import dataclass

from inlay.bytecode import formula
from inlay.bytecode.isa import (
    DTYPES,
    INSTRUCTIONS,
    MAX_ALIGN,
    MAX_COUNT,
    MAX_FRAME,
    MAX_RANK,
    MAX_SHAPE_INPUTS,
    Instruction,
    Item,
    Kind,
    OperandKind,
)
from inlay.bytecode.program import (
    Access,
    Batch,
    CopyBody,
    DeviceBody,
    Entry,
    Function,
    FunctionBody,
    HostBody,
    ImageBody,
    Kernel,
    Program,
    ShapeCode,
    SymbolBody,
)
from inlay.bytecode.spec import Spec, Symbol, leaves, parts, slot_kind

_VALUES = frozenset(
    (Kind.INT, Kind.TENSOR, Kind.STORAGE, Kind.TUPLE, Kind.ADT, Kind.CLOSURE, Kind.CELL, Kind.ANY)
)
MAX_UNITS = 8
"""Units of a device."""
MAX_PHASES = 16
"""Phases of a kernel of a device."""
MAX_PORTS = 1024
MAX_WAITING = 1 << 26
"""Slots of all states that wait for their jump targets at one time: a frame may be deep and jumps
may be many, and a forged function that has both must not take all memory."""
MAX_SYMBOLS = 256


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: where (a function and word, or a table row), and what."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def _fixed_effects() -> dict[str, tuple[bytes, bytes]]:
    """Kinds popped and pushed by instructions without jumps for which operands do not matter."""
    found: dict[str, tuple[bytes, bytes]] = {}
    for row in INSTRUCTIONS:
        if row.effect is None or any(kind in _TARGETS for _, kind in row.operands):
            continue
        sides = [
            [item.kind for item in side if item.kind is not None and item.times == 1]
            for side in row.effect
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
    found = list(_table_findings(program))
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


def _table_findings(program: Program) -> Iterator[Finding]:
    """Check all but code."""
    for index, function in enumerate(program.functions):
        where = f"function {index} '{function.name}'"
        if not _VALUES.issuperset(function.params + function.results):
            yield Finding(where, "a param or result has a kind that no value has")
        if not len(function.params) <= function.frame <= MAX_FRAME:
            yield Finding(where, f"a frame of {function.frame} slots is not possible")
        if len(function.params) > MAX_COUNT or len(function.results) > MAX_COUNT:
            yield Finding(where, "too many params or results")
        last = -1
        for pc, span in function.spans:
            if pc <= last or pc > len(function.code) or span >= len(program.strings):
                yield Finding(where, "the span table is not ascending or leaves its tables")
                break
            last = pc
    yield from _device_findings(program)
    for index, constant in enumerate(program.constants):
        if not 0 <= constant.memory < max(len(program.memories), 1):
            yield Finding(f"constant {index}", f"there is no memory {constant.memory}")
        yield from _constant_findings(f"constant {index}", constant.dtype, constant.dims,
                                      constant.bytes().nbytes)  # fmt: skip
    for index, kernel in enumerate(program.kernels):
        yield from _kernel_findings(f"kernel {index} '{kernel.name}'", kernel, program)
    for index, shape in enumerate(program.shapes):
        yield from _shape_findings(f"shape code {index}", shape, program)
    if not program.memories:
        yield Finding("memories", "there is none")
    for value in program.pool:
        if not formula.INT_MIN <= value <= formula.INT_MAX:
            yield Finding("pool", f"{value} does not fit 64 bits")
    names: set[str] = set()
    for entry in program.entries:
        if entry.name in names:
            yield Finding(f"entry '{entry.name}'", "the name is taken")
        names.add(entry.name)
        yield from _entry_findings(f"entry '{entry.name}'", entry, program)


def _constant_findings(
    where: str, dtype: str, dims: tuple[int, ...], size: int
) -> Iterator[Finding]:
    sizes = dict(DTYPES)
    if dtype not in sizes:
        yield Finding(where, f"there is no dtype {dtype}")
        return
    if len(dims) > MAX_RANK or any(dim < 0 for dim in dims):
        yield Finding(where, f"dims {list(dims)} are not possible")
        return
    expected = sizes[dtype]
    for dim in dims:
        expected *= dim
    if expected != size:
        yield Finding(where, f"{dtype} {list(dims)} are {expected} bytes, not {size}")


def _kernel_findings(where: str, kernel: Kernel, program: Program) -> Iterator[Finding]:
    if len(kernel.ports) > MAX_PORTS or not 0 <= kernel.ints <= MAX_COUNT:
        yield Finding(where, "too many tensors or integers")
    formulas = [("cost", kernel.cost)]
    if kernel.workspace is not None:
        formulas.append(("workspace", kernel.workspace))
    for label, steps in formulas:
        if wrong := formula.check(steps, kernel.ints):
            yield Finding(where, f"the {label} {wrong}")
    if kernel.batch is not None:
        yield from _batch_findings(where, kernel, kernel.batch, program)
    match kernel.body:
        case ImageBody(phases=phases):
            if not phases:
                yield Finding(where, "it has no phase")
            for phase in phases:
                if not 0 <= phase.offset < len(program.image):
                    yield Finding(where, f"offset {phase.offset} is outside the image")
        case SymbolBody(symbol=name) | HostBody(name=name):
            if not name:
                yield Finding(where, "its body has no name")
        case FunctionBody(name=name):
            if not name:
                yield Finding(where, "its body has no name")
            if kernel.ints or kernel.workspace is not None:
                yield Finding(where, "a function over tensors takes no integers and no workspace")
            order = [port is not Access.READ for port in kernel.ports]
            if Access.READ_WRITE in kernel.ports or order != sorted(order):
                yield Finding(where, "a function over tensors reads the first and writes the last")
        case DeviceBody():
            yield from _device_body_findings(where, kernel, kernel.body, program)
        case CopyBody():
            if kernel.ports != (Access.READ, Access.WRITE) or kernel.ints:
                yield Finding(where, "a copy reads one tensor and writes another, and no more")
            if kernel.workspace is not None:
                yield Finding(where, "a copy has no workspace")


def _device_findings(program: Program) -> Iterator[Finding]:
    taken = {0}
    for d in program.devices:
        where = f"device '{d.name}'"
        if not d.name or not d.driver or not 0 < len(d.memories) <= MAX_UNITS:
            yield Finding(where, "it has no name, no driver, or no possible number of memories")
        for memory in d.memories:
            if not 0 <= memory < len(program.memories) or memory in taken:
                yield Finding(where, f"memory {memory} is the host's, another's, or none")
            taken.add(memory)
        if d.hardware and len(d.hardware) != len(d.memories):
            yield Finding(where, "its memories and their hardware are not as many")
        for number in d.hardware:
            if not 0 <= number < len(program.memories):
                yield Finding(where, f"hardware {number} is not below the number of memories")


def _device_body_findings(
    where: str, kernel: Kernel, body: DeviceBody, program: Program
) -> Iterator[Finding]:
    if not any(body.memory in d.memories for d in program.devices):
        yield Finding(where, f"memory {body.memory} belongs to no device")
    if not body.name or not 0 < len(body.phases) <= MAX_PHASES:
        yield Finding(where, "its body has no name or no possible number of phases")
    if kernel.workspace is not None and kernel.workspace_per_part:
        yield Finding(where, "the workspace of a device's kernel is one block")
    for phase in body.phases:
        if wrong := formula.check(phase.items, kernel.ints):
            yield Finding(where, f"the items {wrong}")
        if phase.offset != -1 and not 0 <= phase.offset < len(program.image):
            yield Finding(where, f"offset {phase.offset} is outside the image")
    if len({phase.offset == -1 for phase in body.phases}) > 1:
        yield Finding(where, "some of its phases are native")


def _shape_findings(where: str, shape: ShapeCode, program: Program) -> Iterator[Finding]:
    if not 0 <= shape.offset < len(program.image):
        yield Finding(where, f"offset {shape.offset} is outside the image")
    if len(shape.inputs) > MAX_SHAPE_INPUTS or not 0 <= shape.results <= MAX_COUNT:
        yield Finding(where, "too many inputs or results")
    for given in shape.inputs:
        if given.slot < 0 or (given.axis is not None and not 0 <= given.axis < MAX_RANK):
            yield Finding(where, "an input is no slot and no axis of a tensor in one")


def _batch_findings(
    where: str, kernel: Kernel, batch: Batch, program: Program
) -> Iterator[Finding]:
    if not 0 <= batch.kernel < len(program.kernels):
        yield Finding(where, f"there is no kernel {batch.kernel}")
        return
    many = program.kernels[batch.kernel]
    if many.batch is not None or many.ports != kernel.ports or many.ints != kernel.ints + 1:
        yield Finding(where, "its batch does not take the same tensors and one integer more")
    if not isinstance(kernel.body, ImageBody) or not isinstance(many.body, ImageBody):
        yield Finding(where, "a batch is of native code")
    if Access.READ_WRITE in kernel.ports:
        yield Finding(where, "a kernel that updates a tensor has no batch")
    if any(
        i >= len(kernel.ports) or kernel.ports[i] is not Access.READ for i in batch.shared
    ) or list(batch.shared) != sorted(set(batch.shared)):
        yield Finding(where, "what a batch shares is not a list of tensors it reads")


def _entry_findings(where: str, entry: Entry, program: Program) -> Iterator[Finding]:
    if not 0 <= entry.function < len(program.functions):
        yield Finding(where, f"there is no function {entry.function}")
        return
    function = program.functions[entry.function]
    for label, kinds, specs in (
        ("params", function.params, entry.inputs),
        ("results", function.results, entry.outputs),
    ):
        needed = [slot_kind(spec) for spec in specs]
        if list(kinds) != needed:
            names = ", ".join(kind.name.lower() for kind in needed) or "none"
            yield Finding(where, f"the {label} of its function are not {names}")
        if len({spec.name for spec in specs}) != len(specs):
            yield Finding(where, f"two {label} have one name")
    yield from _scope_findings(where, entry.inputs, entry.symbols, 0, is_input=True)
    count = len(entry.symbols)
    yield from _scope_findings(where, entry.outputs, (), count, is_input=False)
    for requirement in entry.requirements:
        if wrong := formula.check(requirement.value, count):
            yield Finding(where, f"the requirement '{requirement.text}' {wrong}")


def _scope_findings(
    where: str, specs: Sequence[Spec], symbols: Sequence[Symbol], outer: int, *, is_input: bool
) -> Iterator[Finding]:
    """Check a scope whose formulas see `outer` symbols of the scopes around it."""
    places = list(leaves(specs))
    for index, symbol in enumerate(symbols):
        if not is_input:
            yield Finding(where, f"an output has a symbol '{symbol.name}'")
        if not 0 <= symbol.input < len(places):
            yield Finding(where, f"symbol '{symbol.name}' names input {symbol.input}")
        elif not 0 <= symbol.axis < len(places[symbol.input].dims):
            yield Finding(where, f"symbol '{symbol.name}' names axis {symbol.axis}")
        if wrong := formula.check(symbol.solution, outer + index + 1):
            yield Finding(where, f"the solution of symbol '{symbol.name}' {wrong}")
    count = outer + len(symbols)
    if count > MAX_SYMBOLS:
        yield Finding(where, f"a dim sees {count} symbols, more than {MAX_SYMBOLS}")
    for spec in places:
        if spec.dtype not in dict(DTYPES) or len(spec.dims) > MAX_RANK:
            yield Finding(where, f"'{spec.name}' has no possible type")
        for dim in spec.dims:
            if dim.value is None:
                if is_input:
                    yield Finding(where, f"a dim of input '{spec.name}' has no value")
            elif wrong := formula.check(dim.value, count):
                yield Finding(where, f"a dim of '{spec.name}' {wrong}")
    for part in parts(specs):
        element = part.element
        yield from _scope_findings(where, [element.spec], element.symbols, count, is_input=is_input)
