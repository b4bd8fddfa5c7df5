"""The compile route: the one ordered list of passes and stages, and what comes out of it.

May import everything up to `vm` and `accelerators`. Start reading at `route.py`.
"""
