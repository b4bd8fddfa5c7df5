"""A first model: load a model file, compile it, run it, save it, and run what was saved.

The model is a small face detector that comes with the sources. Nothing here needs to be told about
it: names, sizes and element types are in the file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import inlay

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "examples" / "first_light" / "ultraface_rfb320.onnx"

# ---------------------------------------------------------------------- 1. load
# A module is a whole program: functions, data types, kernels. That of a model file has one function,
# `main`, whose parameters are the inputs that change from run to run; weights are constants in it.

module = inlay.load(MODEL)
entry = module.entries[module.entry]
print("inputs: ", *entry.inputs)
print("outputs:", *entry.outputs)
assert entry.inputs == ("input",)
assert entry.outputs == ("scores", "boxes")

# ---------------------------------------------------------------------- 2. compile
# Compiling gives an executable. The board is the machine to compile for, `host` the one we are on.
# Compiled kernels are kept in a cache of the user, by content; here it is a folder that we throw away.

temporary = tempfile.TemporaryDirectory()
workplace = Path(temporary.name)
executable = inlay.compile(module, board="host", threads=1, cache=str(workplace / "cache"))
for spec in executable.inputs:
    print("takes", spec.name, spec.dtype, [dim.text for dim in spec.dims])

# ---------------------------------------------------------------------- 3. run
# Inputs and outputs go by name. An array that is contiguous is read where it is.

picture = np.linspace(-1, 1, 3 * 240 * 320, dtype=np.float32).reshape(1, 3, 240, 320)
outputs = executable.run({"input": picture})
print({name: array.shape for name, array in outputs.items()})
assert outputs["scores"].shape == (1, 4420, 2)
assert outputs["boxes"].shape == (1, 4420, 4)
# The two scores of a box are the probabilities of "nothing" and "a face".
np.testing.assert_allclose(outputs["scores"].sum(axis=-1), 1, rtol=1e-5)

# The same by position. The result does not depend on the number of threads, to the last bit: how
# a sum is ordered is decided when the kernel is compiled.
scores, boxes = executable(picture)
assert np.array_equal(scores, outputs["scores"])

# ---------------------------------------------------------------------- 4. a wrong input
# What does not fit is refused with a sentence that names the input, and the executable goes on.

refused = ""
try:
    executable.run({"input": picture[:, :, :200]})
except inlay.RunError as refusal:
    refused = str(refusal)
print(refused)
assert "input" in refused
assert "200" in refused
assert np.array_equal(executable(picture)[0], scores)

# ---------------------------------------------------------------------- 5. save and load
# An executable is one file: bytecode, machine code, constants. To load it takes neither LLVM nor the
# onnx package, so it may run where neither is installed.

path = workplace / "face.inlay"
executable.save(path)
again = inlay.load_executable(path, threads=2)
assert np.array_equal(again.run({"input": picture})["boxes"], boxes)
print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, runs on {again.threads} threads")
temporary.cleanup()
