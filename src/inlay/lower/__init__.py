"""From operators to loops, and from schedulable loops to lowered ones; one pass per file.

May import `analysis` and below. Start reading at `lower.py`, then `ops_to_loops.py`.
"""
