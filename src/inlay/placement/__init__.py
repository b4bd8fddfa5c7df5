"""Where values live and operations run: written on the nodes of the program.

Four steps, a sub-package each: `infer` (constraints), `choose` (costs and search), `write` (places and
copies) and `explain` (reasons). May import `analysis` and below. Start reading at `plan_places.py`.
"""
