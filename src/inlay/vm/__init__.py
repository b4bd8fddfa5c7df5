"""Tensor IR with explicit storage to bytecode, and bytecode with kernels to one container.

May import everything up to `codegen`. Start reading at `code.py`, then `lower.py`: an `environment`
says where things are, `facts` what is known before, `patterns` what a match looks at.
"""
