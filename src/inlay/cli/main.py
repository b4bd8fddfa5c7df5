"""The entry point: finds the command, runs it, turns failures into words and exit codes.

0   done
1   the user's program, model or file is at fault, or asks for what we cannot do
2   wrong usage
3   a program that was accepted failed while it ran, or does not take its inputs
70  our fault
124 a run did not end in time
130 interrupted, or a run was given up
143 told to end (SIGTERM)
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Sequence
from dataclasses import replace
from types import FrameType

import inlay
from inlay.base.catalog.table import find
from inlay.base.diagnostics import (
    Cancelled,
    CompileError,
    DeadlineError,
    Diagnostic,
    InternalError,
    RunError,
    diagnostic,
    printable,
    render,
    to_json,
)
from inlay.base.registry import ModuleTable
from inlay.cli._command import Command, Output, print_json, warn
from inlay.cli._usage import UsageError, parse, top_parser

REFUSED, USAGE, FAILED, FAULT, LATE, STOPPED, TERMINATED = 1, 2, 3, 70, 124, 130, 143


def commands() -> ModuleTable[Command]:
    """Return the commands by name; a file is imported when its command is asked for."""
    return ModuleTable("command", "inlay.cli", lambda module: module.COMMAND)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    # What the terminal's encoding lacks is shown as its escape: a name must not end a command.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _termination():
            return _reported(words)
    except BrokenPipeError:
        # Whoever read us has seen enough; what Python would still flush has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as failure:  # the stream for results took not even what went wrong
        warn(f"error: {_told(failure)}")
        return REFUSED


@contextlib.contextmanager
def _termination() -> Generator[None, None, None]:
    """Let SIGTERM unwind what runs, so that no half of a file is left."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _reported(words: Sequence[str]) -> int:
    """Run a command line and say what went wrong; return the exit code."""
    as_json, with_traceback = "--json" in words, "--traceback" in words
    try:
        return _run(words)
    except UsageError as failure:
        _report(failure.diagnostics, as_json=as_json)
        return USAGE
    except (CompileError, RunError) as failure:
        _report([_with_remedy(d) for d in failure.diagnostics], as_json=as_json)
        return exit_code(failure)
    except BrokenPipeError:
        raise
    except OSError as failure:  # a file that cannot be read or written: the system says which and why
        _report([diagnostic("", _told(failure))], as_json=as_json)
        return REFUSED
    except MemoryError as failure:
        _report([diagnostic("", f"not enough memory: {failure}")], as_json=as_json)
        return REFUSED
    except KeyboardInterrupt:
        warn("interrupted")
        return STOPPED
    except Exception as failure:  # the one broad handler: whatever is left is our fault
        if with_traceback:
            traceback.print_exc()
        _report_fault(_fault(failure, words), as_json=as_json)
        return FAULT


def _run(words: Sequence[str]) -> int:
    table = commands()
    arguments = parse(words, table)
    output = Output(as_json=arguments.json)
    code = 0
    if arguments.command is not None:
        code = arguments.command.run(arguments, output)
    elif arguments.version:
        output.say(f"inlay {inlay.__version__}")
        output.record(version=inlay.__version__)
    else:
        output.show(top_parser(table).format_help().rstrip())
        output.record(commands=[name for name in table if name != "main"])
    output.finish()
    return code


def _told(failure: OSError) -> str:
    """Return what the system says of a file as a message of ours."""
    if failure.filename is None or not failure.strerror:
        return str(failure)
    return f"{os.fsdecode(failure.filename)}: {failure.strerror}"


def exit_code(failure: CompileError | RunError) -> int:
    """Return what the command ends with."""
    match failure:
        case DeadlineError():
            return LATE
        case Cancelled():
            return STOPPED
        case RunError():
            return FAILED
        case CompileError():
            return REFUSED


def _report(findings: Sequence[Diagnostic], *, as_json: bool) -> None:
    """Show findings one by one, each with what to do."""
    if as_json:
        print_json({"errors": [to_json(d) for d in findings]})
        return
    for finding in findings:
        print(render(finding), file=sys.stderr)
    first = findings[0].id
    if first and first != "option.usage":
        warn(f"`inlay errors {first}` explains")


def _with_remedy(finding: Diagnostic) -> Diagnostic:
    """Return a finding with the remedy of its kind, where it has no hint of its own."""
    entry = find(finding.id)
    return finding if finding.hint or entry is None else replace(finding, hint=entry.remedy)


def _fault(failure: Exception, words: Sequence[str]) -> InternalError:
    """Return a fault of ours, with where it was seen and how to see it again."""
    reproduce = f"inlay {shlex.join(words)} --traceback"
    if isinstance(failure, InternalError):
        return InternalError(failure.message, where=failure.where, reproduce=failure.reproduce or reproduce)
    frames = traceback.extract_tb(failure.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return InternalError(f"{type(failure).__name__}: {failure}", where=where, reproduce=reproduce)


def _report_fault(fault: InternalError, *, as_json: bool) -> None:
    if as_json:
        finding = diagnostic("internal", fault.message, notes=(fault.where, fault.reproduce))
        print_json({"errors": [to_json(finding)]})
    else:
        print(printable(str(fault), lines=True), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
