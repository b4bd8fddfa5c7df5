"""Finds the types that a program in text form does not say; see `analysis.infer_types`.

It stands first where text comes in. Importers and passes make typed nodes, and for their programs it
changes nothing.
"""

from __future__ import annotations

from inlay.analysis.infer_types import infer_types
from inlay.ir.module import Module
from inlay.passes.contract import Pass, PassContext, Property


def run(module: Module, context: PassContext) -> Module:
    """Return the module with every node typed.

    Raises:
        CompileError: with all independent findings, of the ids `type.*` and `name.unknown`.
    """
    del context
    return infer_types(module)


PASS = Pass(__name__, run, "find the types that the text does not say", establishes=(Property.TYPED,))
