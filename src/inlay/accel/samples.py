"""Programs that a pattern takes, drawn: sizes at and near their limits, attributes, values.

Sizes of dims are small, for what a program means is evaluated slowly. What the rules of types refuse is drawn
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from inlay.accel.accelerator import Architecture
from inlay.accel.declare import Dim
from inlay.accel.pattern import Applied, Input, Mapped, Node, Pattern, Repeat, Repeated, Tiled, below
from inlay.accel.tiled_samples import AgainError, TiledDrawn, constant, factors, numbers
from inlay.arith.dtype import DType
from inlay.arith.expr import Int, evaluate, lit, symbols
from inlay.base.diagnostics import InlayError
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.types import TensorType
from inlay.ops.table import table

_SIZES = (1, 1, 2, 2, 3, 4, 5, 7, 8)
_MOST = 4096
"""Elements of a tensor."""
_TRIES = 400
_FEW = 2**12
"""What biases are divided by where sums are to be in the middle of two results, which roundings differ in."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A program, and the values of its inputs in order."""

    text: str
    module: Module
    inputs: tuple[np.ndarray, ...]


def samples(arch: Architecture, p: Pattern, seed: int) -> Iterator[Sample]:
    """Yield programs that have the form of a pattern; conditions of it may refuse them.

    Ends where no program of many is right.
    """
    rng = Random(f"{seed} {p.name}")
    mapped = p.mapped
    yield from _right(
        lambda: TiledDrawn(mapped, rng) if isinstance(mapped, Tiled) else _Drawn(arch, p, mapped, rng)
    )


def sequences(patterns: Sequence[Pattern], seed: int) -> Iterator[Sample]:
    """Yield programs in which two or three patterns of streams compute operands of each other.

    Ends where no program of many is right.
    """
    rng = Random(f"{seed} sequences")
    tiled = [p.mapped for p in patterns if isinstance(p.mapped, Tiled)]

    def draw() -> TiledDrawn:
        before = [rng.choice(tiled) for _ in range(rng.choice((1, 2)))]
        return TiledDrawn(rng.choice(tiled), rng, before)

    if tiled:
        yield from _right(draw)


def call_sequences(arch: Architecture, patterns: Sequence[Pattern], seed: int) -> Iterator[Sample]:
    """Yield programs in which two or three patterns of calls compute operands of each other."""
    rng = Random(f"{seed} sequences")
    mapped = [p for p in patterns if isinstance(p.mapped, Mapped)]

    def draw() -> _Following:
        return _Following(arch, [rng.choice(mapped) for _ in range(rng.choice((2, 2, 3)))], rng)

    if mapped:
        yield from _right(draw)


def _right(draw: Callable[[], TiledDrawn | _Drawn | _Following]) -> Iterator[Sample]:
    """Yield the programs that are right of those drawn; end where none of many is."""
    failures = 0
    while failures < _TRIES:
        try:
            drawn = draw()
            text = drawn.text()
            module = parse_module(text, table())
        except (InlayError, AgainError):
            failures += 1
            continue
        failures = 0
        yield Sample(text, module, tuple(drawn.inputs))


