"""Inlay as a backend of ONNX: what the conformance runner of ONNX drives.

    import onnx.backend.test
    from inlay.compat import onnx_backend

    tests = onnx.backend.test.BackendTest(onnx_backend, __name__)
    globals().update(tests.enable_report().test_cases)

`prepare` compiles; a model that Inlay refuses raises the exception that makes the runner skip the
test, with all reasons. The names of this module that the interface asks for are `prepare`,
`run_model`, `run_node` and `supports_device`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from inlay.api import compile as compile_module
from inlay.base.diagnostics import UnsupportedError
from inlay.importers.onnx.graph import import_model
from inlay.ops.table import table
from inlay.runtime.session import Executable


class InlayBackendRep(BackendRep):
    """A compiled model."""

    def __init__(self, executable: Executable, model: onnx.ModelProto) -> None:
        """Keep the executable and the names of what goes in and out, in the order of the model."""
        constants = {t.name for t in model.graph.initializer}
        self._executable = executable
        self._inputs = tuple(i.name for i in model.graph.input if i.name not in constants)
        self._outputs = tuple(o.name for o in model.graph.output)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Args:
            inputs: arrays by position or by name, or one array.
            kwargs: none is known.

        Returns:
            The outputs in order; fields of the tuple have their names where Python allows them.

        Raises:
            TypeError: a keyword argument is given.
            RunError: the inputs do not fit the model (`input.*`, `run.*`).
        """
        if kwargs:
            raise TypeError(f"run knows no arguments {sorted(kwargs)}")
        outputs = self._executable.run(self._named(inputs))
        return namedtupledict("Outputs", list(self._outputs))(*(outputs[n] for n in self._outputs))

    def _named(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return dict(cast("Mapping[str, Any]", inputs))
        given = (inputs,)
        if isinstance(inputs, Sequence) and not isinstance(inputs, np.ndarray):
            given = tuple(cast("Sequence[Any]", inputs))
        if len(given) != len(self._inputs):
            raise ValueError(f"{len(given)} inputs given, the model has {len(self._inputs)}")
        return dict(zip(self._inputs, given, strict=True))


class InlayBackend(Backend):
    """The backend protocol of ONNX over `inlay.compile`."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> InlayBackendRep:
        """Compile a model.

        Args:
            model: the model; external data cannot be found from here.
            device: only "CPU".
            kwargs: options of `inlay.compile`.

        Raises:
            BackendIsNotSupposedToImplementIt: Inlay refuses the model; the message has the reasons.
            CompileError: the model is wrong.
        """
        if not cls.supports_device(device):
            raise BackendIsNotSupposedToImplementIt(f"no device {device}")
        try:
            executable = compile_module(import_model(model, table()), **kwargs)
        except UnsupportedError as refusal:
            raise BackendIsNotSupposedToImplementIt(str(refusal)) from refusal
        return InlayBackendRep(executable, model)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Compile a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Sequence[Any],
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run a single node on arrays: as a model whose inputs have their types and shapes.

        Args:
            node: the node.
            inputs: one array for each input that is not left out.
            device: only "CPU".
            outputs_info: not needed.
            kwargs: `opset_imports` of the model; all else goes to `prepare`.
        """
        del outputs_info
        names = list(dict.fromkeys(name for name in node.input if name))
        declared = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(np.asarray(a).dtype), np.shape(a)
            )
            for name, a in zip(names, inputs, strict=True)
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", declared, results)
        opsets = kwargs.pop("opset_imports", None)
        model = onnx.helper.make_model(graph, **({"opset_imports": opsets} if opsets else {}))
        return cls.run_model(model, list(inputs), device, **kwargs)

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether to try: always, for `prepare` says why where it cannot."""
        del model, kwargs
        return cls.supports_device(device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device can be compiled for, in the spelling of ONNX (`CPU`, `CUDA:1`)."""
        try:
            return Device(device).type == DeviceType.CPU
        except (AttributeError, ValueError):
            return False


prepare = InlayBackend.prepare
run_model = InlayBackend.run_model
run_node = InlayBackend.run_node
is_compatible = InlayBackend.is_compatible
supports_device = InlayBackend.supports_device
