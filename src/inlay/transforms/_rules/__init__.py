"""Rules of `simplify_algebra`: each a function from a `RuleMatch` to what is better, or None.

Start reading at `rule_match.py`.
"""
