"""Whether this machine can run the native code of an executable, decided before it runs."""

from __future__ import annotations

from inlay.base.diagnostics import error
from inlay.bytecode.program import ImageTarget
from inlay.machine import target as machine
from inlay.machine._permission import permitted


def this_machine() -> machine.Target:
    """Return what this machine offers to code.

    Raises:
        UnsupportedError: `target.*` where this machine is not known at all.
    """
    return machine.host()


def check_target(target: ImageTarget) -> None:
    """Refuse code that this machine cannot run.

    Raises:
        CompileError: `container.target`, `container.permission`;
            `target.*` where this machine is not known at all.
    """
    if not target.triple:
        return
    here = this_machine()
    if target.triple.partition("-")[0] != here.arch:
        raise error(
            "container.target",
            f"the executable holds code for {target.triple}, this machine is {here.arch}",
            hint="compile the model for this machine",
        )
    if refused := [name for name in target.features if not permitted(name)]:
        raise error(
            "container.permission",
            f"the native code uses {', '.join(refused)}, which this system does not let the process use",
            hint="compile the model on this machine, or for fewer features",
        )
    if lacking := [name for name in target.features if name not in here.features]:
        raise error(
            "container.target",
            "the executable needs CPU features that this machine lacks: " + ", ".join(lacking),
            hint="compile the model on this machine, or for fewer features",
        )
