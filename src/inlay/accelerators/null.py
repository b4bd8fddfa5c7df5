"""Nothing: every section of a description, empty. The template of a new one.

Begin here: copy the file, give it the name that boards are to use, and fill in what the hardware is.
"""

from inlay.accel.api import Absent, Accelerator, CCalls, MHz, Param, Shared


class Null(Accelerator):
    """A device that takes nothing."""

    # ---- attributes: what two boards may build differently
    clock = Param(100 * MHz, "cycles in a second")

    # ---- memories, queues: `Shared` is a memory of the board, `Queue` has commands that start in order
    ram = Shared("the memory of the host")

    # ---- patterns: what is taken (`@pattern`), and why not (`p.need`)

    # ---- instructions: what a command does (`@instruction`); the body of the function is its meaning

    # ---- encoding: how commands are written (`@encodes`)
    emit = CCalls()

    # ---- drivers: who brings commands to a device
    drivers = (Absent("it is a template, and takes nothing"),)

    # ---- cost: cycles stand beside each instruction; here what every command takes besides
    launch_cycles = 0
