"""What hardware looks like: devices, memories, boards. Data only, no compilation.

May import `arith` and `base`. Start reading at `board.py`; `board_file.py` reads TOML.
"""
