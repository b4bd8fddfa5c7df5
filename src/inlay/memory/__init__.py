"""Where values live: explicit storage, lifetimes, and the plan that packs them.

May import `analysis`, `packing`, `ops` and below. Start reading at `explicit_alloc.py`.
"""
