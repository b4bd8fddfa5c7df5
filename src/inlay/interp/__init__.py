"""The meaning of both IRs, in NumPy: slow and obvious.

May import `ops` and below. Start reading at `tensor.py` or `loop.py`.
"""
