"""Integers and scalar formats: what a tensor dimension and a loop index have in common.

May import only `inlay.base`. Start reading at `expr.py`.
"""
