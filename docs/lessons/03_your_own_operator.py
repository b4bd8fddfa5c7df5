"""Your own operator: a name, a type rule, and code of yours behind it, in Python, C or the language.

Models use operators that a compiler does not have, and people have kernels that they trust. An extern
puts such code behind a name. This lesson gives one operator three implementations, gets the same bits
from each, lets a function decide the size of its result, and sees what happens when code lies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import inlay

# What this lesson writes goes to a folder that it throws away.
temporary = tempfile.TemporaryDirectory()
before = Path.cwd()
os.chdir(temporary.name)

# ---------------------------------------------------------------------- 1. a name and a type
# The rule is a type with names. `n` and `k` are sizes: any, but the same wherever they stand. Inlay
# infers types through the operator, plans memory for its result and checks operands against it.

RULE = "(x: Tensor[n, k, f32], f: Tensor[n, f32]) -> Tensor[n, k, f32]"


def scale_rows(x: np.ndarray, f: np.ndarray, alpha: float) -> np.ndarray:
    """Multiply each row by its factor and by alpha."""
    return x * f[:, None] * np.float32(alpha)


in_python = inlay.extern("my.scale_rows", RULE, attributes={"alpha": 1.0}, python=scale_rows)

Path("program.inl").write_text(
    """
    fn main<n>(x: Tensor[n, 6, f32], f: Tensor[n, f32]) {
      let loop = fn<i>(i: int[i], h: Tensor[n, 6, f32]) {
        if (int_less(int(i), int(3))) {
          loop(int(i + 1), relu(my.scale_rows{alpha=0.5}(add(h, x), f)))
        } else { h }
      };
      loop(int(0), x)
    }
    entry main("x", "f") -> ("y");
    """
)
random = np.random.default_rng(0)
x = random.normal(size=(5, 6)).astype(np.float32)
f = random.normal(size=5).astype(np.float32)

# Nothing is registered: an extern is a value that is handed over where a program is read. In a model
# in ONNX, a node `com.acme.MyOp` would be the extern of that name, with its attributes.
module = inlay.load("program.inl", externs=[in_python])
needed = inlay.compile(module, threads=1)(x, f)
print("in Python: ", needed[0, :3])

# ---------------------------------------------------------------------- 2. the same in the language
# A generated body is compiled like any other code. Here it is fused with the addition before it and
# the `relu` behind it. The attribute is a number in its text, so a function writes the text.


def body(alpha: float) -> str:
    """Return the body for an alpha."""
    return f"{{ mul(mul(x, reshape(f, shape(n, 1))), f32({alpha!r})) }}"


generated = inlay.extern("my.scale_rows", RULE, attributes={"alpha": 1.0}, generated=body)
found = inlay.compile(module, externs=[generated], threads=1)(x, f)
assert np.array_equal(found, needed)
print("generated: ", found[0, :3])

# ---------------------------------------------------------------------- 3. the same in C
# A C function gets tensors: where the numbers are, how many. Attributes follow the operands. It
# answers 0, or another number and a message. It runs without Python's lock, in a saved executable too.

SOURCE = """
#include "inlay_extern.h"
int32_t scale_rows(const inlay_call_t *call)
{
    const float *x = call->inputs[0].data, *f = call->inputs[1].data;
    const float alpha = (float)*(const double *)call->inputs[2].data;
    float *y = call->outputs[0].data;
    int64_t rows = call->inputs[0].dims[0], columns = call->inputs[0].dims[1], i, k;
    for (i = 0; i < rows; i++)
        for (k = 0; k < columns; k++) y[i * columns + k] = x[i * columns + k] * f[i] * alpha;
    return 0;
}
"""
if shutil.which("cc"):
    headers = inlay.get_include()
    Path("mine.c").write_text(SOURCE)
    flags = ["-std=c99", "-O2", "-ffp-contract=off", "-shared", "-fPIC", f"-I{headers}"]
    subprocess.run(["cc", *flags, "mine.c", "-o", "libmine.so"], check=True)
    in_c = inlay.extern("my.scale_rows", RULE, attributes={"alpha": 1.0}, c=("./libmine.so", "scale_rows"))
    executable = inlay.compile(module, externs=[in_c], threads=1)
    assert np.array_equal(executable(x, f), needed)
    executable.save("program.inlay")
    again = inlay.load_executable("program.inlay")  # the file says which library it needs
    assert np.array_equal(again(x, f), needed)
    print("in C:      ", again(x, f)[0, :3])

# ---------------------------------------------------------------------- 4. sizes that data decide
# `some k <= n` is a size that exists and is known when the function has run. What follows computes
# with k like with any other size. That k is not more than n is checked, as others rely on it.

positive = inlay.extern(
    "positive", "(x: Tensor[n, f32]) -> some k <= n. Tensor[k, f32]", python=lambda x: x[x > 0]
)
Path("sizes.inl").write_text("fn main<n>(x: Tensor[n, f32]) { mul(positive(x), f32(2.0)) }")
double = inlay.compile("sizes.inl", externs=[positive], threads=1)
assert double(np.array([1, -2, 3], np.float32)).tolist() == [2, 6]

# ---------------------------------------------------------------------- 5. code that lies or fails
# What a Python function returns is compared with what the rule promised before a byte is copied.

liar = inlay.extern("my.scale_rows", RULE, attributes={"alpha": 1.0}, python=lambda x, f, alpha: x.T)
ids: tuple[str, ...] = ()
try:
    inlay.compile(module, externs=[liar], threads=1)(x, f)
except inlay.RunError as refusal:
    ids = refusal.ids
    print(refusal)
assert ids == ("run.bad-result",)

os.chdir(before)
temporary.cleanup()
