"""What a program is given from outside: the functions that its kernels name, no fewer and no others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from inlay.base.diagnostics import error
from inlay.base.registry import unknown_name
from inlay.bytecode.program import FunctionBody, HostBody, Kernel, SymbolBody
from inlay.runtime.native import Callback


def called(kernels: tuple[Kernel, ...], callbacks: Mapping[str, Callback]) -> dict[Kernel, Callback]:
    """Return the functions that kernels name, of those that were given."""
    return {
        kernel: callbacks[kernel.body.name]
        for kernel in kernels
        if isinstance(kernel.body, HostBody) and kernel.body.name in callbacks
    }


def check_meant(kernels: tuple[Kernel, ...], callbacks: Iterable[str], symbols: Iterable[str]) -> None:
    """Refuse functions that the program does not ask for.

    Raises:
        CompileError: `name.unknown`.
    """
    bodies = [kernel.body for kernel in kernels]
    functions = list(dict.fromkeys(b.name for b in bodies if isinstance(b, HostBody)))
    addresses = [b.symbol for b in bodies if isinstance(b, SymbolBody)]
    addresses += [b.name for b in bodies if isinstance(b, FunctionBody)]
    for name in callbacks:
        if name not in functions:
            raise unknown_name("Python function of this program", name, functions)
    for name in symbols:
        if name not in addresses:
            raise unknown_name("C function of this program", name, list(dict.fromkeys(addresses)))


def check_given(
    kernels: tuple[Kernel, ...],
    callbacks: Mapping[Kernel, Callback],
    symbols: Mapping[str, int],
    owners: Mapping[str, str],
) -> None:
    """Refuse to begin without functions that the program asks for.

    Args:
        kernels: of the program.
        callbacks: functions of Python that are there.
        symbols: functions of C that are there.
        owners: devices of kernels that only the process has that compiled the program, by name.

    Raises:
        CompileError: `container.symbol`.
    """
    for kernel in kernels:
        match kernel.body:
            case HostBody(name=name) if kernel not in callbacks and name in owners:
                raise error(
                    "container.symbol",
                    f"the program needs what brings commands to '{owners[name]}' for {name}, which only the "
                    "process has that compiled it",
                    hint="run the model itself, on its board; or give it as one of `callbacks`",
                )
            case HostBody(name=name) if kernel not in callbacks:
                raise error(
                    "container.symbol",
                    f"the program needs the Python function of '{name.partition(':')[0]}'",
                    hint="give it: externs=[inlay.extern(...)], or `callbacks`",
                )
            case SymbolBody(symbol=name) | FunctionBody(name=name) if name not in symbols:
                raise error(
                    "container.symbol",
                    f"the program needs the C function of '{name}'",
                    hint="give it: externs=[inlay.extern(...)], or `symbols`",
                )
            case _:
                pass
