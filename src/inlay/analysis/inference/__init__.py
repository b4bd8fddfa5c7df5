"""The first walk of type inference: what is unknown, and what makes it known.

From the ground up: `solver` (unknowns and unification), `agenda` (what waits for them), `table` (the
result), `scope` (names), then types of nodes: `rules` and `functions`, `calls`, `parts`. Start with
`find_types`; `analysis.infer_types` is what others use.
"""
