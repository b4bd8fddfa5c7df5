"""Pictures of what the compiler decided: files that any browser shows.

May import `pipeline` and below. Start reading at `memory_svg.py`.
"""
