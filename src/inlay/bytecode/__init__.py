"""The executable format: opcode table, programs, containers, verifier, listing.

Shared by the compiler, the Python interpreter and the C runtime; knows neither IR.
It may import `base`, `arith` and `machine`. Start reading at `isa.py`, then `program.py`.
"""
