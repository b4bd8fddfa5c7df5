"""TFLite models become tensor IR: `schema.py` reads a file, `graph.py` walks it, `ops_*.py` have the rules.

Integer operators become the canonical form: products in i32 with zero points taken off, and `requantize`.
"""