@dataclass(slots=True)
class _Drawn:
    """One program being drawn."""

    arch: Architecture
    pattern: Pattern
    mapped: Mapped
    rng: Random
    lines: list[str] = field(default_factory=list[str])
    params: list[str] = field(default_factory=list[str])
    inputs: list[np.ndarray] = field(default_factory=list[np.ndarray])
    names: dict[Node, str] = field(default_factory=dict[Node, str])
    sizes: dict[Any, Int] = field(default_factory=dict[Any, Int])
    missing: dict[Node, bool] = field(default_factory=dict[Node, bool])
    ends: dict[Node, str] = field(default_factory=dict[Node, str])
    has_ties: bool = False

    def text(self) -> str:
        return self.program(self.result())

    def result(self, before: str = "") -> str:
        """Write the pattern; return the name of what it gives.

        Args:
            before: the name of a value that one of its operands is to be, if any.
        """
        self.sizes = {d.sym: lit(self._size(d)) for d in self.arch.description.dims.values()}
        groups = self._grouped()
        if before:
            self._begin_with(before)
        return self._result(groups)

    def _begin_with(self, before: str) -> None:
        """Let an operand be a value of the program, with its sizes."""
        nodes = [n for n in self._shapes() if isinstance(n, Input) and not n.constant]
        node = self.rng.choice(nodes) if nodes else None
        reader = None if node is None else self._reader(node)
        if node is None or reader is None:
            raise AgainError
        shape, extents = reader[0].instruction.operands[reader[1]].shape, self._shape_of(before)
        if len(shape) != len(extents):
            raise AgainError
        self.sizes.update((e.sym, lit(n)) for e, n in zip(shape, extents, strict=True) if isinstance(e, Dim))
        self.names[node] = before

    def _result(self, groups: int) -> str:
        """Write what the last command gives: several values are a tuple, of which some may be missing."""
        results = self.mapped.results
        if not isinstance(results[0], Repeated):
            return self._value(results[0], groups)
        drawn = self._repeated(results[0].repeat, groups)
        kept = [
            r for r in results if isinstance(r, Repeated) and (r is results[0] or self.rng.random() < 0.7)
        ]
        names = [drawn[r.state] for r in kept]
        return names[0] if len(names) == 1 else f"({', '.join(names)})"

    def _repeated(self, repeat: Repeat, groups: int) -> dict[int | None, str]:
        """Write the turns of a repeated step, one behind the other; return the names of what it leaves."""
        over = self._value(repeat.over, groups)
        states = [self._value(x, groups) for x in repeat.start]
        count, *row = self._shape_of(over)
        backward = self.rng.random() < 0.3
        kept: dict[int, str] = {}
        for k in reversed(range(count)) if backward else range(count):
            cut = self._let(f"slice{{axes=[0]}}({over}, shape({k}), shape({k + 1}), shape(1))")
            self.names[repeat.row] = self._let(f"reshape({cut}, shape({', '.join(map(str, row))}))")
            for node in (x for step in repeat.steps for x in below(step)):
                self.names.pop(node, None)
            self.names.update(zip(repeat.states, states, strict=True))
            states = [self._value(x, groups) for x in repeat.steps]
            kept[k] = states[0]
        shape = ", ".join(map(str, (1, *self._shape_of(states[0]))))
        lines = [self._let(f"reshape({kept[k]}, shape({shape}))") for k in range(count)]
        rows = lines[0] if count == 1 else self._let(f"concat{{axis=0}}({', '.join(lines)})")
        return {None: rows, **dict(enumerate(states))}

    def _let(self, value: str) -> str:
        name = f"y{len(self.lines)}"
        self.lines.append(f"let {name} = {value};")
        return name

    def _shape_of(self, name: str) -> list[int]:
        """Return the shape of a value, by what the rules of types say of the program so far."""
        found = parse_module(self.program(name), table()).functions["main"].type.result
        if not isinstance(found, TensorType) or not found.shape:
            raise AgainError
        return [evaluate(e, {}) for e in found.shape]

    def program(self, result: str) -> str:
        """Return the text of the program so far."""
        body = "".join(f"  {line}\n" for line in self.lines)
        return f"fn main({', '.join(self.params)}) {{\n{body}  {result}\n}}\nentry main;\n"

    def _size(self, d: Dim) -> int:
        size = self.rng.choice((*_SIZES, d.low, d.low + 1))
        return max(d.low, min(size, size if d.high is None else d.high))

    def _grouped(self) -> int:
        """Draw the groups of a convolution, and sizes that fit them."""
        conv = next((n for n in below(self.mapped.result) if n.padded), None)
        shapes = {} if conv is None else self._shapes()
        if conv is None or any(n not in shapes for n in conv.operands):
            return 1
        (_, c, _, _), (k, d, _, _) = (shapes[n] for n in conv.operands)
        groups = self.rng.choice((1, 1, 2, 4))
        if c is k and isinstance(c, Dim) and d == 1:  # one for each channel
            return self._number(c)
        if not isinstance(c, Dim) or not isinstance(d, Dim) or c is d or not isinstance(k, Dim):
            return 1
        self.sizes[c.sym] = self.sizes[d.sym] * groups
        self.sizes[k.sym] = self.sizes[k.sym] * groups
        return groups

    def _shapes(self) -> dict[Node, tuple[Int | int, ...]]:
        return {x: c.instruction.operands[n].shape for c in self.mapped.steps for n, x in c.operands.items()}

    def _reader(self, node: Node) -> tuple[Mapped, str] | None:
        """Return the first command that reads a value, and as which operand."""
        found = ((c, n) for c in self.mapped.steps for n, x in c.operands.items() if x is node)
        return next(found, None)

    def _value(self, node: Node, groups: int) -> str:
        if node not in self.names:
            made = self._input(node) if isinstance(node, Input) else self._applied(node, groups)
            self.names[node] = made
        return self.names[node]

    def _input(self, node: Input) -> str:
        shape = self._extents(node)
        dtype = self.rng.choice(node.dtypes) if node.dtypes else self._dtype(node)
        values = numbers(self.rng, dtype, shape)
        if node.constant:
            return constant(values // _FEW if self.has_ties and dtype.bits > 16 else values)
        name = f"x{len(self.params)}"
        self.params.append(f"{name}: Tensor[{', '.join(map(str, (*shape, dtype)))}]")
        self.inputs.append(values)
        return name

    def _dtype(self, node: Input) -> DType:
        if (reader := self._reader(node)) is None:
            raise AgainError
        command, name = reader
        return command.instruction.operands[name].dtype

    def _extents(self, node: Input) -> tuple[int, ...]:
        if (reader := self._reader(node)) is None:
            return ()
        (command, name), i = reader, reader[0].instruction
        shape = i.operands[name].shape
        if name in self.pattern.added_in(command) and (result := i.operands[i.written].shape) != shape:
            positions = [next((a for a, e in enumerate(result) if e is x), -1) for x in shape]
            first = min(positions)
            whole = [shape[positions.index(a)] if a in positions else 1 for a in range(first, len(result))]
            shape = tuple(whole)
        found = tuple(self._number(e) for e in shape)
        if np.prod(found, dtype=np.int64) > _MOST:
            raise AgainError
        return found

    def _number(self, e: Int | int) -> int:
        known = self.arch.number(e, self.sizes)
        if symbols(known):
            raise AgainError
        return evaluate(known, {})

    def _applied(self, node: Node, groups: int) -> str:
        assert isinstance(node, Applied), "nodes are inputs or results of operators"
        if node.otherwise is not None and self.missing.setdefault(node, self.rng.random() < 0.5):
            return self._value(node.operands[0], groups)
        attrs = self._said(node)
        if node.scales:
            attrs = self._rescaled(node, groups)
        args = [self._value(x, groups) for x in node.operands]
        if node.padded:
            args[0], attrs = self._window(node, args[0], groups)
        if node.parts:
            attrs, more = "{axes=[-1]}", self._part(node, args[0])
            args.append(more)
        return self._let(f"{self.rng.choice(node.operators)}{attrs}({', '.join(args)})")

    def _rescaled(self, node: Applied, groups: int) -> str:
        """Draw the factors of a requantize, and its attributes."""
        self.has_ties = self.rng.random() < 0.5
        result = self._value(node.operands[0], groups)
        shape = self._shape_of(result)
        reads = [self._reader(x) for x in node.scales]
        wanted = (len(r[0].instruction.operands[r[1]].shape) for r in reads if r is not None)
        each = max(wanted, default=0) > 0 and self.rng.random() < 0.7
        wide = (shape[1],) if each else ()
        made, rounding = factors(self.rng, wide, len(node.scales), has_ties=self.has_ties)
        self.names.update((x, constant(f)) for x, f in zip(node.scales, made, strict=True))
        said = dict(node.said)
        rounding = str(said.get("rounding", rounding))
        zero, low, high = (self.rng.randrange(*r) for r in ((-128, 128), (-128, -100), (100, 128)))
        return f'{{zero={zero}, low={low}, high={high}, axis=1, rounding="{rounding}"}}'

    def _said(self, node: Applied) -> str:
        """Return the attributes that a pattern says; drawn ones where an operator has windows."""
        said = {name: str(value).lower() if isinstance(value, bool) else value for name, value in node.said}
        if node.operators[0] in ("max_pool", "average_pool"):
            r = self.rng
            window = [r.choice((1, 2, 3)) for _ in range(2)]
            drawn = {"kernel": window, "strides": [r.choice((1, 2, 3)) for _ in range(2)]}
            pads = {"pads": [r.choice((0, 0, w - 1)) for w in window * 2]}
            said = {**drawn, **(pads if r.random() < 0.5 else {}), **said}
        return f"{{{', '.join(f'{n}={v}' for n, v in said.items())}}}" if said else ""

    def _part(self, node: Applied, x: str) -> str:
        """Draw which part of the last axis a slice is, the same one in every turn."""
        if node not in self.ends:
            size, rest = divmod(self._shape_of(x)[-1], node.parts)
            if rest:
                raise AgainError
            k = self.rng.randrange(node.parts)
            self.ends[node] = f"shape({k * size}), shape({(k + 1) * size}), shape(1)"
        return self.ends[node]

    def _window(self, node: Applied, x: str, groups: int) -> tuple[str, str]:
        """Draw how a convolution moves; half of the pads are an operator in front, of any number."""
        r = self.rng
        pads = [r.choice((0, 0, 1, 2)) for _ in range(4)]
        strides = [r.choice((1, 1, 2, 3)) for _ in range(2)]
        attrs = f"strides={strides}, dilations=[{r.choice((1, 1, 1, 2))}, 1], groups={groups}"
        if r.random() < 0.5:
            name, fill = f"y{len(self.lines)}", r.choice((0, -128, 5))
            listed = f"0, 0, {pads[0]}, {pads[1]}, 0, 0, {pads[2]}, {pads[3]}"
            dtype = node.operands[0].dtypes[0] if node.operands[0].dtypes else "i8"
            self.lines.append(f"let {name} = pad({x}, shape({listed}), {dtype}({fill}));")
            return name, f"{{{attrs}}}"
        return x, f"{{{attrs}, pads={pads}}}"


class _Following:
    """A program being drawn in which each pattern reads what the one before gives."""

    def __init__(self, arch: Architecture, patterns: Sequence[Pattern], rng: Random) -> None:
        self._arch, self._patterns, self._rng = arch, patterns, rng
        self.inputs: list[np.ndarray] = []

    def text(self) -> str:
        lines, params, result = list[str](), list[str](), ""
        program = ""
        for p in self._patterns:
            assert isinstance(p.mapped, Mapped), "commands are calls"
            drawn = _Drawn(self._arch, p, p.mapped, self._rng, lines, params, self.inputs)
            result = drawn.result(result)
            program = drawn.program(result)
        return program
