"""Attributes that onnxruntime refuses are refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.data import REPOSITORY


@pytest.mark.slow
def test_wrong_attributes_of_every_operator() -> None:
    words = [sys.executable, "-m", "tests.differential.onnx_attributes"]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
