"""The file format: what is written is read, and what is wrong is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlay.base.diagnostics import CompileError
from inlay.bytecode import container, formula, writer
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import (
    AccessCode,
    BatchRecord,
    Constant,
    Entry,
    FunctionBody,
    HostBody,
    ImageBody,
    ImageTarget,
    Kernel,
    Memory,
    MemoryKind,
    Phase,
    Program,
    Requirement,
    ShapeCode,
    ShapeInput,
    SymbolBody,
)
from inlay.bytecode.spec import Dim, Element, ListSpec, OptionSpec, Spec, Symbol, TensorSpec, TupleSpec
from inlay.bytecode.verify import findings


def sample() -> Program:
    """A program that uses every table."""
    n = ["n"]
    b = ProgramBuilder(
        target=ImageTarget("x86_64-unknown-linux-gnu", ("avx2", "fma")),
        image=bytes(range(200)),
        memories=("host", Memory("sram", MemoryKind.STATIC, 64 << 10, 16)),
        properties={"model": "sample", "compiler": "0"},
    )
    ports = (AccessCode.READ, AccessCode.READ, AccessCode.WRITE)
    kernel = b.kernel(
        Kernel(
            "add",
            ports,
            1,
            ImageBody((Phase(0, parallel=True, pieces=5), Phase(16))),
            formula.parse("4*n", n),
            True,
            formula.parse("10 + n//8", n),
            batch=BatchRecord(1, (1,)),
        )
    )
    b.kernel(Kernel("add.batch", ports, 2, ImageBody((Phase(32),))))
    b.kernel(Kernel("callback", (AccessCode.READ_WRITE,), 0, HostBody("f")))
    b.kernel(Kernel("library", (), 2, SymbolBody("cblas_x", parallel=True)))
    b.kernel(
        Kernel(
            "own", (AccessCode.READ, AccessCode.WRITE), 0, FunctionBody("f", "./f.so", "f_f32"), ordered=True
        )
    )
    constant = b.constant(Constant("f32", (2, 2), np.eye(2, dtype=np.float32)))
    b.constant(Constant("u8", (3,), b"abc"))
    b.constant(Constant("i64", (0,), b""))
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    main.at("node 'x'")
    main.emit("COPY", 0), main.emit("CONST", constant)
    main.emit("INT", 2), main.emit("INT", 2), main.emit("ALLOCATE", "sram", "f32", 2)
    main.emit("COPY", 1), main.emit("COPY", 2), main.emit("COPY", 3)
    main.emit("INT", 1 << 40), main.emit("INVOKE", kernel)
    main.emit("RETURN")
    x = TensorSpec("x", "f32", (Dim("n", formula.parse("n", n)), Dim("2", (2,))))
    y = TensorSpec("y", "f32", (Dim("?", None), Dim("2", (2,))))
    b.entry(
        Entry(
            "main",
            main.index,
            (x,),
            (y,),
            (Symbol("n", 0, 0, formula.parse("d", ["d"])),),
            (Requirement("n <= 8", formula.parse("n <= 8", n)),),
        )
    )
    inner = b.function("inner", [Kind.ADT, Kind.TUPLE], [Kind.ADT, Kind.TUPLE])
    inner.emit("COPY", 0), inner.emit("COPY", 1), inner.emit("RETURN")
    sized = b.function("sized", [Kind.TENSOR, Kind.INT], [Kind.INT])
    behind = sized.label()
    sized.emit("EVAL", behind, 0)
    sized.emit("COPY", 0), sized.emit("DIM", 1), sized.emit("COPY", 1), sized.emit("MUL")
    sized.place(behind), sized.emit("RETURN")
    b.shapes = [ShapeCode(64, (ShapeInput(0, 1), ShapeInput(1)), 1), ShapeCode(128, (), 0)]
    b.entry(Entry("structured", inner.index, *structured()))
    return b.finish()


def structured() -> tuple[tuple[Spec, ...], tuple[Spec, ...], tuple[Symbol, ...]]:
    """A list of pairs with sizes of their own and options in them, and a tuple that has the size n."""
    d, sizes = ["d"], ["n", "k"]
    pair = TupleSpec(
        "",
        (
            TensorSpec(".0", "f32", (Dim("k", formula.parse("k", sizes)),)),
            OptionSpec(".1", Element(TensorSpec("", "i64", (Dim("n+k", formula.parse("n+k", sizes)),)))),
        ),
    )
    k = Symbol("k", 0, 0, formula.parse("d", [*d, "n"]))
    xs = ListSpec("xs", Element(pair, (k,)))
    t = TupleSpec("t", (TensorSpec("t.0", "bool", (Dim("n", formula.parse("n", ["n"])),)),))
    out = ListSpec(
        "ys",
        Element(
            TupleSpec(
                "",
                (
                    TensorSpec(".0", "f32", (Dim("k", None),)),
                    OptionSpec(".1", Element(TensorSpec("", "i64", (Dim("?", None),)))),
                ),
            )
        ),
    )
    return (xs, t), (out, t), (Symbol("n", 0, 0, formula.parse("d", d)),)


def plain(program: Program) -> tuple:
    """All of a program in a form that compares by structure."""
    constants = tuple((c.dtype, c.dims, bytes(c.bytes())) for c in program.constants)
    return (
        program.functions,
        program.entries,
        constants,
        program.kernels,
        program.shapes,
        program.pool,
        program.memories,
        program.target,
        program.image,
        dict(program.properties),
    )


def test_round_trip():
    program = sample()
    data = writer.to_bytes(program)
    again = container.read(data)
    assert plain(again) == plain(program)
    assert again.strings[: len(program.strings)] == program.strings


def test_deterministic_and_stable():
    data = writer.to_bytes(sample())
    assert data == writer.to_bytes(sample())
    assert data == writer.to_bytes(container.read(data))


def test_alignment():
    opened = container.Container(writer.to_bytes(sample()))
    assert opened.sections["IMAG"].offset % container.PAGE == 0
    assert opened.sections["CDAT"].offset % container.PAGE == 0


def test_save_replaces_at_once(tmp_path):
    path = tmp_path / "a.inlay"
    path.write_bytes(b"old")
    writer.save(sample(), path)
    assert path.read_bytes() == writer.to_bytes(sample())
    assert [p.name for p in tmp_path.iterdir()] == ["a.inlay"]


def test_constants_are_sealed_when_a_file_is_for_others():
    made = b"".join(writer.chunks(sample(), seals=False))
    opened = container.Container(made, check_constants=False)
    assert opened.bytes("CDAT")
    with pytest.raises(CompileError, match="CDAT is not what was written"):
        container.Container(made)
    sealed = b"".join(container.sealed(opened))
    assert sealed == writer.to_bytes(sample()) == b"".join(container.sealed(container.Container(sealed)))


def test_every_truncation_is_refused():
    data = writer.to_bytes(sample())
    for size in [*range(0, 1200, 7), *range(1200, len(data), 509)]:
        with pytest.raises(CompileError) as caught:
            container.read(data[:size])
        assert caught.value.ids[0].startswith("container."), size


def reseal(data: bytearray) -> bytes:
    """Make all digests right again, so that only the structure is at fault."""
    import hashlib
    import struct

    count = struct.unpack_from("<I", data, 12)[0]
    for index in range(min(count, len(container.SECTIONS))):
        row = 64 + 64 * index
        offset, size = struct.unpack_from("<QQ", data, row + 8)
        if offset + size <= len(data):
            data[row + 32 : row + 64] = hashlib.sha256(data[offset : offset + size]).digest()
    data[32:64] = hashlib.sha256(data[64 : 64 + 64 * len(container.SECTIONS)]).digest()
    return bytes(data)


def test_every_flipped_byte_is_noticed():
    data = writer.to_bytes(sample())
    places = [*range(64 + 64 * 11)]
    for section in container.Container(data).sections.values():
        places += range(section.offset, section.offset + section.size, 5)
    for place in places:
        wrong = bytearray(data)
        wrong[place] ^= 0x41
        with pytest.raises(CompileError) as caught:
            container.read(wrong)
        assert caught.value.ids[0].startswith("container."), place


def test_forged_files_are_read_or_refused():
    data = writer.to_bytes(sample())
    generator = np.random.default_rng(0)
    opened = container.Container(data)
    places = [p for s in opened.sections.values() for p in range(s.offset, s.offset + s.size)]
    refused = accepted = 0
    for _ in range(400):
        wrong = bytearray(data)
        for place in generator.choice(places, 3):
            wrong[place] = generator.integers(256)
        try:
            container.read(reseal(wrong))
        except CompileError as caught:
            refused += caught.ids[0].startswith("container.")
        else:
            accepted += 1
    assert refused > 100
    assert refused + accepted == 400


def test_constants_may_be_trusted():
    data = bytearray(writer.to_bytes(sample()))
    data[-1] ^= 1
    with pytest.raises(CompileError):
        container.read(data)
    assert container.read(data, check_constants=False).constants


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (Memory("m", MemoryKind.STATIC, -2, 16), "cannot have -2 bytes"),
        (Memory("m", MemoryKind.STATIC, 64, 24), "24 is no possible alignment"),
        (Memory("m", MemoryKind.STATIC, 64, 0), "0 is no possible alignment"),
    ],
)
def test_memories_have_possible_sizes_and_alignments(memory, words):
    wrong = replace(sample(), memories=(Memory("host"), memory))
    assert any(words in str(finding) for finding in findings(wrong))
