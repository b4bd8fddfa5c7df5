"""Errors of the loop IR: its verifier, its evaluator and its schedules."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

_VERIFIER = "The statement breaks a rule of docs/language/loop_ir.md; the message shows both."

ENTRIES = (
    Entry(
        id="loop.too-many-tensors",
        title="an operator with more tensors than a kernel can have",
        explanation="A kernel is given the addresses of its operands and results, and there is a "
        "limit to their number.",
        remedy="Split or join tensors in several steps.",
    ),
    Entry(
        id="loop.name",
        title="a name that is used twice or is not an identifier",
        explanation=("Parameters, blocks and loops are addressed by name, so a name stands for one thing."),
        remedy="Rename one of them.",
    ),
    Entry(
        id="loop.scope",
        title="a symbol or buffer that is not in scope",
        explanation=(
            "Integers may mention dims of the function, variables of surrounding loops and i64 "
            "lets; the body of a block sees its iters and not the loops outside. Buffers are "
            "parameters, workspaces or surrounding allocations."
        ),
        remedy="Bind the symbol outside, or move the statement inside.",
    ),
    Entry(
        id="loop.rank",
        title="an access with the wrong number of indices",
        explanation="A load or a store gives one index for each axis of its buffer.",
        remedy="Give as many indices as the buffer has axes.",
    ),
    Entry(
        id="loop.dtype",
        title="scalars of formats that do not go together",
        explanation="Operands of one operation have one format; conversions are written as casts.",
        remedy="Cast one side.",
    ),
    Entry(
        id="loop.stage",
        title="a statement that this stage does not have",
        explanation=(
            "Blocks exist in schedulable functions only; while loops, and vector loops of plain "
            "statements, in lowered ones."
        ),
        remedy="Lower the function, or do not mix the stages.",
    ),
    Entry(
        id="loop.kind",
        title="a loop of a kind that it cannot have",
        explanation=(
            "Parallel loops are outermost; unrolled and vector loops have a constant extent; the "
            "body of a vector loop holds stores, lets and branches only."
        ),
        remedy="Reorder or split the loop first.",
    ),
    Entry(
        id="loop.race",
        title="iterations that are not independent",
        explanation=(
            "Two iterations of a parallel or vector loop touch the same element, and at least one writes it."
        ),
        remedy="Make the loop serial, or give each iteration its own element.",
    ),
    Entry(
        id="loop.write",
        title="a store to a buffer that is only read",
        explanation="The first parameters of a function are read-only; the rest are written.",
        remedy="Write to another buffer.",
    ),
    Entry(
        id="loop.buffer",
        title="a buffer that its scope does not allow",
        explanation=(
            "Parameters have scope `param`; stack and register buffers have constant shapes; the "
            "shape of a workspace is over the dims of the function."
        ),
        remedy="Choose another scope or shape.",
    ),
    Entry(
        id="loop.block",
        title="a block that is not well formed",
        explanation="A block binds each iter once, and has an init only if it reduces.",
        remedy=_VERIFIER,
    ),
    Entry(
        id="loop.out-of-bounds",
        title="an access outside a buffer",
        explanation="While the function was evaluated, an index was outside its buffer's shape.",
        remedy="This is a fault of the schedule or of the tensor expression it came from.",
    ),
    Entry(
        id="loop.undefined",
        title="a value that nobody wrote",
        explanation="While the function was evaluated, an element was read before it was written.",
        remedy="Initialize the buffer, or move the reader after the writer.",
    ),
    Entry(
        id="loop.argument",
        title="an argument that a loop function cannot take",
        explanation="The arrays given to the evaluator differ from the function's signature.",
        remedy="Give arrays of the shapes and formats of the parameters.",
    ),
    Entry(
        id="loop.assert",
        title="an assertion of a loop function that does not hold",
        explanation="The program itself demands the condition; the message is the program's.",
        remedy="Give inputs for which it holds.",
    ),
    Entry(
        id="loop.no-rule",
        title="an operator that cannot be turned into loops here",
        explanation=(
            "A group of operations becomes a kernel through the compute rules of its operators. "
            "The operator has none, or needs a value that is not known while compiling."
        ),
        remedy="Keep the operator in a group of its own, or run it with the virtual machine.",
    ),
)
