"""LSTM, GRU and RNN as loops over time.

Each direction is a canonical loop whose carried values are the states and whose stacked rows are the
outputs. What does not depend on the state is done before the loop: the products of all inputs with
the weights are one matrix product. Sequences shorter than the longest keep their last state and give
zeros; a reverse direction reads each sequence from its own end.

Layouts (ONNX, `layout=0`): x `[steps, batch, inputs]`, w `[directions, gates*hidden, inputs]`,
r `[directions, gates*hidden, hidden]`, b `[directions, 2*gates*hidden]`, states
`[directions, batch, hidden]`, y `[steps, directions, batch, hidden]`. With `layout=1` batch comes
first in x, y and the states.

The LSTM that onnxruntime quantizes has w `[directions, inputs, 4*hidden]` and r
`[directions, hidden, 4*hidden]` in integers, with a scale and a zero point for each direction or each
of its columns. What they are multiplied with is quantized where it is computed: all inputs together,
and in each step the states of all sequences.

Source: the operators RNN, GRU and LSTM of ONNX, DynamicQuantizeLSTM of onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from inlay.arith import dtype as dt
from inlay.arith.expr import Int
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.ops_quantized import quantized_product
from inlay.importers.onnx.term import Term, arange, concat, filled, term
from inlay.importers.onnx.values import OnnxValue
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr, Var
from inlay.ir.loop_trace import Step

Activation = Callable[[Term], Term]

_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_STATES = {"RNN": 1, "GRU": 1, "LSTM": 2}
_PLAIN = {
    "relu": "relu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "softsign": "softsign",
    "softplus": "softplus",
}
_SCALED: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "leakyrelu": ("leaky_relu", {"alpha": 0.01}),
    "thresholdedrelu": ("thresholded_relu", {"alpha": 1.0}),
    "hardsigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "elu": ("elu", {"alpha": 1.0}),
}


@dataclass(frozen=True, slots=True)
class _Weights:
    """What rows are multiplied with: `[columns, gates*hidden]`, in reals or quantized."""

    content: Term
    scale: Term | None = None
    zero: Term | None = None

    def product(self, x: Term) -> Term:
        """Return the product of rows with the weights."""
        if self.scale is None or self.zero is None:
            return x.op("matmul", self.content)
        return quantized_product(x, self.content, self.scale, self.zero)

    def within(self, inside: Node) -> _Weights:
        """Return the same weights in another scope."""
        return _Weights(
            Term(inside, self.content.expr), _there(inside, self.scale), _there(inside, self.zero)
        )


@dataclass(frozen=True, slots=True)
class _Direction:
    """What one direction computes with.

    Attributes:
        hidden: size of the state.
        r: recurrent weights.
        w_bias, r_bias: `[gates*hidden]`, None where there is none.
        peepholes: `[3*hidden]` of an LSTM.
        activations: in the order of the operator.
        clip: limit of what goes into activations.
    """

    hidden: int
    r: _Weights
    w_bias: Term | None
    r_bias: Term | None
    peepholes: Term | None
    activations: tuple[Activation, ...]
    clip: Activation

    def gate(self, x: Term, i: int, count: int = 1) -> Term:
        """Cut some gates out of a tensor whose last axis has all of them."""
        return x.part(x.rank - 1, i * self.hidden, (i + count) * self.hidden)


Cell = Callable[["_Direction", Term, Sequence[Term]], tuple[Term, ...]]
"""From a row of products of the inputs, and the states, to the next states."""


def _rnn_cell(d: _Direction, x: Term, states: Sequence[Term]) -> tuple[Term, ...]:
    (h,) = states
    return (d.activations[0](d.clip(_plus(x + d.r.product(h), d.r_bias))),)


def _gru_cell(*, linear_before_reset: bool) -> Cell:
    def cell(d: _Direction, x: Term, states: Sequence[Term]) -> tuple[Term, ...]:
        (h,) = states
        f, g = d.activations
        weights = d.r.content
        recurrent = _plus(h.op("matmul", d.gate(weights, 0, 2)), d.r_bias and d.gate(d.r_bias, 0, 2))
        both = f(d.clip(d.gate(x, 0, 2) + recurrent))
        update, reset = d.gate(both, 0), d.gate(both, 1)
        r, bias = d.gate(weights, 2), d.r_bias and d.gate(d.r_bias, 2)
        if linear_before_reset:
            inner = reset * _plus(h.op("matmul", r), bias)
        else:
            inner = _plus((reset * h).op("matmul", r), bias)
        new = g(d.clip(d.gate(x, 2) + inner))
        return ((-update + 1.0) * new + update * h,)

    return cell


def _lstm_cell(*, coupled: bool) -> Cell:
    """The gates come in the order input, output, forget, cell."""

    def cell(d: _Direction, x: Term, states: Sequence[Term]) -> tuple[Term, ...]:
        h, c = states
        f, g, last = d.activations
        gates = _plus(x + d.r.product(h), d.r_bias)

        def peeped(part: int, i: int, state: Term) -> Term:
            own = d.gate(gates, part)
            return d.clip(own if d.peepholes is None else own + d.gate(d.peepholes, i) * state)

        into = f(peeped(0, 0, c))
        forget = -into + 1.0 if coupled else f(peeped(2, 2, c))
        new = forget * c + into * g(d.clip(d.gate(gates, 3)))
        out = f(peeped(1, 1, new))
        return out * last(new), new

    return cell


def _plus(x: Term, bias: Term | None) -> Term:
    return x if bias is None else x + bias


# --------------------------------------------------------------------------- attributes


def _activations(node: Node, kind: str, directions: int) -> list[tuple[Activation, ...]]:
    names = node.string_list("activations") or _DEFAULTS[kind] * directions
    per = len(_DEFAULTS[kind])
    if len(names) != per * directions:
        raise node.invalid(f"has {len(names)} activations, needed {per * directions}")
    alphas = list(node.float_list("activation_alpha") or ())
    betas = list(node.float_list("activation_beta") or ())
    found = [_activation(node, name, alphas, betas) for name in names]
    return [tuple(found[i * per : (i + 1) * per]) for i in range(directions)]


def _activation(node: Node, name: str, alphas: list[float], betas: list[float]) -> Activation:
    """Return an activation; it takes its parameters from the front of the lists."""
    low = name.lower()
    if low in _PLAIN:
        return lambda x: x.op(_PLAIN[low])
    if low in _SCALED:
        operator, defaults = _SCALED[low]
        attrs = {
            k: (lists.pop(0) if lists else defaults[k])
            for k, lists in (("alpha", alphas), ("beta", betas))
            if k in defaults
        }
        return lambda x: x.op(operator, **attrs)
    if low in ("affine", "scaledtanh"):
        alpha = alphas.pop(0) if alphas else 1.0
        beta = betas.pop(0) if betas else 0.0 if low == "affine" else 1.0
        if low == "affine":
            return lambda x: x * alpha + beta
        return lambda x: (x * beta).op("tanh") * alpha
    raise node.unsupported(f"has activation '{name}'")


def _clip(node: Node) -> Activation:
    if "clip" not in node.attribute_names():
        return lambda x: x
    limit = node.float("clip", 0.0)
    if not limit > 0.0:
        raise node.invalid(f"has clip = {limit}, needed more than 0")
    return lambda x: x.clamp(-limit, limit)


# --------------------------------------------------------------------------- the whole


def _recurrent(kind: str) -> Rule:
    def rule(node: Node) -> tuple[OnnxValue, ...]:
        direction = node.string("direction", "forward")
        if direction not in ("forward", "reverse", "bidirectional"):
            raise node.invalid(f"has direction '{direction}'")
        flows = (False, True) if direction == "bidirectional" else (direction == "reverse",)
        x = term(node, 0)
        batch_first = node.flag("layout")
        if batch_first:
            x = x.transpose(1, 0, 2)
        lengths = term(node, 4).cast(dt.I64) if node.has(4) else None
        activations = _activations(node, kind, len(flows))
        done = [_run(node, kind, x, i, activations[i], lengths, reverse=flow) for i, flow in enumerate(flows)]
        steps, batch = x.shape[0], x.shape[1]
        rows = [y.reshape(steps, 1, batch, y.shape[2]) for y, _ in done]
        states = [
            concat([s[k].reshape(1, batch, s[k].shape[1]) for _, s in done], 0) for k in range(_STATES[kind])
        ]
        y = concat(rows, 1)
        if batch_first:
            y = y.transpose(2, 0, 1, 3)
            states = [s.transpose(1, 0, 2) for s in states]
        return tuple(t.value for t in (y, *states))

    return rule


def _run(
    node: Node,
    kind: str,
    x: Term,
    index: int,
    activations: tuple[Activation, ...],
    lengths: Term | None,
    *,
    reverse: bool,
) -> tuple[Term, tuple[Term, ...]]:
    """Return the outputs `[steps, batch, hidden]` and the last states of one direction."""
    r = _weights(node, 2, 10, index)
    hidden = r.content.shape[0].value
    if hidden is None:
        raise node.unsupported("has a hidden size that is not known")
    if node.int("hidden_size", hidden) != hidden:
        raise node.invalid(f"has hidden_size = {node.int('hidden_size', 0)} and weights of {hidden}")
    gates = _GATES[kind] * hidden
    if r.content.shape[1] != gates:
        raise node.invalid(f"has recurrent weights of {r.content.shape[1]} rows, needed {gates}")
    bias = term(node, 3).at(0, index) if node.has(3) else None
    direction = _Direction(
        hidden,
        r,
        bias and bias.part(0, 0, gates),
        bias and bias.part(0, gates, 2 * gates),
        term(node, 7).at(0, index) if kind == "LSTM" and node.has(7) else None,
        activations,
        _clip(node),
    )
    inputs = _reversed(x, lengths) if reverse and lengths is not None else x
    products = _weights(node, 1, 8, index).product(inputs)
    products = _plus(products, direction.w_bias)
    start = tuple(_start(node, 5 + k, index, x, hidden) for k in range(_STATES[kind]))
    plain = reverse and lengths is None
    y, last = _loop(node, kind, direction, products, start, lengths, backward=plain)
    return (_reversed(y, lengths) if reverse and lengths is not None else y), last


def _weights(node: Node, i: int, scale: int, index: int) -> _Weights:
    """Return the weights of a direction; their scale and zero point are two inputs, if any."""
    content = term(node, i).at(0, index)
    if not node.has(scale):
        return _Weights(content.transpose(1, 0))
    of_all = [term(node, scale + k) for k in range(2)]
    return _Weights(content, *(t.at(0, index) for t in of_all))


def _start(node: Node, i: int, index: int, x: Term, hidden: int) -> Term:
    if not node.has(i):
        return filled(node, 0.0, (x.shape[1], hidden), x.dtype)
    state = term(node, i)
    if node.flag("layout"):
        state = state.transpose(1, 0, 2)
    return state.at(0, index)


def _cell(node: Node, kind: str) -> Cell:
    match kind:
        case "RNN":
            return _rnn_cell
        case "GRU":
            return _gru_cell(linear_before_reset=node.flag("linear_before_reset"))
        case _:
            return _lstm_cell(coupled=node.flag("input_forget"))


def _loop(
    node: Node,
    kind: str,
    d: _Direction,
    products: Term,
    start: tuple[Term, ...],
    lengths: Term | None,
    *,
    backward: bool,
) -> tuple[Term, tuple[Term, ...]]:
    cell = _cell(node, kind)
    sequences = [products.expr]
    if lengths is not None:
        sequences.append(_running(node, products.shape[0], lengths).expr)

    def body(scope: Builder, carried: tuple[Var, ...], rows: tuple[Expr, ...]) -> Step:
        inside = node.within(scope)
        direction = d if scope is node.b else _moved(d, inside)
        old = [Term(inside, c) for c in carried]
        new = cell(direction, Term(inside, rows[0]), old)
        y = new[0]
        if lengths is not None:
            runs = Term(inside, rows[1])
            y = runs.where(y, 0.0)
            new = tuple(runs.where(n, o) for n, o in zip(new, old, strict=True))
        return Step([n.expr for n in new], [y.expr])

    flags = (backward,) * len(sequences)
    done = node.b.scan(
        [s.expr for s in start],
        sequences,
        body,
        reverse_sequences=flags,
        reverse_rows=(backward,),
        names=("h", "c"),
        name=node.loop_name,
    )
    return Term(node, done.stacked[0]), tuple(Term(node, c) for c in done.carried)


def _moved(d: _Direction, inside: Node) -> _Direction:
    """Return the same direction, working in the scope of the loop's body."""
    return _Direction(
        d.hidden,
        d.r.within(inside),
        _there(inside, d.w_bias),
        _there(inside, d.r_bias),
        _there(inside, d.peepholes),
        d.activations,
        d.clip,
    )


