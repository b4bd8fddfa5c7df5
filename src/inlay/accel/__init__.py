"""The accelerator interface: one Python file describes a device, and everything else follows from it.

`api` is all that such a file imports. A file says what the hardware *is* (memories, queues, instructions,
what it takes and how a command is written), never how to use it. `accelerator` checks a description,
`match` finds what it takes in a program, `backend` makes a back end of it.
"""
