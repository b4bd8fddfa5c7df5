"""Errors of the form of tensor programs, found by the verifier."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="ir.bound-twice",
        title="a variable that is bound more than once",
        explanation="A variable is an object, and each has one binder in the whole module.",
        remedy="Copy an expression with `ir.walk.copy`, which renames, before it is used twice.",
    ),
    Entry(
        id="ir.unbound-variable",
        title="a variable that is used where it is not visible",
        explanation="A variable is visible in the body of the let, function or arm that binds it.",
        remedy="Bind it further out, or move its use.",
    ),
    Entry(
        id="ir.unbound-dim",
        title="a dim that is mentioned where it is not bound",
        explanation=(
            "Dims are bound by functions, and by lets, parameters and patterns whose value has a `some` type."
        ),
        remedy="Bind it in the function (`fn<n>`), or name it where it is decided: `: some n. T`.",
    ),
    Entry(
        id="ir.unknown-type",
        title="a node without a type",
        explanation="Only programs that were just read may have nodes of unknown type.",
        remedy="Run type inference, or write the types of parameters.",
    ),
    Entry(
        id="ir.type",
        title="a node whose parts do not fit together",
        explanation="A node has parts that its kind cannot have, whatever the inputs are.",
        remedy="Make nodes with `ir.make`, which refuses such parts.",
    ),
    Entry(
        id="ir.match-not-exhaustive",
        title="a match that forgets a value",
        explanation="The arms of a match must cover every value of the type.",
        remedy="Add an arm for the pattern in the message, or `_ =>`.",
    ),
    Entry(
        id="ir.unknown-global",
        title="a global that the module does not have",
        explanation="The name is that of no function and no kernel of the module.",
        remedy="Add the function, or correct the name.",
    ),
    Entry(
        id="ir.data-type",
        title="a data type or constructor that does not exist as it is used",
        explanation="Data types are found by name in the module, constructors by name and tag.",
        remedy="Add the data type, or correct the name and the number of arguments.",
    ),
    Entry(
        id="ir.constant",
        title="a constant that is not what its type says",
        explanation="The value and the type of a constant must agree, and arrays are read-only.",
        remedy="Make constants with `ir.make`.",
    ),
    Entry(
        id="ir.entry",
        title="an entry that does not fit its function",
        explanation="An entry names each parameter and each result of a function of the module.",
        remedy="Give as many names as the function has parameters and results.",
    ),
    Entry(
        id="ir.place",
        title="places that do not fit a value",
        explanation=(
            "A place with places for its parts stands on a value with as many parts: the fields of "
            "a tuple, the arguments of a data type, the parameters and the result of a function."
        ),
        remedy="Give one place for each field.",
    ),
)