def _there(inside: Node, x: Term | None) -> Term | None:
    return None if x is None else Term(inside, x.expr)


def _running(node: Node, steps: Int, lengths: Term) -> Term:
    """Return for each step and sequence whether it has not ended: `[steps, batch, 1]`."""
    at = arange(node, steps).reshape(steps, 1, 1)
    return at < lengths.reshape(1, lengths.shape[0], 1)


def _reversed(x: Term, lengths: Term | None) -> Term:
    """Turn each sequence of `[steps, batch, ...]` around, within its own length."""
    assert lengths is not None, "without lengths the loop itself runs backward"
    node, steps, batch = x.node, x.shape[0], x.shape[1]
    at = arange(node, steps).reshape(steps, 1)
    ends = lengths.reshape(1, batch)
    source = (at < ends).where(ends - (at + 1), at)
    rows = arange(node, batch).reshape(1, batch).broadcast((steps, batch))
    index = concat([source.reshape(steps, batch, 1), rows.reshape(steps, batch, 1)], 2)
    return x.op("gather_nd", index, batch=0)


RULES: Mapping[str, Rule] = {kind: _recurrent(kind) for kind in _DEFAULTS}

QUANTIZED: Mapping[str, Rule] = {"DynamicQuantizeLSTM": RULES["LSTM"]}
"""Of onnxruntime."""
