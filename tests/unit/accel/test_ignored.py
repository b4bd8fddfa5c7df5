"""What a description says and nothing would read is refused, with what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from inlay.accel.backend import backend_in_file
from inlay.accelerators import strawberry, vanilla
from inlay.base.diagnostics import CompileError

CALLS = Path(vanilla.__file__).read_text(encoding="utf-8")
STREAM = Path(strawberry.__file__).read_text(encoding="utf-8")
LIBRARY = 'drivers = (Library("inlay.accelerators._vanilla_model"),)'
QUEUE = 'ram, run = Shared("the memory of the host"), Queue()'


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (CALLS, LIBRARY, LIBRARY.replace("drivers", "driver"), "found a driver as 'driver', needed it in"),
        (CALLS, LIBRARY, "drivers = Library('x')", "found drivers that are not Library"),
        (CALLS, LIBRARY, "drivers = (Library('x'), Library('y'))", "found 2 drivers, needed one"),
        (CALLS, LIBRARY, "drivers = ()", "found 0 drivers, needed one"),
        (
            CALLS,
            LIBRARY,
            f"{LIBRARY}\n    launch_cycles = 'few'",
            "found launch_cycles = 'few', needed an int",
        ),
        (
            CALLS,
            QUEUE,
            f"{QUEUE}\n    own = Memory(1024, unit=1)",
            "found the memory 'own' of the device, which",
        ),
        (
            CALLS,
            QUEUE,
            f"{QUEUE}\n    order = (Token(run, run, push='a', pop='b'),)",
            "found tokens, which only",
        ),
        (
            CALLS,
            QUEUE,
            f"{QUEUE}\n    later = Token(run, run, push='a', pop='b')",
            "the Token 'later', which is not",
        ),
        (
            CALLS,
            "@encodes(multiply)",
            "@encodes(multiply, macs)",
            "found 'product' to encode what is no instruct",
        ),
        (
            CALLS,
            "x=x, w=w, b=b)",
            'x=p.tensor("x"), w=w, b=b)',
            "the operand 'x' of 'multiply' to be no value",
        ),
        (
            CALLS,
            "p.call(p.dense(x, w) + b, self.multiply, x=x, w=w, b=b)",
            "p.map(p.dense(x, w) + b)",
            "p.call",
        ),
        (CALLS, "p.dense(x, w) + b", "p.dense(x) + b", "building the pattern 'dense' failed: TypeError at"),
        (CALLS, "y[n, k] = b[k]", "y[n, k] = c[k]", "the meaning of 'multiply' failed: UnboundLocalError"),
        (
            STREAM,
            "return p.map(p.requantize(a",
            "return (p.requantize(a",
            "to return Applied, needed a p.call",
        ),
        (STREAM, "MOVE = Word(192,", "MOVE = Word(200,", "bits, needed 192, as the end has"),
        (STREAM, "dram=c.dram.at", "dram=c.ram.at", "a command of 'ld_act' has no 'ram', but"),
    ],
)
def test_it_is_named(tmp_path: Path, text: str, old: str, new: str, said: str) -> None:
    assert old in text
    names = "    Mock, Memory, Token,\n    Accelerator,"
    path = tmp_path / "wrong.py"
    path.write_text(text.replace(old, new).replace("    Accelerator,", names, 1), encoding="utf-8")
    with pytest.raises(CompileError) as refusal:
        backend_in_file(str(path)).patterns(())
    assert refusal.value.ids[0] == "accel.declaration"
    assert any(said in d.message for d in refusal.value.diagnostics), str(refusal.value)
