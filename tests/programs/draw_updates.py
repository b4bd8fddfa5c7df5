"""Draws programs that update tables: chains of scatters and slices, what reads them, and inputs for them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Drawn:
    """A program, what a session of it carries, and what makes inputs."""

    text: str
    carry: dict[str, str]
    shapes: dict[str, tuple[int, ...]]
    makers: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = field(default_factory=dict)

    def state(self) -> dict[str, np.ndarray]:
        """Return first values."""
        r = np.random.default_rng(7)
        return {n: r.integers(-9, 9, s).astype(np.float32) for n, s in self.shapes.items()}

    def inputs(self, seed: int, *, fails: bool = False) -> dict[str, np.ndarray]:
        """Return inputs of a run, which fails behind its updates if that is asked for."""
        r = np.random.default_rng(seed)
        n = int(r.integers(0, 4))
        found = {name: make(r, n) for name, make in self.makers.items()}
        return {**found, "row": np.array(99 if fails else 1)}


def draw_program(seed: int) -> Drawn:
    """Return a program of one to three tables with one to three updates each."""
    draw = random.Random(seed)
    drawn = Drawn("", {}, {})
    params, lines, outs = list[str](), list[str](), list[str]()
    reads: list[str] = []
    for t in range(draw.randint(1, 3)):
        rows, columns = draw.randint(5, 12), draw.randint(1, 5)
        table = f"t{t}"
        drawn.shapes[table] = (rows, columns)
        params.append(f"{table}: Tensor[{rows}, {columns}, f32]")
        now, through_cell = table, draw.random() < 0.4
        if through_cell:
            lines.append(f"let cell{t} = ref({table});")
        for u in range(draw.randint(1, 3)):
            made = f"{table}_{u}"
            given, value = _update(
                draw, drawn, made, f"take(cell{t})" if through_cell else now, rows, columns
            )
            begin, _, value = value.rpartition("; ")
            lines.extend([f"{begin};"] if begin else [])
            params.extend(given)
            lines += (
                [f"put(cell{t}, {value});", f"let {made} = read(cell{t});"]
                if through_cell
                else [f"let {made} = {value};"]
            )
            now = made
            if draw.random() < 0.5:
                reads.append(draw.choice([made, table]))
        outs.append(now)
        drawn.carry[f"{table}.next"] = table
        reads.append(now)
    for k, name in enumerate(reads):
        lines.append(f"let read{k} = reduce_sum{{axes=[0, 1], keepdims=false}}(abs({name}));")
    lines.append("let which: some int which. int[which] = to_control(row);")
    lines.append(f"let part = get_row({outs[0]}, int(which));")
    results = ", ".join(["part", *(f"read{k}" for k in range(len(reads))), *outs])
    names = ["part", *(f"read{k}" for k in range(len(reads))), *drawn.carry]
    given = ", ".join(f'"{p.split(":")[0]}"' for p in [*params, "row: "])
    entry = f"entry main({given}) -> ({', '.join(map(_quoted, names))});"
    body = "\n  ".join(lines)
    drawn.text = (
        f"fn main<n>({', '.join(params)}, row: Tensor[i64]) {{\n  {body}\n  ({results})\n}}\n{entry}\n"
    )
    return drawn


def _quoted(name: str) -> str:
    return f'"{name}"'


def _update(
    draw: random.Random, drawn: Drawn, made: str, now: str, rows: int, columns: int
) -> tuple[list[str], str]:
    """Return params that an update needs, and its text behind a let; note how the params are made."""
    fixed = draw.choice([None, 1, 2])
    n = "n" if fixed is None else str(fixed)
    index, parts = f"{made}_i", f"{made}_u"

    def count(given: int) -> int:
        return given if fixed is None else fixed

    kind = draw.choice(["rows", "elements", "slice", "slice at", "block", "constant"])
    combine = draw.choice(["replace", "replace", "add", "max"])
    drawn.makers[parts] = lambda r, k: r.integers(-9, 9, (count(k), columns)).astype(np.float32)
    own = [f"{parts}: Tensor[{n}, {columns}, f32]"]
    match kind:
        case "rows":
            drawn.makers[index] = lambda r, k: r.integers(-rows, rows, (count(k), 1))
            own.append(f"{index}: Tensor[{n}, 1, i64]")
            return own, f"scatter_nd{{combine={combine}}}({now}, {index}, {parts})"
        case "elements":
            drawn.makers[index] = lambda r, k: r.integers(-rows, rows, (count(k), columns))
            own.append(f"{index}: Tensor[{n}, {columns}, i64]")
            return own, f"scatter_elements{{axis=0, combine={combine}}}({now}, {index}, {parts})"
        case "slice":
            at = draw.randint(0, rows - 3)
            return own, f"update_slice{{axes=[0]}}({now}, neg({parts}), shape({at}))"
        case "block":
            drawn.makers[index] = lambda r, k: np.array([r.integers(0, rows - max(count(k), 1)), 0])
            own.append(f"{index}: Tensor[2, i64]")
            begins = f"let b_{made}: some int r_{made}, int c_{made}. shape[r_{made}, c_{made}] = to_control({index});"
            return own, f"{begins} update_slice{{axes=[0, 1]}}({now}, {parts}, b_{made})"
        case "constant":
            drawn.makers[parts] = lambda r, _k: r.integers(-9, 9, (2, columns)).astype(np.float32)
            a, b = draw.randint(-rows, rows - 1), draw.randint(0, rows - 1)
            own = [f"{parts}: Tensor[2, {columns}, f32]"]
            return own, f"scatter_nd{{combine={combine}}}({now}, i64[2, 1]({a}, {b}), {parts})"
        case _:
            drawn.makers[index] = lambda r, k: np.array(r.integers(0, rows - max(count(k), 1)))
            own.append(f"{index}: Tensor[i64]")
            begin = f"let b_{made}: some int b_{made}. int[b_{made}] = to_control({index});"
            return own, f"{begin} update_slice{{axes=[0]}}({now}, {parts}, shape(b_{made}))"
