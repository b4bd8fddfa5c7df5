"""What belongs together on a board: names that are there once, access, ways in and out.

`check_parts` finds what no board may have, whoever wrote it. `check_use` finds what no program could
use: a device that no value reaches, an operator that does not exist. It needs to know what programs
make of boards (`Use`), so only the compiler asks for it, and then always.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inlay.arith import dtype
from inlay.base.diagnostics import Collector
from inlay.base.registry import suggestion
from inlay.base.span import Span
from inlay.machine.board import Board
from inlay.machine.memory import PoolKind

Where = Callable[[str, int, str], Span]
"""Gives the place of a key in the n-th table of a kind; of the table itself for an empty key."""


def _unchanged(board: Board) -> Board:
    return board


def _nothing(_board: Board) -> str:
    return ""


def _all_read(_board: Board) -> Sequence[tuple[str, str, str]]:
    return ()


@dataclass(frozen=True, slots=True)
class Use:
    """What programs make of boards.

    Attributes:
        operators: the names that there are.
        as_run: gives a board as programs run on it.
        no_host: gives why what a board has as its host cannot be one, or nothing.
        passed_over: gives what is said of architectures and would do nothing: name, key, why.
    """

    operators: Collection[str]
    as_run: Callable[[Board], Board] = _unchanged
    no_host: Callable[[Board], str] = _nothing
    passed_over: Callable[[Board], Sequence[tuple[str, str, str]]] = _all_read


@dataclass(frozen=True, slots=True)
class _Check:
    """One walk over a board.

    Attributes:
        lost: names of parts that were left out because something else is wrong with them, by kind:
            who refers to them is right.
    """

    board: Board
    findings: Collector
    where: Where
    lost: Mapping[str, Collection[str]] = field(default_factory=dict[str, "Collection[str]"])

    def wrong(self, kind: str, index: int, key: str, message: str, hint: str = "") -> None:
        self.findings.error("board.invalid", message, span=self.where(kind, index, key), hint=hint)

    def known(
        self,
        kind: str,
        index: int,
        key: str,
        name: str,
        of: str,
        names: Iterable[str],
        lost: Collection[str] = (),
    ) -> bool:
        """Whether a name is one of some; else it is a finding, unless its part was left out."""
        listed = list(names)
        if name in listed:
            return True
        if name not in lost:
            hint = suggestion(name, listed, f"there are {', '.join(listed)}" if listed else "")
            self.wrong(kind, index, key, f"'{name}' is no {of} of the board", hint)
        return False

    def device(self, kind: str, index: int, key: str, name: str) -> bool:
        names = [d.name for d in self.board.devices]
        return self.known(kind, index, key, name, "device", names, self.lost.get("device", ()))

    def memory(self, kind: str, index: int, key: str, name: str) -> bool:
        names = [m.name for m in self.board.memories]
        return self.known(kind, index, key, name, "memory", names, self.lost.get("memory", ()))

    def addressed(self, kind: str, index: int, memories: Iterable[str]) -> list[str]:
        """Check what a device or an engine addresses; return the memories that there are."""
        found: list[str] = []
        for memory in memories:
            if memory in found:
                self.wrong(kind, index, "memories", f"found '{memory}' twice")
            elif self.memory(kind, index, "memories", memory):
                found.append(memory)
        return found


def check_parts(
    board: Board, findings: Collector, where: Where, lost: Mapping[str, Collection[str]] | None = None
) -> None:
    """Find what does not hold together: names that are taken or missing, access that is not there.

    Args:
        board: what there is.
        findings: gets all `board.invalid`.
        where: tells where parts are written.
        lost: names of parts that were written and left out, by kind.
    """
    check = _Check(board, findings, where, lost or {})
    if not board.devices or not board.memories:
        if not findings.has_fatal:  # else a part is missing because of what is wrong with it
            missing = "device" if board.memories else "memory"
            check.wrong("", 0, "", f"found a board without a {missing}", f"add [[{missing}]]")
        return
    _check_names(check)
    if board.default:
        check.device("", 0, "default", board.default)
    _check_devices(check)
    _check_memories(check)
    _check_ways(check)
    _check_queues(check)


def _check_names(check: _Check) -> None:
    board = check.board
    taken: set[str] = set()
    parts = {"device": board.devices, "memory": board.memories, "engine": board.engines}
    for kind, several in parts.items():
        for i, part in enumerate(several):
            if part.name in taken:
                check.wrong(kind, i, "name", f"found two parts named '{part.name}'")
            taken.add(part.name)
    taken = set()
    for i, arch in enumerate(board.archs):
        if arch.name in taken:
            check.wrong("arch", i, "name", f"found two architectures named '{arch.name}'")
        taken.add(arch.name)
        for name in arch.dtypes or ():
            check.known("arch", i, "dtypes", name, "element type", dtype.BY_NAME)


def _check_devices(check: _Check) -> None:
    board, archs = check.board, [a.name for a in check.board.archs]
    for i, device in enumerate(board.devices):
        check.known("device", i, "arch", device.arch, "architecture", archs, check.lost.get("arch", ()))
        for memory in check.addressed("device", i, device.memories):
            pool = board.memory(memory)
            owner = pool.owner if pool is not None and pool.kind is PoolKind.STACK else None
            if owner not in (None, device.name):
                message = f"'{memory}' is the stack of '{owner}', not of '{device.name}'"
                check.wrong("device", i, "memories", message)
        if all(board.memory(m) for m in device.memories) and not board.writable(device.name):
            check.wrong(
                "device",
                i,
                "memories",
                f"found no memory that '{device.name}' can write",
                "values are in memories of other kinds than rom",
            )
    first = board.memories[0]
    known = all(board.memory(m) for m in board.host.memories)
    if known and first.name not in board.host.memories and not any(check.lost.values()):
        check.wrong(
            "memory",
            0,
            "name",
            f"found no device that addresses the first memory, '{first.name}', which is the host's",
            "put a memory of the device first that runs the program",
        )
    elif first.kind not in (PoolKind.HEAP, PoolKind.STATIC):
        message = f"'{first.name}' is the memory of the host, being first, and is {first.kind.value}"
        check.wrong("memory", 0, "kind", message, "put a memory of kind heap or static first")


def _check_memories(check: _Check) -> None:
    devices = check.board.devices_by_name
    for i, pool in enumerate(check.board.memories):
        if pool.owner is None or not check.device("memory", i, "owner", pool.owner):
            continue
        if pool.name not in devices[pool.owner].memories:
            message = f"'{pool.owner}' owns '{pool.name}' and does not address it"
            check.wrong("memory", i, "owner", message, f"add '{pool.name}' to the memories of '{pool.owner}'")


def _check_ways(check: _Check) -> None:
    board, engines = check.board, {e.name: e for e in check.board.engines}
    for i, engine in enumerate(board.engines):
        check.addressed("engine", i, engine.memories)
        if engine.device:
            check.device("engine", i, "device", engine.device)
    seen: set[tuple[str, str, str]] = set()
    for i, link in enumerate(board.links):
        ends = {"from": link.source, "to": link.target}
        good = [check.memory("link", i, k, m) for k, m in ends.items()]
        names, lost = list(engines), check.lost.get("engine", ())
        if check.known("link", i, "engine", link.engine, "engine", names, lost) and all(good):
            for key, memory in ends.items():
                if memory not in engines[link.engine].memories:
                    check.wrong(
                        "link",
                        i,
                        key,
                        f"engine '{link.engine}' does not address '{memory}'",
                        f"add '{memory}' to the memories of '{link.engine}'",
                    )
        pool = board.memory(link.target)
        if pool is not None and pool.kind is PoolKind.ROM:
            check.wrong(
                "link",
                i,
                "to",
                f"found a link to '{link.target}', which is rom",
                "constants are there when a program is loaded",
            )
        if link.source == link.target:
            check.wrong(
                "link",
                i,
                "to",
                f"found a link from '{link.source}' to itself",
                "values need no way to where they are",
            )
        if (link.source, link.target, link.engine) in seen:
            check.wrong(
                "link", i, "", f"found a second link {link.source} -> {link.target} by '{link.engine}'"
            )
        seen.add((link.source, link.target, link.engine))
    for i, coherence in enumerate(board.coherent):
        if not check.memory("coherent", i, "memory", coherence.memory):
            continue
        parties = {p.name: p for p in (*board.devices, *board.engines)}
        lost = [n for kind in ("device", "engine") for n in check.lost.get(kind, ())]
        for name in coherence.parties:
            known = check.known("coherent", i, "parties", name, "device or engine", parties, lost)
            if known and coherence.memory not in parties[name].memories:
                memory = coherence.memory
                check.wrong(
                    "coherent",
                    i,
                    "parties",
                    f"'{name}' does not address '{memory}'",
                    f"add '{memory}' to the memories of '{name}'",
                )


def _check_queues(check: _Check) -> None:
    board, taken = check.board, set[tuple[str, str]]()
    for i, queue in enumerate(board.queues):
        check.device("queue", i, "device", queue.device)
        if (queue.device, queue.name) in taken:
            message = f"found two queues named '{queue.name}' of '{queue.device}'"
            check.wrong("queue", i, "name", message)
        taken.add((queue.device, queue.name))
    for i, order in enumerate(board.orders):
        if check.device("order", i, "device", order.device):
            own = [q.name for q in board.queues if q.device == order.device]
            lost = check.lost.get("queue", ())
            check.known("order", i, "after", order.after, f"queue of '{order.device}'", own, lost)
            check.known("order", i, "waits", order.waits, f"queue of '{order.device}'", own, lost)
            if order.after == order.waits:
                check.wrong(
                    "order",
                    i,
                    "waits",
                    f"queue '{order.waits}' waits for itself",
                    "commands of one queue are in order anyway",
                )


# ------------------------------------------------------------------------------------- use


def check_use(board: Board, use: Use, findings: Collector, where: Where) -> None:
    """Find what of a checked board no program could use.

    Args:
        board: what there is; `check_parts` found nothing.
        use: what programs make of boards.
        findings: gets all `board.invalid`.
        where: tells where parts are written.
    """
    check = _Check(board, findings, where)
    for i, arch in enumerate(board.archs):
        for name in arch.operators or ():
            if name not in use.operators:
                hint = suggestion(name, use.operators, "see docs/reference/ops.md")
                check.wrong("arch", i, "operators", f"found no operator '{name}'", hint)
    names = [a.name for a in board.archs]
    for name, key, why in use.passed_over(board):
        check.wrong(
            "arch", names.index(name), key, f"found {key}, which does nothing here: {why}", "leave it out"
        )
    why = use.no_host(board)
    if why:
        host, first = board.host, board.memories[0].name
        message = f"'{host.name}' is the host, being the first that addresses '{first}': {why}"
        hint = "give the board a device that runs programs, and put a memory of it first"
        check.wrong("device", board.devices.index(host), "arch", message, hint)
        return
    as_run = use.as_run(board)
    for i, device in enumerate(board.devices):
        for message, hint in _cut_off(as_run, device.name):
            check.wrong("device", i, "memories", message, hint)
    reached = {m for p in (*board.devices, *board.engines) for m in p.memories}
    for i, pool in enumerate(board.memories):
        if pool.name not in reached:
            check.wrong("memory", i, "name", f"no device and no engine addresses '{pool.name}'")


def _cut_off(board: Board, device: str) -> Iterator[tuple[str, str]]:
    """Yield why values do not get from the host to a device, or back: as the planner goes."""
    host, own, near = board.host, board.writable(device), board.writable(board.host.name)
    if board.shared_memories(host.name, device):
        return
    ends = f"'{host.name}' to '{device}'", f"'{device}' back to '{host.name}'"
    for sources, targets, way in ((near, own, ends[0]), (own, near, ends[1])):
        if board.routes(sources, targets):
            continue
        both = [m for m in own if m in near]
        if both:
            message = f"'{host.name}' and '{device}' both address '{both[0]}', but neither sees what"
            yield f"{message} the other writes", coherence_hint(both[0], host.name, device)
            return
        yield (
            f"no links lead from {way}, so it can be given no work",
            f"add a [[link]] from '{sources[0]}' to '{targets[0]}'",
        )


def coherence_hint(memory: str, *parties: str) -> str:
    """Return what to write for devices that see each other's writes to a memory."""
    listed = ", ".join(f'"{p}"' for p in parties)
    return f'if the hardware sees to that: [[coherent]] memory = "{memory}", parties = [{listed}]'
