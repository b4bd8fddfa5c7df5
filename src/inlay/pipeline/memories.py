"""The memories of a board, as plans of storage take them: sizes, preferences, what is kept free."""

from __future__ import annotations

from inlay.bytecode.program import Memory, MemoryKind
from inlay.codegen.backend_table import backend_of
from inlay.machine.board import Board
from inlay.machine.memory import PoolKind
from inlay.memory.choose_memories import MemoryOptions
from inlay.memory.explicit_alloc import StorageOptions
from inlay.pipeline.devices import off_host
from inlay.runtime.native import lifts


def storage_of(board: Board) -> StorageOptions:
    """Return where results of devices may be, the preferred memory first; stacks only where asked."""
    near = {d.name: _off_stack(board, d.name) for d in board.devices}
    near |= {name: (memory,) for name, memory in off_host(board).items()}
    first = board.memories[0].name
    others = {name: found for name, found in near.items() if found != (first,)}
    return StorageOptions(others, first if backend_of(board, board.host.name) is not None else "")


def _off_stack(board: Board, device: str) -> tuple[str, ...]:
    stacks = board.stack_of(device)
    return tuple(m for m in board.writable(device) if m not in stacks)


def memories_of(board: Board) -> MemoryOptions:
    """Return the memories of a board for plans. What kernels may use of a stack is left to them."""
    reserved = {
        stack: _bytes(dict(board.arch_of(d.name).facts).get("stack_bytes"))
        for d in board.devices
        for stack in board.stack_of(d.name)
    }
    near = {d.name: _for_constants(board, d.name) for d in board.others}
    constants = {name: own for name, own in near.items() if not set(own) & set(board.host.memories)}
    constants |= {name: (memory,) for name, memory in off_host(board).items()}
    host = board.host.name
    if backend_of(board, host) is not None:
        no_stack = "the virtual machine puts no tensors on a stack"
        return MemoryOptions(board.memories, reserved, no_stack, constants=constants, lifts=lifts())
    constants[""] = _for_constants(board, host)
    inputs = _off_stack(board, host)
    if any(m.kind is PoolKind.HEAP for m in board.memories if m.name in inputs):
        inputs = ()
    return MemoryOptions(board.memories, reserved, inputs=inputs, constants=constants)


def _for_constants(board: Board, device: str) -> tuple[str, ...]:
    """Return where the constants of a device may be: first where only those are."""
    memories, written = board.devices_by_name[device].memories, board.writable(device)
    return (*(m for m in memories if m not in written), *_off_stack(board, device))


def _bytes(fact: object) -> int:
    return fact if isinstance(fact, int) else 0


def memories_of_program(board: Board) -> tuple[Memory, ...]:
    """Return the memories of a board as an executable says them."""
    return tuple(Memory(m.name, MemoryKind(m.kind.value), m.bytes, m.alignment) for m in board.memories)
