"""Foreign models to tensor IR: one package per format.

May import everything below `codegen | importers` in the layer map. Start with `onnx/graph.py`.
"""
