"""Inputs and outputs that are bound before a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inlay.compat.onnxruntime.failures import InvalidArgument
from inlay.compat.onnxruntime.values import OrtValue, array_at, check_device


class IOBinding:
    """What a run takes and where its outputs go. All memory is that of the processor."""

    def __init__(self, check_input: Callable[[str], None], outputs: tuple[str, ...]) -> None:
        """Bind nothing yet.

        Args:
            check_input: raises where there is no input of a name.
            outputs: the names of the outputs of the model.
        """
        self._check_input = check_input
        self._known = outputs
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, np.ndarray | None] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Bind an array to an input; it is read when the session runs."""
        self._check_input(name)
        self._inputs[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value to an input."""
        self._check_input(name)
        self._inputs[name] = ortvalue

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind memory to an input."""
        check_device(device_type, device_id)
        self.bind_cpu_input(name, array_at(buffer_ptr, shape, element_type))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output; it is also written to memory where some is given."""
        check_device(device_type, device_id)
        memory = None
        if buffer_ptr is not None:
            if shape is None or element_type is None:
                raise InvalidArgument(f"memory for output '{name}' needs a shape and an element type")
            memory = array_at(buffer_ptr, shape, element_type)
        self._ask(name, memory)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output, to be written into a value."""
        self._ask(name, ortvalue.numpy())

    def clear_binding_inputs(self) -> None:
        """Bind no inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Ask for no outputs."""
        self._outputs.clear()
        self._results = []

    def synchronize_inputs(self) -> None:
        """Do nothing: memory of the processor is always ready."""

    def synchronize_outputs(self) -> None:
        """Do nothing: memory of the processor is always ready."""

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last run in the order in which they were bound."""
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return the outputs of the last run as arrays."""
        return [value.content() for value in self._results]

    def feed(self) -> dict[str, Any]:
        """Return the inputs by name."""
        return dict(self._inputs)

    def asked(self) -> list[str]:
        """Return the outputs that are bound.

        Raises:
            InvalidArgument: none is.
        """
        if not self._outputs:
            raise InvalidArgument("no output is bound: bind those that are wanted")
        return list(self._outputs)

    def fill(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Keep the outputs of a run, and write them where they are to go.

        Raises:
            InvalidArgument: bound memory has another shape or type.
        """
        self._results = [OrtValue(v) for v in values]
        for name, value in zip(names, self._results, strict=True):
            memory = self._outputs[name]
            if memory is not None:
                OrtValue(memory).update_inplace(value.numpy())

    def _ask(self, name: str, memory: np.ndarray | None) -> None:
        if name not in self._known:
            raise InvalidArgument(f"Invalid output name: {name}; there are {', '.join(self._known)}")
        self._outputs[name] = memory
