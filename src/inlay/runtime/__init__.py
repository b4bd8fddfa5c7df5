"""Running executables: the reference interpreter, the C runtime, inputs and outputs.

It may import `base`, `arith`, `machine`, `bytecode` and `packing`, and never the compiler: an
executable runs where neither llvmlite nor onnx is installed. Start reading at `session.py`.
"""
