"""Rules of `convert_layout`: each a function from a `Site` to what has its channels last, or None.

Start reading at `site.py`.
"""
