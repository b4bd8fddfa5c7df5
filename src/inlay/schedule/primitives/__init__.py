"""The schedule primitives, one file each, found by name.

May import `inlay.schedule.state` and its siblings. Start reading at `split.py`.
"""
