"""Lowered loop functions to machine code.

May import `schedule` and everything below it, and is the only package that knows llvmlite. Start
reading at `interface.py`, then `llvm.py`.
"""
