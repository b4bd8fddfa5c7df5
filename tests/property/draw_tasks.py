"""Random programs about calls that may be tasks: closures, cells, lists, trees, loops that data ends, failures.

All values are tensors of three integers, lists, options and trees of those, functions from one to one, and
cells. Functions that take functions are drawn too, beside those that are always there. `dense` is a product
with weights that all its calls share, which may run for many of them at once. What a text says is decided by
its seed alone. A program may stop at one of its checks, each of which has a name of its own.
"""

from __future__ import annotations

import random
import re

ROW = "Tensor[3, i64]"
LIST = f"List[{ROW}]"
FUNCTION = f"fn({ROW}) -> {ROW}"
OPTION = f"Option[{ROW}]"
TREE = f"Tree[{ROW}]"
KINDS = ("row", "list", "option", "tree", "function", "cell")

_PIECES = f"""
data Bin {{ Leaf({ROW}), Node(Bin, Bin) }}

fn dense(x: {ROW}) -> {ROW} {{
  let w = i64[3, 3](1, 2, 0, -1, 0, 1, 1, -1, 2);
  reshape(matmul(reshape(x, shape(1, 3)), w), shape(3))
}}

fn up(f: fn({ROW}, {ROW}) -> {ROW}, t: Bin) -> {ROW} {{
  match t {{
    Leaf(x) => @dense(x),
    Node(a, b) => {{
      let p = @up(f, a);
      let q = @up(f, b);
      @dense(f(p, q))
    }},
  }}
}}

fn both(f: {FUNCTION}, g: {FUNCTION}, x: {ROW}) -> {ROW} {{
  let p = f(x);
  let q = g(neg(x));
  add(p, q)
}}

fn each(f: {FUNCTION}, xs: {LIST}, last: {ROW}) -> {ROW} {{
  match xs {{
    Nil() => last,
    Cons(x, rest) => {{
      let y = f(x);
      let others = @each(f, rest, last);
      add(y, mul(others, i64(3)))
    }},
  }}
}}

fn all(fs: List[{FUNCTION}], x: {ROW}) -> {ROW} {{
  match fs {{
    Nil() => x,
    Cons(f, rest) => {{
      let y = f(x);
      let others = @all(rest, x);
      sub(y, others)
    }},
  }}
}}

fn bump(cell: Ref[{ROW}], x: {ROW}) -> {ROW} {{
  let k: some int k. int[k] = to_control(reduce_sum{{axes=[0], keepdims=false}}(x));
  let old = read(cell);
  write(cell, add(old, if (int_less(int(k), int(0))) {{ neg(x) }} else {{ x }}));
  old
}}
"""


def _before(program: str) -> str:
    """Return what a program uses of what is always there."""
    found = ""
    for piece in reversed(_PIECES.strip().split("\n\n")):
        name = re.match(r"(?:data|fn) (\w+)", piece)
        assert name is not None
        if re.search(rf"(?<!\w){name[1]}\b", found + program):
            found = f"\n{piece}\n{found}"
    return found


class TaskProgram:
    """Writes the text of one program, `main("x", "y") -> ("r", "s", "t")`, both inputs rows.

    Args:
        seed: decides all.
        is_wrong: whether checks stop the program more often.
    """

    def __init__(self, seed: int, *, is_wrong: bool = False) -> None:
        self._random = random.Random(seed)
        self._names = 0
        self._one_in = 4 if is_wrong else 40
        self.higher: list[str] = []
        self.text = self._program()

    def _program(self) -> str:
        higher = "".join(self._function() for _ in range(self._random.randrange(3)))
        body = _Block(self, {"row": ["x", "y"]}, 0)
        if self._random.randrange(2):
            body.cell()
        for _ in range(self._random.randint(4, 9)):
            body.statement()
        result = f"({body.row()}, {body.row()}, @each({body.function()}, {body.rows()}, {body.row()}))"
        lines = "\n".join(f"  {line}" for line in body.lines)
        head = f"fn main(x: {ROW}, y: {ROW}) -> ({ROW}, {ROW}, {ROW}) {{"
        program = f"{higher}\n{head}\n{lines}\n  {result}\n}}\n"
        return f'{_before(program)}{program}\nentry main("x", "y") -> ("r", "s", "t");\n'

    def _function(self) -> str:
        """Return a function that takes a function; those behind it may call it."""
        body = _Block(self, {"row": ["x"], "function": ["f"]}, 1)
        for _ in range(self._random.randint(1, 4)):
            body.statement()
        body.let("row", f"f({body.row()})")
        lines = "\n".join(f"  {line}" for line in body.lines)
        name = self.name("higher")
        result = f"add({body.row()}, {body.row()})"
        self.higher.append(name)
        return f"\nfn {name}(f: {FUNCTION}, x: {ROW}) -> {ROW} {{\n{lines}\n  {result}\n}}\n"

    def name(self, letter: str) -> str:
        """Return a new name."""
        self._names += 1
        return f"{letter}_{self._names}"

    def one_of(self, items: list[str]) -> str:
        """Return one of them."""
        return self._random.choice(items)

    def below(self, limit: int) -> int:
        """Return a number from 0 on."""
        return self._random.randrange(limit)

    def is_rare(self) -> bool:
        """Return whether to write a check that does not always hold."""
        return self._random.randrange(self._one_in) == 0


