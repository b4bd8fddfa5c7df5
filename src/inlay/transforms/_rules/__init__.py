"""Rules of `simplify_algebra`: each a function from a `Site` to what is better, or None.

Start reading at `site.py`.
"""
