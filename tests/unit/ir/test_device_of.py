"""Places are read off the program, and their text form is read back."""

from __future__ import annotations

from inlay.ir.expr import Project, Var
from inlay.ir.parser import parse_module
from inlay.ir.place import Origin, Place
from inlay.ir.printer import print_module
from inlay.ir.verify import check
from inlay.ir.walk import spine
from inlay.ops.table import table
from tests.device_of import device_of, place_of

TEXT = """
fn f(a @cpu: Tensor[4, f32], b @gpu![gpu.buf, gpu.tex]: Tensor[4, f32]) -> Tensor[4, f32] @cpu {
  neg(a) @cpu
}

fn main(x @_(cpu, _[ram]): (Tensor[4, f32], Tensor[4, f32])) -> Tensor[4, f32] @cpu {
  let y @cpu: Tensor[4, f32] = x.0;
  let g @_(cpu, gpu, cpu): fn(Tensor[4, f32], Tensor[4, f32]) -> Tensor[4, f32] = @f;
  let t = (y, x.1);
  neg(y) @cpu
}
"""


def test_every_expression_has_an_answer():
    m = parse_module(TEXT, table())
    check(m)
    main = m.functions["main"]
    lets, tail = spine(main.body)
    x = main.params[0]
    assert place_of(x.type and x) == Place("", fields=(Place("cpu"), Place("", ("ram",))))
    assert device_of(lets[0].value) == "cpu"
    assert device_of(tail) == "cpu"
    assert device_of(main.body) == "cpu"
    whole = place_of(lets[2].value)
    assert whole == Place("", fields=(Place("cpu"), Place("", ("ram",))))
    assert isinstance(lets[2].value.fields[1], Project)
    wanted = Place("gpu", ("gpu.buf", "gpu.tex"), Origin.USER)
    assert place_of(lets[1].value, m) == Place("", fields=(Place("cpu"), wanted, Place("cpu")))
    assert place_of(Var("z", x.type)) is None


def test_places_of_parts_round_trip():
    m = parse_module(TEXT, table())
    assert print_module(parse_module(print_module(m), table())) == print_module(m)
    assert "x @_(cpu, _[ram])" in print_module(m)
