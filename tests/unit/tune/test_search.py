"""What is tried next depends on what was tried alone: any run goes on where another one ended."""

from __future__ import annotations

from dataclasses import replace

from inlay.analysis.choices import Choice, Question
from inlay.tune.search import Confirm, Done, Try, step
from inlay.tune.trial import Outcome, Trial

QUESTIONS = (
    Question("rows", 6, (6, 5, 4), 6),
    Question("order", "panels", ("panels", "lines"), "panels"),
    Question("block", 0, (0, 16), 0, of_threads=True),
)
SPEED = {"rows": {5: 0.9, 4: 1.2}, "order": {"lines": 0.8}, "block": {16: 0.995}}


def measured(choice: Choice, noise: float = 0.02) -> Trial:
    share = 1.0
    for name, value in choice.values:
        share *= SPEED[name].get(value, 1.0)
    return Trial(choice, Outcome.MEASURED, 100.0 * share, 100.0, noise, 7)


def run_to_end(trials: list[Trial], threads: int = 2, steps: int = 100) -> list[Trial]:
    """Do what the search says, as an ideal machine would."""
    for _ in range(steps):
        match step(QUESTIONS, trials, threads):
            case Done():
                return trials
            case Try(choices=choices):
                trials = [*trials, measured(choices[0])]  # a run that is ended after each one
            case Confirm(trial=trial):
                others = [t for t in trials if t is not trial]
                trials = [*others, replace(trial, kept=trial.wins)]
    raise AssertionError("the search does not end")


def test_each_answer_alone_then_the_best_together() -> None:
    found = step(QUESTIONS, [], 2)
    assert isinstance(found, Try)
    assert [dict(c.values) for c in found.choices] == [
        {"rows": 5},
        {"rows": 4},
        {"order": "lines"},
        {"block": 16},
    ]
    trials = run_to_end([])
    assert [dict(t.choice.values) for t in trials if t.kept] == [{"rows": 5, "order": "lines"}]
    assert len(trials) == 5
    end = step(QUESTIONS, trials, 2)
    assert isinstance(end, Done)
    assert end.best is not None
    assert round(end.best.gain, 3) == 0.28


def test_what_matters_to_several_threads_alone_is_not_tried_on_one() -> None:
    assert len(run_to_end([], threads=1)) == 4


def test_any_order_of_what_was_tried_goes_on_to_the_same_end() -> None:
    whole = run_to_end([])
    for cut in range(len(whole)):
        begun = [replace(t, kept=None) for t in whole[:cut]][::-1]
        ended = run_to_end(begun)
        assert {t.choice for t in ended} == {t.choice for t in whole}
        assert [t.choice for t in ended if t.kept] == [t.choice for t in whole if t.kept]


def test_what_does_not_exceed_the_noise_is_not_kept() -> None:
    trials = [measured(Choice.of({n: v}), noise=0.3) for n, values in SPEED.items() for v in values]
    assert step(QUESTIONS, trials, 2) == Done(None)
    assert not any(t.wins for t in trials)
    assert not measured(Choice.of({"block": 16}), noise=0.0).wins


def test_a_winner_that_loses_the_second_time_is_not_kept() -> None:
    trials = [measured(Choice.of({n: v})) for n, values in SPEED.items() for v in values]
    trials.append(measured(Choice.of({"rows": 5, "order": "lines"})))
    confirmed = 0
    while not isinstance(todo := step(QUESTIONS, trials, 2), Done):
        assert isinstance(todo, Confirm)
        confirmed += 1
        again = replace(todo.trial, ns=101.0, kept=False)
        trials = [again if t is todo.trial else t for t in trials]
    assert todo == Done(None)
    assert confirmed == 2


def test_what_was_dropped_never_wins() -> None:
    bad = [
        Trial(Choice.of({"rows": v}), o, said="why") for v, o in ((5, Outcome.WRONG), (4, Outcome.REFUSED))
    ]
    rest = [measured(Choice.of({"order": "lines"})), measured(Choice.of({"block": 16}))]
    assert step(QUESTIONS, [*bad, *rest], 2) == Confirm(rest[0])


def test_nothing_open_is_done() -> None:
    assert step((), [], 2) == Done(None)
