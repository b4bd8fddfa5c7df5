"""The tensor IR: functional whole programs over tensors, with control flow and data types.

May import `base`, `arith`, `machine`. Start reading at `types.py` and `expr.py`.
"""
