"""Write runtime/src/opcodes.inc and docs/language/bytecode_table.md from the opcode table.

Run without arguments to write, with `--check` to say whether the files are up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from inlay.bytecode.formula import OPERATOR_NAMES  # noqa: E402
from inlay.bytecode.isa import DTYPES, INSTRUCTIONS, Instruction, Item, Kind, OperandKind  # noqa: E402

_OPERAND_LETTERS = {
    OperandKind.IMMEDIATE: "i",
    OperandKind.POOL: "p",
    OperandKind.COUNT: "n",
    OperandKind.INDEX: "x",
    OperandKind.TAG: "t",
    OperandKind.SLOT: "s",
    OperandKind.CONSTANT: "c",
    OperandKind.FUNCTION: "f",
    OperandKind.KERNEL: "k",
    OperandKind.MESSAGE: "m",
    OperandKind.MEMORY: "M",
    OperandKind.DTYPE: "d",
    OperandKind.RANK: "r",
    OperandKind.ALIGN: "a",
    OperandKind.TARGET: "j",
    OperandKind.TARGETS: "J",
    OperandKind.SHAPE: "e",
}
_KIND_LETTERS = {
    Kind.INT: "I",
    Kind.TENSOR: "T",
    Kind.STORAGE: "S",
    Kind.TUPLE: "U",
    Kind.ADT: "A",
    Kind.CLOSURE: "C",
    Kind.CELL: "L",
    Kind.ANY: "V",
    None: "*",
}
_OF_LETTERS = {"params": "P", "results": "R", "tensors": "T", "ints": "N"}

_C_HEAD = """\
/* Generated from src/inlay/bytecode/isa.py by tools/gen_opcodes.py; do not edit.
 *
 * INLAY_OP(name, number, operands, popped, pushed)
 *   operands  one letter for each: i immediate, p pool, n count, x index, t tag, s slot,
 *             c constant, f function, k kernel, m message, M memory, d dtype, r rank, a align,
 *             j target, J targets, e native shape code
 *   popped    pairs of a kind (I T S U A C L, V for any, * for the declared kinds of a function)
 *   pushed    and how many: 1, or the value of operand a, b or c, or of operand a the params (P),
 *             results (R), tensors (T) or integers (N). "!" where the verifier has its own case.
 */
"""


def _letters(row: Instruction, items: tuple[Item, ...]) -> str:
    labels = [label for label, _ in row.operands]
    made = ""
    for item in items:
        if isinstance(item.times, int):
            assert item.times == 1, "a literal item stands for one slot"
            times = "1"
        elif item.of == "value":
            times = "abc"[labels.index(item.times)]
        else:
            assert labels.index(item.times) == 0, "functions and kernels are the first operand"
            times = _OF_LETTERS[item.of]
        made += _KIND_LETTERS[item.kind] + times
    return made


def c_table() -> str:
    """Return the text of runtime/src/opcodes.inc."""
    lines = [_C_HEAD]
    for code, row in enumerate(INSTRUCTIONS):
        operands = "".join(_OPERAND_LETTERS[kind] for _, kind in row.operands)
        popped, pushed = (
            ("!", "!") if row.effect is None else (_letters(row, row.effect[0]), _letters(row, row.effect[1]))
        )
        fields = f'{row.name}, {code}, "{operands}", "{popped}", "{pushed}"'
        lines.append(f"INLAY_OP({fields}) /* {row.meaning} */\n")
    return "".join(lines)


def effect_text(row: Instruction) -> str:
    """Return the stack effect of an instruction as `popped -> pushed`."""
    if row.effect is None:
        return "see meaning"

    def side(items: tuple[Item, ...]) -> str:
        words: list[str] = []
        for item in items:
            name = "" if item.kind is None else item.kind.name.lower()
            if isinstance(item.times, int):
                words.append(name)
            elif item.of in ("params", "results"):
                words.append(f"{item.of}({item.times})")
            else:
                count = item.times if item.of == "value" else f"{item.of}({item.times})"
                words.append(f"{name}*{count}")
        return " ".join(words)

    return f"{side(row.effect[0])} -> {side(row.effect[1])}".strip()


def markdown_table() -> str:
    """Return the page of instructions, element types and operators of formulas."""
    lines = [
        "# Instructions",
        "",
        "Generated from `src/inlay/bytecode/isa.py` by `tools/gen_opcodes.py`; do not edit.",
        "`f`: may fail (beyond a value of the wrong kind). `w`: needs the contents of a tensor.",
        "`e`: control does not fall through.",
        "",
        "| number | name | operands | stack | flags | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for code, row in enumerate(INSTRUCTIONS):
        operands = ", ".join(label if label == kind else f"{label}: {kind}" for label, kind in row.operands)
        flags = "".join(
            letter for letter, is_set in (("f", row.can_fail), ("w", row.can_wait), ("e", row.ends)) if is_set
        )
        meaning = row.meaning.replace("|", "\\|")
        lines.append(f"| {code} | `{row.name}` | {operands} | `{effect_text(row)}` | {flags} | {meaning} |")
    lines += ["", "# Element types", "", "| number | name | bytes |", "|---|---|---|"]
    lines += [f"| {code} | `{name}` | {size} |" for code, (name, size) in enumerate(DTYPES)]
    lines += ["", "# Operators of formulas", "", "| number | name |", "|---|---|"]
    lines += [f"| {code} | `{name}` |" for code, name in enumerate(OPERATOR_NAMES)]
    return "\n".join(lines) + "\n"


FILES = {
    ROOT / "runtime" / "src" / "opcodes.inc": c_table,
    ROOT / "docs" / "language" / "bytecode_table.md": markdown_table,
}


def main() -> int:
    """Write or check the files; return the exit code."""
    stale = [path for path, make in FILES.items() if not path.exists() or path.read_text() != make()]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale; run tools/gen_opcodes.py")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES[path]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
