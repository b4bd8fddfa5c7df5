"""The operator vocabulary: one entry per operator, one file per family.

May import `ir`, `loop` and what is below them. Start reading at `_define.py`; `table.py` finds all.
"""
