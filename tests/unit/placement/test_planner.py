"""What the planner promises beyond its cases: order does not matter, size neither, errors help."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from inlay.analysis.blocks import values
from inlay.arith.dtype import F32
from inlay.base.diagnostics import CompileError
from inlay.interp.tensor import evaluate
from inlay.ir import make
from inlay.ir.expr import Call, OpRef
from inlay.ir.module import Module
from inlay.ir.place import Place
from inlay.ir.printer import print_module
from inlay.ir.walk import spine
from inlay.ops.device import DEVICE_COPY, ON_DEVICE, OnDeviceAttrs, Position
from tests.device_of import device_of, place_of
from tests.unit.placement.cases import (
    B2,
    B2X,
    M2,
    OPS,
    N,
    arguments,
    assert_alike,
    board,
    normal,
    planned,
    read,
    same,
)
from tests.unit.placement.test_cases import CASES


def copies(module: Module) -> int:
    return sum(
        isinstance(v, Call) and isinstance(v.callee, OpRef) and v.callee.op is DEVICE_COPY
        for f in module.functions.values()
        for v in values(f.body)
    )


def fails(text: str, machine, how=None) -> CompileError:
    with pytest.raises(CompileError) as failure:
        planned(read(text), machine, how)
    return failure.value


def test_every_expression_can_be_asked():
    _, source, _ = CASES["02 left add on cpu"]
    m = planned(read(source), B2)
    main = m.functions["main"]
    lets, tail = spine(main.body)
    assert [p.place.device for p in main.params] == ["cpu", "cpu", "gpu", "gpu"]
    assert [device_of(x.value) for x in lets] == ["cpu", "gpu", "gpu", "gpu"]
    assert device_of(tail) == "gpu"
    where = place_of(make.global_var("main", main.type), m)
    assert where is not None
    assert [p.device for p in where.fields if p] == ["cpu", "cpu", "gpu", "gpu", "gpu"]


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_declarations_changes_nothing(name):
    machine, source, _ = CASES[name]
    from tests.unit.placement.cases import BOARDS

    module = read(source)
    turned = module.with_functions(dict(reversed(module.functions.items())))
    one, other = planned(module, BOARDS[machine]), planned(turned, BOARDS[machine])
    assert_alike(one, other)
    assert_alike(other, one)


def test_a_long_chain():
    a, b, c, d = (make.var(n, make.tensor_type((4,), F32)) for n in "abcd")
    add = OPS.definition("add").op
    x, y = make.call(add, (a, b)), make.call(add, (c, d))
    for _ in range(1553):
        x, y = y, make.call(add, (y, x))
    m = Module({"main": make.function((a, b, c, d), y)})
    result = planned(m, B2)
    calls = [v for v in values(result.functions["main"].body) if isinstance(v, Call)]
    assert len(calls) == 1555
    assert {v.place.device for v in calls} == {"gpu"}


def lets(count: int) -> Module:
    add, neg, exp = (OPS.definition(n).op for n in ("add", "neg", "exp"))
    annotation = lambda e, d: make.call(ON_DEVICE, (e,), OnDeviceAttrs(d, position=Position.DEFINITION))  # noqa: E731
    x, y = (make.var(n, make.tensor_type((4,), F32)) for n in "xy")
    bound = [(make.var("v0", x.type), make.call(neg, (x,)))]
    bound.append((make.var("w0", x.type), annotation(bound[0][0], "cpu")))
    bound.append((make.var("v1", x.type), make.call(exp, (y,))))
    one, other = bound[1][0], bound[2][0]
    for i in range(count):
        v = make.var(f"v{i + 2}", x.type)
        bound.append((v, make.call(add, (other, one))))
        one, other = other, v
    last = make.var("last", x.type)
    bound.append((last, annotation(other, "gpu")))
    return Module({"main": make.function((x, y), make.lets(bound, last))})


def check_lets(count: int) -> float:
    from inlay.placement.plan_places import plan
    from tests.unit.placement.cases import everything

    m = lets(count)
    start = time.process_time()
    result = plan(m, B2, everything)
    took = time.process_time() - start
    assert copies(result) == 1
    main = result.functions["main"]
    assert [p.place.device for p in main.params] == ["cpu", "gpu"]
    return took


def test_many_lets():
    check_lets(3_000)


@pytest.mark.slow
def test_a_hundred_thousand_lets():
    assert check_lets(100_000) < 10


def test_a_function_called_often_is_written_once():
    calls = "".join(f"let v{i + 1} = @f(v{i});" for i in range(1000))
    m = planned(read(f"fn f(x: T) {{ relu(neg(x)) }} fn main(v0: T) {{ {calls} v1000 }}"), B2)
    assert len(m.functions) == 2


# ------------------------------------------------------------------------------------ new facts


def test_new_facts_narrow_and_add_copies():
    text = """
