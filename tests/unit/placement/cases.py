"""Cases of planning: a program, a board, and the program that planning it must give.

Programs are in the language of the compiler, with `T` for a 4 x 4 tensor of floats. Names, names of
specialised functions and engines of copies do not count; places, copies and where they stand do.
Memories count where the expected program says them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from inlay.analysis.infer_types import infer_types
from inlay.arith.dtype import F32
from inlay.interp.tensor import evaluate
from inlay.ir.expr import (
    Call,
    Const,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    If,
    Match,
    OpRef,
    Project,
    RefCreate,
    RefPut,
    RefRead,
    RefTake,
    RefWrite,
    Tuple,
    Var,
    pattern_vars,
)
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.place import Place
from inlay.ir.printer import print_module
from inlay.ir.types import TensorType
from inlay.ir.verify import check
from inlay.ir.walk import spine
from inlay.machine.board import Board
from inlay.machine.board_file import read_board
from inlay.ops.device import DEVICE_COPY, CopyAttrs
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.placement import mark_annotations, plan_places
from inlay.placement.infer.capability import capability_of
from inlay.placement.infer.instance import Capability
from inlay.placement.plan_places import plan
from inlay.transforms import to_anf
from tests.device_of import place_of

OPS = table()


def everything(call: Call) -> Mapping[str, str]:
    """Every device runs every operation."""
    return {}


def board(default: str, devices: Mapping[str, str], links: str = "", extra: str = "") -> Board:
    """Return a board: memories of each device, links as `a-b` (both ways)."""
    names = dict.fromkeys(m for ms in devices.values() for m in ms.split())
    text = f'summary = "x"\ndefault = "{default}"\n'
    for m in names:
        stack = f'kind = "stack"\nowner = "{m.split(".")[0]}"\n' if m.endswith("stack") else ""
        text += f'[[memory]]\nname = "{m}"\n{stack}'
    for d, ms in devices.items():
        text += f'[[device]]\nname = "{d}"\narch = "native"\nmemories = {ms.split()!r}\n'
    text += f'[[engine]]\nname = "dma"\nmemories = {list(names)!r}\n'
    for pair in links.split():
        a, b = pair.split("-")
        for one, other in ((a, b), (b, a)):
            text += f'[[link]]\nfrom = "{one}"\nto = "{other}"\nengine = "dma"\n'
    return read_board("test", text.replace("'", '"') + extra, place="test.toml")


B2 = board("gpu", {"cpu": "ram cpu.stack", "gpu": "gpu.mem"}, "ram-gpu.mem")
B2X = board(
    "gpu", {"cpu": "ram cpu.stack", "gpu": "gpu.buf gpu.tex"}, "ram-gpu.buf ram-gpu.tex gpu.buf-gpu.tex"
)
S = board("cpu", {"cpu": "ram A B"}, "ram-A ram-B A-B")
N = board(
    "cpu",
    {"cpu": "ram cpu.stack", "npu0": "ram npu0.spad"},
    "ram-npu0.spad cpu.stack-ram",
    '[[coherent]]\nmemory = "ram"\nparties = ["cpu", "npu0", "dma"]\n',
)
M2 = board("npu0", {"cpu": "ram", "npu0": "m0", "npu1": "m1"}, "ram-m0 ram-m1")
BOARDS = {"B2": B2, "B2x": B2X, "S": S, "N": N, "M2": M2}


def read(text: str) -> Module:
    """Read a program; `T` is a tensor."""
    text = re.sub(r"\bT\b", "Tensor[4, 4, f32]", text)
    text = re.sub(r"\bfixed\((\w+), ", r'on_device{device="\1", result=true}(', text)
    text = re.sub(r"\bon\((\w+), ", r'on_device{device="\1"}(', text)
    text = re.sub(r"\bcopy\((\w+), (\w+), ", r'device_copy{src="\1", dst="\2"}(', text)
    if "Nil" in text or "List" in text:
        text = "data List<'a> { Nil, Cons('a, List['a]) }" + text
    return infer_types(parse_module(text, OPS))


def normal(module: Module) -> Module:
    """Return a program as the planner wants it."""
    context = PassContext(OPS)
    return to_anf.PASS.run(mark_annotations.PASS.run(module, context), context)


def planned(module: Module, machine: Board, capability: Capability | None = None) -> Module:
    """Return the planned program, verified."""
    result = plan(normal(module), machine, capability or capability_of(machine, OPS))
    check(result)
    return result


def capability(machine: Board) -> Capability:
    """What the architectures of a board say."""
    return capability_of(machine, OPS)


def arguments(function: Function, seed: int = 0) -> list[object]:
    """Return arguments of a function over tensors and ints."""
    rng = np.random.default_rng(seed)
    found: list[object] = []
    for p in function.params:
        if isinstance(p.type, TensorType):
            shape = tuple(d.value or 3 for d in p.type.shape)
            if p.type.dtype == F32:
                found.append(rng.integers(-3, 4, shape).astype(np.float32))
            else:
                found.append(rng.integers(0, 2, shape).astype(p.type.dtype.numpy))
    return found


def passed(module: Module, machine: Board) -> Module:
    """Return what the pass makes of a program, with the options that it has by itself."""
    options = {plan_places.PlanOptions: plan_places.PlanOptions(machine=machine)}
    return plan_places.PASS.run(normal(module), PassContext(OPS, options=options))


def verify_case(source: str, expected: str, machine: Board, how: Capability | None = None) -> None:
    """Assert everything that a case promises."""
    module = read(source)
    result = planned(module, machine, how)
    if how is None:
        assert print_module(passed(module, machine)) == print_module(result)
    wanted = normal(read(expected))
    assert_alike(result, wanted)
    again = planned(result, machine, how)
    assert_alike(again, result)
    assert_alike(result, again)
    main = module.functions["main"]
    args = arguments(main)
    if len(args) == len(main.params):
        one, other = evaluate(module, args), evaluate(result, args)
        assert same(one, other)
    for function in result.functions.values():
        if function.primitive is None:
            assert_complete(function)


def same(a: object, b: object) -> bool:
    """Whether two results are equal."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b, equal_nan=True)
    fields = getattr(a, "fields", None)
    return same(tuple(fields), tuple(b.fields)) if fields is not None else a == b  # type: ignore[attr-defined]


