"""Samples of operators with symbols for some of their dims and control values."""

from __future__ import annotations

from inlay.arith.expr import Int, Sym, fresh, to_int
from inlay.ir.types import IntType, ShapeType, TensorType, Type
from inlay.ops._define import Sample


def symbolic_types(sample: Sample) -> tuple[tuple[Type, ...], dict[Sym, int]]:
    """Return the types of the arguments with symbols in them, and what the symbols stand for."""
    names: dict[str, Sym] = {}
    values: dict[Sym, int] = {}
    rows = list(zip(sample.args, sample.types(), sample.symbolic, strict=True))
    sizes = {s for _, known, spelled in rows if isinstance(known, TensorType) for s in spelled or ()}

    def dim(spelled: str | int, value: int) -> Int:
        if isinstance(spelled, int):
            assert spelled == value, f"sample {sample.name}: {spelled} is spelled for {value}"
            return to_int(spelled)
        sym = names.setdefault(spelled, fresh(spelled, signed=spelled not in sizes))
        assert values.setdefault(sym, value) == value, f"sample {sample.name}: {spelled} varies"
        return to_int(sym)

    types: list[Type] = []
    for arg, known, spelled in rows:
        match known:
            case TensorType(dtype=dtype) if isinstance(spelled, tuple):
                pairs = zip(spelled, arg.shape, strict=True)
                types.append(TensorType(tuple(dim(s, v) for s, v in pairs), dtype))
            case ShapeType() if isinstance(spelled, tuple):
                types.append(ShapeType(tuple(dim(s, v) for s, v in zip(spelled, arg, strict=True))))
            case IntType() if isinstance(spelled, str):
                types.append(IntType(dim(spelled, arg)))
            case _:
                types.append(known)
    return tuple(types), values
