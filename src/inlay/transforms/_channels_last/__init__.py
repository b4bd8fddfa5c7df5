"""Rules of `convert_layout`: each a function from a `LayoutMatch` to what has its channels last, or None.

Start reading at `layout_match.py`.
"""
