"""Search over schedules: what rules leave open is measured on this machine, and kept in a file.

May import `codegen` and below; `pipeline/tuning.py` makes and runs programs for it. Start reading at
`trial.py`.
"""
