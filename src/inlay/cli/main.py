"""The entry point: finds the command, runs it, turns failures into words and exit codes.

0   done
1   the user's program or input is at fault, or asks for what we cannot do
2   wrong usage
70  our fault
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace

from inlay.base.catalog.table import find
from inlay.base.diagnostics import (
    CompileError,
    Diagnostic,
    InternalError,
    diagnostic,
    printable,
    render,
    to_json,
)
from inlay.base.registry import ModuleTable
from inlay.cli._command import Command, Output

USAGE, FAULT = 2, 70


def commands() -> ModuleTable[Command]:
    """Return the commands by name; a file is imported when its command is asked for."""
    return ModuleTable("command", "inlay.cli", lambda module: module.COMMAND)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = _parser(words).parse_args(words)
    output = Output(as_json=arguments.json)
    try:
        code: int = arguments.command.run(arguments, output)
        output.finish()
    except CompileError as failure:
        _report(failure, as_json=arguments.json)
        return 1
    except BrokenPipeError:
        # Whoever read us has seen enough; what Python would still flush has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as failure:  # a file that cannot be read or written: the system says which and why
        if arguments.json:
            found = {"id": "", "severity": "error", "message": str(failure)}
            json.dump({"errors": [found]}, sys.stdout, indent=2)
            sys.stdout.write("\n")
        else:
            print(f"error: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as failure:  # the one broad handler: whatever is left is our fault
        if arguments.traceback:
            traceback.print_exc()
        _report_fault(_fault(failure, words), as_json=arguments.json)
        return FAULT
    return code


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="inlay", description="a tensor compiler for machines made of different parts"
    )
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    table = commands()
    names = [name for name in table if name != "main"]
    # Only the command that is asked for is imported; a list of them shows what their files say.
    for name in names if not words or words[0] not in names else words[:1]:
        summary = table.summary(name).partition("`: ")[2].rstrip(".")
        sub = chosen.add_parser(name, help=summary, description=summary)
        if words[:1] == [name]:
            command = table[name]
            command.add_arguments(sub)
            sub.add_argument("--json", action="store_true", help="print one JSON object")
            sub.add_argument("--traceback", action="store_true", help=argparse.SUPPRESS)
            sub.set_defaults(command=command)
    return parser


def _report(failure: CompileError, *, as_json: bool) -> None:
    """Show findings one by one, each with what to do."""
    findings = [_with_remedy(d) for d in failure.diagnostics]
    if as_json:
        json.dump({"errors": [to_json(d) for d in findings]}, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    for finding in findings:
        print(render(finding), file=sys.stderr)
    if any(finding.id for finding in findings):
        first = findings[0].id
        print(f"`inlay errors {first}` explains", file=sys.stderr)


def _with_remedy(finding: Diagnostic) -> Diagnostic:
    """Return a finding with the remedy of its kind, where it has no hint of its own."""
    entry = find(finding.id)
    return finding if finding.hint or entry is None else replace(finding, hint=entry.remedy)


def _fault(failure: Exception, words: Sequence[str]) -> InternalError:
    """Return a fault of ours, with where it was seen and how to see it again."""
    reproduce = f"inlay {shlex.join(words)} --traceback"
    if isinstance(failure, InternalError):
        return InternalError(
            failure.message, where=failure.where, reproduce=failure.reproduce or reproduce
        )
    frames = traceback.extract_tb(failure.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return InternalError(f"{type(failure).__name__}: {failure}", where=where, reproduce=reproduce)


def _report_fault(fault: InternalError, *, as_json: bool) -> None:
    if as_json:
        finding = diagnostic("internal", fault.message, notes=(fault.where, fault.reproduce))
        json.dump({"errors": [to_json(finding)]}, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        print(printable(str(fault)), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
