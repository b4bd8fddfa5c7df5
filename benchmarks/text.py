"""How scanning and printing of program text grow with its length: both are to be linear."""

from __future__ import annotations

from inlay.base import doc
from inlay.base.garbage import paused
from inlay.base.lexer import TokenStream
from inlay.base.span import Source
from measure import Report, measure


def program(lines: int) -> str:
    """Return a text that looks like a long let spine."""
    return "\n".join(
        f"let %x{i + 1}: Tensor[n, 64, f32] = add(%x{i}, %w{i}) {{axis = 1}};" for i in range(lines)
    )


def document(lines: int) -> doc.Doc:
    """Return the same as a document."""
    tensor = doc.bracket("Tensor[", ["n", "64", "f32"], "]")
    return doc.lines(
        doc.concat(f"let %x{i}: ", tensor, " = add", doc.bracket("(", [f"%x{i}", f"%w{i}"], ")"))
        for i in range(lines)
    )


def main() -> None:
    """Print microseconds for each line at growing lengths."""
    report = Report("text of programs, microseconds a line", ["lines", "scan", "build", "render"])
    for lines in (1_000, 10_000, 100_000):
        source = Source("t", program(lines))
        laid_out = document(lines)
        with paused():
            times = [
                measure(lambda source=source: TokenStream(source), repeat=3).least,
                measure(lambda lines=lines: document(lines), repeat=3).least,
                measure(lambda made=laid_out: doc.render(made), repeat=3).least,
            ]
        report.row(lines, *(t / lines * 1e6 for t in times))


if __name__ == "__main__":
    main()
