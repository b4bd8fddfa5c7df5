"""Packing algorithms, one in each file; `plan.py` chooses among their results."""
