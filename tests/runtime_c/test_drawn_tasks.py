"""Drawn programs of the language with batches, compiled as for users, and ways to make their plans wrong.

`test_core` plants faults in drawn bytecode. Here the programs come the whole route: closures, cells, lists
and trees in text, native kernels, batches, and every call may be a task. Right they have no races, in any
mode, and wrong the detector says what and where: an edge less from what writes (1) or to what writes over it
(2), a wait less (3), a call that goes by its cells as if it had none (5), a batch whose rows lie over other
tensors (7). A write over what a suspended task still reads (4), or through a view (6), is planted in
`test_core` alone: what is compiled writes nothing that another task can still read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inlay.api import compilation
from inlay.bytecode import writer
from inlay.interp.tensor import evaluate
from inlay.ir.module import Module
from inlay.pipeline import batches
from tests.property.as_tasks import with_all_tasks
from tests.property.draw_tasks import ROW, TaskProgram
from tests.property.test_task_laws import module_of, outcome
from tests.runtime_c.build import NoSanitizerError, build
from tests.runtime_c.build import drive as driven
from tests.system import needs

pytestmark = [pytest.mark.cc, pytest.mark.llvm, pytest.mark.slow, needs("gcc")]
MANY = 60
"""Programs: a plan can be made wrong in most of them, and what is wrong is a race in some."""
X, Y = np.array([1, 2, 3]), np.arange(6, dtype=np.float32).reshape(2, 3)
"""What the driver gives to each program."""


@pytest.fixture(scope="module")
def driver() -> Path:
    try:
        return build("address,undefined")
    except NoSanitizerError as failure:
        pytest.skip(str(failure))


def text_of(seed: int) -> str:
    """Return a drawn program that takes what the driver gives."""
    text = TaskProgram(seed, is_wrong=seed % 4 == 3).text
    head = f"fn main(x: {ROW}, y: {ROW}) -> ({ROW}, {ROW}, {ROW}) {{"
    assert head in text
    given = head.replace(f"y: {ROW}", "z: Tensor[2, 3, f32]")
    return text.replace(head, f"{given}\n  let y = sub(i64(4), x);").replace('"x", "y"', '"x", "z"')


def shown(module: Module) -> str:
    """Return the line that the driver prints, as the evaluator has it; of a failure its id alone."""
    found = outcome(lambda: evaluate(module, (X, Y)))
    if not isinstance(found[0], bytes):
        return found[0]
    return " ".join(["ok", *(f"4:3,:{r.hex()}" for r in found)])


@pytest.fixture(scope="module")
def programs(
    tmp_path_factory: pytest.TempPathFactory, kernels: str
) -> tuple[list[str], list[str], list[Path]]:
    """Texts of programs, what they print, and their files, with batches however little they gain."""
    folder = tmp_path_factory.mktemp("drawn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "LEAST_SHARED", 1)
        texts = [text_of(seed) for seed in range(700_000, 700_000 + MANY)]
        files, lines = [], []
        for index, text in enumerate(texts):
            module = module_of(text)
            program = compilation(
                module, cache=kernels, plan=("serial", "parallel")[index % 2], batch=True
            ).program
            lines.append(shown(module))
            files.append(folder / f"{index}.inlay")
            writer.save(with_all_tasks(program), files[-1])
    return texts, lines, files


def drive(driver: Path, files: list[Path], **settings: Any) -> list[str]:
    try:
        return driven(driver, files, has_code=True, **settings)
    except NoSanitizerError as failure:
        pytest.skip(str(failure))


@pytest.mark.parametrize(("mode", "seed"), [("sequential", 0), ("parallel", 0), ("replay", 1), ("replay", 2)])
def test_right_programs_have_no_races(driver, programs, mode, seed) -> None:
    for text, want, got in zip(*programs[:2], drive(driver, programs[2], mode=mode, seed=seed), strict=True):
        assert got == want if want.startswith("ok") else got.startswith(want), text


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (1, "use before ready"),
        (2, "reuse while in flight"),
        (3, "missing wait"),
        (5, "overtaken"),
        (7, "rows over others"),
    ],
)
def test_faults_are_found(driver, programs, kind, word) -> None:
    found: list[str] = []
    for nth in (1, 2, 5):
        right = drive(driver, programs[2], mode="replay", seed=3)
        lines = drive(driver, programs[2], mode="replay", seed=3, spoil=(kind, nth))
        for text, want, line in zip(programs[0], right, lines, strict=True):
            if line.startswith("spoiled run.race "):
                found.append(line)
            else:
                assert line.removeprefix("spoiled ") == want, text
    assert any(f"run.race {word}: " in line for line in found)
    assert all(" in '" in line for line in found)
