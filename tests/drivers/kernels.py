"""The kernels of the conformance suite, as C for the host and as images for devices."""

from __future__ import annotations

from inlay.codegen.c import emit_source
from inlay.loop.parser import parse_function
from inlay.machine.target import Target

TEXTS = (
    """\
lowered func affine(x: i32[n]) -> (y: i32[n]) over (n) {
  for i in 0..n parallel { y[i] = (x[i] * 3:i32) + 1:i32 }
}
""",
    """\
lowered func phases(x: i32[n]) -> (y: i32[n]) over (n)
 uses (t: i32[n] @workspace, s: i32[1] @workspace) {
  for i in 0..n parallel { t[i] = x[i] * 2:i32 }
  s[0] = 0:i32
  for j in 0..n { s[0] = s[0] + t[j] }
  for k in 0..n parallel { y[k] = t[k] + s[0] }
}
""",
    """\
lowered func checked(t: i64[n]) -> (y: i64[n]) over (n) {
  for i in 0..n parallel {
    let k = t[i]
    assert 0:i64 <= k, "negative"
    assert k < [n], "too large"
    y[i] = k
  }
}
""",
    """\
lowered func slow(x: i32[n]) -> (y: i32[n]) over (n, steps) {
  for i in 0..n parallel {
    alloc v: i32[1] @register
    v[0] = 0:i32
    for s in 0..steps { v[0] = (v[0] * 5:i32) + x[i] }
    y[i] = v[0]
  }
}
""",
)


def source(target: Target) -> str:
    """Return the kernels in a language."""
    return emit_source(tuple(parse_function(t) for t in TEXTS), target).text


def host_table() -> str:
    """Return the kernels in C, with the table that the driver `host` takes as an image."""
    made = emit_source(tuple(parse_function(t) for t in TEXTS), Target())
    lines = [made.text, '#include "inlay_driver.h"', ""]
    for name, phases in made.phases.items():
        symbols = ", ".join(p.symbol for p in phases)
        lines.append(f"static const inlay_phase_t {name}_phases[] = {{{symbols}}};")
    rows = [f'    {{"{n}", {len(p)}, {n}_phases}},' for n, p in made.phases.items()]
    lines += [
        "extern const inlay_host_kernel_t kernels[];",
        "extern const size_t kernels_bytes;",
        "const inlay_host_kernel_t kernels[] = {",
        *rows,
        "    {NULL, 0, NULL},",
        "};",
        "const size_t kernels_bytes = sizeof kernels;",
        "",
    ]
    return "\n".join(lines)
