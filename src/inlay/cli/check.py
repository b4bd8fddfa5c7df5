"""`inlay check FILE.py`: whether the description of an accelerator is right, and its driver does it.

Programs that each pattern takes are drawn and computed three times: by what they mean, by the loop nest
of the instruction, and by the driver. It all happens in a process of its own, which may crash or hang.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from inlay.accel.apart import checked
from inlay.accel.kit import Checked
from inlay.base.diagnostics import error
from inlay.base.registry import suggestion
from inlay.cli._command import Command, Output
from inlay.cli._numbers import MOST, integer, number
from inlay.codegen.backend_table import accelerators
from inlay.machine.device import DESCRIPTION


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a description of an accelerator (.py), or the name of one that is here")
    parser.add_argument("--trials", type=integer(1, 10**6), default=50, help="programs for each pattern; 50")
    parser.add_argument("--seed", type=integer(0, MOST), default=0, help="of what is drawn")
    parser.add_argument("--seconds", type=number(86400.0), default=300.0, help="after which it is ended; 300")


def _run(arguments: argparse.Namespace, output: Output) -> int:
    name = arguments.file
    if name.endswith(DESCRIPTION) and not Path(name).is_file():
        raise error("load.missing", f"found no file {name}, needed the description of an accelerator")
    if not name.endswith(DESCRIPTION) and name not in accelerators():
        known = list(accelerators())
        hint = suggestion(name, known, f"known: {', '.join(known)}; files end in {DESCRIPTION}")
        raise error("name.unknown", f"found no accelerator named '{name}'", hint=hint)
    found: list[Checked] = []
    for step in checked(name, arguments.trials, arguments.seed, arguments.seconds):
        found.append(step)
        output.say(f"{'FAILED' if step.failure else 'ok':7} {step.section}: {step.what}")
        if step.failure:
            output.say(f"        {step.failure}")
        if step.at:
            output.say(f"        look at {step.at} first")
        if step.program:
            output.say("        the smallest program that shows it:")
            for line in step.program.splitlines():
                output.say(f"          {line}")
    failed = [x for x in found if x.failure]
    output.say(f"{len(found) - len(failed)} of {len(found)} checks hold (seed {arguments.seed})")
    output.record(checks=[asdict(x) for x in found], failed=len(failed))
    return 1 if failed else 0


COMMAND = Command(_arguments, _run)
