"""Making programs: tables that fill themselves, and code with labels and a known depth.

    program = ProgramBuilder()
    main = program.function("main", [Kind.TENSOR], [Kind.TENSOR])
    main.at("x * 2 (model.onnx, node 'Mul_3')")
    main.emit("DIM", 0)          # operands are plain values: integers, dtype names, messages,
    ...                          # FunctionBuilder, Label, or what `kernel`/`constant` returned
    main.emit("RETURN")
    program.entry(Entry("main", main.index, inputs, outputs))
    finished = program.finish()  # verified

After each `emit`, `depth` is the number of slots in use, hence the slot number that the next
pushed value gets. Control flow: `label()` makes a label, a jump names it, `place(label)` puts it
here; the depth at a label is the depth at its first jump, and every other way to it must agree.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inlay.base.diagnostics import InternalError
from inlay.bytecode import effects, verify
from inlay.bytecode.isa import BY_NAME, CODES, DTYPE_CODES, INSTRUCTIONS, Item, Kind, OperandKind
from inlay.bytecode.program import (
    HOST_MEMORY,
    NO_TARGET,
    Constant,
    DeviceRecord,
    Effects,
    Entry,
    Function,
    ImageTarget,
    Kernel,
    Memory,
    Program,
    ShapeCode,
)


def _fixed_effects() -> dict[str, tuple[int, int]]:
    """How many slots are popped and pushed by instructions for which operands do not matter."""
    found = {"COPY": (0, 1), "MOVE": (0, 1), "DROP": (0, 0)}
    for row in INSTRUCTIONS:
        if row.effect is not None and all(
            isinstance(item.times, int) for side in row.effect for item in side
        ):
            found[row.name] = (len(row.effect[0]), len(row.effect[1]))
    return found


_FIXED = _fixed_effects()
_JUMPS = frozenset(
    row.name
    for row in INSTRUCTIONS
    if row.operands and row.operands[0][1] in (OperandKind.TARGET, OperandKind.TARGETS)
)


@dataclass(slots=True, eq=False)
class Label:
    """A place in the code of one function; `position` is known once it is placed."""

    position: int | None = None
    depth: int | None = None
    uses: list[int] = field(default_factory=list[int])


class FunctionBuilder:
    """The code of one function, emitted front to back.

    Attributes:
        index, name, params, results: of the function.
        effects: of its own code so far, or more.
        names: the functions whose effects it has, by index.
    """

    def __init__(
        self, program: ProgramBuilder, index: int, name: str, params: Sequence[Kind], results: Sequence[Kind]
    ) -> None:
        self.index = index
        self.name = name
        self.params = tuple(params)
        self.results = tuple(results)
        self._program = weakref.proxy(program)  # which has this: a program goes with the last that has it
        self._code: list[int] = []
        self._spans: list[tuple[int, int]] = []
        self._depth: int | None = len(self.params)
        self._frame = len(self.params)
        self._labels: list[Label] = []
        self.effects = Effects.NONE
        self.names: list[int] = []

    @property
    def depth(self) -> int:
        """Slots in use here, parameters included: the slot of the next pushed value."""
        if self._depth is None:
            raise InternalError("no instruction can be reached here", where=self.name)
        return self._depth

    @property
    def reachable(self) -> bool:
        """Whether control can come to the next instruction."""
        return self._depth is not None

    def at(self, span: str) -> None:
        """Say where the instructions from here on come from; an empty text ends that."""
        index = self._program.string(span)
        if self._spans and self._spans[-1][0] == len(self._code):
            self._spans.pop()
        if not self._spans or self._spans[-1][1] != index:
            self._spans.append((len(self._code), index))

    def label(self) -> Label:
        """Return a new label of this function, not placed yet."""
        return Label()

    def place(self, label: Label) -> None:
        """Put the label before the next instruction.

        Raises:
            InternalError: it was placed before, or is reached with two different depths.
        """
        if label.position is not None:
            raise InternalError("a label is placed twice", where=self.name)
        label.position = len(self._code)
        self._meet(label)
        self._depth = label.depth

    def emit(self, name: str, *operands: OperandValue) -> int:
        """Add an instruction; return the depth after it (-1 where it ends the path).

        An `INT` whose value does not fit a word becomes `INT_WIDE`.

        Raises:
            InternalError: no such instruction, wrong operands, or an underflow of the stack.
        """
        row = BY_NAME.get(name)
        if row is None:
            raise InternalError(f"there is no instruction {name}", where=self.name)
        if len(operands) != len(row.operands):
            raise InternalError(
                f"{name} takes {len(row.operands)} operands, got {len(operands)}", where=self.name
            )
        if name == "INT":
            value = operands[0]
            assert isinstance(value, int), "INT takes an integer"
            if not -(1 << 31) <= value < 1 << 31:
                return self.emit("INT_WIDE", value)
        depth = self.depth
        self._code.append(CODES[name])
        words = [self._operand(kind, value) for (_, kind), value in zip(row.operands, operands, strict=True)]
        if name in effects.HAVE_EFFECTS:
            self._note_effects(name, words[0] if words else 0)
        popped, pushed = _FIXED.get(name) or self._effect(name, words)
        if popped > depth:
            raise InternalError(f"{name} pops {popped} of {depth} slots", where=self.name)
        after = self._depth = depth - popped + pushed
        self._frame = max(self._frame, after)
        if name in _JUMPS and name != "EVAL":  # whose target is met by the code in between
            self._meet_targets(operands[0])
        if row.ends:
            self._depth = None
            return -1
        return after

    def _note_effects(self, name: str, operand: int) -> None:
        if effects.names_function(name):
            self.names.append(operand)
            return
        kernels = self._program.kernels
        self.effects |= effects.of(name, operand, lambda _: Effects.NONE, lambda i: kernels[i].ordered)

    def finish(self, found: Effects = Effects.NONE) -> Function:
        """Return the function, its labels resolved, with these effects besides those of its own code.

        Raises:
            InternalError: a label is used and not placed, or control runs off the end.
        """
        if self._depth is not None:
            raise InternalError("control runs off the end of the code", where=self.name)
        for label in self._labels:
            if label.position is None:
                raise InternalError("a label is used and never placed", where=self.name)
            for use in label.uses:
                self._code[use] = label.position
        return Function(
            self.name,
            self.params,
            self.results,
            self._frame,
            tuple(self._code),
            tuple(self._spans),
            self.effects | found,
        )

    def _meet(self, label: Label) -> None:
        if label.depth is None:
            label.depth = self._depth
        elif self._depth is not None and label.depth != self._depth:
            raise InternalError(
                f"a label is reached with {label.depth} and with {self._depth} slots", where=self.name
            )

    def _effect(self, name: str, words: list[int]) -> tuple[int, int]:
        effect = BY_NAME[name].effect
        if effect is not None:
            operands = {label: word for (label, _), word in zip(BY_NAME[name].operands, words)}
            return self._count(effect[0], operands), self._count(effect[1], operands)
        match name:
            case "POP":
                return words[0], 0
            case "SLIDE":
                return words[0] + words[1], words[0]
            case "EVAL":
                return 0, 0
            case "TAIL_CALL":
                return len(self._program.signature(words[0])[0]), 0
            case "TAIL_CALL_CLOSURE":
                return words[0] + 1, 0
            case _:
                assert name == "RETURN", f"{name} has no stack effect"
                return len(self.results), 0

    def _count(self, items: Iterable[Item], operands: Mapping[str, int]) -> int:
        total = 0
        for item in items:
            if isinstance(item.times, int):
                total += item.times
                continue
            value = operands[item.times]
            match item.of:
                case "value":
                    total += value
                case "params":
                    total += len(self._program.signature(value)[0])
                case "results":
                    total += len(self._program.signature(value)[1])
                case "tensors":
                    total += len(self._program.kernels[value].ports)
                case "ints":
                    total += self._program.kernels[value].ints
        return total

    def _meet_targets(self, operand: OperandValue) -> None:
        if isinstance(operand, Label):
            self._meet(operand)
            return
        assert isinstance(operand, Sequence), "jumps go to labels"
        for target in operand:
            assert isinstance(target, Label), "jumps go to labels"
            self._meet(target)

    def _operand(self, kind: OperandKind, value: OperandValue) -> int:
        if type(value) is int and kind is not OperandKind.POOL:
            # Nearly all operands; pooled integers are the only ones that are not what they say.
            self._code.append(value & 0xFFFFFFFF)
            return value
        match kind, value:
            case OperandKind.TARGET, Label():
                return self._reference(value)
            case OperandKind.TARGETS, [*labels]:
                self._code.append(len(labels))
                for label in labels:
                    assert isinstance(label, Label), "a switch has a list of labels"
                    self._reference(label)
                return len(labels)
            case OperandKind.FUNCTION, FunctionBuilder(index=word):
                pass
            case OperandKind.MESSAGE, str():
                word = self._program.string(value)
            case OperandKind.DTYPE, str():
                word = DTYPE_CODES[value]
            case OperandKind.POOL, int():
                word = self._program.integer(value)
            case OperandKind.MEMORY, str():
                word = self._program.memory(value)
            case _:
                raise InternalError(f"{value!r} cannot be a {kind}", where=self.name)
        self._code.append(word & 0xFFFFFFFF)
        return word

    def _reference(self, label: Label) -> int:
        if not label.uses:
            self._labels.append(label)
        label.uses.append(len(self._code))
        self._code.append(0)
        return 0


OperandValue = int | str | Label | FunctionBuilder | Sequence[Label]


class ProgramBuilder:
    """The tables of a program; equal strings and integers are stored once."""

    def __init__(
        self,
        *,
        target: ImageTarget = NO_TARGET,
        image: bytes = b"",
        memories: Sequence[str | Memory] = (HOST_MEMORY,),
        devices: Sequence[DeviceRecord] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.target = target
        self.image = image
        self.memories = tuple(Memory(m) if isinstance(m, str) else m for m in memories)
        self.devices = tuple(devices)
        self.properties = dict(properties or {})
        self.kernels: list[Kernel] = []
        self.constants: list[Constant] = []
        self.shapes: list[ShapeCode] = []
        self._functions: list[FunctionBuilder | Function] = []
        self._entries: list[Entry] = []
        self._pool: dict[int, int] = {}
        # The first is what zeroed memory is as strings.
        self._strings: dict[str, int] = {"": 0}

    def function(self, name: str, params: Sequence[Kind], results: Sequence[Kind]) -> FunctionBuilder:
        """Add a function; it may be called (by builder or index) before its code is complete."""
        made = FunctionBuilder(self, len(self._functions), name, params, results)
        self._functions.append(made)
        return made

    def add(self, function: Function) -> int:
        """Add a finished function whose indices already are those of this program."""
        self._functions.append(function)
        return len(self._functions) - 1

    def signature(self, index: int) -> tuple[tuple[Kind, ...], tuple[Kind, ...]]:
        """Return kinds of params and results of a function."""
        found = self._functions[index]
        return found.params, found.results

    def memory(self, name: str) -> int:
        """Return the number of a memory."""
        return [m.name for m in self.memories].index(name)

    def kernel(self, kernel: Kernel) -> int:
        """Add a kernel; return what `INVOKE` takes."""
        self.kernels.append(kernel)
        return len(self.kernels) - 1

    def constant(self, constant: Constant) -> int:
        """Add a constant; return what `CONST` takes."""
        self.constants.append(constant)
        return len(self.constants) - 1

    def entry(self, entry: Entry) -> None:
        """Make a function callable by name from outside."""
        self._entries.append(entry)

    def string(self, text: str) -> int:
        """Return the position of a string."""
        return self._strings.setdefault(text, len(self._strings))

    def integer(self, value: int) -> int:
        """Return the position of an integer in the pool."""
        return self._pool.setdefault(value, len(self._pool))

    def _effects(self) -> list[Effects]:
        own = [f.effects for f in self._functions]
        return effects.closed(
            own, [f.names if isinstance(f, FunctionBuilder) else () for f in self._functions]
        )

    def finish(self, *, check: bool = True) -> Program:
        """Return the program.

        Raises:
            InternalError: it does not pass the verifier: the caller emitted a wrong program.
        """
        program = Program(
            functions=tuple(
                f.finish(found) if isinstance(f, FunctionBuilder) else f
                for f, found in zip(self._functions, self._effects(), strict=True)
            ),
            entries=tuple(self._entries),
            constants=tuple(self.constants),
            kernels=tuple(self.kernels),
            shapes=tuple(self.shapes),
            pool=tuple(self._pool),
            strings=tuple(self._strings),
            memories=self.memories,
            devices=self.devices,
            target=self.target,
            image=self.image,
            properties=self.properties,
        )
        if check and (found := verify.findings(program)):
            raise InternalError(f"the bytecode is wrong: {found[0]}", where=found[0].where)
        return program


def span_of(function: Function, strings: Sequence[str], pc: int) -> str:
    """Return the span text that covers word ``pc`` of a function; empty where unknown.

    Cost: logarithmic in the number of spans.
    """
    index = bisect_left(function.spans, (pc + 1, -1)) - 1
    return strings[function.spans[index][1]] if index >= 0 else ""
