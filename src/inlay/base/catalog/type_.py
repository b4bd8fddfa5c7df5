"""Errors of types: what stands where, dims and their relations."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="type.arity",
        title="a wrong number of arguments or fields",
        explanation=("A call, a constructor or a pattern has more or fewer parts than its definition takes."),
        remedy="Give as many as the message says.",
    ),
    Entry(
        id="type.bad-axis",
        title="an axis that the tensor does not have",
        explanation=(
            "Axes are counted from 0, or from the end with negative numbers. One was named beyond "
            "the rank of the tensor, or twice."
        ),
        remedy="Name each axis once, between minus the rank and the rank less one.",
    ),
    Entry(
        id="type.branches-differ",
        title="branches without a common type",
        explanation=(
            "The arms of an if or a match, or elements of one list, must have one type. Dims "
            "may differ, then the result has a `some` type; rank, element type and kind of "
            "value may not."
        ),
        remedy=("Make the branches return the same kind of value, for example with a cast or a reshape."),
    ),
    Entry(
        id="type.cyclic",
        title="a type that contains itself",
        explanation=(
            "Inference found that a type is part of itself, as that of a function that is passed "
            "to itself. No such type is finite."
        ),
        remedy="Wrap the value in a data type, which may mention itself by name.",
    ),
    Entry(
        id="type.dim-mismatch",
        title="two dims that are never equal",
        explanation=(
            "An operator or a function relates two dims, and no sizes of the inputs make them equal."
        ),
        remedy="Compare the shapes at the node in the message.",
    ),
    Entry(
        id="type.dim-too-small",
        title="a dim below its least value",
        explanation="An operator or a declared bound needs a greater number than this can ever be.",
        remedy="Change the attribute or the declared bound.",
    ),
    Entry(
        id="type.dim-undetermined",
        title="a dim that the arguments do not decide",
        explanation=(
            "A function is polymorphic in a dim, and matching its parameters' types against "
            "the arguments leaves the dim unknown, or gives it a different value for each "
            "element of a data structure."
        ),
        remedy=("Pass the dim itself, as a parameter `n: int[n]`, or declare elements of a `some` type."),
    ),
    Entry(
        id="type.dim-unproved",
        title="a relation of dims that has to be proved here",
        explanation=(
            "Most relations that cannot be proved are checked when the program runs. Inside "
            "data structures, cells and function types there is no value to check."
        ),
        remedy="Relate the dims with check_shape before the value is stored or passed.",
    ),
    Entry(
        id="type.dtype-mismatch",
        title="an element type that the operator does not take",
        explanation=(
            "An operator takes certain element types, and tensors that it combines must have the "
            "same one. Nothing is converted silently."
        ),
        remedy="Insert a cast.",
    ),
    Entry(
        id="type.dynamic-rank",
        title="a rank that depends on data",
        explanation="The rank of each tensor must be known when the program is compiled.",
        remedy="Give the shape a known number of elements.",
    ),
    Entry(
        id="type.loop-carried",
        title="a carried value that changes its kind",
        explanation=(
            "What a loop hands from one step to the next may change its dims, but not its rank, its "
            "element type or its kind, and each step hands on as many values as it gets."
        ),
        remedy="Start with a value of the type that the steps make, or convert it in the step.",
    ),
    Entry(
        id="type.stacked-rows",
        title="rows that may differ in size",
        explanation=(
            "The results of the steps of a loop are stacked along a new dim, which takes rows of "
            "one size that is known before the loop."
        ),
        remedy="Relate the size to a dim outside of the loop, or collect the rows in a list.",
    ),
    Entry(
        id="type.mismatch",
        title="a value of another type than needed",
        explanation=(
            "A value stands where the declared type, or the operation, needs another kind of value."
        ),
        remedy="Convert the value, or correct the declaration.",
    ),
    Entry(
        id="type.no-arms",
        title="a match without arms",
        explanation="A match must have at least one arm.",
        remedy="Add an arm for each constructor.",
    ),
    Entry(
        id="type.not-a-function",
        title="a call of something that is no function",
        explanation="Only operators, constructors, kernels and functions can be called.",
        remedy="Remove the parentheses, or call a function.",
    ),
    Entry(
        id="type.op-argument",
        title="an argument that an operator cannot take",
        explanation="The type rule of the operator refuses the type or the attribute.",
        remedy="Read what the operator takes in its documentation.",
    ),
    Entry(
        id="type.polymorphic-recursion",
        title="recursion with other sizes than those of the call",
        explanation=(
            "A function without annotations calls itself with a tensor of another size. Inference "
            "gives each unannotated dim one value in all calls inside of a recursive group."
        ),
        remedy=(
            "Annotate the function with dims that each call chooses, `fn<n>(x: Tensor[n, f32])`, "
            "and its result, `some k. Tensor[k, f32]` where that varies."
        ),
    ),
    Entry(
        id="type.rank-mismatch",
        title="another rank than needed",
        explanation="The tensor has more or fewer dims than the operation takes.",
        remedy="Insert or remove a dim with reshape.",
    ),
    Entry(
        id="type.tuple-index",
        title="a field that the tuple does not have",
        explanation="Fields are numbered from 0.",
        remedy="Use a number below the number of fields.",
    ),
    Entry(
        id="type.undetermined",
        title="a type that nothing determines",
        explanation=(
            "The operators in a function need to know the rank and the element type of a parameter, "
            "and neither an annotation nor a call says them; or a function has no path on which it "
            "returns without calling itself."
        ),
        remedy="Annotate the parameter or the result.",
    ),
    Entry(
        id="type.undetermined-argument",
        title="a type argument that nothing determines",
        explanation=(
            "A constructor or function is polymorphic in a type that none of its arguments "
            "mentions, such as the element of an empty list."
        ),
        remedy="Write the type argument: `Nil[Tensor[4, f32]]()`.",
    ),
)
