"""Measured choices: how they are found, and how they reach code, its key in the cache, reports and files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.analysis.choices import Choice
from inlay.api import compilation, explain
from inlay.base.instrument import SILENT
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.pipeline import batches
from inlay.pipeline.build_kernels import LoopBody, host_requests
from inlay.pipeline.compile import Compilation, host_generator
from inlay.pipeline.explain.loops import LoopsExplanation
from inlay.pipeline.options import CompileOptions
from inlay.pipeline.planning import Setting, place_of, setting_of
from inlay.pipeline.tuned_use import BATCHED, NOT_HERE
from inlay.pipeline.tuning import Subject, Tuner, subjects_of
from inlay.runtime.session import executable_of
from inlay.transforms._packings import Form
from inlay.tune.database import Database
from inlay.tune.trial import Kind, Outcome, Place, Trial

pytestmark = pytest.mark.llvm

W = np.random.default_rng(3).integers(-4, 5, (24, 80)).astype(np.float32)
PROGRAM = f"""
fn main(x: Tensor[20, 24, f32]) -> Tensor[20, 80, f32] {{
  relu(matmul(x, f32[24, 80]({", ".join(map(str, W.ravel()))})))
}}
entry main("x") -> ("y");
"""
X = np.random.default_rng(4).integers(-4, 5, (20, 24)).astype(np.float32)


def program() -> Module:
    return parse_module(PROGRAM, table())


def compiled(file: Path | None = None, **options: object) -> Compilation:
    tuned = {} if file is None else {"tuned": str(file)}
    return compilation(program(), threads=1, cache="none", **tuned, **options)


def setting() -> Setting:
    return setting_of(CompileOptions(), SILENT, 1)


def here() -> Place:
    s = setting()
    return place_of(s.board, s.targets, 1)


def keys_of(c: Compilation) -> dict[str, str]:
    return {n: k.body.key for n, k in c.module.kernels.items() if isinstance(k.body, LoopBody)}


def won(choice: Mapping[str, int | str]) -> Trial:
    return Trial(Choice.of(choice), Outcome.MEASURED, 80.0, 100.0, 0.0, 9, kept=True)


def written(
    file: Path, kind: Kind, key: str, choice: Mapping[str, int | str], place: Place | None = None
) -> Path:
    database = Database(file)
    database.record(place or here(), kind, key, "matmul", [won(choice)])
    database.close()
    return file


def subject_of() -> Subject:
    """Return the kernel of the program."""
    c = compiled()
    times = dict.fromkeys(c.module.kernels, 1000.0)
    return subjects_of(program(), setting(), times, {}).found[0]


def tuner_of(file: Path, seconds: float) -> Tuner:
    s = setting()
    _, generator = host_generator(s.board, None)
    return Tuner(
        s, generator, Database(file), here(), time.monotonic() + seconds, 1 << 16, lambda _count: None
    )


# --------------------------------------------------------------------------- using choices


def test_a_choice_reaches_the_schedule_and_the_key_of_code(tmp_path: Path) -> None:
    plain = compiled()
    ((name, key),) = keys_of(plain).items()
    file = written(tmp_path / "t.db", Kind.KERNEL, key, {"matmul_packed.rows": 4})
    tuned = compiled(file)
    before, after = (c.module.kernels[name].body for c in (plain, tuned))
    assert isinstance(before, LoopBody)
    assert isinstance(after, LoopBody)
    assert after.choice == Choice.of({"matmul_packed.rows": 4})
    assert after.schedule().steps != before.schedule().steps
    assert after.schedule().unused == ()
    first, second = (host_requests(c.module)[0].key for c in (plain, tuned))
    assert second == f'{first} choice {{"matmul_packed.rows":4}}'
    outputs = [executable_of(c.program)(X) for c in (plain, tuned)]
    np.testing.assert_array_equal(outputs[0], np.maximum(X @ W, 0))
    np.testing.assert_array_equal(outputs[1], outputs[0])


def test_a_choice_of_a_form_changes_how_weights_are_packed(tmp_path: Path) -> None:
    found = subject_of()
    assert found.product is not None
    product, _ = found.product
    (question,) = product.questions
    other = question.options[-1]
    assert other != question.default
    file = written(tmp_path / "t.db", Kind.PRODUCT, product.key, {"panel": other})
    plain, tuned = compiled(), compiled(file)
    assert keys_of(plain) != keys_of(tuned)
    assert tuned.report.to_json()["tuned"] == {
        "kernels": {},
        "products": {product.key: {"panel": other}},
        "others": {},
    }
    np.testing.assert_array_equal(executable_of(tuned.program)(X), executable_of(plain.program)(X))


def test_explain_says_what_compile_does_and_why_the_rest_is_not_used(tmp_path: Path) -> None:
    ((name, key),) = keys_of(compiled()).items()
    file = written(tmp_path / "t.db", Kind.KERNEL, key, {"matmul_packed.rows": 4, "gone": 1})
    written(file, Kind.KERNEL, "of another program", {"a": 1})
    written(file, Kind.PRODUCT, "of another program", {"a": 1})
    written(file, Kind.KERNEL, key, {"matmul_packed.rows": 2}, replace(here(), threads=7))
    written(file, Kind.KERNEL, key, {"matmul_packed.rows": 3}, replace(here(), processor="Z80"))
    shown = explain(program(), view="loops", threads=1, tuned=str(file))
    assert isinstance(shown, LoopsExplanation)
    assert shown.tuned is not None
    assert shown.tuned.to_json() == compiled(file).report.to_json()["tuned"]
    assert shown.tuned.to_json() == {
        "kernels": {name: {"gone": 1, "matmul_packed.rows": 4}},
        "products": {},
        "others": {
            "measured on 7 threads, this is for 1 thread": 1,
            f"measured on 'Z80', this is '{here().processor}'": 1,
            NOT_HERE: 2,
        },
    }
    (kernel,) = shown.to_json()["kernels"]
    assert kernel["choice"] == {"gone": 1, "matmul_packed.rows": 4}
    assert [q["answer"] for q in kernel["open"] if q["name"] == "matmul_packed.rows"] == [4]
    assert kernel["unused"] == ["found gone = 1, which no rule asks for here"]


def test_a_saved_executable_keeps_what_was_chosen(tmp_path: Path) -> None:
    ((_, key),) = keys_of(compiled()).items()
    file = written(tmp_path / "t.db", Kind.KERNEL, key, {"matmul_packed.rows": 4})
    inlay.compile(program(), threads=1, cache="none", tuned=str(file)).save(tmp_path / "p.inlay")
    file.unlink()
    loaded = inlay.load_executable(tmp_path / "p.inlay", threads=1)
    assert '"matmul_packed.rows": 4' in loaded.program.properties["report"]
    np.testing.assert_array_equal(loaded(X), np.maximum(X @ W, 0))


def test_kernels_of_which_several_calls_may_run_as_one_keep_the_bits_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((_, key),) = keys_of(compiled()).items()
    file = written(tmp_path / "t.db", Kind.KERNEL, key, {"matmul_packed.rows": 4})
    monkeypatch.setattr(batches, "LEAST_SHARED", 1)
    made = [compiled(file, batch=b).report.to_json()["tuned"] for b in (False, True)]
    assert [(len(m["kernels"]), m["others"]) for m in made] == [(1, {}), (0, {BATCHED: 1})]


# --------------------------------------------------------------------------- finding them


def test_all_is_measured_once_and_a_later_run_goes_on(tmp_path: Path) -> None:
    file, found = tmp_path / "t.db", subject_of()
    late = tuner_of(file, 0.0).tune(found)
    assert (late.tried, late.is_done) == (0, False)
    done = tuner_of(file, 600.0).tune(found)
    assert done.is_done
    assert done.tried > 5
    assert done.dropped == ()
    again = tuner_of(file, 600.0).tune(found)
    assert (again.tried, again.is_done) == (0, True)
    assert (again.product, again.kernel) == (done.product, done.kernel)
    tuned = compiled(file)
    kept = sum(x is not None for x in (done.product, done.kernel))
    used = tuned.report.to_json()["tuned"]
    assert len(used["kernels"]) + len(used["products"]) == kept
    np.testing.assert_array_equal(executable_of(tuned.program)(X), np.maximum(X @ W, 0))


def test_what_is_wrong_or_cannot_be_made_is_dropped_and_told(tmp_path: Path) -> None:
    found = subject_of()
    assert found.product is not None
    product, at = found.product
    first, second, *_ = [x for x in product.questions[0].options if x != product.questions[0].default]

    def remake(choice: Choice) -> Form | None:
        """Give wrong weights for one width, and no form for the others."""
        form = product.remake(choice)
        if choice.get("panel") != first or form is None:
            return None
        return replace(form, weights=form.weights + np.float32(1))

    file = tmp_path / "t.db"
    broken = replace(found, product=(replace(product, remake=remake), at))
    tuning = tuner_of(file, 600.0).tune(broken)
    assert tuning.product is None
    reasons = {c.get("panel"): why for c, why in tuning.dropped}
    assert "differ, first" in reasons[first]
    assert reasons[second] == "this form has another kernel"
    trials = {t.choice.get("panel"): t for t in Database(file).trials(here(), Kind.PRODUCT, product.key)}
    assert trials[first].outcome is Outcome.WRONG
    assert trials[second].outcome is Outcome.REFUSED
    assert not any(t.kept for t in trials.values())


def test_kernels_that_matter_go_first_and_others_say_why_they_do_not() -> None:
    text = """
    fn main<n>(x: Tensor[n, 64, f32], w: Tensor[64, 64, f32], c: Tensor[n, bool]) {
      let y = softmax(x);
      let z = matmul(y, w);
      let k = nonzero(c);
      (z, tanh(k))
    }
    entry main("x", "w", "c") -> ("z", "k");
    """
    text = text.replace("tanh(k)", "k")
    module = parse_module(text, table())
    c = compilation(module, threads=1, cache="none")
    times = {n: 100.0 * (i + 1) for i, n in enumerate(c.module.kernels)}
    last = list(times)[-1]
    subjects = subjects_of(c.run.loaded, setting(), times, {"n": 5})
    assert [s.ns for s in subjects.found] == sorted((s.ns for s in subjects.found), reverse=True)
    assert subjects.found[0].name == last or last in subjects.without
    nothing = subjects_of(c.run.loaded, setting(), times, {})
    assert nothing.found == ()
    assert set(nothing.without.values()) >= {"the program computes its size n"}
    few = subjects_of(c.run.loaded, setting(), {**times, last: 1e9}, {"n": 5})
    assert "it takes less than 0.1% of a run" in few.without.values()
