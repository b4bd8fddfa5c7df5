"""ONNX models to tensor IR.

`load.py` reads and checks the file, `graph.py` walks the nodes, `node.py` is what a rule sees, and
`ops_*.py` hold one rule per ONNX operator. Only this package imports `onnx`.
"""
