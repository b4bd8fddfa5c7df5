"""Kernels in the object cache: found by text and by what they are made from."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import numpy as np

from inlay.arith.expr import evaluate
from inlay.codegen.cache import ObjectCache, key_of
from inlay.codegen.interface import Request
from inlay.codegen.llvm_generator import LlvmGenerator
from inlay.loop.func import LoopFunction
from inlay.loop.parser import parse_function
from inlay.machine.target import host
from tests.mapped_image import MappedImage

TEXT = """\
lowered func NAME(x: f32[n]) -> (y: f32[n]) over (n, m) uses (t: f32[n, (m / 4)] @workspace per_part) {
  for i in 0..n parallel { y[i] = x[i] * 2.0:f32 }
}
"""


def function(name: str = "f") -> LoopFunction:
    return parse_function(TEXT.replace("NAME", name))


def never() -> LoopFunction:
    raise AssertionError("lowered although the kernel is cached")


def test_second_run_needs_neither_lowering_nor_compiling(tmp_path: Path) -> None:
    first = LlvmGenerator(host(), ObjectCache(tmp_path)).compile([Request("k", function, "key")])
    second = LlvmGenerator(host(), ObjectCache(tmp_path)).compile([Request("k", never, "key")])
    assert first.image == second.image
    a, b = first.kernels["k"], second.kernels["k"]
    assert (a.cached, b.cached) == (False, True)
    assert a.phases == b.phases
    for kernel in (a, b):
        n, m = kernel.dims
        assert kernel.workspace.per_part
        assert evaluate(kernel.workspace.bytes, {n: 10, m: 9}) == 128
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    MappedImage(second.image).call("k.phase0", [x, y, np.zeros(64)], [3, 0])
    np.testing.assert_array_equal(y, [2, 2, 2])


def test_the_name_of_a_function_does_not_matter(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    requests = [Request("a", lambda: function("one")), Request("b", lambda: function("two"))]
    artifact = LlvmGenerator(host(), cache).compile(requests)
    assert [k.cached for k in artifact.kernels.values()] == [False, True]
    assert artifact.kernels["a"].phases == artifact.kernels["b"].phases


def test_without_a_cache() -> None:
    artifact = LlvmGenerator(host()).compile([Request("k", function)])
    assert set(artifact.kernels) == {"k"}


def test_damaged_entries_are_ignored_and_removed(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    key = key_of("a", "b")
    cache.put(key, b"content")
    assert cache.get(key) == b"content"
    [path] = tmp_path.glob("??/*")
    for damage in (path.read_bytes()[:-1], b"", b"x" * 100, path.read_bytes() + b"!"):
        path.write_bytes(damage)
        assert cache.get(key) is None
        assert not path.exists()
        cache.put(key, b"content")


def test_keys_separate_their_parts() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")


def test_a_folder_that_cannot_be_written() -> None:
    """In a process that is not root, who writes everywhere."""
    with tempfile.TemporaryDirectory() as name:  # what pytest makes is for its owner alone
        folder = Path(name)
        folder.chmod(0o555)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads
            child = os.fork()
        if child == 0:
            code = 1
            try:
                if os.geteuid() == 0:
                    os.setuid(65534)
                cache = ObjectCache(folder / "inner")
                cache.put(key_of("a"), b"content")
                code = 0 if cache.get(key_of("a")) is None else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not list(folder.iterdir())


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ObjectCache(tmp_path / "file")
    cache.put(key_of("a"), b"content")
    assert cache.get(key_of("a")) is None


def test_the_folder_stays_within_its_bound(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, max_bytes=4000)
    keys = [key_of(str(i)) for i in range(10)]
    for age, key in enumerate(keys):
        cache.put(key, b"x" * 1000)
        [path] = [p for p in tmp_path.glob("??/*") if p.parent.name + p.name == key]
        os.utime(path, (1000 + age, 1000 + age))
    cache.prune()
    assert [cache.get(k) is not None for k in keys] == [False] * 7 + [True] * 3
