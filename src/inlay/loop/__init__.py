"""The loop IR: loop nests over buffers, schedulable and lowered, and tensor expressions.

May import `base`, `arith`, `machine`. Start reading at `stmt.py`, then `te.py`.
"""
