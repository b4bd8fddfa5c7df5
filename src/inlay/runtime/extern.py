"""Operators of the user: a name, a type rule, and code from outside behind it.

    scale = inlay.extern(
        "scale_rows",
        "(x: Tensor[n, k, f32], f: Tensor[n, f32]) -> Tensor[n, k, f32]",
        python=lambda x, f: x * f[:, None],
        c=("./libmine.so", "scale_rows"),
        generated="{ mul(x, reshape(f, shape(n, 1))) }",
    )

An `Extern` is a value: it is handed to `inlay.load`, `inlay.compile` and `inlay.load_executable`, and
nothing is registered anywhere. This module holds what an executable needs of it; what the compiler
makes of one is `pipeline/externs.py`.

**Python code** gets copies of its operands, so it may keep or change them, and what it returns is
compared with what the type rule promised before it is copied to where the program wants it: a
function that lies stops the run with `run.bad-result`, and an exception is `run.kernel-failed` with
the exception as its cause. It may be a coroutine function, or answer with a future: then the operator ends
when that is done, and a call in parallel mode goes on meanwhile. **C code** gets the memory of the machine
itself.

**Results of a size that the function decides** take two kernels: `NAME:sizes` calls the function,
keeps what it returns under a number, and gives the number and all dims; when there is memory for so
much, `NAME:take` copies. Each executable has its own numbers.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.base.diagnostics import error
from inlay.bytecode.program import AccessCode, FunctionBody, HostBody, Kernel
from inlay.runtime.awaiting import future_of, then
from inlay.runtime.native import Callback

Implementation: TypeAlias = Literal["generated", "c", "python"]
AttributeValue: TypeAlias = bool | int | float | str | tuple[Any, ...]

SIZES, TAKE = ":sizes", ":take"
"""What the two halves of an operator of unknown size are called after its name."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_TYPES: Mapping[str, tuple[type, type[np.generic]]] = {
    "bool": (bool, np.bool_),
    "int": (int, np.int64),
    "float": (float, np.float64),
}


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of an operator.

    Attributes:
        kind: `bool`, `int`, `float` or `str`.
        many: whether it is a tuple of them.
        default: its value where a call does not say it; None where each call must.
    """

    kind: Literal["bool", "int", "float", "str"]
    many: bool = False
    default: AttributeValue | None = None

    def encode(self, value: AttributeValue) -> np.ndarray:
        """Return the value as the tensor that an implementation is given."""
        if self.kind == "str":
            return np.frombuffer(cast(str, value).encode(), np.uint8)
        return np.array(value, _TYPES[self.kind][1])

    def decode(self, array: np.ndarray) -> AttributeValue:
        """Return the value in a tensor."""
        if self.kind == "str":
            return array.tobytes().decode()
        python = _TYPES[self.kind][0]
        return tuple(python(v) for v in array) if self.many else python(array)


@dataclass(frozen=True, slots=True)
class CFunction:
    """A C function: in a library, or at an address of this process (0 where it is in a library)."""

    library: str = ""
    symbol: str = ""
    address: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Extern:
    """An operator of the user; make it with `extern`.

    Attributes:
        name: the operator.
        rule: its type, as text or as a function over types.
        attributes: by name, in the order in which implementations get them.
        resource: what its calls use one after the other; empty for pure functions.
        python: a function of arrays.
        c: a C function.
        generated: a body in the language of programs, or a function of the attributes that writes it.
        implementation: which one runs.
        keep: what the addresses depend on.
    """

    name: str
    rule: str | Callable[..., Any]
    attributes: Mapping[str, Attribute]
    resource: str
    python: Callable[..., Any] | None
    c: CFunction | None
    generated: str | Callable[..., str] | None
    implementation: Implementation
    keep: Any = field(default=None, repr=False)

    def using(self, implementation: Implementation) -> Extern:
        """Return the same operator with another one of its implementations.

        Raises:
            CompileError: `extern.implementation` where it has none of that kind.
        """
        _require(self.name, implementation, self.python, self.c, self.generated)
        return replace(self, implementation=implementation)

    def address(self) -> int:
        """Return where the C function is, loading its library.

        Raises:
            CompileError: `extern.library` where it cannot be loaded, or lacks the symbol.
        """
        assert self.c is not None, "it has a C function"
        return self.c.address or find_function(self.name, self.c.library, self.c.symbol)


def extern(
    name: str,
    rule: str | Callable[..., Any],
    *,
    python: Callable[..., Any] | None = None,
    c: Any = None,
    generated: str | Callable[..., str] | None = None,
    attributes: Mapping[str, Any] | None = None,
    resource: str = "",
    implementation: Implementation | None = None,
) -> Extern:
    """Put code of your own behind an operator.

    Args:
        name: how programs call it, `my_op` or `my.domain.op`; the same for nodes of ONNX, with or
            without their domain.
        rule: the type: `"(x: Tensor[n, k, f32]) -> Tensor[n, f32]"`. Names of sizes that stand for
            themselves need no declaration; `<n in 1..512>` in front gives one. A name of an `int`
            attribute stands for its value. `some k. Tensor[k, f32]` is a result whose size the
            function decides (Python or generated). Or a function from the types of the operands (and
            the attributes, by keyword) to the type of the result.
        python: gets NumPy arrays, and the attributes by keyword; returns an array, or a tuple of
            them where the result is a tuple. Its element types and sizes must be those of the rule.
        c: a function of `runtime/include/inlay_extern.h`: `(library, symbol)`, a library that has
            it under the operator's name, or a function pointer of ctypes.
        generated: a block `{ ... }` over the names in the rule, or a text with `fn main(...) {...}`;
            or a function from the attributes (by keyword) to such a text. It is compiled, and fused
            with what is around it, like any other code.
        attributes: by name: a default, or a type (`int`, `float`, `bool`, `str`, `tuple[int, ...]`)
            where each call must give a value.
        resource: for functions that are not pure: what they use. Calls of one resource run in the
            order of the program and are neither left out nor joined.
        implementation: which one runs; by default the first there is of `generated`, `c`, `python`.

    Raises:
        CompileError: `extern.*`: the parts do not make an operator.
    """
    if not _NAME.fullmatch(str(name)):
        raise error("extern.name", f"found {name!r}, needed a name such as my_op or my.domain.op")
    kinds = {n: _attribute(name, n, v) for n, v in (attributes or {}).items()}
    function, keep = _c_function(name, c)
    order: tuple[tuple[Implementation, object], ...] = (
        ("generated", generated),
        ("c", function),
        ("python", python),
    )
    there: list[Implementation] = [kind for kind, given in order if given is not None]
    chosen = implementation or (there or ["python"])[0]
    _require(name, chosen, python, function, generated)
    if resource and chosen == "generated":
        raise error(
            "extern.implementation",
            f"extern '{name}': found the resource '{resource}' of a generated body, which uses none",
            hint="choose another implementation, or leave the resource out",
        )
    return Extern(name, rule, MappingProxyType(kinds), resource, python, function, generated, chosen, keep)


def _require(name: str, implementation: str, python: object, c: object, generated: object) -> None:
    given = {"generated": generated, "c": c, "python": python}
    if given.get(implementation) is None:
        known = ", ".join(k for k, v in given.items() if v is not None) or "none"
        raise error(
            "extern.implementation",
            f"extern '{name}': found no implementation '{implementation}'; given: {known}",
            hint="give python=, c= or generated=",
        )


def _attribute(name: str, attribute: str, value: Any) -> Attribute:
    kinds: dict[Any, Attribute] = {}
    for kind in ("bool", "int", "float", "str"):
        python = str if kind == "str" else _TYPES[kind][0]
        kinds[python] = Attribute(kind)
        if kind != "str":
            kinds[tuple[python, ...]] = Attribute(kind, many=True)
    declared = kinds.get(value) if isinstance(value, type) or _is_alias(value) else None
    if declared is not None:
        return declared
    if isinstance(value, tuple | list) and value:
        items: tuple[Any, ...] = tuple(cast("Sequence[Any]", value))
        found = kinds.get(type(items[0]))
        if found is not None and found.kind != "str" and all(type(v) is type(items[0]) for v in items):
            return Attribute(found.kind, many=True, default=items)
    elif isinstance(value, bool | int | float | str) and type(value) in kinds:
        return Attribute(kinds[type(value)].kind, default=value)
    raise error(
        "extern.attribute",
        f"extern '{name}': found {value!r} for attribute '{attribute}'",
        hint="give a default or a type: bool, int, float, str, or a tuple of numbers of one type "
        "(tuple[int, ...] where it may be empty)",
    )


def _is_alias(value: object) -> bool:
    return hasattr(value, "__origin__")


def _c_function(name: str, c: Any) -> tuple[CFunction | None, object]:
    match c:
        case None:
            return None, None
        case str() | Path():
            return CFunction(_library(c), name.rpartition(".")[2]), None
        case (str() | Path() as library, str() as symbol):
            return CFunction(_library(library), symbol), None
        case _:
            try:
                address = ctypes.cast(c, ctypes.c_void_p).value
            except (TypeError, ctypes.ArgumentError):
                address = None
            if address:
                return CFunction(address=address), c
    raise error(
        "extern.library",
        f"extern '{name}': found {c!r}, needed (library, symbol), a library or a function of ctypes",
    )


def _library(path: str | Path) -> str:
    """Return how a library is recorded: a bare name is searched by the system, a path is not."""
    text = str(path)
    return str(Path(text).resolve()) if "/" in text or Path(text).exists() else text


def find_function(name: str, library: str, symbol: str) -> int:
    """Return the address of a function of a library.

    Raises:
        CompileError: `extern.library`.
    """
    try:
        found = getattr(ctypes.CDLL(library), symbol)
    except (OSError, AttributeError) as problem:
        raise error(
            "extern.library",
            f"operator '{name}' needs the function '{symbol}' of {library}: {problem}",
            hint="build the library, or give the operator anew with externs=[...]",
        ) from problem
    return ctypes.cast(found, ctypes.c_void_p).value or 0


# ------------------------------------------------------------------------ calling Python


@dataclass(frozen=True, slots=True)
class Expected:
    """What a result must be; a dim of None may be anything."""

    dtype: np.dtype[Any]
    dims: tuple[int | None, ...]

    def __str__(self) -> str:
        dims = ", ".join("?" if d is None else str(d) for d in self.dims)
        return f"{dtypes.from_numpy(self.dtype).name}[{dims}]"


def call_python(
    name: str,
    function: Callable[..., Any],
    inputs: Sequence[np.ndarray],
    attributes: Mapping[str, AttributeValue],
) -> tuple[np.ndarray, ...] | Future[tuple[np.ndarray, ...]]:
    """Return what a function makes of copies of its inputs, or the future of that where it ends later.

    Raises:
        RunError: `run.kernel-failed`, caused by the exception; `run.bad-result` where it returns
            something else than arrays.
    """

    def results(make: Callable[[], object]) -> tuple[np.ndarray, ...]:
        return _arrays(name, _tried(name, make))

    found = _tried(name, lambda: function(*[np.array(x) for x in inputs], **attributes))
    later = future_of(found)
    return _arrays(name, found) if later is None else then(later, lambda done: results(done.result))


def _tried(name: str, make: Callable[[], object]) -> object:
    try:
        return make()
    except (Exception, CancelledError) as problem:
        raise error(
            "run.kernel-failed",
            f"operator '{name}' raised {type(problem).__name__}: {problem}",
            hint="see the exception of the function, which is the cause of this one",
        ) from problem


def _arrays(name: str, found: object) -> tuple[np.ndarray, ...]:
    results = cast("tuple[object, ...]", found) if isinstance(found, tuple) else (found,)
    for result in results:
        if not isinstance(result, np.ndarray | np.generic):
            raise error(
                "run.bad-result",
                f"operator '{name}' returned {type(result).__name__}, needed an array or a tuple of arrays",
            )
    return tuple(np.asarray(cast("np.ndarray", r), order="C") for r in results)


def check_results(
    name: str, results: Sequence[np.ndarray], expected: Sequence[Expected]
) -> Sequence[np.ndarray]:
    """Return the results if they are what was promised.

    Raises:
        RunError: `run.bad-result`.
    """
    if len(results) != len(expected):
        raise error(
            "run.bad-result",
            f"operator '{name}' returned {len(results)} arrays, its type rule promises {len(expected)}",
        )
    for index, (result, needed) in enumerate(zip(results, expected, strict=True)):
        fits = result.dtype == needed.dtype and result.ndim == len(needed.dims)
        if not fits or any(d is not None and d != n for d, n in zip(needed.dims, result.shape, strict=True)):
            which = f" as result {index}" if len(expected) > 1 else ""
            raise error(
                "run.bad-result",
                f"operator '{name}' returned {result.dtype}{list(result.shape)}{which}, its type "
                f"rule promises {needed}",
                hint="mend the function or the rule",
            )
    return results


# ------------------------------------------------------------------------ binding


def bind_externs(
    kernels: Sequence[Kernel], externs: Sequence[Extern]
) -> tuple[dict[Kernel, Callback], dict[str, int]]:
    """Return the code of the externs that kernels name: Python functions, and addresses by name.

    Libraries that a program names itself are loaded where no extern is given.

    Raises:
        CompileError: `extern.duplicate`, `extern.library`.
    """
    given: dict[str, Extern] = {}
    for e in externs:
        if e.name in given:
            raise error("extern.duplicate", f"found two externs of the name '{e.name}'")
        given[e.name] = e
    callbacks: dict[Kernel, Callback] = {}
    addresses: dict[str, int] = {}
    waiting: dict[str, Waiting] = {}
    for kernel in kernels:
        match kernel.body:
            case FunctionBody(name=name, library=library, symbol=symbol):
                own = given.get(name)
                if own is not None and own.c is not None:
                    addresses[name] = own.address()
                elif library:
                    addresses[name] = find_function(name, library, symbol)
            case HostBody(name=text):
                name, _, half = text.partition(":")
                own = given.get(name)
                if own is None or own.python is None:
                    continue
                reads = sum(port is AccessCode.READ for port in kernel.ports)
                kept = waiting.setdefault(name, Waiting())
                callbacks[kernel] = _callback(own, own.python, half, reads, kept)
            case _:
                pass
    return callbacks, addresses


class Waiting:
    """Results of unknown size between the two halves of their operator; used by any thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._results: dict[int, tuple[np.ndarray, ...]] = {}

    def put(self, results: tuple[np.ndarray, ...]) -> int:
        """Keep results; return their number."""
        number = next(self._numbers)
        self._results[number] = results
        return number

    def take(self, number: int) -> tuple[np.ndarray, ...]:
        """Return the results of a number, and forget them."""
        return self._results.pop(number)


