"""The networks of `network_models.py` quantized by onnxruntime's own quantizer, on random images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)

from network_models import NETWORKS

FORMATS = {"qdq": QuantFormat.QDQ, "qop": QuantFormat.QOperator}
ACTIVATIONS = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}
IMAGES = 4


class Images(CalibrationDataReader):
    """Random images, one after the other."""

    def __init__(self, size: int) -> None:
        rng = np.random.default_rng(2)
        shape = (1, 3, size, size)
        self._images = iter([rng.standard_normal(shape).astype(np.float32) for _ in range(IMAGES)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next one."""
        image = next(self._images, None)
        return None if image is None else {"x": image}


def quantized(name: str, form: str, activations: str, folder: Path) -> tuple[Path, Path]:
    """Write a network with floats and with integers; weights are i8, symmetric, per channel.

    Args:
        name: of the network.
        form: `qdq` or `qop`.
        activations: `u8` or `s8`, which is symmetric.
        folder: where the files go; what is there already is kept.
    """
    make, size = NETWORKS[name]
    whole, narrow = folder / f"{name}.onnx", folder / f"{name}_{form}_{activations}.onnx"
    if not whole.exists():
        onnx.save(make(size), whole)
    if not narrow.exists():
        quantize_static(
            whole,
            narrow,
            Images(size),
            quant_format=FORMATS[form],
            per_channel=True,
            activation_type=ACTIVATIONS[activations],
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
            extra_options={"ActivationSymmetric": activations == "s8", "WeightSymmetric": True},
        )
    return whole, narrow
