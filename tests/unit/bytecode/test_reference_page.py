"""The listing on the reference page parses, and does what the page says."""

from __future__ import annotations

import re

import numpy as np

from inlay.runtime.session import executable_of
from tests.data import REPOSITORY
from tests.unit.bytecode.assembler import parse
from tests.unit.bytecode.disasm import listing


def test_the_listing_of_the_page_runs():
    page = (REPOSITORY / "docs/language/bytecode.md").read_text()
    (text,) = re.findall(r"```listing\n(.*?)```", page, re.DOTALL)
    program = parse(text, {})
    assert listing(program) == text

    def add(tensors, integers):
        tensors[2][...] = tensors[0] + tensors[1]

    exe = executable_of(program, callbacks={"add": add})
    x = np.array([1, 2], np.float32)
    assert (exe(x) == 4 * x).all()