fn k "k" (p: T, q: T) -> T { sub(p, q) }
fn main(a: T, b: T, c: T, d: T) { @k(on(cpu, add(a, b)), add(c, d)) }
"""
    p = planned(read(text), B2X)
    again = planned(read(print_module(p).replace("q: ", "q @_[gpu.tex]: ", 1)), B2X)
    assert copies(again) == copies(p) == 1
    made = [x.value.place for x in spine(again.functions["main"].body)[0]]
    assert made[1] == Place("gpu", ("gpu.tex",))
    assert_alike(planned(again, B2X), again)


def test_a_later_annotation_adds_a_copy():
    m = planned(read("fn main(a: T) { let v = neg(a); exp(v) }"), B2)
    main = m.functions["main"]
    (v, e), _ = spine(main.body)
    annotation = make.call(ON_DEVICE, (v.var,), OnDeviceAttrs("cpu", position=Position.OPERAND))
    t = make.var("t", annotation.type)
    call = Call(e.value.callee, (t,), e.value.type, e.value.span, None)
    u = make.var("u", call.type)
    body = make.lets([(v.var, v.value), (t, annotation), (u, call)], u)
    again = planned(m.with_functions({"main": replace(main, body=body)}), B2)
    assert again.functions["main"].params[0].place == Place("gpu")
    x, y = evaluate(m, arguments(main)), evaluate(again, arguments(main))
    assert same(x, y)


# ------------------------------------------------------------------------------------ one device only


def test_what_only_the_host_can_run_says_nothing_about_its_neighbours():
    machine = board("npu", {"cpu": "ram", "npu": "m"}, "ram-m")

    def how(call):
        return {} if call.callee.op.name in ("matmul", "relu") else {"npu": "npu has no such thing"}

    text = "fn main(x: T, w: T, y: T) { add(softmax{axis=-1}(relu(matmul(x, w))), y) }"
    m = planned(read(text), machine, how)
    main = m.functions["main"]
    assert [p.place.device for p in main.params] == ["npu", "npu", "cpu"]
    made = [(x.value.callee.op.name, x.value.place.device) for x in spine(main.body)[0]]
    assert made == [
        ("matmul", "npu"),
        ("relu", "npu"),
        ("device_copy", "cpu"),
        ("softmax", "cpu"),
        ("add", "cpu"),
    ]
    assert main.place.device == "cpu"


# ------------------------------------------------------------------------------------ errors


def test_an_empty_scope_shows_both_facts():
    text = """
fn main(x: T) {
  let t @cpu![stack] = on_device{device="cpu", memories=["npu0", "dma"]}(neg(x)); t }
"""
    failure = fails(text, N)
    assert failure.ids == ("memory.scope-empty",)
    (d,) = failure.diagnostics
    assert "cpu.stack" in d.notes[0] + d.notes[1]
    assert "of which cpu reaches {ram}" in d.notes[0] + d.notes[1]
    assert len(d.labels) == 2
    assert d.hint


def test_contradictions_show_both_chains_and_come_together():
    text = """
fn f(a: T) { let u = neg(a); fixed(cpu, u) }
fn keep(c: Ref[T]) { c }
fn main(x: T, y: T, z: T) {
  let s = add(fixed(cpu, @f(x)), fixed(gpu, exp(y)));
  let r @_(cpu!) = ref(z); let q = @keep(r); let w = read(on(gpu, q));
  mul(s, w) }
