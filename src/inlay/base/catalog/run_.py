"""Errors while an executable runs, all `RunError`. It stays usable after each of them."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

_RELATION = "Check the sizes of the inputs against what the model expects."
_REPORT = "Report it: the compiler should have refused the program."

ENTRIES = (
    Entry(
        id="run.check-failed",
        title="a condition that could only be checked while running does not hold",
        explanation=(
            "Some relations between sizes, or values such as indices, are known only when the "
            "model runs. One of them does not hold; the message says which."
        ),
        remedy=_RELATION,
    ),
    Entry(
        id="run.bad-text",
        title="a string that does not say what is needed",
        explanation=(
            "Strings are read as numbers in decimal, plain or with an exponent, or as NaN, INF and "
            "-INF; integers have no point and fit 64 bits."
        ),
        remedy="Look at the strings that go in; the message quotes the first that is not a number.",
    ),
    Entry(
        id="run.bad-handle",
        title="a number that stands for no string",
        explanation=(
            "The machine holds strings as positions in a table. A result has a position outside of it: "
            "the program file is damaged, or a kernel in C wrote one."
        ),
        remedy="Compile the model again.",
    ),
    Entry(
        id="run.int-overflow",
        title="an integer that does not fit",
        explanation="Sizes and counters are 64-bit integers, and a result does not fit its type.",
        remedy=_RELATION,
    ),
    Entry(
        id="run.divide-by-zero",
        title="a size is divided by zero",
        explanation="A size is computed by a division whose divisor is zero for these inputs.",
        remedy=_RELATION,
    ),
    Entry(
        id="run.bad-dims",
        title="dims that no tensor can have here",
        explanation=(
            "A dim is negative, a tensor is larger than its storage, or two tensors that must "
            "have equal dims do not."
        ),
        remedy=_RELATION,
    ),
    Entry(
        id="run.out-of-range",
        title="an index beyond the end",
        explanation="A row, axis or field is asked for that the value does not have.",
        remedy=_RELATION,
    ),
    Entry(
        id="run.read-only",
        title="an input or constant would be written",
        explanation="A kernel writes to a tensor whose memory belongs to the caller or the file.",
        remedy=_REPORT,
    ),
    Entry(
        id="run.bad-argument",
        title="the runtime is called wrongly",
        explanation="The embedding program asks for an entry or gives room that does not exist.",
        remedy="Mend the embedding program.",
    ),
    Entry(
        id="run.kind-mismatch",
        title="an instruction meets a value of another kind",
        explanation="A value that came out of a data structure is not of the kind needed.",
        remedy=_REPORT,
    ),
    Entry(
        id="run.stack-limit",
        title="calls nest too deep",
        explanation="The stack of the machine reached its limit, usually by endless recursion.",
        remedy="Raise the limit with `stack_bytes`, or check that the recursion ends.",
    ),
    Entry(
        id="run.out-of-memory",
        title="memory ran out",
        explanation="The system refused memory for a tensor, for the stack or for an object.",
        remedy="Use smaller inputs, or free memory.",
    ),
    Entry(
        id="run.kernel-failed",
        title="a kernel reports an error",
        explanation="A function given by the embedding program failed.",
        remedy="See the error of that function, which is attached.",
    ),
    Entry(
        id="run.bad-result",
        title="a function returns something else than its type rule promised",
        explanation=(
            "The type rule of an operator of yours says which element type and sizes its result "
            "has, and memory is planned for that. Its Python function returned something else."
        ),
        remedy="Mend the function, or the rule.",
    ),
    Entry(
        id="run.cancelled",
        title="the run was interrupted",
        explanation="The caller or the user asked the run to stop.",
        remedy="Run again.",
    ),
    Entry(
        id="run.deadline",
        title="the run did not end in time",
        explanation="The caller gave a time limit, and it passed. Kernels that ran were finished.",
        remedy="Give more time, or make the program faster.",
    ),
    Entry(
        id="run.forked",
        title="a forked process asks for what only its parent has",
        explanation=(
            "A process made by `fork` has none of the threads of its parent: requests that were made "
            "before do not run in it, and some drivers of devices do not work in it at all. "
            "Executables on processors can be called; they are opened anew."
        ),
        remedy="Make requests in the process that needs them, or start it with `spawn`.",
    ),
    Entry(
        id="run.race",
        title="operations touch the same bytes and nothing orders them, or keeps them apart",
        explanation=(
            "With `inlay run --races` or `Settings(races=True)` the accesses of a run are compared. "
            "Two were found that touch the same bytes or cell and do not follow each other, or a "
            "kernel writes to a tensor that it is said to read, or a tensor is read whose bytes "
            "another one has overwritten. It is a fault of a kernel of yours, of a program that "
            "shares a cell between calls that run at the same time, of the runtime or of a plan."
        ),
        remedy="Look at the two operations that the message names; without kernels and cells of your "
        "own, report it with the program and the order (`--schedule`).",
    ),
    Entry(
        id="run.dim-mismatch",
        title="a value has another size than its type says",
        explanation=(
            "A dim of a value contradicts the type of what it is bound to: two inputs that share a "
            "named axis differ in it, or an axis is not the number it must be."
        ),
        remedy="Give values whose axes agree with the signature; the message names the axis.",
    ),
    Entry(
        id="run.type-mismatch",
        title="a value is not of the kind its type says",
        explanation="A tensor of another rank, or something that is no tensor, was given.",
        remedy="Give a value of the rank and kind in the signature.",
    ),
    Entry(
        id="run.arity",
        title="a function is called with another number of arguments",
        explanation="A function takes exactly one argument for each parameter.",
        remedy="Give one value for each parameter.",
    ),
    Entry(
        id="run.device-absent",
        title="a device that this machine does not have",
        explanation=(
            "The executable uses a device, and its driver finds none: the library that drives it "
            "is not installed, or no device is of the kind that is asked for. A device behind a server "
            "is absent where nobody listens who has the same key and a place."
        ),
        remedy=(
            "Install the driver of the device, or start its server (`inlay serve`); or compile for a "
            "board without it."
        ),
    ),
    Entry(
        id="run.device-failed",
        title="a device reports a failure",
        explanation="The driver of a device could not do what it was asked; the message is its own.",
        remedy="Run again; if it stays, test the device with the tools of its maker.",
    ),
    Entry(
        id="run.device-lost",
        title="a device does not answer any more",
        explanation=(
            "The connection to a device in another process or on another machine ended, or the device "
            "was silent for longer than its time-out, or the process that worked for this client there "
            "ended: a kernel may have done that. What was in flight has failed, and what the "
            "device held in its memory is gone. The message names the device and says why."
        ),
        remedy=(
            "Start its server again where it has ended. An executable opens the device anew at its next call."
        ),
    ),
    Entry(
        id="run.server-limit",
        title="a server allows its clients no more",
        explanation=(
            "A server of devices bounds what each client has. What it was asked for took longer than "
            "that, or nothing was asked for so long that the place was given back; the message says "
            "which. What was in flight has failed, and what the device held in its memory is gone."
        ),
        remedy=(
            "Ask for less at a time, or serve with other limits (`inlay serve --seconds`, `--idle`). "
            "An executable opens the device anew at its next call."
        ),
    ),
    Entry(
        id="run.build-failed",
        title="a device's compiler refuses a program",
        explanation=(
            "Code for some devices is compiled by their drivers when an executable is loaded. "
            "The message begins with what the compiler says."
        ),
        remedy="Report it with the message, and with the version of the driver.",
    ),
)
