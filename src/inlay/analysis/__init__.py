"""Read-only facts about programs: types, effects, variables, loops, costs.

May import `interp`, `ops` and below. Start reading at `blocks.py`, the vocabulary of the others.
"""