def _callback(own: Extern, function: Callable[..., Any], half: str, reads: int, waiting: Waiting) -> Callback:
    """Return what runs as a kernel: the whole operator, or one of its halves."""
    operands = reads - len(own.attributes)

    def called(
        tensors: list[np.ndarray], use: Callable[[tuple[np.ndarray, ...]], None]
    ) -> Future[None] | None:
        encoded = zip(own.attributes.items(), tensors[operands:reads], strict=True)
        attributes = {name: kind.decode(array) for (name, kind), array in encoded}
        found = call_python(own.name, function, tensors[:operands], attributes)
        if isinstance(found, Future):
            return then(found, lambda done: use(done.result()))
        return use(found)

    def give(results: Sequence[np.ndarray], outputs: list[np.ndarray]) -> None:
        expected = [Expected(out.dtype, out.shape) for out in outputs]
        for result, out in zip(check_results(own.name, results, expected), outputs, strict=True):
            np.copyto(out, result)

    def whole(tensors: list[np.ndarray], _integers: list[int]) -> Future[None] | None:
        return called(tensors, lambda results: give(results, tensors[reads:]))

    def sizes(tensors: list[np.ndarray], _integers: list[int]) -> Future[None] | None:
        return called(tensors, lambda results: keep(results, *tensors[reads:]))

    def keep(results: tuple[np.ndarray, ...], number: np.ndarray, dims: np.ndarray) -> None:
        found = [d for result in results for d in result.shape]
        if len(found) != dims.size:
            raise error(
                "run.bad-result",
                f"operator '{own.name}' returned {' and '.join(str(list(r.shape)) for r in results)}"
                f", {len(found)} dims in all; its type rule promises {dims.size}",
            )
        dims[:] = found
        number[0] = waiting.put(results)

    def take(tensors: list[np.ndarray], _integers: list[int]) -> None:
        give(waiting.take(int(tensors[0][0])), tensors[1:])

    halves: dict[str, Callback] = {"": whole, SIZES[1:]: sizes, TAKE[1:]: take}
    return halves[half]