class _Block:
    """Statements, and what may be named behind them, by what it is."""

    def __init__(self, p: TaskProgram, names: dict[str, list[str]], depth: int) -> None:
        self.p, self.depth = p, depth
        self.names = {what: list(names.get(what, ())) for what in KINDS}
        self.lines: list[str] = []

    def inner(self, *rows: str) -> _Block:
        return _Block(self.p, self.names | {"row": [*self.names["row"], *rows]}, self.depth + 1)

    def let(self, what: str, value: str) -> None:
        name = self.p.name(what[0])
        self.lines.append(f"let {name} = {value};")
        self.names[what].append(name)

    # What exists already, or is written on the spot.

    def row(self) -> str:
        rows = self.names["row"]
        name = self.p.one_of(rows[-4:] if self.p.below(3) else rows)
        match self.p.below(8):
            case 0:
                return f"add({name}, {self.p.one_of(rows)})"
            case 1:
                return f"sub({name}, i64({self.p.below(5)}))"
            case 2:
                return f"neg({name})"
            case _:
                return name

    def rows(self) -> str:
        if self.names["list"] and self.p.below(3):
            return self.p.one_of(self.names["list"])
        text = f"Nil[{ROW}]()"
        for _ in range(self.p.below(4)):
            text = f"Cons({self.row()}, {text})"
        return text

    def function(self) -> str:
        if not self.names["function"]:
            self.closure()
        return self.p.one_of(self.names["function"])

    def sum(self) -> str:
        return f"reduce_sum{{axes=[0], keepdims=false}}({self.row()})"

    # Statements.

    def statement(self) -> None:
        choices = [self.call, self.call, self.branch, self.loop, self.list_of, self.mapped, self.kernel]
        choices += [self.call_all, self.dense, self.option, self.choose, self.tree, self.fold, self.fold_own]
        if self.p.higher:
            choices.append(self.call_higher)
        if self.depth < 2:
            choices += [self.closure, self.closure, self.cell]
        if self.names["cell"]:
            choices += 2 * [self.write, self.read, self.bump]
        if self.p.is_rare():
            choices = [self.check, self.at, self.value]
        choices[self.p.below(len(choices))]()

    def kernel(self) -> None:
        self.let("row", f"maximum({self.row()}, mul({self.row()}, i64({self.p.below(3) - 1})))")

    def call(self) -> None:
        match self.p.below(4):
            case 0:
                self.let("row", f"@both({self.function()}, {self.function()}, {self.row()})")
            case 1:
                self.let("row", f"@each({self.function()}, {self.rows()}, {self.row()})")
            case _:
                self.let("row", f"{self.function()}({self.row()})")

    def call_all(self) -> None:
        """Call functions of a list, which may be of branches, and have cells in common."""
        functions = f"Nil[{FUNCTION}]()"
        for _ in range(1 + self.p.below(3)):
            functions = f"Cons({self.function()}, {functions})"
        self.let("row", f"@all({functions}, {self.row()})")

    def call_higher(self) -> None:
        self.let("row", f"@{self.p.one_of(self.p.higher)}({self.function()}, {self.row()})")

    def dense(self) -> None:
        self.let("row", f"@dense({self.row()})")

    def option(self) -> None:
        match self.p.below(4):
            case 0:
                self.let("option", f"None[{ROW}]()")
            case 1:
                self.let("option", f"@list.nth({self.rows()}, int({self.p.below(3)}))")
            case 2:
                self.let("option", f"@option.map({self.function()}, {self.some()})")
            case _:
                self.let("option", f"Some({self.row()})")

    def some(self) -> str:
        options = self.names["option"]
        return self.p.one_of(options) if options and self.p.below(3) else f"Some({self.row()})"

    def choose(self) -> None:
        """What there is in an option, or something else, by a function or by a match."""
        if self.p.below(2):
            self.let("row", f"@option.get({self.some()}, {self.row()})")
        else:
            found = self.p.name("v")
            block = self.inner(found)
            if self.depth < 3:
                block.statement()
            arm = " ".join([*block.lines, block.row()])
            self.let(
                "row", f"match {self.some()} {{ None() => {{ {self.row()} }}, Some({found}) => {{ {arm} }} }}"
            )

    def tree(self) -> None:
        if self.names["tree"] and self.p.below(2):
            self.let("tree", f"@tree.map({self.function()}, {self.p.one_of(self.names['tree'])})")
        else:
            self.let("tree", self.rose(2))

    def rose(self, levels: int) -> str:
        below = f"Nil[{TREE}]()"
        for _ in range(self.p.below(3) if levels else 0):
            below = f"Cons({self.rose(levels - 1)}, {below})"
        return f"Rose({self.row()}, {below})"

    def fold(self) -> None:
        tree = self.p.one_of(self.names["tree"]) if self.names["tree"] else self.rose(2)
        added = f"fn(p: {ROW}, q: {ROW}) -> {ROW} {{ sub(q, p) }}"
        value = self.p.one_of([f"{self.function()}(v)", "@dense(v)", "v"])
        step = f"fn(v: {ROW}, below: {LIST}) -> {ROW} {{ @list.fold_left({added}, {value}, below) }}"
        self.let("row", f"@tree.fold({step}, {tree})")

    def fold_own(self) -> None:
        """A fold that the program itself defines, over a tree whose nodes are written on the spot."""
        step = self.p.one_of(["add(p, q)", "sub(q, p)", f"add(p, {self.function()}(q))"])
        self.let("row", f"@up(fn(p: {ROW}, q: {ROW}) -> {ROW} {{ {step} }}, {self.node(3)})")

    def node(self, levels: int) -> str:
        if not levels or not self.p.below(4):
            return f"Leaf({self.row()})"
        return f"Node({self.node(levels - 1)}, {self.node(levels - 1)})"

    def mapped(self) -> None:
        match self.p.below(3):
            case 0:
                step = f"fn(so_far: {ROW}, e: {ROW}) -> {ROW} {{ sub(so_far, {self.function()}(e)) }}"
                self.let("row", f"@list.fold_left({step}, {self.row()}, {self.rows()})")
            case 1:
                self.let("list", f"@list.append({self.rows()}, {self.rows()})")
            case _:
                self.let("list", f"@list.map({self.function()}, {self.rows()})")

    def list_of(self) -> None:
        self.let("list", self.rows())

    def branch(self) -> None:
        arms = [self.arm(), self.arm()]
        if self.p.below(3) == 0 and len(self.names["function"]) > 1:
            arms = [self.function(), self.function()]
            what = "function"
        else:
            what = "row"
        condition = f"to_control(less(i64({self.p.below(9) - 3}), {self.sum()}))"
        self.let(what, f"if ({condition}) {{ {arms[0]} }} else {{ {arms[1]} }}")

    def arm(self) -> str:
        block = self.inner()
        if self.depth < 3:
            for _ in range(self.p.below(2)):
                block.statement()
        return " ".join([*block.lines, block.row()])

    def loop(self) -> None:
        """Turns that the data counts: in each, the value is read before it is known to go on."""
        go, left = self.p.name("go"), self.p.name("k")
        block = self.inner("h")
        if self.depth < 2:
            block.statement()
        ended = f"sub(n, add(i64(1), mul(i64(0), reduce_sum{{axes=[0], keepdims=false}}({block.row()}))))"
        body = " ".join([*block.lines, f"{go}(add({block.row()}, h), {ended})"])
        self.lines.append(
            f"let {go} = fn(h: {ROW}, n: Tensor[i64]) -> {ROW} {{ "
            f"let {left}: some int {left}. int[{left}] = to_control(n); "
            f"if (int_less(int(0), int({left}))) {{ {body} }} else {{ h }} }};"
        )
        self.let("row", f"{go}({self.row()}, i64({self.p.below(4)}))")

    def closure(self) -> None:
        block = self.inner("a")
        if self.p.below(3) == 0:  # a cell of its own
            block.cell()
        for _ in range(1 + self.p.below(2)):
            if self.depth < 2:
                block.statement()
        value = " ".join([*block.lines, block.row()])
        self.let("function", f"fn(a: {ROW}) -> {ROW} {{ {value} }}")

    def cell(self) -> None:
        self.let("cell", f"ref({self.row()})")

    def write(self) -> None:
        self.lines.append(f"write({self.p.one_of(self.names['cell'])}, {self.row()});")

    def read(self) -> None:
        self.let("row", f"read({self.p.one_of(self.names['cell'])})")

    def bump(self) -> None:
        self.let("row", f"@bump({self.p.one_of(self.names['cell'])}, {self.row()})")

    def check(self) -> None:
        found = self.p.name("k")
        self.lines.append(f"let {found}: some int {found}. int[{found}] = to_control({self.sum()});")
        low = self.p.below(12) - 8
        self.let("row", f'check_at_least{{low={low}, why="{found}"}}({self.row()}, int({found}))')

    def at(self) -> None:
        self.let("row", f"@list.at({self.rows()}, int({self.p.below(3) - 1}))")

    def value(self) -> None:
        self.let("row", f"@option.value({self.some()})")
