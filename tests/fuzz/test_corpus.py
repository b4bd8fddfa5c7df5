"""Every file of the corpus is read or refused as its name says; then a short search from there.

`make fuzz` searches longer.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fuzz.run import ROUND, fuzz
from tests.fuzz.targets import corpus, targets
from tests.runtime_c.build import build
from tests.system import lacks_sanitizer, need_sanitizer

NAMES = ("onnx", "onnx-compile", "inl", "inlay", "tflite")
SECONDS = 0.2
"""What each target gets in `make test`."""


@pytest.fixture(scope="module")
def driver():
    return None if lacks_sanitizer("address,undefined") else build("address,undefined")


def found(driver, name):
    """Return a target, or skip the test with what is not here."""
    if name == "inlay" and driver is None:
        need_sanitizer("address,undefined")
    there = targets(driver)
    if name not in there:
        pytest.skip("the package 'tflite' is not installed")
    return there[name]


@pytest.mark.parametrize("name", ["onnx", "inl", "inlay"])
def test_corpus(driver, name):
    if name == "inlay" and driver is None:
        need_sanitizer("address,undefined")
    target = targets(driver)[name]
    paths = corpus(target.suffix)
    assert len(paths) > 5
    found = target.check([p.read_bytes() for p in paths])
    wrong = [
        (p.name, word)
        for p, word in zip(paths, found, strict=True)
        if (word == "refused") != p.name.startswith("no-")
    ]
    assert not wrong


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "onnx-compile" else n for n in NAMES]
)
def test_search(driver, name):
    seen = Counter[str]()
    for seed in range(ROUND, 20 * ROUND, ROUND):  # what is damaged is seldom right
        seen += fuzz(name, found(driver, name), seed=seed, seconds=SECONDS, driver=driver)
        if len(seen) > 1 and seen["refused"]:
            break
    assert seen["refused"], "some inputs are wrong"
    assert len(seen) > 1, "some are not"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_longer_search(driver, name):
    fuzz(name, found(driver, name), seed=1_000_000, seconds=30, driver=driver)
