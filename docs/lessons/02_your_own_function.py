"""Your own function: a program as text, its types found, its meaning, and its native code.

The text form is a small functional language over tensors. This lesson writes a layer and a loop
without a single type but those of the inputs, lets Inlay find the rest, asks what the program means
without compiling it, and compiles it.
"""

from __future__ import annotations

import numpy as np

import inlay
from inlay.analysis.infer_types import infer_types
from inlay.interp.tensor import evaluate
from inlay.ir.parser import parse_module
from inlay.ir.printer import print_module
from inlay.ir.type_printer import type_text
from inlay.ops.table import table

# ---------------------------------------------------------------------- 1. a program
# `@dense` is a function of the module, `loop` one that a let binds. `loop` calls itself with the next
# count and the next value: that is how loops are written, and a call that is the last thing a function
# does becomes a jump. `int(i + 1)` is a control value, a number that steers and is no tensor.

TEXT = """
fn dense(x, w, b) { relu(add(matmul(x, w), b)) }

fn main<n>(x: Tensor[n, 8, f32], w: Tensor[8, 8, f32], b: Tensor[8, f32]) {
  let loop = fn<i>(i: int[i], h) {
    if (int_less(int(i), int(3))) { loop(int(i + 1), @dense(h, w, b)) } else { h }
  };
  loop(int(0), x)
}

entry main("x", "w", "b") -> ("y");
"""

# ---------------------------------------------------------------------- 2. its types
# Inference gives each expression its type. Sizes are symbols: `dense` takes any number of rows, and
# that the columns of x are the rows of w follows from the product.

module = infer_types(parse_module(TEXT, table(), name="lesson"))
print(print_module(module))
dense = module.functions["dense"].type
assert type_text(dense.params[0]) == "Tensor[x0, w0, f32]"
assert type_text(dense.params[1]) == "Tensor[w0, w1, f32]"
assert type_text(dense.result) == "Tensor[x0, w1, f32]"
assert type_text(module.functions["main"].type.result) == "Tensor[n, 8, f32]"

# A program that makes no sense is refused, with both ends of the chain that leads to the conflict.
WRONG = """
fn twice(x, y) { add(x, y) }
fn main(a: Tensor[4, f32], b: Tensor[5, f32]) { @twice(a, b) }
"""
ids: tuple[str, ...] = ()
try:
    infer_types(parse_module(WRONG, table(), name="wrong"))
except inlay.CompileError as refusal:
    ids = refusal.ids
    print(refusal)
assert ids == ("type.dim-mismatch",)

# What cannot be decided before the program runs becomes one check in it, and nothing is guessed.
CHECKED = "fn main<n, m>(a: Tensor[n, f32], b: Tensor[m, f32]) { add(a, b) }"
checked = parse_module(CHECKED, table())
print(print_module(checked))
assert "check_shape" in print_module(checked)

# ---------------------------------------------------------------------- 3. its meaning
# The evaluator computes a program node by node in NumPy. It is slow and it is the definition: what
# compiled code computes is tested against it.

random = np.random.default_rng(0)
w = random.normal(size=(8, 8), scale=0.3).astype(np.float32)
b = random.normal(size=8).astype(np.float32)


def inputs(rows: int) -> list[np.ndarray]:
    """Return inputs with that many rows."""
    return [random.normal(size=(rows, 8)).astype(np.float32), w, b]


five = inputs(5)
meaning = evaluate(module, five)

# ---------------------------------------------------------------------- 4. its code
# One compilation serves every n: sizes are read from the inputs of each run.

executable = inlay.compile(module, threads=1)
np.testing.assert_allclose(executable(*five), meaning, rtol=1e-5, atol=1e-6)
for rows in (0, 1, 64):
    x, *rest = inputs(rows)
    y = executable(x, *rest)
    assert y.shape == (rows, 8)
    np.testing.assert_allclose(y, evaluate(module, [x, *rest]), rtol=1e-5, atol=1e-6)
print("compiled and evaluated values agree for 0, 1, 5 and 64 rows")
