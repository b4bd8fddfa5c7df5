"""Default schedules by class of computation, one file each.

May import `inlay.schedule`. Start reading at `inlay/schedule/choose.py`, then `injective.py`.
"""
