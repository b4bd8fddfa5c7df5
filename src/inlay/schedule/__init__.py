"""Schedules: how a loop function is computed, without changing what it computes.

May import `analysis` and below. Start reading at `state.py`, then any file of `primitives/`.
"""
