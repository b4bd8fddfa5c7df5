"""Where values live and operations run: written on the nodes of the program.

May import `analysis` and below. Start reading at `plan_places.py`.
"""
