"""What every package may use and what knows nothing about tensors.

Source spans, diagnostics, text printing and scanning, graph algorithms, names and options. It
imports only the standard library. Start reading at `diagnostics`.
"""