"""
    for source in (text, "\n".join(reversed(text.strip().split("\nfn ")))):
        if source is not text:
            parts = text.strip().split("\nfn ")
            source = "fn " + "\nfn ".join([p.removeprefix("fn ") for p in reversed(parts)])
        failure = fails(source, B2)
        assert failure.ids == ("placement.contradiction",) * 2
        first, second = sorted(failure.diagnostics, key=lambda d: "add" not in d.message)
        assert "found add on" in first.message
        assert "fixed on cpu" in first.notes[0]
        assert "fixed on gpu" in first.notes[0]
        assert "cell made at ref(z)" in second.message
        assert "cannot be copied" in second.message
        assert any("r is passed to parameter 0 of keep" in n for n in second.notes)
        assert all(label.span for d in failure.diagnostics for label in d.labels)


@pytest.mark.parametrize(
    ("text", "machine", "id", "said"),
    [
        ("fn main(x: T) { on(gpus, neg(x)) }", B2, "placement.unknown-device", "did you mean gpu"),
        ("fn main(x @gpu![ramm]: T) { neg(x) }", B2, "placement.unknown-memory", "did you mean ram"),
        ("fn main(x @gpu!: T) { let y @cpu! = x; y }", B2, "placement.contradiction", "one value"),
        ("fn main(x @gpu![ram]: T) { neg(x) }", B2, "memory.scope-empty", "gpu reaches {none}"),
    ],
)
def test_mistakes(text, machine, id, said):
    failure = fails(text, machine)
    assert failure.ids == (id,)
    assert said in str(failure)


def test_no_way_from_here_to_there():
    machine = board("gpu", {"cpu": "ram", "gpu": "m"})
    failure = fails("fn main(x: T) { let y = on(cpu, neg(x)); on(gpu, exp(y)) }", machine)
    assert failure.ids == ("device.no-path",)
    assert "'neg" in str(failure) or "'y'" in str(failure)
    assert "a link ram -> m would do" in str(failure)


def test_an_annotation_that_no_device_can_meet():
    how = lambda call: {"gpu": "it has no neg"} if call.callee.op.name == "neg" else {}  # noqa: E731
    for text in ("fn main(x: T) { on(gpu, neg(x)) }", "fn main(x: T) { let y @gpu! = neg(x); y }"):
        failure = fails(text, B2, how)
        assert failure.ids == ("placement.unsupported-op",)
        assert "it has no neg" in str(failure)
        assert "put it on cpu" in str(failure)
    failure = fails("fn main(x: T) { neg(x) }", B2, lambda c: {"cpu": "too slow", "gpu": "no neg"})
    assert "cpu: too slow" in str(failure)


def test_places_of_hops_are_named():
    m = planned(read("fn main(x: T) { on(npu1, exp(on(npu0, neg(x)))) }"), M2)
    found = [
        v.callee.attrs
        for v in values(m.functions["main"].body)
        if isinstance(v, Call) and v.callee.op is DEVICE_COPY
    ]
    assert [(a.src, a.src_memory, a.dst, a.dst_memory, a.engine) for a in found] == [
        ("npu0", "m0", "cpu", "ram", "dma"),
        ("cpu", "ram", "npu1", "m1", "dma"),
    ]


def test_a_normal_program_is_left_as_it_is():
    m = normal(read("fn main(x: T) { neg(x) }"))
    assert normal(m) is m


def test_a_deep_nest_with_annotations_at_both_ends():
    neg = OPS.definition("neg").op
    x = make.var("x", make.tensor_type((4,), F32))
    e = make.call(ON_DEVICE, (make.call(neg, (x,)),), OnDeviceAttrs("cpu"))
    for _ in range(1498):
        e = make.call(neg, (e,))
    e = make.call(ON_DEVICE, (make.call(neg, (e,)),), OnDeviceAttrs("gpu"))
    main = planned(Module({"main": make.function((x,), e)}), B2).functions["main"]
    made = [v for v in values(main.body) if isinstance(v, Call)]
    assert main.params[0].place.device == made[0].place.device == "cpu"
    assert made[1].callee.op is DEVICE_COPY
    assert {v.place.device for v in made[1:]} == {"gpu"}
    assert len(made) == 1501


def test_independent_lets_may_change_places():
    one = "fn main(a: T, b: T) { let p = on(cpu, neg(a)); let q = exp(b); let r = add(p, q); (r, q) }"
    two = "fn main(a: T, b: T) { let q = exp(b); let p = on(cpu, neg(a)); let r = add(p, q); (r, q) }"

    def found(text):
        m = planned(read(text), B2).functions["main"]
        made = {v.callee.op.name: v.place.device for v in values(m.body) if isinstance(v, Call)}
        return made, [p.place.device for p in m.params], place_of(m)

    assert found(one) == found(two)
