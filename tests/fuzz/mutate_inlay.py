"""Forges executables: sections damaged behind digests that are right again, and grown bytecode.

`grown` writes a function one instruction after the other, and keeps those after which the verifier
still has nothing to say but that the end is missing: random programs that it accepts, far from what
a compiler writes.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from random import Random

from inlay.bytecode import container, verify, writer
from inlay.bytecode.isa import CODES, INSTRUCTIONS, Kind, OperandKind
from inlay.bytecode.program import Function, Program
from tests.unit.runtime.generate import Generator

WORDS = (0, 1, 2, 3, 7, 16, 60, 255, 0xFFFF, 0x10000, 1 << 24, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
SECTIONS = ("CODE",) * 6 + ("FUNC", "KERN", "ENTR", "CONS", "STRS", "META", "SMAP", "POOL", "SHAP", "CDAT")
_HEADER, _ROW = 64, 64
_END = "control runs off the end"


def resealed(data: bytearray) -> bytes:
    """Return the file with the digests that its contents have."""
    rows = container.SECTIONS
    for i in range(len(rows)):
        at = _HEADER + _ROW * i
        offset, size = struct.unpack_from("<QQ", data, at + 8)
        data[at + 32 : at + 64] = hashlib.sha256(data[offset : offset + size]).digest()
    table = bytes(data[_HEADER : _HEADER + _ROW * len(rows)])
    data[32:64] = hashlib.sha256(table).digest()
    return bytes(data)


def forged(data: bytes, random: Random) -> bytes:
    """Return a file with a few changed bytes or words in sections, and right digests."""
    made = bytearray(data)
    sections = container.Container(data).sections
    for _ in range(random.randint(1, 3)):
        section = sections[random.choice(SECTIONS)]
        if not section.size:
            continue
        at = section.offset + random.randrange(section.size)
        match random.randrange(4):
            case 0:
                made[at] = random.randrange(256)
            case 1:
                made[at] ^= 1 << random.randrange(8)
            case _ if section.size >= 4:
                at = section.offset + random.randrange(section.size // 4) * 4
                near = int.from_bytes(made[at : at + 4], "little") + random.choice((-1, 1))
                word = random.choice((*WORDS, near & 0xFFFFFFFF))
                made[at : at + 4] = word.to_bytes(4, "little")
            case _:
                pass
    if random.random() < 0.1:  # a row of the section table
        at = _HEADER + _ROW * random.randrange(len(container.SECTIONS)) + random.choice((8, 16))
        struct.pack_into("<Q", made, at, random.choice((*WORDS, 1 << 63, len(made))))
        table = bytes(made[_HEADER : _HEADER + _ROW * len(container.SECTIONS)])
        made[32:64] = hashlib.sha256(table).digest()
        return bytes(made)
    return resealed(made)


def cut(data: bytes, random: Random) -> bytes:
    """Return a file with plain damage: a byte, or the end missing."""
    if random.random() < 0.5:
        return data[: random.randrange(len(data))]
    made = bytearray(data)
    made[random.randrange(len(made))] ^= 1 << random.randrange(8)
    return bytes(made)


def _operand(kind: OperandKind, program: Program, length: int, random: Random) -> int:
    small = random.randrange(4)
    match kind:
        case OperandKind.IMMEDIATE:
            return random.choice((*WORDS, small))
        case OperandKind.SLOT:
            return random.randrange(8)
        case OperandKind.TARGET:
            return random.randrange(length + 12)
        case OperandKind.ALIGN:
            return 1 << random.randrange(8)
        case OperandKind.DTYPE:
            return random.randrange(13)
        case OperandKind.MESSAGE:
            return random.randrange(max(len(program.strings), 1))
        case _:
            return small


def _instruction(program: Program, length: int, random: Random) -> list[int]:
    row = random.choice(INSTRUCTIONS)
    words = [CODES[row.name]]
    for _, kind in row.operands:
        if kind is OperandKind.TARGETS:
            targets = [random.randrange(length + 12) for _ in range(random.randint(1, 3))]
            words += [len(targets), *targets]
        else:
            words.append(_operand(kind, program, length, random))
    return words


def grown(random: Random) -> Program:
    """Return a program whose `main` is random instructions that the verifier lets pass."""
    program = Generator(random.randrange(200)).program_of()
    main = program.functions[0]
    pool = (*program.pool, *(random.choice((-1, 1 << 62, -(1 << 63), 5)) for _ in range(3)))
    program = replace(program, pool=pool)

    def faults(code: list[int]) -> str:
        f = Function(main.name, main.params, main.results, 24, tuple(code))
        made = replace(program, functions=(f, *program.functions[1:]))
        return next((x.message for x in verify.findings(made)), "")

    code: list[int] = []
    for _ in range(random.randint(4, 30)):
        for _ in range(12):
            longer = [*code, *_instruction(program, len(code), random)]
            if faults(longer).startswith(_END):
                code = longer
                break
    constants = [CODES["CONST"], 0, CODES["CONST"], 1, CODES["RETURN"]]
    f = Function(main.name, main.params, main.results, 26, (*code, *constants))
    made = replace(program, functions=(f, *program.functions[1:]))
    assert all(k is Kind.TENSOR for k in main.results), "the entry gives tensors"
    return made


def executable(seed: int) -> bytes:
    """Return the executable that a seed names."""
    random = Random(seed)
    match random.randrange(8):
        case 0 | 1 | 2:
            return writer.to_bytes(grown(random))
        case 3:
            return cut(writer.to_bytes(Generator(random.randrange(200)).program_of()), random)
        case 4:
            return forged(writer.to_bytes(grown(random)), random)
        case _:
            return forged(writer.to_bytes(Generator(random.randrange(200)).program_of()), random)
