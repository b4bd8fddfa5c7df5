"""Packing intervals into memory: offsets for buffers so that live ones never overlap.

Knows no IR; it may import `base`, `arith` and `machine`. Start reading at `plan.py`.
"""
