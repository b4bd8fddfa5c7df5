"""How types, operands and places are put in the messages of type inference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from inlay.base.diagnostics import Diagnostic, InlayError, Label, error_of
from inlay.ir.expr import ConstructorRef, Expr, GlobalVar, Var
from inlay.ir.type_printer import type_text
from inlay.ir.types import Type

_META_NAME = re.compile(r"'\?\d+")


def text(t: Type) -> str:
    """Return a type for a message: what is not known is a question mark."""
    return _META_NAME.sub("?", type_text(t))


def labeled(failure: InlayError, labels: tuple[Label, ...]) -> InlayError:
    """Return the failure with further places."""
    found: list[Diagnostic] = [
        replace(d, labels=tuple(dict.fromkeys((*d.labels, *labels)))) for d in failure.diagnostics
    ]
    return error_of(found)


def explained(failure: InlayError, args: Sequence[Expr]) -> InlayError:
    """Add to an error of a call what its operands are, and where they come from."""
    shown = [(a.span, f"{short_name(a, i)} is {text(a.type)}") for i, a in enumerate(args)]
    return labeled(failure, tuple([Label(s, m) for s, m in shown if s])[:4])


def short_name(a: Expr, i: int) -> str:
    """Return how to call an operand in a message."""
    return a.name if isinstance(a, Var) else f"argument {i + 1}"


def called(callee: Expr) -> str:
    """Return the name of what is called."""
    match callee:
        case Var(name=name) | GlobalVar(name=name) | ConstructorRef(name=name):
            return name
        case _:
            return "function"


def of(callee: Expr) -> str:
    """Return the name of what is called, to end a phrase."""
    return f" of {called(callee)}"
