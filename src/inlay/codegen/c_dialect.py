"""What C99 and OpenCL C spell differently, as data; everything else is one emitter (`c.py`).

Both are C with `int64_t` and friends: OpenCL C gets the names of `<stdint.h>` from its head. They
differ in how a phase receives its arguments and shares its iterations, in how it reports a failed
assertion, in address spaces, and in the names of functions of single precision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from inlay.arith.dtype import F64, DType

INDENT = "    "
CALLED = frozenset(
    """
    acos acosh asin asinh atan atanh ceil copysign cos cosh erf exp fabs floor fma fmod isinf isnan
    log memcpy pow rint sin sinh sqrt tan tanh trunc
    """.split()
)
"""Functions that emitted code calls: nothing else may have their names."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A buffer that the caller gives.

    Attributes:
        name: in the text.
        position: among the buffers of the calling convention.
        element: C type of one element.
        read_only: whether the phase never writes it.
        alone: whether nothing else that the phase uses shares bytes with it.
    """

    name: str
    position: int
    element: str
    read_only: bool
    alone: bool


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a phase receives.

    Attributes:
        pointers: every buffer in order, the block of workspaces last if there is one.
        dims: names of the integer arguments, in order.
        used: names among them that the body mentions; `part` and `parts` may be here too.
        asserts: whether the phase has assertions.
    """

    pointers: tuple[Pointer, ...]
    dims: tuple[str, ...]
    used: frozenset[str]
    asserts: bool


class Dialect(ABC):
    """A language of the family.

    Attributes:
        name: for messages.
        head: text before everything else; helpers follow.
        reserved: words besides those of C that no name may be.
        space: qualifier of what pointers of the caller point to, with a space behind it.
        has_vectors: whether there are vectors of OpenCL C (`c_vector`).
    """

    name: str
    head: str
    reserved: frozenset[str]
    space: str
    has_vectors: bool = False

    @abstractmethod
    def function(self, stem: str, dtype: DType) -> str:
        """Return how a function of `<math.h>` is called for a format in registers."""

    @abstractmethod
    def bit_cast(self, name: str, target: str, source: str) -> str:
        """Return the definition of a function that sees bits as another type of the same size."""

    @abstractmethod
    def begin(self, symbol: str, arguments: Arguments) -> list[str]:
        """Return the lines from the signature to where names of arguments are bound."""

    @abstractmethod
    def end(self) -> list[str]:
        """Return the lines that leave a phase whose assertions hold."""

    @abstractmethod
    def fail(self, number: int) -> str:
        """Return the statements that leave a phase because an assertion does not hold."""

    @abstractmethod
    def share(self, var: str, lo: str, extent: str) -> list[str]:
        """Return the lines that open the loop over the iterations of this part.

        Args:
            var: name of the loop's variable.
            lo: first value, as an operand of a sum.
            extent: number of iterations, as an operand of a product.
        """

    def before_unrolled(self) -> Sequence[str]:
        """Return lines in front of a loop whose few iterations should be written out."""
        return ()


class _C99(Dialect):
    """Portable C99, for any compiler: no extensions, no flags."""

    name = "C99"
    space = ""
    reserved = (
        frozenset({"part", "parts", "buffers", "ints", "INFINITY", "NAN"})
        | CALLED
        | {f"{name}f" for name in CALLED}
    )
    # Sums and products must be rounded one by one: a compiler that contracts them is told not to,
    # as ISO modes of gcc (-std=c99) do by themselves.
    head = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif
"""

    def function(self, stem: str, dtype: DType) -> str:
        return stem if dtype == F64 else f"{stem}f"

    def bit_cast(self, name: str, target: str, source: str) -> str:
        return f"""\
static inline {target} {name}({source} x)
{{
    {target} y;
    memcpy(&y, &x, sizeof y);
    return y;
}}
"""

    def begin(self, symbol: str, arguments: Arguments) -> list[str]:
        takes = "void *const *buffers, const int64_t *ints, int64_t part, int64_t parts"
        lines = [f"int64_t {symbol}({takes})", "{"]
        bound: list[str] = []
        for p in arguments.pointers:
            if p.name in arguments.used:
                const, restrict = "const " * p.read_only, "restrict " * p.alone
                bound.append(f"{INDENT}{const}{p.element} *{restrict}{p.name} = buffers[{p.position}];")
        has_buffers = bool(bound)
        for i, name in enumerate(arguments.dims):
            if name in arguments.used:
                bound.append(f"{INDENT}const int64_t {name} = ints[{i}];")
        unused = [] if has_buffers else ["buffers"]
        unused += [] if arguments.used.intersection(arguments.dims) else ["ints"]
        unused += [n for n in ("part", "parts") if n not in arguments.used]
        bound += [f"{INDENT}(void){name};" for name in unused]
        return lines + bound

    def end(self) -> list[str]:
        return [f"{INDENT}return 0;", "}"]

    def fail(self, number: int) -> str:
        return f"return {number};"

    def share(self, var: str, lo: str, extent: str) -> list[str]:
        start = "" if lo == "0" else f"{lo} + "
        return [
            f"const int64_t {var}_end = {start}{extent} * (part + 1) / parts;",
            f"for (int64_t {var} = {start}{extent} * part / parts; {var} < {var}_end; {var}++) {{",
        ]


C99: Dialect = _C99()
