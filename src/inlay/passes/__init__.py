"""What a pass is, and how a list of passes is checked and run.

May import `ir`, `loop` and below; it knows no pass. Start reading at `contract.py`.
"""