def assert_complete(function: Function) -> None:
    """Every value with a tensor in it has a place, and nothing is left of annotations."""
    pending: list[Expr] = [function]
    while pending:
        e = pending.pop()
        if isinstance(e, Function):
            pending.append(e.body)
            continue
        lets, tail = spine(e)
        for value in [*(x.value for x in lets), tail]:
            if isinstance(value, If):
                pending += [value.then, value.otherwise]
            elif isinstance(value, Match):
                pending += [a.body for a in value.arms]
            elif isinstance(value, Function) and value.primitive is None:
                pending.append(value)
            if isinstance(value.type, TensorType) and not isinstance(value, Const):
                place = place_of(value)
                assert place is not None, f"{value} has no place"
                assert place.device, f"{value} has no device"
            assert not (
                isinstance(value, Call)
                and getattr(value.callee, "op", None) is not None
                and value.callee.op.name == "on_device"
            )


@dataclass
class _Alike:
    """Compares two programs side by side."""

    found: Module
    wanted: Module

    def __post_init__(self) -> None:
        self.vars: dict[Var, Var] = {}
        self.names: dict[str, str] = {}
        self.pending: list[tuple[str, str]] = []
        self.where = ""

    def fail(self, message: str) -> None:
        raise AssertionError(
            f"{self.where}: {message}\n--- found\n{print_module(self.found)}"
            f"--- wanted\n{print_module(self.wanted)}"
        )

    def run(self) -> None:
        self.global_("main", "main")
        while self.pending:
            one, other = self.pending.pop()
            self.where = one
            self.function(self.found.functions[one], self.wanted.functions[other])

    def global_(self, one: str, other: str) -> None:
        if one not in self.names:
            self.names[one] = other
            if one in self.found.functions and other in self.wanted.functions:
                self.pending.append((one, other))
        elif self.names[one] != other:
            self.fail(f"{one} is {self.names[one]} and {other}")

    def function(self, a: Function, b: Function) -> None:
        if len(a.params) != len(b.params):
            self.fail(f"{len(a.params)} parameters, wanted {len(b.params)}")
        for x, y in zip(a.params, b.params, strict=True):
            self.bind(x, y)
        self.place(a.place, b.place, "result")
        self.block(a.body, b.body)

    def bind(self, x: Var, y: Var) -> None:
        self.vars[x] = y
        self.place(x.place, y.place, y.name)

    def place(self, a: Place | None, b: Place | None, what: str) -> None:
        if b is None:
            return
        if a is None:
            self.fail(f"{what} has no place, wanted {b}")
        assert a is not None
        if b.fields or a.fields:
            inner = b.fields or (b,) * len(a.fields)
            for x, y in zip_longest(a.fields, inner):
                self.place(x, y, what)
            return
        if b.device and a.device != b.device:
            self.fail(f"{what} is on {a.device}, wanted {b.device}")
        if b.memories is not None and a.memories != b.memories:
            self.fail(f"{what} is in {a.memories}, wanted {b.memories}")

    def block(self, a: Expr, b: Expr) -> None:
        lets, tail = spine(a)
        others, end = spine(b)
        for x, y in zip_longest(lets, others):
            if x is None or y is None:
                self.fail(f"{len(lets)} lets, wanted {len(others)}")
            if isinstance(x.value, Function) and isinstance(y.value, Function):
                self.vars[x.var] = y.var
            self.value(x.value, y.value, y.var.name)
            self.bind(x.var, y.var)
        self.value(tail, end, "the tail")

    def atom(self, a: Expr, b: Expr, what: str) -> None:
        match a, b:
            case Var(), Var():
                if self.vars.get(a) is not b:
                    self.fail(f"{what}: found {a.name}, wanted {b.name}")
            case GlobalVar(), GlobalVar():
                self.global_(a.name, b.name)
            case OpRef(), OpRef():
                if a.op is not b.op:
                    self.fail(f"{what}: found {a.op.name}, wanted {b.op.name}")
                if a.op is DEVICE_COPY:
                    one, other = a.attrs, b.attrs
                    assert isinstance(one, CopyAttrs) and isinstance(other, CopyAttrs)
                    if (one.src, one.dst) != (other.src, other.dst):
                        self.fail(f"{what}: found {one}, wanted {other}")
            case Const(), Const():
                if isinstance(b.value, np.ndarray) and not np.array_equal(a.value, b.value):  # type: ignore[arg-type]
                    self.fail(f"{what}: constants differ")
            case ConstructorRef(), ConstructorRef():
                if a.name != b.name:
                    self.fail(f"{what}: found {a.name}, wanted {b.name}")
            case _:
                self.fail(f"{what}: found {type(a).__name__}, wanted {type(b).__name__}")

    def value(self, a: Expr, b: Expr, what: str) -> None:
        if type(a) is not type(b):
            self.fail(f"{what}: found {type(a).__name__}, wanted {type(b).__name__}")
        match a, b:
            case Call(), Call():
                for x, y in zip_longest((a.callee, *a.args), (b.callee, *b.args)):
                    if x is None or y is None:
                        self.fail(f"{what}: numbers of arguments differ")
                    self.atom(x, y, what)
            case If(), If():
                self.atom(a.condition, b.condition, what)
                self.block(a.then, b.then)
                self.block(a.otherwise, b.otherwise)
            case Match(), Match():
                self.atom(a.scrutinee, b.scrutinee, what)
                for x, y in zip(a.arms, b.arms, strict=True):
                    for v, w in zip(pattern_vars(x.pattern), pattern_vars(y.pattern), strict=True):
                        self.bind(v, w)
                    self.block(x.body, y.body)
            case Tuple(), Tuple():
                for x, y in zip(a.fields, b.fields, strict=True):
                    self.atom(x, y, what)
            case Project(), Project():
                self.atom(a.value, b.value, what)
                if a.index != b.index:
                    self.fail(f"{what}: fields differ")
            case (
                (RefCreate(), RefCreate())
                | (RefRead(), RefRead())
                | (RefWrite(), RefWrite())
                | (RefTake(), RefTake())
                | (RefPut(), RefPut())
            ):
                for name in ("ref", "value"):
                    if hasattr(a, name):
                        self.atom(getattr(a, name), getattr(b, name), what)
            case Function(), Function():
                if a.primitive is None:
                    self.function(a, b)
            case _:
                self.atom(a, b, what)


def assert_alike(found: Module, wanted: Module) -> None:
    """Check that one program has the structure and at least the places of another."""
    _Alike(found, wanted).run()
