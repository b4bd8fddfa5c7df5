"""Where values live and operations run: written on the nodes of the program.

May import `analysis` and below. Start reading at `place_on_host.py`.
"""
