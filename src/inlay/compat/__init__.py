"""Faces that other projects know: Inlay behind their interfaces.

`onnx_backend` is what the conformance runner of ONNX drives, `onnxruntime` the interface of that
package. Nothing below imports this package.
"""
