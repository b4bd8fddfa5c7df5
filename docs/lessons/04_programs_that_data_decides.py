"""Programs that data decides: loops, recursion, state that grows, and parts that run at once.

A network is a program like any other. How often a loop turns, which branch is taken and how large a
tensor is may depend on what was computed a moment ago. This lesson generates from a small model until
it says that it is done, runs two such loops at once without naming a thread, gives a request a time
limit, and looks at a timeline.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import numpy as np

import inlay
from inlay.runtime.native import Settings
from inlay.runtime.trace import table, timeline

# What this lesson writes goes to a folder that it throws away.
temporary = tempfile.TemporaryDirectory()
before = Path.cwd()
os.chdir(temporary.name)

# ---------------------------------------------------------------------- 1. until the data says so
# `to_control` reads a value that decides what comes next. A call in last place is a jump, so a loop
# is a function that calls itself. It ends when a state is small enough: nobody knows when.

SIZE = 96
Path("settle.inl").write_text(f"""
fn settle(x: Tensor[{SIZE}, {SIZE}, f32], w: Tensor[{SIZE}, {SIZE}, f32], turns: Tensor[i64])
    -> (Tensor[{SIZE}, {SIZE}, f32], Tensor[i64]) {{
  let large = greater(reduce_max{{axes=[0, 1], keepdims=false}}(abs(x)), f32(0.01));
  if (to_control(large)) {{
    @settle(tanh(matmul(x, w)), w, add(turns, i64(1)))
  }} else {{ (x, turns) }}
}}

fn main(a: Tensor[{SIZE}, {SIZE}, f32], b: Tensor[{SIZE}, {SIZE}, f32],
        w: Tensor[{SIZE}, {SIZE}, f32]) {{
  let left = @settle(a, w, i64(0));
  let right = @settle(b, w, i64(0));
  (add(left.0, right.0), left.1, right.1)
}}

entry main("a", "b", "w") -> ("y", "turns_a", "turns_b");
""")
random = np.random.default_rng(0)
inputs = {
    "a": random.normal(size=(SIZE, SIZE)).astype(np.float32),
    "b": random.normal(size=(SIZE, SIZE)).astype(np.float32) * np.float32(0.1),
    "w": (random.normal(size=(SIZE, SIZE)) * 0.7 / np.sqrt(SIZE)).astype(np.float32),
}
module = inlay.load("settle.inl")
one = inlay.compile(module, threads=1, mode="sequential").run(inputs)
print("turns:", one["turns_a"], "and", one["turns_b"])
assert one["turns_a"] > one["turns_b"] > 0

# ---------------------------------------------------------------------- 2. what may run at once does
# The two loops need nothing of each other. In parallel mode a call whose result nobody reads yet
# leaves a future, and the machine goes on behind it. Results are those of one step after the other.
# `replay` runs everything as late as it can, in an order that the number picks: a way to meet, in a
# debugger and again tomorrow, the order that showed a mistake.

overlapped = inlay.compile(module, threads=2, mode="parallel")
alone = inlay.compile(module, threads=2, mode="sequential").run(inputs)
for found in (overlapped.run(inputs), inlay.compile(module, threads=2, mode="replay").run(inputs)):
    assert all(np.array_equal(found[name], alone[name]) for name in alone)

# ---------------------------------------------------------------------- 3. requests
# A request is a future. Any thread may ask, many may be under way, and each has an end of its own:
# what it computed, why it failed, or that its time was over. The executable stays as it was.

requests = [overlapped.submit(inputs) for _ in range(3)]
assert all(np.array_equal(request.result()["y"], alone["y"]) for request in requests)

endless = {**inputs, "w": np.eye(SIZE, dtype=np.float32) * 3}  # never settles
ids: tuple[str, ...] = ()
try:
    overlapped.run(endless, timeout=0.05)
except inlay.DeadlineError as late:
    ids = late.ids
assert ids == ("run.deadline",)
assert np.array_equal(overlapped.run(inputs)["y"], alone["y"])

# ---------------------------------------------------------------------- 4. state that lasts and grows
# A session carries outputs over to inputs of the next run. This one keeps all that it has seen, as a
# decoder keeps keys and values; its size is a symbol, so one kernel serves every length.

Path("remember.inl").write_text("""
fn main<n>(seen: Tensor[n, 4, f32], x: Tensor[1, 4, f32]) {
  let all = concat{axis=0}(seen, x);
  (all, reduce_mean{axes=[0], keepdims=false}(all))
}
entry main("seen", "x") -> ("all", "mean");
""")
remember = inlay.compile("remember.inl", threads=1)
session = remember.session({"all": "seen"}, {"seen": np.zeros((0, 4), np.float32)})
for turn in range(1, 6):
    answer = session.run({"x": np.full((1, 4), turn, np.float32)})
    assert np.allclose(answer["mean"], np.mean(range(1, turn + 1)))
print("the session has seen", session.state["seen"].shape[0], "rows")
assert session.state["seen"].shape == (5, 4)

# ---------------------------------------------------------------------- 5. a timeline
# What ran where and when, with arrows from what a kernel waited for. The file opens in Perfetto and in
# chrome://tracing. From the command line: `inlay run settle.inl --mode parallel --trace T.json`.

overlapped.save("settle.inlay")
watched = inlay.load_executable("settle.inlay", settings=Settings(threads=2, mode="parallel", trace=True))
watched.run(inputs)
events = watched.events()
Path("timeline.json").write_text(json.dumps(timeline(events)))
assert any("matmul" in event.name for event in events)
print(table(events))

os.chdir(before)
temporary.cleanup()
