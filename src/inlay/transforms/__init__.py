"""Passes from tensor IR to tensor IR: one per file, verb first, the record is the file's `PASS`.

May import `analysis` and below, not one another. Start reading at `to_anf.py`, the form that all
the others work on; `_blocks.py` is the driver that most of them share.
"""
