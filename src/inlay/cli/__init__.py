"""The command line; one file per command, found by its name.

May import everything. Start reading at `main.py`.
"""
