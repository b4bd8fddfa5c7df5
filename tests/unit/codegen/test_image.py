"""The linker: images run wherever they are, and what cannot be in one is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.base.diagnostics import InternalError
from inlay.codegen.image import link
from inlay.codegen.llvm_compile import compile_text
from inlay.machine.target import baseline, host
from tests.mapped_image import MappedImage


def compiled(text: str) -> bytes:
    return compile_text(text, host(), optimize=False)


# Constants of several sizes, a call and a table: everything that needs a relocation.
ADDER = """\
@table = private unnamed_addr constant [4 x i64] [i64 10, i64 20, i64 30, i64 40], align 8
define internal i64 @helper(i64 %i) noinline nounwind {{
entry:
  %p = getelementptr i64, ptr @table, i64 %i
  %v = load i64, ptr %p, align 8
  ret i64 %v
}}
define i64 @phase0(ptr %buffers, ptr %ints, i64 %part, i64 %parts) nounwind {{
entry:
  %x = load ptr, ptr %buffers, align 8
  %a = load <8 x float>, ptr %x, align 4
  %b = fadd <8 x float> %a, <float 1.0, float 2.0, float 3.0, float 4.0, float 5.0, float 6.0, \
float 7.0, float {last}>
  store <8 x float> %b, ptr %x, align 4
  %i = load i64, ptr %ints, align 8
  %v = call i64 @helper(i64 %i)
  ret i64 %v
}}
"""


def test_objects_are_merged_and_run() -> None:
    first, second = compiled(ADDER.format(last="8.0")), compiled(ADDER.format(last="9.0"))
    image = link([("a", first), ("b", second)])
    mapped = MappedImage(image)
    for name, last in [("a", 8.0), ("b", 9.0)]:
        x = np.zeros(8, np.float32)
        assert mapped.call(f"{name}.phase0", [x], [2]) == 30
        np.testing.assert_array_equal(x, [1, 2, 3, 4, 5, 6, 7, last])
    assert all(offset % 16 == 0 for offset in image.symbols.values())


def test_equal_objects_are_in_the_image_once() -> None:
    data = compiled(ADDER.format(last="8.0"))
    image = link([("a", data), ("b", data)])
    assert image.symbols["a.phase0"] == image.symbols["b.phase0"]
    assert image.data == link([("a", data)]).data


def test_images_are_reproducible() -> None:
    one, two = (link([("a", compiled(ADDER.format(last="8.0")))]) for _ in range(2))
    assert one.data == two.data


def test_an_empty_image() -> None:
    assert link([]).data == b""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "declare i64 @outside()\ndefine i64 @f() nounwind { %v = call i64 @outside() ret i64 %v }",
            "undefined symbol 'outside'",
        ),
        ("@g = global i64 0\ndefine ptr @f() { ret ptr @g }", r"section \.bss"),
        ("@g = global i64 7\ndefine ptr @f() { ret ptr @g }", r"section \.data"),
        ("@g = constant ptr @f\ndefine ptr @f() { ret ptr @g }", r"section \.data"),
        ("@g = thread_local global i64 7\ndefine ptr @f() { ret ptr @g }", "section"),
    ],
)
def test_what_cannot_be_in_an_image(text: str, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        link([("a", compiled(text))])


def test_garbage_is_refused() -> None:
    with pytest.raises(InternalError, match="not a little-endian"):
        link([("a", b"\x7fELFgarbage")])


def test_objects_for_arm_link() -> None:
    """The relocations of a real object are all known and fit."""
    from inlay.codegen.llvm_compile import compile_in_child

    data = compile_in_child(ADDER.format(last="8.0"), baseline("aarch64"), optimize=False)
    image = link([("a", data)])
    assert image.arch == "aarch64"
    assert "a.phase0" in image.symbols


def test_a_back_end_that_gives_up_does_not_take_us_along() -> None:
    from inlay.codegen.llvm_compile import compile_in_child

    with pytest.raises(InternalError, match="does not accept|failed"):
        compile_in_child("define i64 @f() { ret i32 0 }", host(), optimize=False)
