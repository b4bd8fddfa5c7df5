"""Growing LLVM text in SSA form, with value numbering and hoisting while it grows.

The text of a function is a tree of *regions*: the entry, and below it one region for each open loop
or branch. A region is a list of lines that is appended to its parent when it closes, so all open
regions can still grow. That makes two optimizations free, and most passes of LLVM unnecessary:

* a **pure** instruction is written into the outermost region in which its operands exist, which
  is loop-invariant code motion (it does not leave a branch unless it is cheap and cannot trap);
* every region remembers the pure instructions it holds by their text, which is common
  subexpression elimination, because names are unique.

Loads are remembered like pure instructions but with the *version* of the memory they read in the
key and without leaving their region; a store moves the version on.

A value is the text of an operand: `%12`, `7`, `splat (float 1.0)`. Names are numbered in order of
creation, so equal input gives equal text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_NAME = re.compile(r"%v\d+")


@dataclass(slots=True)
class Region:
    """Straight-line and closed structured code that is still growing.

    Attributes:
        label: the block that the next line belongs to.
        lines: instructions and labels so far.
        memo: result of each remembered instruction by its text.
        is_branch: whether this is an arm of a branch, which pure code does not leave.
    """

    label: str
    is_branch: bool = False
    lines: list[str] = field(default_factory=list[str])
    memo: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Carried:
    """A value that a loop changes: its LLVM type and where it comes from."""

    type: str
    value: str


class Builder:
    """Writes one LLVM function body."""

    def __init__(self) -> None:
        self.entry_lines: list[str] = []
        self.regions: list[Region] = [Region("entry")]
        self._depth: dict[str, int] = {}
        self._count = 0
        self._forgotten = 0

    # ------------------------------------------------------------------ names and places

    @property
    def depth(self) -> int:
        """The number of regions around the one that grows now."""
        return len(self.regions) - 1

    def depth_of(self, value: str) -> int:
        """The region from which on a value exists; 0 for literals and arguments."""
        return self._depth.get(value, 0)

    def depth_of_all(self, values: Sequence[str]) -> int:
        """The region from which on all of some values exist."""
        known, depth = self._depth, 0
        for value in values:
            d = known.get(value, 0)
            if d > depth:  # noqa: PLR1730  this runs for every operand that is written
                depth = d
        return depth

    def fresh(self, depth: int | None = None) -> str:
        """Return a new name that exists from a region on (default: the present one)."""
        self._count += 1
        name = f"%v{self._count}"
        if depth is None:
            depth = len(self.regions) - 1
        if depth:
            self._depth[name] = depth
        return name

    def label(self) -> str:
        """Return a new label, without the percent sign."""
        self._count += 1
        return f"L{self._count}"

    # ------------------------------------------------------------------ instructions

    def line(self, text: str) -> None:
        """Write an instruction without a result."""
        self.regions[-1].lines.append(text)

    def define(self, text: str) -> str:
        """Write an instruction here, whatever its operands, and return its name."""
        name = self.fresh()
        self.regions[-1].lines.append(f"{name} = {text}")
        return name

    def pure(self, text: str, operands: Sequence[str], *, cheap: bool = False) -> str:
        """Return the value of an instruction without effect, writing it where it may stand.

        Args:
            text: the instruction.
            operands: the values in it.
            cheap: whether it may be executed although the branch that needs it is not taken.
        """
        depth = self.depth_of_all(operands)
        regions = self.regions
        if not cheap:
            for i in range(len(regions) - 1, depth, -1):
                found = regions[i].memo.get(text)
                if found is not None:
                    return found
                if regions[i].is_branch:
                    depth = i
                    break
        region = regions[depth]
        found = region.memo.get(text)
        if found is None:
            found = region.memo[text] = self.fresh(depth)
            region.lines.append(f"{found} = {text}")
        return found

    def load(self, text: str, version: int) -> str:
        """Return the value of a load; `version` changes whenever the memory may have."""
        key = f"{text};{version};{self._forgotten}"
        for region in reversed(self.regions):
            found = region.memo.get(key)
            if found is not None:
                return found
        found = self.regions[-1].memo[key] = self.define(text)
        return found

    def forget_loads(self) -> None:
        """Let loads from here on be made anew; LLVM does not join them with those before, either."""
        self._forgotten += 1
        self.line('call void asm sideeffect "", "~{memory}"()')

    @property
    def position(self) -> int:
        """Where the next line of the region will stand."""
        return len(self.regions[-1].lines)

    def mix(self, starts: Sequence[int]) -> None:
        """Let the parts of a region that begin at some lines take turns, line by line.

        Processors look for work that is ready in some hundred instructions: less than a few elementary
        functions, one behind the other, each a chain. What the parts load and store must be apart. Nothing
        is done where one has more blocks than one.
        """
        lines = self.regions[-1].lines
        parts = [lines[a:b] for a, b in zip(starts, [*starts[1:], len(lines)], strict=True)]
        if any(x.endswith(":") for part in parts for x in part):
            return
        waiting = {x.split(" = ", 1)[0] for part in parts for x in part if " = " in x}
        del lines[starts[0] :]
        left = [part[::-1] for part in parts]
        while any(left):
            for part in left:
                if part and waiting.isdisjoint(_NAME.findall(part[-1])[1 if " = " in part[-1] else 0 :]):
                    lines.append(part.pop())
                    waiting.discard(lines[-1].split(" = ", 1)[0])

    def alloca(self, text: str) -> str:
        """Write an allocation at the head of the function."""
        name = self.fresh(0)
        self.entry_lines.append(f"{name} = alloca {text}")
        return name

    # ------------------------------------------------------------------ control

    def for_loop(
        self,
        lo: str,
        hi: str,
        *,
        may_skip: bool,
        carried: Sequence[Carried],
        body: Callable[[str, list[str]], list[str]],
        step: int = 1,
    ) -> list[str]:
        """Write a counted loop that tests at its end.

        Args:
            lo: first value of the counter (i64).
            hi: end of the counter, exclusive.
            may_skip: whether `hi <= lo` is possible.
            carried: values that iterations hand on.
            body: writes the body, from the counter and the carried values to their new values.
            step: by which the counter grows; `hi - lo` is a multiple of it.

        Returns:
            The carried values after the loop.
        """
        parent = self.regions[-1]
        guard = self.pure(f"icmp slt i64 {lo}, {hi}", (lo, hi)) if may_skip else ""
        head, after = self.label(), self.label()
        self.regions.append(Region(head))
        counter = self.fresh()
        phis = [self.fresh() for _ in carried]
        out = body(counter, list(phis))
        following = self.define(f"add nsw i64 {counter}, {step}")
        test = self.define(f"icmp slt i64 {following}, {hi}")
        child = self.regions.pop()
        before = parent.label
        to_head = f"br i1 {guard}, label %{head}, label %{after}" if may_skip else f"br label %{head}"
        parent.lines.append(to_head)
        parent.lines.append(f"{head}:")
        parent.lines.append(f"{counter} = phi i64 [{lo}, %{before}], [{following}, %{child.label}]")
        for name, c, new in zip(phis, carried, out, strict=True):
            parent.lines.append(f"{name} = phi {c.type} [{c.value}, %{before}], [{new}, %{child.label}]")
        parent.lines += child.lines
        parent.lines.append(f"br i1 {test}, label %{head}, label %{after}")
        parent.lines.append(f"{after}:")
        parent.label = after
        if may_skip:
            return [
                self._phi(c.type, [(c.value, before), (new, child.label)])
                for c, new in zip(carried, out, strict=True)
            ]
        for new in out:
            self._surface(new)
        return out

    def while_loop(
        self,
        carried: Sequence[Carried],
        condition: Callable[[list[str]], str],
        body: Callable[[list[str]], list[str]],
    ) -> list[str]:
        """Write a loop that tests first; arguments as in `for_loop`."""
        parent = self.regions[-1]
        head, inside, after = self.label(), self.label(), self.label()
        self.regions.append(Region(head))
        phis = [self.fresh() for _ in carried]
        test = condition(list(phis))
        self.line(f"br i1 {test}, label %{inside}, label %{after}")
        self.line(f"{inside}:")
        self.regions[-1].label = inside
        header_end = parent.label
        out = body(list(phis))
        child = self.regions.pop()
        parent.lines.append(f"br label %{head}")
        parent.lines.append(f"{head}:")
        for name, c, new in zip(phis, carried, out, strict=True):
            parent.lines.append(f"{name} = phi {c.type} [{c.value}, %{header_end}], [{new}, %{child.label}]")
        parent.lines += child.lines
        parent.lines += [f"br label %{head}", f"{after}:"]
        parent.label = after
        for name in phis:
            self._surface(name)
        return phis

    def branch(
        self, condition: str, then: Callable[[], list[Carried]], otherwise: Callable[[], list[Carried]]
    ) -> list[str]:
        """Write a branch whose arms return the same number of values; return the merged values."""
        parent = self.regions[-1]
        yes, no, after = self.label(), self.label(), self.label()
        self.regions.append(Region(yes, is_branch=True))
        then_values = then()
        then_region = self.regions.pop()
        self.regions.append(Region(no, is_branch=True))
        else_values = otherwise()
        else_region = self.regions.pop()
        to_after = f"br label %{after}"
        parent.lines += [f"br i1 {condition}, label %{yes}, label %{no}", f"{yes}:"]
        parent.lines += [*then_region.lines, to_after, f"{no}:", *else_region.lines, to_after]
        parent.lines.append(f"{after}:")
        parent.label = after
        return [
            a.value
            if a.value == b.value
            else self._phi(a.type, [(a.value, then_region.label), (b.value, else_region.label)])
            for a, b in zip(then_values, else_values, strict=True)
        ]

    def leave_if(self, condition: str, terminator: str) -> None:
        """Write a way out of the function that is taken where the condition holds."""
        out, on = self.label(), self.label()
        self.line(f"br i1 {condition}, label %{out}, label %{on}")
        self.line(f"{out}:")
        self.line(terminator)
        self.line(f"{on}:")
        self.regions[-1].label = on

    def _phi(self, type: str, incoming: Sequence[tuple[str, str]]) -> str:
        name = self.fresh()
        edges = ", ".join(f"[{value}, %{label}]" for value, label in incoming)
        self.line(f"{name} = phi {type} {edges}")
        return name

    def _surface(self, value: str) -> None:
        """Note that a value of a closed region exists in the present one: its block dominates."""
        if self._depth.get(value, 0) > self.depth:
            self._depth[value] = self.depth

    def text(self) -> str:
        """Return the whole body; only the entry region may be open."""
        assert len(self.regions) == 1, "every region is closed"
        return "\n".join(["entry:", *self.entry_lines, *self.regions[0].lines])
